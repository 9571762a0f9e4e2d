"""The gateway process: sockets, Redis, keys and the audit API put together."""

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import signal
import socket

import uvicorn

from gateway.app import Gateway
from gateway.audit import make_audit
from gateway.bus import Bus
from gateway.heads import bounded_connection
from gateway.keyring import KeyRing
from gateway.status import Status
from gateway.upstream import Upstreams
from protocol.config import Runtime

log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: draining is ours."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((host, port))
    return bound


async def run(settings: Runtime) -> None:
    """Serve until SIGTERM; then drain. Raises OSError if the address is in use."""
    config = settings.config
    bound = _bind(settings.host, settings.port)
    gateway_name = f"{settings.name or socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    bus = Bus(settings.redis_url, gateway_name, config.limits, config.shards, strict=config.durability == "strict")
    audit = make_audit(settings)
    keys = KeyRing(config.keys, audit.load_keys)
    audit.authenticate = keys.authenticate
    upstreams, status = Upstreams(config, bus), Status(bus)
    app = Gateway(config, bus, keys, upstreams, status, audit.app)
    server = _Server(
        uvicorn.Config(
            app, http=bounded_connection(config.limits.client_stall_s),
            loop="none", lifespan="off", log_config=None, access_log=False, server_header=False, date_header=False,
            timeout_graceful_shutdown=3, backlog=2048, ws="none", proxy_headers=False, h11_max_incomplete_event_size=65536,
        )
    )  # fmt: skip
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await bus.open()
    await upstreams.open()
    with contextlib.suppress(Exception):
        await keys.refresh_once()
    try:
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(bus.run(), name="bus"),
                group.create_task(keys.refresh(), name="keys"),
                group.create_task(app.watch_timers(), name="timers"),
                group.create_task(status.watch(audit.schema_is_behind), name="schema"),
            ]
            serving = group.create_task(server.serve(sockets=[bound]), name="http")
            while not server.started and not serving.done():
                await asyncio.sleep(0.005)
            _tell_ready(settings)
            log.info("gateway ready", extra={"gateway": gateway_name, "port": bound.getsockname()[1]})
            await stopping.wait()
            await app.drain(max(1.0, config.limits.drain_s - 5))
            server.should_exit = True
            await serving
            for task in background:
                task.cancel()
    finally:
        await upstreams.close()
        await bus.close()
        await audit.close()


def _tell_ready(settings: Runtime) -> None:
    gc.collect()
    gc.freeze()
    if settings.ready_fd is not None:
        os.write(settings.ready_fd, b"ready\n")
        os.close(settings.ready_fd)
