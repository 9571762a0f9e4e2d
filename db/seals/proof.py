"""Evidence for one tool call or block: a file that shows its rows, and that they are under a
checkpoint, without a database and without the rest of the call. Pure.

The file holds the rows of the block as they are stored, the hashes of all rows of their tables, one
digest of each other table, the path from the call's seal to the checkpoint, and the checkpoint.
Each step is a hash of the one before, so whoever trusts the checkpoint (by its signature, or
because a copy was kept) trusts the rows. There is one way to write it: any changed byte is found,
wherever it is.

It does not show that no other row of the call is about the same block. Must not know: SQL.
"""

import binascii
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from db.canonical import (
    FORMS,
    HASH,
    VERSION,
    Digest,
    Form,
    content_hash,
    digests_hash,
    hash_of_parts,
    leaf_data,
    tables_in,
)
from db.seals import checkpoints
from db.seals.merkle import leaf_hash, root_by_path
from db.seals.values import HIDDEN, columns_of, from_json, to_json

KIND = "sluice evidence 1"
SALT = 32
_FORMS = {form.table: form for form in FORMS}
_SIZE = struct.Struct("!i")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DoesNotFit(ValueError):
    """The contents of the file are inconsistent; the message says what, and where."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """A value that is not shown: the salted hash that the row's covers."""

    hash: bytes


Value = bytes | Hidden | None


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row with the values of `columns_of`, in their order, and its place among the rows of its
    table."""

    place: int
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class TableProof:
    """A table of the call: the hashes of its rows where some are shown, else their number and one
    digest."""

    name: str
    count: int
    digest: bytes
    hashes: bytes = b""
    rows: tuple[ShownRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """The contents of the file."""

    call_id: UUID
    block: int
    salt: bytes
    tables: tuple[TableProof, ...]
    position: int
    part: int
    at: datetime
    form: int
    note: str
    path: tuple[bytes, ...]
    checkpoint: str

    @property
    def digests(self) -> list[Digest]:
        """What the call's hash is made of."""
        return [(table.count, table.digest) for table in self.tables]

    @property
    def sha256(self) -> bytes:
        """The call's hash, as its seal has it."""
        return digests_hash(self.call_id, self.digests, self.form)

    @property
    def leaf(self) -> bytes:
        """The leaf of the call's seal."""
        since = self.at - _EPOCH
        at_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        return leaf_data(
            self.call_id,
            self.part,
            at_us,
            [count for count, _ in self.digests],
            self.sha256,
            self.note,
        )

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows that are shown of a table, with their values as JSON."""
        return [
            _columns(proof, row, self.form)
            for proof in self.tables
            if proof.name == table
            for row in proof.rows
        ]

    def item(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "kind": KIND,
            "call_id": str(self.call_id),
            "block": self.block,
            "salt": self.salt.hex(),
            "tables": [_table_item(table, self.form) for table in self.tables],
            "seal": {
                "position": self.position,
                "part": self.part,
                "at": to_time(self.at),
                "form": self.form,
                "note": self.note,
                "sha256": self.sha256.hex(),
            },
            "path": [node.hex() for node in self.path],
            "checkpoint": self.checkpoint,
        }

    def dump(self) -> bytes:
        """Return the file."""
        return (json.dumps(self.item(), indent=1, ensure_ascii=True) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Proven:
    """Consistent evidence, and what vouches for its checkpoint."""

    evidence: Evidence
    is_signed: bool
    """By the key that was given."""
    is_kept: bool
    """A checkpoint that was kept elsewhere is the same."""


def check(
    data: bytes, *, key: Ed25519PublicKey | None = None, against: Sequence[str] = ()
) -> Proven:
    """Verify a file. `against` are texts of checkpoints kept elsewhere. Raises DoesNotFit."""
    evidence = load(data)
    for table in evidence.tables:
        _check_rows(evidence, table)
    _check_tree(evidence)
    text = evidence.checkpoint
    is_signed = key is not None and checkpoints.is_signed_by(text, key)
    if key is not None and not is_signed:
        raise DoesNotFit("the checkpoint is not signed by this key")
    if against and not any(text.rstrip("\n") == trusted.rstrip("\n") for trusted in against):
        raise DoesNotFit(_kept_otherwise(checkpoints.parse(text), against))
    return Proven(evidence, is_signed, bool(against))


def _kept_otherwise(checkpoint: checkpoints.Checkpoint, against: Sequence[str]) -> str:
    trusted = [checkpoints.parse(text) for text in against]
    if any(other.size == checkpoint.size and other.root != checkpoint.root for other in trusted):
        return (
            f"the checkpoint kept elsewhere over the same {checkpoint.size} seals has another root: one of"
            " the two was not made by this record"
        )
    if any(other.size == checkpoint.size for other in trusted):
        return (
            f"the checkpoint kept elsewhere over the same {checkpoint.size} seals has the same root, but"
            " its text or signature is another"
        )
    sizes = ", ".join(str(other.size) for other in trusted)
    return (
        f"it is made for the checkpoint over {checkpoint.size} seals, those kept elsewhere are over"
        f" {sizes}: have it made for one of those, with sluice audit evidence --checkpoint"
    )


def load(data: bytes) -> Evidence:
    """Return what a file holds, without verifying it. Raises DoesNotFit where it is no such file,
    or is not written as Sluice writes it."""
    try:
        document = json.loads(data)
        kind = (
            document["kind"]
            if isinstance(document, dict) and isinstance(document.get("kind"), str)
            else ""
        )
        if kind != KIND:
            raise DoesNotFit(
                "this is not evidence of this version of Sluice: verify with the newest"
                if kind
                else "this is no evidence"
            )
        evidence = _read(document)
        written = evidence.dump()
    except DoesNotFit:
        raise
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        struct.error,
        binascii.Error,
    ):
        raise DoesNotFit(
            "this is no evidence, or a part of it is missing or is not what belongs there"
        ) from None
    if written != data:
        raise DoesNotFit("the file is not as Sluice wrote it: " + _first_difference(written, data))
    return evidence


def _first_difference(written: bytes, data: bytes) -> str:
    if (
        b'"sha256"' in data
        and written[: written.rfind(b'"sha256"')] == data[: data.rfind(b'"sha256"')]
    ):
        return "the hash in the seal is not that of the tables"
    at = next(
        (i for i, (byte, other) in enumerate(zip(written, data, strict=False)) if byte != other),
        min(len(written), len(data)),
    )
    return f"line {data[:at].count(10) + 1} was changed"


def _read(document: Mapping[str, Any]) -> Evidence:
    seal = document["seal"]
    form = int(seal["form"])
    if not 1 <= form <= VERSION:
        raise DoesNotFit(
            f"its seal is of version {form} of the form, this one knows up to {VERSION}: verify"
            " with the Sluice that made it"
        )
    tables = tuple(_read_table(entry, form) for entry in document["tables"])
    if [table.name for table in tables] != [known.table for known in FORMS[: tables_in(form)]]:
        raise DoesNotFit("it does not hold every table that the seal covers")
    return Evidence(
        UUID(document["call_id"]),
        int(document["block"]),
        bytes.fromhex(document["salt"]),
        tables,
        int(seal["position"]),
        int(seal["part"]),
        datetime.fromisoformat(seal["at"]),
        form,
        str(seal["note"]),
        tuple(map(bytes.fromhex, document["path"])),
        str(document["checkpoint"]),
    )


def _read_table(table: Mapping[str, Any], version: int) -> TableProof:
    form = _FORMS[table["table"]]
    if "hashes" not in table:
        return TableProof(form.table, int(table["rows"]), bytes.fromhex(table["sha256"]))
    hashes = b"".join(map(bytes.fromhex, table["hashes"]))
    rows = tuple(
        ShownRow(int(row["place"]), _read_values(form, row["columns"], version))
        for row in table["shown"]
    )
    return TableProof(form.table, len(table["hashes"]), sha256(hashes).digest(), hashes, rows)


def _read_values(form: Form, columns: Mapping[str, Any], version: int) -> tuple[Value, ...]:
    values: list[Value] = []
    for name, kind, part in columns_of(form, version):
        match columns[name]:
            case {"salted_sha256": str(text)} if part == "content":
                values.append(Hidden(bytes.fromhex(text)))
            case value:
                try:
                    values.append(from_json(value, kind))
                except ValueError:
                    raise DoesNotFit(
                        f"{form.table}: {name} is not how such a value is written"
                    ) from None
    return tuple(values)


def _table_item(table: TableProof, version: int) -> dict[str, Any]:
    if not table.hashes:
        return {"table": table.name, "rows": table.count, "sha256": table.digest.hex()}
    return {
        "table": table.name,
        "shown": [
            {"place": row.place, "columns": _columns(table, row, version)} for row in table.rows
        ],
        "hashes": [table.hashes[i : i + HASH].hex() for i in range(0, len(table.hashes), HASH)],
    }


def _columns(table: TableProof, row: ShownRow, version: int) -> dict[str, Any]:
    columns = columns_of(_FORMS[table.name], version)
    return {
        name: {HIDDEN: value.hash.hex()} if isinstance(value, Hidden) else to_json(value, kind)
        for (name, kind, _), value in zip(columns, row.values, strict=True)
    }


def _check_rows(evidence: Evidence, table: TableProof) -> None:
    form, taken = _FORMS[table.name], set()
    for row in table.rows:
        shown = hash_of(form, evidence.call_id, row.values, evidence.salt, evidence.form)
        if not 0 <= row.place < table.count or row.place in taken:
            raise DoesNotFit(f"{table.name}: there is no row {row.place + 1}, or it is shown twice")
        if table.hashes[row.place * HASH : (row.place + 1) * HASH] != shown:
            raise DoesNotFit(
                f"{table.name}, row {row.place + 1}: the hash is not that of the row: the row, its"
                " hash or the salt was changed"
            )
        taken.add(row.place)
        if _columns(table, row, evidence.form).get("block", evidence.block) != evidence.block:
            raise DoesNotFit(f"{table.name}, row {row.place + 1} is of another block")


def hash_of(form: Form, call_id: UUID, values: Sequence[Value], salt: bytes, version: int) -> bytes:
    """Return the hash of a row from its values."""
    key = stays = contents = b""
    place = 0
    for (_, _, part), value in zip(columns_of(form, version), values, strict=True):
        if part == "content":
            contents += (
                value.hash if isinstance(value, Hidden) else content_hash(salt, place, key, value)
            )
            place += 1
            continue
        assert not isinstance(value, Hidden)
        field = _SIZE.pack(-1) if value is None else _SIZE.pack(len(value)) + value
        key, stays = (key + field, stays) if part == "key" else (key, stays + field)
    return hash_of_parts(form.table, call_id.bytes, key, stays, contents)


def _check_tree(evidence: Evidence) -> None:
    if len(evidence.salt) != SALT or not any(
        table.rows for table in evidence.tables if table.name in ("tool_calls", "blocks")
    ):
        raise DoesNotFit("it shows no row of the block, or its salt is not whole")
    try:
        checkpoint = checkpoints.parse(evidence.checkpoint)
    except ValueError:
        raise DoesNotFit("the checkpoint in it is none of Sluice") from None
    if not checkpoints.is_plain(evidence.checkpoint):
        raise DoesNotFit("the checkpoint in it is not written as Sluice writes it")
    try:
        root = root_by_path(
            leaf_hash(evidence.leaf), evidence.position, checkpoint.size, evidence.path
        )
    except (ValueError, struct.error) as error:
        raise DoesNotFit(
            f"the path does not lead from the seal to the checkpoint: {error}"
        ) from None
    if root != checkpoint.root:
        raise DoesNotFit(
            "the path does not lead from the seal to the checkpoint: a number of rows, the seal,"
            " the path or the checkpoint was changed"
        )


def to_time(at: datetime) -> str:
    """Return a time as it stands in the file."""
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def time_of_call(call_id: UUID) -> datetime:
    """Return when a call began, by its id."""
    return _EPOCH + timedelta(milliseconds=call_id.int >> 80)
