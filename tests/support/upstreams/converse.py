"""Converse answers, as Bedrock would send them: events as messages of a binary event stream, and
botocore's reading of one."""

from typing import Any

import botocore.session
from botocore.eventstream import EventStream
from botocore.parsers import EventStreamJSONParser

from protocol.bytes.eventstream import message
from tests.support.json_values import Json, as_json

STREAM_TYPE = "application/vnd.amazon.eventstream"
Event = tuple[str, Json]


def framed(name: str, body: Any, **headers: str) -> bytes:
    """One event; other `headers` by their names without the colon, `_` for `-`."""
    said = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    said |= {":" + key.replace("_", "-"): value for key, value in headers.items()}
    return message(said, as_json(body))


def exception(name: str, text: str) -> bytes:
    """An exception inside a stream."""
    return message(
        {
            ":exception-type": name,
            ":content-type": "application/json",
            ":message-type": "exception",
        },
        as_json({"message": text}),
    )


def begun() -> Event:
    """The beginning of a message."""
    return "messageStart", {"role": "assistant", "p": "abc"}


def piece(index: int, **delta: Any) -> Event:
    """More of a block."""
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": delta, "p": "ab"}


def call(index: int, identity: str, name: str, **more: str) -> Event:
    """The beginning of a tool call."""
    return "contentBlockStart", {
        "contentBlockIndex": index,
        "start": {"toolUse": {"toolUseId": identity, "name": name, **more}},
    }


def stopped(index: int) -> Event:
    """The end of a block."""
    return "contentBlockStop", {"contentBlockIndex": index}


def ended(reason: str, *, tokens: tuple[int, int] = (7, 5)) -> list[Event]:
    """The end of a message, and what it took."""
    usage = {"inputTokens": tokens[0], "outputTokens": tokens[1], "totalTokens": sum(tokens)}
    return [
        ("messageStop", {"stopReason": reason}),
        ("metadata", {"usage": usage, "metrics": {"latencyMs": 1}}),
    ]


def written(*events: Event) -> bytes:
    """A stream of these events."""
    return b"".join(framed(name, body) for name, body in events)


THOUGHT = "RXUwQw=="


def thought_call(
    identity: str = "tooluse_1",
    name: str = "weather",
    arguments: str = '{"city": "Oslo"}',
    *,
    text: str = "Let me look.",
) -> bytes:
    """Thinking with its signature, text and one call."""
    half = len(arguments) // 2
    return written(
        begun(),
        piece(0, reasoningContent={"text": "The weather "}),
        piece(0, reasoningContent={"text": "is asked."}),
        piece(0, reasoningContent={"signature": THOUGHT}),
        stopped(0),
        piece(1, text=text),
        stopped(1),
        call(2, identity, name),
        piece(2, toolUse={"input": arguments[:half]}),
        piece(2, toolUse={"input": arguments[half:]}),
        stopped(2),
        *ended("tool_use"),
    )


def said(*texts: str) -> bytes:
    """An answer of text."""
    return written(
        begun(), *(piece(0, text=text) for text in texts), stopped(0), *ended("end_turn")
    )


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> list[bytes]:
        return [self._body]

    def close(self) -> None:
        pass


def service() -> Any:
    """The model of the API, as botocore ships it."""
    return botocore.session.get_session().get_service_model("bedrock-runtime")


def read_by_botocore(body: bytes) -> Json:
    """What botocore reads out of a stream: texts and thinking by block, calls, why it ended,
    tokens. Raises EventStreamError."""
    shape = service().operation_model("ConverseStream").output_shape.members["stream"]
    found: Json = {
        "text": {},
        "thinking": {},
        "signature": {},
        "calls": {},
        "stop": "",
        "usage": {},
    }
    for event in EventStream(_Raw(body), shape, EventStreamJSONParser(), "ConverseStream"):
        match event:
            case {"contentBlockStart": {"contentBlockIndex": at, "start": {"toolUse": use}}}:
                found["calls"][at] = [
                    use["toolUseId"],
                    use["name"],
                    use.get("type") == "server_tool_use",
                    "",
                ]
            case {"contentBlockDelta": {"contentBlockIndex": at, "delta": {"text": text}}} if text:
                found["text"][at] = found["text"].get(at, "") + text
            case {
                "contentBlockDelta": {
                    "contentBlockIndex": at,
                    "delta": {"toolUse": {"input": text}},
                }
            }:
                found["calls"][at][3] += text
            case {
                "contentBlockDelta": {
                    "contentBlockIndex": at,
                    "delta": {"reasoningContent": {"text": text}},
                }
            }:
                found["thinking"][at] = found["thinking"].get(at, "") + text
            case {
                "contentBlockDelta": {
                    "contentBlockIndex": at,
                    "delta": {"reasoningContent": {"signature": text}},
                }
            }:
                found["signature"][at] = text
            case {"messageStop": {"stopReason": reason}}:
                found["stop"] = reason
            case {"metadata": {"usage": usage}}:
                found["usage"] = (usage["inputTokens"], usage["outputTokens"])
    return found
