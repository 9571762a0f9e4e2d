"""Finds out which rows of a call do not fit its seal, and what was done to them. Reads only that
call again.

A seal keeps a mark (the first bytes of the hash) of each row, in order. A row with an unknown mark
was altered, inserted or moved; a mark without a row belongs to a row that is missing or was
altered. A row that fits a lost mark under another row's key, or under another call's id and salt,
was moved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import psycopg

from db.canonical import FORMS, MARK, CopiedRow, Form
from db.seals.findings import Damage, SealFinding

MAX_TRIED = 200
"""Rows of one call of which every exchange with every other is tried."""
_KEPT = 5
_COPY_HEAD = 19


@dataclass(frozen=True, slots=True)
class Bad:
    """An altered call: marks that no row has, and some of the rows that have no mark, by table."""

    call_id: UUID
    salt: bytes
    version: int
    lost: dict[str, frozenset[bytes]]
    extra: tuple[CopiedRow, ...]


def copy_rows(connection: psycopg.Connection, form: Form, low: UUID, high: UUID) -> Iterator[bytes]:
    """The rows of calls from `low` up to and with `high`, in order, each as COPY BINARY has it."""
    chosen = (
        f"SELECT {form.columns} FROM {form.table} WHERE call_id >= %s AND call_id <= %s ORDER BY"
        f" {form.order}"
    )
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY ({chosen}) TO STDOUT (FORMAT binary)".encode(), (low, high)) as copy,
    ):
        # each message is one row; the first begins with the head of the format, and the last is its
        # end mark
        head = _COPY_HEAD
        while data := bytes(copy.read()):
            if len(data) > head + 2:
                yield data[head:] if head else data
            head = 0


def find_damage(
    connection: psycopg.Connection,
    call_id: UUID,
    salt: bytes,
    counts: Sequence[int],
    sealed_marks: bytes,
    redacted: dict[tuple[str, bytes], bytes],
    *,
    version: int,
    gone: Sequence[int] = (),
) -> tuple[SealFinding, Bad | None]:
    """Return the first damage of a call of which some row does not fit, and what is needed to tell
    whether it was exchanged.

    `gone` are the places of tables of which rows went in order.
    """
    first: SealFinding | None = None
    lost_of: dict[str, frozenset[bytes]] = {}
    extra_of: list[CopiedRow] = []
    at = 0
    for place, (form, count) in enumerate(zip(FORMS, counts, strict=False)):
        sealed = [sealed_marks[i : i + MARK] for i in range(at, at + count * MARK, MARK)]
        at += count * MARK
        if place in gone:
            continue
        rows = list(_rows(connection, form, call_id))
        have = [
            row.hash(salt, redacted.get((form.table, row.key)), version=version)[:MARK]
            for row in rows
        ]
        if have == sealed:
            continue
        known = frozenset(sealed)
        lost = known - frozenset(have)
        extra = [row for row, mark in zip(rows, have, strict=True) if mark not in known]
        lost_of[form.table] = lost
        extra_of += extra[:_KEPT]
        first = first or _damage(call_id, form, sealed, have, rows, lost, extra, salt, version)
    if first is None and gone:
        return (
            SealFinding(
                Damage.ALTERED,
                "what was kept of rows that went is not what was sealed",
                call_id,
                "kept_digests",
            ),
            None,
        )
    if first is None:
        return SealFinding(Damage.ALTERED, "the seal's counts were changed", call_id, "seals"), None
    return first, (
        Bad(call_id, salt, version, lost_of, tuple(extra_of))
        if first.damage is Damage.ALTERED
        else None
    )


def find_exchanged(bad: Sequence[Bad]) -> Iterator[SealFinding]:
    """Among altered calls, those whose rows are another's."""
    for altered in bad:
        for other in bad:
            if altered is not other and any(
                row.hash(other.salt, version=other.version, call_id=other.call_id.bytes)[:MARK]
                in other.lost.get(row.form.table, ())
                for row in altered.extra
            ):
                yield SealFinding(
                    Damage.REORDERED, f"it holds rows of call {other.call_id}", altered.call_id
                )
                break


def _damage(
    call_id: UUID,
    form: Form,
    sealed: list[bytes],
    have: list[bytes],
    rows: list[CopiedRow],
    lost: frozenset[bytes],
    extra: list[CopiedRow],
    salt: bytes,
    version: int,
) -> SealFinding:
    if not extra:
        place = next(i for i, mark in enumerate(sealed) if mark in lost)
        before = rows[place - 1].name if place else ""
        row = f"after {before}" if before else "the first" if rows else ""
        if rows and all(mark in lost for mark in sealed[place:]):
            return SealFinding(
                Damage.TRUNCATED,
                f"the last {len(lost)} of {len(sealed)} rows are not there",
                call_id,
                form.table,
                row,
            )
        return SealFinding(
            Damage.MISSING,
            f"{len(lost)} of {len(sealed)} rows are not there",
            call_id,
            form.table,
            row,
        )
    if not lost:
        return SealFinding(
            Damage.INSERTED, "the seal does not cover it", call_id, form.table, extra[0].name
        )
    if (moved := _moved(extra[:MAX_TRIED], lost, salt, version)) is not None:
        return SealFinding(
            Damage.REORDERED, f"it was row {moved[1].name}", call_id, form.table, moved[0].name
        )
    return SealFinding(
        Damage.ALTERED,
        "its content or columns are others than were sealed",
        call_id,
        form.table,
        extra[0].name,
    )


def _moved(
    extra: Sequence[CopiedRow], lost: frozenset[bytes], salt: bytes, version: int
) -> tuple[CopiedRow, CopiedRow] | None:
    """A row that fits under another's key, and that other."""
    for row in extra:
        for other in extra:
            if row is not other and row.hash(salt, version=version, key=other.key)[:MARK] in lost:
                return row, other
    return None


def _rows(connection: psycopg.Connection, form: Form, call_id: UUID) -> Iterator[CopiedRow]:
    for data in copy_rows(connection, form, call_id, call_id):
        yield CopiedRow.read(form, data)
