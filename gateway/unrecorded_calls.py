"""Ended calls whose record is not known to be in Postgres: a gateway remembers them, and names them
when Redis may have lost them.

Redis may lose its last second of writes, or everything. If a call was open at that time, its
gateway finds that the stream is missing. If a call had ended, and its records were not in Postgres
yet, nothing in Redis shows that it existed: only its gateway knows. So a gateway remembers each
call that it ended until audit writers have checked it. Workers name ended calls on the stream
`ended`; audit writers look them up in Postgres, mark those of which something is missing, and
publish how far they are (`streams.ended_stream`).

A gateway reports on `ended` what it remembers when Redis is another process or has another history
than before (run id, replication id), when Redis does not know this gateway any more, or when
`ended` went back. It also reports calls that nobody named in time, and those that their worker gave
up, because such a worker does not read the gateway's end. A reported call is remembered until
writers have looked it up for the last time, so nothing more is lost if Redis is lost again. A
needless report does no harm: the check finds a complete record.

What a gateway remembers ends with its process.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gateway.call.calls import OpenCall
from protocol.bounds import MAX_ENDED_CALLS, MAX_REMEMBERED_CALLS
from protocol.errors import StreamConnectionLost
from streams import ended_stream, layout
from streams.audit_stream import NO_ENTRY, EntryId, entry_id
from streams.connection import Argument, Connection, RedisError
from streams.layout import Entry

log = logging.getLogger(__name__)
UNNAMED_MS = 60_000
"""A call that no worker named on `ended` so long after its end, though later ones were checked, is
reported."""
CALLS_AN_ENTRY, ENTRY_BYTES = 200, 16 * 1024
"""So many calls are named in one entry, and no more once they are so large: an audit writer holds
100 entries at once."""
ENTRIES_A_LOOK = 10
"""Reports are sent with heartbeats, which must not wait for the round trips of all calls: the rest
goes out with the next heartbeat."""
PAGE, PAGES_A_LOOK = 200, 10
"""Entries of `ended` that are read at once, and how often with one heartbeat."""


@dataclass(slots=True)
class _Ended:
    """A call that this gateway ended."""

    key: str
    entry: Entry
    at_ms: int
    """When, on Redis' clock."""
    is_reported: bool = False
    """Is it to be reported, or was it?"""


class _Place(NamedTuple):
    """Where a call is named on `ended`."""

    entry: EntryId
    call_id: str


class _Shard:
    """What is known of the `ended` stream of one shard."""

    def __init__(self) -> None:
        self.newest: EntryId = NO_ENTRY
        self.read_to: EntryId = NO_ENTRY
        """Up to here the names of calls were read: those that audit writers have checked."""
        self.to_report = deque[str]()
        self.reported = deque[_Place]()
        self.left_out_ms = -1
        """When a call was last not remembered, on Redis' clock; below 0: all are remembered that
        may not be on record."""


class UnrecordedCalls:
    """The calls that one gateway remembers. `look` runs with each heartbeat.

    At most `MAX_REMEMBERED_CALLS`, of one API key as many as are still free. Past that a call is
    not remembered, and if Redis is lost before writers have caught up, the log and `warnings` say
    that the record may lack calls without a mark.
    """

    def __init__(self, redis: Connection, shards: int) -> None:
        self._redis = redis
        self._calls: dict[str, _Ended] = {}
        self._held = Counter[str]()
        """How many of them each key has."""
        self._shards = [_Shard() for _ in range(shards)]
        self._history: tuple[str, ...] = ()
        """The run id and the replication id of Redis."""
        self._now_ms = 0
        """What time it was on Redis' clock at the last look."""
        self._has_forgotten = False
        """Did Redis lose calls while some were not remembered?"""
        self._refusal = ""
        self._looking = asyncio.Lock()
        """A gateway that reads much sends a heartbeat between two others: one look at a time."""

    @property
    def warnings(self) -> list[str]:
        """What the record may lack without a mark."""
        if not self._has_forgotten:
            return []
        problem = (
            f"Redis may have lost more ended calls than the {MAX_REMEMBERED_CALLS:,} that a gateway"
            " remembers"
        )
        return [
            f"{problem}: the audit log may lack others without a mark (shown until this gateway"
            " restarts)"
        ]

    @property
    def count(self) -> int:
        """How many calls are remembered."""
        return len(self._calls)

    @property
    def is_reporting(self) -> bool:
        """Are there calls that are still to be reported?"""
        return any(shard.to_report for shard in self._shards)

    def remember(self, call: OpenCall) -> None:
        """A call that Redis had begun has ended here."""
        if not call.is_begun or (entry := call.last) is None or call.id in self._calls:
            return
        if self._held[call.key] >= MAX_REMEMBERED_CALLS - len(self._calls):
            self._shards[layout.shard_of(call.id)].left_out_ms = self._now_ms
            return
        self._held[call.key] += 1
        self._calls[call.id] = _Ended(call.key, entry, self._now_ms)

    def report(self, call: OpenCall) -> None:
        """Redis has lost a call that is over here, or its worker has given it up."""
        self.remember(call)
        if (known := self._calls.get(call.id)) is not None:
            if not known.is_reported:
                self._queue(call.id)
        elif call.is_begun and call.last is not None:
            self._note_forgotten()

    def _queue(self, call_id: str) -> None:
        self._calls[call_id].is_reported = True
        self._shards[layout.shard_of(call_id)].to_report.append(call_id)

    def _forget(self, call_id: str) -> None:
        if (call := self._calls.pop(call_id, None)) is not None:
            self._held[call.key] -= 1
            if not self._held[call.key]:
                del self._held[call.key]

    async def look(self, info: Mapping[str, str]) -> bool:
        """Learn what is on record, and report what is to be reported to the Redis of this INFO.
        Returns whether this Redis is another than at the last look, or has another history. Raises
        StreamConnectionLost."""
        async with self._looking:
            history = (info.get("run_id", ""), info.get("master_replid", ""))
            is_other = bool(self._history) and history != self._history
            if is_other:
                self.report_all()
            self._history, self._now_ms = history, int(info.get("server_time_usec", 0)) // 1000
            try:
                if self._calls:
                    await self._learn()
                self._refusal = ""
            except RedisError as error:
                # no right to read it, or a key that is no stream: all stay remembered
                if str(error) != self._refusal:
                    log.error(
                        "how far ended calls are checked cannot be read",
                        extra={"error": str(error)[:80]},
                    )
                self._refusal = str(error)
            await self._report()
            return is_other

    def report_all(self) -> None:
        """Redis may be another than before, or does not know this gateway any more."""
        if self._calls:
            log.warning(
                "Redis may have lost calls that had ended: checking the audit log for them",
                extra={"count": len(self._calls)},
            )
        if any(shard.left_out_ms >= 0 for shard in self._shards):
            self._note_forgotten()
        self._shards = [_Shard() for _ in self._shards]
        for call_id in self._calls:
            self._queue(call_id)

    def _note_forgotten(self) -> None:
        if not self._has_forgotten:
            log.error(
                "too many ended calls to check: the audit log may lack some without a mark",
                extra={"most": MAX_REMEMBERED_CALLS},
            )
        self._has_forgotten = True

    async def _learn(self) -> None:
        """Forget the calls that audit writers have checked, and report those that nobody named in
        time."""
        newest = [
            await ended_stream.newest(self._redis, number) for number in range(len(self._shards))
        ]
        if any(now < shard.newest for now, shard in zip(newest, self._shards, strict=True)):
            self.report_all()
        for number, shard in enumerate(self._shards):
            shard.newest = newest[number]
            if shard.read_to == NO_ENTRY:
                shard.read_to = self._before_names(shard.newest)
            checked = await ended_stream.read_checked(self._redis, number)
            while shard.reported and shard.reported[0].entry <= checked.last:
                self._forget(shard.reported.popleft().call_id)
            if await self._read_names(number, shard, checked.first):
                self._queue_unnamed(number, shard, checked.first[0] - UNNAMED_MS)

    def _before_names(self, newest: EntryId) -> EntryId:
        """Return an entry before all that may name a remembered call. Workers name calls after
        their end: older entries are not read."""
        # a millisecond earlier, in which Redis may have added the entry; after its clock was set
        # back it goes on from the newest
        since_ms = next(
            (max(ended.at_ms - 1, 0) for ended in self._calls.values() if not ended.is_reported),
            newest[0] + 1,
        )
        return min(newest, (since_ms, 0))

    async def _read_names(self, number: int, shard: _Shard, until: EntryId) -> bool:
        """Forget the calls that are named up to `until`. Returns whether all names were read."""
        for _ in range(PAGES_A_LOOK):
            if shard.read_to >= until:
                return True
            (after_ms, after), (until_ms, upto) = shard.read_to, until
            ends = f"({after_ms}-{after}", f"{until_ms}-{upto}"
            entries = await self._redis.call(
                "XRANGE", layout.ended_key(number), *ends, "COUNT", PAGE
            )
            for call_id, blob in (
                named for _, fields in entries for named in ended_stream.calls_of(fields)
            ):
                call = self._calls.get(call_id)
                if blob is None and call is not None and not call.is_reported:
                    self._forget(call_id)
            shard.read_to = entry_id(entries[-1][0]) if len(entries) == PAGE else until
        return False

    def _queue_unnamed(self, number: int, shard: _Shard, before_ms: int) -> None:
        if shard.left_out_ms < before_ms:
            shard.left_out_ms = -1
        for call_id, ended in self._calls.items():
            if ended.at_ms >= before_ms:
                break
            if not ended.is_reported and layout.shard_of(call_id) == number:
                self._queue(call_id)

    async def _report(self) -> None:
        left = ENTRIES_A_LOOK
        try:
            for number, shard in enumerate(self._shards):
                while shard.to_report and left:
                    left -= 1
                    await self._name(number, shard)
        except RedisError as error:
            count = sum(len(shard.to_report) for shard in self._shards)
            log.error(
                "calls that may be lost cannot be reported for checking",
                extra={"count": count, "error": str(error)[:80]},
            )

    async def _name(self, number: int, shard: _Shard) -> None:
        """Name the first calls in one entry. They are taken out first: two heartbeats may be under
        way, and one names each call."""
        batch: list[str] = []
        named: list[Argument] = []
        size = 0
        while shard.to_report and len(batch) < CALLS_AN_ENTRY and size < ENTRY_BYTES:
            call_id = shard.to_report.popleft()
            if (ended := self._calls.get(call_id)) is None:
                continue
            blob = layout.pack(ended.entry)
            batch.append(call_id)
            size += len(blob)
            named += ("c", call_id, "b", blob)
        if not batch:
            return
        try:
            last_entry = await self._redis.call(
                "XADD", layout.ended_key(number), "MAXLEN", "~", MAX_ENDED_CALLS, "*", *named
            )
        except (StreamConnectionLost, RedisError):
            shard.to_report.extendleft(reversed(batch))
            raise
        # where Redis was lost meanwhile, `shard` is one of before, and all is reported again
        shard.reported += [_Place(entry_id(last_entry), call_id) for call_id in batch]
