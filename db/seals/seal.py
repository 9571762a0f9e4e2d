"""The writing side of the tamper-evident audit log: seals of calls, and checkpoints over the seals.

A seal covers all stored rows of a call. Rows that arrive later get a further part, which covers the
earlier parts again, so parts can only grow. Rows are hashed in the database (`db.canonical` in
SQL): sealing moves no content. Holes of a call (`db.missing_records`) are recorded first, so no
seal presents an incomplete call as whole. Writers of seals hold one advisory lock, so positions
have no gaps; inserts do not take the lock. Synchronous, for a thread: it is background work, and
one connection must not serve two rounds at once. Must not know: Redis."""

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from types import TracebackType
from typing import Any, LiteralString, Self
from uuid import UUID

import psycopg
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from db.canonical import (
    EVENTS,
    FORMS,
    HASH,
    IS_BESIDE,
    VERSION,
    Form,
    call_hash,
    marks,
    seal_leaf,
    uncovered_sql,
)
from db.connections import conninfo, cut
from db.locks import SEAL_LOCK
from db.missing_records import KIND, SUMS, CallHole, find_holes, mark, values_of
from db.seals import checkpoints, tiles
from db.seals.checkpoints import Checkpoint
from db.seals.merkle import Tree
from protocol.errors import AuditTooSlow, AuditUnavailable

BATCH = 200
"""Calls sealed in one transaction."""
STATEMENT_TIMEOUT_MS = 60_000
LOCK_TIMEOUT_MS = 25_000
"""For others that seal: who waits for them does not take too long itself."""
_SALT = 32
_DECISIONS = [form.table for form in FORMS].index("decisions")
_PAGE = 10_000
_log = logging.getLogger(__name__)
_PARTS: LiteralString = (
    "SELECT DISTINCT ON (call_id) call_id, part, sha256 FROM seals WHERE call_id = ANY(%s) ORDER BY"
    " call_id, part DESC"
)
_SALTS: LiteralString = """
SELECT DISTINCT ON (call_id) call_id, salt FROM seal_rows
WHERE call_id = ANY(%(calls)s) AND call_id BETWEEN %(low)s AND %(high)s AND salt IS NOT NULL
    ORDER BY call_id, part DESC
"""
_INSERT: LiteralString = """
WITH new AS (
  SELECT * FROM unnest(
    %(calls)s::uuid[], %(parts)s::int[], %(counts)s::text[], %(digests)s::bytea[],
        %(salts)s::bytea[], %(marks)s::bytea[]
  ) WITH ORDINALITY AS n (call_id, part, counts, sha256, salt, marks, i)
), leaves AS (
  INSERT INTO seals (position, call_id, part, at, counts, sha256, note, form)
  SELECT %(first)s + i - 1, call_id, part, %(at)s, counts::bigint[], sha256, %(note)s, %(form)s
      FROM new
)
INSERT INTO seal_rows (call_id, part, salt, marks) SELECT call_id, part, salt, marks FROM new
"""
"""One statement for a batch of up to BATCH calls: two statements a call were a third of the audit
writer's CPU in calls not streamed."""
_UNSEALED: LiteralString = """
SELECT call_id FROM (
    SELECT call_id FROM ends WHERE call_id >= %(low)s
    UNION SELECT call_id FROM calls WHERE call_id >= %(low)s AND call_id < %(stale)s
    UNION SELECT call_id FROM events WHERE call_id >= %(low)s AND call_id < %(stale)s
) c WHERE NOT EXISTS (SELECT 1 FROM seals s WHERE s.call_id = c.call_id) ORDER BY call_id
    LIMIT %(limit)s
"""
# Where both sealed, the newer process last, there is nothing to do. Few seals are made beside newer
# tables, and an index holds those alone.
_BESIDE = f"""
SELECT DISTINCT s.call_id FROM seals s WHERE {IS_BESIDE} AND s.part >= 0
    AND NOT EXISTS (SELECT FROM seals n WHERE n.call_id = s.call_id AND n.part > s.part)
    AND ({
    " OR ".join(
        f"(s.form = {version} AND EXISTS (SELECT FROM {form.table} t WHERE t.call_id = s.call_id AND ({form.later_sql(version)})))"
        for version in range(1, VERSION)
        for form in FORMS
        if form.later(version)
    )
    or "false"
}) ORDER BY s.call_id LIMIT %(limit)s
""".encode()


def _hashes(form: Form, *, redacted: bool) -> bytes:
    """The statement for the hashes of each call's rows in a table, in order. Only our own names go
    into it."""
    join, contents = "", form.contents_sql()
    if redacted:
        join = (
            f"LEFT JOIN redactions r ON r.call_id = t.call_id AND r.table_name = '{form.table}' AND"
            f" r.row_key = {form.key_sql}"
        )
        contents = form.redacted_sql()
    return f"""
SELECT call_id, string_agg(h, ''::bytea ORDER BY {form.order}) FROM (
    SELECT t.*, {form.hash_sql(contents)} AS h
    FROM unnest(%(calls)s::uuid[], %(salts)s::bytea[]) AS s (call_id, salt) JOIN {form.table} t
        ON t.call_id = s.call_id {join}
    WHERE t.call_id BETWEEN %(low)s AND %(high)s AND t.call_id = ANY(%(calls)s)
) x GROUP BY call_id
""".encode()


_UNCOVERED = f"""
SELECT call_id, {uncovered_sql("i.call_id")}
FROM (SELECT DISTINCT call_id FROM events WHERE kind = '{KIND}' AND call_id > %(after)s
    ORDER BY call_id LIMIT %(limit)s) i
ORDER BY call_id
""".encode()
_STATEMENTS = {
    redacted: [_hashes(form, redacted=redacted) for form in FORMS] for redacted in (False, True)
}
_REDACTED: LiteralString = (
    "SELECT DISTINCT call_id FROM redactions WHERE call_id = ANY(%(calls)s) AND call_id BETWEEN"
    " %(low)s AND %(high)s"
)
_SHED: LiteralString = "SELECT DISTINCT call_id FROM kept_digests WHERE call_id = ANY(%(calls)s)"
_COUNTS = " UNION ALL ".join(
    f"SELECT {i} AS place, call_id, count(*) FROM {form.table} "
    "WHERE call_id = ANY(%(calls)s) AND call_id BETWEEN %(low)s AND %(high)s GROUP BY call_id"
    for i, form in enumerate(FORMS)
).encode()


@dataclass(frozen=True, slots=True)
class _New:
    """A seal to add."""

    call_id: UUID
    part: int
    salt: bytes | None
    """None where a part before has it: a salt is kept once."""
    counts: list[int]
    digest: bytes
    marks: bytes


class Sealer:
    """Seals calls and writes checkpoints over one connection, opened when needed and again after a
    failure.

    Every method raises AuditUnavailable when PostgreSQL is away, and AuditTooSlow when it gave a
    statement up for its length: what was asked for is then done or not, and may be asked again.
    """

    def __init__(self, database_url: str, *, key: Ed25519PrivateKey | None = None) -> None:
        self._conninfo, self._key = conninfo(database_url), key
        self._connection: psycopg.Connection | None = None
        self._known_size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def cut(self) -> None:
        """Let what runs on the connection in another thread fail at once."""
        connection = self._connection
        if connection is not None:
            cut(connection)

    def seal(self, call_ids: Iterable[UUID], *, note: str = "") -> int:
        """Seal these calls as they are; one that is sealed as it is already is left alone. Returns
        how many seals were added."""
        sorted_ids, added = sorted(set(call_ids)), 0
        for start in range(0, len(sorted_ids), BATCH):
            calls = sorted_ids[start : start + BATCH]
            while calls:
                with _Away(self):
                    new = self._seal_batch(calls, note)
                    added += len(new)
                    # a row whose writer looked for a seal before this one was there, and which we
                    # read before it was there
                    calls = self._grown(new)
        return added

    def find_unsealed(self, low: UUID, stale: UUID, limit: int = 1000) -> list[UUID]:
        """Return calls from `low` on that have no seal: those that ended, and those before `stale`
        whatever became of them."""
        with _Away(self) as connection:
            rows = connection.execute(
                _UNSEALED, {"low": low, "stale": stale, "limit": limit}
            ).fetchall()
        return [row[0] for row in rows]

    def find_beside(self, limit: int = 1000) -> list[UUID]:
        """Return calls whose last seal is of a process from before these tables, and which hold
        what that seal does not cover."""
        with _Away(self) as connection:
            return [row[0] for row in connection.execute(_BESIDE, {"limit": limit}).fetchall()]

    def find_uncovered(self, after: UUID, limit: int = 1000) -> tuple[list[UUID], UUID | None]:
        """Check the next `limit` incomplete calls: return those whose last seal misses an event or
        the end, and the last call checked.

        The process that marks a sealed call as incomplete seals it next, but may die in between.
        The last call is None when none is left.
        """
        with _Away(self) as connection:
            rows = connection.execute(_UNCOVERED, {"after": after, "limit": limit}).fetchall()
        return [call for call, is_uncovered in rows if is_uncovered], (
            rows[-1][0] if len(rows) == limit else None
        )

    def checkpoint(self) -> str | None:
        """Write a checkpoint over all seals; returns its text, or None when nothing was sealed
        since the last."""
        with _Away(self) as connection, connection.transaction():
            _lock(connection)
            last = connection.execute(
                "SELECT size, text, peaks FROM checkpoints ORDER BY size DESC LIMIT 1"
            ).fetchone()
            tree, previous, origin = self._tree_at(last)
            if tree.size < self._known_size:
                _log.error(
                    "the checkpoints end before one that this process wrote: cut off, or a backup"
                    " was restored",
                    extra={"action": "checkpoint", "size": tree.size, "known": self._known_size},
                )
                self._known_size = tree.size
            first = self._add_leaves(connection, tree)
            if tree.size == (last[0] if last else 0):
                return None
            at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            made = Checkpoint(
                origin or f"sluice/{sha256(first).hexdigest()[:16]}",
                tree.size,
                tree.root,
                at,
                previous,
            )
            text = made.text(self._key)
            whole = sha256(text.encode() + tree.peaks).digest()
            connection.execute(
                "INSERT INTO checkpoints (size, text, peaks, sha256) VALUES (%s, %s, %s, %s)",
                (tree.size, text, tree.peaks, whole),
            )
        self._known_size = tree.size
        return text

    def fill_tiles(self) -> int:
        """Keep inner nodes of the tree up to the last checkpoint, some at a time; returns how many
        tiles were added."""
        with _Away(self) as connection, connection.transaction():
            last = connection.execute("SELECT coalesce(max(size), 0) FROM checkpoints").fetchone()
            assert last is not None
            return tiles.fill(connection, last[0])

    def _tree_at(self, last: tuple[Any, ...] | None) -> tuple[Tree, str, str]:
        """The tree to go on from, the hash of the last checkpoint and its origin. A damaged one is
        not gone on from."""
        if last is None:
            return Tree(), "0" * 64, ""
        size, text, peaks = last
        try:
            checkpoint, tree = checkpoints.parse(text), Tree.restore(size, peaks)
            if (checkpoint.size, checkpoint.root) == (size, tree.root):
                return tree, checkpoints.digest(text), checkpoint.origin
        except ValueError:
            pass
        _log.error(
            "the last checkpoint is damaged, the tree is computed anew",
            extra={"action": "checkpoint", "size": size},
        )
        return Tree(), checkpoints.digest(text), text.partition("\n")[0]

    def _add_leaves(self, connection: psycopg.Connection, tree: Tree) -> bytes:
        """Bring the tree up to the newest seal; returns the first leaf that was added."""
        first = b""
        while True:
            rows = connection.execute(
                "SELECT call_id, part, at, counts, sha256, note FROM seals WHERE position >= %s"
                " ORDER BY position LIMIT %s",
                (tree.size, _PAGE),
                binary=True,
            ).fetchall()
            for row in rows:
                leaf = seal_leaf(*row)
                first = first or leaf
                tree.add(leaf)
            if len(rows) < _PAGE:
                return first

    def _seal_batch(self, calls: Sequence[UUID], note: str) -> list[_New]:
        connection = self._connected()
        with connection.transaction():
            _lock(connection)
            known = {
                call: (part, digest)
                for call, part, digest in connection.execute(_PARTS, (list(calls),), binary=True)
            }
            new = [
                n
                for n in self._read(
                    connection, calls, {call: part for call, (part, _) in known.items()}
                )
                if n.call_id not in known or known[n.call_id][1] != n.digest
            ]
            _insert(connection, new, note)
            if decided := [n.call_id for n in new if n.counts[_DECISIONS]]:
                # in the step that seals: a decision is in the queue of those that a person is to
                # look at, or has no seal yet
                connection.execute("SELECT sluice_queue_audits(%s)", (decided,))
        return new

    def _read(
        self, connection: psycopg.Connection, calls: Sequence[UUID], parts: dict[UUID, int]
    ) -> list[_New]:
        """What seals of these calls would hold now."""
        within = values_of(calls)
        salts: dict[UUID, bytes] = (
            dict(connection.execute(_SALTS, within, binary=True).fetchall()) if parts else {}
        )
        fresh = {call: os.urandom(_SALT) for call in calls if call not in salts}
        within["salts"] = [salts.get(call) or fresh[call] for call in calls]
        redacted = {row[0] for row in connection.execute(_REDACTED, within)}
        # of a call that is sealed again; its rows that went are no hole
        whole = (
            redacted | {row[0] for row in connection.execute(_SHED, within)} if parts else redacted
        )
        statements = _STATEMENTS[bool(redacted)]
        with connection.pipeline():
            # first, because what comes in the same step as an end is there when that is
            sums = connection.execute(SUMS, within, binary=True)
            cursors = [
                connection.execute(statement, within, binary=True) for statement in statements
            ]
        by_call: dict[UUID, list[bytes]] = {call: [b""] * len(FORMS) for call in calls}
        for place, cursor in enumerate(cursors):
            _note(by_call, place, cursor)
        if mark(connection, _holes(sums, by_call, whole)):
            _note(by_call, EVENTS, connection.execute(statements[EVENTS], within, binary=True))
        return [
            _New(
                call,
                parts.get(call, -1) + 1,
                fresh.get(call),
                [len(h) // HASH for h in of],
                call_hash(call, of),
                b"".join(map(marks, of)),
            )
            for call, of in by_call.items()
            if any(of)
        ]

    def _grown(self, sealed: Sequence[_New]) -> list[UUID]:
        """Those of the calls just sealed that have more rows by now."""
        if not sealed:
            return []
        calls = [n.call_id for n in sealed]
        now = {n.call_id: [0] * len(FORMS) for n in sealed}
        for place, call, count in self._connected().execute(
            _COUNTS, {"calls": calls, "low": min(calls), "high": max(calls)}
        ):
            now[call][place] = count
        return [n.call_id for n in sealed if now[n.call_id] != n.counts]

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            options = (
                f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS} -c"
                " timezone=UTC"
            )
            self._connection = psycopg.connect(
                self._conninfo, autocommit=True, options=f"{options} -c synchronous_commit=on"
            )
        return self._connection


def _note(by_call: dict[UUID, list[bytes]], place: int, cursor: psycopg.Cursor[Any]) -> None:
    for call, hashes in cursor.fetchall():
        by_call[call][place] = hashes


def _holes(
    sums: psycopg.Cursor[Any], by_call: dict[UUID, list[bytes]], taken: set[UUID]
) -> list[CallHole]:
    """What these calls lack; one of which something was taken out was looked at before, and cannot
    be now."""
    holes: list[CallHole] = []
    for row in sums.fetchall():
        of = by_call[row[0]]
        if any(of) and row[0] not in taken:
            holes += find_holes(row, [len(hashes) // HASH for hashes in of])
    return holes


def _lock(connection: psycopg.Connection) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (SEAL_LOCK,))


def _insert(connection: psycopg.Connection, new: Sequence[_New], note: str) -> None:
    if not new:
        return
    last = connection.execute("SELECT coalesce(max(position), -1) FROM seals").fetchone()
    assert last is not None
    at = datetime.now(UTC)
    counts = ["{" + ",".join(map(str, n.counts)) + "}" for n in new]
    connection.execute(
        _INSERT,
        {
            "first": last[0] + 1,
            "calls": [n.call_id for n in new],
            "parts": [n.part for n in new],
            "at": at,
            "counts": counts,
            "digests": [n.digest for n in new],
            "note": note,
            "form": VERSION,
            "salts": [n.salt for n in new],
            "marks": [n.marks for n in new],
        },
    )


class _Away:
    """Lends the sealer's connection; what the driver raises becomes AuditUnavailable, and the
    connection is made anew."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def __enter__(self) -> psycopg.Connection:
        try:
            return self._sealer._connected()
        except (psycopg.Error, OSError) as error:
            raise AuditUnavailable("the audit log cannot be sealed now") from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        self._sealer.close()
        if isinstance(error, psycopg.errors.QueryCanceled):
            raise AuditTooSlow("sealing takes too long") from error
        if isinstance(error, (psycopg.Error, OSError)):
            raise AuditUnavailable("the audit log cannot be sealed now") from error
