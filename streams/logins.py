"""Who is logged in, by the hash of a cookie: so that strangers wait in a separate queue.

It decides only where a request waits. Whether a login still holds is asked of the record each time.
Must not know: HTTP, the record.
"""

import re
import time
from collections.abc import Iterable
from hashlib import sha256

LOGIN_HEADER = b"x-sluice-login"
"""The id of the key that is logged in, in answers of the pages to a gateway, which keeps it back;
empty for a login that does not hold."""
MOST_LOGINS, LASTS_S = 1_000, 3600.0
"""How many are remembered, and for how long: an hour without a request ends a login."""
_COOKIE = re.compile(rb"sluice_pages=([\w-]{43})(?![^;\s])")


class KnownLogins:
    """The newest logins, each with the id of its key."""

    def __init__(self) -> None:
        self._known = dict[str, tuple[str, float]]()

    def key_of(self, login: str) -> str:
        """Return the id of the key that is logged in; empty for a stranger."""
        key_id, until = self._known.get(login, ("", 0.0))
        return key_id if until > time.monotonic() else ""

    def remember(self, login: str, key_id: str) -> None:
        """Remember a login; without a key, forget it."""
        self._known.pop(login, None)
        if login and key_id:
            self._known[login] = (key_id, time.monotonic() + LASTS_S)
        if len(self._known) > MOST_LOGINS:
            del self._known[next(iter(self._known))]


def login_of(cookies: Iterable[bytes]) -> str:
    """Return the hash of the login that headers with cookies carry; empty where there is none, or
    more than one."""
    tokens = {value for cookie in cookies for value in _COOKIE.findall(cookie)}
    return sha256(tokens.pop()).hexdigest() if len(tokens) == 1 else ""
