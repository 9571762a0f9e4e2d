"""Which stored keys expire soon, or have lately: by the clock of PostgreSQL. Must not know: who
asks."""

from datetime import datetime
from typing import LiteralString, NamedTuple

import psycopg

from db.connections import conninfo
from settings.config import NEAR_END_DAYS

MANY = 100
_NEAR: LiteralString = f"""
SELECT name, expires_at, extract(epoch FROM expires_at - now())::float8 FROM api_keys
WHERE revoked_at IS NULL AND expires_at BETWEEN now() - interval '{NEAR_END_DAYS} days'
    AND now() + interval '{NEAR_END_DAYS} days'
ORDER BY expires_at, name LIMIT {MANY}
"""


class Near(NamedTuple):
    """A key that expires soon or expired lately."""

    name: str
    expires_at: datetime
    left_s: float
    """Negative: it has expired."""


def expiring_at(url: str) -> list[Near]:
    """Return the keys that expire within a week, or did in the last one; at most `MANY`, those that
    ended first before the others."""
    with psycopg.connect(conninfo(url)) as connection:
        return [Near(*row) for row in connection.execute(_NEAR).fetchall()]


def say_expiry(name: str, expires_at: datetime, left_s: float) -> str:
    """Return the sentence for people."""
    at = f"{expires_at:%Y-%m-%d %H:%M}Z"
    remedy = "make another with `sluice keys create`, give it to its clients, and revoke this one"
    if left_s <= 0:
        return f"the key {name!r} expired on {at}, and its clients get 401: {remedy}"
    hours = int(left_s // 3600)
    left = (
        f"{hours // 24} days"
        if hours >= 48
        else f"{hours} hours"
        if hours >= 2
        else "two hours at most"
    )
    return f"the key {name!r} expires on {at}, in {left}: {remedy}"
