"""Requests for approval on record, asked as the product asks."""

from hashlib import sha256
from typing import Any
from uuid import UUID

from tests.support.checks.record import call_id, rows

_ASK = "SELECT sluice_ask_people({})".format(", ".join(["%s"] * 21))


def ask(url: str, approval_id: str, **changes: Any) -> str:
    """Ask people about a tool call; returns the id of the request that it waits for."""
    values: dict[str, Any] = {
        "call": call_id(),
        "block": 1,
        "lasts_s": 3600,
        "use_within_s": 900,
        "deny_for_s": 900,
        "binding": approval_id,
        "without_policy": approval_id,
        "key": "dev",
        "key_id": "id-dev",
        "session": "s-1",
        "policy": "default",
        "revision": "0a1b2c3d4e5f",
        "tool": "deploy",
        "server": "",
        "executor": "client",
        "arguments": b'{"to": "production"}',
        "rule": "deploys",
        "why": "would change production",
        "need": 1,
        "approvers": "",
    } | changes
    for name in ("binding", "without_policy"):
        values[name] = sha256(values[name].encode()).digest()
    values["call"] = UUID(values["call"])
    return str(rows(url, _ASK, approval_id, *values.values())[0][0])


def expire(url: str, approval_id: str) -> None:
    """Let the time of a request be over."""
    rows(url, "UPDATE approvals SET expires_at = now() WHERE approval_id = %s", approval_id)
