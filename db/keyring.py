"""API keys: who is calling. Stores digests only and compares them in constant time; the file wins
over Postgres where both have a name.

Cached digests outlive a Postgres outage: a failed refresh keeps the known keys. An unknown key is
looked up before it is refused, so a new key works at once. Wrong keys must not load the database:
waiting keys share one query, at most ten queries run in a second, the number of waiting keys is
bounded, and a key that was not found is not looked up again for some seconds.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from hashlib import sha256

from protocol.bounds import MAX_KEY_BYTES, MAX_LOOKED_UP_KEYS, MAX_UNKNOWN_KEYS
from protocol.errors import InvalidRequest, Unauthenticated
from settings.config import Key

log = logging.getLogger(__name__)
REFRESH_S = 4.0
"""A revoked key is refused within five seconds: this, and the query."""
LOOKUP_S = 0.1
"""The least time from one look-up to the next."""
UNKNOWN_S = 4.0
"""How long a key that was not found is refused without asking again."""
PATIENCE_S = 3.0
"""How long a request waits for the look-up of its key."""

IN_USE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())"
"""Which keys of the table may do something, by the clock of PostgreSQL."""
Headers = Iterable[tuple[bytes, bytes]]
Load = Callable[[], Awaitable[Sequence[Key]]]
LookUp = Callable[[Sequence[str]], Awaitable[Sequence[Key]]]
"""Returns those of the keys with these digests that are in use."""


KEY_HEADERS = frozenset({b"authorization", b"x-api-key"})


def presented_key(headers: Headers) -> bytes | None:
    """Return the key in `Authorization: Bearer` or `x-api-key`, or None; never looked for anywhere
    else. The same one may be there twice.

    Raises InvalidRequest for two keys: whose call it is, a proxy before us may have decided by the
    other.
    """
    presented: bytes | None = None
    for name, value in headers:
        if name not in KEY_HEADERS:
            continue
        if name == b"x-api-key":
            key = value.strip()
        elif value[:7].lower() == b"bearer ":
            key = value[7:].strip()
        else:
            continue
        if presented is not None and key != presented:
            raise InvalidRequest(
                "this request carries two API keys; send one", code="repeated_header"
            )
        presented = key
    return presented or None


def refusal(headers: Headers) -> Unauthenticated:
    """Return the error for headers without a valid key. It tells "none" from "wrong", which the
    caller knows, and nothing else."""
    if presented_key(headers) is None:
        return Unauthenticated(
            "no API key was sent: send one as `Authorization: Bearer KEY` or `x-api-key: KEY`"
        )
    # in the words of OpenAI's own answer, by which client libraries (litellm) tell a wrong key from
    # another bad request
    return Unauthenticated(
        "Incorrect API key provided: it is not a key of this gateway, or it was revoked. A"
        " provider's key does not work here"
    )


class KeyRing:
    """The known keys by digest. `load` reads those kept in Postgres, `look_up` some of them;
    `refresh` runs until cancelled."""

    def __init__(
        self, keys: Sequence[Key], load: Load | None = None, look_up: LookUp | None = None
    ) -> None:
        self._file, self._load, self._look_up = tuple(keys), load, look_up
        self._names = {k.name for k in keys}
        self._by_digest = {k.sha256: k for k in self._file}
        self._stored: Sequence[Key] | None = None
        """What `load` returned last; None once a key was looked up besides, which may be revoked by
        the next time."""
        self._unknown = dict[str, float]()
        """Digests that were not found, and until when they are not asked for again; the oldest
        first."""
        self._waiting = dict[str, asyncio.Future[None]]()
        self._is_wanted = asyncio.Event()
        self._is_failing = False
        self.has_read = load is None
        """Were the keys in Postgres ever read? If not, one that is not found may be one of them."""

    def authenticate(self, headers: Headers) -> Key | None:
        """Return whose key the headers carry; None for none, unknown, malformed or revoked.

        Raises InvalidRequest for two keys, Unauthenticated for one that has expired, by this
        machine's clock.
        """
        presented = presented_key(headers)
        if presented is None or len(presented) > MAX_KEY_BYTES:
            return None
        digest = sha256(presented).hexdigest()
        key = self._by_digest.get(digest)
        if key is None or not hmac.compare_digest(key.sha256, digest):
            return None
        if key.expires_at is not None and key.has_expired(time.time()):
            # whoever holds a key may know that it was one
            ended = f"{key.expires_at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
            raise Unauthenticated(
                f"Incorrect API key provided: it expired on {ended}. Ask whoever runs this gateway"
                " for a new one"
            )
        return key

    async def find(self, headers: Headers) -> Key | None:
        """Like `authenticate`, but a key that is not known is looked up, for `PATIENCE_S` at
        most."""
        if (key := self.authenticate(headers)) is not None:
            return key
        presented = presented_key(headers)
        if (
            self._look_up is None
            or self._is_failing
            or presented is None
            or len(presented) > MAX_KEY_BYTES
        ):
            return None
        digest = sha256(presented).hexdigest()
        if self._unknown.get(digest, 0.0) > time.monotonic():
            return None
        if digest not in self._waiting:
            if len(self._waiting) >= MAX_LOOKED_UP_KEYS:
                return None
            self._waiting[digest] = asyncio.get_running_loop().create_future()
            self._is_wanted.set()
        await asyncio.wait({self._waiting[digest]}, timeout=PATIENCE_S)
        return self.authenticate(headers)

    async def refresh_once(self) -> None:
        """Read the keys in Postgres. Raises what the database raises."""
        if self._load is not None:
            stored = await self._load()
            if stored is self._stored:
                return
            self._stored = stored
            self._by_digest = {k.sha256: k for k in stored if k.name not in self._names} | {
                k.sha256: k for k in self._file
            }
            self.has_read = True

    async def _look_up_once(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._is_wanted.clear()
        try:
            if self._look_up is not None and waiting:
                # one that a refresh finds revoked meanwhile is gone: both are asked over one
                # connection, one after the other
                keys_by_digest = {
                    k.sha256: k
                    for k in await self._look_up(tuple(waiting))
                    if k.name not in self._names
                }
                self._by_digest |= keys_by_digest
                self._stored = None
                until = time.monotonic() + UNKNOWN_S
                for digest in waiting.keys() - keys_by_digest.keys():
                    self._unknown.pop(digest, None)
                    self._unknown[digest] = until
                while len(self._unknown) > MAX_UNKNOWN_KEYS:
                    del self._unknown[next(iter(self._unknown))]
        finally:
            _let_go(waiting)

    async def refresh(self) -> None:
        """Keep the cache at most five seconds old, while Postgres answers, and look up what is
        wanted meanwhile."""
        due = 0.0
        while True:
            was_failing = self._is_failing
            try:
                if time.monotonic() >= due:
                    due = time.monotonic() + REFRESH_S
                    await self.refresh_once()
                    self._is_failing = False
                await self._look_up_once()
            except Exception as error:  # noqa: BLE001 - the top of a loop: whatever the database raised, known keys stay
                self._is_failing = True
                if not was_failing:
                    log.warning(
                        "API keys not refreshed: the known ones stay valid",
                        extra={"error": type(error).__name__},
                    )
                waiting, self._waiting = self._waiting, {}
                _let_go(waiting)
            await asyncio.sleep(LOOKUP_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - time.monotonic())):
                    await self._is_wanted.wait()


def _let_go(waiting: Mapping[str, asyncio.Future[None]]) -> None:
    for asked in waiting.values():
        asked.set_result(None)
