"""A provider that speaks chat/completions."""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.json_values import Json, as_json
from tests.support.vendors.checking import (
    cut,
    known,
    loaded,
    need,
)
from tests.support.vendors.story import Do, Offered, Part, Refused, Result, Say, Seen

_FIELDS = (
    "model",
    "messages",
    "tools",
    "tool_choice",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "stop",
    "n",
    "seed",
    "user",
    "metadata",
    "store",
    "response_format",
    "parallel_tool_calls",
    "reasoning_effort",
    "verbosity",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "logprobs",
    "top_logprobs",
    "presence_penalty",
    "frequency_penalty",
)
_MESSAGE = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "refusal", "audio"},
    "tool": {"role", "content", "tool_call_id"},
}
_USAGE = {"prompt_tokens": 40, "completion_tokens": 12, "total_tokens": 52}


def read(body: Json, _: str) -> Seen:
    """Check and read a request. Raises Refused."""
    known(body, _FIELDS, "")
    need(isinstance(body.get("model"), str), "you must provide a model parameter")
    messages = body.get("messages")
    need(isinstance(messages, list) and messages, "'messages' must be a non-empty array")
    seen = Seen(
        body["model"], bool(body.get("stream")), [_offered(t) for t in body.get("tools") or []], []
    )
    need("tools" not in body or body["tools"], "[] is too short - 'tools'")
    need(
        "tool_choice" not in body or seen.offered,
        "'tool_choice' is only allowed when 'tools' are specified.",
    )
    waiting: list[str] = []
    for number, message in enumerate(body["messages"]):
        waiting = _message(seen, message, waiting, f"messages[{number}]")
    need(
        not waiting,
        "An assistant message with 'tool_calls' must be followed by tool messages. No response"
        f" for: {', '.join(waiting)}",
    )
    return seen


def _offered(tool: Json) -> Offered:
    need(
        tool.get("type") in ("function", "custom"),
        f"Invalid value: {tool.get('type')!r} of tools.type",
    )
    if tool["type"] == "custom":
        known(tool["custom"], ("name", "description", "format"), "tools.custom")
        return Offered(tool["custom"]["name"], {})
    function = tool["function"]
    known(function, ("name", "description", "parameters", "strict"), "tools.function")
    return Offered(function["name"], function.get("parameters") or {})


def _message(seen: Seen, message: Json, waiting: list[str], where: str) -> list[str]:
    role: Any = message.get("role")
    need(role in _MESSAGE, f"Invalid value: {role!r} of {where}.role")
    known(message, _MESSAGE[role], where)
    if role == "tool":
        need(
            message.get("tool_call_id") in waiting,
            "messages with role 'tool' must be a response to a preceding message with"
            " 'tool_calls'.",
        )
        seen.results.append(Result(message["tool_call_id"], _text(message["content"], where)))
        return [w for w in waiting if w != message["tool_call_id"]]
    need(
        not waiting,
        f"'tool_calls' must be followed by tool messages. No response for: {', '.join(waiting)}",
    )
    calls = message.get("tool_calls")
    need(calls is None or calls, f"[] is too short - '{where}.tool_calls'")
    need(
        message.get("content") is not None or calls,
        f"Invalid value for 'content' of {where}: expected a string, got null.",
    )
    if message.get("content") is not None:
        seen.texts.append(_text(message["content"], where))
    for call in calls or []:
        need(call.get("type") == "function", f"{where}.tool_calls.type")
        loaded(call["function"]["arguments"], f"{where}.arguments")
        seen.calls.append(call["function"]["name"])
    ids = [call["id"] for call in calls or []]
    need(len({*ids}) == len(ids), f"duplicate ids in {where}")
    return ids


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    need(
        isinstance(content, list) and content,
        f"{where}.content must be a string or a non-empty array",
    )
    need(
        all(p.get("type") in ("text", "image_url") for p in content),
        f"{where}.content: unknown part",
    )
    return "\n".join(p["text"] for p in content if p["type"] == "text")


def whole(seen: Seen, parts: list[Part]) -> Json:
    """An answer that is not streamed."""
    calls = [_call(p) for p in parts if isinstance(p, Do)]
    message: Json = {
        "role": "assistant",
        "content": "".join(p.text for p in parts if isinstance(p, Say)) or None,
        "refusal": None,
    }
    if calls:
        message["tool_calls"] = calls
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if calls else "stop",
        "logprobs": None,
    }
    return {
        "id": "chatcmpl-7",
        "object": "chat.completion",
        "created": 1,
        "model": seen.model,
        "choices": [choice],
        "usage": _USAGE,
    }


def _call(part: Do) -> Json:
    return {
        "id": part.id,
        "type": "function",
        "function": {"name": part.name, "arguments": json.dumps(part.arguments)},
    }


def frames(seen: Seen, parts: list[Part]) -> Iterator[bytes]:
    """A streamed answer."""
    yield _frame(seen, {"role": "assistant", "content": ""})
    number = 0
    for part in parts:
        if isinstance(part, Say):
            for piece in cut(part.text):
                yield _frame(seen, {"content": piece})
        elif isinstance(part, Do):
            head = _call(part)
            text, head["function"]["arguments"] = head["function"]["arguments"], ""
            yield _frame(seen, {"tool_calls": [{"index": number, **head}]})
            for piece in cut(text):
                yield _frame(
                    seen, {"tool_calls": [{"index": number, "function": {"arguments": piece}}]}
                )
            number += 1
    yield _frame(seen, {}, "tool_calls" if number else "stop")
    yield _data(
        {
            "id": "chatcmpl-7",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": seen.model,
            "choices": [],
            "usage": _USAGE,
        }
    )
    yield b"data: [DONE]\n\n"


def _frame(seen: Seen, delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return _data(
        {
            "id": "chatcmpl-7",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": seen.model,
            "choices": [choice],
        }
    )


def _data(value: Json) -> bytes:
    return b"data: " + as_json(value) + b"\n\n"


def error(refused: Refused) -> Json:
    """The body of an error."""
    return {
        "error": {
            "message": refused.message,
            "type": "invalid_request_error",
            "param": None,
            "code": refused.code or None,
        }
    }
