"""A provider that speaks Responses, without a store: what a request does not bring is not there."""

import json
from collections.abc import Iterator

from tests.support.json_values import Json
from tests.support.vendors.checking import (
    cut,
    is_sealed,
    known,
    loaded,
    need,
    seal,
)
from tests.support.vendors.story import Do, Offered, Part, Refused, Result, Say, Seen

_FIELDS = (
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "store",
    "include",
    "reasoning",
    "text",
    "max_output_tokens",
    "max_tool_calls",
    "temperature",
    "top_p",
    "top_logprobs",
    "truncation",
    "metadata",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "background",
    "previous_response_id",
    "context_management",
)
_ITEMS: dict[str, set[str]] = {
    "message": {"type", "id", "role", "content", "status", "phase"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
    "function_call": {"type", "id", "call_id", "name", "arguments", "status", "namespace"},
    "function_call_output": {"type", "id", "call_id", "output", "status"},
}
_USAGE = {
    "input_tokens": 40,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 52,
}


def read(body: Json, _: str) -> Seen:
    """Check and read a request. Raises Refused."""
    known(body, _FIELDS, "")
    need(
        body.get("previous_response_id") is None,
        "Previous response not found.",
        code="previous_response_not_found",
    )
    need(body.get("store") is False, "this provider keeps nothing: store must be false")
    given = body.get("input")
    need(given and isinstance(given, str | list), "Missing required parameter: 'input'.")
    items: list[Json] = (
        [{"role": "user", "content": given}] if isinstance(given, str) else list(given or [])
    )
    seen = Seen(body["model"], bool(body.get("stream")), _offered(body.get("tools") or []), [])
    seen.thinks = "reasoning.encrypted_content" in (body.get("include") or [])
    waiting: dict[str, str] = {}
    done: set[str] = set()
    for number, item in enumerate(items):
        following = items[number + 1] if number + 1 < len(items) else None
        _item(seen, item, following, waiting, done, f"input[{number}]")
    need(
        not set(waiting) - done,
        f"No tool output found for function call {', '.join(set(waiting) - done)}.",
    )
    return seen


def _offered(tools: list[Json]) -> list[Offered]:
    made: list[Offered] = []
    for tool in tools:
        kind = tool.get("type")
        need(
            kind in ("function", "web_search", "custom", "namespace", "tool_search"),
            f"Invalid value: {kind!r} of tools.type",
        )
        if kind == "function":
            known(tool, ("type", "name", "description", "parameters", "strict"), "tools")
            need(
                "strict" in tool,
                "tools.strict: this provider takes no default, which is another one than that of"
                " chat/completions",
            )
            made.append(Offered(tool["name"], tool.get("parameters") or {}))
        elif kind == "namespace":
            known(tool, ("type", "name", "description", "tools"), "tools")
            need(tool["tools"], "a namespace without tools")
    return made


def _item(
    seen: Seen,
    item: Json,
    following: Json | None,
    waiting: dict[str, str],
    done: set[str],
    where: str,
) -> None:
    kind = item.get("type", "message")
    need(kind in _ITEMS, f"Invalid value: {kind!r} of {where}.type")
    known(item, _ITEMS[kind], where)
    if kind == "message":
        _message(seen, item, where)
    elif kind == "reasoning":
        need(
            "id" not in item,
            f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is"
            " set to false.",
            status=404,
        )
        need(
            is_sealed(item.get("encrypted_content")),
            "The encrypted content could not be verified.",
            code="invalid_encrypted_content",
        )
        follows = (following or {}).get(
            "type", "message" if (following or {}).get("role") == "assistant" else ""
        )
        need(
            follows in ("message", "function_call", "reasoning"),
            "Item of type 'reasoning' was provided without its required following item.",
        )
        seen.sealed += 1
    elif kind == "function_call":
        need(item["call_id"] not in waiting, f"Duplicate call_id in {where}")
        loaded(item["arguments"], f"{where}.arguments")
        waiting[item["call_id"]] = item["name"]
        seen.calls.append(item["name"])
    else:
        need(
            item["call_id"] in waiting,
            f"No tool call found for function call output with call_id {item['call_id']}.",
        )
        need(item["call_id"] not in done, f"Two outputs for call_id {item['call_id']}")
        done.add(item["call_id"])
        output = item["output"]
        text = (
            output
            if isinstance(output, str)
            else "\n".join(p["text"] for p in output if p["type"] == "input_text")
        )
        seen.results.append(Result(item["call_id"], text))


def _message(seen: Seen, item: Json, where: str) -> None:
    role = item.get("role")
    need(
        role in ("user", "assistant", "system", "developer"),
        f"Invalid value: {role!r} of {where}.role",
    )
    content = item["content"]
    if isinstance(content, str):
        seen.texts.append(content)
        return
    need(content, f"{where}.content is empty")
    for part in content:
        mine = (
            ("output_text", "refusal")
            if role == "assistant"
            else ("input_text", "input_image", "input_file")
        )
        need(
            part.get("type") in mine,
            f"Invalid value: {part.get('type')!r} of {where}.content.type for the role {role}",
        )
        seen.texts.append(part.get("text", ""))


def _items(seen: Seen, parts: list[Part]) -> list[Json]:
    made: list[Json] = []
    for number, part in enumerate(parts):
        if isinstance(part, Say):
            text = {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}
            made.append(
                {
                    "id": f"msg_up{number}",
                    "type": "message",
                    "status": "completed",
                    "role": "assistant",
                    "content": [text],
                }
            )
        elif isinstance(part, Do):
            call = {"call_id": part.id, "name": part.name, "arguments": json.dumps(part.arguments)}
            made.append(
                {"id": f"fc_up{number}", "type": "function_call", "status": "completed", **call}
            )
        else:
            item: Json = {
                "id": f"rs_up{number}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": part.text}],
            }
            made.append(item | ({"encrypted_content": seal(part.text)} if seen.thinks else {}))
    return made


def _response(seen: Seen, output: list[Json], status: str) -> Json:
    whole = {
        "id": "resp_up7",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": seen.model,
        "output": output,
        "error": None,
    }
    rest: Json = {
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "top_p": 1.0,
    }
    more = {
        "tool_choice": "auto",
        "tools": [],
        "store": False,
        "usage": _USAGE if status == "completed" else None,
    }
    return {**whole, **rest, **more}


def whole(seen: Seen, parts: list[Part]) -> Json:
    """An answer that is not streamed."""
    return _response(seen, _items(seen, parts), "completed")


def frames(seen: Seen, parts: list[Part]) -> Iterator[bytes]:
    """A streamed answer."""
    for number, value in enumerate(_events(seen, parts)):
        yield (
            f"event: {value['type']}\ndata: {json.dumps({**value, 'sequence_number': number})}\n\n".encode()
        )


def _events(seen: Seen, parts: list[Part]) -> Iterator[Json]:
    yield {"type": "response.created", "response": _response(seen, [], "in_progress")}
    yield {"type": "response.in_progress", "response": _response(seen, [], "in_progress")}
    items = _items(seen, parts)
    for index, item in enumerate(items):
        at = {"output_index": index, "item_id": item["id"]}
        empties: dict[str, Json] = {
            "message": {"content": []},
            "function_call": {"arguments": ""},
            "reasoning": {"summary": []},
        }
        started = {**item, **empties[item["type"]]} | (
            {"status": "in_progress"} if "status" in item else {}
        )
        yield {"type": "response.output_item.added", "output_index": index, "item": started}
        yield from {"message": _text, "function_call": _call, "reasoning": _summary}[item["type"]](
            item, at
        )
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": _response(seen, items, "completed")}


def _text(item: Json, at: Json) -> Iterator[Json]:
    part, at = item["content"][0], {**at, "content_index": 0}
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
    for piece in cut(part["text"]):
        yield {
            "type": "response.output_text.delta",
            **at,
            "delta": piece,
            "logprobs": [],
            "obfuscation": "x",
        }
    yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}


def _call(item: Json, at: Json) -> Iterator[Json]:
    for piece in cut(item["arguments"]):
        yield {
            "type": "response.function_call_arguments.delta",
            **at,
            "delta": piece,
            "obfuscation": "x",
        }
    yield {
        "type": "response.function_call_arguments.done",
        **at,
        "name": item["name"],
        "arguments": item["arguments"],
    }


def _summary(item: Json, at: Json) -> Iterator[Json]:
    part, at = item["summary"][0], {**at, "summary_index": 0}
    yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
    for piece in cut(part["text"]):
        yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
    yield {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]}
    yield {"type": "response.reasoning_summary_part.done", **at, "part": part}


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
