"""Writes what a request repeats of those before it (`protocol.conversations.histories`), computed
from bodies on record.

Beside the record: nobody waits for it, and it can be made again. Blocking, for a thread of its own.
Must not know: Redis.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import LiteralString
from uuid import UUID

import psycopg

from db.connections import conninfo, cut
from db.text import to_column
from db.write.packing import Packed, PackedDumper, column
from protocol.conversations.histories import History, history
from protocol.errors import AuditUnavailable, Forbidden

STATEMENT_TIMEOUT_MS = 10_000
PAGE_BYTES = 8 * 2**20
"""Of bodies that are read at once."""
_PAGE = 100
_BODY: LiteralString = "SELECT body FROM request_bodies WHERE call_id = %s::uuid AND body <> ''"
# a call that was redacted meanwhile has an empty body, and gets no row
_INSERT: LiteralString = """
INSERT INTO histories (call_id, session, turns, marks, offsets, preview, is_side)
SELECT c.call_id, c.session, v.turns, v.marks, v.offsets, v.preview, v.is_side
FROM unnest(%s::uuid[], %s::int4[], %s::bytea[], %s::bytea[], %s::text[], %s::bool[]) v (call_id, turns, marks, offsets, preview, is_side)
JOIN calls c ON c.call_id = v.call_id JOIN request_bodies b ON b.call_id = v.call_id AND octet_length(b.body) > 0
"""
_ONCE: LiteralString = "ON CONFLICT (call_id) DO NOTHING"
_AGAIN: LiteralString = """ON CONFLICT (call_id) DO UPDATE SET session = excluded.session, turns = excluded.turns, marks = excluded.marks,
    offsets = excluded.offsets, preview = excluded.preview, is_side = excluded.is_side"""
_SIZES: LiteralString = """
SELECT call_id, octet_length(body) FROM request_bodies
WHERE call_id > %s AND call_id < %s AND octet_length(body) > 0 ORDER BY call_id LIMIT %s
"""


class HistoryWriter:
    """One connection, opened when needed and again after a failure."""

    def __init__(self, database_url: str) -> None:
        self._conninfo = conninfo(database_url)
        self._connection: psycopg.Connection | None = None
        self._marks: dict[bytes, bytes] = {}

    def write(self, bodies: Mapping[str, bytes | None]) -> int:
        """Write the histories of these calls; a body that is None is read. Returns how many were
        new. Raises AuditUnavailable."""
        with self._failing():
            return self._write(bodies, _ONCE)

    def rebuild(self, since: UUID, until: UUID) -> Iterator[int]:
        """Make those of all calls between two ids anew; yields how many so far. Raises Forbidden,
        AuditUnavailable."""
        done = 0
        with self._failing():
            while sizes := self._connected().execute(_SIZES, (since, until, _PAGE)).fetchall():
                page: dict[str, bytes | None] = {}
                size = 0
                for call, its in sizes:
                    if page and size + its > PAGE_BYTES:
                        break
                    page[str(call)] = None
                    size, since = size + its, call
                done += self._write(page, _AGAIN)
                yield done

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def cut(self) -> None:
        """Fail what another thread waits for."""
        if self._connection is not None:
            cut(self._connection)

    def _write(self, bodies: Mapping[str, bytes | None], conflict: LiteralString) -> int:
        histories: dict[str, History] = {}
        for call, body in bodies.items():
            if (known := body if body is not None else self._body(call)) is not None:
                histories[call] = history(known, self._marks)
        if not histories:
            return 0
        each = histories.values()
        columns = (
            column("uuid", [bytes.fromhex(call.replace("-", "")) for call in histories]),
            column("int4", [row.turns for row in each]),
            column("bytea", [row.marks for row in each]),
            column("bytea", [row.offsets for row in each]),
            column("text", [to_column(row.preview) for row in each]),
            column("bool", [row.is_side for row in each]),
        )
        return self._connected().execute(_INSERT + conflict, list(map(Packed, columns))).rowcount

    def _body(self, call: str) -> bytes | None:
        row = self._connected().cursor(binary=True).execute(_BODY, (call,)).fetchone()
        return None if row is None else bytes(row[0])

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            # what is lost with a server that crashes is made again
            options = (
                f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c timezone=UTC -c"
                " synchronous_commit=off"
            )
            self._connection = psycopg.connect(self._conninfo, autocommit=True, options=options)
            self._connection.adapters.register_dumper(Packed, PackedDumper)
        return self._connection

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.InsufficientPrivilege as error:
            self.close()
            raise Forbidden(
                "this database user may not do that; it needs the owner of the tables"
            ) from error
        except (psycopg.Error, OSError) as error:
            self.close()
            raise AuditUnavailable("histories cannot be written now") from error
