"""What an audit writer shows at `/metrics`: how far the record is behind, and what did not go into
it as it came. Redis is asked at a scrape alone."""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence

from protocol.errors import StreamConnectionLost
from streams import audit_stream, layout
from streams.connection import NOT_AN_ANSWER, Connection, RedisError
from streams.metrics import Now, ProcessFigures, Sample, Total
from workers.audit.drain import Drain
from workers.audit.sealing import SealLoop

ASK_S = 2.0


class RecordFigures:
    """The figures of one writer."""

    def __init__(self, redis: Connection, drains: Sequence[Drain], seals: SealLoop) -> None:
        self._redis, self._drains, self._seals = redis, drains, seals
        self._behind: list[Sample] = []
        self.figures = ProcessFigures()
        self.figures.reads.append(self._read)

    def _read(self) -> Iterable[Sample]:
        yield Now.CHECKPOINT_AGE_SECONDS, (), time.monotonic() - self._seals.written
        yield Now.UNSEALED_CALLS, (), self._seals.waiting
        yield from self._behind

    async def refresh(self) -> None:
        """Ask Redis how far each shard is; without an answer nothing is shown of them."""
        self._behind = []
        stores, counts = [drain.store for drain in self._drains], self.figures.totals
        counts[Total.RECORDS_SET_ASIDE][()] = sum(store.set_aside for store in stores)
        counts[Total.RECORD_CONFLICTS][()] = sum(store.conflicts for store in stores)
        call = self._redis.call
        with contextlib.suppress(StreamConnectionLost, RedisError, TimeoutError, *NOT_AN_ANSWER):
            async with asyncio.timeout(ASK_S):
                for drain in self._drains:
                    shard = drain.shard
                    state = await audit_stream.read_state(self._redis, shard)
                    entries = await call("XLEN", layout.audit_key(shard))
                    now_ms = layout.time_ms(await call("TIME"))
                    since_ms = state.first_open[0] if state.first_open else now_ms
                    lag_s = max(0, now_ms - since_ms) / 1000
                    self._behind += [
                        (Now.RECORD_LAG_SECONDS, (str(shard),), lag_s),
                        (Now.RECORD_BACKLOG_ENTRIES, (str(shard),), entries),
                    ]
