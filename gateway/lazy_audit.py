"""The door to the audit API: whose libraries (FastAPI, SQLAlchemy) a gateway loads with the first request for it, not at its start.

They are most of what a gateway would import and half of its memory, and many a gateway is never asked. They are loaded in
a thread: calls go on meanwhile, and further requests for the record wait for the same load.
"""

import asyncio
import gc
from typing import TYPE_CHECKING

from db.keyring import KeyRing
from gateway.relay import Receive, Scope, Send
from protocol.runtime import Runtime

if TYPE_CHECKING:
    from pages.audit.api import Audit


class LazyAudit:
    """An ASGI application that becomes the audit API when it is first asked; `keys` says who asks."""

    def __init__(self, settings: Runtime, keys: KeyRing) -> None:
        self._settings, self._keys = settings, keys
        self._loading: asyncio.Task[Audit] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if self._loading is None or (self._loading.done() and self._loading.exception() is not None):
            self._loading = asyncio.create_task(self._load(), name="audit API")
        # shielded: whoever asked first may go away while others wait
        audit = await asyncio.shield(self._loading)
        await audit.app(scope, receive, send)

    async def close(self) -> None:
        """Close its connections, if it has any."""
        if self._loading is not None:
            for audit in await asyncio.gather(self._loading, return_exceptions=True):
                if not isinstance(audit, BaseException):
                    await audit.close()

    async def _load(self) -> "Audit":
        audit = await asyncio.to_thread(self._make)
        gc.freeze()  # what was loaded stays: the collector need not look at it with every full collection
        return audit

    def _make(self) -> "Audit":
        from pages.audit.api import make_audit

        return make_audit(self._settings, self._keys.find)
