"""Whole products in one process, for tests that need thousands of runs: every role as objects of
this event loop, each behind wires.

A lane has a Valkey and a database of its own, and one gateway, policy worker, judge and audit
writer. Each role talks to its servers through wires of its own (`tests.support.servers.wire`), so
that a test can fail one command of one role, or let the role die there: `crash` cuts its wires at
once, so that no clean-up of its can reach a server, ends its tasks, and starts a fresh one. Only
HTTP in front of the gateway is left out: the client is called as the ASGI server would call it. The
upstream is a real one, on HTTP.

What takes seconds in production takes tenths here: by settings where there are any, else by the
constants in `hastened`.
"""

import asyncio
import contextlib
import functools
import gc
import secrets
import time
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis

import db.write.connection
import gateway.heartbeat
import workers.audit.reading
import workers.judge.worker
from db.connections import conninfo
from gateway.main import running
from gateway.routes import Gateway
from protocol.errors import PipelineError
from protocol.request import DialectName
from settings.config import Config
from settings.runtime import Runtime
from streams import layout
from tests.support.checks.invariants import (
    Recorded,
    Seen,
    call_faults,
    read_call,
    record_faults,
    redis_faults,
)
from tests.support.checks.record import fresh_database
from tests.support.json_values import as_json
from tests.support.servers.product import KEY
from tests.support.servers.stores_shared import valkey_server
from tests.support.servers.wire import Fault, PostgresLink, RedisLink, Watch, Wire
from tests.support.upstreams.kinds import Kind, Provider, lane_config
from tests.support.waiting import wait_until
from workers.audit.writer import AuditWriter
from workers.judge.worker import serve
from workers.policy.worker import PolicyWorker

ROLES = ("gateway", "policy", "judge", "audit")
PATHS: dict[DialectName, str] = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
DEADLINE_S = 20.0
STARTS = 5


@contextmanager
def hastened() -> Iterator[None]:
    """Shorten what is no setting: when a gateway, a judge or an audit writer counts as dead."""
    shorter: list[tuple[Any, str, float]] = [
        (gateway.heartbeat, "ALIVE_MS", 3_000),
        (gateway.heartbeat, "BEAT_S", 0.3),
        (workers.audit.reading, "RECLAIM_MS", 800),
        (db.write.connection, "SILENT_S", 2.0),
        (workers.judge.worker, "BEAT_S", 0.2),
        (workers.judge.worker, "BEAT_TTL_MS", 1_500),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in shorter]
    for module, name, value in shorter:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


class Role:
    """One process of a role, as it would be: its wires, its objects, its tasks."""

    def __init__(self, lane: "Lane", role: str) -> None:
        self.lane, self.role, self.name = lane, role, f"{role}-{secrets.token_hex(4)}"
        self.redis_wire = _wire(lane, role, lane.redis_url, RedisLink)
        self.sql_wire = _wire(lane, role, lane.database_url, PostgresLink)
        self.gateway: Gateway | None = None
        self.policy: PolicyWorker | None = None
        self.audit: AuditWriter | None = None
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        """Start it; returns when it is ready."""
        await self.redis_wire.start()
        await self.sql_wire.start()
        settings = Runtime(
            config=self.lane.config,
            name=self.name,
            concurrency=4,
            policy_set="0123456789ab",
            redis_url=_through(self.lane.redis_url, self.redis_wire.port),
            database_url=_through(self.lane.database_url, self.sql_wire.port),
        )
        match self.role:
            case "gateway":
                self._spawn(self._serve(settings))
            case "policy":
                self.policy = PolicyWorker(settings)
                self._spawn(self.policy.run())
            case "judge":
                self._spawn(serve(settings, self._stopping))
            case "audit":
                self.audit = AuditWriter(settings)
                self._spawn(self.audit.run())
        await wait_until(self.is_up, timeout_s=DEADLINE_S, what=f"{self.name} is up")

    def is_up(self) -> bool:
        """Does it say that it is ready? Raises what ended it."""
        for task in self._tasks:
            if task.done():
                task.result()
                raise AssertionError(f"{self.name} ended without a word")
        return (
            self.gateway is not None
            if self.role == "gateway"
            else self.lane.shows(self.role, self.name)
        )

    async def _serve(self, settings: Runtime) -> None:
        async with running(settings) as self.gateway:
            await self._stopping.wait()

    def _spawn(self, coroutine: Any) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(coroutine, name=self.name))

    def cut(self) -> None:
        """Nothing of it reaches a server from now on."""
        self.redis_wire.cut()
        self.sql_wire.cut()

    async def end(self) -> None:
        """End its tasks, whatever they want to do at their end."""
        self.cut()
        # a judge's loop goes on after a cancellation that its client took for a time-out
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        spawned: list[asyncio.Task[Any]] = []
        if self.policy is not None:
            # what is under way for calls belongs to no loop
            self.policy.calls.clear()
            spawned = list(self.policy.calls._tasks)
        for task in spawned:
            task.cancel()
        if ending := {*self._tasks, *spawned}:
            await asyncio.wait(ending, timeout=3)


def _kill(role: Role, starting: "asyncio.Task[None]", _: str) -> None:
    role.cut()
    starting.cancel()


def _wire(lane: "Lane", role: str, url: str, kind: type[Any]) -> Wire:
    at = urlsplit(url)
    assert at.hostname is not None and at.port is not None
    return Wire(lane.watch, role, at.hostname, at.port, kind)


def _through(url: str, port: int) -> str:
    at = urlsplit(url)
    return urlunsplit(at._replace(netloc=f"{at.netloc.rpartition(':')[0]}:{port}"))


@dataclass
class Outcome:
    """What came of one run."""

    faults: list[str]
    seen: Seen
    recorded: Recorded | None = None
    fired: bool = False
    took_s: float = 0.0


@dataclass
class Lane:
    """A product of one's own. One call at a time."""

    redis_url: str
    database_url: str
    watch: Watch = field(default_factory=Watch)
    provider: Provider = field(default_factory=Provider)
    roles: dict[str, Role] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.redis: Any = redis.Redis.from_url(self.redis_url)
        self.sql = psycopg.connect(conninfo(self.database_url), autocommit=True)
        self.config = Config()
        self._crashes: set[asyncio.Task[None]] = set()
        self._dying: set[asyncio.Task[None]] = set()
        self._clients: set[asyncio.Task[None]] = set()
        self._known: set[str] = set()

    async def start(self) -> None:
        """Start the upstream and every role."""
        await self.provider.start()
        self.provider.ready = self._is_through
        self.config = lane_config(self.provider.url)
        self.watch.on_crash = self._crash
        for role in ROLES:
            await self._start(role)

    async def _start(self, role: str) -> None:
        """Start a role, again where it could not: whoever runs processes does so, and a busy
        machine is slow beside the short times."""
        for _ in range(STARTS):
            made = Role(self, role)
            try:
                await made.start()
            except (PipelineError, AssertionError):
                await made.end()
            except asyncio.CancelledError:
                # what listens and is forgotten keeps the loop from closing
                await made.end()
                raise
            else:
                self.roles[role] = made
                return
        raise AssertionError(f"{role} does not start")

    async def stop(self) -> None:
        """Stop everything, also what is just being started in the place of what died."""
        starting = list(self._crashes)
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        await asyncio.gather(*(role.end() for role in self.roles.values()), *self._dying)
        await self.provider.stop()
        self.redis.close()
        self.sql.close()

    def shows(self, role: str, name: str) -> bool:
        """Has a worker process shown that it lives?"""
        return bool(self.redis.hexists(layout.WORKERS_KEY, f"{role}:{name}"))

    # --- dying ---

    def _crash(self, role: str) -> None:
        dead = self.roles.pop(role)
        dead.cut()
        if role == "gateway":
            for client in self._clients:
                client.cancel()
        task = asyncio.get_running_loop().create_task(self._replace(role, dead), name="crash")
        self._crashes.add(task)
        task.add_done_callback(self._crashes.discard)

    async def _replace(self, role: str, dead: Role) -> None:
        # how long a cancelled task takes to end is nobody's matter: no process would have lived on
        ending = asyncio.get_running_loop().create_task(dead.end(), name="dying")
        self._dying.add(ending)
        ending.add_done_callback(self._dying.discard)
        await self._start(role)

    async def restart(self, role: str, fault: Fault | None, *, idle_s: float) -> list[str]:
        """Kill a role and start it with a fault on its way, again where it ended; returns what each
        of those starts ended with.

        Up, it gets `idle_s` to come to the fault. What it may end with is what its command has a
        sentence for; all else is raised.
        """
        dead = self.roles.pop(role)
        await dead.end()
        self.watch.begin(fault)
        ends = list[str]()
        while len(ends) < STARTS:
            made = Role(self, role)
            starting = asyncio.get_running_loop().create_task(
                self._come_up(made, idle_s), name="start"
            )
            self.watch.on_crash = functools.partial(_kill, made, starting)
            await asyncio.wait({starting})
            self.watch.on_crash = self._crash
            error = "killed" if made.redis_wire.is_cut else starting.exception()
            if error is None:
                self.roles[role] = made
                break
            await made.end()
            if not isinstance(error, str | PipelineError | OSError):
                raise error
            ends.append(str(error))
        return ends

    async def _come_up(self, role: Role, idle_s: float) -> None:
        await role.start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.watch.fired.wait(), idle_s)
        role.is_up()

    # --- calling ---

    def _is_through(self) -> bool:
        """Has the worker taken in what the gateway has, and Redis answered both?"""
        gateway, policy = self.roles.get("gateway"), self.roles.get("policy")
        if gateway is None or policy is None or gateway.gateway is None or policy.policy is None:
            return False
        for call in gateway.gateway.bus.calls.values():
            owned = policy.policy.calls.get(call.id)
            if (
                owned is None
                or owned.inbox.expected != call.appender.seq
                or owned.queue.sending is not None
                or call.outgoing.size
            ):
                return False
        return True

    async def run(self, kind: Kind, fault: Fault | None = None, *, idle_s: float = 0.0) -> Outcome:
        """Make one call, with a fault if one is given; wait until all is over, and check the
        invariants.

        `idle_s`: wait so long for the fault before the call, because it is on what a role does by
        the clock.
        """
        self.provider.forget()
        self.watch.begin(fault)
        if idle_s:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.watch.fired.wait(), idle_s)
        await wait_until(lambda: "gateway" in self.roles, timeout_s=DEADLINE_S)
        began = time.monotonic()
        approving = asyncio.get_running_loop().create_task(self._approve(kind), name="approver")
        seen = await self.call(kind)
        left = await self._settle(seen)
        approving.cancel()
        outcome = await asyncio.to_thread(self._check, kind, seen, left)
        outcome.fired, outcome.took_s = self.watch.fired.is_set(), time.monotonic() - began
        return outcome

    async def _approve(self, kind: Kind) -> None:
        """Approve what waits for people, as one of them would who never tires."""
        if not kind.held:
            return
        async with await psycopg.AsyncConnection.connect(
            conninfo(self.database_url), autocommit=True
        ) as people:
            while True:
                await people.execute(
                    "SELECT sluice_decide_approval(approval_id, 'x', 'x', 'approve', '', NULL)"
                    " FROM approvals WHERE outcome IS NULL"
                )
                await asyncio.sleep(0.05)

    async def call(self, kind: Kind) -> Seen:
        """Make one call and return what its client got, whatever is still to be recorded of it."""
        seen = Seen(kind.client, kind.streams, whole=False)
        gateway = self.roles.get("gateway")
        assert gateway is not None and gateway.gateway is not None
        body = [
            {
                "type": "http.request",
                "body": as_json(kind.request()),
                "more_body": False,
            }
        ]

        async def receive() -> MutableMapping[str, Any]:
            if body:
                return body.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                seen.status = message["status"]
                seen.call_id = dict(message["headers"]).get(b"x-sluice-call-id", b"").decode()
                return
            seen.body += message["body"]
            seen.whole = not message.get("more_body", False)

        headers = [
            (b"authorization", b"Bearer " + KEY.encode()),
            (b"x-sluice-policy", kind.policy.encode()),
        ]
        path = PATHS[kind.client]
        scope = {
            "type": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "method": "POST",
            "headers": headers,
        }
        began = time.monotonic()
        task = asyncio.get_running_loop().create_task(
            gateway.gateway(scope, receive, send), name="client"
        )
        self._clients.add(task)
        await asyncio.wait({task}, timeout=2 * DEADLINE_S)
        self._clients.discard(task)
        if not task.done():
            task.cancel()
        seen.elapsed_s = time.monotonic() - began
        return seen

    async def _settle(self, seen: Seen) -> list[str]:
        """Wait until nothing is left to do; returns what still is after a while."""
        until, pause = time.monotonic() + DEADLINE_S, 0.01
        while time.monotonic() < until:
            if not self._crashes and len(self.roles) == len(ROLES):
                # in a thread: other lanes go on while this one's servers answer
                left = await asyncio.to_thread(self._left, seen)
                if left is not None and not left:
                    return []
            await asyncio.sleep(pause)
            pause = min(0.05, pause * 1.3)
        return [*record_faults(self.sql), *redis_faults(self.redis)]

    def _left(self, seen: Seen) -> list[str] | None:
        """What is still to be done; None while that is plain without looking at the record."""
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.xlen(layout.dispatch_key(0)).xlen(layout.audit_key(0)).zcard(layout.JUDGE_QUEUE)
            if any(pipe.execute()):
                return None
        left = record_faults(self.sql) + redis_faults(self.redis)
        return left if not seen.call_id or self._has_ended(seen.call_id) else None

    def _has_ended(self, call_id: str) -> bool:
        return bool(
            self.sql.execute("SELECT 1 FROM ends WHERE call_id = %s", (call_id,)).fetchone()
        )

    def _check(self, kind: Kind, seen: Seen, left: list[str]) -> Outcome:
        found = list(left)
        ids = {
            str(c)
            for (c,) in self.sql.execute(
                "SELECT call_id FROM calls UNION SELECT call_id FROM ends"
            ).fetchall()
        } - self._known
        self._known |= ids
        recorded = None
        if seen.call_id:
            recorded = read_call(self.sql, seen.call_id)
            sent = self.provider.sent if self.provider.asked else b""
            found += call_faults(
                seen, recorded, upstream=sent, unapproved=kind.unapproved, deadline_s=DEADLINE_S
            )
        else:
            found += call_faults(seen, Recorded(end=("FAILED", "unclaimed")), deadline_s=DEADLINE_S)
        for other in ids - {seen.call_id}:
            # the gateway was not told that Redis took the call: its client had an error, and nobody
            # may pay for it
            found += call_faults(
                Seen(seen.dialect, seen.streams, whole=False), read_call(self.sql, other)
            )
        if not seen.call_id and self.provider.asked and seen.whole:
            found.append("the upstream was asked for a call that was refused")
        if self.provider.asked != kind.models[: len(self.provider.asked)]:
            found.append(f"the upstream was asked for {self.provider.asked}")
        if kind.held and kind.held in seen.body:
            # an approval names the one call that used it
            used = self.sql.execute(
                "SELECT count(*) FROM approvals WHERE used_by_call = %s", (seen.call_id,)
            ).fetchone()
            if used != (1,):
                found.append(f"{used} approvals for a call that went out")
        crashed = (
            self.watch.fault is not None
            and self.watch.fault.way == "crash"
            and self.watch.fault.point.role == "judge"
        )
        # asked again by whoever comes after a dead judge
        if self.provider.judged > kind.judged + crashed:
            found.append(f"the judge was asked {self.provider.judged} times")
        for role in self.roles.values():
            if role.audit is not None and role.audit.conflicts:
                found.append(f"{role.audit.conflicts} conflicts")
        return Outcome(found, seen, recorded)


async def end_all_others() -> None:
    """End every other task and every connection: uvloop cannot close its loop (EBUSY) where a dead
    role left one under way."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=1)
    # roles that were ready froze what they found
    gc.unfreeze()
    for transport in [
        found for found in gc.get_objects() if type(found).__name__ == "TCPTransport"
    ]:
        transport.abort()
    gc.freeze()
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def open_lane(folder: Path, server_url: str) -> AsyncIterator[Lane]:
    """Run a lane with a Valkey in `folder` and a new database on the server."""
    folder.mkdir(parents=True, exist_ok=True)
    with valkey_server(folder) as redis_url, fresh_database(server_url) as database_url:
        lane = Lane(redis_url, database_url)
        try:
            await lane.start()
            yield lane
        finally:
            await lane.stop()
