"""Is what a client gets in the order that its dialect prescribes?"""

import json
from itertools import pairwise

from tests.support.json_values import Json

_ENDS = ("message_stop", "error")


def read_frames(data: bytes) -> list[Json]:
    """The frames of a stream of Messages or Responses; each must have its `event:` line, naming its
    type, behind comments if any."""
    frames = []
    for part in data.decode().split("\n\n")[:-1]:
        lines = [line for line in part.split("\n") if not line.startswith(":")]
        name, body = lines[0], "\n".join(lines[1:])
        frame = json.loads(body.removeprefix("data: "))
        assert name == f"event: {frame['type']}"
        frames.append(frame)
    return frames


def check_messages_frames(data: bytes) -> None:
    """Assert: one start, dense indices, one block open at a time, deltas only for it, usage,
    exactly one end and nothing after it."""
    frames = [f for f in read_frames(data) if f["type"] != "ping"]
    assert [f["type"] for f in frames].count("message_start") == 1
    assert frames[0]["type"] == "message_start"
    assert frames[0]["message"]["content"] == []
    assert sum(f["type"] in _ENDS for f in frames) == 1
    assert frames[-1]["type"] in _ENDS
    count, is_open = 0, False
    for number, frame in enumerate(frames[1:], 1):
        match frame["type"]:
            case "content_block_start":
                assert not is_open
                assert frame["index"] == count
                count, is_open = count + 1, True
            case "content_block_delta":
                assert is_open
                assert frame["index"] == count - 1
            case "content_block_stop":
                assert is_open
                assert frame["index"] == count - 1
                is_open = False
            case "message_delta":
                assert not is_open
                assert "output_tokens" in frame["usage"]
                assert frames[number + 1]["type"] == "message_stop"
            case "message_stop":
                assert frames[number - 1]["type"] == "message_delta"


def check_chat_frames(data: bytes) -> None:
    """Assert: the role once and first, dense tool calls that have id and name once, one reason at
    the end, and then [DONE] or an error."""
    parts = [
        p.removeprefix("data: ") for p in data.decode().split("\n\n") if p.startswith("data: ")
    ]
    if not parts:
        return
    last = parts.pop()
    frames = [json.loads(part) for part in parts]
    assert all("error" not in f for f in frames)
    assert last == "[DONE]" or "error" in json.loads(last)
    calls: list[int] = []
    finished = False
    roles = 0
    for number, frame in enumerate(frames):
        for choice in frame["choices"]:
            assert not finished, "nothing after the reason"
            delta = choice["delta"]
            assert "role" not in delta or number == 0
            roles += "role" in delta
            for call in delta.get("tool_calls") or ():
                if "id" in call:
                    assert call["index"] == len(calls)
                    calls.append(call["index"])
                    assert call["id"] and (call.get("function") or call.get("custom"))["name"]
                assert call["index"] in calls
            finished = choice["finish_reason"] is not None
    assert roles == 1
    assert finished == (last == "[DONE]")


def check_responses_frames(data: bytes) -> None:
    """Assert, as the SDK does: created first, numbers that grow, one item open at a time and ended
    as it began, exactly one end.

    Numbers have a gap where another worker took a call over.
    """
    frames = read_frames(data)
    if frames[-2]["type"] == "error":
        # ours: clients read the one or the other
        assert frames[-1]["type"] == "response.failed"
        del frames[-2:]
    else:
        assert frames[-1]["type"] in (
            "response.completed",
            "response.incomplete",
            "response.failed",
        )
        assert frames[-1]["response"]["id"] == frames[0]["response"]["id"]
    numbers = [f["sequence_number"] for f in frames]
    assert numbers[:1] == [0] and all(a < b for a, b in pairwise(numbers)), (
        f"numbers that do not grow: {numbers}"
    )
    assert [f["type"] for f in frames[:2]] == ["response.created", "response.in_progress"]
    count, item = 0, None
    for frame in frames[2:]:
        kind = frame["type"]
        if kind == "response.in_progress":
            # a keepalive
            continue
        assert kind != "response.created"
        if kind == "response.output_item.added":
            assert item is None
            assert frame["output_index"] == count
            count, item = count + 1, frame["item"]
        elif "output_index" in frame:
            assert item is not None
            assert frame["output_index"] == count - 1
            if kind == "response.output_item.done":
                assert all(
                    item.get(name) == frame["item"].get(name)
                    for name in ("type", "id", "call_id", "name")
                )
                item = None
        else:
            assert frame is frames[-1], kind
            assert item is None or kind == "response.failed"
