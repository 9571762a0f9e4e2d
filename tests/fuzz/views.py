"""Answers through a session to a client, and what the client reads in them."""

import random
import zlib
from typing import Any

import msgspec

from policy.base import (
    ALLOW,
    AskJudge,
    Block,
    Judgement,
    JudgeQuestion,
    OtherBlock,
    Policy,
    Replace,
    TextBlock,
    ToolCall,
    Verdict,
)
from policy.session.effects import JudgeRequest, Output, Respond, SendUpstream
from policy.session.session import Session
from protocol import codecs
from protocol.bytes.sse import EventSplitter
from protocol.dialects.table import CLIENTS, DIALECTS
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
    RawDelta,
    SignatureDelta,
    TextDelta,
    UpstreamFailed,
)
from protocol.records import Record
from protocol.request import DialectName
from settings.config import Config
from tests.support.checks.kinds import of_kind
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info

CALL = "01990000-0000-7000-8000-00000000abcd"
MAX_EVENT = 1 << 20
_CONFIG = Config.model_validate(
    {
        "upstreams": {
            "openai": {"dialect": "openai", "base_url": "http://upstream/v1"},
            "anthropic": {"dialect": "anthropic", "base_url": "http://upstream"},
            "responses": {"dialect": "responses", "base_url": "http://upstream/v1"},
            "gemini": {"dialect": "gemini", "base_url": "http://upstream"},
            "prompted": {
                "dialect": "openai",
                "base_url": "http://upstream/v1",
                "native_tools": False,
            },
        },
        "models": [
            {"match": f"{name}-*", "upstream": name}
            for name in ("openai", "anthropic", "gemini", "responses", "prompted")
        ],
    }
)
UNKNOWN = (
    "event x",
    "delta x",
    "field novelty",
    "message field novelty",
    "text field novelty",
    "usage novelty",
)
_OPEN = _CONFIG.model_copy(update={"unknown": UNKNOWN})
_MAX_SEGMENTS = 9
_SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
_ASKS: dict[DialectName, list[Json]] = {
    "openai": [
        {},
        {"tools": [{"type": "function", "function": {"name": "bash", "parameters": _SCHEMA}}]},
        {
            "tools": [{"type": "custom", "custom": {"name": "bash"}}],
            "stream_options": {"include_usage": True},
        },
        {"functions": [{"name": "bash", "parameters": _SCHEMA}]},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": _SCHEMA},
            }
        },
    ],
    "anthropic": [{}, {"tools": [{"name": "bash", "input_schema": _SCHEMA}]}],
}


def _odd(*words: str) -> bool:
    return zlib.crc32("".join(words).encode("utf-8", "surrogatepass")) % 2 == 1


class DenyCalls(Policy):
    """No tool call passes."""

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Block("denied")


class DenySome(Policy):
    """Some calls do not pass, some with other arguments."""

    def on_tool_call(self, call: ToolCall) -> Verdict:
        if _odd(call.name, call.arguments):
            return Block("denied")
        return Replace("{}") if call.executor == "client" and _odd(call.id) else ALLOW


class AskAJudge(Policy):
    """A judge decides every call."""

    asks = True

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return AskJudge(JudgeQuestion("demo-judge", "s", "p", "n", 0.5, None, {}))

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        return ALLOW if judgement.probability == 0 else Block("judge")


class HoldText(Policy):
    """Text comes one character late; what an odd number of characters came to is blocked at its
    end."""

    def __init__(self) -> None:
        self._held: dict[int, str] = {}

    def on_text(self, text: str, block: TextBlock) -> str | Block:
        held = self._held.get(block.index, "") + text
        self._held[block.index] = held[-1:]
        return Block("secret") if "secret" in text else held[:-1]

    def on_text_end(self, block: TextBlock) -> str | Block:
        return self._held.pop(block.index, "")


class DenyResults(Policy):
    """Some blocks that are carried whole do not pass."""

    def on_other(self, block: OtherBlock) -> Verdict:
        return Block("denied") if _odd(block.type, repr(block.body)) else ALLOW


_POLICIES: list[type[Policy]] = [DenyCalls, DenySome, AskAJudge, HoldText, DenyResults]
_FAMILIES = ("web_search", "web_fetch", "code_execution", "tool_search", "mcp", "advisor")


class Way(msgspec.Struct, frozen=True):
    """Who asks and how: the client, streamed or not, with which request, and what it goes
    through."""

    client: DialectName
    stream: bool
    ask: Json
    model: str
    policies: tuple[type[Policy], ...] = ()
    durable: bool = False
    families: tuple[str, ...] = ()
    unknown: bool = False

    @staticmethod
    def chosen(upstream: DialectName, rng: random.Random) -> "Way":
        """Any way to an upstream of this dialect."""
        client: DialectName = rng.choice(["openai", "anthropic"])
        names = ["openai", "prompted"] if upstream == "openai" else [upstream]
        policies = tuple(p for p in _POLICIES if rng.random() < 0.25)
        families = _FAMILIES if rng.random() < 0.5 else ()
        ask, model = rng.choice(_ASKS[client]), rng.choice(names) + "-x"
        return Way(
            client,
            rng.random() < 0.6,
            ask,
            model,
            policies,
            rng.random() < 0.3,
            families,
            rng.random() < 0.3,
        )

    def session(self) -> Session:
        """A session that has sent its request."""
        endpoint: Any = "chat" if self.client == "openai" else "messages"
        call = call_info(
            CALL,
            self.client,
            endpoint=endpoint,
            nonce="nonce",
            durable=self.durable,
            server_tools=self.families,
        )
        session = Session(
            call, [policy() for policy in self.policies], _OPEN if self.unknown else _CONFIG
        )
        body = {
            "model": self.model,
            "max_tokens": 5,
            "stream": self.stream,
            "messages": [{"role": "user", "content": "x"}],
            **self.ask,
        }
        session.begin(as_json(body))
        return session


class Drive:
    """A session with its upstream, judges and record; what is asked of those is answered sooner or
    later, as `rng` has it."""

    def __init__(self, way: Way, rng: random.Random) -> None:
        self.session, self.rng = way.session(), rng
        self.outputs: list[Event | Respond] = []
        self.records: list[Record] = []
        self.digest = ""
        self._asks: list[JudgeRequest] = []
        self._waits: list[int] = []
        self._dispatched = 0
        self._settle(everything=False)

    def stream(self, chunks: list[bytes], size: int) -> "Drive":
        """Feed a stream, `size` chunks at a time; where the session goes on with a paused turn, it
        gets the same again."""
        seq = 1
        for segment in range(_MAX_SEGMENTS):
            for at in range(0, len(chunks), size):
                self.session.chunks(seq, chunks[at : at + size])
                seq += len(chunks[at : at + size])
                self._settle(everything=False)
            self.session.eof()
            self._settle(everything=True)
            if self._dispatched == segment + 1:
                return self
        raise AssertionError("there is no end of segments")

    def whole(self, body: bytes) -> "Drive":
        """Feed a whole answer likewise."""
        for segment in range(_MAX_SEGMENTS):
            self.session.body(segment + 1, body)
            self.session.eof()
            self._settle(everything=True)
            if self._dispatched == segment + 1:
                return self
        raise AssertionError("there is no end of segments")

    def _settle(self, *, everything: bool) -> None:
        while True:
            taken = self.session.drain()
            self.digest = taken.digest
            self.records += taken.records
            for output in taken.outputs:
                if isinstance(output, SendUpstream):
                    self._dispatched += 1
                else:
                    self.outputs.append(output)
            self._asks += taken.asks
            self._waits += taken.waits
            later = 0.0 if everything else 0.7
            asks = [a for a in self._asks if self.rng.random() >= later]
            waits = [w for w in self._waits if self.rng.random() >= later]
            if not asks and not waits:
                return
            self._asks = [a for a in self._asks if a not in asks]
            self._waits = [w for w in self._waits if w not in waits]
            for ask in asks:
                self.session.judgement(ask.block, ask.step, Judgement(probability=ask.block % 2), 1)
            for wait in waits:
                self.session.committed(wait, "audit_unavailable" if wait % 3 == 2 else "", 1)


def released(session: Session) -> tuple[list[Event], list[Respond]]:
    """What the session gives the client: events, or one whole answer."""
    outputs: list[Output] = session.drain().outputs
    return [o for o in outputs if not isinstance(o, SendUpstream | Respond)], of_kind(
        outputs, Respond
    )


def encoded(session: Session, way: Way, events: list[Event]) -> bytes:
    """The events as the client gets them."""
    assert session.request is not None
    return CLIENTS[way.client].encoder(session.request, call_id=CALL, created=1).encode(events)


def read_back(way: Way, data: bytes) -> list[Event]:
    """What the client reads."""
    if not way.stream:
        return codecs.decode_whole(way.client, data) if data else []
    splitter, decoder = EventSplitter(MAX_EVENT * 16), DIALECTS[way.client].decoder()
    chunks = splitter.feed(data) + splitter.finish()
    return [e for chunk in chunks for e in decoder.feed(chunk)] + decoder.finish()


def merged(events: list[Event]) -> Json:
    """Events as one message: where pieces were cut does not count."""
    blocks: dict[int, Json] = {}
    details: list[Any] = []
    message: Json = {"details": details}
    for event in events:
        match event:
            case MessageStart():
                message["start"] = event
            case BlockStart():
                blocks[event.index] = {
                    "start": event,
                    "text": "",
                    "arguments": "",
                    "signature": "",
                    "attached": [],
                }
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
                if isinstance(event, MessageStop):
                    # the vendor's own word, where it is not the one for the reason
                    message["end"] = msgspec.structs.replace(
                        event, extra={k: v for k, v in event.extra.items() if k != "finish_reason"}
                    )
            case Opaque(
                what="field sluice"
                | "message field sluice"
                | "delta field reasoning"
                | "reasoning_details"
                | "annotations"
            ):
                # what the other dialect has no place for; reasoning said twice and differently;
                # annotations after tool calls
                pass
            case Opaque(what=what) if what in UNKNOWN:
                # let through by the setting; check_withheld sees to it where it is not set
                pass
            case Opaque():
                raise AssertionError(f"a client gets what is not modelled: {event.what}")
            case RawDelta() if event.is_sealed:
                # only the provider can read it
                pass
            case BlockStop() | Ping():
                pass
            case _:
                raise AssertionError(event)
    empty = {"text": "", "arguments": "", "signature": "", "attached": []}
    thoughts = [
        b
        for b in blocks.values()
        if b["start"].kind is BlockKind.THINKING and b == {**empty, "start": b["start"]}
    ]
    message["blocks"] = [
        {**b, "start": msgspec.structs.replace(b["start"], index=0)}
        for b in blocks.values()
        if b not in thoughts
    ]
    return message
