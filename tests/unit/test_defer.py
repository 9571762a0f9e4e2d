"""A turn that is deferred: another model's answer takes the place of what waits, and its client
learns nothing of it."""

import json

import pytest

from policy.base import ALLOW, Block, Defer, ToolCall, Verdict
from policy.session.effects import SendUpstream
from protocol.records import (
    AttemptRecord,
    BlockRecord,
    EventRecord,
    ToolCallRecord,
    ToolReleaseRecord,
)
from protocol.request import DialectName
from tests.support.checks.deferred import (
    CASES,
    CHECK,
    CONFIG,
    DEPLOY,
    DIALECTS,
    FIRST,
    OTHER,
    SEARCHES,
    TOOL_NAMES,
    TOOLS,
    Always,
    Critical,
    Secret,
    answer,
    begun,
    check_frames,
    count_of_dispatches,
    ended,
    of,
    sent_models,
)
from tests.support.clients.answering import Answer, direct
from tests.support.clients.sdk_answers import WAYS
from tests.support.json_values import Json
from tests.support.upstreams.bodies import whole_body
from tests.support.upstreams.cases import (
    began,
    calls_of,
    chunks,
    client_call,
    frames,
    stop_of,
    stopped,
    text,
    text_of,
    whole,
)
from tests.support.upstreams.frames import delta, end, start, stop
from tests.support.upstreams.recordings import Recording, own_recordings


@pytest.mark.parametrize(("client", "first", "second"), CASES)
@pytest.mark.parametrize("streams", [True, False])
def test_the_rest_of_the_turn_is_the_other_models(
    client: DialectName, first: DialectName, second: DialectName, streams: bool
) -> None:
    a = begun(client, first, Critical(OTHER[second]), streams=streams)
    bodies = (
        answer(first, "I deploy now.", DEPLOY, tokens=(50, 30)),
        answer(second, "First I look.", CHECK, tokens=(70, 7)),
    )
    if not streams:
        recorded = [
            Recording("case", d, b, True, {}) for d, b in zip((first, second), bodies, strict=True)
        ]
        bodies = whole_body(recorded[0], direct), whole_body(recorded[1], direct)
    a.feed(bodies[0], streams=streams)
    assert count_of_dispatches(a) == 2 and sent_models(a)[-1] == OTHER[second]
    assert not a.session.stop_reason
    a.feed(bodies[1], streams=streams)
    assert a.session.state == "ENDED"
    if streams:
        check_frames(a)
    for way in WAYS[client][streams]:
        said = a.read(way)
        [(_, name, value)] = calls_of(said)
        assert (name, value) == (CHECK[1], CHECK[2])
        assert text_of(said) == ("I deploy now." if streams else "First I look.")
        assert stop_of(said) == stopped(client, "tool_calls", "tool_use")
    assert b"production" not in a.data and b"trusted" not in a.data
    # what clients of chat/completions are told of a Messages provider
    assert (b"sluice" in a.data.lower()) is ((client, first) == ("openai", "anthropic"))
    assert (a.session.usage.output_tokens, a.session.spent.output_tokens) == (7, 37)
    assert b"37" not in a.data and b'"deploy"' not in a.data
    assert [(r.name, r.verdict) for r in of(a.records, ToolCallRecord)] == [
        ("deploy", "discarded"),
        ("look", "allow"),
    ]
    assert [r.block for r in of(a.records, ToolReleaseRecord)] == [
        of(a.records, ToolCallRecord)[1].block
    ]
    rows = of(a.records, AttemptRecord)
    assert [(r.attempt, r.kind, r.upstream, r.model, r.chosen, r.output_tokens) for r in rows] == [
        (0, "first", first, FIRST[first], False, 30),
        (1, "defer", f"trusted-{second}", OTHER[second], True, 7),
    ]
    deferred = next(r for r in of(a.records, EventRecord) if r.kind == "deferred")
    assert deferred.detail.endswith(f"release {'early' if streams else 'whole'}")
    assert rows[0].first_seq == 1 and rows[1].first_seq == rows[0].end_seq + 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_not_deferred_goes_out_when_the_turn_is_complete(dialect: DialectName) -> None:
    a = begun(dialect, dialect, Critical(OTHER[dialect]))
    a.feed(
        answer(
            dialect,
            "I look.",
            ("call_1", "look", {"n": 1}),
            ("call_2", "look", {"n": 2}),
            more="Done.",
        )
    )
    said = ended(a)
    assert text_of(said) == "I look.Done." and [v for _, _, v in calls_of(said)] == [
        {"n": 1},
        {"n": 2},
    ]
    assert count_of_dispatches(a) == 1 and not of(a.records, AttemptRecord)
    assert a.session.state == "ENDED"


def test_text_before_the_first_call_goes_out_as_it_comes_and_nothing_behind_it() -> None:
    a = begun("openai", "openai", Critical("gpt-trusted"))
    body = answer("openai", "I deploy.", ("call_1", "look", {}), DEPLOY, more="It is done.")
    a.session.chunks(1, [chunk + b"\n\n" for chunk in body.split(b"\n\n")[:-3]])
    a._take()
    said = a.data
    assert b"I deploy." in said and b"tool_calls" not in said and b"It is done" not in said


def test_thinking_of_the_other_model_is_left_out_and_it_is_asked_without() -> None:
    history = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "of the first", "signature": "c2ln"},
                {"type": "tool_use", "id": "t0", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t0", "content": "ok"}],
        },
    ]
    thinking = {"type": "enabled", "budget_tokens": 2000}
    a = begun(
        "anthropic",
        "anthropic",
        Critical("claude-trusted"),
        messages=history,
        thinking=thinking,
        system="be good",
    )
    assert not a.dispatched, "the first goes as it came"
    a.feed(answer("anthropic", "", DEPLOY))
    [sent] = a.dispatched
    assert (sent["model"], sent["thinking"], sent["system"]) == (
        "claude-trusted",
        {"type": "disabled"},
        [{"type": "text", "text": "be good"}],
    )
    assert [t["name"] for t in sent["tools"]] == list(TOOL_NAMES)
    assert sent["messages"][1]["content"] == [
        {"type": "tool_use", "id": "t0", "name": "look", "input": {}}
    ]
    block = {"type": "thinking", "thinking": "", "signature": ""}
    shown = [
        start(0, **block),
        delta(0, "thinking_delta", thinking="of the other"),
        delta(0, "signature_delta", signature="c2ln"),
        stop(0),
    ]
    a.feed(
        frames(
            began(),
            *shown,
            *whole(1, {"type": "redacted_thinking", "data": "c2ln"}),
            *client_call(2, "t1", "look", {}),
            *end("tool_use"),
        )
    )
    said = ended(a)
    assert [b["type"] for b in said["blocks"]] == ["tool_use"]


@pytest.mark.parametrize(
    ("content", "thinks"),
    [
        ([{"type": "tool_use", "id": "t0", "name": "look", "input": {}}], False),
        (
            [
                {"type": "thinking", "thinking": "x", "signature": "c2ln"},
                {"type": "tool_use", "id": "t0", "name": "look", "input": {}},
            ],
            True,
        ),
    ],
)
def test_the_model_goes_on_without_thinking_where_another_spoke(
    content: list[Json], thinks: bool
) -> None:
    history: list[Json] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": content},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t0", "content": "ok"}],
        },
    ]
    budget = {"type": "enabled", "budget_tokens": 2000}
    a = begun(
        "anthropic", "anthropic", Critical("claude-trusted"), messages=history, thinking=budget
    )
    assert [o.body is None for o in a.outputs if isinstance(o, SendUpstream)] == [thinks]
    if not thinks:
        assert a.dispatched[0]["thinking"] == {"type": "disabled"}
    again = begun(
        "anthropic",
        "anthropic",
        Critical("claude-trusted"),
        messages=[*history, {"role": "user", "content": "new"}],
        thinking=budget,
    )
    assert not again.dispatched, "after new words of the user it thinks again"


def fault(name: str, a: Answer, dialect: DialectName) -> Answer:
    """Let the second answer go wrong."""
    match name:
        case "429":
            return a.refuse(429, b'{"error": {"type": "rate_limit_error", "message": "slow down"}}')
        case "500":
            return a.refuse(500)
        case "unreachable":
            return a.fail()
        case "cut":
            return a.feed(answer(dialect, "Well,", CHECK)[:-200])
        case "garbage":
            return a.feed(b"data: {]\n\n")
        case "max_tokens" if dialect == "openai":
            return a.feed(chunks({"role": "assistant", "content": "Well"}, finish="length"))
        case "max_tokens":
            return a.feed(frames(began(), *text(0, "Well"), *end("max_tokens")))
        case "refusal" if dialect == "openai":
            return a.feed(chunks({"role": "assistant", "refusal": "I will not"}, finish="stop"))
        case _:
            return a.feed(frames(began(), *text(0, "I will"), *end("refusal")))


FAULTS = ["429", "500", "unreachable", "cut", "garbage", "max_tokens", "refusal"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("release", ["early", "whole"])
def test_where_the_other_model_fails_the_call_is_blocked(
    dialect: DialectName, name: str, release: str
) -> None:
    a = begun(dialect, dialect, Critical(OTHER[dialect], release))
    a.feed(answer(dialect, "I deploy.", DEPLOY, tokens=(50, 30)))
    fault(name, a, dialect)
    said = ended(a)
    check_frames(a)
    assert not calls_of(said) and "blocked the tool call 'deploy'" in text_of(said)
    assert text_of(said).startswith("I deploy.") is (release == "early") and "Well" not in text_of(
        said
    )
    assert stop_of(said) == stopped(dialect, "stop", "end_turn")
    assert a.session.state == "ENDED" and count_of_dispatches(a) == 2
    assert a.session.usage.output_tokens == 30
    assert [(r.attempt, r.chosen) for r in of(a.records, AttemptRecord)] == [(0, False), (1, False)]
    [blocked] = [r for r in of(a.records, BlockRecord) if r.verdict == "block"]
    assert (blocked.reason, blocked.block) == (
        "not_deferred",
        of(a.records, ToolCallRecord)[0].block,
    )
    assert not [r for r in of(a.records, ToolCallRecord) if r.verdict != "discarded"]


@pytest.mark.parametrize("model", ["nobody", "gpt-" + "x" * 200])
def test_a_model_that_cannot_be_asked_for_blocks_the_call(model: str) -> None:
    a = begun("openai", "openai", Critical(model))
    a.feed(answer("openai", "I deploy.", DEPLOY))
    assert "blocked the tool call" in text_of(ended(a)) and count_of_dispatches(a) == 1
    assert [(r.attempt, r.chosen) for r in of(a.records, AttemptRecord)] == [(0, False)]


def test_the_second_answer_is_decided_by_the_same_series_and_not_deferred_again() -> None:
    a = begun("openai", "openai", Critical("gpt-trusted"))
    a.feed(answer("openai", "", DEPLOY)).feed(
        answer("openai", "", ("call_2", "deploy", {"to": "staging"}))
    )
    assert [v for _, _, v in calls_of(ended(a))] == [{"to": "staging"}], (
        "critical rules are not for the trusted model"
    )
    again = begun("openai", "openai", Always("gpt-trusted"))
    again.feed(answer("openai", "", DEPLOY)).feed(
        answer("openai", "", ("call_2", "deploy", {"to": "staging"}))
    )
    assert count_of_dispatches(again) == 2 and not calls_of(ended(again))
    assert again.verdicts == [("deploy", "discarded"), ("deploy", "block")]


def test_the_policies_know_only_what_the_client_has() -> None:
    body = answer("openai", "hun", DEPLOY, more="xyz")
    a = (
        begun("openai", "openai", [Secret(), Critical("gpt-trusted")])
        .feed(body)
        .feed(answer("openai", "ter2"))
    )
    assert "ter2" not in text_of(ended(a)), "joined with what went out, it is the word"
    b = begun("openai", "openai", [Secret(), Critical("gpt-trusted")]).feed(
        answer("openai", "a", DEPLOY, more="hunt")
    )
    assert text_of(ended(b.feed(answer("openai", "er2")))) == "aer2", (
        "what was discarded counts for nothing"
    )


def test_the_record_of_what_is_discarded_is_durable_before_the_other_model_is_asked() -> None:
    a = begun("openai", "openai", Critical("gpt-trusted"), durable=True).feed(
        answer("openai", "", DEPLOY)
    )
    [row] = of(a.records, ToolCallRecord)
    assert (row.verdict, row.notify, a.waits) == ("discarded", True, [row.block])
    assert count_of_dispatches(a) == 1 and of(a.records, AttemptRecord)
    a.commit().feed(answer("openai", "", CHECK))
    assert count_of_dispatches(a) == 2 and not [
        o for o in a.outputs if getattr(o, "name", "") == "look"
    ]
    assert [n for _, n, _ in calls_of(ended(a.commit()))] == ["look"]
    late = (
        begun("openai", "openai", Critical("gpt-trusted"), durable=True)
        .feed(answer("openai", "", DEPLOY))
        .commit(ok=False)
    )
    assert count_of_dispatches(late) == 1 and "Sluice blocked" in text_of(ended(late))


def test_a_replay_gives_the_same_digest() -> None:
    def outputs_of(cut: int) -> tuple[str, int]:
        a = begun("anthropic", "openai", Critical("gpt-trusted"), durable=True)
        for body in answer("openai", "I act.", DEPLOY), answer("openai", "Or so.", CHECK, more="!"):
            parts = [part + b"\n\n" for part in body.split(b"\n\n")[:-1]]
            for at in range(0, len(parts), cut):
                a.session.chunks(a._seq, parts[at : at + cut])
                a._seq += len(parts[at : at + cut])
                a._take()
            a.session.eof(a._seq)
            a._passed().commit()
        taken = a.session.drain()
        return taken.digest, taken.next

    assert len({outputs_of(cut) for cut in (1, 2, 3, 100)}) == 1


def test_a_call_found_in_text_is_deferred_and_its_block_ended() -> None:
    found = '<tool_call>{"name": "deploy", "arguments": {"to": "x"}}</tool_call>' * 2
    for client in DIALECTS:
        a = begun(client, "openai", Critical("gpt-trusted"))
        a.feed(chunks({"role": "assistant", "content": f"Now: {found} and more"}, finish="stop"))
        assert count_of_dispatches(a) == 2
        a.feed(answer("openai", "Let me look.", CHECK))
        said = ended(a)
        check_frames(a)
        assert text_of(said).strip() == "Now:" and [n for _, n, _ in calls_of(said)] == ["look"]
        assert b"deploy" not in a.data


@pytest.mark.parametrize("client", DIALECTS)
def test_the_other_model_may_be_one_without_tools_of_its_own(client: DialectName) -> None:
    upstreams = CONFIG.upstreams | {
        "trusted-openai": (
            CONFIG.upstreams["trusted-openai"].model_copy(update={"native_tools": False})
        )
    }
    config = CONFIG.model_copy(update={"upstreams": upstreams})
    a = Answer(
        client, client, policies=[Critical("gpt-trusted")], config=config, tools=TOOLS[client]
    )
    a.feed(answer(client, "", DEPLOY))
    sent = a.dispatched[-1]
    assert "tools" not in sent and "look" in json.dumps(sent["messages"])
    a.feed(
        chunks(
            {
                "role": "assistant",
                "content": '<tool_call>{"name": "look", "arguments": {"at": "x"}}</tool_call>',
            },
            finish="stop",
        )
    )
    [(identity, name, value)] = calls_of(ended(a))
    assert (name, value) == ("look", {"at": "x"}) and len(identity) == len(DEPLOY[0])
    check_frames(a)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning_details"])
def test_what_a_model_thought_in_chat_completions_does_not_go_to_the_other(field: str) -> None:
    turn = {
        "role": "assistant",
        "content": "Hm.",
        field: "of the first" if field == "reasoning_content" else [{"type": "x"}],
    }
    messages = [{"role": "user", "content": "go"}, turn, {"role": "user", "content": "on"}]
    a = begun(
        "openai", "openai", Critical("gpt-trusted"), messages=messages, reasoning_effort="high"
    ).feed(answer("openai", "", DEPLOY))
    [sent] = a.dispatched
    assert sent["messages"][1] == {"role": "assistant", "content": "Hm."} and sent.get(
        "reasoning_effort"
    ) in (None, "none")


def test_a_call_that_the_provider_ran_is_blocked_and_not_deferred() -> None:
    class Searches(Critical):
        def on_tool_call(self, call: ToolCall) -> Verdict:
            return (
                Defer("claude-trusted", "critical")
                if call.executor == "provider" or call.name == "deploy"
                else ALLOW
            )

    tools = [*TOOLS["anthropic"], {"type": "web_search_20250305", "name": "web_search"}]
    search = whole(
        0,
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {"query": "x"},
        },
    )
    a = begun("anthropic", "anthropic", Searches("claude-trusted"), tools=tools)
    a.feed(frames(began(), *search, *client_call(1, "toolu_1", "deploy", {}), *end("tool_use")))
    assert count_of_dispatches(a) == 1 and a.session.state == "ENDED"
    assert (
        not calls_of(ended(a)) and next(r.verdict for r in of(a.records, ToolCallRecord)) == "block"
    )


def test_a_paused_turn_may_be_deferred_in_its_second_part() -> None:
    search = whole(
        1,
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {"query": "x"},
        },
    )
    found = whole(0, {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []})
    for deferred in (True, False):
        a = Answer(
            "anthropic",
            "openai",
            policies=[Critical("gpt-trusted")],
            config=SEARCHES,
            tools=TOOLS["openai"],
        )
        a.feed(frames(began(), *text(0, "I search."), *search, *end("pause_turn")))
        assert count_of_dispatches(a) == 2 and a.session.state == "ACTIVE"
        a.feed(
            frames(
                began(),
                *found,
                *client_call(1, "toolu_1", "deploy" if deferred else "look", {}),
                *end("tool_use"),
            )
        )
        assert count_of_dispatches(a) == 2 + deferred
        if deferred:
            a.feed(answer("openai", "", CHECK))
            sent = a.dispatched[-1]
            assert [m["role"] for m in sent["messages"]] == ["user"]
            assert [(r.segment, r.attempt, r.chosen) for r in of(a.records, AttemptRecord)] == [
                (0, 0, False),
                (1, 0, False),
                (2, 1, True),
            ]
        assert [n for _, n, _ in calls_of(ended(a))] == ["look"]


@pytest.mark.parametrize("denies", [False, True])
def test_the_other_model_may_pause_and_what_its_provider_runs_may_be_denied(denies: bool) -> None:
    class Denies(Critical):
        def on_tool_call(self, call: ToolCall) -> Verdict:
            return (
                Block("no_search")
                if denies and call.executor == "provider"
                else super().on_tool_call(call)
            )

    search = whole(
        1,
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {"query": "x"},
        },
    )
    found = whole(0, {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []})
    a = Answer(
        "openai",
        "openai",
        policies=[Denies("claude-trusted")],
        config=SEARCHES,
        tools=TOOLS["openai"],
    )
    a.feed(answer("openai", "I deploy.", DEPLOY)).feed(
        frames(began(), *text(0, "I search."), *search, *end("pause_turn"))
    )
    if denies:
        assert a.session.state == "ENDED" and count_of_dispatches(a) == 2
        assert [(r.name, r.verdict) for r in of(a.records, ToolCallRecord)][1:] == [
            ("web_search", "block")
        ]
        return
    assert [m["model"] for m in a.dispatched[-2:]] == ["claude-trusted"] * 2
    assert [m["role"] for m in a.dispatched[-1]["messages"]] == ["user", "assistant"]
    a.feed(frames(began(), *found, *client_call(1, "toolu_1", "look", {}), *end("tool_use")))
    assert [n for _, n, _ in calls_of(ended(a))] == ["look"] and text_of(ended(a)) == "I deploy."
    assert [(r.segment, r.attempt, r.chosen) for r in of(a.records, AttemptRecord)] == [
        (0, 0, False),
        (1, 1, True),
        (2, 1, True),
    ]


def test_a_request_that_is_to_be_written_again_weighs_as_much_as_it_is() -> None:
    messages = [{"role": "user", "content": "x" * 100_000}]
    a = begun("openai", "openai", Critical("gpt-trusted"), messages=messages, durable=True)
    assert a.session.held_bytes < 100_000
    a.feed(answer("openai", "", DEPLOY))
    assert a.waits and a.session.held_bytes > 100_000


def test_the_bound_of_requests_holds() -> None:
    config = CONFIG.model_copy(
        update={"limits": CONFIG.limits.model_copy(update={"dispatches": 1})}
    )
    a = Answer(
        "openai", "openai", policies=[Critical("gpt-trusted")], config=config, tools=TOOLS["openai"]
    )
    a.feed(answer("openai", "I deploy.", DEPLOY, ("call_2", "look", {})))
    said = ended(a)
    assert count_of_dispatches(a) == 1 and [n for _, n, _ in calls_of(said)] == ["look"]
    assert a.verdicts == [("deploy", "block"), ("look", "allow")]


class Everything(Critical):
    """Defers every call of the first answer."""

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return ALLOW if call.is_deferred else Defer(self.defers_to[0], "critical")


@pytest.mark.parametrize("release", ["early", "whole"])
@pytest.mark.parametrize("client", DIALECTS)
def test_whatever_either_model_says_the_client_gets_one_whole_message(
    client: DialectName, release: str
) -> None:
    seen = set()
    for recording in own_recordings():
        for first, second in ((recording.body, None), (None, recording.body)):
            a = Answer(
                recording.dialect if first else "openai",
                client,
                policies=[Everything(OTHER[recording.dialect], release)],
                config=CONFIG,
                tools=TOOLS[client],
            )
            a.feed(first or answer("openai", "I deploy.", DEPLOY))
            if a.session.state == "ACTIVE":
                a.feed(second or answer(recording.dialect, "I look.", CHECK))
            seen.add((count_of_dispatches(a), a.session.state))
            assert a.session.state != "ACTIVE", recording.name
            if not a.refused:
                check_frames(a)
                assert second is None or b'"deploy"' not in a.data
    assert {(1, "ENDED"), (2, "ENDED")} <= seen


def test_calls_that_wait_when_the_call_ends_have_no_verdict_yet() -> None:
    a = begun("openai", "anthropic", Critical("gpt-trusted"))
    calls = client_call(0, "toolu_1", "look", {}), client_call(1, "toolu_2", "deploy", {})
    a.session.chunks(
        1, [part + b"\n\n" for part in frames(began(), *calls[0], *calls[1]).split(b"\n\n")[:-1]]
    )
    a._take()
    assert not of(a.records, ToolCallRecord) and a.session.unasked == [0, 1]
