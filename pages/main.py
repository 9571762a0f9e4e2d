"""The process `sluice pages`: listens where gateways find it, or browsers, and loads its libraries
with the first request.

They are most of its imports and memory, and many records are never looked at. Until then it costs
next to nothing. Pages and the audit API are loaded separately and have their own connections:
neither waits for the other's.
"""

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from pages.http.connection import BrowserConnection, FromGateway
from pages.http.lazy_app import Lazy, Loaded
from protocol.dialects.table import kept_of
from settings.runtime import Runtime
from streams import lifecycle, metrics_port
from streams.metrics import ProcessFigures
from streams.metrics_port import Exposition

log = logging.getLogger(__name__)
HEAD_BYTES = 64 * 1024
STOP_S = 2.0
_ANY = frozenset(("0.0.0.0", "::"))
_OFF = (
    b"<!doctype html><title>No pages</title><p>The pages are switched off: pages.enabled in the"
    b" configuration.</p>\n"
)
_UNCLEAR = (
    b"<!doctype html><title>Refused</title><p>Say where the request ends with Content-Length"
    b" alone.</p>\n"
)
_ENDS = frozenset((b"content-length", b"transfer-encoding", b"expect"))
"""Two of these, and a proxy in front may see another end of the request: the next one's answer
would be somebody else's."""
_ELSEWHERE = (
    b"<!doctype html><title>Not here</title><p>Browsers find the pages at pages.host and pages.port"
    b" of the configuration.</p>\n"
)


class LazyApp:
    """An ASGI application: the audit API, and the pages. Each is loaded at its first request."""

    def __init__(self, settings: Runtime) -> None:
        self._settings, self._has_browsers_there = settings, has_browsers_there(settings)
        self._audit, self._pages = Lazy(self._load_audit), Lazy(self._load_pages)

    async def of_gateways(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request where gateways connect."""
        if scope["type"] == "http" and (
            scope["path"].startswith("/audit") or kept_of(scope["path"]) is not None
        ):
            await self._audit(scope, receive, send)
        elif (
            scope["type"] == "http" and scope["path"] != "/health" and not self._has_browsers_there
        ):
            await _say(send, 404, _ELSEWHERE)
        else:
            await self(scope, receive, send)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request of a browser."""
        if scope["type"] != "http":
            return
        if sum(name in _ENDS for name, _ in scope["headers"]) > 1:
            await _say(send, 400, _UNCLEAR, (b"connection", b"close"))
        elif scope["path"] == "/health":
            await _say(send, 200, b"ok\n")
        elif not self._settings.config.pages.enabled:
            await _say(send, 404, _OFF)
        else:
            await self._pages(scope, receive, send)

    async def close(self) -> None:
        """Close all connections, if there are any."""
        await self._pages.close()
        await self._audit.close()

    def _load_pages(self) -> Loaded:
        from pages.http.application import App
        from pages.routes import ROUTES

        return App(self._settings, ROUTES)

    def _load_audit(self) -> Loaded:
        from pages.audit.keyed import KeyedAudit

        return KeyedAudit(self._settings)


async def _say(send: Any, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    headers = (
        *headers,
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    )
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def has_browsers_there(settings: Runtime) -> bool:
    """Do browsers reach the pages where gateways connect: through them, or because both cannot be
    listened on?"""
    pages, url = settings.config.pages, urlsplit(settings.pages_url)
    if pages.on_gateway:
        return True
    hosts = {url.hostname or "", pages.host}
    return (
        url.scheme == "http"
        and url.port == pages.port
        and (len(hosts) == 1 or not hosts.isdisjoint(_ANY))
    )


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stopping is ours."""
        yield


def bind(settings: Runtime) -> socket.socket:
    """Return the socket that gateways connect to. Raises OSError."""
    url = settings.pages_url
    if url.startswith("unix:"):
        return _bind_unix(Path(url.removeprefix("unix:")))
    host, pages = urlsplit(url).hostname or "127.0.0.1", settings.config.pages
    if not pages.on_gateway and has_browsers_there(settings) and pages.host in _ANY:
        host = pages.host
    return _bind_tcp(host, urlsplit(url).port or 0)


def bind_for_browsers(settings: Runtime) -> socket.socket | None:
    """Return the socket that browsers connect to, where that is another one. Raises OSError."""
    pages = settings.config.pages
    return (
        None
        if has_browsers_there(settings) or not pages.enabled
        else _bind_tcp(pages.host, pages.port)
    )


def _bind_tcp(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError:
        bound.close()
        raise
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


def _server(app: Any, http: type[BrowserConnection]) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            interface="asgi3",
            http=http,
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=round(STOP_S),
            timeout_keep_alive=30,
            backlog=256,
            ws="none",
            proxy_headers=False,
            limit_concurrency=http.most + 1,
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
    )


async def run(settings: Runtime) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. Raises OSError if an address is in use."""
    app, stopping = LazyApp(settings), asyncio.Event()
    servers = [(bind(settings), _server(app.of_gateways, FromGateway))]
    if (of_browsers := bind_for_browsers(settings)) is not None:
        servers.append((of_browsers, _server(app, BrowserConnection)))
    lifecycle.on_stop(stopping.set)
    async with (
        metrics_port.listening(settings, lambda: Exposition(ProcessFigures(), "pages")),
        asyncio.TaskGroup() as group,
    ):
        serving = [
            group.create_task(server.serve(sockets=[bound]), name="http")
            for bound, server in servers
        ]
        while not all(server.started for _, server in servers) and not any(
            task.done() for task in serving
        ):
            await asyncio.sleep(0.005)
        lifecycle.tell_ready(settings)
        log.info("pages ready", extra={"action": "start"})
        await stopping.wait()
        for _, server in servers:
            server.should_exit = True
    await app.close()
