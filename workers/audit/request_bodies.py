"""Moves request bodies from Redis into the audit log, each once and none before it may be deleted.

A body is read when its call's first record is stored, or its end, if the first record was lost or
went to another writer. This writer remembers which bodies it has committed. Tokens of other systems
are removed. Must not know: entries, acks.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

from db.missing_records import CallHole, Hole
from db.write.insert import AuditInserter
from protocol.bytes.token_removal import without_tokens
from streams import key_memory_scripts, layout
from streams.connection import Connection

BATCH_BYTES = 8 * 2**20
"""A batch ends where its entries or its request bodies pass this (ten entries later at most):
megabytes must not add up in this process."""
LARGE = 64 * 1024
"""Bytes past which a body may be written later than its call's records."""
KEPT = 20_000
FREED = 500
"""Bodies that are deleted in one step."""


class Bodies:
    """The bodies of one writer. `until_stored` calls what it is given until Postgres took it;
    `on_kept` is called with what is on record."""

    def __init__(
        self,
        redis: Connection,
        until_stored: Callable[..., Awaitable[Any]],
        on_kept: Callable[[Mapping[str, bytes]], None],
    ) -> None:
        self._redis, self._until_stored, self._on_kept = redis, until_stored, on_kept
        self._stored = OrderedDict[str, None]()
        self._expected = OrderedDict[str, bytes]()
        self._altered: list[CallHole] = []

    async def take(
        self, inserter: AuditInserter, begun: Mapping[str, int], ended: Collection[str]
    ) -> dict[str, bytes]:
        """Return the request bodies to insert with a batch; if they are many bytes, all but the
        last ones are committed here.

        begun: calls with the size of their body. A call's end may arrive before its beginning,
        which another writer held or whose delivery was lost: then its body is stored now, because
        it is deleted after the end.
        """
        strange = [c for c in dict.fromkeys(ended) if c not in self._stored and c not in begun]
        sizes = {
            **begun,
            **await self.sizes(
                await self._until_stored(inserter.without_body, strange) if strange else ()
            ),
        }
        together: dict[str, int] = {}
        bodies: dict[str, bytes] = {}
        for call_id, size in sizes.items():
            if together and sum(together.values()) + size > BATCH_BYTES:
                bodies = await self._read(together)
                await self._until_stored(inserter.insert, [], bodies)
                self.note_kept(bodies)
                together = {}
            together[call_id] = size
        return await self._read(together)

    async def sizes(self, call_ids: Collection[str]) -> dict[str, int]:
        """Return how many bytes the bodies of these calls have; 0 for one that is not there."""
        sizes = (
            await asyncio.gather(
                *(self._redis.call("STRLEN", layout.body_key(c)) for c in call_ids)
            )
            if call_ids
            else ()
        )
        return dict(zip(call_ids, sizes, strict=True))

    async def _read(self, call_ids: Iterable[str]) -> dict[str, bytes]:
        bodies = await asyncio.gather(
            *(self._redis.call("GET", layout.body_key(c)) for c in call_ids)
        )
        return {
            c: self._recorded(c, body)
            for c, body in zip(call_ids, bodies, strict=True)
            if body is not None
        }

    def _recorded(self, call_id: str, body: bytes) -> bytes:
        """The body as it goes into the record. Only the whole of it can be compared with the one
        that came."""
        expected = self._expected.pop(call_id, None)
        if expected is not None and sha256(body).digest() != expected:
            self._altered.append(
                CallHole(
                    UUID(call_id),
                    Hole.BODY,
                    "the request body came to the record as another than the gateway took",
                )
            )
        return without_tokens(body)

    def expect(self, hashes: Mapping[str, bytes]) -> None:
        """The SHA-256 of bodies, by call, as their gateways sent it."""
        self._expected.update(hashes)
        while len(self._expected) > KEPT:
            self._expected.popitem(last=False)

    def take_altered(self) -> list[CallHole]:
        """Return the bodies that were others, each once."""
        altered, self._altered = self._altered, []
        return altered

    def note_kept(self, bodies: Mapping[str, bytes]) -> None:
        """These bodies, by call, are committed."""
        self._stored.update(dict.fromkeys(bodies))
        self._on_kept(bodies)
        while len(self._stored) > KEPT:
            self._stored.popitem(last=False)

    async def free(self, shard: int, call_ids: Sequence[str]) -> None:
        """Delete the bodies of stored calls of a shard, of which nothing follows. Raises
        StreamConnectionLost, RedisError."""
        for start in range(0, len(call_ids), FREED):
            calls = call_ids[start : start + FREED]
            await key_memory_scripts.free(self._redis, shard, calls)
        for call_id in call_ids:
            self._stored.pop(call_id, None)
            self._expected.pop(call_id, None)

    async def sweep(self, shard: int, cursor: bytes) -> bytes:
        """Give back some of the charges whose bodies are gone; returns where to go on. Raises
        StreamConnectionLost, RedisError."""
        return await key_memory_scripts.sweep(self._redis, shard, cursor)
