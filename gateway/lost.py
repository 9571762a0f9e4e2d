"""Ended calls of which Redis may have lost all: they are named on the `ended` stream, so that the record is asked for them.

Redis may lose its last second, or all it has. Of a call that was open then, its gateway finds the stream gone. Of one that had just ended,
nothing in Redis says that it ever was; so a gateway remembers for some seconds what it closed, and tells it again to a Redis that is
another process than before, or does not know this gateway any more. And a worker that gives a call up writes its end and reads no other:
there too the gateway tells what it relayed. What is told without need does no harm: its record is whole.
"""

import logging
import time
from collections import deque
from typing import NamedTuple

from gateway.calls import OpenCall
from protocol.bounds import MAX_ENDED_CALLS, MAX_REMEMBERED_CALLS
from protocol.errors import StreamConnectionLost
from streams import layout
from streams.connection import Connection, RedisError
from streams.layout import Entry

log = logging.getLogger(__name__)
REMEMBERED_S = 5.0
"""How long before the last sign that Redis was well a call may have ended and be lost with it: it writes its file each second."""


class _Ended(NamedTuple):
    at: float
    call_id: str
    entry: Entry


class LostCalls:
    """What one gateway tells of calls that may be lost. `look` is called with each sign of life."""

    def __init__(self, redis: Connection, gateway: str, shards: int) -> None:
        self._redis, self._gateway, self._shards = redis, gateway, shards
        self._remembered = deque[_Ended](maxlen=MAX_REMEMBERED_CALLS)
        self._to_tell = deque[_Ended](maxlen=MAX_REMEMBERED_CALLS)
        self._run_id = ""

    def remember(self, call_id: str, entry: Entry) -> None:
        """Redis has taken the end of a call."""
        self._remembered.append(_Ended(time.monotonic(), call_id, entry))

    def tell(self, call: OpenCall) -> None:
        """Redis has lost a call that is over here, or its worker has given it up."""
        if call.is_begun and (end := call.last) is not None:
            self._to_tell.append(_Ended(time.monotonic(), call.id, end))

    async def is_known(self) -> bool:
        """Does Redis know this gateway still? Asked before its next sign of life. Raises StreamConnectionLost."""
        keys = [layout.gateway_key(shard, self._gateway) for shard in range(self._shards)]
        try:
            return all([await self._redis.call("EXISTS", key) for key in keys])
        except RedisError:
            # rights of the version before: no sign of life may fail for that
            return True

    async def look(self, run_id: str, *, known: bool) -> None:
        """Tell what is to be told, to the Redis process `run_id`. Raises StreamConnectionLost."""
        if self._run_id and (run_id != self._run_id or not known):
            if self._remembered:
                log.warning(
                    "Redis may have lost calls that had ended: the record is asked for them", extra={"count": len(self._remembered)}
                )
            self._to_tell.extend(self._remembered)
            self._remembered.clear()
        self._run_id = run_id
        oldest = time.monotonic() - REMEMBERED_S
        while self._remembered and self._remembered[0].at < oldest:
            self._remembered.popleft()
        while self._to_tell:
            # taken out first: two signs of life may be under way, and each call is told by one of them
            one = self._to_tell.popleft()
            key = layout.ended_key(layout.shard_of(one.call_id))
            try:
                await self._redis.call("XADD", key, "MAXLEN", "~", MAX_ENDED_CALLS, "*", "c", one.call_id, "b", layout.pack(one.entry))
            except StreamConnectionLost:
                self._to_tell.appendleft(one)
                raise
            except RedisError as error:
                self._to_tell.appendleft(one)
                log.error("lost calls cannot be told", extra={"count": len(self._to_tell), "error": str(error)[:80]})
                return
