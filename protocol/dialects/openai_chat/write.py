"""chat/completions requests written for a provider of this dialect (docs/change/protocol.md 1.1,
1.10).

A request that came in this dialect goes out with every field as it came but those that a policy
changed; one that crosses is written field by field.
"""

from collections.abc import Sequence, Set
from typing import Any

import msgspec

from protocol.bytes.json_strict import dumps, loads_arguments
from protocol.dialects.models import OPENAI_MODELS, OpenAiModelRow
from protocol.dialects.openai_chat import key_permissions
from protocol.dialects.openai_chat.messages_read import result_text
from protocol.dialects.openai_chat.writing.messages_write import MessageWriter
from protocol.dialects.openai_chat.writing.options_write import write_options
from protocol.dialects.openai_chat.writing.tools_write import added_search, write_tools
from protocol.request import (
    ChatRequest,
    OtherPart,
    Part,
    ResponseFormat,
    TextPart,
    Tool,
    ToolChoice,
    ToolResultPart,
    ToolUsePart,
)
from protocol.requests import fields
from protocol.requests.fields import invalid
from protocol.requests.names import names_of
from protocol.requests.neutral import NeutralRequest
from protocol.server_tools.data import table
from protocol.target import RequestNotes, Restore, Target, Translated


def encode(
    request: ChatRequest | NeutralRequest, target: Target, changed: bool = True
) -> Translated:
    """Write the request for a chat/completions provider. Raises InvalidRequest naming what it
    cannot say or the key may not use."""
    if isinstance(request, NeutralRequest):
        return _crossed(request, target)
    draft = RequestNotes(request=request, target=target)
    row = OPENAI_MODELS.row(request.model)
    search = added_search(draft, row)
    key_permissions.check(request, target)
    known = _without_unknown(draft)
    request, changed = known, changed or known is not request
    if not changed and (search is None or request.web_search is not None):
        return Translated(body=None)
    body = _same({} if search is None else {"web_search_options": search}, request, row)
    return Translated(body=dumps(body), dropped=tuple(draft.dropped))


def _crossed(neutral: NeutralRequest, target: Target) -> Translated:
    request = neutral.request
    draft = RequestNotes(request=request, target=target, words=neutral.words)
    row = OPENAI_MODELS.row(request.model)
    key_permissions.check_model(request)
    search, names = added_search(draft, row), names_of(request)
    body: dict[str, Any] = {
        "model": request.model,
        "messages": MessageWriter(draft, neutral, row, names).messages(),
    }
    body |= write_options(draft, row) | write_tools(draft, row, names)
    if search is not None:
        body.setdefault("web_search_options", search)
    return Translated(
        body=dumps(body), restore=Restore(names=names.changed()), dropped=tuple(draft.dropped)
    )


def _without_unknown(draft: RequestNotes) -> ChatRequest:
    """Leave out parameters that are not known: one server's next one may choose where a request
    goes, or what is kept of it."""
    request, known = draft.request, table()
    gone = [
        n
        for n in request.extra
        if n not in known.known_openai and n not in known.parameters["openai"]
    ]
    gone = [n for n in gone if f"parameter {n}" not in draft.target.unknown]
    if not gone:
        return request
    for name in gone:
        draft.drop(name[:60])
    left = request.extra.keys() - gone
    return msgspec.structs.replace(
        request, extra={n: v for n, v in request.extra.items() if n in left}
    )


def _same(added: dict[str, Any], request: ChatRequest, row: OpenAiModelRow) -> dict[str, Any]:
    body: dict[str, Any] = (
        added | request.extra | {"model": request.model, "messages": _messages(request, row)}
    )
    if request.tools and request.legacy_functions:
        body["functions"] = [_write_tool(t)["function"] for t in request.tools]
        if (choice := request.tool_choice) is not None:
            body["function_call"] = {"name": choice.name} if choice.mode == "tool" else choice.mode
    elif request.tools:
        body["tools"] = [_write_tool(t) for t in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _write_choice(request, request.tool_choice)
        if request.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.parallel_tool_calls
    if request.stream:
        options = body.get("stream_options") or {}
        body |= {"stream": True, "stream_options": {**options, "include_usage": True}}
    if request.max_tokens is not None:
        body["max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"] = (
            request.max_tokens
        )
    effort = request.reasoning.effort if request.reasoning is not None else None
    values: dict[str, Any] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "user": request.user,
    }
    values |= {
        "stop": list(request.stop) or None,
        "reasoning_effort": effort,
        "web_search_options": request.web_search,
    }
    body |= {name: value for name, value in values.items() if value is not None}
    if request.response_format is not None:
        body["response_format"] = _write_format(request.response_format)
    return body


def _messages(request: ChatRequest, row: OpenAiModelRow) -> list[dict[str, Any]]:
    role = "developer" if row.developer else "system"
    texts = request.system
    if not row.vendor and len(request.system_messages) != len(texts):
        # something was added, and templates of models take one system message
        texts = tuple(filter(None, ("\n\n".join(filter(str.strip, texts)),)))
    originals = (
        request.system_messages
        if len(request.system_messages) == len(texts)
        else ({},) * len(texts)
    )
    messages = [
        _write_system(role, text, original) for text, original in zip(texts, originals, strict=True)
    ]
    for turn in request.turns:
        match turn.role:
            case "system":
                messages.append({"role": role, "content": _plain(turn.parts), **turn.extra})
            case "user":
                _write_user(turn.parts, turn.extra, messages)
            case _:
                messages.append(_write_assistant(turn.parts, turn.extra))
    return messages


def _write_system(role: str, text: str, original: dict[str, Any]) -> dict[str, Any]:
    """Return the message as it came, where its text is still the same."""
    content = original.get("content")
    same = content == text or (
        isinstance(content, list) and "".join(p["text"] for p in content) == text
    )
    return original if same else {"role": original.get("role", role), "content": text}


def _plain(parts: Sequence[Part]) -> str:
    return "".join(p.text for p in parts if isinstance(p, TextPart))


def _write_user(
    parts: Sequence[Part], extra: dict[str, Any], messages: list[dict[str, Any]]
) -> None:
    # the dialect wants all results before anything else of their turn
    messages += [_write_result(p) for p in parts if isinstance(p, ToolResultPart)]
    other_parts = [_write_part(p) for p in parts if not isinstance(p, ToolResultPart)]
    if other_parts or not parts:
        messages.append({"role": "user", "content": _simple(other_parts), **extra})


def _simple(parts: list[dict[str, Any]]) -> Any:
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts


def _write_result(part: ToolResultPart) -> dict[str, Any]:
    message: dict[str, Any] = (
        {"role": "tool", "tool_call_id": part.tool_call_id}
        if part.form != "legacy"
        else {"role": "function"}
    )
    original = part.extra.get("content")
    text = result_text(original, "") if isinstance(original, list) else ""
    unchanged = "content" in part.extra and text == part.text
    # only a policy says so here: the dialect has no word for it
    text = f"[error] {part.text}" if part.is_error else part.text
    return (
        message
        | {"content": text}
        | (
            part.extra
            if unchanged and not part.is_error
            else fields.exclude_known(part.extra, "content")
        )
    )


def _write_part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text, **part.extra}
        case OtherPart(dialect="openai"):
            return part.body
        case OtherPart():
            invalid(f"a {part.kind} block cannot be sent to this model's provider", "messages")
        case _:
            invalid(
                f"a {part.__struct_config__.tag} block is in a turn that cannot hold it", "messages"
            )


def _write_assistant(parts: Sequence[Part], extra: dict[str, Any]) -> dict[str, Any]:
    calls = [_write_call(p) for p in parts if isinstance(p, ToolUsePart) and p.form != "legacy"]
    legacy = next((p for p in parts if isinstance(p, ToolUsePart) and p.form == "legacy"), None)
    other_parts = [
        _write_part(p) for p in parts if not isinstance(p, ToolUsePart) and not _is_seal(p)
    ]
    content: Any = (
        _simple(other_parts) if other_parts else (None if calls or legacy or extra else "")
    )
    message: dict[str, Any] = {"role": "assistant", "content": content, **extra}
    for part in parts:
        if isinstance(part, OtherPart) and _is_seal(part):
            message |= part.body
    if legacy is not None:
        message["function_call"] = {
            "name": legacy.name,
            "arguments": legacy.arguments,
            **legacy.extra,
        }
    if calls:
        message["tool_calls"] = calls
    return message


def _is_seal(part: Part) -> bool:
    """Is it what seals an answer that its client never had? A client's own part has a type."""
    return isinstance(part, OtherPart) and part.kind == "sealed_message" and "type" not in part.body


def _write_call(part: ToolUsePart) -> dict[str, Any]:
    if part.form == "custom":
        custom = {"name": part.name, "input": loads_arguments(part.arguments)["input"]}
        return {"id": part.id, "type": "custom", "custom": custom, **part.extra}
    function = {"name": part.name, "arguments": part.arguments or "{}"}
    return {"id": part.id, "type": "function", "function": function, **part.extra}


def _write_tool(tool: Tool) -> dict[str, Any]:
    if tool.kind in ("server", "client"):
        return tool.extra
    described = {"description": tool.description} if tool.description else {}
    if tool.kind == "custom":
        return {
            "type": "custom",
            "custom": {"name": tool.name, **described, **tool.extra},
            **tool.outer,
        }
    parameters = {"parameters": tool.schema} if tool.schema else {}
    return {
        "type": "function",
        "function": {"name": tool.name, **described, **parameters, **tool.extra},
        **tool.outer,
    }


def _write_choice(request: ChatRequest, choice: ToolChoice) -> Any:
    custom = {t.name for t in request.tools if t.kind == "custom"}
    if choice.mode == "tool":
        return _naming(custom, choice.name)
    if choice.allowed:
        mode = "required" if choice.mode == "any" else "auto"
        return {
            "type": "allowed_tools",
            "allowed_tools": {"mode": mode, "tools": [_naming(custom, n) for n in choice.allowed]},
        }
    return "required" if choice.mode == "any" else choice.mode


def _naming(custom: Set[str], name: str) -> dict[str, Any]:
    kind = "custom" if name in custom else "function"
    return {"type": kind, kind: {"name": name}}


def _write_format(answer: ResponseFormat) -> dict[str, Any]:
    if answer.mode == "json_object":
        return {"type": "json_object"}
    values = {
        "name": answer.name,
        "description": answer.description or None,
        "schema": answer.schema or None,
        "strict": answer.strict,
    }
    return {
        "type": "json_schema",
        "json_schema": {k: v for k, v in values.items() if v is not None},
    }
