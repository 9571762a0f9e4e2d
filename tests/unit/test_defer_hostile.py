"""Two models that want to harm their client or its record, in a turn that may be deferred: whatever
they say, the same holds.

Answers are made at random of what an upstream may send, right or wrong, and taken three times: with
each fact as soon as it is asked for, with all facts when nothing else comes, and with facts at any
time, other workers taking the call over. All ways must lead to the same outputs, a message that is
whole, and a record that says what went out.
"""

import contextlib
import json
import random
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import methodcaller
from typing import Any

import pytest

from policy.base import (
    ALLOW,
    AskJudge,
    Block,
    Defer,
    Judgement,
    JudgeQuestion,
    Policy,
    Replace,
    ToolCall,
    Verdict,
)
from policy.session.answer.slots import FIRST_SUSPECT
from policy.session.choosing import session_of
from policy.session.effects import Output, Respond, SendUpstream
from policy.session.session import Session
from protocol.dialects.table import CLIENTS as TABLE
from protocol.events import BlockKind, BlockStart, TextDelta
from protocol.records import (
    AttemptRecord,
    BlockRecord,
    EventRecord,
    Record,
    ToolCallRecord,
    ToolReleaseRecord,
)
from protocol.request import DialectName, Endpoint
from protocol.server_tools.data import table
from tests.support.checks.deferred import DIALECTS, FIRST, OTHER, SEARCHES, TOOLS
from tests.support.checks.kinds import of_kind
from tests.support.checks.order import check_chat_frames, check_messages_frames
from tests.support.clients.answering import direct
from tests.support.json_values import Json, as_json
from tests.support.upstreams.bodies import whole_body
from tests.support.upstreams.cases import began, chunks, client_call, frames, piece, text, whole
from tests.support.upstreams.frames import delta, end, start, stop
from tests.support.upstreams.recordings import Recording
from tests.support.upstreams.turns import events
from tests.support.worker_calls import call_info

WORDS = ("look", "deploy", "ask", "swap", "stop", "nobody")


class Mixed(Policy):
    """Defers, blocks, replaces or asks, by the name of the tool and what a judge says."""

    name = "mixed"
    asks = True

    def __init__(self, model: str, release: Any) -> None:
        self.defers_to, self.release = (model,), release

    def on_tool_call(self, call: ToolCall) -> Verdict:
        match call.name:
            case "deploy":
                return ALLOW if call.is_deferred else Defer(self.defers_to[0], "critical")
            case "stop":
                return Block("stopped")
            case "swap":
                return Replace('{"swapped": true}')
            case "ask" | "web_search":
                return AskJudge(
                    JudgeQuestion("demo-judge", "s", call.arguments, "n", 0.5, None, {})
                )
        return ALLOW

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        value = judgement.probability or 0.0
        return (
            ALLOW
            if value < 0.5
            else Defer(self.defers_to[0], "judge")
            if value < 0.8
            else Block("judge")
        )


class Models:
    """What the models answer, made at random. `secret` is in all that must not go out."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self._count = chance, 0

    def _word(self) -> str:
        self._count += 1
        return f"w{self._count:04d}"

    def _call(self) -> tuple[str, str, Any]:
        chance = self.chance
        identity = chance.choice(
            [
                "",
                "0",
                "call_1",
                "toolu_01AbCdEfGhIjKlMn",
                f"call_{self._count}",
                "call_1",
                "x" * 300,
            ]
        )
        return identity, chance.choice(WORDS), {"arg": self._word() * chance.choice([1, 1, 1, 400])}

    def _found(self) -> str:
        name = self.chance.choice(WORDS)
        return (
            f'<tool_call>{{"name": "{name}", "arguments": {{"arg": "{self._word()}"}}}}</tool_call>'
        )

    def _says(self) -> str:
        return self._word() + (self._found() if self.chance.random() < 0.15 else " ")

    def answer(self, dialect: DialectName) -> bytes:
        """A stream, mostly right."""
        body = self._chat() if dialect == "openai" else self._messages()
        match self.chance.randrange(14):
            case 0:
                return body[: self.chance.randrange(len(body))]
            case 1:
                parts = body.split(b"\n\n")
                self.chance.shuffle(parts)
                return b"\n\n".join(parts)
            case 2:
                at = self.chance.randrange(len(body))
                return body[:at] + self.chance.choice([b"\0", b"}", b'"', b"\n\n"]) + body[at:]
            case 3:
                return body + body
            case _:
                return body

    def _chat(self) -> bytes:
        chance, deltas = self.chance, [{"role": "assistant"}]
        number = 0
        for _ in range(chance.choice([0, 1, 2, 3, 5])):
            match chance.randrange(8):
                case 0 | 1 | 2:
                    identity, name, value = self._call()
                    written = (
                        json.dumps(value)
                        if chance.random() < 0.9
                        else chance.choice(['{"a":1,"a":2}', "[]", "{", ""])
                    )
                    deltas += [
                        piece(number, written[:4], identity, name),
                        piece(number, written[4:]),
                    ]
                    number += 1
                case 3:
                    deltas.append({"reasoning_content": self._says()})
                case 4:
                    deltas.append({"refusal": self._word()})
                case _:
                    deltas.append({"content": self._says()})
        finish = chance.choice(
            ["tool_calls" if number else "stop"] * 6 + ["stop", "length", "content_filter", "error"]
        )
        usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
        return chunks(*deltas, finish=finish, usage=usage)

    def _messages(self) -> bytes:
        chance, blocks = self.chance, []
        number = calls = 0
        for _ in range(chance.choice([0, 1, 2, 3, 5])):
            match chance.randrange(9):
                case 0 | 1 | 2:
                    identity, name, value = self._call()
                    blocks += client_call(number, identity, name, value)
                    calls += 1
                case 3:
                    said = delta(number, "thinking_delta", thinking=self._says())
                    blocks += [
                        start(number, type="thinking", thinking="", signature=""),
                        said,
                        stop(number),
                    ]
                case 4:
                    search = {
                        "type": "server_tool_use",
                        "id": f"srvtoolu_{number}",
                        "name": "web_search",
                        "input": {"query": self._word()},
                    }
                    blocks += whole(number, search)
                    if chance.random() < 0.7:
                        number += 1
                        found = {
                            "type": "web_search_tool_result",
                            "tool_use_id": f"srvtoolu_{number - 1}",
                            "content": [],
                        }
                        blocks += whole(number, found)
                case 5:
                    blocks += whole(number, {"type": "redacted_thinking", "data": "c2ln"})
                case _:
                    blocks += text(number, self._says())
            number += 1
        reason = chance.choice(
            ["tool_use" if calls else "end_turn"] * 6
            + ["pause_turn", "pause_turn", "max_tokens", "refusal", "end_turn"]
        )
        more = (
            [{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}]
            if chance.random() < 0.05
            else end(reason)
        )
        return frames(began(usage={"input_tokens": 5, "output_tokens": 1}), *blocks, *more)


class Run:
    """One call, fed with answers; facts come at once, or late."""

    def __init__(
        self,
        client: DialectName,
        first: DialectName,
        policies: Sequence[Policy],
        *,
        durable: bool,
        streams: bool,
        way: str,
        seed: int,
    ) -> None:
        endpoint: Endpoint = "chat" if client == "openai" else "messages"
        info = call_info(
            "01990000-0000-7000-8000-00000000abcd",
            client,
            endpoint=endpoint,
            nonce="nonce",
            durable=durable,
            server_tools=tuple(table().families),
        )
        self.session = session_of(info, policies, SEARCHES)
        self.client, self.streams, self.way, self.seed = client, streams, way, seed
        self.chance = random.Random(seed)
        self.steps: list[Callable[[Session], object]] = []
        self.known = set[tuple[int, int]]()
        """Facts that are set: the block, the step of a question or -1 for a commit."""
        self.outputs, self.records = list[Output](), list[Record]()
        self.asks, self.waits = list[Any](), list[int]()
        self.uncommitted, self.early = set[int](), list[str]()
        search = (
            [{"type": "web_search_20250305", "name": "web_search"}]
            if client == "anthropic" and first == "anthropic"
            else []
        )
        names = [tool for name in WORDS[:-1] for tool in _tools(client, name)]
        request = {
            "model": FIRST[first],
            "max_tokens": 9_000,
            "stream": streams,
            "messages": [{"role": "user", "content": "go"}],
            "tools": [*names, *search],
        }
        body = as_json(request)
        self.seq = 1
        self.step(lambda session: session.begin(body))

    def step(self, step: Callable[[Session], object], count: int = 0) -> None:
        """Take a step, and what comes of it; then another worker may take the call over."""
        self.steps.append(step)
        step(self.session)
        self.seq += count
        self.take()
        while self.way == "taken over" and self.chance.random() < 0.3:
            if self.chance.random() < 0.5:
                self.fact()
            else:
                self.take_over()

    def take_over(self) -> None:
        """Replay the call with the facts that are set."""
        before = self.outputs
        self.session = self.session.anew()
        self.outputs, self.records, self.asks, self.waits, self.uncommitted = [], [], [], [], set()
        for step in self.steps:
            step(self.session)
            self.take()
        assert self.outputs[: len(before)] == before, "a replay gives other outputs than went out"

    def take(self) -> None:
        taken = self.session.drain()
        if taken.lookup:
            self.session.turns([])
        new = taken.outputs
        for output in new:
            if isinstance(output, SendUpstream) and self.uncommitted:
                self.early.append("dispatch")
            if (
                isinstance(output, BlockStart)
                and output.kind is BlockKind.TOOL_USE
                and self._block(output) in self.uncommitted
            ):
                self.early.append(output.id)
        self.outputs += new
        self.records += taken.records
        self.waits += taken.waits
        self.uncommitted |= set(taken.waits)
        self.asks += taken.asks
        if taken.lookup:
            self.take()
        for wait in [block for block in self.waits if (block, -1) in self.known]:
            self._commit(wait)
        for ask in [ask for ask in self.asks if (ask.block, ask.step) in self.known]:
            self._judge(ask)
        while self.way == "early" and self.fact():
            pass

    def _block(self, begun: BlockStart) -> int:
        return next(
            (
                r.block
                for r in self.records
                if isinstance(r, ToolCallRecord) and r.block == begun.index
            ),
            -1,
        )

    def fact(self) -> bool:
        """Set one of the facts that are wanted; False where none is."""
        wanted = [*self.asks, *self.waits]
        if not wanted:
            return False
        one = self.chance.choice(wanted) if self.way == "taken over" else wanted[-1]
        (self._commit(one) if isinstance(one, int) else self._judge(one))
        return True

    def _judge(self, ask: Any) -> None:
        if ask not in self.asks:
            return
        self.asks.remove(ask)
        self.known.add((ask.block, ask.step))
        value = zlib.crc32(f"{self.seed}:{ask.block}:{ask.step}".encode()) % 100 / 100
        self.session.judgement(ask.block, ask.step, Judgement(probability=value), 1)
        self.take()

    def _commit(self, block: int) -> None:
        if block not in self.waits:
            return
        self.waits.remove(block)
        self.known.add((block, -1))
        self.uncommitted.discard(block)
        is_late = zlib.crc32(f"{self.seed}:{block}".encode()) % 10 == 0
        self.session.committed(block, "audit_unavailable" if is_late else "", 1)
        self.take()

    @property
    def dispatches(self) -> int:
        return sum(isinstance(output, SendUpstream) for output in self.outputs)

    def play(
        self,
        bodies: dict[DialectName, list[bytes]],
        upstream: dict[str, DialectName],
        chance: random.Random,
    ) -> "Run":
        """Answer each request, until none comes."""
        answered, models = 0, []
        while True:
            while self.fact():
                pass
            if answered == self.dispatches or self.session.state != "ACTIVE":
                return self
            answered += 1
            sent = of_kind(self.outputs, SendUpstream)[-1]
            models.append(sent.upstream)
            body = bodies[upstream[sent.upstream]][answered % len(bodies[upstream[sent.upstream]])]
            made = events(body)
            # of what this is made depends on the answer alone
            fate = random.Random(zlib.crc32(f"{self.seed}:{answered}".encode()))
            if not self.streams:
                self._take_whole(upstream[sent.upstream], body, fate)
                continue
            if fate.random() < 0.06:
                self.step(
                    methodcaller(
                        "error_status",
                        status=fate.choice([400, 429, 500, 529]),
                        raw=b"{}",
                        retry_after="",
                        seq=self.seq,
                    ),
                    1,
                )
                continue
            is_broken = fate.random() < 0.08
            made = made[: fate.randrange(len(made) + 1)] if is_broken else made
            while made:
                size = 1 if self.way == "early" else chance.randrange(1, 9)
                self.step(methodcaller("chunks", seq=self.seq, raw=made[:size]), len(made[:size]))
                made = made[size:]
            ended = ("failed", "upstream_timeout") if is_broken else ("eof",)
            self.step(methodcaller(*ended, seq=self.seq), 1)

    def _take_whole(self, dialect: DialectName, body: bytes, fate: random.Random) -> None:
        with contextlib.suppress(Exception):
            # one that no SDK can put together comes as it is
            body = whole_body(Recording("case", dialect, body, True, {}), direct)
        if fate.random() < 0.1:
            self.step(methodcaller("failed", code="upstream_unreachable", seq=self.seq), 1)
        else:
            self.step(methodcaller("body", seq=self.seq, raw=body), 1)


def _tools(client: DialectName, name: str) -> list[Json]:
    known = json.loads(json.dumps(TOOLS[client][0]))
    (known["function"] if client == "openai" else known)["name"] = name
    return [known]


def data_of(run: Run) -> bytes:
    assert run.session.request is not None
    said: list[Any] = [o for o in run.outputs if not isinstance(o, SendUpstream | Respond)]
    return (
        TABLE[run.client]
        .encoder(run.session.request, call_id=run.session.call.call_id, created=1)
        .encode(said)
    )


def check(run: Run) -> None:
    """What holds for every call."""
    assert run.session.state in ("ENDED", "FAILED"), "nothing more comes, and it waits"
    assert not run.early, "before it was committed"
    assert run.dispatches <= 8
    calls = of_kind(run.records, ToolCallRecord)
    for kind in ToolCallRecord, ToolReleaseRecord:
        counted = Counter(r.block for r in run.records if isinstance(r, kind))
        assert not counted or max(counted.values()) == 1, (kind, counted)
    if not any(isinstance(o, Respond) for o in run.outputs):
        data = data_of(run)
        if run.session.state == "ENDED" and run.streams:
            (check_messages_frames if run.client == "anthropic" else check_chat_frames)(data)
        assert b"trusted" not in data
        # a model that goes on may say the same again, and a judge may find otherwise
        kept = {r.arguments for r in calls if r.verdict in ("allow", "replace")}
        denied = {
            r.arguments.decode("utf-8", "replace")
            for r in calls
            if r.verdict in ("discarded", "block") and r.arguments not in kept
        }
        for arguments in denied:
            if arguments.startswith('{"arg": "w'):
                assert arguments[9:14].encode() not in data, arguments[:60]
    begun = [o for o in run.outputs if isinstance(o, BlockStart) and o.kind is BlockKind.TOOL_USE]
    assert len({o.id for o in begun}) == len(begun), "two calls have one id"
    shown = Counter(o.name for o in begun)
    late = {
        r.block
        for r in run.records
        if isinstance(r, BlockRecord) and r.reason == "audit_unavailable"
    }
    released = {r.block for r in run.records if isinstance(r, ToolReleaseRecord)}
    native = [r for r in calls if r.executor == "client" and r.form == "native"]
    allowed = Counter(
        r.name
        for r in native
        if r.verdict in ("allow", "replace") and r.block not in late and r.block in released
    )
    is_cut = run.session._exchange is not None and run.session._exchange.blocks.is_cut
    if run.session.state == "ENDED":
        assert shown <= allowed if is_cut else shown == allowed, (shown, allowed)
    going_out = {o.index for o in run.outputs if isinstance(o, BlockStart)}
    told = {
        r.block
        for r in run.records
        if isinstance(r, BlockRecord)
        and r.verdict == "allow"
        and r.block < FIRST_SUSPECT
        # in a body a thought may be empty, and then nothing of it goes out
        and (run.streams or r.kind != "thinking")
    }
    if (
        run.session.state == "ENDED"
        and not is_cut
        and not {r.kind for r in run.records if isinstance(r, EventRecord)} & {"protocol_error"}
    ):
        assert told <= going_out, (told - going_out, "allowed, and did not go out")
    rows = of_kind(run.records, AttemptRecord)
    assert all(one.end_seq + 1 == two.first_seq for one, two in pairwise(rows)), rows
    assert sum(r.chosen and r.segment == rows[-1].segment for r in rows) <= 1
    assert not any(isinstance(o, TextDelta) and not isinstance(o.text, str) for o in run.outputs)


def attacked(seed: int) -> None:
    chance = random.Random(seed)
    client, first, second = (chance.choice(DIALECTS) for _ in range(3))
    models = Models(chance)
    bodies: dict[DialectName, list[bytes]] = {
        d: [models.answer(d) for _ in range(3)] for d in DIALECTS
    }
    upstream: dict[str, DialectName] = {f"{t}{d}": d for t in ("", "trusted-") for d in DIALECTS}
    streams = chance.random() < 0.8
    durable, release = chance.random() < 0.5, chance.choice(["early", "whole"])
    runs = []
    for way in ("early", "late", "taken over"):
        policies = [Mixed(OTHER[second], release)]
        run = Run(client, first, policies, durable=durable, streams=streams, way=way, seed=seed)
        runs.append(run.play(bodies, upstream, random.Random(seed)))
        check(run)
    assert runs[0].outputs == runs[1].outputs == runs[2].outputs, (
        "facts that come late lead elsewhere"
    )
    if any(
        run.session._exchange.blocks.is_cut for run in runs if run.session._exchange is not None
    ):
        # how much had come when the call was denied is chance
        return
    rows = [
        sorted(
            (r.block, r.verdict, r.reason)
            for r in run.records
            if isinstance(r, ToolCallRecord | BlockRecord)
        )
        for run in runs
    ]
    assert rows[0] == rows[1] == rows[2]


@pytest.mark.parametrize("part", range(8))
def test_whatever_two_models_say_the_call_ends_and_its_record_is_true(part: int, seed: int) -> None:
    for n in range(60):
        attacked(seed * 1_000 + part * 100 + n)
