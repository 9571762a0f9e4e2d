"""What the official SDK makes of an answer of Responses, in each way in which applications take
one, as plain values."""

import json
from collections.abc import Sequence
from typing import Any, Literal

import openai

from tests.support.clients.sdk_answers import sent
from tests.support.json_values import Json

ResponsesWay = Literal["iterate", "helper", "create"]
RESPONSES_WAYS: dict[bool, tuple[ResponsesWay, ...]] = {
    True: ("iterate", "helper"),
    False: ("create",),
}
"""By whether the answer is streamed."""
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}


def tell_response(
    client: openai.OpenAI, way: ResponsesWay, model: str, custom: Sequence[str] = ()
) -> Json:
    """Ask and return the response that the application holds at the end, with `problems` of the way
    to it. Raises the SDK's errors.

    `custom`: names of free-form tools to offer.
    """
    ask: Any = {"model": model, "input": "go on"} | (
        {"tools": [{"type": "custom", "name": name} for name in custom]} if custom else {}
    )
    if way == "create":
        return sent(client.responses.create(**ask))
    if way == "helper":
        with client.responses.stream(**ask) as events:
            return _helped(events)
    with client.responses.create(stream=True, **ask) as raw:
        return _iterated(raw)


def _helped(events: Any) -> Json:
    last: Json = {}
    for event in events:
        if event.type in ("response.incomplete", "response.failed"):
            last = sent(event)["response"]
    # of any other end than `completed` the helper has no response, whoever answers
    return last or sent(events.get_final_response())


def _iterated(events: Any) -> Json:
    """An application's own loop, which takes each item when it is done."""
    problems: list[str] = []
    items: list[Json] = []
    open_items: dict[int, str] = {}
    deltas: dict[int, str] = {}
    last: Json = {}
    for number, event in enumerate(events):
        told = sent(event)
        if event.sequence_number != number:
            problems.append(f"sequence_number {event.sequence_number} where {number} is next")
        if last:
            problems.append(f"{event.type} after the end")
        match event.type:
            case "response.created":
                if number:
                    problems.append("response.created in the middle")
            case "response.output_item.added":
                if event.output_index != len(items) or open_items:
                    problems.append(
                        f"item {event.output_index} where {len(items)} is next, or one is open"
                    )
                open_items = {event.output_index: told["item"]["id"]}
            case "response.output_item.done":
                if open_items.pop(event.output_index, None) != told["item"]["id"]:
                    problems.append(f"end of item {event.output_index}, which is not open")
                items.append(told["item"])
            case "response.output_text.delta" | "response.function_call_arguments.delta":
                if open_items.get(event.output_index) != event.item_id:
                    problems.append(f"{event.type} for an item that is not open")
                deltas[event.output_index] = deltas.get(event.output_index, "") + event.delta
            case "response.completed" | "response.incomplete" | "response.failed":
                last = told["response"]
    if not last:
        problems.append("no end")
        return {"output": items, "problems": problems}
    if last["output"] != items:
        problems.append("the last event has other items than were done")
    for index, text in deltas.items():
        if index >= len(items) or text != _said(items[index]):
            problems.append(f"the deltas of item {index} are not what it has at its end")
    return last | {"problems": problems}


def _said(item: Json) -> str:
    if item["type"] in _CALLS:
        text: str = item[_CALLS[item["type"]]]
        return text
    return "".join(part.get("text", "") for part in item.get("content", []))


def response_facts(response: Json) -> Json:
    """Text, thinking, calls, reason to stop and tokens of a response."""
    items = response["output"]
    usage = response.get("usage") or {}
    thoughts = [
        p["text"]
        for i in items
        if i["type"] == "reasoning"
        for p in [*(i.get("summary") or ()), *(i.get("content") or ())]
    ]
    return {
        "text": "".join(
            p.get("text", "") for i in items if i["type"] == "message" for p in i["content"]
        ),
        "thinking": "".join(thoughts),
        "calls": [call for item in items if (call := _call(item))],
        "ids": [i["call_id"] for i in items if i.get("call_id") and _call(i)],
        "stop": _stop(response),
        "tokens": (
            usage.get("input_tokens"),
            usage.get("output_tokens"),
            (usage.get("input_tokens_details") or {}).get("cached_tokens"),
        ),
        "items": [i["type"] for i in items],
    }


def _stop(response: Json) -> tuple[str, str]:
    """Status and reason. A refusal in words is one, whatever the status."""
    parts = [
        part for item in response["output"] if item["type"] == "message" for part in item["content"]
    ]
    if any(part["type"] == "refusal" for part in parts):
        return "incomplete", "content_filter"
    return response["status"], (response.get("incomplete_details") or {}).get("reason") or ""


def _call(item: Json) -> tuple[str, Any] | None:
    """Name and arguments of a call that the client is to run; of one with a type of its own the
    item's word."""
    if item["type"] == "function_call":
        return item["name"], json.loads(item["arguments"])
    if item["type"] == "custom_tool_call":
        return item["name"], {"input": item["input"]}
    if item["type"] == "apply_patch_call":
        return "apply_patch", item["operation"]
    if item["type"] == "tool_search_call" and item.get("execution") == "client":
        return "tool_search", item["arguments"]
    return None
