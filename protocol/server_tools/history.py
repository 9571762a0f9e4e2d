"""Calls that a provider ran in earlier turns, described in text for another vendor's model
(docs/change/protocol.md 1.10).

As tool calls they would be wrong: nobody has results for them that another dialect takes, and its
model would learn to call what it does not have. So each call and its result, wherever in the
history it is, become one short sentence.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.requests.neutral import AnyTurn, ProviderCallPart, ProviderResultPart

MAX_INPUT = 500
MAX_RESULT = 4000
"""The most characters of a call's input and result that are shown."""
_TOLD = frozenset("title url text data stdout stderr error_code tool_name return_code".split())
"""Fields of results that a reader can read."""


def results_of(turns: Iterable[AnyTurn]) -> dict[str, ProviderResultPart]:
    """Return the results by the id of their call: a result may come in a later turn than its
    call."""
    return {
        p.call_id: p
        for t in turns
        for p in t.parts
        if isinstance(p, ProviderResultPart) and p.call_id
    }


def describe_call(call: ProviderCallPart, result: ProviderResultPart | None) -> str:
    """Return the sentence for a call and its result."""
    server = f" of the MCP server {call.server}" if call.server else ""
    head = (
        f"[The provider ran {call.name[:128]}{server} with"
        f" {_cut(dumps(call.input).decode(errors='replace'), MAX_INPUT)}"
    )
    if result is None:
        return f"{head}; no result is known.]"
    content = _cut("\n".join(_strings(result.content, MAX_RESULT)), MAX_RESULT)
    return (
        f"{head}.{' It failed.' if result.is_error else ''} Result:"
        f" {content or 'none that can be shown'}]"
    )


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
