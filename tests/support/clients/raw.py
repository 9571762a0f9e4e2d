"""Clients that write bytes: a connection to a server of an application, and what came back on
it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httptools
import uvicorn
from uvicorn.server import ServerState

from gateway.http_limits import BoundedConnection


@asynccontextmanager
async def served(
    app: Callable[..., Awaitable[None]], kind: Callable[..., Any] = BoundedConnection
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server of `app`; `kind` is its class there."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, ws="none")
    config.load()

    def make() -> Any:
        return kind(config=config, server_state=ServerState(), app_state={})

    async with await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        yield reader, writer
        writer.close()


class Answers:
    """The answers in some bytes, read by a strict parser: `interim` statuses, and `whole` ones with
    their bodies."""

    def __init__(self, data: bytes) -> None:
        self.interim, self.whole = list[int](), list[tuple[int, bytes]]()
        self._body = b""
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """Some of it."""
        self._body += body

    def on_message_complete(self) -> None:
        """An answer is complete."""
        status = self._parser.get_status_code()
        if status < 200:
            self.interim.append(status)
        else:
            self.whole.append((status, self._body))
        self._body = b""
