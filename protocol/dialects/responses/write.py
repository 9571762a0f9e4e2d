"""Responses requests written for a provider of this dialect (docs/change/protocol.md 1.13).

A provider keeps nothing: `store` is false, its ids and its conversations are never named, and what
it would leave out of a long input is left to the client. A request that came in this dialect goes
out with every other field as it came but those that a policy changed; one that crosses is written
field by field.
"""

from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.dialects.models import OPENAI_MODELS
from protocol.dialects.responses.changes import write_tools as write_own_tools
from protocol.dialects.responses.items import TYPED_NAMES
from protocol.dialects.responses.read import ELSEWHERE, SEALED
from protocol.dialects.responses.writing.items_write import write_system, write_turns
from protocol.dialects.responses.writing.messages_write import InputWriter
from protocol.dialects.responses.writing.options_write import write_options
from protocol.dialects.responses.writing.tools_write import names_of, write_tools
from protocol.request import ChatRequest, ResponseFormat, ToolChoice
from protocol.requests.names import namespace_of
from protocol.requests.neutral import NeutralRequest
from protocol.server_tools.families import allows
from protocol.target import RequestNotes, Restore, Target, Translated

_RESULTS = {
    "file_search": ("file_search_call.results",),
    "code_interpreter": ("code_interpreter_call.outputs",),
}
"""What is asked of the provider's tools whether the client wants it or not: policies read it."""
_SEARCH = ("web_search_call.action.sources",)


def encode(
    request: ChatRequest | NeutralRequest, target: Target, changed: bool = True
) -> Translated:
    """Write the request for a Responses provider. Raises InvalidRequest naming what it cannot say
    or the key may not use."""
    if isinstance(request, NeutralRequest):
        return _crossed(request, target)
    draft = RequestNotes(request=request, target=target)
    return Translated(body=dumps(_same(draft)), dropped=tuple(draft.dropped))


def _crossed(neutral: NeutralRequest, target: Target) -> Translated:
    request = neutral.request
    draft = RequestNotes(request=request, target=target, words=neutral.words)
    row, names = OPENAI_MODELS.row(request.model), names_of(draft)
    writer = InputWriter(draft, neutral, row, names)
    body: dict[str, Any] = {"model": request.model}
    if instructions := writer.instructions():
        body["instructions"] = instructions
    body["input"] = writer.items()
    body |= write_options(draft, row) | write_tools(draft, names)
    body |= {"store": False, "truncation": "disabled"}
    _include(body)
    return Translated(
        body=dumps(body), restore=Restore(names=names.changed()), dropped=tuple(draft.dropped)
    )


def _include(body: dict[str, Any]) -> None:
    """Ask for what the provider's tools find."""
    asked = list(body.get("include") or ())
    for tool in body.get("tools") or ():
        kind = str(tool.get("type"))
        asked += (
            _SEARCH
            if kind.startswith("web_search") and "preview" not in kind
            else _RESULTS.get(kind, ())
        )
    if asked:
        body["include"] = list(dict.fromkeys(asked))


def _kept(draft: RequestNotes, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out reasoning that has only its summary: its client asked for nothing encrypted, and
    without a store no provider takes it."""
    sendable = [
        i
        for i in items
        if i.get("type") != "reasoning" or i.get("encrypted_content") or i.get("content")
    ]
    if len(sendable) < len(items):
        draft.drop("input[].reasoning")
    return sendable


def _same(draft: RequestNotes) -> dict[str, Any]:
    request = draft.request
    extra = {
        n: v
        for n, v in request.extra.items()
        if n not in ("stream_options", "truncation", "reasoning", "include")
    }
    instructions, items = write_system(request)
    body: dict[str, Any] = extra | {
        "model": request.model,
        "input": items + _kept(draft, write_turns(request.turns)),
    }
    if instructions is not None:
        body["instructions"] = instructions
    # what items of the input bring is there
    if tools := write_own_tools([t for t in request.tools if t.outer.keys().isdisjoint(ELSEWHERE)]):
        body["tools"] = tools
    if request.tool_choice is not None:
        body["tool_choice"] = _write_choice(request, request.tool_choice)
    if request.response_format is not None or request.verbosity is not None:
        verbosity = {} if request.verbosity is None else {"verbosity": request.verbosity}
        body["text"] = _write_format(request.response_format) | verbosity
    if (reasoning := _reasoning(request)) is not None:
        body["reasoning"] = reasoning
    values: dict[str, Any] = {
        "parallel_tool_calls": request.parallel_tool_calls,
        "max_output_tokens": request.max_tokens,
        "user": request.user,
        "max_tool_calls": request.max_tool_calls,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stream": request.stream or None,
    }
    body |= {name: value for name, value in values.items() if value is not None}
    truncation = request.extra.get("truncation") or "disabled"
    if truncation != "disabled" and not allows(draft.target, "context_management"):
        draft.drop("truncation")
        truncation = "disabled"
    body |= {"store": False, "truncation": truncation}
    sealed = [SEALED] if OPENAI_MODELS.row(request.model).may_reason else []
    body["include"] = [*(n for n in request.extra.get("include") or () if n != SEALED), *sealed]
    _include(body)
    if not body["include"]:
        del body["include"]
    return body


def _reasoning(request: ChatRequest) -> dict[str, Any] | None:
    settings = dict(request.extra.get("reasoning") or {})
    if (reasoning := request.reasoning) is not None:
        effort = "none" if reasoning.mode == "off" else reasoning.effort
        settings |= {
            n: v for n, v in (("effort", effort), ("summary", reasoning.summary)) if v is not None
        }
    return settings or None


def _write_choice(request: ChatRequest, choice: ToolChoice) -> Any:
    if choice.mode == "tool":
        return _naming(request, choice.name)
    if choice.allowed:
        tools = [_naming(request, name) for name in choice.allowed]
        return {
            "type": "allowed_tools",
            "mode": "required" if choice.mode == "any" else "auto",
            "tools": tools,
        }
    return "required" if choice.mode == "any" else choice.mode


def _naming(request: ChatRequest, name: str) -> dict[str, Any]:
    tool = request.tool(name)
    if tool is None and name.startswith("mcp_"):
        # one tool of a server
        server = next(
            (t for t in request.tools if t.kind == "server" and name.startswith(f"{t.name}.")), None
        )
        if server is not None:
            return {
                "type": "mcp",
                "server_label": server.extra["server_label"],
                "name": name[len(server.name) + 1 :],
            }
    if tool is not None and tool.kind == "server":
        kind = tool.extra["type"]
        return (
            {"type": "mcp", "server_label": tool.extra["server_label"]}
            if kind == "mcp"
            else {"type": kind}
        )
    if (tool is not None and tool.kind == "client") or (tool is None and name in TYPED_NAMES):
        return {"type": str(tool.extra["type"]) if tool is not None else name}
    space = namespace_of(tool)
    named: dict[str, Any] = {"type": tool.kind if tool is not None else "function", "name": name}
    return named | {"name": name.removeprefix(f"{space}."), "namespace": space} if space else named


def _write_format(answer: ResponseFormat | None) -> dict[str, Any]:
    if answer is None:
        return {}
    if answer.mode == "json_object":
        return {"format": {"type": "json_object"}}
    spec: dict[str, Any] = {"type": "json_schema", "name": answer.name, "schema": answer.schema}
    spec |= {} if answer.strict is None else {"strict": answer.strict}
    return {"format": spec | ({"description": answer.description} if answer.description else {})}
