"""What an answer is, read from its bytes without a codec: whole, failing in the middle, with a call
that was cut, or an error body."""

import json
from typing import Any, Literal

from tests.support.upstreams.recordings import Recording

Outcome = Literal["whole", "fails", "cut call", "error body"]


def payloads(body: bytes) -> list[tuple[str, Any]]:
    """The events of a stream as names and values; `[DONE]` is a value of its own."""
    found = []
    for part in body.replace(b"\r\n", b"\n").decode().split("\n\n"):
        lines = part.split("\n")
        name = "".join(line[6:].strip() for line in lines if line.startswith("event:"))
        data = "\n".join(line[5:].removeprefix(" ") for line in lines if line.startswith("data:"))
        if data:
            found.append((name, data if data == "[DONE]" else json.loads(data)))
    return found


def outcome_of(recording: Recording) -> Outcome:
    """Return what a client must make of the recording."""
    if not recording.is_stream:
        return "error body" if "error" in json.loads(recording.body) else "whole"
    events = payloads(recording.body)
    return _of_message(events) if recording.dialect == "anthropic" else _of_completion(events)


def _of_message(events: list[tuple[str, Any]]) -> Outcome:
    frames = [frame for _, frame in events]
    kinds = [f["type"] for f in frames]
    ids = {f["message"]["id"] for f in frames if f["type"] == "message_start"}
    if "error" in kinds or "message_stop" not in kinds or len(ids) != 1:
        return "fails"
    texts: dict[int, str] = {}
    calls = {
        f["index"]
        for f in frames
        if f["type"] == "content_block_start" and f["content_block"]["type"] == "tool_use"
    }
    for frame in frames:
        if frame["type"] == "content_block_delta" and frame["index"] in calls:
            texts[frame["index"]] = texts.get(frame["index"], "") + frame["delta"].get(
                "partial_json", ""
            )
    return "whole" if all(map(_is_json, texts.values())) else "cut call"


def _of_completion(events: list[tuple[str, Any]]) -> Outcome:
    values = [value for _, value in events if value != "[DONE]"]
    if any(name == "error" for name, _ in events) or any(v.get("error") for v in values):
        return "fails"
    return (
        "whole"
        if any(c.get("finish_reason") for v in values for c in v.get("choices") or ())
        else "fails"
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text or "{}")
    except ValueError:
        return False
    return True
