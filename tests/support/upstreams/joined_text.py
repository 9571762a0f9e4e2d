"""Streams whose text lies in several blocks and deltas."""

import json

from protocol.bytes.json_strict import dumps
from tests.support.clients.answering import Answer
from tests.support.json_values import Json


def completion(*deltas: Json, finish: str = "stop") -> bytes:
    """A stream of chat/completions."""
    choices: list[Json] = [
        {"index": 0, "delta": d} if "delta" not in d else {"index": 0, **d} for d in deltas
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    return (
        b"".join(
            b"data: " + dumps({"id": "x", "model": "gpt-x", "choices": [c]}) + b"\n\n"
            for c in choices
        )
        + b"data: [DONE]\n\n"
    )


def message(*blocks: Json, pieces: int = 3) -> bytes:
    """A stream of Messages, text in pieces of so many characters."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    frames: list[Json] = [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "usage": usage,
            },
        }
    ]
    for index, block in enumerate(blocks):
        kind = block["type"]
        said = block.get(kind, "") if kind in ("text", "thinking") else ""
        frames.append(
            {
                "type": "content_block_start",
                "index": index,
                "content_block": {**block, kind: ""} if said else block,
            }
        )
        for at in range(0, len(said), pieces):
            frames.append(
                {
                    "type": "content_block_delta",
                    "index": index,
                    "delta": {"type": f"{kind}_delta", kind: said[at : at + pieces]},
                }
            )
        frames.append({"type": "content_block_stop", "index": index})
    frames.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
    frames.append({"type": "message_stop"})
    return b"".join(b"event: %s\ndata: %s\n\n" % (f["type"].encode(), dumps(f)) for f in frames)


def fields(answer: Answer) -> dict[str, str]:
    """What a client that joins all texts of a field reads."""
    read: dict[str, str] = {}
    for line in answer.data.decode().split("\n"):
        data = line.removeprefix("data: ")
        if data == line or data == "[DONE]":
            continue
        frame = json.loads(data)
        for choice in frame.get("choices", ()):
            for name, text in choice["delta"].items():
                if isinstance(text, str) and name != "role":
                    read[name] = read.get(name, "") + text
        if isinstance(delta := frame.get("delta"), str):
            name = {"response.output_text.delta": "text", "response.refusal.delta": "refusal"}.get(
                frame["type"], frame["type"]
            )
            read[name] = read.get(name, "") + delta
            continue
        for name in ("text", "thinking"):
            if isinstance(text := frame.get("delta", {}).get(name), str):
                read[name] = read.get(name, "") + text
    return read
