"""Answers of chat/completions in pieces and whole, decoded and encoded."""

from typing import Any

from protocol import codecs
from protocol.bytes.sse import EventSplitter
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.events import (
    Event,
    Opaque,
)
from protocol.request import ChatRequest, Tool
from tests.support.clients.sdk import openai_answer
from tests.support.json_values import Json, as_json

HEAD = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
TOOLS = (Tool("patch", kind="custom"), Tool("f"))


def chunk(finish: str | None = None, logprobs: Any = None, **fields: Any) -> Json:
    """A chunk with these fields in its delta."""
    return {
        **HEAD,
        "choices": [{"index": 0, "delta": fields, "logprobs": logprobs, "finish_reason": finish}],
    }


def body_of(*chunks: Json) -> bytes:
    """Chunks as they come on the wire."""
    return b"".join(b"data: " + as_json(c) + b"\n\n" for c in chunks) + b"data: [DONE]\n\n"


def stream(*chunks: Json, unknown: frozenset[str] = frozenset()) -> list[Event]:
    """The events of these chunks."""
    splitter, decoder = EventSplitter(1 << 24), DIALECTS["openai"].decoder(unknown)
    return [e for c in splitter.feed(body_of(*chunks)) for e in decoder.feed(c)] + decoder.finish()


def whole(
    message: Json,
    finish: str = "stop",
    unknown: frozenset[str] = frozenset(),
    **choice: Any,
) -> list[Event]:
    """The events of an answer that was not streamed."""
    choices = [
        {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **choice}
    ]
    return codecs.decode_whole(
        "openai",
        as_json({**HEAD, "object": "chat.completion", "choices": choices}),
        unknown,
    )


def encode(
    events: list[Event], *, stream: bool = True, legacy: bool = False, usage: bool = True
) -> bytes:
    """Events as a client of chat/completions gets them."""
    request = ChatRequest(
        dialect="openai",
        model="m",
        stream=stream,
        include_usage=usage,
        legacy_functions=legacy,
        tools=TOOLS,
    )
    return CLIENTS["openai"].encoder(request, call_id="id", created=7).encode(events)


def answers(events: list[Event], *, legacy: bool = False) -> list[Any]:
    """What the SDK makes of it, streamed and whole."""
    return [
        openai_answer(encode(events, stream=s, legacy=legacy), stream=s).choices[0]
        for s in (True, False)
    ]


def opaque(events: list[Event]) -> list[str]:
    """What was not modelled."""
    return [e.what for e in events if isinstance(e, Opaque)]


def token(text: str, **more: Any) -> Json:
    """A token's log probability."""
    return {
        "token": text,
        "logprob": -0.5,
        "bytes": list(text.encode()),
        "top_logprobs": [],
        **more,
    }
