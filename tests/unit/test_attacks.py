"""Attacks on the policy path: content that reaches a client by another way than the one on which it
was approved.

What is denied is a call whose arguments say DANGER. Text that holds it is judged only where a
client could run it.
"""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.base import ALLOW, Block, Judgement, OtherBlock, Policy, TextBlock, ToolCall, Verdict
from policy.session.effects import Respond
from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    RawDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
)
from protocol.records import EventRecord, ToolCallRecord
from protocol.request import Tool
from protocol.text_calls.scanner import MAX_HELD
from tests.support.checks.block_runs import (
    SEARCH,
    Ask,
    Deny,
    NoSecrets,
    Run,
    Same,
    client,
    flat,
    result,
    server,
    text,
)
from tests.support.checks.kinds import of_kind
from tests.support.checks.session_runs import make as make_session
from tests.support.json_values import Json, as_json
from tests.support.upstreams.denied_call import CALL, DANGER, INPUT, anthropic


def texts(*blocks: str, pieces: int = 10**9) -> list[Event]:
    """Blocks of text, each in deltas of so many characters."""
    return flat(
        *(
            text(n, *(said[i : i + pieces] for i in range(0, len(said), pieces)))
            for n, said in enumerate(blocks)
        )
    )


def verdicts(run: Run) -> list[str]:
    return [r.verdict for r in run.records if isinstance(r, ToolCallRecord)]


# --- calls in text ---

LONG = "A" * (MAX_HELD + 5_000)
WRITTEN = {
    "escaped keys": (
        CALL.replace('"name"', r'"\u006eame"').replace('"arguments"', r'"\u0061rgu\u006Dents"')
    ),
    "escaped name key": CALL.replace('"name"', r'"n\u0061me"'),
    "keys far from their colons": (
        f'{{"name"{" " * 300}: "bash", "arguments"{" " * 300}: {{"command": "{DANGER}"}}}}'
    ),
    "calls as a string": json.dumps(
        {"tool_calls": json.dumps([{"name": "bash", "arguments": INPUT}])}
    ),
    "arguments as words": json.dumps({"name": "bash", "arguments": DANGER}),
    "arguments in a list": json.dumps({"name": "bash", "arguments": [DANGER]}),
    "a free-form tool's input": json.dumps({"type": "custom", "name": "bash", "input": DANGER}),
    "blanks around the name": json.dumps({"name": " bash", "arguments": INPUT}),
}


@pytest.mark.parametrize("pieces", [1, 7, 10**9])
@pytest.mark.parametrize("case", WRITTEN)
def test_a_call_in_text_is_denied_however_it_is_written(case: str, pieces: int) -> None:
    run = Run(Deny(DANGER)).feed(*texts(f"Well. {WRITTEN[case]} Done.", pieces=pieces)).finish()
    assert DANGER not in run.text
    assert verdicts(run) == ["block"]


UNREADABLE = {
    "a key twice": f'{{"name": "bash", "arguments": {{"command": "ls", "command": "{DANGER}"}}}}',
    "a key twice in a tag": f'<function=bash>{{"command": "ls", "command": "{DANGER}"}}</function>',
    "a key twice and no end": (
        f'{{"name": "bash", "arguments": {{"command": "ls", "command": "{DANGER}"}}'
    ),
    "the call's key twice": (
        '{"name": "ls", "name": "bash", "arguments": {}, "arguments": {"command":'
        f' "{DANGER}"}}}}'
    ),
    "no object": f'{{"name": "bash", "arguments": ["{DANGER}"]}}',
}


class DenyCommand(Policy):
    """Looks at one argument, as rules do."""

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Block("denied") if DANGER in str(call.value.get("command")) else ALLOW


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_call_in_text_whose_arguments_can_be_read_in_two_ways_is_no_way_around_a_rule_about_one(
    case: str,
) -> None:
    run = (
        Run(DenyCommand(), tools=(Tool("bash"), Tool("ls"))).feed(*texts(UNREADABLE[case])).finish()
    )
    assert run.rows("verdict", "reason") == [("block", "ambiguous_json")]
    assert DANGER not in run.text
    assert verdicts(Run(Deny(DANGER)).feed(*texts(UNREADABLE[case])).finish()) == ["block"]


def test_a_call_in_text_with_unreadable_arguments_stays_text_where_nobody_has_such_a_tool() -> None:
    said = UNREADABLE["no object"]
    assert Run(DenyCommand(), tools=(Tool("ls"),)).feed(*texts(said)).finish().text == said


ACROSS = {
    "in a key": ['{"name": "bash", "argum', 'ents": {"command": "' + DANGER + '"}}'],
    "in the arguments": ['{"name": "bash", "arguments": {"comm', 'and": "' + DANGER + '"}}'],
    "between the keys": ['{"name": "bash",', '"arguments": {"command": "' + DANGER + '"}}'],
    "in the value": ['{"name": "bash", "arguments": {"command": "wipe-', 'the-disk"}}'],
    "in three": ['{"name": "bash", "ar', 'guments": {"comm', 'and": "' + DANGER + '"}}'],
    "in a tag": [
        "<tool_",
        'call>{"name": "bash", "arguments": {"command": "',
        DANGER + '"}}</tool_call>',
    ],
    "letter by letter": list(CALL),
}


@pytest.mark.parametrize("case", ACROSS)
def test_a_call_that_neighbouring_texts_make_when_joined_is_denied(case: str) -> None:
    run = Run(Deny(DANGER)).feed(*texts(*ACROSS[case])).finish()
    assert "block" in verdicts(run)
    # what is left of it is no call
    assert (
        not Run(Deny(DANGER)).feed(*texts(run.text)).finish().rows("name") or DANGER not in run.text
    )
    assert '"}}' not in run.text


@pytest.mark.parametrize(
    "content",
    [
        f"bash\n<arg_key>command</arg_key>\n<arg_value>{DANGER}</arg_value>\n",
        f'bash\n{{"command": "{DANGER}"}}',
        f'functions.bash:0{{"command": "{DANGER}"}}',
    ],
)
def test_a_call_in_a_tag_is_known_by_its_name_in_whatever_shape_its_arguments_are(
    content: str,
) -> None:
    run = Run(Deny("bash")).feed(*texts(f"<tool_call>{content}</tool_call>")).finish()
    assert run.rows("name", "verdict") == [("bash", "block")]
    assert DANGER not in run.text


def test_texts_that_make_no_call_come_out_as_they_came() -> None:
    said = [
        'See {"',
        'name": 1} and "',
        "arguments",
        '" or `',
        "``json\n{",
        '"tool"',
        ": 3}\n```",
        "<tool",
        "s> end {",
    ]
    run = Run(Deny(DANGER)).feed(*texts(*said)).finish()
    blocks: dict[int, str] = {}
    for event in run.out:
        if isinstance(event, TextDelta):
            blocks[event.index] = blocks.get(event.index, "") + event.text
    assert list(blocks.values()) == said


def test_a_call_across_texts_is_on_record_whole_and_goes_out_once_where_it_is_allowed() -> None:
    run = Run(Deny("never")).feed(*texts(*ACROSS["between the keys"])).finish()
    assert run.text == "".join(ACROSS["between the keys"])
    assert run.rows("name", "arguments")[-1] == ("bash", as_json(INPUT))


def test_a_text_inside_another_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        Run(Deny()).feed(BlockStart(0, BlockKind.TEXT), BlockStart(1, BlockKind.TEXT))


def test_what_may_be_a_call_is_not_searched_again_without_end() -> None:
    start = '{"name": "bash", "arguments": {"pad": "' + "A" * 60_000
    run = Run(Deny(DANGER))
    with pytest.raises(RemoteProtocolError):
        run.feed(*texts(start, *["A"] * 200))


MARKED = [f"```json\n{CALL}\n```", f"[TOOL_CALLS][{CALL}]", f"[{CALL}, {CALL}]"]
SHAPES = [*WRITTEN.values(), *map("".join, ACROSS.values()), *MARKED]
BEFORE = ["", "Use {x} or ", 'say "name": "ls" and ', "`"]


@given(st.sampled_from(SHAPES), st.sampled_from(BEFORE), st.lists(st.integers(0, 400), max_size=8))
def test_no_way_to_spread_a_denied_call_over_texts_brings_it_through(
    shape: str, before: str, cuts: list[int]
) -> None:
    said = f"{before}{shape} so."
    places = [0, *sorted(c for c in cuts if c < len(said)), len(said)]
    run = (
        Run(Deny(DANGER)).feed(*texts(*(said[a:b] for a, b in itertools.pairwise(places)))).finish()
    )
    assert "block" in verdicts(run)
    once_more = Run(Deny(DANGER)).feed(*texts(run.text)).finish()
    assert "block" not in verdicts(once_more)


TOO_LONG = {
    "arguments": (
        '{"name": "bash", "arguments": {"pad": "' + LONG + '", "command": "' + DANGER + '"}}'
    ),
    "arguments before the name": (
        '{"arguments": {"pad": "' + LONG + '", "command": "' + DANGER + '"}, "name": "bash"}'
    ),
    "a tag": (
        '<tool_call>{"name": "bash", "arguments": {"pad": "'
        + LONG
        + '", "command": "'
        + DANGER
        + '"}}</tool_call>'
    ),
    "a wrapper": (
        '{"tool_calls": [{"name": "bash", "arguments": {"pad": "'
        + LONG
        + '", "command": "'
        + DANGER
        + '"}}]}'
    ),
}


@pytest.mark.parametrize("case", TOO_LONG)
def test_a_call_longer_than_what_is_held_is_blocked_by_its_length(case: str) -> None:
    run = (
        Run(Deny(DANGER), max_arguments=1_000_000)
        .feed(*texts(TOO_LONG[case], pieces=4_000))
        .finish()
    )
    assert run.rows("verdict", "reason")[0] == ("block", "too_large")
    assert run.text.startswith("[Sluice blocked the tool call ")
    assert not any(head in run.text for head in ('{"', "<tool_call>"))


def test_long_json_that_is_no_call_comes_out() -> None:
    said = '{"name": "' + LONG + '", "rows": [1, 2, 3]}'
    assert (
        Run(Deny(DANGER), max_arguments=1_000_000).feed(*texts(said, pieces=4_000)).finish().text
        == said
    )


# --- what goes beside text ---


def logprobs(index: int, said: str) -> AttachmentDelta:
    return AttachmentDelta(index, "logprobs", {"content": [{"token": said, "logprob": 0}]})


@pytest.mark.case("U7")
def test_log_probabilities_do_not_tell_a_denied_call_in_text() -> None:
    events: list[Event] = [BlockStart(0, BlockKind.TEXT)]
    for piece in ("Well. ", CALL[:20], CALL[20:], " Done."):
        events += [TextDelta(0, piece), logprobs(0, piece)]
    run = Run(Deny(DANGER)).feed(*events, BlockStop(0)).finish()
    told = json.dumps([e.value for e in run.out if isinstance(e, AttachmentDelta)])
    assert (DANGER in told, "Well." in told) == (False, True)
    assert run.notes("withheld") != []


def test_log_probabilities_of_text_that_was_held_for_a_moment_come_out_with_it() -> None:
    events: list[Event] = [BlockStart(0, BlockKind.TEXT)]
    for piece in ("See {", '"na', "me of it} ", "there"):
        events += [TextDelta(0, piece), logprobs(0, piece)]
    run = Run(Deny(DANGER)).feed(*events, BlockStop(0)).finish()
    assert [e.value["content"][0]["token"] for e in run.out if isinstance(e, AttachmentDelta)] == [
        "See {",
        '"na',
        "me of it} ",
        "there",
    ]
    assert run.text == "See {" + '"name of it} there'


# --- notices ---


def test_a_notice_does_not_repeat_what_a_model_wrote_as_a_name() -> None:
    run = Run(Deny("x")).feed(*client(0, CALL, '{"a": "x"}')).finish()
    assert verdicts(run) == ["block"]
    assert DANGER not in run.text
    twice = Run().feed(*client(0, CALL, '{"a": 1, "a": 2}')).finish()
    assert (verdicts(twice), DANGER in twice.text) == (["block"], False)


def test_a_notice_about_a_result_does_not_repeat_it_either() -> None:
    run = (
        Run(NoSecrets()).feed(*server(0, CALL), *result(1, "srvtoolu_0", content="secret")).finish()
    )
    assert "withheld" in run.text
    assert DANGER not in run.text


# --- a deny that must win ---


def test_two_provider_calls_with_one_id_end_the_answer() -> None:
    run = Run(NoSecrets()).feed(*server(0))
    with pytest.raises(RemoteProtocolError):
        run.feed(BlockStart(1, BlockKind.SERVER_TOOL_USE, "srvtoolu_0", "web_search", SEARCH))


def test_a_call_behind_its_result_ends_the_answer() -> None:
    run = Run(Deny()).feed(*result(0, "srvtoolu_1"))
    with pytest.raises(RemoteProtocolError):
        run.feed(*server(1))


@pytest.mark.parametrize("identity", [{}, {"tool_use_id": None}, {"tool_use_id": ["srvtoolu_1"]}])
def test_a_result_that_names_no_call_is_decided_by_its_type(identity: Json) -> None:
    body = {"type": "web_search_tool_result", "content": DANGER, **identity}
    run = Run(Deny("web_search")).feed(
        BlockStart(0, BlockKind.OTHER, name="web_search_tool_result", body=body), BlockStop(0)
    )
    assert verdicts(run) == ["block"]
    assert run.kinds == ["text"]


def test_a_cut_ends_the_answer_though_a_block_before_it_is_open() -> None:
    opened: list[Event] = [BlockStart(0, BlockKind.TEXT), TextDelta(0, "so")]
    run = Run(Deny()).feed(*opened, *server(1, arguments='{"q":"rm"}'))
    assert isinstance(run.end, MessageStop)
    assert [type(e) for e in run.out].count(BlockStart) == [type(e) for e in run.out].count(
        BlockStop
    )
    half: list[Event] = [
        BlockStart(0, BlockKind.TOOL_USE, "toolu_0", "bash"),
        ArgumentsDelta(0, '{"command": "wi'),
    ]
    other = Run(Deny()).feed(*half, *server(1, arguments='{"q":"rm"}'))
    assert isinstance(other.end, MessageStop)
    assert other.kinds == ["text"]


@pytest.mark.parametrize("first", [0, 1])
def test_a_cut_gives_the_same_whichever_verdict_comes_first(first: int) -> None:
    run = Run(Ask()).feed(*client(0), *server(1), *text(2, "so"))
    for key in (first, 1 - first):
        run.judge(key, float(key))
    assert run.kinds == ["tool_use", "text"] and isinstance(run.end, MessageStop)
    assert run.blocks.is_cut and run.blocks.calls.survivors == 1


def test_a_call_that_was_not_complete_when_the_answer_was_cut_has_no_row() -> None:
    run = Run(Ask()).feed(
        *server(0),
        BlockStart(1, BlockKind.TOOL_USE, "toolu_1", "bash"),
        ArgumentsDelta(1, '{"comm'),
    )
    run.judge(0, 1.0)
    assert run.rows("name") == [("web_search",)]
    assert run.notes("withheld") == ["block 1: after_denied"]


def test_a_cut_gives_the_same_however_late_its_verdict_comes() -> None:
    start = {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "model": "claude-x",
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    call = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "x"},
    }
    chunks = anthropic(
        {"type": "message_start", "message": start | {"content": []}},
        {"type": "content_block_start", "index": 0, "content_block": call},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "text", "text": "and so"},
        },
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 99},
        },
        {"type": "message_stop"},
    )
    request = {
        "model": "demo",
        "max_tokens": 9,
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}],
    }

    def digest(late: int) -> str:
        session = make_session([Ask()], dialect="anthropic", request=request)
        session.drain()
        said = ""
        for number, raw in enumerate(chunks, start=1):
            session.chunks(number, [raw])
            if number == late:
                session.judgement(0, 0, Judgement(probability=1.0), 5)
            said = session.drain().digest
        return said

    assert len({digest(late) for late in (3, 4, 5, 6, 7)}) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_a_turn_cut_behind_a_call_of_its_client_says_that_there_is_one(first: int) -> None:
    request = {
        "model": "demo",
        "max_tokens": 9,
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}],
    }
    session = make_session([Ask()], dialect="anthropic", request=request)
    begun = {"id": "msg_1", "model": "claude-x", "content": [], "usage": {"input_tokens": 3}}
    events: list[Json] = [{"type": "message_start", "message": begun}]
    for index, kind in enumerate(("tool_use", "server_tool_use")):
        call = {"type": kind, "id": f"toolu_{index}", "name": "web_search", "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": call})
        events.append({"type": "content_block_stop", "index": index})
    session.chunks(1, anthropic(*events))
    for key in (first, 1 - first):
        session.judgement(key, 0, Judgement(probability=float(key)), 5)
    assert (session.state, session.stop_reason) == ("ENDED", "tool_use")


# --- what is not modelled ---


class NoFields(Policy):
    """Reads what is carried whole; keeps its names."""

    name = "no_fields"

    def for_call(self, context: Any) -> "NoFields":
        mine = super().for_call(context)
        mine.seen = []
        return mine

    seen: list[str]

    def on_other(self, block: OtherBlock) -> Verdict:
        self.seen.append(block.type)
        return Block("no") if DANGER in json.dumps(block.body) else ALLOW


def raw(index: int, field: str = "partial") -> RawDelta:
    return RawDelta(
        "delta foo",
        index,
        {"type": "content_block_delta", "index": index, "delta": {"type": "foo", field: "y"}},
        "anthropic",
    )


def test_an_unmodelled_frame_of_a_call_waits_for_its_verdict_and_goes_with_it() -> None:
    def fed(run: Run, call: list[Event]) -> Run:
        return run.feed(*call[:-1], raw(0), call[-1])

    assert not of_kind(fed(Run(Deny()), client(0, arguments='{"a":"rm"}')).out, RawDelta)
    assert [type(e) for e in fed(Run(Deny()), client(0)).out] == [
        BlockStart,
        ArgumentsDelta,
        RawDelta,
        BlockStop,
    ]


def test_an_unmodelled_frame_of_a_result_waits_for_the_verdict_on_its_call() -> None:
    start, stop = result(0, "srvtoolu_x")
    denied = Run(Deny("web_search")).feed(start, raw(0), stop)
    assert not of_kind(denied.out, RawDelta)
    assert [type(e) for e in Run(Deny()).feed(start, raw(0), stop).out] == [
        BlockStart,
        RawDelta,
        BlockStop,
    ]


def test_an_unmodelled_frame_of_text_waits_for_the_text() -> None:
    start, said, stop = text(0, "hm")
    assert [type(e) for e in Run(Same()).feed(start, raw(0), said, stop).out] == [
        BlockStart,
        TextDelta,
        RawDelta,
        BlockStop,
    ]


def test_a_field_that_the_setting_names_is_shown_to_policies_wherever_it_stands() -> None:
    body = {"caller": {"type": "direct"}, "note": DANGER}
    run = Run(NoFields()).feed(
        BlockStart(0, BlockKind.TOOL_USE, "toolu_1", "bash", body), BlockStop(0)
    )
    assert run.out[0].body == {"caller": {"type": "direct"}}
    assert run.notes("withheld") == ["1: tool_use field note: no (no_fields)"]


def started(
    *policies: Policy, event: MessageStart, stop: MessageStop | UpstreamFailed | None = None
) -> tuple[list[Any], list[str]]:
    """What a client gets of the ends of a message, and the notes of what is withheld."""
    session = make_session(list(policies))
    session.drain()
    assert session._exchange is not None
    session._events(session._exchange, [event, stop or MessageStop(StopReason.END_TURN)], 1)
    taken = session.drain()
    return taken.outputs, [
        r.detail for r in taken.records if isinstance(r, EventRecord) and r.kind == "withheld"
    ]


def test_fields_of_a_message_that_the_setting_names_are_shown_to_policies() -> None:
    extra = {
        "dialect": "anthropic",
        "usage": {"input_tokens": 3, "memo": f"so {DANGER}"},
        "fields": {"message field": {"foo": DANGER, "bar": 1}},
    }
    stop = MessageStop(
        StopReason.END_TURN,
        extra={
            "container": {"id": f"so {DANGER}"},
            "fields": {"delta field": {"foo": f"so {DANGER}"}},
        },
    )
    outputs, notes = started(NoFields(), event=MessageStart("m", "x", extra=extra), stop=stop)
    assert DANGER not in repr(outputs)
    assert outputs[0].extra["usage"] == {"input_tokens": 3}
    assert outputs[0].extra["fields"] == {"message field": {"bar": 1}}
    assert len(notes) == 4
    assert (
        started(Deny(), event=MessageStart("m", "x", extra=extra), stop=stop)[0][0].extra == extra
    )


@pytest.mark.case("U7")
@pytest.mark.parametrize(
    "event",
    [
        MessageStart(CALL, "m"),
        MessageStart("x", f"the model says {DANGER}"),
        MessageStart("x", "m", extra={"dialect": "openai", "system_fingerprint": CALL}),
        MessageStart("x", "m", extra={"dialect": "openai", "service_tier": CALL}),
    ],
)
def test_ids_and_models_are_words(event: MessageStart) -> None:
    outputs, notes = started(event=event)
    assert DANGER not in repr(outputs)
    assert len(notes) == 1


@pytest.mark.parametrize(
    "model",
    ["gpt-5", "/models/a b.gguf"[:9], "accounts/x/models/y@1", "anthropic/claude-x:beta", "~/m"],
)
def test_a_models_name_may_be_a_path(model: str) -> None:
    assert started(event=MessageStart("chatcmpl-1", model))[0][0].model == model


class NoDanger(Policy):
    name = "no_danger"

    def on_text(self, text: str, block: TextBlock) -> str | Block:
        return Block("no") if DANGER in text else text


def test_what_the_end_says_is_text_like_any_other() -> None:
    stop = MessageStop(StopReason.REFUSAL, stop_sequence=DANGER, explanation=f"I will not {DANGER}")
    end = started(NoDanger(), event=MessageStart("x", "m"), stop=stop)[0][-1]
    assert (end.stop_sequence, end.explanation) == (None, "")
    kept = MessageStop(StopReason.STOP_SEQUENCE, stop_sequence="END")
    assert (
        started(NoDanger(), event=MessageStart("x", "m"), stop=kept)[0][-1].stop_sequence == "END"
    )


@pytest.mark.case("U7")
def test_a_call_in_the_explanation_of_a_refusal_is_withheld() -> None:
    stop = MessageStop(StopReason.REFUSAL, explanation=f"Run this: {CALL}")
    outputs, notes = started(Deny(DANGER), event=MessageStart("x", "m"), stop=stop)
    assert (outputs[-1].explanation, notes) == ("", ["1: explanation"])


@pytest.mark.case("U7")
def test_what_upstream_says_of_an_error_is_text_like_any_other() -> None:
    said = UpstreamFailed("api_error", f"cannot parse {CALL}")
    for policy in (NoDanger(), Deny(DANGER)):
        outputs, _ = started(policy, event=MessageStart("x", "m"), stop=said)
        assert DANGER not in repr(outputs)
    failed = make_session([NoDanger()])
    failed.error_status(400, as_json({"error": {"message": f"so {DANGER}"}}), "")
    taken = failed.drain().outputs
    assert DANGER not in repr(taken)
    assert isinstance(taken[-1], Respond)


def test_a_refusal_beside_the_text_is_searched_where_it_is_text_for_the_client() -> None:
    refused: list[Event] = [
        BlockStart(0, BlockKind.TEXT, name="refusal"),
        TextDelta(0, CALL[:30]),
        BlockStop(0),
    ]
    run = Run(Deny(DANGER), dialect="anthropic").feed(*refused, *text(1, CALL[30:])).finish()
    assert verdicts(run)[-1] == "block"
    assert run.text.endswith(
        "It was not executed. Do not retry it in another form; ask the user. Call c.]"
    )


# --- the record ---


def test_notes_about_blocks_have_numbers_that_do_not_depend_on_when_a_verdict_comes() -> None:
    def numbers(late: bool) -> set[tuple[str, int, str]]:
        run = Run(Ask()).feed(*server(0), *text(1, "so"))
        noted = RawDelta("event foo", -1, {"type": "foo"}, "openai")
        if late:
            run.feed(noted)
        run.judge(0, 1.0)
        return {(r.kind, r.number, r.detail) for r in run.records if isinstance(r, EventRecord)}

    assert numbers(False) <= numbers(True)
