"""Answers as a Responses provider streams them: every item said in deltas, at its end, and once
more in the last event."""

from collections.abc import Sequence
from typing import Any

from tests.support.json_values import Json, as_json

ITEM = Json


def message(text: str, **more: Any) -> ITEM:
    """A message of one text."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
        **more,
    }


def reasoning(sealed: str, *summaries: str) -> ITEM:
    """Reasoning, encrypted, with what is shown of it."""
    return {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": s} for s in summaries],
        "encrypted_content": sealed,
    }


def function_call(call_id: str, name: str, arguments: str, **more: Any) -> ITEM:
    """A call of the client's function."""
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
        **more,
    }


def response(items: Sequence[ITEM], status: str = "completed", **more: Any) -> Json:
    """The response object."""
    usage = {
        "input_tokens": 30,
        "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 5},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 39,
    }
    made = {
        "id": "resp_up",
        "object": "response",
        "created_at": 1,
        "model": "gpt-up",
        "status": status,
        "error": None,
    }
    return {
        **made,
        "incomplete_details": None,
        "output": numbered(items),
        "usage": usage,
        "parallel_tool_calls": True,
        "tools": [],
        **more,
    }


def numbered(items: Sequence[ITEM]) -> list[ITEM]:
    """The items with ids."""
    return [{"id": f"{item['type'][:2]}_{n}", **item} for n, item in enumerate(items)]


def events(items: Sequence[ITEM], status: str = "completed", **more: Any) -> list[Json]:
    """The events of a stream, two deltas to a text."""
    begun = {**response((), "in_progress"), "usage": None}
    made: list[Json] = [
        {"type": f"response.{word}", "response": begun} for word in ("created", "in_progress")
    ]
    for number, item in enumerate(numbered(items)):
        made += _item(number, item)
    last = "completed" if status == "completed" else status
    made.append({"type": f"response.{last}", "response": response(items, status, **more)})
    return [{**event, "sequence_number": n} for n, event in enumerate(made)]


def _item(number: int, item: ITEM) -> list[Json]:
    at: Json = {"output_index": number, "item_id": item["id"]}
    empty: dict[str, ITEM] = {
        "message": {"content": []},
        "reasoning": {"summary": []},
        "function_call": {"arguments": ""},
        "custom_tool_call": {"input": ""},
    }
    made = [
        {
            "type": "response.output_item.added",
            "output_index": number,
            "item": {**item, **empty.get(item["type"], {})},
        }
    ]
    match item["type"]:
        case "message":
            for place, part in enumerate(item["content"]):
                made += _texts(at | {"content_index": place}, "content_part", "output_text", part)
        case "reasoning":
            for place, part in enumerate(item["summary"]):
                made += _texts(
                    at | {"summary_index": place},
                    "reasoning_summary_part",
                    "reasoning_summary_text",
                    part,
                )
        case "function_call":
            made += _pieces(at, "function_call_arguments", item["arguments"], "arguments")
        case "custom_tool_call":
            made += _pieces(at, "custom_tool_call_input", item["input"], "input")
    return [*made, {"type": "response.output_item.done", "output_index": number, "item": item}]


def _texts(at: Json, part_event: str, text_event: str, part: ITEM) -> list[Json]:
    begun = {**part, "text": ""}
    return [
        {"type": f"response.{part_event}.added", **at, "part": begun},
        *_pieces(at, text_event, part["text"], "text"),
        {"type": f"response.{part_event}.done", **at, "part": part},
    ]


def _pieces(at: Json, event: str, text: str, field: str) -> list[Json]:
    half = len(text) // 2
    deltas = [
        {"type": f"response.{event}.delta", **at, "delta": piece, "obfuscation": "x"}
        for piece in (text[:half], text[half:])
    ]
    return [*deltas, {"type": f"response.{event}.done", **at, field: text}]


def frames(made: Sequence[Json]) -> bytes:
    """Events as they are sent."""
    return b"".join(b"event: %s\ndata: %s\n\n" % (e["type"].encode(), as_json(e)) for e in made)
