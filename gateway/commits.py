"""`durability: strict`: what workers released waits here until its record is committed in Postgres.

Each reply carries the id of the audit entry that holds its record; audit writers publish the id below which everything is
committed. Both streams are in the order of their ids, so waiting replies are a queue, and one comparison lets the first go.
A reply without such an id waits for those before it.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

from protocol.errors import StreamProtocolError
from streams import layout
from streams.connection import Connection
from streams.layout import Reply

Deliver = Callable[[Reply], None]
_Id = tuple[int, int]


def _parse(entry: bytes) -> _Id:
    ms, _, number = entry.partition(b"-")
    try:
        return int(ms), int(number)
    except ValueError as error:
        raise StreamProtocolError("no id of an entry") from error


class CommitGate:
    """The waiting replies of one gateway, by shard; `deliver` gets each once it may go."""

    def __init__(self, url: str, *, shards: int, silent_s: float, deliver: Deliver) -> None:
        self._deliver = deliver
        self._waiting: list[deque[tuple[_Id | None, Reply]]] = [deque() for _ in range(shards)]
        self._below: list[_Id] = [(0, 0)] * shards
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
        self._waiting[shard].append((None if entry is None else _parse(entry), reply))
        self._let_go(shard)

    async def look(self, redis: Connection) -> None:
        """Read how far the record is: a hint on the channel may be lost. Raises StreamConnectionLost, RedisError."""
        for shard in range(len(self._below)):
            if below := await redis.call("GET", layout.committed_key(shard)):
                self._advance(shard, below)

    def _on_push(self, message: list[Any]) -> None:
        self._advance(self._shards[message[1]], message[2])

    async def _subscribe(self) -> None:
        for channel in self._shards:
            self._sub.send_quiet("SUBSCRIBE", channel)

    def _advance(self, shard: int, below: bytes) -> None:
        with contextlib.suppress(StreamProtocolError):
            self._below[shard] = max(self._below[shard], _parse(below))
        self._let_go(shard)

    def _let_go(self, shard: int) -> None:
        waiting, below = self._waiting[shard], self._below[shard]
        while waiting and (waiting[0][0] is None or waiting[0][0] < below):
            self._deliver(waiting.popleft()[1])
