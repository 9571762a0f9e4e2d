"""Answers of generateContent, as chunks and as events; what the official SDK makes of them; and
requests written for it."""

import json
from typing import Any

from google.genai import types

from protocol import codecs
from protocol.dialects.turns import StoredTurn
from protocol.events import ArgumentsDelta, BlockKind, BlockStart, Event, Opaque, TextDelta
from protocol.request import DialectName
from protocol.target import Target, Translated
from tests.support.checks.decoding import decode, turns_of
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import read_request
from tests.support.upstreams.turns import events

MODEL = "gemini-3-pro-preview"
USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}


def call(name: str = "weather", signature: str = "", **args: Any) -> Json:
    """A part that is a call."""
    return {"functionCall": {"name": name, "args": args}} | (
        {"thoughtSignature": signature} if signature else {}
    )


def piece(
    path: str = "",
    value: Any = None,
    *,
    goes_on: bool = True,
    text_goes_on: bool = False,
    **fields: Any,
) -> Json:
    """A part that is a piece of a call."""
    kind = {str: "stringValue", bool: "boolValue", int: "numberValue", float: "numberValue"}.get(
        type(value), "nullValue"
    )
    said = (
        {
            "partialArgs": [
                {"jsonPath": path, kind: value} | ({"willContinue": True} if text_goes_on else {})
            ]
        }
        if path
        else {}
    )
    return {"functionCall": fields | said | ({"willContinue": True} if goes_on else {})}


def answer(*parts: Json, finish: str | None = "STOP", **candidate: Any) -> Json:
    """A whole answer, or a chunk of a stream."""
    held = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
    ended = {"finishReason": finish} if finish else {}
    return {
        "candidates": [held | ended | candidate],
        "usageMetadata": USAGE,
        "modelVersion": MODEL,
        "responseId": "r1",
    }


def body_of(*chunks: Json) -> bytes:
    """A stream of these chunks."""
    return b"".join(b"data: " + as_json(chunk) + b"\r\n\r\n" for chunk in chunks)


def stream(*chunks: Json) -> list[Event]:
    """The events of these chunks."""
    return decode("gemini", [body_of(*chunks)])


def whole(*parts: Json, **more: Any) -> list[Event]:
    """The events of a whole answer."""
    return codecs.decode_whole("gemini", as_json(answer(*parts, **more)))


def said(found: list[Event]) -> list[tuple[str, str, str]]:
    """Kind, name and text (or arguments) of each block."""
    texts: dict[int, str] = {}
    for event in found:
        if isinstance(event, TextDelta | ArgumentsDelta):
            texts[event.index] = texts.get(event.index, "") + event.text
    return [
        (str(e.kind), e.name, texts.get(e.index, "")) for e in found if isinstance(e, BlockStart)
    ]


def calls_in(found: list[Event]) -> list[tuple[str, Any]]:
    """Name and arguments of the client's calls."""
    return [
        (name, json.loads(text)) for kind, name, text in said(found) if kind == BlockKind.TOOL_USE
    ]


def opaque(found: list[Event]) -> list[str]:
    """What was withheld."""
    return [e.what for e in found if isinstance(e, Opaque)]


def write(
    request: Json,
    client: DialectName = "openai",
    *,
    model: str = MODEL,
    stored: list[StoredTurn] | None = None,
    **target: Any,
) -> tuple[Json, Translated]:
    """A client's request as it goes to a Gemini upstream, and what was noted of it. Checked against
    the SDK's types."""
    body = {"model": model, **request} | (
        {"max_tokens": 9000} if client == "anthropic" and "max_tokens" not in request else {}
    )
    read = read_request(client, body)
    if stored is not None:
        read, _, _ = turns_of("gemini").with_turns(read, stored, upstream="up")
    written = codecs.encode_request(read, Target(dialect="gemini", ids="mint", **target))
    assert written.body is not None
    sent: Json = json.loads(written.body)
    check_request(sent)
    return sent, written


def check_request(sent: Json) -> None:
    """Each field is one that the SDK has, of its type; contents begin with the user's, alternate,
    and answer each call at once."""
    for content in [*sent["contents"], sent.get("systemInstruction", {})]:
        types.Content.model_validate(content)
    for tool in sent.get("tools", ()):
        types.Tool.model_validate(tool)
    types.ToolConfig.model_validate(sent.get("toolConfig", {}))
    types.GenerateContentConfig.model_validate(sent.get("generationConfig", {}))
    roles = [content["role"] for content in sent["contents"]]
    assert roles == (["user", "model"] * len(roles))[: len(roles)]
    assert all(content["parts"] for content in sent["contents"])
    following = [*sent["contents"][1:], {"parts": []}]
    for content, after in zip(sent["contents"], following, strict=True):
        called = [p["functionCall"]["name"] for p in content["parts"] if "functionCall" in p]
        answered = [
            p["functionResponse"]["name"] for p in after["parts"] if "functionResponse" in p
        ]
        assert content["role"] != "model" or called == answered


def stored_turn(
    body: bytes, *, ids: tuple[str, ...], blocks: tuple[int, ...], model: str = MODEL
) -> StoredTurn:
    """The turn that the record has of an answer whose client received these calls."""
    builder = turns_of("gemini").TurnBuilder()
    for chunk in events(body):
        builder.take(chunk)
    assert builder.complete
    return StoredTurn("c", builder.content(), "", ids, "up", model, blocks)
