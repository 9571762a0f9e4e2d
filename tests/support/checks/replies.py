"""Replies as policy workers make them: with the hashes of what they hold."""

from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from streams.layout import Reply


def reply_of(call_id: str, number: int, following: int, **fields: Any) -> Reply:
    """Return a reply; a hash that is given is taken as it is."""
    dispatch = fields.get("dispatch")
    if dispatch is not None and dispatch.body is not None and not dispatch.sha256:
        fields["dispatch"] = replace(dispatch, sha256=sha256(dispatch.body).digest())
    for of, hashed in (("data", "sha256"), ("late", "late_sha256")):
        if fields.get(of) and not fields.get("keepalive"):
            fields.setdefault(hashed, sha256(fields[of]).digest())
    return Reply(call_id, number, following, **fields)
