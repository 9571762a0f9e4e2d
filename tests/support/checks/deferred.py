"""Policies that defer, two models, and what a call between them looks like: what tests of deferred
turns share."""

import json
from collections.abc import Sequence
from typing import Any

from policy.base import (
    ALLOW,
    AskJudge,
    Block,
    Defer,
    Judgement,
    JudgeQuestion,
    Policy,
    TextBlock,
    ToolCall,
    Verdict,
)
from policy.session.effects import SendUpstream
from protocol.records import Record
from protocol.request import DialectName
from settings.config import Config
from tests.support.checks.order import (
    check_chat_frames,
    check_messages_frames,
    check_responses_frames,
)
from tests.support.clients.answering import Answer
from tests.support.clients.sdk_answers import WAYS
from tests.support.json_values import Json
from tests.support.upstreams.cases import began, chunks, client_call, frames, piece, text

DIALECTS: tuple[DialectName, ...] = ("openai", "anthropic")
OTHER: dict[DialectName, str] = {"openai": "gpt-trusted", "anthropic": "claude-trusted"}
FIRST: dict[DialectName, str] = {"openai": "gpt-x", "anthropic": "claude-sonnet-4-5"}
CONFIG = Config.model_validate(
    {
        "upstreams": {
            name: {"dialect": dialect, "base_url": "http://127.0.0.1:1", "api_key_env": "X"}
            for dialect in DIALECTS
            for name in (dialect, f"trusted-{dialect}")
        },
        "models": [
            {"match": "gpt-trusted", "upstream": "trusted-openai"},
            {"match": "claude-trusted", "upstream": "trusted-anthropic"},
            {"match": "gpt-*", "upstream": "openai"},
            {"match": "claude-*", "upstream": "anthropic"},
        ],
    }
)
_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
SEARCHES = CONFIG.model_copy(
    update={
        "models": [
            r.model_copy(update={"server_tools": (_SEARCH,)}) if "claude" in r.match else r
            for r in CONFIG.models
        ]
    }
)
TOOL_NAMES = ("deploy", "look")
TOOLS: dict[DialectName, list[Json]] = {
    "openai": [
        {"type": "function", "function": {"name": n, "parameters": {"type": "object"}}}
        for n in TOOL_NAMES
    ],
    "anthropic": [{"name": n, "input_schema": {"type": "object"}} for n in TOOL_NAMES],
    "responses": [
        {"type": "function", "name": n, "parameters": {"type": "object"}} for n in TOOL_NAMES
    ],
}


class Critical(Policy):
    """Defers each deployment that the trusted model did not ask for."""

    name = "critical"

    def __init__(self, model: str, release: Any = "early") -> None:
        self.defers_to, self.release = (model,), release

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return (
            Defer(self.defers_to[0], "critical")
            if call.name == "deploy" and not call.is_deferred
            else ALLOW
        )


class Always(Critical):
    """Defers whoever asks."""

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Defer(self.defers_to[0], "critical") if call.name == "deploy" else ALLOW


class Judged(Critical):
    """Defers what a judge finds likely to be wrong."""

    asks = True

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return AskJudge(JudgeQuestion("demo-judge", "s", "p", "n", 0.5, None, {}))

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        return Defer(self.defers_to[0], "judge") if (judgement.probability or 0) > 0.5 else ALLOW


class Secret(Policy):
    """Blocks text in which a word stands, whatever its pieces."""

    name = "secret"

    def __init__(self) -> None:
        self.said = ""

    def on_text(self, text: str, block: TextBlock) -> str | Block:
        self.said += text
        return Block("secret") if "hunter2" in self.said else text


def answer(
    dialect: DialectName,
    said: str,
    *calls: tuple[str, str, Any],
    tokens: tuple[int, int] = (5, 3),
    more: str = "",
) -> bytes:
    """An upstream's stream: text, calls (id, name, arguments), more text."""
    if dialect == "openai":
        deltas: list[Json] = (
            [{"role": "assistant", "content": said}] if said else [{"role": "assistant"}]
        )
        for n, (identity, name, value) in enumerate(calls):
            written = json.dumps(value)
            deltas += [piece(n, written[:3], identity, name), piece(n, written[3:])]
        deltas += [{"content": more}] if more else []
        usage = {
            "prompt_tokens": tokens[0],
            "completion_tokens": tokens[1],
            "total_tokens": sum(tokens),
        }
        return chunks(*deltas, finish="tool_calls" if calls else "stop", usage=usage)
    blocks: list[Json] = text(0, said) if said else []
    for n, (identity, name, value) in enumerate(calls, bool(said)):
        blocks += client_call(n, identity, name, value)
    blocks += text(len(calls) + bool(said), more) if more else []
    usage = {"output_tokens": tokens[1]}
    stops: list[Json] = [
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use" if calls else "end_turn"},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]
    return frames(
        began(id="msg_first", usage={"input_tokens": tokens[0], "output_tokens": 1}),
        *blocks,
        *stops,
    )


def begun(
    client: DialectName,
    first: DialectName,
    policy: Policy | Sequence[Policy],
    *,
    streams: bool = True,
    **more: Any,
) -> Answer:
    policies = [policy] if isinstance(policy, Policy) else policy
    request = {"tools": TOOLS[client], **more}
    return Answer(first, client, streams=streams, policies=policies, config=CONFIG, **request)


def sent_models(a: Answer) -> list[str]:
    """Models of the requests that went upstream with a body of their own."""
    return [body["model"] for body in a.dispatched]


def count_of_dispatches(a: Answer) -> int:
    return sum(isinstance(o, SendUpstream) for o in a.outputs)


def of(records: Sequence[Record], kind: Any) -> list[Any]:
    return [r for r in records if isinstance(r, kind)]


_FRAMES = {
    "openai": check_chat_frames,
    "anthropic": check_messages_frames,
    "responses": check_responses_frames,
}


def check_frames(a: Answer) -> None:
    _FRAMES[a.client](a.data)


def ended(a: Answer, way: Any = None) -> Json:
    """What the client's SDK makes of it."""
    return a.read(way or WAYS[a.client][True][0])


CASES = [
    (client, first, second) for client in DIALECTS for first in DIALECTS for second in DIALECTS
]
DEPLOY = ("call_first1", "deploy", {"to": "production"})
CHECK = ("toolu_second1", "look", {"at": "status"})
