"""Tools, their choice and the answer's form of a request that crosses, written for Responses
(docs/change/protocol.md 1.13)."""

from contextlib import suppress
from typing import Any

from protocol.bytes import json_schema as schema
from protocol.dialects.tools_write import (
    check_callers,
    openai_function,
    search_options,
    server_kind,
)
from protocol.request import OtherPart, Tool
from protocol.requests.fields import invalid
from protocol.requests.names import Names, called
from protocol.requests.neutral import find_option
from protocol.server_tools.families import need
from protocol.target import RequestNotes

_ANSWER = "answer"
"""The dialect wants a name for the answer's schema."""
_LEFT_OUT = ("cache_control", "response_inclusion", "strict", "defer_loading")
"""Of the provider's tools: left out, they change no meaning."""
_OF_SEARCH = frozenset(
    (
        "type",
        "name",
        "user_location",
        "max_uses",
        "allowed_domains",
        "blocked_domains",
        "allowed_callers",
        *_LEFT_OUT,
    )
)
_OF_CODE = frozenset(("type", "name", "allowed_callers", *_LEFT_OUT))
_OF_TOOLSET = frozenset(("type", "mcp_server_name", "default_config", "configs", "cache_control"))
_OF_SERVER = frozenset(("type", "url", "name", "authorization_token", "tool_configuration"))


def names_of(draft: RequestNotes) -> Names:
    """Return the names of the functions: offered, and called earlier."""
    request = draft.request
    recorded = (
        p.body["name"]
        for t in request.turns
        for p in t.parts
        if isinstance(p, OtherPart) and p.kind == "function_call"
    )
    return Names(
        (*(t.name for t in request.tools if t.kind != "server"), *called(request), *recorded)
    )


def write_tools(draft: RequestNotes, names: Names) -> dict[str, Any]:
    """Return the tool fields. Raises InvalidRequest naming what cannot be expressed or is not
    allowed."""
    request = draft.request
    offered = [
        _server_tool(draft, tool.extra) if tool.kind == "server" else _function(draft, tool, names)
        for tool in request.tools
    ]
    if request.web_search is not None:
        need(draft.target, "web_search", "web_search_options", "web_search_options")
        offered.append(_server_tool(draft, request.web_search))
    body: dict[str, Any] = {"tools": offered} if offered else {}
    if (choice := _choice(draft, names)) is not None:
        body["tool_choice"] = choice
    if offered and (request.parallel_tool_calls is not None or request.legacy_functions):
        body["parallel_tool_calls"] = (
            bool(request.parallel_tool_calls) and not request.legacy_functions
        )
    return body


def _choice(draft: RequestNotes, names: Names) -> Any:
    request, choice = draft.request, draft.request.tool_choice
    if choice is None:
        return None
    kinds = {
        t.name: "custom" if t.kind == "custom" else "function"
        for t in request.tools
        if t.kind != "server"
    }
    wanted = choice.allowed or ((choice.name,) if choice.mode == "tool" else ())
    if missing := [name for name in wanted if name not in kinds]:
        invalid(
            f"tool_choice names {missing[0][:60]!r}, which is not among the tools that the client"
            " runs",
            "tool_choice",
        )
    if choice.mode == "any" and not kinds:
        invalid(
            "tool_choice requires a call, and there are no tools that the client runs",
            "tool_choice",
        )
    if choice.mode == "tool":
        return {"type": kinds[choice.name], "name": names.upstream(choice.name)}
    if choice.allowed:
        tools = [{"type": kinds[name], "name": names.upstream(name)} for name in choice.allowed]
        return {
            "type": "allowed_tools",
            "mode": "required" if choice.mode == "any" else "auto",
            "tools": tools,
        }
    if not kinds and choice.mode == "none" and not request.tools:
        return None
    return "required" if choice.mode == "any" else choice.mode


def write_format(draft: RequestNotes) -> dict[str, Any]:
    """Return `text.format`; strict where strict mode takes the schema as it is: nothing is made
    required that was not."""
    answer = draft.request.response_format
    if answer is None:
        return {}
    if answer.mode == "json_object":
        return {"format": {"type": "json_object"}}
    spec: dict[str, Any] = {"schema": answer.schema, "strict": answer.strict is True}
    if answer.strict is None:
        with suppress(schema.Unsupported):
            spec = {"schema": schema.clean(answer.schema, "openai_strict"), "strict": True}
    if answer.description:
        spec["description"] = answer.description
    return {"format": {"type": "json_schema", "name": answer.name or _ANSWER, **spec}}


def _function(draft: RequestNotes, tool: Tool, names: Names) -> dict[str, Any]:
    upstream = names.upstream(tool.name)
    if tool.kind == "custom":
        return _custom(draft, tool, upstream)
    fields, strict = openai_function(draft, tool)
    # always written: what is not strict elsewhere is strict here
    return {"type": "function", "name": upstream, **fields, "strict": strict}


def _custom(draft: RequestNotes, tool: Tool, upstream: str) -> dict[str, Any]:
    body: dict[str, Any] = {"type": "custom", "name": upstream}
    if tool.description:
        body["description"] = tool.description
    option = find_option(tool.extra, "grammar")
    if option is not None:
        form = option[1].value
        # nested in chat/completions
        inner = (
            form.get("grammar")
            if isinstance(form, dict) and isinstance(form.get("grammar"), dict)
            else None
        )
        body["format"] = form if inner is None else {"type": "grammar", **inner}
    draft.note("tools[]", tool.extra, *(() if option is None else (option[0],)))
    return body


# --- tools that the provider runs ---


def _server_tool(draft: RequestNotes, tool: dict[str, Any]) -> dict[str, Any]:
    kind = server_kind(draft, tool, "tools")
    match kind.family:
        case "web_search":
            _refuse_others(tool, _OF_SEARCH)
            made = _search(tool)
        case "code_execution":
            _refuse_others(tool, _OF_CODE)
            made = {"type": "code_interpreter", "container": {"type": "auto"}}
        case "mcp":
            return _mcp(draft, tool)
        case _:
            invalid(
                f"a tool of type {kind.type!r} cannot be sent to this model's provider", "tools"
            )
    check_callers(draft, str(tool.get("name")), tool)
    for name in _LEFT_OUT:
        if tool.get(name):
            draft.drop("cache_control" if name == "cache_control" else f"tools[].{name}")
    return made


def _refuse_others(tool: dict[str, Any], known: frozenset[str]) -> None:
    for name, value in tool.items():
        if name not in known and value is not None:
            invalid(
                f"{name[:60]} of a tool of type {str(tool.get('type'))[:60]!r} cannot be sent to"
                " this model's provider",
                "tools",
            )


def _search(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("blocked_domains"):
        # left out, the search would reach where the client does not want it
        invalid(
            "the blocked_domains of a web search cannot be sent to this model's provider", "tools"
        )
    made: dict[str, Any] = {"type": "web_search"}
    place, size = search_options(tool)
    if place is not None:
        made["user_location"] = {"type": "approximate", **place}
    if size is not None:
        made["search_context_size"] = size
    if tool.get("allowed_domains"):
        made["filters"] = {"allowed_domains": tool["allowed_domains"]}
    return made


def _mcp(draft: RequestNotes, tool: dict[str, Any]) -> dict[str, Any]:
    """The server of a set of tools, as the request names it: run without a question, which the
    client could not answer."""
    _refuse_others(tool, _OF_TOOLSET)
    name = tool.get("mcp_server_name")
    servers = draft.request.extra.get("mcp_servers")
    server = (
        next((s for s in servers if isinstance(s, dict) and s.get("name") == name), None)
        if isinstance(servers, list)
        else None
    )
    if server is None or not isinstance(server.get("url"), str):
        invalid("a set of MCP tools names a server that is not among mcp_servers", "tools")
    for field, value in server.items():
        if field not in _OF_SERVER and value is not None:
            invalid(
                f"{field[:60]} of an MCP server cannot be sent to this model's provider",
                "mcp_servers",
            )
    made = {
        "type": "mcp",
        "server_label": name,
        "server_url": server["url"],
        "require_approval": "never",
    }
    if server.get("authorization_token"):
        made["authorization"] = server["authorization_token"]
    limits = server.get("tool_configuration") or {}
    if (
        not isinstance(limits, dict)
        or limits.get("enabled") is False
        or not limits.keys() <= {"enabled", "allowed_tools"}
    ):
        invalid(
            "this tool_configuration of an MCP server cannot be sent to this model's provider",
            "mcp_servers",
        )
    if limits.get("allowed_tools") is not None:
        made["allowed_tools"] = limits["allowed_tools"]
    return made | _only(tool, made)


def _only(tool: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    """The tools that the set is narrowed to."""
    standard, configs = tool.get("default_config") or {}, tool.get("configs") or {}
    if (
        not isinstance(standard, dict)
        or not isinstance(configs, dict)
        or not standard.keys() <= {"enabled", "defer_loading"}
    ):
        invalid(
            "this configuration of a set of MCP tools cannot be sent to this model's provider",
            "tools",
        )
    if any(
        not isinstance(config, dict) or not config.keys() <= {"enabled", "defer_loading"}
        for config in configs.values()
    ):
        invalid(
            "this configuration of a set of MCP tools cannot be sent to this model's provider",
            "tools",
        )
    off = [name for name, config in configs.items() if config.get("enabled") is False]
    if standard.get("enabled") is not False:
        if off:
            # there is no list of what is left out
            invalid(
                "a set of MCP tools with single tools turned off cannot be sent to this model's"
                " provider",
                "tools",
            )
        return {}
    on = [name for name, config in configs.items() if config.get("enabled") is not False]
    known = made.get("allowed_tools")
    return {"allowed_tools": [name for name in on if known is None or name in known]}
