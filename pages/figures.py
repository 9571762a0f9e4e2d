"""The current state of the product, for the overview: read from Redis and Postgres once a second,
however many viewers there are.

One poller for the process, started by the first viewer and ended with the last. Each group of
figures is read at its own interval and knows when it was last read: what cannot be read stays as it
was, and its age is shown. Must not know: HTTP, templates.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakKeyDictionary

from db.engine import reading
from db.read import overview
from db.read.json_rows import time as iso
from db.read.queries import AuditReader
from pages.page import Services
from protocol.errors import AuditUnavailable, RateLimited, StreamConnectionLost, StreamProtocolError
from settings.runtime import Runtime
from streams import audit_stream, fitness, heartbeats, layout
from streams.connection import NOT_AN_ANSWER, Connection, RedisError
from streams.gateways import live_gateways

log = logging.getLogger(__name__)
JsonObject = dict[str, Any]
MAX_VIEWERS = 50
"""Past it: 429."""
OLD_S = 5.0
"""How much older than its interval a figure may be before it is struck through."""
LOOK_S = 1.0
"""How long a page waits for figures that nobody reads yet."""
OPEN_SHOWN = 20
MINUTES = 30
REDIS_SILENT_S = 2.0


@dataclass(slots=True)
class FigureGroup:
    """Figures that are read together: `at` is when, on the monotonic clock, and `values` the
    result."""

    every_s: float
    read: Callable[[], Awaitable[JsonObject]]
    values: JsonObject = field(default_factory=dict)
    at: float | None = None
    tried_at: float | None = None

    def item(self, now: float) -> JsonObject:
        """The figures with their age; None: never read."""
        return {
            "age_s": None if self.at is None else round(now - self.at, 1),
            "limit_s": self.every_s + OLD_S,
            **self.values,
        }


class Figures:
    """The figures of one process."""

    def __init__(self, settings: Runtime, reader: AuditReader) -> None:
        self._settings, self._reader, self._shards = settings, reader, range(settings.config.shards)
        self._redis: Connection | None = None
        self._minutes: dict[int, int] = {}
        self._users = 0
        self._polling: asyncio.Task[None] | None = None
        self._examining: asyncio.Task[None] | None = None
        self._read_lock, self._opening = asyncio.Lock(), asyncio.Lock()
        self._looked = asyncio.Condition()
        self.groups = {
            "streams": FigureGroup(1.0, self._read_streams),
            "record": FigureGroup(2.0, self._read_record),
            "workers": FigureGroup(1.0, self._read_workers),
            "redis": FigureGroup(5.0, self._read_memory),
            "open": FigureGroup(2.0, self._read_open),
            "doctor": FigureGroup(30.0, self._read_doctor),
        }

    # --- who looks ---

    def item(self) -> JsonObject:
        """All figures, each group with its age."""
        now = time.monotonic()
        return {name: group.item(now) for name, group in self.groups.items()}

    @property
    def is_polling(self) -> bool:
        """Does somebody look?"""
        return self._polling is not None

    async def examined(self) -> None:
        """Wait until what the doctor looks at now is known."""
        if self._examining is not None:
            await asyncio.shield(self._examining)

    async def look(self) -> JsonObject:
        """Return the figures of now, as far as they come within `LOOK_S`."""
        if self._polling is None:
            async with self._used():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._read_due()
        return self.item()

    async def watch(self) -> AsyncIterator[JsonObject]:
        """Yield the figures once a second. Raises RateLimited where too many look."""
        if self._users >= MAX_VIEWERS:
            raise RateLimited(
                f"{MAX_VIEWERS} viewers already have these figures live; load the page again for"
                " those of now"
            )
        async with self._used():
            if self._polling is None:
                self._polling = asyncio.create_task(self._poll(), name="figures")
            while True:
                yield self.item()
                async with self._looked:
                    await self._looked.wait()

    @contextlib.asynccontextmanager
    async def _used(self) -> AsyncIterator[None]:
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                await self._end()

    async def _end(self) -> None:
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()
            await asyncio.wait({polling})
        redis, self._redis = self._redis, None
        if redis is not None:
            await redis.close()
            await asyncio.sleep(0)  # it is closed in the next turn of the loop

    async def _poll(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self._read_due()
            except Exception:
                # whatever it was, the next second may be better, and each figure says how old it is
                log.exception("figures cannot be read", extra={"action": "figures"})
            async with self._looked:
                self._looked.notify_all()
            await asyncio.sleep(max(0.05, 1.0 - (time.monotonic() - began)))

    async def _read_due(self) -> None:
        """Read the groups whose time has come, side by side: one that hangs keeps no other."""
        async with self._read_lock:
            now = time.monotonic()
            due = [
                candidate
                for candidate in self.groups.values()
                if candidate.tried_at is None or now - candidate.tried_at >= candidate.every_s - 0.1
            ]
            doctor = self.groups["doctor"]
            await asyncio.gather(*(self._read(group) for group in due if group is not doctor))
            # at last: what it imports the first time would keep the others for longer than a page
            # waits
            if doctor in due:
                await self._read(doctor)

    async def _read(self, group: FigureGroup) -> None:
        group.tried_at = time.monotonic()
        with contextlib.suppress(
            AuditUnavailable,
            StreamConnectionLost,
            StreamProtocolError,
            RedisError,
            TimeoutError,
            OSError,
            *NOT_AN_ANSWER,
        ):
            async with asyncio.timeout(OLD_S):
                group.values = await group.read()
                group.at = time.monotonic()

    async def _connection(self) -> Connection:
        # one at a time: several groups ask at once, and each would open one
        async with self._opening:
            if self._redis is None:
                self._redis = Connection(
                    self._settings.redis_url,
                    name="pages",
                    silent_s=REDIS_SILENT_S,
                    has_scripts=False,
                )
            if not self._redis.connected.is_set():
                await self._redis.open(patience_s=LOOK_S / 4)
            return self._redis

    # --- what is read ---

    async def _read_streams(self) -> JsonObject:
        redis = await self._connection()
        now = layout.time_ms(await redis.call("TIME"))
        depths = await asyncio.gather(
            *(redis.call("XLEN", layout.dispatch_key(shard)) for shard in self._shards)
        )
        states = await asyncio.gather(
            *(audit_stream.read_state(redis, shard) for shard in self._shards)
        )
        waiting = await asyncio.gather(
            *(
                redis.call("XLEN", layout.audit_key(shard))
                for shard, state in zip(self._shards, states, strict=True)
                if state.first_open
            )
        )
        oldest = [now - state.first_open[0] for state in states if state.first_open]
        questions = await redis.call("ZCARD", layout.JUDGE_QUEUE)
        first = await redis.call("ZRANGE", layout.JUDGE_QUEUE, 0, 0, "WITHSCORES")
        return {
            "open_calls": sum(map(int, depths)),
            "waiting": sum(map(int, waiting)),
            "oldest_ms": max(0, *oldest) if oldest else 0,
            "questions": int(questions),
            "question_ms": max(0, now - int(float(first[1]))) if first else 0,
        }

    async def _read_workers(self) -> JsonObject:
        redis = await self._connection()
        beats = await heartbeats.read(redis)
        shown = await redis.call("HGETALL", layout.GATEWAYS_KEY)
        gateways = live_gateways(dict(zip(shown[::2], shown[1::2], strict=True)), beats.now)
        live = {
            role: len(names)
            for role, names in sorted(beats.live.items())
            if role in ("policy", "judge", "audit", "pages")
        }
        held = [
            [policy, revision, n]
            for (policy, revision), n in sorted(heartbeats.held_revisions(beats.live).items())
        ]
        return {"roles": {"gateway": len(gateways), **live}, "held": held}

    async def _read_memory(self) -> JsonObject:
        info = (await (await self._connection()).call("INFO", "memory")).decode(errors="replace")
        memory = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
        return {
            "used": int(memory["used_memory"]),
            "most": int(memory.get("maxmemory", 0)),
            "share": fitness.memory_share(memory),
        }

    async def _read_open(self) -> JsonObject:
        redis = await self._connection()
        entries = await asyncio.gather(
            *(
                redis.call("XRANGE", layout.dispatch_key(shard), "-", "+", "COUNT", OPEN_SHOWN)
                for shard in self._shards
            )
        )
        ids = sorted(
            {layout.unpack_dispatch(fields)[0] for shard in entries for _, fields in shard}
        )[:OPEN_SHOWN]
        async with reading(self._reader.engine) as connection:
            return {"calls": await overview.open_calls(connection, ids)}

    async def _read_record(self) -> JsonObject:
        now = datetime.now(UTC)
        first = overview.minutes_before(now, MINUTES)
        # what came late is counted for two minutes more
        since = first if not self._minutes else max(first, overview.minutes_before(now, 2))
        async with reading(self._reader.engine) as connection:
            began = time.monotonic()
            await overview.ping(connection)
            answered_ms = (time.monotonic() - began) * 1000
            counted = await overview.calls_by_minute(connection, since)
            blocked = await overview.blocked_since(connection, now - timedelta(hours=1))
            at, checkpoint = await overview.sealed(connection)
        low, high = int(first.timestamp()) // 60, int(now.timestamp()) // 60
        self._minutes = {
            n: count for n, count in {**self._minutes, **counted}.items() if low <= n <= high
        } or {high: 0}
        minutes = [self._minutes.get(n, 0) for n in range(low, high + 1)]
        return {
            "per_minute": minutes[:-1],
            "calls_per_minute": minutes[-2],
            "blocked": blocked,
            "is_more": blocked >= overview.MOST_BLOCKED,
            "answer_ms": round(answered_ms, 1),
            **_sealed(at, checkpoint),
        }

    async def _read_doctor(self) -> JsonObject:
        # it cannot be ended: who waits no longer finds it the next time
        if self._examining is None:
            self._examining = asyncio.create_task(self._examine(), name="doctor")
        await asyncio.shield(self._examining)
        return self.groups["doctor"].values

    async def _examine(self) -> None:
        try:
            values = {"found": await asyncio.to_thread(examine, self._settings)}
            self.groups["doctor"].values, self.groups["doctor"].at = values, time.monotonic()
        finally:
            self._examining = None


def _sealed(at: datetime | None, checkpoint: str | None) -> JsonObject:
    from db.seals.checkpoints import parse

    result: JsonObject = {"sealed_at": at and iso(at), "checkpoint": None, "checkpoint_at": None}
    if checkpoint is not None:
        with contextlib.suppress(ValueError):
            parsed = parse(checkpoint)
            result |= {"checkpoint": parsed.size, "checkpoint_at": parsed.at}
    return result


def examine(settings: Runtime) -> list[JsonObject]:
    """Return what `sluice doctor` would say of what this process may read; nothing where all is
    well. Blocking."""
    # some 0.1 s and 10 MB, for the first who looks
    import redis

    from db.state import health as of_database
    from streams import health as of_redis

    judged = any(
        step.use in ("tool_judge", "text_judge")
        for steps in settings.config.policies.values()
        for step in steps
    )
    checks: list[tuple[str, str, str]] = []
    try:
        with redis.Redis.from_url(
            settings.redis_url, socket_connect_timeout=1, socket_timeout=2
        ) as client:
            for name, check in of_redis.Health(
                settings.config, client, judged=judged, ops="", watch_s=0
            ).checks():
                checks += [(name, state, sentence) for state, sentence in check()]
    except (redis.RedisError, OSError):
        checks.append(("redis", "failed", "Redis does not answer: calls get 503"))
    for name, look in of_database.CHECKS.items():
        try:
            checks += [(name, state, sentence) for state, sentence in look(settings.database_url)]
        except Exception:  # noqa: BLE001 - the driver's own errors are known to `db` alone
            checks.append(
                (
                    "database",
                    "failed",
                    (
                        "PostgreSQL does not answer: the record stays in Redis and tool calls are"
                        " blocked"
                    ),
                )
            )
            break
    return [
        {"what": what, "state": state, "said": message}
        for what, state, message in checks
        if state != "ok"
    ]


_of_reader: "WeakKeyDictionary[AuditReader, Figures]" = WeakKeyDictionary()


def figures_of(services: Services) -> Figures:
    """Return the figures of this process: the same for all that read through the same services."""
    figures = _of_reader.get(services.reader)
    if figures is None:
        figures = _of_reader[services.reader] = Figures(services.settings, services.reader)
    return figures
