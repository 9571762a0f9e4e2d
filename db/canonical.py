"""The form of a recorded row that is hashed for a seal, spelled twice: in SQL for whoever seals, in Python for whoever verifies.

A row is its columns in the order below, each as four bytes of length and PostgreSQL's binary form (what COPY BINARY sends;
NULL is the length -1). Its hash covers the table's name, the columns that stay, and of each column that a redaction empties
only a hash salted with the call's salt, the column's place and the row's key. So a redaction, which deletes content and salt
and keeps those hashes, breaks no seal, and a hash that stays cannot be tried out against short secrets.

The list is version 1 of the form: a new column comes with a new version, or old seals would no longer hold.
Must not know: connections.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from struct import Struct
from uuid import UUID

HASH = 32
MARK = 8
"""Bytes of each row's hash that a seal keeps beside the whole, to say which row it is that does not fit."""
REDACTED = "redacted"
"""Events of this kind tell of a redaction and are never redacted; their hashes need no salt, and so outlive it."""
_INT4 = Struct("!i")
_COUNT = Struct("!q")
_LEAF = Struct("!iq")
_NO_VALUE = bytes(HASH)
_NO_LEXEMES = bytes(4)
_SEND = {
    "uuid": "uuid_send({})", "int4": "int4send({})", "int8": "int8send({})", "timestamptz": "timestamptz_send({})", "bool": "boolsend({})",
    "float8": "float8send({})", "text": "convert_to({}, 'UTF8')", "bytea": "{}", "tsvector": "tsvectorsend({})",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Form:
    """A table: the columns that name a row within its call, those that stay, and those that a redaction empties, with their types."""

    table: str
    key: tuple[tuple[str, str], ...]
    stays: tuple[tuple[str, str], ...]
    content: tuple[tuple[str, str], ...]

    @property
    def order(self) -> str:
        """The columns that order a call's rows, the same on every server: text by its bytes."""
        return ", ".join(f'"{name}"' + (' COLLATE "C"' if kind == "text" else "") for name, kind in (("call_id", "uuid"), *self.key))

    @property
    def columns(self) -> str:
        """All columns in the order of the form."""
        return ", ".join(f'"{name}"' for name, _ in (("call_id", "uuid"), *self.key, *self.stays, *self.content))

    @property
    def key_sql(self) -> str:
        """The key's columns as bytes, of a row `t`."""
        return " || ".join(_field(column) for column in self.key) or "''::bytea"

    @property
    def contents_sql(self) -> str:
        """The hashes of the content columns of a row `t`, one after the other, with the salt of `s`."""
        parts = []
        for place, (name, kind) in enumerate(self.content):
            value = _SEND[kind].format(f't."{name}"')
            salted = f"sha256({self._salt_sql} || '\\x{place:02x}'::bytea || {self.key_sql} || {value})"
            parts.append(f"coalesce({salted}, '\\x{_NO_VALUE.hex()}'::bytea)")
        return " || ".join(parts) or "''::bytea"

    @property
    def _salt_sql(self) -> str:
        if self.table != "events":
            return "s.salt"
        return f"CASE WHEN t.\"kind\" = '{REDACTED}' THEN ''::bytea ELSE s.salt END"

    def hash_sql(self, contents: str) -> str:
        """The hash of a row `t`; `contents` is SQL for the hashes of its content."""
        name = (self.table.encode() + b"\0").hex()
        parts = [f"'\\x{name}'::bytea", *(_field(c) for c in (("call_id", "uuid"), *self.key, *self.stays)), contents]
        return f"sha256({' || '.join(parts)})"


def _field(column: tuple[str, str]) -> str:
    name, kind = column
    value = _SEND[kind].format(f't."{name}"')
    return f"coalesce(int4send(octet_length({value})) || {value}, '\\xffffffff'::bytea)"


def _form(table: str, *columns: dict[str, str]) -> Form:
    key, stays, content = (tuple(given.items()) for given in columns)
    return Form(table, key, stays, content)


_INT, _BIG, _TEXT, _BYTES, _AT = "int4", "int8", "text", "bytea", "timestamptz"
FORMS = (
    _form(
        "calls", {},
        {"at": _AT, "dialect": _TEXT, "endpoint": _TEXT, "key": _TEXT, "model": _TEXT, "upstream": _TEXT, "policy": _TEXT,
         "policy_revision": _TEXT, "stream": "bool", "gateway": _TEXT},
        {"session": _TEXT},
    ),
    _form("request_bodies", {}, {}, {"body": _BYTES}),
    _form("chunks", {"seq": _INT}, {"at": _AT, "verdict": _TEXT, "block": _INT}, {"raw": _BYTES}),
    # the plain hash of a short payload gives it away as well as the payload
    _form("releases", {"number": _INT}, {"number_next": _INT, "at": _AT, "seq": _INT}, {"payload": _BYTES, "sha256": _BYTES}),
    _form("blocks", {"block": _INT}, {"at": _AT, "kind": _TEXT, "verdict": _TEXT, "policy": _TEXT}, {"reason": _TEXT}),
    # the model writes a tool's name, and a whole call can stand in it
    _form(
        "tool_calls", {"block": _INT},
        {"index": _INT, "choice": _INT, "at": _AT, "tool_call_id": _TEXT, "executor": _TEXT, "form": _TEXT, "verdict": _TEXT,
         "policy": _TEXT, "schema_valid": "bool"},
        {"name": _TEXT, "arguments": _BYTES, "released_arguments": _BYTES, "reason": _TEXT, "search": "tsvector"},
    ),
    _form("tool_releases", {"block": _INT}, {"at": _AT}, {}),
    _form(
        "judgements", {"block": _INT, "step": _INT},
        {"at": _AT, "model": _TEXT, "policy": _TEXT, "probability": "float8", "threshold": "float8", "latency_ms": _INT,
         "attempts": _INT, "error": _TEXT},
        {"explanation": _TEXT, "prompt": _BYTES, "reply": _BYTES},
    ),
    _form(
        "ends", {},
        {"at": _AT, "state": _TEXT, "reason": _TEXT, "status": _INT, "stop_reason": _TEXT, "relayed": _INT, "input_tokens": _BIG,
         "output_tokens": _BIG, "cache_read_tokens": _BIG, "cache_write_tokens": _BIG, "thinking_tokens": _BIG},
        {},
    ),
    _form("events", {"kind": _TEXT, "number": _BIG}, {"at": _AT}, {"detail": _TEXT}),
)  # fmt: skip
"""Every table of a call, in the order in which a seal counts and hashes them."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row as COPY BINARY sent it: the fields of its key and of what stays, with their lengths, and the content's values."""

    form: Form
    call_id: bytes
    key: bytes
    stays: bytes
    content: tuple[bytes | None, ...]

    @classmethod
    def read(cls, form: Form, data: bytes) -> "Row":
        """Take the bytes of one row apart."""
        at = key_from = 22
        for _ in form.key:
            at += 4 + max(_INT4.unpack_from(data, at)[0], 0)
        key_to = at
        for _ in form.stays:
            at += 4 + max(_INT4.unpack_from(data, at)[0], 0)
        stays_to = at
        content: list[bytes | None] = []
        for _ in form.content:
            size = _INT4.unpack_from(data, at)[0]
            at += 4
            content.append(None if size < 0 else data[at : at + size])
            at += max(size, 0)
        return cls(form, data[6:22], data[key_from:key_to], data[key_to:stays_to], tuple(content))

    def hash(self, salt: bytes, kept: bytes | None = None, *, call_id: bytes = b"", key: bytes | None = None) -> bytes:
        """The row's hash. `kept` is what a redaction kept of its content; `call_id` and `key` put it in another's place."""
        place = self.key if key is None else key
        if self.form.table == "events" and self.key.startswith(_OPEN):
            salt = b""
        if kept is None or not self.is_empty:
            kept = b"".join(
                _NO_VALUE if value is None else sha256(salt + _PLACES[i] + place + value).digest() for i, value in enumerate(self.content)
            )
        return sha256(_HEADS[self.form.table] + (call_id or self.call_id) + place + self.stays + kept).digest()

    @property
    def is_empty(self) -> bool:
        """Is there no content, as after a redaction?"""
        return all(value in (None, b"", _NO_LEXEMES) for value in self.content)

    @property
    def name(self) -> str:
        """The key for people: its parts joined by a slash."""
        return key_name(self.form, self.key)


def row_hash(form: Form, data: bytes, salt: bytes) -> bytes:
    """Return `Row.read(form, data).hash(salt)`, in a third of the time: for millions of rows."""
    at = key_from = 22
    for _ in form.key:
        size = _read_int4(data, at)[0]
        at += 4 + size
    key = data[key_from:at]
    for _ in form.stays:
        size = _read_int4(data, at)[0]
        at += 4 + size if size > 0 else 4
    whole = sha256(_HEADS[form.table])
    whole.update(data[6:at])
    if form.content:
        if form.table == "events" and key.startswith(_OPEN):
            salt = b""
        for place in _PLACES[: len(form.content)]:
            size = _read_int4(data, at)[0]
            at += 4
            if size < 0:
                whole.update(_NO_VALUE)
                continue
            whole.update(sha256(salt + place + key + data[at : at + size]).digest())
            at += size
    return whole.digest()


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
        parts.append(value.decode(errors="backslashreplace") if kind == "text" else str(int.from_bytes(value, "big", signed=True)))
        at += 4 + size
    return "/".join(parts)


def marks(hashes: bytes | bytearray) -> bytes:
    """Return the first bytes of each of these hashes."""
    return b"".join([bytes(hashes[i : i + MARK]) for i in range(0, len(hashes), HASH)])


def call_hash(call_id: UUID, hashes: Sequence[bytes | bytearray]) -> bytes:
    """Return the hash of a call from the hashes of its rows, table by table."""
    whole = sha256(b"sluice seal 1\n" + call_id.bytes)
    for of_table in hashes:
        whole.update(_COUNT.pack(len(of_table) // HASH) + sha256(of_table).digest())
    return whole.digest()


def leaf_data(call_id: UUID, part: int, at_us: int, counts: Sequence[int], digest: bytes, note: str) -> bytes:
    """Return what stands in the tree for one seal."""
    numbers = b"".join(_COUNT.pack(count) for count in counts)
    return b"sluice leaf 1\n" + call_id.bytes + _LEAF.pack(part, at_us) + numbers + digest + note.encode(errors="surrogatepass")
