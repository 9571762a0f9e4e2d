"""The session by itself: what comes out for what goes in, and that a replay gives the same."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from policy.base import (
    ALLOW,
    AskJudge,
    Block,
    Judgement,
    JudgeQuestion,
    Policy,
    Replace,
    TextBlock,
    ToolCall,
    Verdict,
)
from policy.session.effects import Output, Respond, SessionEffects
from policy.session.session import Session
from protocol.errors import PolicyFailed
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    MessageStart,
    MessageStop,
    StopReason,
    UpstreamFailed,
)
from protocol.records import BlockRecord, EventRecord, JudgementRecord, ToolCallRecord
from settings.config import Config
from tests.support.checks.kinds import of_kind
from tests.support.checks.session_runs import DONE, REQUEST, call_chunk, chunk, make, run, texts
from tests.support.json_values import as_json
from tests.support.worker_calls import call_info


class Deny(Policy):
    name = "deny"

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Block("denied") if "rm" in call.arguments else ALLOW


class Ask(Policy):
    name = "ask"
    asks = True

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return AskJudge(JudgeQuestion("demo-judge", "s", "p", "n", 0.5, None, {}))

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        return (
            ALLOW
            if judgement.probability is not None and judgement.probability < 0.5
            else Block("judge")
        )


class Shout(Policy):
    def on_text(self, text: str, block: TextBlock) -> str:
        return text.upper()


class Broken(Policy):
    def on_text(self, text: str, block: TextBlock) -> str:
        raise RuntimeError("boom")

    def on_tool_call(self, call: ToolCall) -> Verdict:
        raise RuntimeError("boom")


def end(outputs: Sequence[Output]) -> MessageStop:
    assert isinstance(outputs[-1], MessageStop)
    return outputs[-1]


def test_unknown_model_is_refused_before_anything_is_sent() -> None:
    outputs = make(request=REQUEST | {"model": "nope"}).drain().outputs
    assert len(outputs) == 1 and isinstance(outputs[0], Respond)
    assert outputs[0].status == 404 and b"model_not_found" in outputs[0].body


@pytest.mark.parametrize("endpoint", ["chat", "count_tokens"])
def test_an_answer_to_a_call_that_was_refused_is_withheld(endpoint: str) -> None:
    """An owner asked upstream and died; the next one finds that the request takes too long to
    check, and then what upstream said."""
    call = call_info(endpoint=endpoint, nonce="nonce", max_arguments_bytes=1000)
    fed: tuple[Callable[[Session], object], ...] = (
        lambda session: session.chunks(1, [chunk({"content": "hi"}), DONE]),
        lambda session: session.body(1, b"{}"),
        lambda session: session.error_status(500, b"{}", ""),
        lambda session: session.eof(),
        lambda session: session.failed("upstream_timeout"),
    )
    marks = []
    for feed in fed:
        session = Session(call, [], Config())
        session.refuse(PolicyFailed("it was given up"))
        session.drain()
        marks.append(feed(session))
        taken = session.drain()
        assert (taken.outputs, taken.records) == ([], [])
    assert marks == [[("withheld", -1)] * 2, ("withheld", -1), ("withheld", -1), None, None]


def test_an_allowed_call_is_released_whole_and_only_once_complete() -> None:
    session = make([Deny()])
    session.drain()
    session.chunks(
        1,
        [
            call_chunk(0, "bash", '{"comm'),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": 'and":"ls"}'}}]}),
        ],
    )
    assert [type(o) for o in session.drain().outputs] == [MessageStart]
    outputs = run(session, [chunk(finish="tool_calls"), DONE])
    assert [o.text for o in outputs if isinstance(o, ArgumentsDelta)] == ['{"command":"ls"}']
    assert end(outputs).stop_reason is StopReason.TOOL_USE


def test_a_blocked_call_leaves_a_turn_that_says_so() -> None:
    session = make([Deny()])
    outputs = run(
        session, [call_chunk(0, "bash", '{"command":"rm -rf /"}'), chunk(finish="tool_calls"), DONE]
    )
    assert not [
        o
        for o in outputs
        if isinstance(o, ArgumentsDelta)
        or (isinstance(o, BlockStart) and o.kind is BlockKind.TOOL_USE)
    ]
    assert "the policy 'p' forbids it (deny: denied)" in texts(outputs)
    assert end(outputs).stop_reason is StopReason.END_TURN


@pytest.mark.case("J5")
@pytest.mark.parametrize(
    "arguments",
    [
        '{"a":1,"a":2}',
        '{"a":NaN}',
        '{"a":1} x',
        "[1]",
        '{"a":"\\ud800"}',
        '{"a":1e999}',
        '{"a":' * 70 + "1" + "}" * 70,
    ],
)
def test_arguments_that_parsers_read_differently_are_blocked_under_every_policy(
    arguments: str,
) -> None:
    session = make()
    session.drain()
    session.chunks(1, [call_chunk(0, "bash", arguments), chunk(finish="tool_calls")])
    records = of_kind(session.drain().records, ToolCallRecord)
    assert [(r.verdict, r.reason) for r in records] == [("block", "ambiguous_json")]


@pytest.mark.parametrize("arguments", ["{", '{"a', '{"a": "x', '{"a": [1,', '{"a": tr'])
def test_arguments_that_a_token_limit_cut_are_said_to_be_unfinished(arguments: str) -> None:
    session = make()
    session.drain()
    session.chunks(1, [call_chunk(0, "bash", arguments), chunk(finish="length")])
    records = of_kind(session.drain().records, ToolCallRecord)
    assert [(r.verdict, r.reason) for r in records] == [("block", "unfinished")]


def test_arguments_past_the_bound_are_blocked() -> None:
    session = make()
    outputs = run(
        session,
        [call_chunk(0, "bash", '{"a":"' + "x" * 2000 + '"}'), chunk(finish="tool_calls"), DONE],
    )
    assert "its arguments are too large" in texts(outputs)


def test_a_durable_call_waits_for_its_commit() -> None:
    session = make(durable=True)
    session.drain()
    session.chunks(1, [call_chunk(0, "bash", "{}"), chunk(finish="tool_calls"), DONE])
    taken = session.drain()
    assert taken.waits == [0] and not of_kind(taken.outputs, BlockStart)
    assert [r.notify for r in taken.records if isinstance(r, ToolCallRecord)] == [True]
    session.committed(0, "", 5)
    outputs = session.drain().outputs
    assert [type(o) for o in outputs][:2] == [BlockStart, ArgumentsDelta]
    assert end(outputs).stop_reason is StopReason.TOOL_USE


def test_a_call_whose_commit_does_not_come_is_blocked() -> None:
    session = make(durable=True)
    session.drain()
    session.chunks(1, [call_chunk(0, "bash", "{}"), chunk(finish="tool_calls"), DONE])
    session.drain()
    session.committed(0, "audit_unavailable", 5)
    taken = session.drain()
    assert "it could not be recorded in time" in texts(taken.outputs)
    assert [r.reason for r in taken.records if isinstance(r, BlockRecord)] == ["audit_unavailable"]


def judged(probability: float | None) -> SessionEffects:
    session = make([Ask()])
    session.drain()
    session.chunks(
        1,
        [
            chunk({"content": "first"}),
            call_chunk(0, "bash", "{}"),
            chunk(finish="tool_calls"),
            DONE,
        ],
    )
    taken = session.drain()
    assert texts(taken.outputs) == "first" and [(a.block, a.step) for a in taken.asks] == [(1, 0)]
    session.judgement(1, 0, Judgement(probability=probability, reply="r"), 7)
    return session.drain()


def test_a_judge_decides_and_is_recorded_for_allows_too() -> None:
    allowed = judged(0.1)
    assert [o.text for o in allowed.outputs if isinstance(o, ArgumentsDelta)] == ["{}"]
    assert [r.probability for r in allowed.records if isinstance(r, JudgementRecord)] == [0.1]
    assert "judge" in texts(judged(0.9).outputs)
    assert "judge" in texts(judged(None).outputs)


def test_what_follows_a_held_block_waits_behind_it() -> None:
    session = make(
        [Ask()],
        request={
            "model": "demo-anthropic",
            "max_tokens": 9,
            "stream": True,
            "messages": [{"role": "user", "content": "x"}],
        },
        dialect="anthropic",
    )
    session.drain()

    def frame(kind: str, **body: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **body})}\n\n".encode()

    session.chunks(
        1,
        [
            frame(
                "message_start",
                message={
                    "id": "msg_1",
                    "model": "m",
                    "usage": {"input_tokens": 1, "output_tokens": 1},
                },
            ),
            frame(
                "content_block_start",
                index=0,
                content_block={"type": "tool_use", "id": "t", "name": "bash", "input": {}},
            ),
            frame("content_block_stop", index=0),
            frame("content_block_start", index=1, content_block={"type": "text", "text": ""}),
            frame("content_block_delta", index=1, delta={"type": "text_delta", "text": "after"}),
        ],
    )
    assert texts(session.drain().outputs) == ""
    session.judgement(0, 0, Judgement(probability=0.0), 7)
    assert texts(session.drain().outputs) == "after"


@pytest.mark.case("W8")
def test_a_policy_that_raises_blocks() -> None:
    outputs = run(
        make([Broken()]),
        [
            chunk({"content": "secret"}),
            call_chunk(0, "bash", "{}"),
            chunk(finish="tool_calls"),
            DONE,
        ],
    )
    assert "secret" not in texts(outputs) and "[Sluice withheld something here. Call c.]" in texts(
        outputs
    )
    assert end(outputs).stop_reason is StopReason.END_TURN


class Rewrite(Policy):
    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Replace(
            '{"command":1}' if call.value.get("command") == "bad" else '{"command":"echo"}'
        )


@pytest.mark.case("J8")
def test_a_replacement_must_fit_the_tools_schema() -> None:
    good = run(
        make([Rewrite()]),
        [call_chunk(0, "bash", '{"command":"x"}'), chunk(finish="tool_calls"), DONE],
    )
    assert [o.text for o in good if isinstance(o, ArgumentsDelta)] == ['{"command":"echo"}']
    bad = run(
        make([Rewrite()]),
        [call_chunk(0, "bash", '{"command":"bad"}'), chunk(finish="tool_calls"), DONE],
    )
    assert "schema" in texts(bad) and not of_kind(bad, ArgumentsDelta)


@pytest.mark.case("U3")
def test_a_cut_stream_ends_in_an_error_and_never_releases_half_a_call() -> None:
    session = make()
    outputs = run(session, [chunk({"content": "so far"}), call_chunk(0, "bash", '{"comm')])
    session.eof()
    outputs += session.drain().outputs
    assert texts(outputs) == "so far"
    assert isinstance(outputs[-1], UpstreamFailed)
    assert not of_kind(outputs, ArgumentsDelta)
    assert session.state == "FAILED"


def test_an_error_before_the_first_byte_keeps_its_status() -> None:
    session = make()
    session.drain()
    session.error_status(429, b'{"error":{"message":"slow down"}}', "7")
    (answer,) = session.drain().outputs
    assert isinstance(answer, Respond)
    assert (answer.status, answer.headers["retry-after"]) == (429, "7")


@pytest.mark.case("U5")
def test_unmodelled_fields_are_withheld_and_recorded() -> None:
    session = make()
    session.drain()
    session.chunks(
        1, [chunk({"content": "x", "audio": {"transcript": "covert"}}), chunk(finish="stop"), DONE]
    )
    taken = session.drain()
    assert "covert" not in repr(taken.outputs)
    assert [r.kind for r in taken.records if isinstance(r, EventRecord)] == ["withheld"]


def test_a_replay_gives_the_same_numbers_and_hash_however_chunks_came_together() -> None:
    chunks = [
        chunk({"content": "a"}),
        chunk({"content": "b"}),
        call_chunk(0, "bash", '{"command":"rm"}'),
        chunk(finish="tool_calls"),
        DONE,
    ]
    one, other = make([Deny()]), make([Deny()])
    for number, raw in enumerate(chunks, start=1):
        one.chunks(number, [raw])
    other.chunks(1, chunks)
    first, second = one.drain(), other.drain()
    assert (first.next, first.digest) == (second.next, second.digest)
    third = make([Shout()])
    third.chunks(1, chunks)
    assert third.drain().digest != first.digest


def answer(*commands: str, text: str = "") -> bytes:
    """A whole answer with a call of bash for each command."""
    calls = [
        {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "bash", "arguments": json.dumps({"command": command})},
        }
        for n, command in enumerate(commands)
    ]
    message = {"role": "assistant", "content": text or None, "tool_calls": calls}
    return as_json(
        {
            "id": "x",
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        }
    )


@pytest.mark.parametrize(
    ("policies", "commands", "text", "said"),
    [
        ([], ["ls"], "", "allow"),
        ([Deny()], ["ls", "rm -rf /"], "so be it", "block"),
        ([Shout()], ["ls"], "so be it", "replace"),
        ([Deny(), Shout()], ["rm -rf /"], "so be it", "block"),
    ],
)
def test_the_chunk_of_a_whole_answer_says_what_was_decided(
    policies: list[Policy], commands: list[str], text: str, said: str
) -> None:
    session = make(policies, request=REQUEST | {"stream": False})
    assert session.body(1, answer(*commands, text=text)) == (said, -1)


def test_the_chunk_of_a_whole_answer_is_held_until_the_last_call_is_decided() -> None:
    session = make([Ask()], durable=True, request=REQUEST | {"stream": False})
    session.drain()
    assert session.body(1, answer("ls", "pwd")) == ("hold", -1)
    asks = session.drain().asks
    for ask in asks:
        assert session.whole_verdict == "hold"
        session.judgement(ask.block, ask.step, Judgement(model="m", probability=0.1), 2)
    for ask in asks:
        assert session.whole_verdict == "hold"
        session.committed(ask.block, "", 3)
    assert session.whole_verdict == "allow"
    denied = make([Ask()], request=REQUEST | {"stream": False})
    denied.body(1, answer("ls", "pwd"))
    ask = denied.drain().asks[0]
    denied.judgement(ask.block, ask.step, Judgement(model="m", probability=0.9), 2)
    assert denied.whole_verdict == "block"


@pytest.mark.parametrize(
    ("variable", "said"),
    [("A_KEY", "the variable A_KEY"), ("gsk_abcdefgh", "the variable that api_key_env names")],
)
def test_a_key_that_somebody_put_in_the_place_of_its_variable_is_not_repeated(
    variable: str, said: str
) -> None:
    upstream = {"dialect": "openai", "base_url": "http://127.0.0.1:1", "api_key_env": variable}
    config = Config.model_validate(
        {"upstreams": {"a": upstream}, "models": [{"match": "gpt-*", "upstream": "a"}]}
    )
    session = Session(call_info(max_arguments_bytes=1000), [], config)
    session.begin(as_json(REQUEST | {"model": "gpt-x"}))
    session.error_status(401, b'{"error":{"message":"no"}}', "")
    (noted,) = [
        r
        for r in session.drain().records
        if isinstance(r, EventRecord) and r.kind == "upstream_authentication"
    ]
    assert f"the provider rejected the key in {said};" in noted.detail and (
        "gsk" not in noted.detail
    )
