"""A Responses request in neutral parts, for a provider of another dialect (docs/change/protocol.md,
Responses clients)."""

from collections.abc import Sequence
from typing import Any

import msgspec

from protocol.dialects.responses.items import (
    CARRIED_ITEMS,
    OUTPUT_ITEMS,
    SERVER_ITEMS,
    WITH_TOOLS,
    result_fields,
    server_input,
)
from protocol.dialects.responses.media import read_media
from protocol.dialects.responses.parts_read import result_text
from protocol.dialects.responses.read import LOGPROBS
from protocol.request import (
    NOTHING,
    ChatRequest,
    OtherPart,
    Part,
    TextPart,
    Tool,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from protocol.requests.fields import invalid
from protocol.requests.neutral import (
    EFFORTS,
    AnyTurn,
    MediaPart,
    NeutralPart,
    NeutralRequest,
    NeutralTurn,
    Option,
    ProviderCallPart,
    ProviderResultPart,
    RefusalPart,
    ThinkingPart,
    is_plain,
    result_of,
)

_WORDS = {
    "effort": "reasoning.effort",
    "thinking": "reasoning.effort",
    "max_tokens": "max_output_tokens",
    "verbosity": "text.verbosity",
    "response_format": "text.format",
    "messages": "input",
    "max_uses": "search_context_size",
    "mcp_servers": "tools",
}
_HARMLESS = frozenset(
    ("metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "image")
)
"""Left out, they change no meaning."""
_READ = frozenset(("include", "safety_identifier", "stream_options", "reasoning", "truncation"))
"""What is read elsewhere, or is for this gateway alone."""
_BOOKKEEPING = frozenset(
    "id status phase namespace type created_by annotations logprobs role name async".split()
)
"""Fields of an item that say nothing to another provider."""
_SEARCHES = {"low": 1, "medium": 5, "high": 10}
"""search_context_size as the most searches of one answer."""
_LOCATION = ("city", "country", "region", "timezone")
_SEARCH, _CODE = "web_search_20250305", "code_execution_20250825"
"""The types that these tools have in the neutral form."""


def neutral(request: ChatRequest) -> NeutralRequest:
    """Return the request without what only this dialect has. Raises InvalidRequest naming what
    cannot be read."""
    turns = tuple(turn for original in request.turns if (turn := _turn(original)) is not None)
    effort = request.reasoning.effort if request.reasoning is not None else None
    if effort not in (None, "none", *EFFORTS):
        invalid(f"reasoning.effort must be none, {', '.join(EFFORTS)}", "reasoning")
    who = request.extra.get("safety_identifier") or request.user
    extra = _options(request)
    tools = _tools(request, extra)
    written = msgspec.structs.replace(
        request,
        extra=extra,
        user=who,
        tools=tools,
        max_tool_calls=None,
        tool_choice=_choice(request),
    )
    system = tuple(NeutralTurn("system", (TextPart(text),)) for text in request.system)
    words = _WORDS | (
        {"user": "safety_identifier"} if request.extra.get("safety_identifier") else {}
    )
    words |= {"max_uses": "max_tool_calls"} if request.max_tool_calls is not None else {}
    return NeutralRequest(request=written, system=system, turns=turns, words=words)


def _options(request: ChatRequest) -> dict[str, Any]:
    options: dict[str, Any] = {}
    extra = request.extra
    for name, value in extra.items():
        if value in (None, "", [], {}) or name in _READ:
            continue
        match name:
            case "service_tier":
                options[name] = Option("service_tier", value)
            case "top_logprobs":
                if value:
                    options[name] = Option("logprobs", value)
            case "context_management":
                options[name] = Option("harmless")
            case _:
                options[name] = Option("harmless") if name in _HARMLESS else value
    if LOGPROBS in (extra.get("include") or ()) and "top_logprobs" not in options:
        options["include"] = Option("logprobs", 0)
    if extra.get("truncation") == "auto":
        options["truncation"] = Option("harmless")
    for name in extra.get("reasoning") or ():
        options[f"reasoning.{name}"] = Option("harmless")
    if request.reasoning is not None and request.reasoning.summary is not None:
        options["reasoning.summary"] = Option("summary", request.reasoning.summary)
    return options


# --- tools ---


def _tools(request: ChatRequest, extra: dict[str, Any]) -> tuple[Tool, ...]:
    """The tools; servers of MCP and what limits the provider's tools go into `extra`."""
    made = [_tool(tool, extra) for tool in request.tools]
    if request.max_tool_calls is None:
        return tuple(made)
    limited = [t for t in made if t.kind == "server" and t.extra.get("type") == _SEARCH]
    if not limited:
        extra["max_tool_calls"] = Option("harmless")
        return tuple(made)
    most = request.max_tool_calls
    return tuple(
        (
            msgspec.structs.replace(
                t, extra=t.extra | {"max_uses": min(most, t.extra.get("max_uses", most))}
            )
            if t in limited
            else t
        )
        for t in made
    )


def _tool(tool: Tool, extra: dict[str, Any]) -> Tool:
    if tool.kind == "server":
        return _server_tool(tool, extra)
    if tool.kind == "client":
        if tool.name != "tool_search":
            invalid(
                f"the tool type {str(tool.extra.get('type'))[:60]!r} cannot be sent to this model's"
                " provider",
                "tools",
            )
        description, schema = tool.extra.get("description"), tool.extra.get("parameters")
        return Tool(
            tool.name,
            str(description or ""),
            schema if isinstance(schema, dict) else {"type": "object"},
        )
    options = {
        n: v for n, v in tool.extra.items() if v not in (None, False) and n != "defer_loading"
    }
    if (form := options.pop("format", None)) is not None and form != {"type": "text"}:
        options["format"] = Option("form", form)
    return Tool(tool.name, tool.description, tool.schema, options, tool.kind)


def _server_tool(tool: Tool, extra: dict[str, Any]) -> Tool:
    kind = str(tool.extra.get("type"))
    if kind.startswith("web_search"):
        return Tool("web_search", extra=_search(tool.extra), kind="server")
    if kind == "code_interpreter":
        container = tool.extra.get("container")
        if (
            isinstance(container, dict)
            and container.keys() <= {"type"}
            and container.get("type", "auto") == "auto"
        ):
            return Tool(
                "code_execution", extra={"type": _CODE, "name": "code_execution"}, kind="server"
            )
        invalid(
            "a code_interpreter with a container of its own cannot be sent to this model's"
            " provider",
            "tools",
        )
    if kind == "mcp":
        return _mcp(tool, extra)
    invalid(f"the tool type {kind[:60]!r} cannot be sent to this model's provider", "tools")


def _search(options: dict[str, Any]) -> dict[str, Any]:
    tool: dict[str, Any] = {"type": _SEARCH, "name": "web_search"}
    for name, value in options.items():
        match name, value:
            case ("type", _) | (_, None) | ("external_web_access", True):
                continue
            case "search_context_size", "low" | "medium" | "high":
                tool["max_uses"] = _SEARCHES[value]
            case "user_location", {**place}:
                tool["user_location"] = {"type": "approximate"} | {
                    k: place[k] for k in _LOCATION if isinstance(place.get(k), str)
                }
            case "filters", {"allowed_domains": [*domains]} if len(value) == 1:
                tool["allowed_domains"] = domains
            case "search_content_types", [*kinds] if "text" in kinds:
                continue
            case _:
                invalid(
                    f"{name[:60]} of web_search cannot be sent to this model's provider", "tools"
                )
    return tool


def _mcp(tool: Tool, extra: dict[str, Any]) -> Tool:
    """The server goes into `extra` and a set of its tools into the list, as the Messages dialect
    has it."""
    body = tool.extra
    known = {
        "type",
        "server_label",
        "server_url",
        "authorization",
        "require_approval",
        "server_description",
    }
    if gone := [n for n, v in body.items() if n not in known and v is not None]:
        invalid(f"{gone[0][:60]} of an MCP server cannot be sent to this model's provider", "tools")
    if body.get("require_approval") != "never" or not isinstance(body.get("server_url"), str):
        invalid(
            "an MCP server for this model's provider needs a server_url, and `never` as"
            " require_approval",
            "tools",
        )
    server = {"type": "url", "url": body["server_url"], "name": body["server_label"]}
    if isinstance(body.get("authorization"), str):
        server["authorization_token"] = body["authorization"]
    extra["mcp_servers"] = [*extra.get("mcp_servers", ()), server]
    return Tool(
        tool.name,
        extra={"type": "mcp_toolset", "mcp_server_name": body["server_label"]},
        kind="server",
    )


def _choice(request: ChatRequest) -> Any:
    choice = request.tool_choice
    if choice is None or (not choice.name and not choice.allowed):
        return choice
    plain = {t.name for t in request.tools if t.kind != "server"}
    if any(name not in plain for name in (choice.name, *choice.allowed) if name):
        invalid(
            "tool_choice names a tool that this model's provider cannot be held to", "tool_choice"
        )
    return choice


# --- turns ---


def _turn(turn: Turn) -> AnyTurn | None:
    if is_plain(turn) and not any(
        isinstance(p, ToolUsePart | ToolResultPart) and p.form != "function" for p in turn.parts
    ):
        return turn
    parts = [made for part in turn.parts for made in _parts(part)]
    # of an item that only this dialect has nothing may be left
    return NeutralTurn(turn.role, tuple(parts)) if parts or not turn.parts else None


def _parts(part: Part) -> Sequence[NeutralPart]:
    match part:
        case TextPart():
            return (
                (TextPart(part.text, _beside(part.extra)),) if part.text or not part.extra else ()
            )
        case ToolUsePart():
            if part.form == "typed" and part.name != "tool_search":
                invalid(
                    f"a call of {part.name[:60]} cannot be sent to this model's provider", "input"
                )
            form = "function" if part.form == "typed" else part.form
            return (ToolUsePart(part.id, part.name, part.arguments, _beside(part.extra), form),)
        case ToolResultPart():
            return (_result(part),)
        case OtherPart(dialect="responses"):
            return _other(part)
        case _:
            return (part,)


def _beside(extra: dict[str, Any]) -> dict[str, Any]:
    """The extra fields of a text, a call or a result that mean something elsewhere."""
    if not extra:
        return NOTHING
    options: dict[str, Any] = {}
    for name, value in {**extra, **(extra.get("item") or {})}.items():
        if name == "prompt_cache_breakpoint" and isinstance(value, dict):
            options[name] = Option("cache", value.get("ttl"))
        elif name == "caller" and isinstance(value, dict) and value.get("type") == "program":
            invalid(
                "a call of a program that a provider runs cannot be sent to another one", "input"
            )
        elif (
            value is not None
            and name not in _BOOKKEEPING
            and name not in ("item", "caller", "named", "content")
        ):
            options[name] = value
    return options or NOTHING


def _result(part: ToolResultPart) -> ToolResultPart:
    if part.form == "typed":
        item = part.extra.get("item") or {}
        if item.get("type") not in WITH_TOOLS:
            invalid(
                f"an item of type {str(item.get('type'))[:60]!r} cannot be sent to this model's"
                " provider",
                "input",
            )
        return ToolResultPart(part.tool_call_id, part.text, part.is_error)
    tool_result = result_of(part, _content, result_text)
    form = "function" if tool_result.form == "typed" else tool_result.form
    return msgspec.structs.replace(tool_result, extra=_beside(part.extra), form=form)


def _content(part: dict[str, Any]) -> NeutralPart:
    if part["type"] in ("input_text", "output_text"):
        return TextPart(
            part["text"], _beside({n: v for n, v in part.items() if n not in ("type", "text")})
        )
    return _media(part)


def _media(body: dict[str, Any]) -> MediaPart:
    mark = "prompt_cache_breakpoint"
    return read_media(body, _beside({mark: body[mark]} if mark in body else {}))


def _other(part: OtherPart) -> Sequence[NeutralPart]:
    kind, body = part.kind, part.body
    if kind in ("input_image", "input_file"):
        return (_media(body),)
    if kind == "refusal":
        return (RefusalPart(body["refusal"]),)
    if kind == "reasoning":
        texts = [p.get("text") for name in ("summary", "content") for p in body.get(name) or ()]
        sealed = body.get("encrypted_content")
        return (
            ThinkingPart(
                "\n\n".join(t for t in texts if isinstance(t, str)), sealed or "", "responses"
            ),
        )
    if kind == "additional_tools":
        # its tools are in the request's list
        return ()
    if kind in SERVER_ITEMS and kind not in ("mcp_call", "program"):
        return _server_call(kind, body)
    if (
        kind == "tool_search_call"
        or (kind in OUTPUT_ITEMS and kind != "program_output")
        or kind in CARRIED_ITEMS - {"compaction", "mcp_list_tools"}
    ):
        return (TextPart("", {kind: True}),)
    invalid(f"an item of type {kind[:60]!r} cannot be sent to this model's provider", "input")


def _server_call(kind: str, body: dict[str, Any]) -> Sequence[NeutralPart]:
    identity = v if isinstance(v := body.get("id"), str) else ""
    call = ProviderCallPart(
        id=identity,
        name=SERVER_ITEMS[kind].name,
        input=msgspec.json.decode(server_input(kind, body)),
        kind=kind,
    )
    content = {n: v for n, v in result_fields(kind, body).items() if n != "status"}
    failed = body.get("status") in ("failed", "incomplete")
    if kind == "image_generation_call":
        content.pop("result", None)
    return (
        call,
        ProviderResultPart(
            call_id=identity, content=content, is_error=failed, kind=f"{kind}_result"
        ),
    )
