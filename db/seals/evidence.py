"""Makes evidence (`db.seals.proof`) of one tool call or block from the record. Synchronous, one
connection, one snapshot."""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import LiteralString, NamedTuple
from uuid import UUID

import psycopg

from db.canonical import FORMS, HASH, VERSION, CopiedRow, Form, fields, tables_in
from db.seals import checkpoints, tiles
from db.seals.changed_rows import copy_rows
from db.seals.merkle import leaf_hash, path_of, root_by_path
from db.seals.proof import Evidence, Hidden, ShownRow, TableProof, Value, hash_of, time_of_call
from db.seals.shed import find_shed, kept_digests
from db.seals.values import columns_of
from db.seals.verify import snapshot
from db.seals.verify_tree import find_dropped
from protocol.errors import AuditUnavailable, InvalidRequest, NotFound

CODE = "no_evidence"
"""Of the errors that say why there is none."""
SHOWN = ("calls", "blocks", "tool_calls", "tool_releases", "judgements", "scores", "decisions")
"""Tables of which rows are shown: the call's own, and those of the block."""
HIDDEN = {("calls", "start"), ("judgements", "prompt")}
"""Content that is not the block's own: only its hash is shown."""
_SEAL: LiteralString = """
SELECT position, part, at, counts, sha256, note, form FROM seals WHERE call_id = %s AND part >= 0
    ORDER BY part DESC LIMIT 1
"""
_SALT: LiteralString = (
    "SELECT salt FROM seal_rows WHERE call_id = %s AND salt IS NOT NULL ORDER BY part DESC LIMIT 1"
)
_REDACTED: LiteralString = (
    "SELECT at FROM events WHERE call_id = %s AND kind = 'redacted' ORDER BY number DESC LIMIT 1"
)
_DROPPED: LiteralString = "SELECT at FROM seals WHERE position = %s"
_CHECKPOINT: LiteralString = (
    "SELECT text FROM checkpoints WHERE %(size)s::bigint IS NULL OR size = %(size)s ORDER BY size"
    " DESC LIMIT 1"
)
_KNOWN = " OR ".join(
    f"EXISTS (SELECT FROM {table} WHERE call_id = %(call)s)"
    for table in ("calls", "ends", "events", "tool_calls")
)


class _SealOf(NamedTuple):
    """The newest seal of a call."""

    position: int
    part: int
    at: datetime
    counts: list[int]
    sha256: bytes
    note: str
    form: int


def make(
    database_url: str, call_id: UUID, block: int, *, size: int | None = None, within_s: float = 60.0
) -> Evidence:
    """Return the evidence of a block, under the newest checkpoint or the one over `size` seals.

    Raises InvalidRequest with the code `no_evidence` and a sentence that says why there is none,
    NotFound, AuditUnavailable.
    """
    with snapshot(
        database_url, statement_timeout_ms=int(within_s * 1000), within_s=within_s
    ) as connection:
        return _make(connection, call_id, block, size)


def _make(connection: psycopg.Connection, call_id: UUID, block: int, size: int | None) -> Evidence:
    seal, salt = _sealed(connection, call_id)
    text, checkpoint = _checkpoint(connection, seal, size)
    gone = {
        place
        for place, position in find_shed(connection).leaves(call_id).items()
        if seal.position < position
    }
    retained = kept_digests(connection, call_id, call_id).get(call_id.bytes, {}) if gone else {}
    tables = [
        (
            TableProof(form.table, *retained[place])
            if place in gone and place in retained
            else _table(connection, form, call_id, block, salt, seal.form)
        )
        for place, form in enumerate(FORMS[: tables_in(seal.form)])
    ]
    if not any(table.rows for table in tables if table.name in ("blocks", "tool_calls")):
        raise NotFound(f"call {call_id} has no block {block}", param="block")
    made = Evidence(
        call_id,
        block,
        salt,
        tuple(tables),
        seal.position,
        seal.part,
        seal.at,
        seal.form,
        seal.note,
        (),
        text,
    )
    if made.sha256 != seal.sha256:
        raise no_evidence(
            "what is on record of the call does not fit its seal: run `sluice audit verify --call"
            f" {call_id}`"
        )
    path = _path(connection, made, checkpoint)
    return Evidence(
        call_id,
        block,
        salt,
        made.tables,
        made.position,
        made.part,
        made.at,
        made.form,
        made.note,
        tuple(path),
        text,
    )


def no_evidence(why: str) -> InvalidRequest:
    """Return the error that says why there is none."""
    return InvalidRequest(why, code="no_evidence")


def _sealed(connection: psycopg.Connection, call_id: UUID) -> tuple[_SealOf, bytes]:
    """The newest seal of a call, and its salt."""
    row = connection.execute(_SEAL, (call_id,), binary=True).fetchone()
    if row is None:
        known = connection.execute(f"SELECT {_KNOWN}".encode(), {"call": call_id}).fetchone()
        if known is None or not known[0]:
            raise NotFound(f"no call {call_id} in the record")
        raise no_evidence("the call has no seal yet: it is open, or ended a moment ago")
    seal = _SealOf(*row)
    dropped = find_dropped(connection)
    if call_id < dropped.before and seal.position < dropped.position:
        [at] = connection.execute(_DROPPED, (dropped.position,)).fetchone() or (None,)
        day = f" on {at.astimezone(UTC):%Y-%m-%d}" if at else ""
        raise no_evidence(
            f"the rows of calls before {time_of_call(dropped.before):%Y-%m-%d} were dropped{day}:"
            " their seals alone are left"
        )
    redacted = connection.execute(_REDACTED, (call_id,)).fetchone()
    if redacted is not None:
        raise no_evidence(
            f"the content of the call was deleted on {redacted[0].astimezone(UTC):%Y-%m-%d}"
            " (redacted), and with it the salt of its hashes"
        )
    if not 1 <= seal.form <= VERSION:
        raise no_evidence(
            f"its seal is of a version that this one does not know (it knows up to {VERSION}): use"
            " the Sluice that made it"
        )
    salt = connection.execute(_SALT, (call_id,), binary=True).fetchone()
    if salt is None:
        raise no_evidence(
            f"the salt of its seal is gone: run `sluice audit verify --call {call_id}`"
        )
    return seal, salt[0]


def _checkpoint(
    connection: psycopg.Connection, seal: _SealOf, size: int | None
) -> tuple[str, checkpoints.Checkpoint]:
    row = connection.execute(_CHECKPOINT, {"size": size}).fetchone()
    if row is None and size is not None:
        raise no_evidence(f"there is no checkpoint over {size} seals in this record")
    try:
        checkpoint = checkpoints.parse(row[0]) if row else None
    except ValueError:
        raise no_evidence("the checkpoint was changed: run `sluice audit verify`") from None
    if row is None or checkpoint is None or checkpoint.size <= seal.position:
        if size is not None:
            raise no_evidence(
                f"the call was sealed, or sealed again, after the checkpoint over {size} seals"
            )
        raise no_evidence(
            "the call's seal is under no checkpoint yet: audit writers make one within"
            " limits.checkpoint_s of its end"
        )
    return row[0], checkpoint


def _table(
    connection: psycopg.Connection, form: Form, call_id: UUID, block: int, salt: bytes, version: int
) -> TableProof:
    if form.table not in SHOWN:
        return TableProof(form.table, *_digest(connection, form, call_id, salt, version))
    hashes, shown = bytearray(), []
    names = [name for name, _, _ in columns_of(form, version)]
    at = names.index("block") if "block" in names else None
    for place, data in enumerate(copy_rows(connection, form, call_id, call_id)):
        row = CopiedRow.read(form, data)
        values = _values(form, row, salt, version)
        hashes += hash_of(form, call_id, values, salt, version)
        if at is None or values[at] == block.to_bytes(4, "big", signed=True):
            shown.append(ShownRow(place, values))
    return TableProof(
        form.table,
        len(hashes) // HASH,
        sha256(hashes).digest(),
        bytes(hashes) if shown else b"",
        tuple(shown),
    )


def _values(form: Form, row: CopiedRow, salt: bytes, version: int) -> tuple[Value, ...]:
    stays, content = form.counts[version]
    values: list[Value] = [*fields(row.key, len(form.key)), *fields(row.stays, stays)]
    for place, (name, _) in enumerate(form.content[:content]):
        value = row.content[place]
        hidden = value is not None and (form.table, name) in HIDDEN
        values.append(
            Hidden(sha256(salt + bytes([place]) + row.key + (value or b"")).digest())
            if hidden
            else value
        )
    return tuple(values)


def _digest(
    connection: psycopg.Connection, form: Form, call_id: UUID, salt: bytes, version: int
) -> tuple[int, bytes]:
    """The digest of a table's rows, hashed in the database: a call may have ten thousand chunks."""
    hashed = form.hash_sql(form.contents_sql(version), version)
    row = connection.execute(
        f"SELECT count(*), sha256(coalesce(string_agg(h, ''::bytea ORDER BY {form.order}), ''))"
        f" FROM (SELECT t.*, {hashed} AS h FROM {form.table} t, (SELECT %s::bytea AS salt) s WHERE"
        " t.call_id = %s) x".encode(),
        (salt, call_id),
        binary=True,
    ).fetchone()
    assert row is not None
    return int(row[0]), row[1]


def _path(
    connection: psycopg.Connection, evidence: Evidence, checkpoint: checkpoints.Checkpoint
) -> Sequence[bytes]:
    """The path to the checkpoint's root: by the tiles, or where they are damaged by the seals."""
    for is_trusting in (True, False):
        nodes = tiles.Nodes(connection, is_trusting=is_trusting)
        try:
            path = path_of(evidence.position, checkpoint.size, nodes.subtree)
            if (
                root_by_path(leaf_hash(evidence.leaf), evidence.position, checkpoint.size, path)
                == checkpoint.root
            ):
                return path
        except ValueError:
            continue
        except AuditUnavailable:
            if is_trusting:
                raise
    raise no_evidence("the seals do not lead to the checkpoint: run `sluice audit verify`")
