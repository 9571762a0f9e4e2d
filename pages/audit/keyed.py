"""The audit API and stored answers, with the keys that may ask for them: from the same key ring as
in gateways, read from Postgres while somebody asks."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from db.keyring import KeyRing, presented_key
from db.state.polling import Watch
from pages.audit.api import make_audit
from pages.audit.stored_answers import StoredAnswersApi
from protocol.errors import AuditUnavailable
from settings.config import Key
from settings.runtime import Runtime


class KeyedAudit:
    """An ASGI application: the audit API of one process, and clients' requests for their stored
    answers. It reads the keys from the first request on."""

    def __init__(self, settings: Runtime) -> None:
        self._watch = Watch(settings.database_url)
        self._keys = KeyRing(settings.config.keys, self._watch.keys, self._watch.keys_of)
        self._audit = make_audit(settings, self._find)
        self._stored_api = StoredAnswersApi(settings, self._find)
        self._refreshing: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._keys.refresh(), name="keys")
        await (self._audit.app if scope["path"].startswith("/audit") else self._stored_api)(
            scope, receive, send
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._refreshing
        await self._audit.close()
        await self._stored_api.close()
        await self._watch.close()

    async def _find(self, headers: Iterable[tuple[bytes, bytes]]) -> Key | None:
        sent = list(headers)
        key = await self._keys.find(sent)
        if key is None and not self._keys.has_read and presented_key(sent) is not None:
            raise AuditUnavailable("keys cannot be read now, so nobody knows whether this is one")
        return key
