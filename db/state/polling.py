"""Small questions of running gateways and policy workers to PostgreSQL: the active keys, the
migration of the database, what a session was given.

Has its own connection: auditors who use all others must not delay the revocation of a key. Must not
know: SQLAlchemy, whose import would take half of a gateway's start.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from pydantic import ValidationError

from db import dead_letters, missing_records
from db.connections import TimedConnection, conninfo, statement_timeout_ms
from db.migrations.primaries import SEEN
from db.text import from_column, to_column
from protocol.bounds import MIN_KEEPALIVE_S
from protocol.conversations.earlier_turns import WantedCalls
from protocol.debug import LONGEST_MIN, MOST_SWITCHES
from protocol.errors import AuditUnavailable
from protocol.records import to_text
from settings.config import LISTS, Key

ANSWER_S = 3.0
_log = logging.getLogger(__name__)
_KEYS = (
    f"SELECT name, encode(sha256, 'hex') AS sha256, {', '.join(LISTS)}, expires_at, settings FROM"
    " api_keys WHERE revoked_at IS NULL"
).encode()
"""Also expired ones: their owners get an error that says so."""
_KEYS_VERSION: LiteralString = """
SELECT count(*) AS count, coalesce(sum(hashtextextended(xmin::text || ctid::text, 0)), 0)::text AS
    rows
FROM api_keys WHERE revoked_at IS NULL
"""
"""Differs as soon as a row does: whoever writes a row makes it anew, in another place and by
another transaction."""
_KEYS_OF = _KEYS + b" AND sha256 = ANY(%s)"
_LACKING: LiteralString = (
    f"SELECT ({dead_letters.COUNT}) AS dead_letters, ({missing_records.COUNT}) AS incomplete_calls"
)
"""In one: what a gateway asks every few seconds is most of what it does when it has little to
do."""
ACTIVE_SWITCHES = f"""
SELECT key, loggers, content, by, at, until, extract(epoch FROM until - now())::float8 AS left_s
    FROM (
    SELECT DISTINCT ON (d.key) d.key, d.loggers, d.content, d.by, d.at, d.until
        FROM debug_switches d
    WHERE d.at > now() - interval '{LONGEST_MIN + 1} minutes' ORDER BY d.key, d.at DESC
) AS newest WHERE until > now() AND cardinality(loggers) > 0 ORDER BY until DESC, key
    LIMIT {MOST_SWITCHES}
"""
"""The newest switch of each key, where it is on. One older than the longest says nothing any
more."""
_ALLOWED: LiteralString = """
SELECT c.key_id, e.detail AS mark FROM (
    SELECT l.call_id, l.block FROM labels l
    WHERE l.label = 'always' AND NOT EXISTS (
        SELECT FROM labels n WHERE n.call_id = l.call_id AND n.block = l.block AND n.at > l.at
    )
    ORDER BY l.at DESC LIMIT 1000
) l
CROSS JOIN LATERAL (
    SELECT detail FROM events
    WHERE call_id = l.call_id AND number = l.block AND kind = 'asked' LIMIT 1
) e
CROSS JOIN LATERAL (SELECT key_id FROM calls WHERE call_id = l.call_id LIMIT 1) c
"""
"""What was asked about such a block, while `always` is its newest label."""
_SESSION_CALLS: LiteralString = """
SELECT id, name, arguments FROM (
    SELECT *, sum(octet_length(arguments)) OVER (ORDER BY call_id DESC, block DESC) AS size FROM (
        SELECT t.tool_call_id AS id, t.name, t.call_id, t.block,
            coalesce(t.released_arguments, t.arguments) AS arguments
        FROM calls c JOIN tool_calls t ON t.call_id = c.call_id
        WHERE c.session = %(session)s AND c.key_id = %(key_id)s AND c.call_id >= %(since)s
            AND t.call_id >= %(since)s AND c.call_id <> %(call_id)s AND t.executor = 'client'
            AND t.verdict IN ('allow', 'replace') AND t.tool_call_id <> ALL (%(ids)s)
        ORDER BY c.call_id DESC, t.block DESC LIMIT %(calls)s
    ) newest
) sized WHERE size <= %(size)s ORDER BY call_id, block
"""
"""What the client was given to run. Bounded by times as well: partitions are pruned by those."""
_APPROVALS: LiteralString = """
SELECT k.call_id::text AS call_id, k.block, k.approval_id, k.is_policy_changed, a.outcome,
    a.decided_by, a.note, a.edited, coalesce(now() >= a.expires_at, false) AS is_expired,
    extract(epoch FROM now() - k.at)::float8 AS waits_s
FROM unnest(%s::uuid[], %s::int[]) v (call_id, block) JOIN approval_asks k USING (call_id, block)
LEFT JOIN approvals a USING (approval_id)
"""
_SHORT_KEEPALIVES = range(1, MIN_KEEPALIVE_S)
"""What keys of older versions may have; these must go on working."""
_REVISION: LiteralString = "SELECT version_num FROM alembic_version"


class Watch:
    """One read-only connection, opened when first used and again after a failure. Every method
    raises AuditUnavailable when PostgreSQL is away, or silent for `answer_s`. Questions wait for
    each other."""

    def __init__(self, database_url: str, *, answer_s: float = ANSWER_S) -> None:
        self._conninfo, self._answer_s = conninfo(database_url), answer_s
        self._options = (
            "-c default_transaction_read_only=on -c"
            f" statement_timeout={statement_timeout_ms(answer_s)} -c timezone=UTC"
        )
        self._connection: TimedConnection | None = None
        self._turn = asyncio.Lock()
        self._keys: list[Key] | None = None
        self._keys_version: list[dict[str, Any]] = []

    async def keys(self) -> list[Key]:
        """Return the keys in use, the same list as before where none changed. One with a role or
        setting unknown to this version is none, and hides no other."""
        # before the keys: what changes in between makes the next look another one
        version = await self._ask(_KEYS_VERSION)
        if self._keys is None or version != self._keys_version:
            self._keys, self._keys_version = _read_keys(await self._ask(_KEYS)), version
        return self._keys

    async def keys_of(self, digests: Sequence[str]) -> list[Key]:
        """Return those of the keys with these digests, in hexadecimal, that are in use."""
        return _read_keys(
            await self._ask(_KEYS_OF, ([bytes.fromhex(digest) for digest in digests],))
        )

    async def switches(self) -> list[dict[str, Any]]:
        """Return the debug logs that admins switched on: key, loggers, content, for how many
        seconds still. None without tables."""
        try:
            return await self._ask(ACTIVE_SWITCHES.encode())
        except psycopg.errors.UndefinedTable:
            return []

    async def allowed_calls(self) -> list[dict[str, Any]]:
        """Return the calls that admins allowed for good, the newest first: key_id, mark. None
        without tables."""
        try:
            return await self._ask(_ALLOWED)
        except psycopg.errors.UndefinedTable:
            return []

    async def session_calls(
        self, key_id: str, call_id: str, wanted: WantedCalls
    ) -> list[tuple[str, str, str]]:
        """Return the tool calls, each an id, a name and arguments, that the client of another call
        of the session was given, the oldest first."""
        since = UUID(int=max(0, time.time_ns() // 1_000_000 - wanted.hours * 3_600_000) << 80)
        values = {
            "session": to_column(wanted.session),
            "key_id": key_id,
            "call_id": call_id,
            "since": since,
            "ids": list(map(to_column, wanted.ids)),
            "calls": wanted.calls,
            "size": wanted.size,
        }
        return [
            (from_column(row["id"]), from_column(row["name"]), to_text(row["arguments"]))
            for row in await self._ask(_SESSION_CALLS, values)
        ]

    async def approvals(self, asks: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
        """Return how it stands with these calls that wait for people, each a call and a block; none
        of those that are not on record yet, nor without tables."""
        columns = [[call_id for call_id, _ in asks], [block for _, block in asks]]
        try:
            return await self._ask(_APPROVALS, columns)
        except psycopg.errors.UndefinedTable:
            return []

    async def revision(self) -> str:
        """Return where the database stands, empty when it was never migrated."""
        try:
            rows = await self._ask(_REVISION)
        except psycopg.errors.UndefinedTable:
            return ""
        return str(rows[0]["version_num"]) if rows else ""

    async def held(self, known: int | None, run_id: str) -> tuple[str, int | None]:
        """Return the database's id, empty where it has none yet, and 0, or None where it holds a
        later primary of Redis than this one."""
        try:
            rows = await self._ask(SEEN, (known, run_id))
        except psycopg.errors.UndefinedTable:
            return "", 0
        return (rows[0]["database"], rows[0]["number"]) if rows else ("", 0)

    async def lacking(self) -> tuple[int, int]:
        """Return how many records were set aside, and how many calls are incomplete, up to `MANY`
        each; 0 where there are no tables."""
        try:
            rows = await self._ask(_LACKING)
        except psycopg.errors.UndefinedTable:
            return 0, 0
        return int(rows[0]["dead_letters"]), int(rows[0]["incomplete_calls"])

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _ask(
        self, statement: LiteralString | bytes, values: Sequence[object] | Mapping[str, object] = ()
    ) -> list[dict[str, Any]]:
        async with self._turn:
            was_connected = self._connection is not None
            try:
                try:
                    return await self._run(statement, values)
                except psycopg.OperationalError:
                    # a kept connection may belong to a server that was started anew meanwhile: that
                    # is no outage
                    if not was_connected or self._connection is not None:
                        raise
                    return await self._run(statement, values)
            except psycopg.errors.UndefinedTable:
                raise
            except (psycopg.Error, OSError) as error:
                raise AuditUnavailable("the audit log cannot be read now") from error

    async def _run(
        self, statement: LiteralString | bytes, values: Sequence[object] | Mapping[str, object]
    ) -> list[dict[str, Any]]:
        if self._connection is None:
            self._connection = await self._connect()
        try:
            async with self._connection.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(statement, values or None)
                return await cursor.fetchall()
        except BaseException:
            if self._connection.broken or self._connection.closed:
                self._connection = None
            raise

    async def _connect(self) -> TimedConnection:
        patience_s = max(2, round(self._answer_s))
        connection = await TimedConnection.connect(
            self._conninfo, autocommit=True, options=self._options, connect_timeout=patience_s
        )
        connection.answer_s = self._answer_s
        return connection


def _read_keys(rows: Sequence[dict[str, Any]]) -> list[Key]:
    keys = []
    for row in rows:
        settings = row.pop("settings")
        if settings.get("keepalive_s") in _SHORT_KEEPALIVES:
            settings["keepalive_s"] = MIN_KEEPALIVE_S
        try:
            keys.append(Key.model_validate(settings | row))
        except ValidationError:
            _log.warning(
                "a stored key is not of this version",
                extra={"action": "keys", "key": str(row["name"])[:64]},
            )
    return keys
