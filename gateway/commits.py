"""`durability: strict`: what workers released waits here until its record is committed in Postgres.

Each reply carries the id of the audit entry that holds its record; audit writers publish the id below which everything is
committed. Both streams are in the order of their ids, so waiting replies are a queue, and one comparison lets the first go.
A reply without such an id waits for those before it.

What is remembered is of one Redis: ids are times, and one that comes back empty, its clock behind, gives lower ones. So what is heard on
the channel only says when to ask Redis, its answer is believed also where it is lower, and where the connection broke, or a reply's id is
below the one before, nothing counts as committed until it has answered.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from protocol.errors import StreamConnectionLost, StreamProtocolError
from streams import layout
from streams.connection import Connection, RedisError
from streams.layout import Reply

Deliver = Callable[[Reply], None]
_Id = tuple[int, int]


def _parse(entry: bytes) -> _Id:
    ms, _, number = entry.partition(b"-")
    try:
        return int(ms), int(number)
    except ValueError as error:
        raise StreamProtocolError("not an entry id") from error


class CommitGate:
    """The waiting replies of one gateway, by shard; `deliver` gets each once it may go."""

    def __init__(self, url: str, redis: Connection, *, shards: int, silent_s: float, deliver: Deliver) -> None:
        self._redis, self._deliver = redis, deliver
        self._waiting: list[deque[tuple[_Id | None, Reply]]] = [deque() for _ in range(shards)]
        self._below: list[_Id] = [(0, 0)] * shards
        self._last: list[_Id] = [(0, 0)] * shards
        self._shards = {layout.committed_channel(s).encode(): s for s in range(shards)}
        self._sub = Connection(url, name="gateway-commits", silent_s=silent_s, on_push=self._on_push, on_connect=self._subscribe)

    async def open(self) -> None:
        """Begin to listen. Raises StreamConnectionLost."""
        await self._sub.open()

    async def close(self) -> None:
        """Stop listening; what waits is never delivered."""
        await self._sub.close()

    @property
    def is_waiting(self) -> bool:
        """Does anything wait for its commit?"""
        return any(self._waiting)

    def take(self, shard: int, entry: bytes | None, reply: Reply) -> None:
        """Take a reply in the order of the stream; `entry` is the id of its audit entry. Raises StreamProtocolError."""
        found = None if entry is None else _parse(entry)
        if found is not None:
            if found < self._last[shard]:
                self.forget(shard)
                self._drop_after(shard, found)
            self._last[shard] = found
        self._waiting[shard].append((found, reply))
        self._let_go(shard)

    def forget(self, shard: int) -> None:
        """Redis may be another than before: nothing counts as committed until it is asked."""
        self._below[shard] = (0, 0)
        self._ask(shard)

    def _drop_after(self, shard: int, found: _Id) -> None:
        """Let go of what waits for an entry after `found`, which is read anew, was another Redis', or has an id that a byte changed in.

        In front of the queue it would keep everything behind it, perhaps for ever.
        """
        waiting = self._waiting[shard]
        kept = next((n for n, (entry, _) in enumerate(waiting) if entry is not None and entry >= found), len(waiting))
        while len(waiting) > kept:
            waiting.pop()

    def look(self) -> None:
        """Ask how far the record is: a hint on the channel may be lost."""
        for shard in range(len(self._below)):
            self._ask(shard)

    def _on_push(self, message: list[Any]) -> None:
        self._ask(self._shards[message[1]])

    async def _subscribe(self) -> None:
        for channel in self._shards:
            self._sub.send_quiet("SUBSCRIBE", channel)

    def _ask(self, shard: int) -> None:
        # answers come in the order of the questions: the last one is the truth
        self._redis.call("GET", layout.committed_key(shard)).add_done_callback(lambda done: self._answered(shard, done))

    def _answered(self, shard: int, done: "asyncio.Future[bytes | None]") -> None:
        try:
            self._below[shard] = _parse(done.result() or b"0-0")
        except (StreamConnectionLost, RedisError, StreamProtocolError, asyncio.CancelledError):
            return
        self._let_go(shard)

    def _let_go(self, shard: int) -> None:
        waiting, below = self._waiting[shard], self._below[shard]
        while waiting and (waiting[0][0] is None or waiting[0][0] < below):
            self._deliver(waiting.popleft()[1])
