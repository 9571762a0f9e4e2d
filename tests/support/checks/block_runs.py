"""A session over blocks of every kind, with policies that decide about them."""

import json
from collections.abc import Iterable
from typing import Any, Self

from policy.base import (
    ALLOW,
    AskJudge,
    Block,
    Context,
    Judgement,
    JudgeQuestion,
    OtherBlock,
    Policy,
    Replace,
    TextBlock,
    ToolCall,
    Verdict,
)
from policy.session.answer.blocks import CallBlocks
from policy.session.answer.outbox import Outbox
from policy.session.answer.slots import End
from policy.session.chain import Chain
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStop,
    StopReason,
    TextDelta,
)
from protocol.records import EventRecord, ToolCallRecord
from protocol.request import (
    ChatRequest,
    DialectName,
)
from tests.support.json_values import Json
from tests.support.worker_calls import call_info

SEARCH = {"type": "server_tool_use"}


class Deny(Policy):
    """Denies calls by a word in their arguments or name."""

    name = "deny"

    def __init__(self, word: str = "rm") -> None:
        self.word = word

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Block("denied") if self.word in call.arguments or self.word in call.name else ALLOW


class Ask(Policy):
    name = "ask"
    asks = True

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return AskJudge(JudgeQuestion("demo-judge", "s", "p", "n", 0.5, None, {}))

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        return ALLOW if judgement.probability == 0 else Block("judge")


class NoSecrets(Policy):
    """Reads blocks carried whole."""

    name = "no_secrets"

    def on_other(self, block: OtherBlock) -> Verdict:
        return Block("secret") if "secret" in json.dumps(block.body) else ALLOW


class Same(Policy):
    """Reads text and leaves it alone."""

    def on_text(self, text: str, block: TextBlock) -> str:
        return text


class Rewrite(Policy):
    name = "rewrite"

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Replace("{}")


class Run:
    """Blocks with policies; `out` is what was released, `end` how it ended."""

    def __init__(
        self,
        *policies: Policy,
        durable: bool = False,
        dialect: DialectName = "anthropic",
        upstream: DialectName = "anthropic",
        max_arguments: int = 10_000,
        searches: bool = True,
        **request: Any,
    ) -> None:
        asked = ChatRequest(dialect=dialect, model="m", **request)
        call = call_info(
            "c", dialect, endpoint="messages", durable=durable, max_arguments_bytes=max_arguments
        )
        self.outbox = Outbox(call)
        self.blocks = CallBlocks(
            self.outbox,
            Chain(policies, Context("c", "n", "k", "", asked), searches=searches),
            asked,
        )
        self.blocks.look_at(asked, upstream)
        self.out: list[Any] = []
        self.records: list[Any] = []
        self.asks: list[Any] = []
        self.waits: list[int] = []
        self.end: End | None = None

    def feed(self, *events: Event) -> Self:
        for event in events:
            if not self.blocks.is_cut:
                self.blocks.feed(event, 1)
                self.collect()
        return self

    def collect(self) -> None:
        while (end := self.blocks.slots.pump()) is not None:
            self.end = end
        taken = self.outbox.drain()
        self.out += taken.outputs
        self.records += taken.records
        self.asks += taken.asks
        self.waits += taken.waits

    def finish(self, reason: StopReason = StopReason.END_TURN) -> Self:
        self.blocks.finish(MessageStop(reason))
        self.collect()
        return self

    def judge(self, key: int, probability: float) -> Self:
        self.blocks.judgement(key, 0, Judgement(probability=probability), 5)
        self.collect()
        return self

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.out if isinstance(e, TextDelta))

    @property
    def kinds(self) -> list[str]:
        return [e.kind.value for e in self.out if isinstance(e, BlockStart)]

    def rows(self, *fields: str) -> list[tuple[Any, ...]]:
        return [
            tuple(getattr(r, f) for f in fields)
            for r in self.records
            if isinstance(r, ToolCallRecord)
        ]

    def notes(self, kind: str) -> list[str]:
        return [r.detail for r in self.records if isinstance(r, EventRecord) and r.kind == kind]


def text(index: int, *pieces: str, kind: BlockKind = BlockKind.TEXT) -> list[Event]:
    return [BlockStart(index, kind), *(TextDelta(index, p) for p in pieces), BlockStop(index)]


def server(
    index: int,
    name: str = "web_search",
    arguments: str = '{"query":"x"}',
    *,
    body: Json = SEARCH,
) -> list[Event]:
    start = BlockStart(index, BlockKind.SERVER_TOOL_USE, f"srvtoolu_{index}", name, body)
    return [start, ArgumentsDelta(index, arguments), BlockStop(index)]


def result(
    index: int, of: str, kind: str = "web_search_tool_result", content: str = "found"
) -> list[Event]:
    body = {"type": kind, "tool_use_id": of, "content": content}
    return [BlockStart(index, BlockKind.OTHER, name=kind, body=body), BlockStop(index)]


def client(index: int, name: str = "bash", arguments: str = "{}") -> list[Event]:
    return [
        BlockStart(index, BlockKind.TOOL_USE, f"toolu_{index}", name),
        ArgumentsDelta(index, arguments),
        BlockStop(index),
    ]


def flat(*parts: Iterable[Event]) -> list[Event]:
    return [event for part in parts for event in part]
