"""A provider that speaks Converse, with answers as binary event streams."""

import json
import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from tests.support.json_values import Json, as_json
from tests.support.vendors.checking import (
    cut,
    is_sealed,
    known,
    need,
    seal,
)
from tests.support.vendors.story import Do, Offered, Part, Refused, Result, Say, Seen

_FIELDS = (
    "messages",
    "system",
    "inferenceConfig",
    "toolConfig",
    "additionalModelRequestFields",
    "additionalModelResponseFieldPaths",
    "outputConfig",
    "guardrailConfig",
    "performanceConfig",
    "requestMetadata",
    "serviceTier",
    "promptVariables",
)
_INFERENCE = ("maxTokens", "temperature", "topP", "stopSequences")
_USAGE = {"inputTokens": 40, "outputTokens": 12, "totalTokens": 52}
_ID, _NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,64}"), re.compile(r"[a-zA-Z0-9_-]{1,64}")


def read(body: Json, path: str) -> Seen:
    """Check and read a request; the path says the model and whether it streams. Raises Refused."""
    _, _, model, method = path.split("/")
    known(body, _FIELDS, "")
    known(body.get("inferenceConfig") or {}, _INFERENCE, "inferenceConfig")
    config = body.get("toolConfig")
    need(
        config is None or config.get("tools"),
        "Value at 'toolConfig.tools' failed to satisfy constraint: length at least 1",
    )
    seen = Seen(
        unquote(model),
        method == "converse-stream",
        [_offered(t) for t in (config or {}).get("tools", [])],
        [],
    )
    seen.thinks = "thinking" in (body.get("additionalModelRequestFields") or {})
    need(body.get("system", [1]), "system is empty")
    for one in body.get("system") or []:
        need(
            "text" not in one or one["text"].strip(),
            "The text field in the system prompt is blank.",
        )
    messages: Any = body.get("messages")
    need(isinstance(messages, list) and messages, "A conversation must have at least one message.")
    need(messages[0]["role"] == "user", "A conversation must start with a user message.")
    waiting: list[str] = []
    before = "assistant"
    for number, message in enumerate(messages):
        known(message, ("role", "content"), f"messages.{number}")
        need(message["role"] in ("user", "assistant"), f"messages.{number}.role")
        need(message["role"] != before, f"messages.{number}: roles must alternate")
        need(message["content"], f"messages.{number}: the content field is empty")
        before = message["role"]
        waiting = _message(seen, message, waiting, number)
    need(not waiting, f"Expected toolResult blocks for the following Ids: {waiting}")
    need(before == "user", "A conversation must end with a user message.")
    need(
        config or not (seen.calls or seen.results),
        "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
    )
    return seen


def _offered(tool: Json) -> Offered:
    if "toolSpec" not in tool:
        return Offered("", {})
    spec = tool["toolSpec"]
    known(spec, ("name", "description", "inputSchema", "strict"), "toolSpec")
    need(_NAME.fullmatch(spec["name"]), f"toolSpec.name: {spec['name']!r}")
    need(spec.get("description", "x"), "toolSpec.description: length at least 1")
    need(isinstance(spec["inputSchema"]["json"], dict), "toolSpec.inputSchema.json")
    return Offered(spec["name"], spec["inputSchema"]["json"])


def _message(seen: Seen, message: Json, waiting: list[str], number: int) -> list[str]:
    ids: list[str] = []
    left = list(waiting)
    for position, block in enumerate(message["content"]):
        need(len(block) == 1, f"messages.{number}.content.{position}: one member of the union")
        [(kind, value)] = block.items()
        if kind == "text":
            need(
                value.strip(),
                f"The text field in the ContentBlock object at messages.{number}.content.{position}"
                " is blank.",
            )
            seen.texts.append(value)
        elif kind == "toolUse":
            need(
                message["role"] == "assistant" and _ID.fullmatch(value["toolUseId"]),
                f"toolUseId: {value['toolUseId']!r}",
            )
            need(isinstance(value["input"], dict), "toolUse.input must be an object")
            ids.append(value["toolUseId"])
            seen.calls.append(value["name"])
        elif kind == "toolResult":
            known(value, ("toolUseId", "content", "status"), "toolResult")
            need(
                message["role"] == "user" and value["toolUseId"] in left,
                f"unexpected toolResult {value['toolUseId']}",
            )
            left.remove(value["toolUseId"])
            seen.results.append(
                Result(
                    value["toolUseId"],
                    "\n".join(c.get("text") or json.dumps(c) for c in value["content"]),
                )
            )
        elif kind == "reasoningContent":
            text = value["reasoningText"]
            need(
                position == 0 or "reasoningContent" in message["content"][position - 1],
                "reasoningContent comes first",
            )
            need(
                is_sealed(text.get("signature"), text["text"]),
                "Invalid `signature` in `thinking` block",
            )
            seen.sealed += 1
        else:
            need(
                kind in ("image", "document", "cachePoint"),
                f"messages.{number}.content.{position}: {kind}",
            )
    need(
        message["role"] == "assistant" or not left,
        f"Expected toolResult blocks at messages.{number}.content for the following Ids: {left}",
    )
    need(len({*ids}) == len(ids), f"messages.{number}: duplicate toolUseIds")
    return ids


def _blocks(seen: Seen, parts: list[Part]) -> list[Json]:
    made: list[Json] = []
    for part in parts:
        if isinstance(part, Say):
            made.append({"text": part.text})
        elif isinstance(part, Do):
            made.append(
                {
                    "toolUse": {
                        "toolUseId": f"tooluse_{part.id}",
                        "name": part.name,
                        "input": part.arguments,
                    }
                }
            )
        elif seen.thinks:
            made.append(
                {
                    "reasoningContent": {
                        "reasoningText": {"text": part.text, "signature": seal(part.text)}
                    }
                }
            )
    return made


def _stop(parts: list[Part]) -> str:
    return "tool_use" if any(isinstance(p, Do) for p in parts) else "end_turn"


def whole(seen: Seen, parts: list[Part]) -> Json:
    """An answer that is not streamed."""
    message = {"role": "assistant", "content": _blocks(seen, parts)}
    return {
        "output": {"message": message},
        "stopReason": _stop(parts),
        "usage": _USAGE,
        "metrics": {"latencyMs": 7},
    }


def frames(seen: Seen, parts: list[Part]) -> Iterator[bytes]:
    """A streamed answer: binary messages."""
    yield _event("messageStart", {"role": "assistant"})
    for index, block in enumerate(_blocks(seen, parts)):
        [(kind, value)] = block.items()
        deltas: list[Json]
        if kind == "toolUse":
            start = {"toolUse": {"toolUseId": value["toolUseId"], "name": value["name"]}}
            yield _event("contentBlockStart", {"contentBlockIndex": index, "start": start})
            deltas = [{"toolUse": {"input": piece}} for piece in cut(json.dumps(value["input"]))]
        elif kind == "text":
            deltas = [{"text": piece} for piece in cut(value)]
        else:
            text = value["reasoningText"]
            deltas = [
                *({"text": piece} for piece in cut(text["text"])),
                {"signature": text["signature"]},
            ]
            deltas = [{"reasoningContent": delta} for delta in deltas]
        for delta in deltas:
            yield _event("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})
        yield _event("contentBlockStop", {"contentBlockIndex": index})
    yield _event("messageStop", {"stopReason": _stop(parts)})
    yield _event("metadata", {"usage": _USAGE, "metrics": {"latencyMs": 7}})


def _event(kind: str, value: Json) -> bytes:
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(text)) + text.encode()
        for name, text in (
            (":event-type", kind),
            (":content-type", "application/json"),
            (":message-type", "event"),
        )
    )
    payload = as_json({**value, "p": "abcd"})
    head = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    head += struct.pack(">I", zlib.crc32(head))
    rest = head + headers + payload
    return rest + struct.pack(">I", zlib.crc32(rest))


def error(refused: Refused) -> Json:
    """The body of an error."""
    return {"message": refused.message}
