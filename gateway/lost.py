"""Ended calls that Redis may have lost altogether. The gateway names them on the `ended` stream, and audit writers check the audit log for
them.

Redis may lose its last second of writes, or everything. If a call was open at that time, its gateway finds that the stream is missing. If a
call had just ended, nothing in Redis shows that it existed. So a gateway remembers the calls that it closed in the last seconds. It reports
them again when Redis is another process than before, or when Redis does not know this gateway any more. A worker that gives up a call
writes the end itself and does not read the gateway's end, so the gateway reports what it relayed in that case too. A needless report does
no harm: the check finds a complete record.
"""

import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from gateway.calls import OpenCall
from protocol.bounds import MAX_ENDED_CALLS, MAX_REMEMBERED_CALLS
from protocol.errors import StreamConnectionLost
from streams import layout
from streams.connection import Argument, Connection, RedisError
from streams.layout import Entry

log = logging.getLogger(__name__)
REMEMBERED_S = 5.0
"""How long before the last sign that Redis was well a call may have ended and be lost with it: it writes its file each second."""
CALLS_AN_ENTRY, ENTRY_BYTES = 200, 16 * 1024
"""So many calls are named in one entry, and no more once they are so large: an audit writer holds 100 entries at once."""
ENTRIES_A_LOOK = 10
"""Reports are sent with heartbeats, which must not wait for the round trips of 10,000 calls: the rest goes out with the next heartbeat."""


class _Ended(NamedTuple):
    at: float
    call_id: str
    entry: Entry


class EndsToTell:
    """Reports of one gateway about calls that may be lost. `look` runs with each heartbeat. Past the bound the oldest are dropped."""

    def __init__(self, redis: Connection, gateway: str, shards: int) -> None:
        self._redis, self._gateway, self._shards = redis, gateway, shards
        self._remembered = deque[_Ended](maxlen=MAX_REMEMBERED_CALLS)
        self._to_tell = [deque[_Ended]() for _ in range(shards)]
        self._run_id = ""
        self._has_forgotten = False
        """Were there calls to tell that were past the bound?"""

    @property
    def warnings(self) -> list[str]:
        """What the record may lack without a mark."""
        if not self._has_forgotten:
            return []
        problem = f"Redis may have lost more ended calls than the {MAX_REMEMBERED_CALLS:,} that a gateway remembers"
        return [f"{problem}: the audit log may lack others without a mark (shown until this gateway restarts)"]

    def remember(self, call_id: str, entry: Entry) -> None:
        """Redis has taken the end of a call."""
        self._remembered.append(_Ended(time.monotonic(), call_id, entry))

    def tell(self, call: OpenCall) -> None:
        """Redis has lost a call that is over here, or its worker has given it up."""
        if call.is_begun and (end := call.last) is not None:
            self._add([_Ended(time.monotonic(), call.id, end)])

    def _add(self, ends: Iterable[_Ended]) -> None:
        for one in ends:
            if sum(map(len, self._to_tell)) >= MAX_REMEMBERED_CALLS:
                max(self._to_tell, key=len).popleft()
                self._forget()
            self._to_tell[layout.shard_of(one.call_id)].append(one)

    def _forget(self) -> None:
        if not self._has_forgotten:
            log.error("too many ended calls to check: the audit log may lack some without a mark", extra={"most": MAX_REMEMBERED_CALLS})
        self._has_forgotten = True

    async def is_known(self) -> bool:
        """Does Redis know this gateway still? Asked before its next heartbeat. Raises StreamConnectionLost."""
        keys = [layout.gateway_key(shard, self._gateway) for shard in range(self._shards)]
        try:
            return all([await self._redis.call("EXISTS", key) for key in keys])
        except RedisError:
            # rights of the version before: no heartbeat may fail for that
            return True

    async def look(self, run_id: str, *, known: bool) -> None:
        """Tell what is to be told, to the Redis process `run_id`. Raises StreamConnectionLost."""
        if self._run_id and (run_id != self._run_id or not known):
            if self._remembered:
                log.warning(
                    "Redis may have lost calls that had ended: checking the audit log for them", extra={"count": len(self._remembered)}
                )
            if len(self._remembered) == MAX_REMEMBERED_CALLS:
                # all of the last seconds: others of them were pushed out
                self._forget()
            self._add(self._remembered)
            self._remembered.clear()
        self._run_id = run_id
        oldest = time.monotonic() - REMEMBERED_S
        while self._remembered and self._remembered[0].at < oldest:
            self._remembered.popleft()
        left = ENTRIES_A_LOOK
        try:
            for shard, ends in enumerate(self._to_tell):
                while ends and left:
                    left -= 1
                    await self._tell(shard, ends)
        except RedisError as error:
            count = sum(map(len, self._to_tell))
            log.error("calls that may be lost cannot be reported for checking", extra={"count": count, "error": str(error)[:80]})

    async def _tell(self, shard: int, ends: deque[_Ended]) -> None:
        """Name the first of `ends` in one entry. They are taken out first: two heartbeats may be under way, and one tells each call."""
        batch: list[_Ended] = []
        named: list[Argument] = []
        size = 0
        while ends and len(batch) < CALLS_AN_ENTRY and size < ENTRY_BYTES:
            batch.append(ends.popleft())
            blob = layout.pack(batch[-1].entry)
            size += len(blob)
            named += ("c", batch[-1].call_id, "b", blob)
        try:
            await self._redis.call("XADD", layout.ended_key(shard), "MAXLEN", "~", MAX_ENDED_CALLS, "*", *named)
        except (StreamConnectionLost, RedisError):
            ends.extendleft(reversed(batch))
            raise
