"""Messages requests written for a provider of this dialect (docs/change/protocol.md 1.1, 1.2)."""

from typing import Any

import msgspec

from protocol.bytes.json_strict import dumps
from protocol.dialects.anthropic import options_write as anthropic_options_write
from protocol.dialects.anthropic.key_permissions import apply
from protocol.dialects.anthropic.messages_write import MessageWriter
from protocol.dialects.anthropic.models import MODELS
from protocol.dialects.anthropic.options_write import DEFAULT_MAX_TOKENS, thinks_by_budget
from protocol.dialects.anthropic.read import result_text
from protocol.dialects.anthropic.tools_write import ToolPart, write_tools
from protocol.dialects.anthropic.wire import UNSIGNED
from protocol.dialects.turns_write import read_input
from protocol.request import (
    ChatRequest,
    OtherPart,
    Part,
    TextPart,
    Tool,
    ToolResultPart,
    ToolUsePart,
    Turn,
    loop_start,
)
from protocol.requests import fields
from protocol.requests.fields import invalid
from protocol.requests.names import NameForm, names_of
from protocol.requests.neutral import NeutralRequest
from protocol.target import RequestNotes, Restore, Target, Translated

_NAMES = NameForm(longest=128, is_hashed=False)


def encode(
    request: ChatRequest | NeutralRequest, target: Target, *, changed: bool = True
) -> Translated:
    """Write the request for a Messages provider. Raises InvalidRequest naming what it cannot say or
    the key may not use."""
    if isinstance(request, ChatRequest):
        return _encode_same(RequestNotes(request=request, target=target), changed=changed)
    draft = RequestNotes(request=request.request, target=target, words=request.words)
    body, restore = _crossed(draft, request)
    apply(draft, body)
    return Translated(
        body=dumps(body), restore=restore, dropped=tuple(draft.dropped), betas=tuple(draft.betas)
    )


def _crossed(draft: RequestNotes, neutral: NeutralRequest) -> tuple[dict[str, Any], Restore]:
    request, row = draft.request, MODELS.row(draft.request.model)
    names = names_of(request, _NAMES)
    writer = MessageWriter(draft, neutral, row, names)
    body: dict[str, Any] = {"model": request.model, **anthropic_options_write.write_extra(draft)}
    anthropic_options_write.write_thinking(draft, row, body)
    system, body["messages"] = writer.system(), writer.turns()
    if not body["messages"]:
        if not system:
            invalid("messages has no content for this model's provider", "messages")
        # the API wants a message of the user's; chat/completions does not
        body["messages"] = [{"role": "user", "content": [system.pop()]}]
    part = write_tools(draft, row, names, thinks_by_budget=thinks_by_budget(body))
    _add_tools(body, part)
    writer.limit_marks(sum("cache_control" in tool for tool in part.tools))
    if part.instruction:
        system.append({"type": "text", "text": part.instruction})
    if system:
        body["system"] = system
    if request.stream:
        body["stream"] = True
    anthropic_options_write.write_sampling(draft, row, body)
    anthropic_options_write.write_account(draft, body)
    if draft.target.container:
        body["container"] = draft.target.container
    return body, Restore(names=names.changed(), json_tool=part.json_tool)


def _add_tools(body: dict[str, Any], part: ToolPart) -> None:
    if part.tools:
        body["tools"] = part.tools
        if part.choice:
            body["tool_choice"] = part.choice
    if part.output_format:
        body["output_config"] = {**body.get("output_config", {}), "format": part.output_format}


def _encode_same(draft: RequestNotes, *, changed: bool) -> Translated:
    target, request = draft.target, _signed(draft)
    changed = changed or request is not draft.request
    body: dict[str, Any] = dict(request.extra)
    original = body.pop("system", None)
    # where nothing changes the messages go out as they came, and here they are only looked at
    body |= {
        "model": request.model,
        "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS,
        "messages": _turns(request, read=changed),
    }
    if any(map(str.strip, request.system)):
        unchanged = isinstance(original, list) and [p["text"] for p in original] == list(
            request.system
        )
        body["system"] = (
            original
            if unchanged
            else [{"type": "text", "text": text} for text in request.system if text.strip()]
        )
    if offered := _offered(request):
        body["tools"] = [_write_tool(t) for t in offered]
        if choice := _write_choice(request):
            body["tool_choice"] = choice
    if request.response_format is not None and not body.keys() & {"output_config", "output_format"}:
        # of a request that is made here: a client's has it among its own fields
        body["output_config"] = {
            "format": {"type": "json_schema", "schema": request.response_format.schema}
        }
    if request.stream:
        body["stream"] = True
    for name, value in (
        ("temperature", request.temperature),
        ("top_p", request.top_p),
        ("stop_sequences", list(request.stop) or None),
    ):
        if value is not None:
            body[name] = value
    if target.container and not body.get("container"):
        body["container"] = target.container
        changed = True
        body["messages"] = _turns(request, read=True)
    if apply(draft, body) and not changed:
        changed = True
        body["messages"] = _turns(request, read=True)
    written = dumps(body) if changed else None
    return Translated(body=written, dropped=tuple(draft.dropped), betas=tuple(draft.betas))


def _signed(draft: RequestNotes) -> ChatRequest:
    """Leave out thinking that no provider of this dialect signed: a Claude model refuses it, and a
    tool loop without its thinking."""
    request = draft.request
    unsigned = (UNSIGNED,) if MODELS.row(request.model).models == ("*",) else (UNSIGNED, "")
    turns: list[Turn] = []
    start, is_off = loop_start(request.turns), False
    for position, turn in enumerate(request.turns):
        parts = tuple(p for p in turn.parts if not _is_thinking(p, unsigned))
        if len(parts) < len(turn.parts):
            is_off = is_off or position >= start
            turn = msgspec.structs.replace(turn, parts=parts)
            draft.drop("messages[].thinking")
        turns += [turn] if parts else []
    if not draft.dropped:
        return request
    if is_off and "thinking" in request.extra:
        draft.drop("thinking")
        request = msgspec.structs.replace(
            request, extra=fields.exclude_known(request.extra, "thinking")
        )
    return msgspec.structs.replace(request, turns=tuple(turns))


def _is_thinking(part: Part, signatures: tuple[str, ...]) -> bool:
    return (
        isinstance(part, OtherPart)
        and part.kind == "thinking"
        and part.body.get("signature", "") in signatures
    )


def _turns(request: ChatRequest, *, read: bool) -> list[dict[str, Any]]:
    return [
        {"role": t.role, "content": [_write_part(p, read=read) for p in t.parts], **t.extra}
        for t in request.turns
    ]


def _write_part(part: Part, *, read: bool) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text, **part.extra}
        case ToolUsePart():
            value = {"input": read_input(part.id, part.arguments)} if read else {}
            return {"type": "tool_use", "id": part.id, "name": part.name, **value, **part.extra}
        case ToolResultPart():
            return _write_result(part)
        case OtherPart(dialect="anthropic"):
            return part.body
        case _:
            invalid(f"a {part.kind} part cannot be sent to this model's provider", "messages")


def _write_result(part: ToolResultPart) -> dict[str, Any]:
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": part.tool_call_id,
        "content": part.text,
    }
    if part.is_error:
        block["is_error"] = True
    original = part.extra.get("content")
    unchanged = isinstance(original, list) and result_text(original, "") == part.text
    return block | (part.extra if unchanged else fields.exclude_known(part.extra, "content"))


def _write_tool(tool: Tool) -> dict[str, Any]:
    if tool.extra.get("type", "custom") not in ("custom", None):
        return tool.extra
    schema = tool.schema or {"type": "object", "properties": {}}
    description = {"description": tool.description} if tool.description else {}
    return {
        "name": tool.name,
        "input_schema": {"type": "object", **schema},
        **description,
        **tool.extra,
    }


def _offered(request: ChatRequest) -> list[Tool]:
    """The tools that may be called: the dialect has no word for some of them, which only a policy
    asks for here."""
    choice = request.tool_choice
    if choice is None or not choice.allowed:
        return list(request.tools)
    if missing := set(choice.allowed) - {t.name for t in request.tools}:
        invalid(
            f"tool_choice names {min(missing)[:60]!r}, which is not among the tools", "tool_choice"
        )
    return [t for t in request.tools if t.name in choice.allowed]


def _write_choice(request: ChatRequest) -> dict[str, Any] | None:
    choice = request.tool_choice
    if choice is None and request.parallel_tool_calls is not False:
        return None
    body: dict[str, Any] = {"type": choice.mode if choice else "auto"}
    if choice is not None and choice.mode == "tool":
        body["name"] = choice.name
    if request.parallel_tool_calls is False and body["type"] != "none":
        body["disable_parallel_tool_use"] = True
    return body
