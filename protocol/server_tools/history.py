"""Calls that a provider ran in earlier turns, told in words to another vendor's model (docs/protocol.md 1.10).

As tool calls they would be wrong: nobody has results for them that the other dialect takes, and its model would learn to
call what it does not have. So each call and its result, wherever in the history it is, become one short sentence.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from protocol.json_strict import dumps
from protocol.request import OtherPart, Turn

CALLS = frozenset(("server_tool_use", "mcp_tool_use"))
SILENT = frozenset(("mcp_tool_listing", "fallback"))
"""Bookkeeping of the provider's own."""
MAX_INPUT = 500
MAX_RESULT = 4000
"""Characters of a call's input and result that are told."""
_TOLD = frozenset(("title", "url", "text", "data", "stdout", "stderr", "error_code", "tool_name", "return_code"))
"""Fields of results that a reader can read."""


def is_result(kind: str) -> bool:
    """Is this the type of a block with a provider's result?"""
    return kind.endswith("_tool_result")


def results_of(turns: Iterable[Turn]) -> dict[str, dict[str, Any]]:
    """Return the result blocks by the id of their call: a result may come in a later turn than its call."""
    parts = (p for t in turns if t.role == "assistant" for p in t.parts)
    blocks = (p.body for p in parts if isinstance(p, OtherPart) and is_result(p.kind))
    return {b["tool_use_id"]: b for b in blocks if isinstance(b.get("tool_use_id"), str)}


def told(call: dict[str, Any], result: dict[str, Any] | None) -> str:
    """Return the sentence for a call and its result."""
    said = dumps(call.get("input", {})).decode(errors="replace")
    server = f" of the MCP server {call['server_name']}" if isinstance(call.get("server_name"), str) else ""
    head = f"[The provider ran {str(call.get('name'))[:128]}{server} with {_cut(said, MAX_INPUT)}"
    if result is None:
        return f"{head}; no result is known.]"
    failed = " It failed." if result.get("is_error") is True else ""
    content = _cut("\n".join(_strings(result.get("content"), MAX_RESULT)), MAX_RESULT)
    return f"{head}.{failed} Result: {content or 'none that can be shown'}]"


def _strings(value: Any, room: int) -> Iterator[str]:
    """Yield what is readable in a result, in order, until there is enough."""
    stack = [("text", value)]
    while stack and room > 0:
        key, item = stack.pop()
        if isinstance(item, dict):
            hidden = item.get("type") == "base64"
            stack += [(k, v) for k, v in reversed(item.items()) if not hidden]
        elif isinstance(item, list):
            stack += [(key, v) for v in reversed(item)]
        elif key in _TOLD and item not in (None, "") and isinstance(item, (str, int)):
            room -= len(str(item))
            yield f"{key} {item}" if isinstance(item, int) else item


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + " ..."
