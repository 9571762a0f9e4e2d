"""The gateway process: sockets, Redis, keys and the doors to the record put together."""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Sequence

import uvicorn

from db.keyring import KeyRing
from db.migrations.place import newest
from db.state.polling import Watch
from gateway import descriptors, timers
from gateway.bus import Bus
from gateway.call.allowed_calls import AllowedCalls
from gateway.debug_choice import Switches
from gateway.http_limits import Crowd, bounded_connection
from gateway.policy_sets import PolicySets
from gateway.ready_and_metrics import Status
from gateway.record.audit_proxy import AuditDoor
from gateway.record.pages_proxy import PagesRelay
from gateway.routes import Gateway
from gateway.server import Server
from gateway.upstream import Upstreams
from protocol.errors import AuditUnavailable, StreamConnectionLost
from settings.config import Key
from settings.runtime import Runtime
from streams import lifecycle, metrics_port
from streams.connection import NOT_AN_ANSWER, RedisError
from streams.identity import Identity

log = logging.getLogger(__name__)
KEYS_S = 3.0
"""How long the start waits for the keys in Postgres."""
IDENTITY_S = 5.0
"""How often a gateway looks whether Redis holds its database's calls."""


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((host, port))
    return bound


@contextlib.asynccontextmanager
async def running(settings: Runtime) -> AsyncIterator[Gateway]:
    """Lend a gateway with all that it needs but a socket: Redis, upstreams, keys, timers. Raises
    StreamConnectionLost without Redis."""
    config = settings.config
    name = f"{settings.name or socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    bus = Bus(
        settings.redis_url, name, config.limits, config.shards, strict=config.durability == "strict"
    )
    watch = Watch(settings.database_url)
    switches, allowed = Switches(config.debug), AllowedCalls()

    async def stored_keys() -> Sequence[Key]:
        watched_keys = await watch.keys()
        # with the keys, and never instead of them
        with contextlib.suppress(AuditUnavailable):
            switches.take(await watch.switches())
            allowed.take(await watch.allowed_calls())
        return watched_keys

    keys = KeyRing(config.keys, stored_keys, watch.keys_of)

    async def schema_is_behind() -> bool:
        return await watch.revision() < newest()

    upstreams, status = Upstreams(config, bus, settings.scripts_dir), Status(bus)
    identity, sets = (
        Identity(bus.redis, watch.held, bus.leave),
        PolicySets(bus.redis, name, settings.policy_sets),
    )
    status.faults = [lambda: identity.fault, lambda: sets.fault]
    bus.notices.append(lambda: upstreams.resting)
    app = Gateway(
        config,
        bus,
        keys,
        upstreams,
        status,
        AuditDoor(settings),
        identity,
        sets,
        PagesRelay(settings),
        switches,
        allowed,
    )
    try:
        await bus.open()
        # a Postgres that says nothing must not hold up who has a key of the file; `refresh` goes on
        # trying
        first = {
            asyncio.create_task(keys.refresh_once(), name="first keys"),
            asyncio.create_task(identity.holds(), name="first look"),
        }
        for first_task in first:
            first_task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait(first, timeout=KEYS_S)
        with contextlib.suppress(AuditUnavailable, StreamConnectionLost, RedisError):
            await identity.settle()
        identity.check()
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(bus.run(), name="bus"),
                group.create_task(keys.refresh(), name="keys"),
                group.create_task(timers.watch(bus, config.limits, sets), name="timers"),
                group.create_task(status.watch(schema_is_behind, watch.lacking), name="schema"),
                group.create_task(_watch_identity(identity), name="identity"),
                group.create_task(sets.watch(), name="policy sets"),
                group.create_task(app.refusals.send(bus.lines), name="refusals"),
            ]
            yield app
            for task in background:
                task.cancel()
    finally:
        await upstreams.close()
        await bus.close()
        await watch.close()


async def _watch_identity(identity: Identity) -> None:
    while True:
        with contextlib.suppress(
            AuditUnavailable, StreamConnectionLost, RedisError, *NOT_AN_ANSWER
        ):
            await identity.holds()
        await asyncio.sleep(IDENTITY_S)


async def run(settings: Runtime) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; then drain. Raises OSError if the address is in
    use."""
    limits, bound = settings.config.limits, _bind(settings.host, settings.port)
    stopping = asyncio.Event()
    lifecycle.on_stop(stopping.set)
    async with (
        running(settings) as app,
        metrics_port.listening(settings, lambda: app.status.exposition, app.status.refresh),
        asyncio.TaskGroup() as group,
    ):
        crowd = Crowd(app.is_crowded)
        server = Server(
            uvicorn.Config(
                app,
                http=bounded_connection(limits.client_stall_s, crowd),
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=3,
                timeout_keep_alive=limits.client_idle_s,  # type: ignore[arg-type]  # it is given to call_later
                backlog=2048,
                ws="none",
                proxy_headers=False,
                h11_max_incomplete_event_size=65536,
            ),
            crowd.is_full,
        )
        crowd.pause = server.pause
        serving = group.create_task(server.serve(sockets=[bound]), name="http")
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        if short := descriptors.shortage(settings.config):
            log.warning("too few file descriptors", extra={"why": short})
            app.bus.notices.append(lambda: [short])
        lifecycle.tell_ready(settings)
        log.info(
            "gateway ready",
            extra={
                "gateway": app.bus.gateway,
                "port": bound.getsockname()[1],
                "policy_set": settings.policy_set,
            },
        )
        await stopping.wait()
        await app.drain(max(1.0, limits.drain_s - 5))
        server.should_exit = True
