"""Whether this gateway can take calls, and its figures for Prometheus."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily

from gateway.bus import Bus
from protocol.dialects.table import CLIENTS
from protocol.errors import AuditUnavailable, StreamConnectionLost
from streams import fitness, heartbeats, layout, metrics
from streams.connection import NOT_AN_ANSWER, RedisError
from streams.metrics import Gauge, Total
from streams.metrics_port import Exposition

ANSWER_S = 2.0
"""How long /ready waits for Redis."""
SCHEMA_S = 5.0
MOST_NAMED = 3
BACKLOG_S = 30.0
"""Six looks: under load the backlog is smaller at every second one."""


log = logging.getLogger(__name__)


class Status:
    """Readiness and metrics of one gateway process."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._schema_is_behind = False
        self._dead_letters = self._incomplete = 0
        self.faults: list[Callable[[], str]] = []
        """What else may keep calls from being served, each as a sentence, empty when it does
        not."""
        self._resting: list[str] = []
        """Which models the judges leave alone, as sentences."""
        self._backlog, self._shrank_at = 0, time.monotonic()
        for dialect in CLIENTS:
            bus.figures.add(Total.CALLS, dialect, by=0)
        self.exposition = Exposition(bus.figures, "gateway")
        registry = self.exposition.registry
        self._gauges = {
            gauge: prometheus.Gauge(metrics.metric(gauge), gauge.value, registry=registry)
            for gauge in Gauge
        }
        self._gauges[Gauge.OPEN_CALLS].set_function(lambda: len(bus.calls))
        self._gauges[Gauge.CLOCK_AHEAD_SECONDS].set_function(lambda: bus.heartbeat.clock.ahead_s())
        self._counts: dict[metrics.Count, int] = {}
        """None are shown before they are known: what went down to 0 would count as new when it
        comes back."""
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What workers counted, as the registry asks for it."""
        return (
            CounterMetricFamily(metrics.metric(counter), counter.value, number)
            for counter, number in self._counts.items()
        )

    async def watch(
        self,
        schema_is_behind: Callable[[], Awaitable[bool]],
        lacking: Callable[[], Awaitable[tuple[int, int]]],
    ) -> None:
        """Keep an eye on the schema and on what the record lacks until cancelled; with Postgres
        away, what was seen last stays."""
        while True:
            await self._look_at_backlog()
            await self._look_at_shards()
            with contextlib.suppress(AuditUnavailable):
                self._schema_is_behind = await schema_is_behind()
                self._dead_letters, self._incomplete = await lacking()
            await asyncio.sleep(SCHEMA_S)

    async def _look_at_shards(self) -> None:
        with contextlib.suppress(StreamConnectionLost, RedisError, *NOT_AN_ANSWER):
            fewer = heartbeats.fewer_shards(
                (await heartbeats.read(self._bus.redis)).live, self._bus.shards
            )
            named = ", ".join(fewer[:MOST_NAMED])
            what = (
                f"this gateway's configuration has `shards: {self._bus.shards}`, and these"
                f" processes have fewer: {named}"
            )
            message = (
                f"{what}; nobody takes the calls of the other shards: give all processes the same"
                " `shards`"
                if fewer
                else ""
            )
            if message and not self._bus.shards_warning:
                log.error(message, extra={"action": "shards"})
            self._bus.shards_warning = message

    async def _look_at_backlog(self) -> None:
        with contextlib.suppress(StreamConnectionLost, RedisError, *NOT_AN_ANSWER):
            backlog = sum(
                [
                    await self._bus.redis.call("XLEN", layout.audit_key(shard))
                    for shard in range(self._bus.shards)
                ]
            )
            if not backlog or backlog < self._backlog:
                self._shrank_at = time.monotonic()
            self._backlog = backlog

    @property
    def warnings(self) -> list[str]:
        """What somebody should look at, though calls can be served."""
        letters = (
            f"{self._dead_letters:,} records are dead letters: see `sluice doctor`"
            if self._dead_letters
            else ""
        )
        incomplete = (
            f"{self._incomplete:,} calls are incomplete on record: see `sluice doctor`"
            if self._incomplete
            else ""
        )
        found = letters, incomplete, self._behind(), *self._resting, *self._bus.warnings
        return [problem for problem in found if problem]

    def _behind(self) -> str:
        if (waited_s := time.monotonic() - self._shrank_at) <= BACKLOG_S:
            return ""
        problem = (
            f"{self._backlog:,} records wait for Postgres, no fewer than {waited_s:.0f} s ago, so"
            " tool calls are blocked"
        )
        return f"{problem}: see the audit writers' log and Postgres"

    async def ready(self, *, draining: bool) -> tuple[bool, str]:
        """Can a call be served from here? Says in a sentence what is missing."""
        if draining:
            return False, "shutting down"
        try:
            async with asyncio.timeout(ANSWER_S):
                running = await self.workers()
                depths = await asyncio.gather(
                    *(
                        self._bus.redis.call("XLEN", layout.audit_key(s))
                        for s in range(self._bus.shards)
                    )
                )
            faults = fitness.faults_of(self._bus.heartbeat.info)
        except (StreamConnectionLost, RedisError, TimeoutError, *NOT_AN_ANSWER):
            return False, "Redis does not answer"
        for fault in faults:
            return False, f"Redis {fault}"
        if self._bus.heartbeat.is_refused:
            return False, "Redis refuses writes: `sluice doctor` and its log say why"
        if self._bus.trouble:
            return False, self._bus.trouble
        for role, what in (("policy", "policy worker"), ("audit", "audit writer")):
            if not running.get(role):
                return False, f"no {what} is running"
        if self._bus.heartbeat.memory_full:
            return (
                False,
                "Redis is nearly full: give it more memory, or see what `sluice doctor` finds",
            )
        if max(depths) >= self._bus.limits.backlog:
            return (
                False,
                (
                    "too many audit records wait for Postgres: start more audit writers, or see why"
                    " Postgres is slow"
                ),
            )
        for problem in (fault() for fault in self.faults):
            if problem:
                return False, f"{problem}: see what `sluice doctor` says"
        if self._schema_is_behind:
            return False, "the database is not set up for this version: run `sluice migrate`"
        return True, ""

    async def workers(self) -> dict[str, int]:
        """Count live worker processes by role. Raises StreamConnectionLost."""
        live = (await heartbeats.read(self._bus.redis)).live
        self._resting = heartbeats.resting_models(live)
        return {role: len(names) for role, names in live.items()}

    async def metrics(self) -> bytes:
        """Return the text of /metrics."""
        await self.refresh()
        return self.exposition.text()

    async def refresh(self) -> None:
        """Ask for the figures of Redis; those that it does not give stay as they were."""
        redis = self._bus.redis
        gauges = self._gauges
        gauges[Gauge.DEAD_LETTERS].set(self._dead_letters)
        gauges[Gauge.INCOMPLETE_CALLS].set(self._incomplete)
        try:
            shards = range(self._bus.shards)
            gauges[Gauge.AUDIT_BACKLOG_ENTRIES].set(
                sum([await redis.call("XLEN", layout.audit_key(s)) for s in shards])
            )
            gauges[Gauge.DISPATCH_ENTRIES].set(
                sum([await redis.call("XLEN", layout.dispatch_key(s)) for s in shards])
            )
            gauges[Gauge.JUDGE_QUEUE_DEPTH].set(await redis.call("ZCARD", layout.JUDGE_QUEUE))
            oldest, clock = await asyncio.gather(
                redis.call("ZRANGE", layout.JUDGE_QUEUE, 0, 0, "WITHSCORES"), redis.call("TIME")
            )
            waited_s = (layout.time_ms(clock) - float(oldest[1])) / 1000 if oldest else 0.0
            gauges[Gauge.JUDGE_OLDEST_WAIT_SECONDS].set(max(0.0, waited_s))
            gauges[Gauge.JUDGE_JOBS_REJECTED].set(
                int(await redis.call("GET", layout.JUDGE_REJECTED) or 0)
            )
            counts = await self.workers()
            for gauge, role in (
                (Gauge.POLICY_WORKERS, "policy"),
                (Gauge.JUDGE_WORKERS, "judge"),
                (Gauge.AUDIT_WRITERS, "audit"),
            ):
                gauges[gauge].set(counts.get(role, 0))
            self._counts = await metrics.read(redis, self._bus.shards)
        except (StreamConnectionLost, RedisError, *NOT_AN_ANSWER):
            pass
