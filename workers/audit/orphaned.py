"""Orphaned calls: calls in the audit log without an end, which no worker will write, because Redis
has lost them or shows them as closed.

A Redis that comes back without its last writes may have lost a call's end record and its lease, so
no worker would write another end. Audit writers look for such calls. They end a call only when two
conditions hold: its lease has been missing or closed for as long as a worker may still end the call
by itself, and everything that was on the audit stream when the call was first missed is stored.
"""

import asyncio
import logging
import time
from typing import NamedTuple
from uuid import UUID

from db.write.insert import AuditInserter
from protocol.records import STREAM_LOST, EndRecord
from streams import audit_stream, layout
from streams.audit_stream import EntryId
from streams.connection import Connection, RedisError

log = logging.getLogger(__name__)
EVERY_S = 60.0
FAR_S, NEAR_S = 86_400, 3_600
"""How far back a check goes: a call's beginning may come onto record long after it was."""
FAR_EVERY = 60
"""The first of so many checks goes far: call ids have their gateways' clocks, which may be behind
this process' own."""


class _Missed(NamedTuple):
    """When a call was first missed, and the last entry of its audit stream then."""

    at: float
    last: EntryId


class OrphanedCalls:
    """Looks for orphaned calls, for one audit writer. A call ended twice by two writers is a
    no-op."""

    def __init__(self, redis: Connection, *, ended_ttl_s: float) -> None:
        self._redis, self._ended_ttl_s = redis, ended_ttl_s
        self._checks, self._oldest = 0, ""
        self._missed: dict[str, _Missed] = {}
        self._ended: list[str] = []
        """Calls that were ended, until it is known which of them have a seal."""

    @property
    def every_s(self) -> float:
        """How often to check."""
        return min(EVERY_S, self._ended_ttl_s)

    async def check(self, inserter: AuditInserter) -> list[UUID]:
        """Check once; returns those of the ended calls that had a seal. Raises AuditUnavailable,
        StreamConnectionLost, RedisError."""
        now = time.time()
        # before what is open is asked: an end that comes onto record in between would be taken for
        # none
        firsts = {
            shard: (await self._edges(shard))[0]
            for shard in {layout.shard_of(c) for c in self._missed}
        }
        is_far, self._checks = self._checks % FAR_EVERY == 0, self._checks + 1
        since = _first_id(now - (FAR_S if is_far else NEAR_S))
        call_ids = await inserter.open_calls(
            since if is_far or not self._oldest else min(since, self._oldest)
        )
        self._oldest = call_ids[0] if call_ids else ""
        kept_flags = await asyncio.gather(*map(self._is_kept, call_ids))
        gone = [
            call_id for call_id, is_kept in zip(call_ids, kept_flags, strict=True) if not is_kept
        ]
        lasts = {
            shard: (await self._edges(shard))[1] for shard in {layout.shard_of(c) for c in gone}
        }
        before, self._missed = self._missed, {}
        for call_id in gone:
            shard = layout.shard_of(call_id)
            missed = self._missed[call_id] = before.get(call_id) or _Missed(
                time.monotonic(), lasts[shard]
            )
            if call_id not in before or time.monotonic() - missed.at <= self._ended_ttl_s:
                continue
            if (first := firsts[shard]) is None or first > missed.last:
                log.warning("an orphaned call is ended", extra={"call_id": call_id})
                at = time.time_ns() // 1_000_000
                end = EndRecord(
                    call_id=call_id, at=at, state="FAILED", reason=STREAM_LOST, status=0, relayed=-1
                )
                await inserter.insert([end], {})
                self._ended.append(call_id)
        sealed = await inserter.sealed_among(self._ended) if self._ended else []
        self._ended = []
        return sealed

    async def _is_kept(self, call_id: str) -> bool:
        """Has Redis still something of the call by which it could be ended?"""
        try:
            # not whose it is, which is not ours to know
            token = await self._redis.call("HSTRLEN", layout.ctl_key(call_id), "t")
        except RedisError as error:
            if error.is_spoilt_key:
                return False
            raise
        if token == len(layout.CLOSED):
            return False
        return token > 0 or bool(
            await self._redis.call("EXISTS", layout.ctl_key(call_id), layout.call_key(call_id))
        )

    async def _edges(self, shard: int) -> tuple[EntryId | None, EntryId]:
        """Before which entry of the audit stream all is on record (None: all is), and the newest id
        that it has given out."""
        state = await audit_stream.read_state(self._redis, shard)
        return state.first_open, state.newest


def _first_id(at: float) -> str:
    """The smallest call id of that moment."""
    digits = f"{int(at * 1000):012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"
