"""Whenever verdicts and commits come, and in whatever order: the outputs are the same, every answer
ends, and records agree.

This is what a takeover rests on: the second owner knows all verdicts at once that the first one
waited for.
"""

import itertools
import json
import random
from collections.abc import Sequence

import msgspec
import pytest

from policy.base import Judgement, Policy
from policy.session.effects import Output
from policy.session.session import Session
from protocol.records import EventRecord, Record, ToolCallRecord
from tests.support.checks.block_runs import Ask, NoSecrets, Same
from tests.support.checks.session_runs import make
from tests.support.json_values import Json
from tests.support.upstreams.denied_call import CALL, anthropic

START = {
    "type": "message",
    "role": "assistant",
    "id": "msg_1",
    "model": "claude-x",
    "usage": {"input_tokens": 3, "output_tokens": 1},
}
REQUEST = {
    "model": "demo",
    "max_tokens": 9,
    "stream": True,
    "messages": [{"role": "user", "content": "hi"}],
}
CHAINS: list[list[type[Policy]]] = [[Ask], [NoSecrets, Ask], [NoSecrets, Ask, Same]]
KINDS = [
    "text",
    "suspect",
    "half",
    "thinking",
    "tool",
    "server",
    "mcp",
    "result",
    "result",
    "sealed",
]


def block(
    kind: str, index: int, calls: list[str], chance: random.Random
) -> tuple[Json, list[Json]]:
    """A content block as it begins, and its deltas."""
    match kind:
        case "text":
            return {"type": "text", "text": ""}, [
                {"type": "text_delta", "text": t} for t in ("so {", '"x": 1} ')
            ]
        case "suspect":
            return {"type": "text", "text": "a "}, [
                {"type": "text_delta", "text": t} for t in (CALL[:20], CALL[20:] + " b")
            ]
        case "half":
            return {"type": "text", "text": chance.choice([CALL[:25], CALL[25:]])}, []
        case "thinking":
            return {"type": "thinking", "thinking": "hm", "signature": ""}, [
                {"type": "signature_delta", "signature": "s"}
            ]
        case "tool":
            return {
                "type": "tool_use",
                "id": f"toolu_{index}",
                "name": "bash",
                "input": {"a": index},
            }, []
        case "result":
            content, identity = (
                chance.choice(["ok", "secret"]),
                calls.pop(chance.randrange(len(calls))),
            )
            return {
                "type": "web_search_tool_result",
                "tool_use_id": identity,
                "content": content,
            }, []
        case "sealed":
            return {"type": "redacted_thinking", "data": "xx"}, []
    calls.append(f"srv_{index}")
    own = (
        {"type": "mcp_tool_use", "server_name": "s"}
        if kind == "mcp"
        else {"type": "server_tool_use"}
    )
    return {**own, "id": calls[-1], "name": "web_search", "input": {"a": index}}, []


def stream(chance: random.Random) -> list[bytes]:
    events: list[Json] = [{"type": "message_start", "message": START | {"content": []}}]
    calls: list[str] = []
    for index in range(chance.randrange(1, 9)):
        kind = chance.choice(KINDS)
        begun, deltas = block(kind if kind != "result" or calls else "text", index, calls, chance)
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    if chance.random() < 0.8:
        reason = chance.choice(["end_turn", "tool_use"])
        events.append(
            {
                "type": "message_delta",
                "delta": {"stop_reason": reason},
                "usage": {"output_tokens": 99},
            }
        )
        events.append({"type": "message_stop"})
    return anthropic(*events)


class Owner:
    """One owner of a call: its facts are the same as any other's, but it takes each when chance
    says."""

    def __init__(self, session: Session, seed: int, eagerness: float) -> None:
        self.session, self.seed, self.eagerness = session, seed, eagerness
        self.chance = random.Random(eagerness)
        self.open: list[tuple[str, int, int]] = []
        self.outputs: list[Output] = []
        self.records: list[Record] = []
        self.end = ""

    def collect(self) -> None:
        taken = self.session.drain()
        self.outputs += taken.outputs
        self.records += taken.records
        self.end = taken.end or self.end
        self.open += [("judgement", ask.block, ask.step) for ask in taken.asks] + [
            ("commit", key, 0) for key in taken.waits
        ]

    def take_fact(self) -> None:
        kind, key, step = self.open.pop(self.chance.randrange(len(self.open)))
        fact = random.Random(f"{self.seed} {kind} {key}").random()
        if kind == "judgement":
            self.session.judgement(key, step, Judgement(probability=float(fact < 0.3)), 5)
        else:
            self.session.committed(key, "" if fact < 0.85 else "audit_unavailable", 5)
        self.collect()

    def run(self, chunks: Sequence[bytes]) -> None:
        self.collect()
        for number, raw in enumerate(chunks, start=1):
            self.session.chunks(number, [raw])
            self.collect()
            while self.open and self.chance.random() < self.eagerness:
                self.take_fact()
        self.session.eof()
        self.collect()
        while self.open:
            self.take_fact()


def conflicts(first: list[Record], second: list[Record]) -> list[tuple[Record, Record]]:
    """Records with the same key and other content, but for calls behind a cut: whether they had a
    verdict by then is chance."""

    def key(record: Record) -> tuple[object, ...]:
        names = ("kind", "number") if isinstance(record, EventRecord) else ("block", "step")
        return (type(record), *(getattr(record, name, None) for name in names))

    known = {key(r): msgspec.structs.replace(r, at=0) for r in first}
    pairs = [(known[key(r)], msgspec.structs.replace(r, at=0)) for r in second if key(r) in known]
    return [
        p
        for p in pairs
        if p[0] != p[1]
        and not any(isinstance(r, ToolCallRecord) and r.reason == "after_denied" for r in p)
    ]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("policies", CHAINS, ids=len)
def test_the_same_comes_out_whenever_verdicts_and_commits_come(
    policies: list[type[Policy]], durable: bool
) -> None:
    for seed in range(120):
        chunks = stream(random.Random(seed))
        owners = []
        for eagerness in (1.0, 0.0, 0.3, 0.6):
            session = make(
                [p() for p in policies], durable=durable, dialect="anthropic", request=REQUEST
            )
            owners.append(Owner(session, seed, eagerness))
            owners[-1].run(chunks)
            assert owners[-1].end, f"stream {seed} never ends"
        assert len({json.dumps([repr(o) for o in owner.outputs]) for owner in owners}) == 1, (
            f"stream {seed}"
        )
        for one, other in itertools.pairwise(owners):
            assert conflicts(one.records, other.records) == [], f"stream {seed}"
