"""uvicorn's server without its signal handlers. It stops listening for a moment while there are too
many connections.

Clients that connect meanwhile wait in the kernel's queue, which takes no descriptor of this
process. They are answered later, with 503 if there are still too many. Without the pause, clients
that arrive when no descriptor is left would be reset.
"""

import asyncio
import contextlib
import functools
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

log = logging.getLogger(__name__)
PAUSE_S = 0.02


class Server(uvicorn.Server):
    """`is_full` says whether a number of connections is more than may be open at once."""

    def __init__(self, config: uvicorn.Config, is_full: Callable[[int], bool]) -> None:
        super().__init__(config)
        self._is_full = is_full
        self._sockets: list[socket.socket] = []
        self._listening: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Draining is ours."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; `sockets` stay open while that pauses, and with them the kernel's queue."""
        self._sockets = sockets or []
        await super().startup([listener.dup() for listener in self._sockets])

    def pause(self) -> None:
        """Accept nobody until there are fewer connections."""
        if self.servers and not self.should_exit:
            for server in self.servers:
                server.close()
            self.servers = []
            asyncio.get_running_loop().call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        loop = asyncio.get_running_loop()
        if self.should_exit:
            return
        if self._is_full(len(self.server_state.connections)):
            loop.call_later(PAUSE_S, self._resume)
        else:
            self._listening = loop.create_task(self._listen(), name="listen")

    async def _listen(self) -> None:
        protocol: Any = self.config.http_protocol_class
        make = functools.partial(
            protocol,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        loop = asyncio.get_running_loop()
        try:
            self.servers = [
                await loop.create_server(make, sock=listener.dup(), backlog=self.config.backlog)
                for listener in self._sockets
            ]
        except OSError as error:
            # no descriptor for that either; who gave up here would never listen again
            log.error("cannot listen again: retrying", extra={"error": str(error)[:80]})
            loop.call_later(PAUSE_S, self._resume)
