"""The form of a recorded row that is hashed for a seal, spelled twice: in SQL for whoever seals, in
Python for whoever verifies.

A row is its columns in the order below, each as four bytes of length and PostgreSQL's binary form
(what COPY BINARY sends; NULL is the length -1). Its hash covers the table's name, the columns that
stay, and of each column that a redaction empties only a hash salted with the call's salt, the
column's place and the row's key. So a redaction, which deletes content and salt and keeps those
hashes, breaks no seal, and a hash that stays cannot be tried out against short secrets.

Columns, their order and the version of each are those of the records (`db.columns`).

The form has versions, and a seal says in which it was made. A version is for ever: a new column
comes with a new version (`since`), after all columns before it, a new table after all tables; then
older seals hold as they are, and verification hashes each row in the version of each seal over it.
A column that stays is hashed behind those of the versions before, one that a redaction empties has
the next place. A value in a column that came after a seal's version is covered by no such seal, and
verification says so.

Must not know: connections.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from struct import Struct
from typing import LiteralString
from uuid import UUID

from db import columns
from db.columns import CallTable, StoredColumn

VERSION = columns.VERSION
"""The version in which seals are made now."""
IS_BESIDE = "s.form < s.made_for"
"""SQL: was a seal `s` made by a process that knew fewer columns than the tables had? A process
names the version that it knows; the column `made_for` has a default that it does not name."""
HASH = 32
MARK = 8
"""Bytes of each row's hash that a seal keeps beside the whole, to say which row it is that does not
fit."""
REDACTED = "redacted"
"""Events of this kind tell of a redaction and are never redacted; their hashes need no salt, and so
outlive it."""
_INT4 = Struct("!i")
_COUNT = Struct("!q")
_LEAF = Struct("!iq")
_NO_VALUE = bytes(HASH)
_EMPTY = {"tsvector": bytes(4)}
"""What the binary form of a value is in which nothing stands, where that is not nothing."""
_SEND = {
    "uuid": "uuid_send({})",
    "int4": "int4send({})",
    "int8": "int8send({})",
    "timestamptz": "timestamptz_send({})",
    "bool": "boolsend({})",
    "float8": "float8send({})",
    "text": "convert_to({}, 'UTF8')",
    "bytea": "{}",
    "tsvector": "tsvectorsend({})",
}


@dataclass(frozen=True, slots=True)
class Form:
    """A table: the columns that name a row within its call, those that stay, and those that a
    redaction empties, with their types.

    `counts[version]` says how many of those that stay, and of those that a redaction empties, the
    version covers.
    """

    table: str
    key: tuple[tuple[str, str], ...]
    stays: tuple[tuple[str, str], ...]
    content: tuple[tuple[str, str], ...]
    counts: tuple[tuple[int, int], ...]
    since: int
    """The version that first covers the table."""

    def later(self, version: int) -> tuple[tuple[str, str], ...]:
        """The columns that this version does not cover."""
        stays, content = self.counts[version]
        return self.stays[stays:] + self.content[content:]

    @property
    def order(self) -> str:
        """The columns that order a call's rows, the same on every server: text by its bytes."""
        return ", ".join(
            f'"{name}"' + (' COLLATE "C"' if kind == "text" else "")
            for name, kind in (("call_id", "uuid"), *self.key)
        )

    @property
    def columns(self) -> str:
        """All columns in the order of the form."""
        return ", ".join(
            f'"{name}"' for name, _ in (("call_id", "uuid"), *self.key, *self.stays, *self.content)
        )

    @property
    def key_sql(self) -> str:
        """The key's columns as bytes, of a row `t`."""
        return " || ".join(_field(column) for column in self.key) or "''::bytea"

    def contents_sql(self, version: int = VERSION, *, salt: str = "s.salt") -> str:
        """The hashes of the content columns of a row `t`, one after the other."""
        if self.table == "events":
            salt = f"CASE WHEN t.\"kind\" = '{REDACTED}' THEN ''::bytea ELSE {salt} END"
        parts = []
        for place, (name, kind) in enumerate(self.content[: self.counts[version][1]]):
            value = _SEND[kind].format(f't."{name}"')
            salted = f"sha256({salt} || '\\x{place:02x}'::bytea || {self.key_sql} || {value})"
            parts.append(f"coalesce({salted}, '\\x{_NO_VALUE.hex()}'::bytea)")
        return " || ".join(parts) or "''::bytea"

    def redacted_sql(self, version: int = VERSION) -> str:
        """The same of a row that may be redacted, `r` holding what the redaction kept: of the
        columns that there were then."""
        contents = self.contents_sql(version)
        known = f"r.hashes || substr({contents}, octet_length(r.hashes) + 1)"
        return f"substr(coalesce({known}, {contents}), 1, {HASH * self.counts[version][1]})"

    def later_sql(self, version: int) -> str:
        """Does a row `t` hold a value that this version does not cover? Empty where it covers all
        columns."""
        values = [
            (_SEND[kind].format(f't."{name}"'), len(_EMPTY.get(kind, b"")))
            for name, kind in self.later(version)
        ]
        return " OR ".join(f"octet_length({value}) > {nothing}" for value, nothing in values)

    def hash_sql(self, contents: str, version: int = VERSION) -> str:
        """The hash of a row `t`; `contents` is SQL for the hashes of its content."""
        name = (self.table.encode() + b"\0").hex()
        columns = (("call_id", "uuid"), *self.key, *self.stays[: self.counts[version][0]])
        parts = [f"'\\x{name}'::bytea", *map(_field, columns), contents]
        return f"sha256({' || '.join(parts)})"


def _field(column: tuple[str, str]) -> str:
    name, kind = column
    value = _SEND[kind].format(f't."{name}"')
    return f"coalesce(int4send(octet_length({value})) || {value}, '\\xffffffff'::bytea)"


def _form(table: CallTable) -> Form:
    counts = [table.covered(version) for version in range(VERSION + 1)]
    return Form(
        table.name,
        _pairs(table.key),
        _pairs(table.stays),
        _pairs(table.content),
        tuple(counts),
        table.since,
    )


def _pairs(stored: Sequence[StoredColumn]) -> tuple[tuple[str, str], ...]:
    return tuple((column.name, column.kind) for column in stored)


FORMS = tuple(map(_form, columns.TABLES))
"""Every table of a call, in the order in which a seal counts and hashes them."""


def tables_in(version: int) -> int:
    """Return how many tables of `FORMS` a version covers: the first so many."""
    return sum(form.since <= version for form in FORMS)


def content_hash(salt: bytes, place: int, key: bytes, value: bytes | None) -> bytes:
    """Return what the hash of a row covers of a value that a redaction empties; `place` is the
    column's among those."""
    return _NO_VALUE if value is None else sha256(salt + _PLACES[place] + key + value).digest()


def hash_of_parts(table: str, call_id: bytes, key: bytes, stays: bytes, contents: bytes) -> bytes:
    """Return the hash of a row from its fields with their lengths, and the hashes of its
    content."""
    return sha256(_HEADS[table] + call_id + key + stays + contents).digest()


@dataclass(frozen=True, slots=True)
class CopiedRow:
    """One row as COPY BINARY sent it: the fields of its key and of what stays, with their lengths,
    and the content's values."""

    form: Form
    call_id: bytes
    key: bytes
    stays: bytes
    content: tuple[bytes | None, ...]

    @classmethod
    def read(cls, form: Form, data: bytes) -> "CopiedRow":
        """Take the bytes of one row apart."""
        key_from = 22
        key_to = _end(data, key_from, len(form.key))
        at = stays_to = _end(data, key_to, len(form.stays))
        content: list[bytes | None] = []
        for _ in form.content:
            size = _INT4.unpack_from(data, at)[0]
            at += 4
            content.append(None if size < 0 else data[at : at + size])
            at += max(size, 0)
        return cls(form, data[6:22], data[key_from:key_to], data[key_to:stays_to], tuple(content))

    def hash(
        self,
        salt: bytes,
        retained_hashes: bytes | None = None,
        *,
        version: int = VERSION,
        call_id: bytes = b"",
        key: bytes | None = None,
    ) -> bytes:
        """The row's hash. `kept` is what a redaction kept of its content; `call_id` and `key` put
        it in another's place."""
        place = self.key if key is None else key
        stays, count = self.form.counts[version]
        if self.tells_redaction:
            salt = b""
        retained_hashes = retained_hashes if retained_hashes is not None and self.is_empty else b""
        for i in range(len(retained_hashes) // HASH, count):
            retained_hashes += content_hash(salt, i, place, self.content[i])
        covered = self.stays[: _end(self.stays, 0, stays)]
        return hash_of_parts(
            self.form.table,
            call_id or self.call_id,
            place,
            covered,
            retained_hashes[: HASH * count],
        )

    @property
    def tells_redaction(self) -> bool:
        """Is it the event that says who redacted the call, and why?"""
        return self.form.table == "events" and self.key.startswith(_OPEN)

    @property
    def is_empty(self) -> bool:
        """Is there no content, as after a redaction?"""
        return all(
            value in (None, b"", _EMPTY.get(kind))
            for value, (_, kind) in zip(self.content, self.form.content, strict=True)
        )

    @property
    def name(self) -> str:
        """The key for people: its parts joined by a slash."""
        return key_name(self.form, self.key)


EVENTS, ENDS = ([form.table for form in FORMS].index(name) for name in ("events", "ends"))


def uncovered_sql(call: LiteralString) -> LiteralString:
    """Return an expression: has this call a seal, and does the last cover not all of its events, or
    not its end?"""
    last: LiteralString = (
        f"(SELECT counts FROM seals s WHERE s.call_id = {call} ORDER BY part DESC LIMIT 1)"
    )
    events: LiteralString = (
        f"{last}[{EVENTS + 1}] < (SELECT count(*) FROM events t WHERE t.call_id = {call})"
    )
    ends: LiteralString = (
        f"{last}[{ENDS + 1}] < (SELECT count(*) FROM ends t WHERE t.call_id = {call})"
    )
    return f"coalesce({events} OR {ends}, false)"


def fields(data: bytes, count: int) -> list[bytes | None]:
    """Return the values of so many fields with their lengths."""
    values: list[bytes | None] = []
    at = 0
    for _ in range(count):
        size = _read_int4(data, at)[0]
        at += 4
        values.append(None if size < 0 else data[at : at + size])
        at += max(size, 0)
    return values


def row_hash(form: Form, data: bytes, salt: bytes, version: int = VERSION) -> bytes:
    """Return `Row.read(form, data).hash(salt, version=version)`, in a third of the time: for
    millions of rows."""
    stays, count = form.counts[version]
    at = key_from = 22
    for _ in form.key:
        size = _read_int4(data, at)[0]
        at += 4 + size
    key = data[key_from:at]
    covered = at = _end(data, at, stays)
    if stays < len(form.stays):
        at = _end(data, at, len(form.stays) - stays)
    whole = sha256(_HEADS[form.table])
    whole.update(data[6:covered])
    if count:
        if form.table == "events" and key.startswith(_OPEN):
            salt = b""
        for place in _PLACES[:count]:
            size = _read_int4(data, at)[0]
            at += 4
            if size < 0:
                whole.update(_NO_VALUE)
                continue
            whole.update(sha256(salt + place + key + data[at : at + size]).digest())
            at += size
    return whole.digest()


def holds_later(form: Form, data: bytes, version: int) -> bool:
    """Does a row hold a value in a column that this version does not cover?"""
    stays, count = form.counts[version]
    at = _end(data, _end(data, 22, len(form.key)), stays)
    behind = _end(data, at, len(form.stays) - stays)
    uncovered = (data[at:behind], data[_end(data, behind, count) : len(data)])
    kinds = (form.stays[stays:], form.content[count:])
    return any(
        _holds(part, [kind for _, kind in of]) for part, of in zip(uncovered, kinds, strict=True)
    )


def _holds(fields: bytes, kinds: Sequence[str]) -> bool:
    at = 0
    for kind in kinds:
        size = _INT4.unpack_from(fields, at)[0]
        if size > len(_EMPTY.get(kind, b"")):
            return True
        at += 4 + max(size, 0)
    return False


def _end(data: bytes, at: int, fields: int) -> int:
    """Where so many fields end that begin at `at`."""
    for _ in range(fields):
        size = _read_int4(data, at)[0]
        at += 4 + size if size > 0 else 4
    return at


_HEADS = {form.table: form.table.encode() + b"\0\0\0\0\x10" for form in FORMS}
"""What the hash of each row begins with: the table's name, and the length of the call id."""
_PLACES = tuple(bytes([i]) for i in range(16))
_OPEN = _INT4.pack(len(REDACTED)) + REDACTED.encode()
_read_int4 = _INT4.unpack_from


def key_name(form: Form, key: bytes) -> str:
    """Return a key for people."""
    parts, at = [], 0
    for _, kind in form.key:
        size = _INT4.unpack_from(key, at)[0]
        value = key[at + 4 : at + 4 + size]
        parts.append(
            value.decode(errors="backslashreplace")
            if kind == "text"
            else str(int.from_bytes(value, "big", signed=True))
        )
        at += 4 + size
    return "/".join(parts)


def marks(hashes: bytes | bytearray) -> bytes:
    """Return the first bytes of each of these hashes."""
    return b"".join([bytes(hashes[i : i + MARK]) for i in range(0, len(hashes), HASH)])


Digest = tuple[int, bytes]
"""How many rows a table has, and the hash of all their hashes."""


def digests_of(hashes: Sequence[bytes | bytearray], version: int = VERSION) -> list[Digest]:
    """Return the digests of the tables that the version covers, from the hashes of their rows."""
    return [
        (len(of_table) // HASH, sha256(of_table).digest())
        for of_table in hashes[: tables_in(version)]
    ]


def call_hash(call_id: UUID, hashes: Sequence[bytes | bytearray], version: int = VERSION) -> bytes:
    """Return the hash of a call from the hashes of its rows, table by table, of the tables that the
    version covers."""
    return digests_hash(call_id, digests_of(hashes, version), version)


def digests_hash(call_id: UUID, digests: Sequence[Digest], version: int = VERSION) -> bytes:
    """Return the hash of a call from the digests of its tables.

    It names the version, so that no other can be claimed.
    """
    whole = sha256(b"sluice seal %d\n" % version + call_id.bytes)
    for count, digest in digests:
        whole.update(_COUNT.pack(count) + digest)
    return whole.digest()


def leaf_data(
    call_id: UUID, part: int, at_us: int, counts: Sequence[int], digest: bytes, note: str
) -> bytes:
    """Return what stands in the tree for one seal."""
    numbers = b"".join(_COUNT.pack(count) for count in counts)
    return (
        b"sluice leaf 1\n"
        + call_id.bytes
        + _LEAF.pack(part, at_us)
        + numbers
        + digest
        + note.encode(errors="surrogatepass")
    )


def seal_leaf(
    call_id: UUID, part: int, at: datetime, counts: Sequence[int], digest: bytes, note: str
) -> bytes:
    """Return the leaf of a row of `seals`."""
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return leaf_data(
        call_id,
        part,
        (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds,
        counts,
        digest,
        note,
    )
