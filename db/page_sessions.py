"""Logins to the pages in PostgreSQL: a cookie's SHA-256, the key or the person that logged in, and
until when. Neither a cookie nor a key is stored.

Whether a login still holds is asked of the database each time, with the key in the same question:
so nobody need be notified when a key is revoked or a login ends. Must not know: HTTP.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256

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
    "INSERT INTO page_sessions (token_sha256, key_sha256, until, agent, person, issuer, sid, roles)"
    " VALUES (:token, :key, now() + make_interval(secs => :lasts_s), :agent, :name, :issuer, :sid,"
    " CAST(:roles AS text[]))"
)
MOST_OF_KEY = 20
"""Logins of one key; the oldest end."""
_END_OLDEST = text(
    "UPDATE page_sessions SET until = now() WHERE token_sha256 IN (SELECT token_sha256 FROM"
    " page_sessions WHERE key_sha256 = :key AND until > now() ORDER BY created_at DESC OFFSET"
    f" {MOST_OF_KEY - 1}) AND until > now()"
)
_ONE = f"""
    SELECT token_sha256, key_sha256, until, person, roles FROM page_sessions
    WHERE token_sha256 = :token AND until > now() AND seen_at > now() - interval '{IDLE_S} seconds'
        AND issuer IN ('', :issuer)
"""
_WHO = f"""
SELECT encode(one.key_sha256, 'hex') AS sha256, one.until, coalesce(k.name, one.person) AS name,
    coalesce(k.roles, one.roles) AS roles
FROM one LEFT JOIN api_keys k ON one.person = '' AND k.sha256 = one.key_sha256 AND {IN_USE}"""
_LOOK = text(f"WITH one AS ({_ONE}) {_WHO}")
_FIND = text(f"""
WITH one AS ({_ONE}), seen AS (
    UPDATE page_sessions p SET seen_at = now() FROM one
    WHERE p.token_sha256 = one.token_sha256 AND p.seen_at < now() - interval '{SEEN_S} seconds'
) {_WHO}""")
_KEY = text(
    "SELECT encode(sha256, 'hex') AS sha256, name, roles, now() AS until FROM api_keys WHERE"
    f" sha256 = :key AND {IN_USE}"
)
_END = text("UPDATE page_sessions SET until = now() WHERE token_sha256 = :token AND until > now()")
# of the person, of the session or of both; those that began later were not known to who said it
_END_OF_PERSON = text(
    "UPDATE page_sessions SET until = now() WHERE until > now() AND issuer = :issuer"
    " AND created_at <= to_timestamp(:before_s) AND (key_sha256 = :key OR :subject = '')"
    " AND (sid = :sid OR :sid = '' OR sid = '' AND :subject <> '')"
)
_HAS_READERS = text(
    f"SELECT EXISTS (SELECT FROM api_keys WHERE {IN_USE} AND roles && CAST(:roles AS text[]))"
)


@dataclass(frozen=True, slots=True)
class Login:
    """A key or a person that is logged in, or may be: its digest, and what the database knows of
    it; no name where that is nothing."""

    sha256: str
    until: datetime
    name: str
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody whom a provider of OpenID Connect names, in a session there that `sid` names."""

    issuer: str
    sha256: str
    """What a key's digest is for a key."""
    name: str
    """As the record shows it, with the subject."""
    sid: str
    roles: list[str]
    lasts_s: int = LASTS_S


_KEY_HOLDER = Person("", "", "", "", [])


def person_digest(issuer: str, subject: str) -> bytes:
    """Return what a key's digest is for a key."""
    return sha256(f"oidc\n{issuer}\n{subject}".encode()).digest()


class PageSessions:
    """The logins; `issuer` is the provider whose word counts, empty for none. Every method raises
    AuditUnavailable when PostgreSQL is away."""

    def __init__(self, engine: AsyncEngine, issuer: str = "") -> None:
        self._engine, self._issuer = engine, issuer

    async def begin(
        self, token: bytes, key_sha256: str, agent: str, person: Person = _KEY_HOLDER
    ) -> None:
        """Keep a login, by the SHA-256 of its cookie, and forget those that ended long ago."""
        values = {
            **asdict(person),
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
        return await self._one(
            _FIND if is_seen else _LOOK, {"token": token, "issuer": self._issuer}
        )

    async def key(self, key_sha256: str) -> Login | None:
        """Return what is stored of a key, if it is in use."""
        return await self._one(_KEY, {"key": bytes.fromhex(key_sha256)})

    async def end(self, token: bytes) -> None:
        """End a login."""
        async with reading(self._engine) as connection:
            await connection.execute(_END, {"token": token})
            await connection.commit()

    async def end_of_person(self, ended: Mapping[str, object]) -> None:
        """End the logins of a person (`subject`, and its digest as `key`), of one session at the
        provider (`sid`), or of both, that began before a time (`before_s`)."""
        async with reading(self._engine) as connection:
            await connection.execute(_END_OF_PERSON, {**ended, "issuer": self._issuer})
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
