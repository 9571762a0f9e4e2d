"""The process `sluice pages`: listens where gateways find it, or browsers, and loads its libraries with the first request.

They are most of what it would import and of its memory, and many a record is never looked at. Meanwhile it costs next to nothing.
"""

import asyncio
import contextlib
import gc
import logging
import os
import socket
import stat
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn

from pages.connection import MOST_CONNECTIONS, Connection
from protocol.runtime import Runtime
from streams import lifecycle

if TYPE_CHECKING:
    from pages.app import App

log = logging.getLogger(__name__)
HEAD_BYTES = 64 * 1024
STOP_S = 2.0
_OFF = b"<!doctype html><title>No pages</title><p>The pages are switched off: pages.enabled in the configuration.</p>\n"


class LazyApp:
    """An ASGI application that becomes that of the pages when it is first asked."""

    def __init__(self, settings: Runtime) -> None:
        self._settings = settings
        self._loading: asyncio.Task[App] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        if scope["path"] == "/health":
            await _say(send, 200, b"ok\n")
            return
        if not self._settings.config.pages.enabled:
            await _say(send, 404, _OFF)
            return
        if self._loading is None or (self._loading.done() and self._loading.exception() is not None):
            self._loading = asyncio.create_task(self._load(), name="load pages")
        # shielded: whoever asked first may go away while others wait
        app = await asyncio.shield(self._loading)
        await app(scope, receive, send)

    async def close(self) -> None:
        """Close its connections, if it has any."""
        if self._loading is not None:
            for app in await asyncio.gather(self._loading, return_exceptions=True):
                if not isinstance(app, BaseException):
                    await app.close()

    async def _load(self) -> "App":
        await asyncio.to_thread(_import)
        from pages.app import App
        from pages.routes import ROUTES

        app = App(self._settings, ROUTES)
        gc.freeze()  # what was loaded stays: the collector need not look at it with every full collection
        return app


async def _say(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _import() -> None:
    for name in ("pages.app", "pages.routes"):
        import_module(name)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stopping is ours."""
        yield


def bind(settings: Runtime) -> socket.socket:
    """Return the socket that this process listens on. Raises OSError."""
    pages, url = settings.config.pages, settings.pages_url
    if pages.on_gateway and url.startswith("unix:"):
        return _bind_unix(Path(url.removeprefix("unix:")))
    host, port = (urlsplit(url).hostname or "127.0.0.1", urlsplit(url).port or 0) if pages.on_gateway else (pages.host, pages.port)
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(address)
    return bound


def _bind_unix(path: Path) -> socket.socket:
    # of one that was killed; nothing else is removed
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        bound.bind(str(path))
    finally:
        os.umask(mask)
    return bound


async def run(settings: Runtime) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. Raises OSError if the address is in use."""
    bound, stopping, app = bind(settings), asyncio.Event(), LazyApp(settings)
    lifecycle.on_stop(stopping.set)
    server = _Server(
        uvicorn.Config(
            app, http=Connection, loop="none", lifespan="off", log_config=None, access_log=False, server_header=False, date_header=False,
            timeout_graceful_shutdown=round(STOP_S), timeout_keep_alive=30, backlog=256, ws="none", proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS + 1, h11_max_incomplete_event_size=HEAD_BYTES,
        )
    )  # fmt: skip
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(sockets=[bound]), name="http")
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        lifecycle.tell_ready(settings)
        log.info("pages ready", extra={"action": "start"})
        await stopping.wait()
        server.should_exit = True
    await app.close()
