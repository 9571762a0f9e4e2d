"""PostgreSQL's binary array format, packed by the column.

psycopg's own dumper packs an array item by item in Python; on chunk rows that cost more than the
server's whole insert. These pack a column at a time, copying a value once. A `Packed` value is sent
as it is, its type given by the cast in the statement. Source of the format: PostgreSQL,
src/backend/utils/adt/arrayfuncs.c, array_send.
"""

from collections.abc import Callable, Sequence
from struct import Struct, pack
from typing import Any, Final

from psycopg.adapt import Dumper
from psycopg.pq import Format

NULL: Final = b"\xff\xff\xff\xff"
_HEAD = Struct("!iiIii")
_LEN = Struct("!i")
_INT8 = Struct("!iq")
_POSTGRES_EPOCH_MS: Final = 946_684_800_000
OIDS: Final = {
    "uuid": 2950,
    "int4": 23,
    "int8": 20,
    "bytea": 17,
    "text": 25,
    "bool": 16,
    "float8": 701,
    "timestamptz": 1184,
}


class Packed(bytes):
    """The binary form of a whole array, for psycopg."""


class PackedDumper(Dumper):
    """Hands a `Packed` to the server as it is."""

    format = Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        """Return the bytes."""
        return obj


def item(data: bytes) -> bytes:
    """Return one array item."""
    return _LEN.pack(len(data)) + data


def array(kind: str, count: int, items: Sequence[bytes], *, has_null: bool = False) -> bytes:
    """Return the one-dimensional array of `count` items, which are packed in any number of
    pieces."""
    return b"".join(
        [
            (
                _HEAD.pack(1, has_null, OIDS[kind], count, 1)
                if count
                else pack("!iiI", 0, 0, OIDS[kind])
            ),
            *items,
        ]
    )


def sized(values: Sequence[bytes]) -> list[bytes]:
    """Return `values` as pieces of items: what bytea, text and uuid columns are made of."""
    parts: list[bytes] = [b""] * (2 * len(values))
    parts[::2] = [_LEN.pack(len(value)) for value in values]
    parts[1::2] = values
    return parts


def int4s(values: Sequence[int]) -> bytes:
    """Return `values` as int4 items. Raises struct.error when one is out of range."""
    flat = [4] * (2 * len(values))
    flat[1::2] = values
    return pack(f"!{len(flat)}i", *flat)


def timestamp(ms: int) -> bytes:
    """Return Unix milliseconds as one timestamptz item."""
    return _INT8.pack(8, (ms - _POSTGRES_EPOCH_MS) * 1000)


def column(kind: str, values: Sequence[Any]) -> bytes:
    """Pack one column of any kind; None is NULL. Raises struct.error, TypeError or AttributeError
    on a value that does not fit."""
    if (whole := _PACK_ALL.get(kind)) is not None and None not in values:
        # a column at a time: 9 to 4 us a row of the record
        return array(kind, len(values), whole(values))
    items = [NULL if value is None else _PACK[kind](value) for value in values]
    return array(kind, len(values), items, has_null=None in values)


_PACK: dict[str, Callable[[Any], bytes]] = {
    "uuid": item,
    "bytea": item,
    "text": lambda value: item(value.encode()),
    "int4": lambda value: pack("!ii", 4, value),
    "int8": lambda value: _INT8.pack(8, value),
    "bool": lambda value: pack("!i?", 1, value),
    "float8": lambda value: pack("!id", 8, value),
    "timestamptz": timestamp,
}
_PACK_ALL: dict[str, Callable[[Sequence[Any]], list[bytes]]] = {
    "uuid": sized,
    "bytea": sized,
    "text": lambda values: sized([value.encode() for value in values]),
    "int4": lambda values: [int4s(values)],
    "timestamptz": lambda values: [
        _INT8.pack(8, (ms - _POSTGRES_EPOCH_MS) * 1000) for ms in values
    ],
}
