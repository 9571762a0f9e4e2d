"""Calls that are on record without an end, and that Redis has no longer: their end was lost with Redis, or never written.

A Redis that comes back without its last writes may have taken a call's terminal record with it, and with the lease nobody is left
who would write another. Audit writers look for such calls. One is ended only when its lease has been gone for as long as a worker
may still end it by itself, and when everything on the audit stream at the moment it was first missed is on record.
"""

import asyncio
import logging
import time
from typing import NamedTuple

from db.insert import AuditInserter
from protocol.records import EndRecord, encode_records
from streams import layout
from streams.connection import Connection

log = logging.getLogger(__name__)
EVERY_S = 60.0
FIRST_S, LATER_S = 86_400, 3_600
"""How far back the first look goes, and the later ones: a call's beginning may come onto record long after it was."""


class _Missed(NamedTuple):
    """When a call was first missed, and the last entry of its audit stream then."""

    at: float
    last: bytes


class LostCalls:
    """Looks for lost calls, for one audit writer. A call ended twice by two writers is a no-op."""

    def __init__(self, redis: Connection, *, ended_ttl_s: float) -> None:
        self._redis, self._ended_ttl_s = redis, ended_ttl_s
        self._since = _first_id(time.time() - FIRST_S)
        self._missed: dict[str, _Missed] = {}

    @property
    def every_s(self) -> float:
        """How often to look."""
        return min(EVERY_S, self._ended_ttl_s)

    async def look(self, inserter: AuditInserter) -> None:
        """Look once. Raises AuditUnavailable, StreamConnectionLost, RedisError."""
        now = time.time()
        found = await inserter.open_calls(self._since)
        self._since = min([_first_id(now - LATER_S), *found[:1]])
        known = await asyncio.gather(*(self._redis.call("EXISTS", layout.ctl_key(c), layout.call_key(c)) for c in found))
        gone = [call_id for call_id, exists in zip(found, known, strict=True) if not exists]
        last = {shard: await self._entry(shard, newest=True) for shard in {layout.shard_of(c) for c in gone}}
        before, self._missed = self._missed, {}
        for call_id in gone:
            shard = layout.shard_of(call_id)
            missed = self._missed[call_id] = before.get(call_id) or _Missed(time.monotonic(), last[shard])
            if time.monotonic() - missed.at > self._ended_ttl_s and _number(await self._entry(shard, newest=False)) > _number(missed.last):
                await self._end(call_id)

    async def _entry(self, shard: int, *, newest: bool) -> bytes:
        """The newest id on the audit stream, or the oldest; of an empty stream nothing is left to wait for."""
        key = layout.audit_key(shard)
        found = await (
            self._redis.call("XREVRANGE", key, "+", "-", "COUNT", 1) if newest else self._redis.call("XRANGE", key, "-", "+", "COUNT", 1)
        )
        if found:
            return bytes(found[0][0])
        return b"0-0" if newest else b"9999999999999-0"

    async def _end(self, call_id: str) -> None:
        log.warning("a call that Redis has lost is ended", extra={"call_id": call_id})
        end = EndRecord(call_id=call_id, at=time.time_ns() // 1_000_000, state="FAILED", reason="stream_lost", status=0, relayed=-1)
        await self._redis.call("XADD", layout.audit_key(layout.shard_of(call_id)), "*", layout.BLOB, encode_records([end]))


def _first_id(at: float) -> str:
    """The smallest call id of that moment."""
    digits = f"{int(at * 1000):012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"


def _number(entry: bytes) -> tuple[int, int]:
    ms, _, n = entry.partition(b"-")
    return int(ms), int(n)
