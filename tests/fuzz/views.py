"""Answers through a session to a client, and what the client reads in them."""

import json
import random
from typing import Any

import msgspec

from policy.base import Block, Policy, ToolCall, Verdict
from policy.effects import CallInfo, Dispatch, Output, Respond
from policy.session import Session
from protocol import codecs
from protocol.config import Config
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    Ping,
    SignatureDelta,
    TextDelta,
    UpstreamFailed,
)
from protocol.request import Dialect
from protocol.sse import EventSplitter

CALL = "01990000-0000-7000-8000-00000000abcd"
MAX_EVENT = 1 << 20
_CONFIG = Config.model_validate(
    {
        "upstreams": {
            "openai": {"dialect": "openai", "base_url": "http://upstream/v1"},
            "anthropic": {"dialect": "anthropic", "base_url": "http://upstream"},
            "prompted": {"dialect": "openai", "base_url": "http://upstream/v1", "native_tools": False},
        },
        "models": [{"match": f"{name}-*", "upstream": name} for name in ("openai", "anthropic", "prompted")],
    }
)
_SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
_ASKS: dict[Dialect, list[dict[str, Any]]] = {
    "openai": [
        {},
        {"tools": [{"type": "function", "function": {"name": "bash", "parameters": _SCHEMA}}]},
        {"tools": [{"type": "custom", "custom": {"name": "bash"}}], "stream_options": {"include_usage": True}},
        {"functions": [{"name": "bash", "parameters": _SCHEMA}]},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": _SCHEMA}}},
    ],
    "anthropic": [{}, {"tools": [{"name": "bash", "input_schema": _SCHEMA}]}],
}


class DenyCalls(Policy):
    """No tool call passes."""

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Block("denied")


class Way(msgspec.Struct, frozen=True):
    """Who asks and how: the client, streamed or not, with which request, and whether a policy denies every call."""

    client: Dialect
    stream: bool
    ask: dict[str, Any]
    model: str
    denies: bool

    @staticmethod
    def chosen(upstream: Dialect, rng: random.Random) -> "Way":
        """Any way to an upstream of this dialect."""
        client: Dialect = rng.choice(["openai", "anthropic"])
        names = ["openai", "prompted"] if upstream == "openai" else ["anthropic"]
        return Way(client, rng.random() < 0.6, rng.choice(_ASKS[client]), rng.choice(names) + "-x", rng.random() < 0.3)

    def session(self) -> Session:
        """A session that has sent its request."""
        endpoint: Any = "chat" if self.client == "openai" else "messages"
        call = CallInfo(CALL, 1, self.client, endpoint, "k", "", "nonce", "g", "p", "r", False, 1 << 20)
        session = Session(call, [DenyCalls()] if self.denies else [], _CONFIG)
        body = {"model": self.model, "max_tokens": 5, "stream": self.stream, "messages": [{"role": "user", "content": "x"}], **self.ask}
        session.begin(json.dumps(body).encode())
        return session


def released(session: Session) -> tuple[list[Event], list[Respond]]:
    """What the session gives the client: events, or one whole answer."""
    outputs: list[Output] = session.take().outputs
    return [o for o in outputs if not isinstance(o, Dispatch | Respond)], [o for o in outputs if isinstance(o, Respond)]


def encoded(session: Session, way: Way, events: list[Event]) -> bytes:
    """The events as the client gets them."""
    assert session.request is not None
    return codecs.make_encoder(way.client, session.request, call_id=CALL, created=1).encode(events)


def read_back(way: Way, data: bytes) -> list[Event]:
    """What the client reads."""
    if not way.stream:
        return codecs.decode_whole(way.client, data) if data else []
    splitter, decoder = EventSplitter(MAX_EVENT * 16), codecs.make_decoder(way.client)
    chunks = splitter.feed(data) + splitter.finish()
    return [e for chunk in chunks for e in decoder.feed(chunk)] + decoder.finish()


def merged(events: list[Event]) -> dict[str, Any]:
    """Events as one message: where pieces were cut does not count."""
    blocks: dict[int, dict[str, Any]] = {}
    details: list[Any] = []
    message: dict[str, Any] = {"details": details}
    for event in events:
        match event:
            case MessageStart():
                message["start"] = event
            case BlockStart():
                blocks[event.index] = {"start": event, "text": "", "arguments": "", "signature": "", "attached": []}
            case TextDelta():
                blocks[event.index]["text"] += event.text
            case ArgumentsDelta():
                blocks[event.index]["arguments"] += event.text
            case SignatureDelta():
                blocks[event.index]["signature"] += event.signature
            case AttachmentDelta(field="reasoning_details"):
                # they may come beside any text, or alone
                details += event.value
            case AttachmentDelta():
                blocks[event.index]["attached"].append((event.field, event.value))
            case MessageStop() | UpstreamFailed():
                assert "end" not in message, "there is one end"
                message["end"] = event
            case Opaque(what="field sluice" | "message field sluice" | "delta field reasoning" | "reasoning_details" | "annotations"):
                # what the other dialect has no place for; reasoning said twice and differently; annotations after tool calls
                pass
            case Opaque():
                raise AssertionError(f"a client gets what is not modelled: {event.what}")
            case BlockStop() | Ping():
                pass
            case _:
                raise AssertionError(event)
    empty = {"text": "", "arguments": "", "signature": "", "attached": []}
    thoughts = [b for b in blocks.values() if b["start"].kind is BlockKind.THINKING and b == {**empty, "start": b["start"]}]
    message["blocks"] = [{**b, "start": msgspec.structs.replace(b["start"], index=0)} for b in blocks.values() if b not in thoughts]
    return message
