"""A column's value in the binary form that is hashed, and in JSON for people: either way, and back
to the same bytes.

What JSON has no word for (bytes that are no UTF-8, a tsvector, infinity) is base64. Must not know:
tables, SQL.
"""

import base64
import binascii
import json
import math
import struct
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from db.canonical import Form

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""From here PostgreSQL counts microseconds."""
_NUMBERS = {"int4": "!i", "int8": "!q", "float8": "!d"}
HIDDEN = "salted_sha256"
"""In place of a value that is not shown: what the row's hash covers of it."""
Part = Literal["key", "stays", "content"]


def to_json(value: bytes | None, kind: str) -> Any:
    """Return a value as JSON."""
    if value is None:
        return None
    if kind in ("text", "bytea"):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if kind == "bool":
        return value == b"\1"
    if kind in _NUMBERS:
        number = struct.unpack(_NUMBERS[kind], value)[0]
        if kind != "float8" or math.isfinite(number):
            return number
    if kind == "timestamptz":
        try:
            at = _EPOCH + timedelta(microseconds=int.from_bytes(value, "big", signed=True))
            return f"{at.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        except OverflowError:
            pass
    if kind == "uuid":
        return str(UUID(bytes=value))
    return {"base64": base64.b64encode(value).decode()}


def from_json(value: Any, kind: str) -> bytes | None:
    """Return the binary form of what `to_json` made. Raises ValueError on anything else."""
    made = _from_json(value, kind)
    # one spelling for each value, so that no byte of a file can be another; 1 is not 1.0 and not
    # true either
    if json.dumps(to_json(made, kind)) != json.dumps(value):
        raise ValueError("this is not how such a value is written")
    return made


def _from_json(value: Any, kind: str) -> bytes | None:
    try:
        match value:
            case None:
                return None
            case {"base64": str(text)}:
                return base64.b64decode(text, validate=True)
            case str() if kind in ("text", "bytea"):
                return value.encode()
            case str() if kind == "timestamptz":
                since = datetime.fromisoformat(value) - _EPOCH
                return (
                    (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
                ).to_bytes(8, "big", signed=True)
            case str() if kind == "uuid":
                return UUID(value).bytes
            case bool() if kind == "bool":
                return b"\1" if value else b"\0"
            case int() | float() if kind in _NUMBERS:
                return struct.pack(_NUMBERS[kind], value)
    except (ValueError, TypeError, OverflowError, binascii.Error, struct.error):
        pass
    raise ValueError("this is no such value")


def columns_of(form: Form, version: int) -> list[tuple[str, str, Part]]:
    """Return the columns of a table that a version of the form covers, in its order: name, type,
    and what they are in it."""
    stays, content = form.counts[version]
    return [
        *((name, kind, "key") for name, kind in form.key),
        *((name, kind, "stays") for name, kind in form.stays[:stays]),
        *((name, kind, "content") for name, kind in form.content[:content]),
    ]
