"""Compares ended calls, as Redis and gateways report them, with the audit log, and marks calls with
missing records as incomplete.

A PostgreSQL that was restored from an older copy, or an audit stream that somebody trimmed, loses
calls without a trace. So the script that writes a call's end onto the audit stream also names the
call on a separate stream. Gateways add calls whose stream Redis lost, and calls that had just ended
when Redis came back without its last writes. Each call is checked when everything on the audit
stream up to its end must be stored. It is checked once more later, because a database that is
restored also loses what the first check saw. A call is not marked while records of it may still
arrive: entries that wait for PostgreSQL or that a writer holds, or a call that is still open in
Redis. Something counts as missing after two checks. Every writer checks every call; two writers
that find the same hole write the same event.
"""

import logging
import time
from typing import Any
from uuid import UUID

from db.missing_records import CallHole, Hole
from db.write.insert import AuditInserter
from protocol.errors import StreamProtocolError
from protocol.records import EventRecord
from streams import audit_stream, ended_stream, layout
from streams.audit_stream import entry_id
from streams.connection import Connection
from workers.call_totals import relayed_events

log = logging.getLogger(__name__)
FIRST_S = 10.0
"""How long after its end a call is looked up first."""
LATER = 2
"""How many times the time for which ended calls stay in Redis until it is looked up again."""
KEPT_S = 3600.0
"""How long the stream keeps what was looked up twice: for a writer that checks for the first
time."""
PAGE = 100
"""Entries of the stream; one of a gateway names up to 200 calls, in 16 KiB."""
MAX_MISSED = 10_000
"""Calls of which something is missing and that are looked up again; past it they are marked at
once."""


class EndedCalls:
    """Looks after ended calls, for one audit writer."""

    def __init__(self, redis: Connection, *, shards: int, ended_ttl_s: float) -> None:
        self._redis, self._shards = redis, shards
        self._first_s = min(FIRST_S, ended_ttl_s / 6)
        self._ages_s = (self._first_s, LATER * ended_ttl_s)
        self._read_to = {
            (shard, turn): "0-0" for shard in range(shards) for turn in range(len(self._ages_s))
        }
        self._missed: dict[str, float] = {}
        """Calls without an end, and since when they can have none any more."""
        self._holes: list[CallHole] = []
        self._grown: list[UUID] = []
        """Calls of which something was recorded since the last check."""

    @property
    def every_s(self) -> float:
        """How often to check."""
        return self._first_s

    async def check(self, inserter: AuditInserter) -> list[UUID]:
        """Check once; returns the calls whose record grew. Raises AuditUnavailable,
        StreamConnectionLost, RedisError."""
        await self._check_missed(inserter)
        now_ms = layout.time_ms(await self._redis.call("TIME"))
        for shard in range(self._shards):
            first_open = (await audit_stream.read_state(self._redis, shard)).first_open
            until_ms = first_open[0] - 1 if first_open else now_ms
            await self._begin_anew(shard)
            for turn, age_s in enumerate(self._ages_s):
                await self._read(inserter, shard, turn, min(now_ms - int(age_s * 1000), until_ms))
            min_id = min(
                f"{now_ms - int(KEPT_S * 1000)}-0",
                *(self._read_to[shard, t] for t in range(len(self._ages_s))),
                key=entry_id,
            )
            await self._redis.call("XTRIM", layout.ended_key(shard), "MINID", min_id)
        calls = await inserter.mark(self._holes) if self._holes else []
        self._holes = []
        if not self._missed:
            # each call named up to here is on record or marked
            for shard in range(self._shards):
                await ended_stream.write_checked(
                    self._redis, shard, self._read_to[shard, 0], self._read_to[shard, 1]
                )
        if calls:
            log.error(
                "ended calls are incomplete in the audit log",
                extra={"count": len(calls), "calls": ", ".join(map(str, calls[:5]))},
            )
        grown, self._grown = {*calls, *self._grown}, []
        return sorted(grown)

    async def _begin_anew(self, shard: int) -> None:
        """A Redis that came back empty, on a clock that is behind, counts from lower ids."""
        newest = await ended_stream.newest(self._redis, shard)
        for turn in range(len(self._ages_s)):
            if newest < entry_id(self._read_to[shard, turn]):
                self._read_to[shard, turn] = "0-0"

    async def _read(self, inserter: AuditInserter, shard: int, turn: int, until_ms: int) -> None:
        """Look up what ended since the last check, up to a time."""
        is_last = turn == len(self._ages_s) - 1
        entries: list[Any] = [None] * PAGE
        while len(entries) == PAGE:
            after = self._read_to[shard, turn]
            entries = await self._redis.call(
                "XRANGE", layout.ended_key(shard), f"({after}", str(max(until_ms, 0)), "COUNT", PAGE
            )
            calls: list[str] = []
            reported: list[tuple[str, bytes]] = []
            for call_id, blob in (
                named for _, fields in entries for named in ended_stream.calls_of(fields)
            ):
                if blob is not None:
                    reported.append((call_id, blob))
                calls.append(call_id)
            missing = set(await inserter.without_end(calls))
            for call_id in missing:
                self._note_missing(call_id)
            for call_id, blob in reported:
                if call_id not in missing:
                    await self._take_reported(inserter, call_id, blob, is_last=is_last)
            if entries:
                self._read_to[shard, turn] = entries[-1][0].decode()

    def _note_missing(self, call_id: str) -> None:
        if len(self._missed) < MAX_MISSED:
            self._missed.setdefault(call_id, time.monotonic())
        elif call_id not in self._missed:
            self._holes.append(_without_end(call_id))

    async def _check_missed(self, inserter: AuditInserter) -> None:
        """Mark what is missing still."""
        missing = await inserter.without_end(list(self._missed))
        known = [await self._redis.call("EXISTS", layout.call_key(call_id)) for call_id in missing]
        before = await inserter.dropped_before() if missing else ""
        now, missed, self._missed = time.monotonic(), self._missed, {}
        for call_id, is_there in zip(missing, known, strict=True):
            if call_id < before:
                continue
            if is_there:
                # a Redis set back by some writes: the call goes on there, and has its end to come
                self._missed[call_id] = now
            elif now - missed[call_id] >= self._first_s:
                self._holes.append(_without_end(call_id))
            else:
                self._missed[call_id] = missed[call_id]

    async def _take_reported(
        self, inserter: AuditInserter, call_id: str, blob: bytes, *, is_last: bool
    ) -> None:
        """Take what a gateway reports to have relayed of a call: what nobody recorded goes on
        record, and its releases are compared."""
        try:
            closed = layout.unpack_entry(blob)
            sums = layout.unpack_relayed(closed.chunks[0]) if closed.chunks else None
        except StreamProtocolError:
            log.error("unreadable report of a gateway about a call", extra={"call_id": call_id})
            return
        if sums is None:
            return
        known = await inserter.relayed(call_id, closed.number)
        if known.is_redacted:
            return
        if known.given_up_at is not None:
            # a worker that gives a call up reads no end of its gateway: the time is that of its
            # own, the same for whoever writes this
            records = relayed_events(call_id, sums, closed.number, known.given_up_at)
            detail = f"said by its gateway, of {sums.releases:,} releases"
            records.append(
                EventRecord(
                    call_id=call_id,
                    kind="relayed",
                    number=closed.number,
                    at=known.given_up_at,
                    detail=detail,
                )
            )
            if not known.is_said:
                await inserter.insert(records, {})
                self._grown += await inserter.sealed_among([call_id])
            elif known.is_uncovered:
                # who wrote it died before it was sealed again
                self._grown.append(UUID(call_id))
        if is_last and known.chain != sums.sha256:
            detail = (
                f"the gateway relayed {sums.releases:,} releases, the {known.releases:,} on record"
                " up to there are not those"
            )
            self._holes.append(CallHole(UUID(call_id), Hole.RELAYED, detail))


def _without_end(call_id: str) -> CallHole:
    return CallHole(UUID(call_id), Hole.END, "the call ended, and its end did not come onto record")
