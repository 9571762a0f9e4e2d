"""Logins to the pages in PostgreSQL: a cookie's SHA-256, the key that logged in, and until when.
Neither text is kept.

Whether a login still holds is asked of the database each time, with the key in the same question:
so nobody need be notified when a key is revoked or a login ends. Must not know: HTTP.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from db.engine import reading
from db.keyring import IN_USE
from db.text import to_column

LASTS_S = 12 * 3600
"""How long a login holds at most."""
IDLE_S = 3600
"""How long it holds without a request."""
SEEN_S = 60
"""How often at most its last request is written down."""
MAX_AGENT_CHARS = 200
_SWEEP = text("SELECT sluice_sweep_page_sessions()")
_BEGIN = text(
    "INSERT INTO page_sessions (token_sha256, key_sha256, until, agent) "
    f"VALUES (:token, :key, now() + interval '{LASTS_S} seconds', :agent)"
)
MOST_OF_KEY = 20
"""Logins of one key; the oldest end."""
_END_OLDEST = text(
    "UPDATE page_sessions SET until = now() WHERE token_sha256 IN (SELECT token_sha256 FROM"
    " page_sessions WHERE key_sha256 = :key AND until > now() ORDER BY created_at DESC OFFSET"
    f" {MOST_OF_KEY - 1}) AND until > now()"
)
_LOOK = text(
    f"""
SELECT encode(s.key_sha256, 'hex') AS sha256, s.until, k.name, k.roles
FROM page_sessions s LEFT JOIN api_keys k ON k.sha256 = s.key_sha256 AND {IN_USE}
WHERE s.token_sha256 = :token AND s.until > now() AND s.seen_at > now() - interval
    '{IDLE_S} seconds'"""
)
_FIND = text(f"""
WITH one AS (
    SELECT token_sha256, key_sha256, until FROM page_sessions
    WHERE token_sha256 = :token AND until > now() AND seen_at > now() - interval '{IDLE_S} seconds'
), seen AS (
    UPDATE page_sessions p SET seen_at = now() FROM one
    WHERE p.token_sha256 = one.token_sha256 AND p.seen_at < now() - interval '{SEEN_S} seconds'
)
SELECT encode(one.key_sha256, 'hex') AS sha256, one.until, k.name, k.roles
FROM one LEFT JOIN api_keys k ON k.sha256 = one.key_sha256 AND {IN_USE}""")
_KEY = text(
    "SELECT encode(sha256, 'hex') AS sha256, name, roles, now() AS until FROM api_keys WHERE"
    f" sha256 = :key AND {IN_USE}"
)
_END = text("UPDATE page_sessions SET until = now() WHERE token_sha256 = :token AND until > now()")
_HAS_READERS = text(
    f"SELECT EXISTS (SELECT FROM api_keys WHERE {IN_USE} AND roles && CAST(:roles AS text[]))"
)


@dataclass(frozen=True, slots=True)
class Login:
    """A key that is logged in, or may be: its digest, and what the database knows of it; no name
    where that is nothing."""

    sha256: str
    until: datetime
    name: str
    roles: frozenset[str]


class PageSessions:
    """The logins. Every method raises AuditUnavailable when PostgreSQL is away."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def begin(self, token: bytes, key_sha256: str, agent: str) -> None:
        """Keep a login, by the SHA-256 of its cookie, and forget those that ended long ago."""
        values = {
            "token": token,
            "key": bytes.fromhex(key_sha256),
            "agent": to_column(agent[:MAX_AGENT_CHARS]),
        }
        async with reading(self._engine) as connection:
            await connection.execute(_SWEEP)
            await connection.execute(_END_OLDEST, {"key": values["key"]})
            await connection.execute(_BEGIN, values)
            await connection.commit()

    async def find(self, token: bytes, *, is_seen: bool = True) -> Login | None:
        """Return the login, if it holds; whether its key does is not known where the login has no
        name. `is_seen`: somebody uses it now."""
        return await self._one(_FIND if is_seen else _LOOK, {"token": token})

    async def key(self, key_sha256: str) -> Login | None:
        """Return what is stored of a key, if it is in use."""
        return await self._one(_KEY, {"key": bytes.fromhex(key_sha256)})

    async def end(self, token: bytes) -> None:
        """End a login."""
        async with reading(self._engine) as connection:
            await connection.execute(_END, {"token": token})
            await connection.commit()

    async def has_key(self, roles: frozenset[str]) -> bool:
        """Is there a stored key with one of these roles?"""
        async with reading(self._engine) as connection:
            return bool(await connection.scalar(_HAS_READERS, {"roles": sorted(roles)}))

    async def _one(self, statement: object, values: dict[str, object]) -> Login | None:
        async with reading(self._engine) as connection:
            row = (await connection.execute(statement, values)).one_or_none()  # type: ignore[call-overload]
            await connection.commit()
        return (
            None
            if row is None
            else Login(row.sha256, row.until, row.name or "", frozenset(row.roles or ()))
        )
