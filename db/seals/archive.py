"""A day of the record as a folder of files: written, read back and verified before anybody drops its rows, and restored from.

`TABLE.copy.gz` holds the rows as COPY BINARY sends them, which is what seals hash; `seals.jsonl.gz` a line a call with its seals, salt,
marks and what redactions and retention kept; `manifest.json` numbers of rows, SHA-256 of each file's content, and the newest checkpoint. A
folder is made under a temporary name: one that has its name is whole. All in constant memory, the hashes of one call aside.
"""

import gzip
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg import sql

from db.canonical import FORMS, VERSION, Form, Row, digests_hash, digests_of, row_hash, tables_in
from db.filters import first_id
from db.seals.findings import Report
from db.seals.redact import changing
from db.seals.shed import with_kept
from db.seals.verify import snapshot
from db.seals.verify_rows import check_rows
from db.seals.verify_tree import find_dropped
from protocol.errors import InvalidRequest

KIND = "sluice archive 1"
SCHEMA = "sluice_restored"
_LEVEL = 1
_PIECE = 2**20
_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_FIELDS, _SIZE = Struct("!h"), Struct("!i")
_SEALS: LiteralString = """
SELECT s.call_id, s.position, s.part, s.at, s.counts, s.sha256, s.note, s.form, r.salt, r.marks,
    ARRAY(SELECT k.place || ' ' || k.rows || ' ' || encode(k.sha256, 'hex') FROM kept_digests k WHERE k.call_id = s.call_id ORDER BY 1),
    ARRAY(SELECT x.table_name || ' ' || encode(x.row_key, 'hex') || ' ' || encode(x.hashes, 'hex') FROM redactions x
        WHERE x.call_id = s.call_id AND x.call_id >= %(low)s AND x.call_id < %(high)s ORDER BY 1)
FROM seals s LEFT JOIN seal_rows r ON r.call_id = s.call_id AND r.part = s.part AND r.call_id >= %(low)s AND r.call_id < %(high)s
WHERE s.call_id >= %(low)s AND s.call_id < %(high)s AND s.part >= 0 ORDER BY s.call_id, s.part
"""


class Damaged(ValueError):
    """A folder is not as it was written; the message says what."""


def archive_day(database_url: str, day: date, to: Path) -> int | None:
    """Write the calls of a day (UTC) to the folder `to/DAY`; returns how many rows, None where the folder is there.

    Raises InvalidRequest where the rows do not fit their seals or have none, OSError, AuditUnavailable.
    """
    folder, making = to / str(day), to / f".{day}.making"
    if folder.exists():
        return None
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    low, high = (first_id(datetime.combine(one, time(), UTC)) for one in (day, day + timedelta(days=1)))
    with snapshot(database_url, statement_timeout_ms=0) as connection:
        report = Report()
        check_rows(connection, report, find_dropped(connection), low=low, high=high)
        if not report.ok or report.unsealed:
            why = str(report.findings[0]) if report.findings else f"{report.unsealed:,} calls have no seal yet"
            shutil.rmtree(making)
            raise InvalidRequest(f"{day} is not archived: {why}", param="before")
        tables = {form.table: _write_table(connection, form, low, high, making) for form in FORMS}
        tables["seals"] = _write_seals(connection, low, high, making)
        checkpoint = connection.execute("SELECT text FROM checkpoints ORDER BY size DESC LIMIT 1").fetchone()
    manifest = {
        "kind": KIND, "day": str(day), "made_at": datetime.now(UTC).isoformat(timespec="seconds"), "form": VERSION,
        "checkpoint": checkpoint[0] if checkpoint else None, "tables": tables,
    }  # fmt: skip
    (making / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    check_folder(making)
    making.rename(folder)
    return sum(int(one["rows"]) for name, one in tables.items() if name != "seals")


def check_folder(folder: Path) -> int:
    """Verify a folder without a database: each file, and each call against its newest seal; returns how many rows. Raises Damaged."""
    manifest = _manifest(folder)
    for name, said in manifest["tables"].items():
        _check_file(folder / said["file"], name, said)
    rows = {form.table: _Rows(folder / manifest["tables"][form.table]["file"], form) for form in FORMS if form.table in manifest["tables"]}
    with gzip.open(folder / manifest["tables"]["seals"]["file"], "rt", encoding="utf-8") as lines:
        for line in lines:
            _check_call(json.loads(line), rows)
    for name, left in rows.items():
        if left.head is not None:
            raise Damaged(f"{name}: rows of call {UUID(bytes=left.head[6:22])} are under no seal of the folder")
    return sum(int(said["rows"]) for name, said in manifest["tables"].items() if name != "seals")


def restore(database_url: str, folder: Path) -> int:
    """Put the rows of a folder into tables of the schema `sluice_restored`, which the calls may be in already; returns how many rows."""
    manifest = _manifest(folder)
    check_folder(folder)
    total = 0
    with changing(database_url) as connection, connection.transaction():
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
        for form in FORMS:
            if (said := manifest["tables"].get(form.table)) is None:
                continue
            own = sql.Identifier(SCHEMA, form.table)
            connection.execute(
                sql.SQL("CREATE TABLE IF NOT EXISTS {} (LIKE {} INCLUDING DEFAULTS)").format(own, sql.Identifier(form.table))
            )
            low, high = (first_id(datetime.fromisoformat(manifest["day"]).replace(tzinfo=UTC) + timedelta(days=n)) for n in (0, 1))
            connection.execute(sql.SQL("DELETE FROM {} WHERE call_id >= %s AND call_id < %s").format(own), (low, high))
            into = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(own, sql.SQL(form.columns))
            with connection.cursor() as cursor, cursor.copy(into) as copy, gzip.open(folder / said["file"], "rb") as file:
                while piece := file.read(_PIECE):
                    copy.write(piece)
            total += int(said["rows"])
    return total


def _write_table(connection: psycopg.Connection, form: Form, low: UUID, high: UUID, folder: Path) -> dict[str, Any]:
    chosen = f"SELECT {form.columns} FROM {form.table} WHERE call_id >= %s AND call_id < %s ORDER BY {form.order}"
    name, digest, rows, size = f"{form.table}.copy.gz", sha256(), -1, 0
    with connection.cursor() as cursor, gzip.open(folder / name, "wb", compresslevel=_LEVEL) as file:
        with cursor.copy(f"COPY ({chosen}) TO STDOUT (FORMAT binary)".encode(), (low, high)) as copy:
            while piece := bytes(copy.read()):
                # a message is a row, the first with the head of the format, and the last its end
                rows, size = rows + 1, size + len(piece)
                digest.update(piece)
                file.write(piece)
    return {"file": name, "rows": max(rows, 0), "bytes": size, "sha256": digest.hexdigest()}


def _write_seals(connection: psycopg.Connection, low: UUID, high: UUID, folder: Path) -> dict[str, Any]:
    name, digest, calls, size = "seals.jsonl.gz", sha256(), 0, 0
    with gzip.open(folder / name, "wb", compresslevel=_LEVEL) as file:
        for call in _calls(connection, low, high):
            line = (json.dumps(call) + "\n").encode()
            calls, size = calls + 1, size + len(line)
            digest.update(line)
            file.write(line)
    return {"file": name, "rows": calls, "bytes": size, "sha256": digest.hexdigest()}


def _calls(connection: psycopg.Connection, low: UUID, high: UUID) -> Iterator[dict[str, Any]]:
    """A call after the other, with all parts of its seal."""
    call: dict[str, Any] = {}
    with connection.cursor("archive_seals", binary=True) as cursor:
        cursor.itersize = 500
        cursor.execute(_SEALS, {"low": low, "high": high})
        for call_id, position, part, at, counts, digest, note, form, salt, marks, kept, redacted in cursor:
            if call.get("call_id") != str(call_id):
                if call:
                    yield call
                call = {"call_id": str(call_id), "salt": None, "parts": [], "kept": kept, "redacted": redacted}
            call["salt"] = salt.hex() if salt else call["salt"]
            call["parts"].append({
                "position": position, "part": part, "at": at.astimezone(UTC).isoformat(), "counts": counts, "sha256": digest.hex(),
                "note": note, "form": form, "marks": (marks or b"").hex(),
            })  # fmt: skip
    if call:
        yield call


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
        if manifest["kind"] != KIND or manifest["form"] > VERSION:
            raise Damaged(f"{folder} is of a newer Sluice, or is no archive")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise error if isinstance(error, Damaged) else Damaged(f"{folder} has no manifest that can be read") from None
    return manifest


def _check_file(path: Path, name: str, said: dict[str, Any]) -> None:
    digest, size = sha256(), 0
    try:
        with gzip.open(path, "rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
                size += len(piece)
    except (OSError, EOFError) as error:
        raise Damaged(f"{name}: {path.name} cannot be read: {error}") from None
    if (size, digest.hexdigest()) != (said["bytes"], said["sha256"]):
        raise Damaged(f"{name}: {path.name} is not what was written")


class _Rows:
    """The rows of a file in their order, one ahead, each as COPY BINARY has it."""

    def __init__(self, path: Path, form: Form) -> None:
        self.form, self._rows = form, _split(gzip.open(path, "rb"))  # noqa: SIM115 - closed at its end
        self.head = next(self._rows, None)

    def of(self, call_id: bytes) -> Iterator[bytes]:
        """The rows of this call, if they come next."""
        while self.head is not None and self.head[6:22] == call_id:
            yield self.head
            self.head = next(self._rows, None)


def _split(file: gzip.GzipFile) -> Iterator[bytes]:
    """The rows of a COPY BINARY stream, in pieces of the file: a read for each field takes three times as long."""
    with file:
        data, at = file.read(_PIECE), len(_HEAD)
        while True:
            end = _row_end(data, at)
            if end == 0:
                return
            if end > 0:
                yield data[at:end]
                at = end
            elif piece := file.read(_PIECE):
                data, at = data[at:] + piece, 0
            else:
                raise Damaged("a file ends in the middle of a row")


def _row_end(data: bytes, at: int) -> int:
    """Where the row ends that begins at `at`: 0 where the stream ends there, -1 where not all of it is here."""
    if len(data) < at + 2:
        return -1
    count = _FIELDS.unpack_from(data, at)[0]
    if count < 0:
        return 0
    at += 2
    for _ in range(count):
        if len(data) < at + 4:
            return -1
        size = _SIZE.unpack_from(data, at)[0]
        at += 4 + size if size > 0 else 4
    return at if at <= len(data) else -1


def _check_call(call: dict[str, Any], rows: dict[str, _Rows]) -> None:
    """Compare the rows of a call with its newest seal."""
    call_id, newest = UUID(call["call_id"]), call["parts"][-1]
    salt = bytes.fromhex(call["salt"] or "")
    kept = {int(place): (int(n), bytes.fromhex(digest)) for place, n, digest in (one.split(" ") for one in call["kept"])}
    redacted = {(table, bytes.fromhex(key)): bytes.fromhex(hashes) for table, key, hashes in (one.split(" ") for one in call["redacted"])}
    hashes = []
    for form in FORMS[: tables_in(newest["form"])]:
        of_table = bytearray()
        for data in rows[form.table].of(call_id.bytes):
            if not redacted:
                of_table += row_hash(form, data, salt, newest["form"])
                continue
            row = Row.read(form, data)
            of_table += row.hash(salt, redacted.get((form.table, row.key)), version=newest["form"])
        hashes.append(of_table)
    gone = [place for place in kept if not hashes[place] and newest["counts"][place]]
    digests = with_kept(digests_of(hashes, newest["form"]), gone, kept)
    if digests_hash(call_id, digests, newest["form"]).hex() != newest["sha256"]:
        raise Damaged(f"the rows of call {call_id} are not those of its seal")
