"""API keys: who is calling. Digests only; compared in constant time; the file wins over Postgres on a clash.

Cached digests outlive a Postgres outage: a failing refresh keeps what is known.
"""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import sha256

from protocol.config import Key

log = logging.getLogger(__name__)
REFRESH_S = 4.0
"""A revoked key is refused within five seconds: this, and the query."""
_MAX_KEY = 512

Headers = Iterable[tuple[bytes, bytes]]
Load = Callable[[], Awaitable[Sequence[Key]]]


def presented_key(headers: Headers) -> bytes | None:
    """Return the key in `Authorization: Bearer` or `x-api-key`, or None; never looked for anywhere else."""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip() or None
        if name == b"x-api-key":
            return value.strip() or None
    return None


class KeyRing:
    """The known keys by digest. `load` reads those kept in Postgres; `refresh` runs until cancelled."""

    def __init__(self, keys: Sequence[Key], load: Load | None = None) -> None:
        self._file, self._load = tuple(keys), load
        self._by_digest = {k.sha256: k for k in self._file}

    def authenticate(self, headers: Headers) -> Key | None:
        """Return whose key the headers carry; None for none, unknown, malformed or revoked."""
        presented = presented_key(headers)
        if presented is None or len(presented) > _MAX_KEY:
            return None
        digest = sha256(presented).hexdigest()
        key = self._by_digest.get(digest)
        return key if key is not None and hmac.compare_digest(key.sha256, digest) else None

    async def refresh_once(self) -> None:
        """Read the keys in Postgres. Raises what the database raises."""
        if self._load is not None:
            stored = await self._load()
            names = {k.name for k in self._file}
            self._by_digest = {k.sha256: k for k in stored if k.name not in names} | {k.sha256: k for k in self._file}

    async def refresh(self) -> None:
        """Keep the cache at most five seconds old, while Postgres answers."""
        failing = False
        while True:
            try:
                await self.refresh_once()
                failing = False
            except Exception as error:  # noqa: BLE001 - the top of a loop: whatever the database raised, known keys stay
                if not failing:
                    log.warning("keys not refreshed, known ones stay", extra={"error": type(error).__name__})
                failing = True
            await asyncio.sleep(REFRESH_S)
