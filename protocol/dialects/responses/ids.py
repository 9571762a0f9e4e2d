"""Ids of responses and their items: made of the call's id, so that each names its call and a
repeated run makes the same."""

import re

_ITEM = re.compile(
    r"[a-z]+_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})_[0-9]{1,6}"
)
_RESPONSE = re.compile(r"resp_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})")


def response_id(call_id: str) -> str:
    """Return the id of a call's response."""
    return f"resp_{call_id.replace('-', '')}"


def item_id(prefix: str, call_id: str, index: int) -> str:
    """Return the id of an item of a call's response."""
    return f"{prefix}_{call_id.replace('-', '')}_{index}"


def call_of(response: str) -> str:
    """Return the id of the call that a response is of; empty where the id is none of ours."""
    match = _RESPONSE.fullmatch(response)
    return "-".join(match.groups()) if match else ""


def call_of_item(identity: str) -> str:
    """Return the id of the call of whose response the item is, likewise."""
    match = _ITEM.fullmatch(identity)
    return "-".join(match.groups()) if match else ""
