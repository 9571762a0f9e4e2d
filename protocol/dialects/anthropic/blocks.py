"""How content blocks of the Messages dialect begin: the events of what their start already
contains.

A field of a block that becomes events of its own is kept only if it is listed here: another one may
be model output that no policy reads. Blocks that are carried whole go to the policies whole.
"""

from typing import Any

from protocol.bytes.bookkeeping import is_tame
from protocol.bytes.json_strict import dumps
from protocol.bytes.strings import string_in
from protocol.bytes.unknown import named
from protocol.dialects.anthropic.cited import read_citation
from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    Event,
    Opaque,
    SignatureDelta,
    TextDelta,
)

_OWN_FIELDS = {
    "text": frozenset(("type", "text", "citations")),
    "thinking": frozenset(("type", "thinking", "signature")),
    "tool_use": frozenset(("type", "id", "name", "input")),
    "server_tool_use": frozenset(("type", "id", "name", "input")),
    "mcp_tool_use": frozenset(("type", "id", "name", "input")),
}
_EXTRA_FIELDS = {
    "tool_use": ("caller", "toolset_name"),
    "server_tool_use": ("caller",),
    "mcp_tool_use": ("caller", "server_name"),
}
"""Fields beside those of the events, kept where they are words."""
CARRIED = frozenset(
    "advisor_tool_result bash_code_execution_tool_result code_execution_tool_result"
    " compaction container_upload fallback mcp_tool_listing mcp_tool_result"
    " redacted_thinking text_editor_code_execution_tool_result tool_search_tool_result"
    " web_fetch_tool_result web_search_tool_result".split()
)
"""Blocks that are carried whole."""


def begin_block(index: int, block: dict[str, Any], unknown: frozenset[str]) -> list[Event]:
    """Return BlockStart and what the block already contains; one Opaque first for a block that is
    not modelled.

    Raises RemoteProtocolError for a wrong type of a modelled field.
    """
    kind = string_in(block, "type")
    if kind in CARRIED:
        return [BlockStart(index, BlockKind.OTHER, name=kind, body=block)]
    if kind not in _OWN_FIELDS:
        what = named("block", kind)
        return [
            (
                BlockStart(index, BlockKind.OTHER, name=kind, body=block)
                if what in unknown
                else Opaque(what)
            )
        ]
    body, withheld = _extra_fields(block, kind, unknown)
    match kind:
        case "text":
            return [
                BlockStart(index, BlockKind.TEXT, body=body),
                *_text(index, block, "text"),
                *_citations(index, block),
                *withheld,
            ]
        case "thinking":
            start = BlockStart(index, BlockKind.THINKING, body=body)
            signature = string_in(block, "signature")
            signed = [SignatureDelta(index, signature)] if signature else []
            return [start, *_text(index, block, "thinking"), *signed, *withheld]
    executor = BlockKind.TOOL_USE if kind == "tool_use" else BlockKind.SERVER_TOOL_USE
    if executor is BlockKind.SERVER_TOOL_USE:
        body = {"type": kind, **(body or {})}
    identity, name = string_in(block, "id"), string_in(block, "name")
    if not name or not (identity or kind == "tool_use"):
        raise RemoteProtocolError("upstream sent a tool call without an id or a name")
    call: list[Event] = [BlockStart(index, executor, id=identity, name=name, body=body)]
    if block.get("input"):
        call.append(ArgumentsDelta(index, dumps(block["input"]).decode()))
    return call + withheld


def _extra_fields(
    block: dict[str, Any], kind: str, unknown: frozenset[str]
) -> tuple[dict[str, Any] | None, list[Event]]:
    """Return the block's other fields: those that may pass, and the names of those withheld."""
    body: dict[str, Any] = {}
    withheld: list[Event] = []
    for name, value in block.items():
        if name in _OWN_FIELDS[kind]:
            continue
        modelled = name in _EXTRA_FIELDS.get(kind, ())
        what = name if modelled else named(f"{kind} field", name)
        if what in unknown or (modelled and is_tame(value)):
            body[name] = value
        elif value:
            withheld.append(Opaque(what))
    if kind == "text" and "citations" in block:
        # the list itself comes as attachments; whether there was one is what a client sees of a
        # text without any
        body["citations"] = None if block["citations"] is None else []
    return body or None, withheld


def _text(index: int, block: dict[str, Any], field: str) -> list[Event]:
    text = string_in(block, field)
    return [TextDelta(index, text)] if text else []


def _citations(index: int, block: dict[str, Any]) -> list[Event]:
    citations = block.get("citations") or []
    if not isinstance(citations, list):
        return [Opaque("citations")]
    return [
        (
            AttachmentDelta(index, "citation", read_citation(c))
            if isinstance(c, dict)
            else Opaque("citations")
        )
        for c in citations
    ]
