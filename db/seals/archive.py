"""A day of the record as a folder of files: written, read back and verified before anybody drops
its rows.

`TABLE.copy.gz` holds the rows as COPY BINARY sends them, which is what seals hash; `seals.jsonl.gz`
a line a call with its seals, salt and what redactions and retention kept; `nodes.gz` and
`checkpoints.jsonl.gz` what leads from the seals to checkpoints (`db.seals.folder`); `manifest.json`
numbers of rows and the SHA-256 of each file. A folder is made under a temporary name and is on disk
before it is renamed: a folder with its final name is complete. The writer holds `RETENTION_LOCK`.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg import sql

from db.canonical import FORMS, HASH, VERSION, Form, seal_leaf
from db.seals import checkpoints, tiles
from db.seals.archived_files import (
    CHECKPOINTS,
    NODES,
    SEALS,
    Damaged,
    file_of,
    folders_in,
    make_directory,
    packed_file,
    read_seals,
    settle,
    sync_folder,
    write_lines,
)
from db.seals.findings import Report
from db.seals.folder import (
    KIND,
    UNREADABLE,
    CheckedFolder,
    Leaves,
    add_leaf,
    bounds_of,
    check_folder,
    first_over,
    forms_of,
    manifest_bytes,
    read_manifest,
)
from db.seals.merkle import nodes_beside, root_beside
from db.seals.shed import find_shed
from db.seals.verify import snapshot
from db.seals.verify_rows import check_rows
from db.seals.verify_tree import Dropped, find_dropped
from protocol.errors import AuditUnavailable, InvalidRequest

TABLES = tuple(form.table for form in FORMS)
MAX_CHECKPOINTS = 10_000
"""So many a folder holds: those of a week at one a minute. The folder of the next day goes on from
there."""
_SEALS: LiteralString = """
SELECT s.call_id, s.position, s.part, s.at, s.counts, s.sha256, s.note, s.form, r.salt,
    CASE WHEN lead(s.part) OVER (PARTITION BY s.call_id ORDER BY s.part) IS NULL THEN ''::bytea
        ELSE r.marks END,
    ARRAY(SELECT k.place || ' ' || k.rows || ' ' || encode(k.sha256, 'hex') FROM kept_digests k
        WHERE k.call_id = s.call_id ORDER BY 1),
    ARRAY(SELECT x.table_name || ' ' || encode(x.row_key, 'hex') || ' ' || encode(x.hashes, 'hex')
        FROM redactions x
        WHERE x.call_id = s.call_id AND x.call_id >= %(low)s AND x.call_id < %(high)s ORDER BY 1)
FROM seals s LEFT JOIN seal_rows r ON r.call_id = s.call_id AND r.part = s.part
    AND r.call_id >= %(low)s AND r.call_id < %(high)s
WHERE s.call_id >= %(low)s AND s.call_id < %(high)s AND s.part >= 0 AND (s.call_id >= %(dropped)s
    OR s.position > %(after)s)
ORDER BY s.call_id, s.part
"""
_NEWEST: LiteralString = """
SELECT DISTINCT ON (call_id) call_id, position, sha256 FROM seals
WHERE call_id >= %(low)s AND call_id < %(high)s AND part >= 0 AND (call_id >= %(dropped)s
    OR position > %(after)s)
ORDER BY call_id, part DESC
"""
_LEAVES: LiteralString = (
    "SELECT call_id, part, position, at, counts, sha256, note FROM seals WHERE position = ANY(%s)"
    " ORDER BY position"
)
_CHECKPOINTS: LiteralString = """
SELECT text FROM (SELECT size, text FROM checkpoints WHERE size > %s ORDER BY size DESC LIMIT %s) c
    ORDER BY size
"""


@dataclass(frozen=True, slots=True)
class Archived:
    """A day that is in a folder."""

    name: str
    """Of the folder."""
    rows: int | None
    """None: it was there already."""
    day: date
    seen: int
    """The position of the newest seal that was looked at."""


def archive_before(
    database_url: str,
    before: date,
    to: Path,
    tables: Sequence[str] = TABLES,
    first: date = date(1970, 1, 1),
) -> Iterator[Archived]:
    """Write each day from `first` to before `before` of which these tables hold rows. Raises as
    `archive_day`."""
    while (day := _next_day(database_url, tables, first, before)) is not None:
        yield archive_day(database_url, day, to)
        first = day + timedelta(days=1)


def archive_day(database_url: str, day: date, to: Path) -> Archived:
    """Write the calls of a day (UTC) to the folder `to/DAY`, or find that they are there as they
    are now on record.

    Where that folder is damaged, or calls were sealed again since, the next one is written:
    `to/DAY.2`. Raises InvalidRequest where the rows do not fit their seals or have none, no
    checkpoint is over those, or a folder is of another record; OSError, AuditUnavailable.
    """
    make_directory(to)
    there = [existing for existing in folders_in(to) if existing.name[:10] == str(day)]
    with snapshot(database_url, statement_timeout_ms=0) as connection:
        work = _Day(connection, day)
        for folder in reversed(there):
            if work.is_in(folder):
                sync_folder(to)
                return Archived(folder.name, None, day, work.seen)
        for left in to.glob(f".{day}.{work.tag}.*"):
            # whoever made it did not end, and has the lock no more
            shutil.rmtree(left, ignore_errors=True)
        with _making(work, to) as making:
            rows = work.write(making)
            name = f"{day}.{int(there[-1].name[11:] or 1) + 1}" if there else str(day)
            making.rename(to / name)
            sync_folder(to)
    return Archived(name, rows, day, work.seen)


@contextmanager
def _making(work: "_Day", to: Path) -> Iterator[Path]:
    """Lend a folder with a temporary name, which does not stay under it."""
    try:
        making = Path(mkdtemp(prefix=f".{work.day}.{work.tag}.", dir=to))
        try:
            yield making
        finally:
            shutil.rmtree(making, ignore_errors=True)
    except OSError as error:
        raise work.refused(f"{to} cannot be written: {error.strerror}") from error


class _Day:
    """A day as it is on record in one snapshot."""

    def __init__(self, connection: psycopg.Connection, day: date) -> None:
        self._connection, self.day = connection, day
        self._low, self._high = bounds_of(day)
        self._dropped: Dropped = find_dropped(connection)
        # leaves are of whole days: what went of one call went of all
        self._gone = find_shed(connection).leaves(UUID(int=self._high.int - 1))
        row = connection.execute("SELECT coalesce(max(position), -1) FROM seals").fetchone()
        self.seen = int(row[0]) if row else -1
        newest = connection.execute(
            "SELECT text FROM checkpoints ORDER BY size DESC LIMIT 1"
        ).fetchone()
        if newest is None:
            raise self.refused(
                "there is no checkpoint yet: let an audit writer run, then try again"
            )
        self.record = str(newest[0]).partition("\n")[0]

    @property
    def tag(self) -> str:
        """What tells temporary folders of this record from those of others."""
        return sha256(self.record.encode()).hexdigest()[:8]

    def is_in(self, folder: Path) -> bool:
        """Say whether a folder holds each call as it is sealed now, and is whole. Raises
        InvalidRequest where it is of another record."""
        try:
            manifest = read_manifest(folder)
            if manifest["record"] != self.record:
                raise self.refused(
                    f"{folder} is of another record ({manifest['record']}): each needs a directory"
                    " of its own"
                )
            gone = {(UUID(leaf["call_id"]).int & 0xFFFF) - 1 for leaf in manifest["gone"]}
            return (
                gone <= set(self._gone)
                and self._has_all(folder)
                and self._counts_all(manifest)
                and self._is_own(check_folder(folder))
            )
        except UNREADABLE:
            return False

    def _has_all(self, folder: Path) -> bool:
        archived = read_seals(folder)
        with self._connection.cursor("archived_seals", binary=True) as cursor:
            cursor.itersize = 5_000
            cursor.execute(_NEWEST, self._values())
            for call_id, position, digest in cursor:
                line = next(
                    (candidate for candidate in archived if candidate["call_id"] >= str(call_id)),
                    None,
                )
                if line is None or line["call_id"] != str(call_id):
                    return False
                if (line["parts"][-1]["position"], line["parts"][-1]["sha256"]) != (
                    position,
                    digest.hex(),
                ):
                    return False
        return True

    def _counts_all(self, manifest: dict[str, Any]) -> bool:
        """Say whether no table has more rows of the day than the folder: one that came late may be
        under no seal yet."""
        low, high = self._low, self._high
        for place, form in enumerate(forms_of(manifest["form"])):
            query = sql.SQL("SELECT count(*) FROM {} WHERE call_id >= %s AND call_id < %s").format(
                sql.Identifier(form.table)
            )
            # of those that went some may have come since; they stay until the whole day goes
            row = (
                None
                if place in self._gone
                else self._connection.execute(query, (low, high)).fetchone()
            )
            if row is not None and row[0] > manifest["files"][form.table]["rows"]:
                return False
        return True

    def _is_own(self, checked: CheckedFolder) -> bool:
        """Say whether all checkpoints of a folder are on record: anybody can make others of the
        same name."""
        sizes = [checkpoints.parse(text).size for text in checked.texts]
        known = {
            row[0]
            for row in self._connection.execute(
                "SELECT text FROM checkpoints WHERE size = ANY(%s)", (sizes,)
            )
        }
        return checked.record == self.record and known.issuperset(checked.texts)

    def write(self, folder: Path) -> int:
        """Write the files and verify them; returns how many rows."""
        files: dict[str, dict[str, Any]] = {
            form.table: self._write_table(form, folder) for form in FORMS
        }
        leaves, gone = Leaves(), self._write_gone()
        for leaf in gone:
            add_leaf(leaves, UUID(leaf["call_id"]), leaf)
        files[SEALS] = write_lines(
            folder, SEALS, (json.dumps(call) for call in self._calls(leaves))
        )
        texts = self._checkpoints(leaves)
        files[NODES] = self._write_nodes(
            folder, leaves, checkpoints.parse(first_over(leaves, texts))
        )
        files[CHECKPOINTS] = write_lines(folder, CHECKPOINTS, map(json.dumps, texts))
        manifest = {
            "kind": KIND,
            "day": str(self.day),
            "form": VERSION,
            "record": self.record,
            "gone": gone,
            "files": files,
        }
        with (folder / "manifest.json").open("xb") as file:
            file.write(manifest_bytes(manifest))
            file.flush()
            settle(file.fileno())
        sync_folder(folder)
        try:
            return check_folder(folder).rows
        except Damaged as error:
            raise self.refused(self._why(error)) from error

    def _why(self, damaged: Damaged) -> str:
        """What does not fit, named by the rows on record if they are it."""
        report = Report()
        check_rows(self._connection, report, self._dropped, low=self._low, high=self._high)
        if report.findings:
            return str(report.findings[0])
        return (
            f"{report.unsealed:,} calls have no seal yet: let an audit writer run"
            if report.unsealed
            else str(damaged)
        )

    def _write_table(self, form: Form, folder: Path) -> dict[str, Any]:
        chosen = (
            f"SELECT {form.columns} FROM {form.table} WHERE call_id >= %s AND call_id < %s ORDER BY"
            f" {form.order}"
        )
        with self._connection.cursor() as cursor, packed_file(file_of(folder, form.table)) as file:
            with cursor.copy(
                f"COPY ({chosen}) TO STDOUT (FORMAT binary)".encode(), (self._low, self._high)
            ) as copy:
                while piece := bytes(copy.read()):
                    # a message is a row, the first with the head of the format, and the last its
                    # end
                    file.write(piece)
        return file.item | {"rows": max(file.pieces - 1, 0)}

    def _write_gone(self) -> list[dict[str, Any]]:
        """The leaves that say that rows of the day went."""
        rows = self._connection.execute(
            _LEAVES, (list(self._gone.values()),), binary=True
        ).fetchall()
        return [
            {
                "call_id": str(call_id),
                "part": part,
                "position": position,
                "at": _time(at),
                "counts": counts,
                "sha256": digest.hex(),
                "note": note,
            }
            for call_id, part, position, at, counts, digest, note in rows
        ]

    def _calls(self, leaves: Leaves) -> Iterator[dict[str, Any]]:
        """A call after the other, with all parts of its seal."""
        call: dict[str, Any] = {}
        with self._connection.cursor("archive_seals", binary=True) as cursor:
            cursor.itersize = 500
            cursor.execute(_SEALS, self._values())
            for (
                call_id,
                position,
                part,
                at,
                counts,
                digest,
                note,
                form,
                salt,
                marks,
                retained,
                redacted,
            ) in cursor:
                if call.get("call_id") != str(call_id):
                    if call:
                        yield call
                    call = {
                        "call_id": str(call_id),
                        "salt": "",
                        "parts": [],
                        "kept": retained,
                        "redacted": redacted,
                    }
                call["salt"] = salt.hex() if salt else call["salt"]
                call["parts"].append(
                    {
                        "position": position,
                        "part": part,
                        "at": _time(at),
                        "counts": counts,
                        "sha256": digest.hex(),
                        "note": note,
                        "form": form,
                        "marks": (marks or b"").hex(),
                    }
                )
                leaves.add(position, seal_leaf(call_id, part, at, counts, digest, note))
        if call:
            yield call

    def _checkpoints(self, leaves: Leaves) -> list[str]:
        """The checkpoints since the first of the day's seals, the newest at the end."""
        texts = [
            row[0]
            for row in self._connection.execute(_CHECKPOINTS, (leaves.first, MAX_CHECKPOINTS))
        ]
        if not texts or checkpoints.parse(texts[-1]).size <= leaves.last:
            raise self.refused(
                "some of its seals are under no checkpoint yet: let an audit writer run, then try"
                " again"
            )
        return texts

    def _write_nodes(
        self, folder: Path, leaves: Leaves, checkpoint: checkpoints.Checkpoint
    ) -> dict[str, Any]:
        """What lies beside the day's leaves, by the tiles, or where they are damaged by the
        seals."""
        positions, hashes = leaves.sorted()
        for is_trusting in (True, False):
            tree_nodes = tiles.Nodes(self._connection, is_trusting=is_trusting)
            try:
                nodes = b"".join(nodes_beside(positions, checkpoint.size, tree_nodes.subtree))
                if root_beside(positions, hashes, checkpoint.size, _each(nodes)) == checkpoint.root:
                    break
            except ValueError:
                continue
            except AuditUnavailable as error:
                # too many tiles are missing, also where one that is there is damaged: no word
                # against the seals
                raise self.refused(error.message) from error
        else:
            raise self.refused("its seals do not lead to the checkpoint: run `sluice audit verify`")
        with packed_file(file_of(folder, NODES)) as file:
            file.write(nodes)
        return file.item

    def _values(self) -> dict[str, object]:
        return {
            "low": self._low,
            "high": self._high,
            "dropped": self._dropped.before,
            "after": self._dropped.position,
        }

    def refused(self, why: str) -> InvalidRequest:
        """Return the error that says why the day is not archived."""
        return InvalidRequest(f"{self.day} is not archived: {why}", param="before")


def _next_day(database_url: str, tables: Sequence[str], after: date, before: date) -> date | None:
    """The first of these days on which these tables have rows."""
    low, high = bounds_of(after)[0], bounds_of(before)[0]
    first = (
        "(SELECT call_id FROM {} WHERE call_id >= %(low)s AND call_id < %(high)s ORDER BY call_id"
        " LIMIT 1)"
    )
    parts = [sql.SQL(first).format(sql.Identifier(table)) for table in tables]
    query = sql.SQL("SELECT call_id FROM ({}) f ORDER BY call_id LIMIT 1").format(
        sql.SQL(" UNION ALL ").join(parts)
    )
    with snapshot(database_url, statement_timeout_ms=0) as connection:
        row = connection.execute(query, {"low": low, "high": high}).fetchone()
    return None if row is None else datetime.fromtimestamp((row[0].int >> 80) / 1000, UTC).date()


def _each(nodes: bytes) -> Iterator[bytes]:
    return (nodes[i : i + HASH] for i in range(0, len(nodes), HASH))


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
