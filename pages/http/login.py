"""Logins: an API key, or a provider's word who somebody is, is exchanged for a cookie, and a cookie
identifies the reader. A browser never holds the key, and a page never the cookie.

A cookie is 32 random bytes and good for /debug alone. Only its hash is stored, so that no reader of
the database can log in. Each request asks whether its key is still good, so revoking one ends its
logins at once. Must not know: HTTP, HTML.
"""

import contextlib
import hmac
import secrets
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from db.page_sessions import Login, PageSessions, Person
from pages.page import MAY, Who
from protocol.bounds import MAX_KEY_BYTES
from protocol.errors import Forbidden, RateLimited
from settings.config import Key
from streams.logins import KnownLogins
from streams.round_robin import RoundRobin

ROLES = MAY["any"]
"""Who may log in."""
WINDOW_S = 60.0
MOST_WRONG = 5
"""Wrong keys of one address in that time."""
MOST_WRONG_IN_ALL = 30
"""Wrong keys in that time past which only addresses may try that had a right one within
`KNOWN_S`."""
KNOWN_S, MOST_KNOWN = 86400.0, 1_000
READERS_S = 5.0
"""How long it is taken for granted that there is a key that may log in."""
_COOKIE_CHARS = 43


@dataclass(frozen=True, slots=True)
class LoginSession:
    """A valid login: who it is, and the token that its forms must carry."""

    who: Who
    token: str
    digest: bytes


class Attempts:
    """Counts wrong keys. A key is counted when it comes and taken back if it was right, so that
    many at once are no way around."""

    def __init__(self) -> None:
        self._wrong: deque[tuple[float, str]] = deque()
        self._right: dict[str, float] = {}

    def begin(self, address: str, now: float) -> None:
        """Count one. Raises RateLimited where it is one too many."""
        while self._wrong and self._wrong[0][0] <= now - WINDOW_S:
            self._wrong.popleft()
        by_address = Counter(failed_address for _, failed_address in self._wrong)
        # strangers must not keep out who logged in from where they are now
        is_known = self._right.get(address, -KNOWN_S) > now - KNOWN_S
        if by_address[address] >= MOST_WRONG or (
            len(self._wrong) >= MOST_WRONG_IN_ALL and not is_known
        ):
            wait_s = max(1, round(self._wrong[0][0] + WINDOW_S - now))
            raise RateLimited(
                "too many logins failed; try again in a minute",
                code="too_many_logins",
                retry_after_s=wait_s,
            )
        self._wrong.append((now, address))

    def forget(self, address: str, now: float) -> None:
        """Take back the newest one of an address: its key was right."""
        self._right.pop(address, None)
        self._right[address] = now
        if len(self._right) > MOST_KNOWN:
            del self._right[next(iter(self._right))]
        for number in range(len(self._wrong) - 1, -1, -1):
            if self._wrong[number][1] == address:
                del self._wrong[number]
                return


class Logins:
    """Begins, finds and ends logins. `keys` are those of the configuration, which win over stored
    keys of the same name."""

    def __init__(self, keys: tuple[Key, ...], sessions: PageSessions) -> None:
        self._keys, self._sessions = keys, sessions
        self._names = {key.name for key in keys}
        self._attempts = Attempts()
        self._known = KnownLogins()
        # one connection for unknown cookies, address by address: the others are for who is logged
        # in
        self._strangers = RoundRobin(1)
        self._had_readers_at = -READERS_S

    async def begin(self, key: str, address: str, agent: str) -> str | None:
        """Return the cookie of a new login; None for a key that may not read. Raises RateLimited,
        AuditUnavailable."""
        self._attempts.begin(address, time.monotonic())
        text = key.strip().encode()
        digest = sha256(text).hexdigest()
        who = await self._who(digest) if text and len(text) <= MAX_KEY_BYTES else None
        if who is None:
            return None
        self._attempts.forget(address, time.monotonic())
        return await self._begin(who, digest, agent)

    async def begin_person(
        self, ask: Callable[[], Awaitable[Person]], address: str, agent: str
    ) -> str:
        """Return the cookie of a new login of the person whom a provider names. What raises in
        `ask` counts as a wrong key. Raises Forbidden for one that may not read, RateLimited,
        AuditUnavailable."""
        self._attempts.begin(address, time.monotonic())
        person = await ask()
        self._attempts.forget(address, time.monotonic())
        who = self._of_database(person, "")
        if who is None:
            raise Forbidden("you are known, but have no role here: ask whoever runs this gateway")
        return await self._begin(who, person.sha256, agent, person)

    async def _begin(self, who: Who, digest: str, agent: str, *person: Person) -> str:
        cookie = secrets.token_urlsafe(32)
        await self._sessions.begin(_digest(cookie), digest, agent, *person)
        self._known.remember(_digest(cookie).hex(), who.key_id)
        return cookie

    def key_of(self, cookie: str) -> str:
        """Return the id of the key that logged in with this cookie, as far as this process
        remembers."""
        return self._known.key_of(_digest(cookie).hex())

    async def find(self, cookie: str, address: str, *, is_seen: bool = True) -> LoginSession | None:
        """Return the login of a cookie, if it and its key still hold. Without `is_seen` it goes on
        being idle. Raises AuditUnavailable."""
        if len(cookie) != _COOKIE_CHARS or not cookie.isascii():
            return None
        digest = _digest(cookie)
        async with contextlib.AsyncExitStack() as turn:
            if not self._known.key_of(digest.hex()):
                await turn.enter_async_context(self._strangers.place(address))
            login = await self._sessions.find(digest, is_seen=is_seen)
        who = None
        if login is not None:
            name = sha256(digest).hexdigest()[:16]
            who = self._of_file(login.sha256, name) or self._of_database(login, name)
        self._known.remember(digest.hex(), who.key_id if who is not None else "")
        return None if who is None else LoginSession(who, _form_token(cookie), digest)

    async def end(self, session: LoginSession) -> None:
        """End a login. Raises AuditUnavailable."""
        await self._sessions.end(session.digest)

    async def has_readers(self) -> bool:
        """Is there a key that may log in? Raises AuditUnavailable."""
        # anybody may ask this, over the connections that also note who reads
        if (
            any(ROLES & set(key.roles) for key in self._keys)
            or time.monotonic() < self._had_readers_at + READERS_S
        ):
            return True
        has_roles = await self._sessions.has_key(ROLES)
        if has_roles:
            self._had_readers_at = time.monotonic()
        return has_roles

    async def _who(self, digest: str) -> Who | None:
        if (who := self._of_file(digest, "")) is not None:
            return who
        stored = await self._sessions.key(digest)
        return None if stored is None else self._of_database(stored, "")

    def _of_file(self, digest: str, login: str) -> Who | None:
        file_key = None
        for key in self._keys:
            # all of them, whichever it is
            if hmac.compare_digest(key.sha256, digest):
                file_key = key
        return (
            None
            if file_key is None or file_key.has_expired(time.time())
            else _who(file_key.name, file_key.id, frozenset(file_key.roles), login)
        )

    def _of_database(self, login: Login | Person, name: str) -> Who | None:
        if not login.name or login.name in self._names:
            return None
        key = Key.model_construct(name=login.name, sha256=login.sha256)
        return _who(login.name, key.id, frozenset(login.roles), name)


def form_is_ours(form: Mapping[str, str], session: LoginSession) -> bool:
    """Does a form carry the token of this login?"""
    return hmac.compare_digest(form.get("token", "").encode(), session.token.encode())


def _who(name: str, key_id: str, roles: frozenset[str], login: str) -> Who | None:
    return Who(name, key_id, roles, login) if roles & ROLES else None


def _digest(cookie: str) -> bytes:
    return sha256(cookie.encode()).digest()


def _form_token(cookie: str) -> str:
    return sha256(b"form of " + cookie.encode()).hexdigest()
