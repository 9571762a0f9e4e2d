"""Logins to the pages in PostgreSQL: a cookie's SHA-256, the key or the person that logged in, and
until when. Neither a cookie nor a key is stored.

Whether a login still holds is asked of the database each time, with the key in the same question:
so nobody need be notified when a key is revoked or a login ends. Must not know: HTTP.
"""

from dataclasses import dataclass
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
    "INSERT INTO page_sessions (token_sha256, key_sha256, until, agent, roles, sid) "
    "VALUES (:token, :key, now() + make_interval(secs => :lasts_s), :agent,"
    " CAST(:roles AS text[]), :sid)"
)
_MEET = text(
    "INSERT INTO people (sha256, issuer, subject, name) VALUES (:key, :issuer, :subject, :name)"
    " ON CONFLICT (sha256) DO UPDATE SET name = :name, seen_at = now()"
)
MOST_OF_KEY = 20
"""Logins of one key; the oldest end."""
_END_OLDEST = text(
    "UPDATE page_sessions SET until = now() WHERE token_sha256 IN (SELECT token_sha256 FROM"
    " page_sessions WHERE key_sha256 = :key AND until > now() ORDER BY created_at DESC OFFSET"
    f" {MOST_OF_KEY - 1}) AND until > now()"
)
_ONE = f"""
    SELECT token_sha256, key_sha256, until, roles FROM page_sessions
    WHERE token_sha256 = :token AND until > now() AND seen_at > now() - interval '{IDLE_S} seconds'
"""
# whoever has roles in the session is a person, whatever key has that digest
_WHO = f"""
SELECT encode(one.key_sha256, 'hex') AS sha256, one.until, coalesce(p.name, k.name) AS name,
    coalesce(one.roles, k.roles) AS roles, p.issuer
FROM one LEFT JOIN people p ON p.sha256 = one.key_sha256 AND one.roles IS NOT NULL
    LEFT JOIN api_keys k ON k.sha256 = one.key_sha256 AND one.roles IS NULL AND {IN_USE}"""
_LOOK = text(f"WITH one AS ({_ONE}) {_WHO}")
_FIND = text(f"""
WITH one AS ({_ONE}), seen AS (
    UPDATE page_sessions p SET seen_at = now() FROM one
    WHERE p.token_sha256 = one.token_sha256 AND p.seen_at < now() - interval '{SEEN_S} seconds'
) {_WHO}""")
_KEY = text(
    "SELECT encode(sha256, 'hex') AS sha256, name, roles, now() AS until, NULL AS issuer FROM"
    f" api_keys WHERE sha256 = :key AND {IN_USE}"
)
_END = text("UPDATE page_sessions SET until = now() WHERE token_sha256 = :token AND until > now()")
# those that began later were not known to who said it
_END_OF_PERSON = text(
    "UPDATE page_sessions SET until = now() WHERE until > now() AND roles IS NOT NULL"
    " AND created_at <= to_timestamp(:before_s) AND key_sha256 = coalesce(:key, key_sha256)"
    " AND (sid = coalesce(:sid, sid) OR sid = '' AND CAST(:key AS bytea) IS NOT NULL)"
)
_HAS_READERS = text(
    f"SELECT EXISTS (SELECT FROM api_keys WHERE {IN_USE} AND roles && CAST(:roles AS text[]))"
)


@dataclass(frozen=True, slots=True)
class Login:
    """Who is logged in, or may be: the digest of a key or a person, and what the database knows of
    it; no name where that is nothing."""

    sha256: str
    until: datetime
    name: str
    roles: frozenset[str]
    issuer: str
    """The provider that says who this is; empty for a key."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody whom an OpenID Connect provider names: by the subject, always the same; by a name
    that may change; `sid` names the session there."""

    issuer: str
    subject: str
    name: str
    roles: frozenset[str]
    sid: str

    @property
    def sha256(self) -> str:
        """What a key's digest is for a key."""
        return person_sha256(self.issuer, self.subject)


def person_sha256(issuer: str, subject: str) -> str:
    """Return the digest of a person, in hexadecimal."""
    return sha256(f"oidc\n{issuer}\n{subject}".encode()).hexdigest()


class PageSessions:
    """The logins. Every method raises AuditUnavailable when PostgreSQL is away."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def begin(
        self, token: bytes, holder: str | Person, agent: str, lasts_s: int = LASTS_S
    ) -> None:
        """Keep a login of a key, by its digest, or of a person, by the SHA-256 of its cookie, and
        forget those that ended long ago."""
        person = holder if isinstance(holder, Person) else None
        values = {
            "token": token,
            "key": bytes.fromhex(holder if isinstance(holder, str) else holder.sha256),
            "agent": to_column(agent[:MAX_AGENT_CHARS]),
            "lasts_s": min(lasts_s, LASTS_S),
            "roles": sorted(person.roles) if person else None,
            "sid": person.sid if person else "",
        }
        async with reading(self._engine) as connection:
            await connection.execute(_SWEEP)
            await connection.execute(_END_OLDEST, {"key": values["key"]})
            if person is not None:
                of_person = {"issuer": person.issuer, "subject": person.subject}
                await connection.execute(
                    _MEET, {**of_person, "key": values["key"], "name": person.name}
                )
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

    async def end_of_person(self, person: str | None, sid: str | None, before_s: float) -> None:
        """End the logins of a person, by its digest, or of one session at the provider, or both,
        that began before a time."""
        key = None if person is None else bytes.fromhex(person)
        async with reading(self._engine) as connection:
            await connection.execute(_END_OF_PERSON, {"key": key, "sid": sid, "before_s": before_s})
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
            else Login(
                row.sha256,
                row.until,
                row.name or "",
                frozenset(row.roles or ()),
                row.issuer or "",
            )
        )
