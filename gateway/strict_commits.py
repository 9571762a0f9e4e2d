"""`durability: strict`: releases of workers wait here until their records are committed in
Postgres.

Each reply names the audit entry that holds its record. Audit writers publish the id below which
everything is committed. Both streams are ordered by id, so the waiting replies form a queue, and
one comparison finds the first that may go. A reply without an entry id waits for the replies before
it.

Remembered ids are valid for one Redis process only: ids are times, and a Redis that comes back
empty with a slower clock assigns lower ids. So the channel is only a hint to ask Redis again, and
the answer is believed even if it is lower than before. After a lost connection, or a reply whose id
is lower than the one before, nothing counts as committed until Redis has answered.
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

    def __init__(
        self, url: str, redis: Connection, *, shards: int, silent_s: float, deliver: Deliver
    ) -> None:
        self._redis, self._deliver = redis, deliver
        self._waiting: list[deque[tuple[_Id | None, Reply]]] = [deque() for _ in range(shards)]
        self._below: list[_Id] = [(0, 0)] * shards
        self._last: list[_Id] = [(0, 0)] * shards
        self._shards = {layout.committed_channel(s).encode(): s for s in range(shards)}
        self._sub = Connection(
            url,
            name="gateway-commits",
            silent_s=silent_s,
            on_push=self._on_push,
            on_connect=self._subscribe,
        )

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
        """Take a reply in the order of the stream; `entry` is the id of its audit entry. Raises
        StreamProtocolError."""
        entry_id = None if entry is None else _parse(entry)
        if entry_id is not None:
            if entry_id < self._last[shard]:
                self.forget(shard)
                self._drop_after(shard, entry_id)
            self._last[shard] = entry_id
        self._waiting[shard].append((entry_id, reply))
        self._let_go(shard)

    def forget(self, shard: int) -> None:
        """Redis may be another than before: nothing counts as committed until it is asked."""
        self._below[shard] = (0, 0)
        self._ask(shard)

    def _drop_after(self, shard: int, entry_id: _Id) -> None:
        """Let go of what waits for an entry after `found`, which is read anew, was another Redis',
        or has an id that a byte changed in.

        In front of the queue it would keep everything behind it, perhaps for ever.
        """
        waiting = self._waiting[shard]
        retained = next(
            (n for n, (entry, _) in enumerate(waiting) if entry is not None and entry >= entry_id),
            len(waiting),
        )
        while len(waiting) > retained:
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
        self._redis.call("GET", layout.committed_key(shard)).add_done_callback(
            lambda done: self._answered(shard, done)
        )

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
