"""Other data of Messages answers: usage, container, edits of the context, details of a refusal. It
is passed to clients of the same dialect if it is tame (`protocol.bytes.bookkeeping`) or the setting
`unknown` names it."""

import re
from typing import Any

import msgspec
from msgspec import UNSET

from protocol.bytes.bookkeeping import is_tame, tame_fields
from protocol.dialects.anthropic.wire import FrameUsage
from protocol.errors import RemoteProtocolError
from protocol.events import Usage

_WORDS = ("container", "context_management", "input_transformations", "diagnostics")
# sent back as it came, to retry on another model; as opaque as a signature
_TOKEN_NAME = "stop_details fallback_credit_token"
_TOKEN = re.compile(r"[A-Za-z0-9_.:=+/-]{1,4096}")


def counts(usage: dict[str, Any] | None) -> Usage:
    """The modelled counts of a usage object. Raises RemoteProtocolError where one is not a
    number."""
    if not usage:
        return Usage()
    try:
        known = msgspec.convert(usage, FrameUsage)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise RemoteProtocolError(
            "upstream sent something else where its dialect has a number of tokens"
        ) from error
    thinking = known.output_tokens_details.thinking_tokens if known.output_tokens_details else None
    return Usage(
        known.input_tokens,
        known.output_tokens,
        known.cache_read_input_tokens,
        known.cache_creation_input_tokens,
        thinking,
    )


def read_extras(
    holder: msgspec.Struct, unknown: frozenset[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return such fields of `holder` (a message, frame or delta): those that may pass, and the
    names of those that may not."""
    allowed: dict[str, Any] = {}
    withheld: list[str] = []
    for name in _WORDS:
        value = getattr(holder, name, UNSET)
        if value is UNSET:
            continue
        if name in unknown or is_tame(value):
            allowed[name] = value
        else:
            withheld.append(name)
    usage = getattr(holder, "usage", None)
    if usage is not None:
        allowed["usage"], more = tame_fields(usage, "usage", unknown)
        withheld += more
    return allowed, withheld


def read_stop_details(
    details: Any, unknown: frozenset[str]
) -> tuple[dict[str, Any], str, list[str]]:
    """Why a refusal was one: its words, its explanation (a text, for policies to read) and the
    names of what is withheld."""
    if not isinstance(details, dict):
        return {}, "", [] if details is None else ["stop_details"]
    fields = dict(details)
    explanation = fields.pop("explanation") if isinstance(fields.get("explanation"), str) else ""
    words, withheld = tame_fields(fields, "stop_details", unknown)
    token = fields.get("fallback_credit_token")
    if _TOKEN_NAME in withheld and isinstance(token, str) and _TOKEN.fullmatch(token):
        words["fallback_credit_token"] = token
        withheld.remove(_TOKEN_NAME)
    return words, explanation, withheld


def later_usage(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Cumulative counts: the later overwrite, but null says nothing."""
    return earlier | {
        name: value for name, value in later.items() if value is not None or name not in earlier
    }
