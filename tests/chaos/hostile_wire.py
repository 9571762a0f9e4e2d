"""How a hostile answer lies on the wire: as chat/completions and the Messages API have it, streamed
or whole."""

import json
from typing import Any

from tests.support.json_values import Json, as_json

Answer = list[tuple[str, Json]]
"""The parts of an answer in order: (`text`, {"pieces"}), (`thinking`, {"text", "signature"}),
(`call`, {"id", "name", "arguments"}) or (`raw`, {"frames"}).

`pieces` are the deltas of one text block, `arguments` is JSON text or what should be; `frames`
stand before all others, as they are.
"""


def in_openai(said: Answer, *, stream: bool) -> bytes:
    """An answer as chat/completions has it."""
    deltas: list[Json] = [{"role": "assistant"}]
    calls: list[Json] = []
    for kind, what in said:
        if kind == "text":
            deltas += [{"content": piece} for piece in what["pieces"]]
        elif kind == "thinking":
            details = [
                {
                    "type": "reasoning.text",
                    "index": 0,
                    "text": what["text"],
                    "signature": what["signature"],
                }
            ]
            deltas.append({"reasoning": what["text"], "reasoning_details": details})
        elif kind == "call":
            call = {
                "id": what["id"],
                "type": "function",
                "function": {"name": what["name"], "arguments": what["arguments"]},
            }
            calls.append(call)
            deltas.append({"tool_calls": [{"index": len(calls) - 1, **call}]})
    stop = "tool_calls" if calls else "stop"
    head = {"id": "chatcmpl-hostile", "created": 1, "model": "hostile"}
    if not stream:
        message: Json = {
            "role": "assistant",
            "content": "".join(delta.get("content", "") for delta in deltas),
        }
        for delta in deltas:
            message |= {key: value for key, value in delta.items() if key.startswith("reasoning")}
        message |= {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "message": message, "finish_reason": stop}
        return as_json(head | {"object": "chat.completion", "choices": [choice]})
    choices: list[Json] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": stop})
    frames = _raw(said)
    frames += [
        f"data: {json.dumps(head | {'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"
        for choice in choices
    ]
    return "".join([*frames, "data: [DONE]\n\n"]).encode()


def in_anthropic(said: Answer, *, stream: bool) -> bytes:
    """An answer as the Messages API has it."""
    stop = "tool_use" if any(kind == "call" for kind, _ in said) else "end_turn"
    head = {
        "id": "msg_hostile",
        "type": "message",
        "role": "assistant",
        "model": "hostile",
        "stop_sequence": None,
    }
    usage = {"input_tokens": 1, "output_tokens": 1}
    frames, said = _raw(said), [(kind, what) for kind, what in said if kind != "raw"]
    if not stream:
        blocks = [_whole(kind, what) for kind, what in said]
        return as_json(head | {"content": blocks, "stop_reason": stop, "usage": usage})
    events: list[Json] = [
        {
            "type": "message_start",
            "message": head | {"content": [], "stop_reason": None, "usage": usage},
        }
    ]
    for index, (kind, what) in enumerate(said):
        block, deltas = _streamed(kind, what)
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": usage,
        }
    )
    events.append({"type": "message_stop"})
    return "".join(
        [*frames, *(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)]
    ).encode()


def _raw(said: Answer) -> list[str]:
    return [what["frames"] for kind, what in said if kind == "raw"]


def _whole(kind: str, what: Json) -> Json:
    if kind == "text":
        return {"type": "text", "text": "".join(what["pieces"])}
    if kind == "thinking":
        return {"type": "thinking", "thinking": what["text"], "signature": what["signature"]}
    return {
        "type": "tool_use",
        "id": what["id"],
        "name": what["name"],
        "input": _value(what["arguments"]),
    }


def _streamed(kind: str, what: Json) -> tuple[Json, list[Json]]:
    """The block as it starts, and its deltas."""
    if kind == "text":
        return {"type": "text", "text": ""}, [
            {"type": "text_delta", "text": piece} for piece in what["pieces"]
        ]
    if kind == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": what["text"]},
            {"type": "signature_delta", "signature": what["signature"]},
        ]
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    block = {"type": "tool_use", "id": what["id"], "name": what["name"], "input": {}}
    return block, [{"type": "input_json_delta", "partial_json": what["arguments"]}]


def _value(arguments: str) -> Any:
    """Arguments as a value; what is none of Python's is given as text."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return {"command": arguments}
