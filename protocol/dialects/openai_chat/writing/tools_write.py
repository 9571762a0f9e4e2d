"""Tools, their choice and the answer's form of a request that crosses, written for chat/completions
(docs/change/protocol.md 1.2, 1.10)."""

from typing import Any

from protocol.bytes import json_schema as schema
from protocol.dialects.models import OpenAiModelRow
from protocol.dialects.tools_write import (
    check_callers,
    openai_function,
    search_options,
    server_kind,
)
from protocol.request import Tool
from protocol.requests.fields import invalid
from protocol.requests.names import Names
from protocol.requests.neutral import find_option
from protocol.server_tools.data import tool_type
from protocol.server_tools.families import allows
from protocol.target import RequestNotes

_ANSWER = "answer"
"""The dialect wants a name for the answer's schema."""


def write_tools(draft: RequestNotes, row: OpenAiModelRow, names: Names) -> dict[str, Any]:
    """Return the tool fields. Raises InvalidRequest naming what cannot be expressed or is not
    allowed."""
    request = draft.request
    choice = request.tool_choice
    if choice is not None and (missing := set(choice.allowed) - {t.name for t in request.tools}):
        invalid(
            f"tool_choice names {min(missing)[:60]!r}, which is not among the tools", "tool_choice"
        )
    # the clients of other dialects have no word for some tools of those offered: a policy asked
    # for it
    offered = [
        t for t in request.tools if choice is None or not choice.allowed or t.name in choice.allowed
    ]
    functions = [t for t in offered if t.kind != "server"]
    body: dict[str, Any] = {}
    for tool in offered:
        if tool.kind == "server":
            search = _search(draft, row, tool)
            # the dialect has no choice of a search: who wants no call is not sent one
            body |= (
                {}
                if choice is not None and choice.mode == "none"
                else {"web_search_options": search}
            )
    if functions:
        body["tools"] = [_function(draft, row, tool, names) for tool in functions]
    if (
        choice is not None
        and choice.mode == "tool"
        and choice.name not in {t.name for t in functions}
    ):
        invalid(
            f"tool_choice names {choice.name[:60]!r}, which is not among the tools that the client"
            " runs",
            "tool_choice",
        )
    if choice is not None and choice.mode == "any" and not functions:
        invalid(
            "tool_choice requires a call, and there are no tools that the client runs",
            "tool_choice",
        )
    if functions and choice is not None:
        kind = (
            "custom"
            if row.vendor and any(t.kind == "custom" and t.name == choice.name for t in functions)
            else "function"
        )
        forced = (
            {"type": kind, kind: {"name": names.upstream(choice.name)}}
            if choice.mode == "tool"
            else None
        )
        body["tool_choice"] = forced or ("required" if choice.mode == "any" else choice.mode)
    if functions and request.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = request.parallel_tool_calls
    return body | write_format(draft)


def write_format(draft: RequestNotes) -> dict[str, Any]:
    """Return response_format; strict where strict mode takes the schema as it is: nothing is made
    required that was not."""
    answer = draft.request.response_format
    if answer is None:
        return {}
    if answer.mode == "json_object":
        return {"response_format": {"type": "json_object"}}
    try:
        spec: dict[str, Any] = {
            "schema": schema.clean(answer.schema, "openai_strict"),
            "strict": True,
        }
    except schema.Unsupported:
        spec = {"schema": answer.schema, "strict": False}
    if answer.strict is False:
        spec = {"schema": answer.schema, "strict": False}
    if answer.description:
        spec["description"] = answer.description
    return {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": answer.name or _ANSWER, **spec},
        }
    }


def added_search(draft: RequestNotes, row: OpenAiModelRow) -> dict[str, Any] | None:
    """Return web_search_options if the operator adds a web search for this key and the model can
    search."""
    for added in draft.target.added_tools:
        kind = tool_type(added.get("type"))
        if (
            kind is not None
            and kind.family == "web_search"
            and allows(draft.target, "web_search")
            and row.search
        ):
            return _options(added)
    return None


def _function(draft: RequestNotes, row: OpenAiModelRow, tool: Tool, names: Names) -> dict[str, Any]:
    upstream = names.upstream(tool.name)
    if tool.kind == "custom" and row.vendor:
        return _custom(draft, tool, upstream)
    fields, strict = openai_function(draft, tool)
    function = {"name": upstream, **fields, **({"strict": True} if strict else {})}
    return {"type": "function", "function": function}


def _custom(draft: RequestNotes, tool: Tool, upstream: str) -> dict[str, Any]:
    """A tool that takes free text; other servers than the vendor's know functions alone."""
    form = find_option(tool.extra, "form")
    draft.note("tools[]", tool.extra, *((form[0],) if form is not None else ()))
    custom: dict[str, Any] = {
        "name": upstream,
        **({"description": tool.description} if tool.description else {}),
    }
    if form is not None and isinstance(form[1].value, dict):
        grammar = {name: value for name, value in form[1].value.items() if name != "type"}
        custom["format"] = {"type": "grammar", "grammar": grammar}
    return {"type": "custom", "custom": custom}


def _search(draft: RequestNotes, row: OpenAiModelRow, tool: Tool) -> dict[str, Any]:
    kind = server_kind(draft, tool.extra, "tools")
    if kind.family != "web_search" or not row.search:
        invalid(
            f"the tool {tool.name[:60]!r} of type {kind.type!r} cannot be sent to this model's"
            " provider",
            "tools",
        )
    for name in ("allowed_domains", "blocked_domains"):
        if tool.extra.get(name):
            # left out, the search would reach where the client does not want it
            invalid(f"the {name} of a web search cannot be sent to this model's provider", "tools")
    check_callers(draft, tool.name, tool.extra)
    for name in ("max_uses", "cache_control", "response_inclusion", "strict", "defer_loading"):
        if tool.extra.get(name) and draft.word(name) != "search_context_size":
            draft.drop(
                "cache_control" if name == "cache_control" else f"tools[].{draft.word(name)}"
            )
    return _options(tool.extra)


def _options(tool: dict[str, Any]) -> dict[str, Any]:
    place, size = search_options(tool)
    options: dict[str, Any] = {}
    if place is not None:
        options["user_location"] = {"type": "approximate", "approximate": place}
    if size is not None:
        options["search_context_size"] = size
    return options
