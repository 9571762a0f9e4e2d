"""Strings in what an upstream sent."""

from typing import Any

from protocol.errors import RemoteProtocolError


def string_of(value: Any) -> str:
    """Return `value`, which must be a string. Raises RemoteProtocolError."""
    if not isinstance(value, str):
        raise RemoteProtocolError("upstream sent something else where its dialect has a string")
    return value


def string_in(body: dict[str, Any], name: str) -> str:
    """Return the string of that name, empty where there is none or null. Raises
    RemoteProtocolError."""
    value = body.get(name)
    return "" if value is None else string_of(value)
