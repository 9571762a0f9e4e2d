"""An ASGI application whose libraries are loaded at its first request, in a thread: other requests
go on meanwhile."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any, Protocol


class Loaded(Protocol):
    """The loaded application: an ASGI application with its own connections."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""

    async def close(self) -> None:
        """Close all connections."""


class Lazy:
    """Becomes what `load` returns, which runs in a thread; where that failed, the next request
    tries again."""

    def __init__(self, load: Callable[[], Loaded]) -> None:
        self._load = load
        self._loading: asyncio.Task[Loaded] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if self._loading is None or (
            self._loading.done() and self._loading.exception() is not None
        ):
            self._loading = asyncio.create_task(self._loaded(), name="load")
        # shielded: whoever asked first may go away while others wait
        app = await asyncio.shield(self._loading)
        await app(scope, receive, send)

    async def close(self) -> None:
        """Close its connections, if it has any."""
        if self._loading is not None:
            for app in await asyncio.gather(self._loading, return_exceptions=True):
                if not isinstance(app, BaseException):
                    await app.close()

    async def _loaded(self) -> Loaded:
        app = await asyncio.to_thread(self._load)
        # what was loaded stays: the collector need not look at it with every full collection
        gc.freeze()
        return app
