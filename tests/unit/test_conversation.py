"""A session's calls become one conversation, whatever clients sent."""

import json
from itertools import takewhile
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from db.read.sessions import RecordedCalls, SessionCall
from pages.conversation import (
    BUDGET,
    BUDGET_PARTS,
    PART_CHARS,
    ConversationStep,
    branches,
    steps,
    wanted,
)
from pages.model_acts import _arguments
from pages.session_export import FORMS
from protocol.conversations.histories import MARK_BYTES, history, split
from protocol.conversations.prefix_tree import Marked, common_bytes, place
from protocol.dialects.table import CLIENTS
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    StopReason,
    TextDelta,
)
from protocol.request import ChatRequest
from tests.support.cpu import cpu_within
from tests.support.json_values import Json, as_json

CHUNK = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}'


def stream(text: str) -> bytes:
    """A streamed answer."""
    said = CHUNK % (json.dumps({"role": "assistant", "content": text}), "null")
    return "\n\n".join(
        [f"data: {said}", "data: " + CHUNK % ("{}", '"stop"'), "data: [DONE]", ""]
    ).encode()


class Session:
    """Calls as the reader gives them, with what is read of them."""

    def __init__(self) -> None:
        self.calls: list[SessionCall] = []
        self.bodies: dict[UUID, bytes] = {}
        self.said = RecordedCalls({}, {}, {}, {}, {})

    def call(
        self,
        *messages: Any,
        answer: str = "",
        state: str = "ENDED",
        tools: tuple[Json, ...] = (),
    ) -> None:
        """Add a call."""
        body = as_json({"messages": messages})
        found, call = history(body), UUID(int=len(self.calls) + 1)
        item = {
            "call_id": str(call),
            "at": "2026-01-31T12:00:00.000Z",
            "dialect": "openai",
            "stream": True,
            "state": state,
            "model": "m",
        }
        self.calls.append(
            SessionCall(call, item, Marked(found.marks, found.is_side), found.turns, found.offsets)
        )
        self.bodies[call] = body
        self.said.tool_calls[call] = list(tools)
        if answer:
            self.said.releases[call] = [stream(answer)]

    def steps(self, *, cut: bool = True) -> list[ConversationStep]:
        """All of them."""
        placed = place([call.marked for call in self.calls])
        pieces, _ = wanted(self.calls, placed, range(len(self.calls)))
        for call, (begin, end) in pieces.items():
            self.said.pieces[call] = begin, self.bodies[call][begin:end]
        return steps(self.calls, placed, range(len(self.calls)), self.said, cut=cut)


def test_items_of_responses_are_turns_and_what_went_out_is_no_turn_of_the_clients() -> None:
    events: list[Event] = [
        MessageStart("", "m"),
        BlockStart(0, BlockKind.TEXT),
        TextDelta(0, "I look."),
        BlockStop(0),
        BlockStart(1, BlockKind.TOOL_USE, "c1", "look"),
        ArgumentsDelta(1, '{"at":1}'),
        BlockStop(1),
        MessageStop(StopReason.TOOL_USE),
    ]
    request = ChatRequest(dialect="responses", model="m", stream=True)
    answer = (
        CLIENTS["responses"]
        .encoder(request, call_id="01990000-0000-7000-8000-00000000abcd", created=1)
        .encode(events)
    )
    frames = [
        frame.split("data: ", 1)[1] for frame in answer.decode().split("\n\n") if "data: " in frame
    ]
    (output,) = (
        one["response"]["output"]
        for one in map(json.loads, frames)
        if one["type"] == "response.completed"
    )
    result = {"type": "function_call_output", "call_id": "c1", "output": "a tree"}
    first: list[Any] = [
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": [{"type": "input_text", "text": "look"}]},
    ]
    session = Session()
    for items in (first, [*first, *output, result], "only a text"):
        body, call = (
            as_json({"model": "m", "input": items}),
            UUID(int=len(session.calls) + 1),
        )
        found = history(body)
        item = {
            "call_id": str(call),
            "at": "",
            "dialect": "responses",
            "stream": True,
            "state": "ENDED",
            "model": "m",
        }
        session.calls.append(
            SessionCall(call, item, Marked(found.marks, found.is_side), found.turns, found.offsets)
        )
        session.bodies[call], session.said.tool_calls[call] = body, []
    session.said.releases[UUID(int=1)] = [answer]
    one, two, three = session.steps()
    assert [(t.role, [p.text for p in t.parts]) for t in one.turns] == [("user", ["look"])]
    assert [(t.role, [(p.kind, p.text, p.id) for p in t.parts]) for t in two.turns] == [
        ("tool", [("tool_result", "a tree", "c1")])
    ]
    assert [(t.role, [p.text for p in t.parts]) for t in three.turns] == [("user", ["only a text"])]
    assert (
        history(session.bodies[UUID(int=3)]).preview == "only a text"
        and history(session.bodies[UUID(int=1)]).preview == "look"
    )


def user(text: str) -> Json:
    """Somebody typed this."""
    return {"role": "user", "content": text}


@pytest.mark.parametrize("forged", ["one\ntwo", "onetwo", "one  two", "one two three"])
def test_a_forged_turn_is_marked_also_where_only_blanks_differ(forged: str) -> None:
    session = Session()
    session.call(user("a"), answer="one two")
    session.call(user("a"), {"role": "assistant", "content": forged}, user("b"))
    assert session.steps()[1].turns[0].is_foreign


@pytest.mark.parametrize(
    ("sent", "is_same"),
    [
        ('{"b": 1.0, "a": "x"}', True),
        ('{"a": "x", "b": true}', False),
        ('{"a": "y", "a": "x", "b": 1}', False),
    ],
)
def test_arguments_are_compared_by_the_types_of_json(sent: str, is_same: bool) -> None:
    assert (_arguments(sent) == _arguments('{"a": "x", "b": 1}')) is is_same


@pytest.mark.parametrize(
    ("kept", "is_foreign"), [("one", False), ("one two", False), ("two", True)]
)
def test_of_an_answer_that_broke_off_a_client_keeps_the_beginning(
    kept: str, is_foreign: bool
) -> None:
    session = Session()
    session.call(user("a"), answer="one two", state="FAILED")
    session.call(user("a"), {"role": "assistant", "content": kept}, user("b"))
    assert any(turn.is_foreign for turn in session.steps()[1].turns) is is_foreign


def test_tool_calls_and_results_of_chat_completions_are_read() -> None:
    session = Session()
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "bash", "arguments": '{"command":"ls"}'},
    }
    old = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "old", "arguments": "{}"},
    }
    session.call(
        user("a"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
        old,
    )
    [step] = session.steps()
    assert [
        (turn.role, part.kind, part.name, part.id) for turn in step.turns for part in turn.parts
    ] == [
        ("user", "text", "", ""),
        ("assistant", "tool_use", "bash", "c1"),
        ("tool", "tool_result", "", "c1"),
        ("assistant", "tool_use", "old", ""),
    ]


def test_what_was_refused_or_replaced_has_both_sides() -> None:
    known = {
        "tool_call_id": "c",
        "name": "bash",
        "arguments": b"rm",
        "size": 2,
        "released": b"ls",
        "verdict": "replace",
        "reason": "r",
        "policy": "p",
        "block": 1,
    }
    session = Session()
    session.call(
        user("a"),
        tools=(known, {**known, "tool_call_id": "d", "released": None, "verdict": "block"}),
    )
    replaced, blocked = session.steps()[0].acts
    assert (replaced.text, replaced.released, blocked.verdict, blocked.released) == (
        "rm",
        "ls",
        "block",
        None,
    )


def long_answer() -> tuple[str, list[bytes]]:
    """A text in many chunks, as it was sent."""
    words = [f"word{number} " for number in range(200)]
    return "".join(words), [
        f"data: {CHUNK % (json.dumps({'content': word}), 'null')}\n\n".encode() for word in words
    ]


@pytest.mark.parametrize(("added", "is_foreign"), [("", False), ("or is it", True)])
def test_an_answer_of_which_the_beginning_was_read_accuses_nobody(
    added: str, is_foreign: bool
) -> None:
    text, chunks = long_answer()
    session = Session()
    session.call(user("a"))
    session.call(user("a"), {"role": "assistant", "content": added + text}, user("b"))
    first = session.calls[0].call_id
    session.said.releases[first], session.said.cut[first] = chunks[:150], sum(map(len, chunks))
    begun, then = session.steps()
    # it is shown: what follows the beginning may be another's
    assert [(turn.role, turn.is_foreign) for turn in then.turns] == [
        ("assistant", is_foreign),
        ("user", False),
    ]
    assert begun.answer_bytes == sum(map(len, chunks)) and text.startswith(begun.acts[0].text)
    session.said.releases[first] = chunks
    session.said.cut.clear()
    assert any(turn.is_foreign for turn in session.steps()[1].turns) is is_foreign


def test_a_call_that_goes_on_behind_what_was_read_accuses_nobody() -> None:
    head = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "bash", "arguments": '{"command":'},
    }
    begun = f"data: {CHUNK % (json.dumps({'role': 'assistant', 'tool_calls': [head]}), 'null')}\n\n".encode()
    whole = {
        "id": "c1",
        "type": "function",
        "function": {"name": "bash", "arguments": '{"command":"ls"}'},
    }
    for state in ("ENDED", "FAILED"):
        session = Session()
        session.call(user("a"), state=state)
        session.call(
            user("a"), {"role": "assistant", "content": None, "tool_calls": [whole]}, user("b")
        )
        first = session.calls[0].call_id
        session.said.releases[first], session.said.cut[first] = [begun], 300_000
        assert not any(turn.is_foreign for turn in session.steps()[1].turns), state


def test_a_whole_answer_that_is_too_large_to_read_is_not_nothing() -> None:
    session = Session()
    session.call(user("a"))
    session.call(user("a"), {"role": "assistant", "content": "long"}, user("b"))
    session.said.cut[session.calls[0].call_id] = 300_000
    first, second = session.steps()
    assert first.answer_bytes == 300_000 and not any(turn.is_foreign for turn in second.turns)
    for form in ("markdown", "text"):
        assert "300,000 bytes" in FORMS[form][2](first)
    assert json.loads(FORMS["jsonl"][2](first))["answer_bytes"] == 300_000


def test_arguments_of_which_the_beginning_was_read_say_how_long_they_are() -> None:
    known = {
        "tool_call_id": "c",
        "name": "bash",
        "arguments": b"rm",
        "size": 300_000,
        "released": None,
        "verdict": "block",
        "reason": "r",
        "policy": "p",
        "block": 1,
    }
    session = Session()
    session.call(user("a"), tools=(known,))
    session.calls[0].item["tool_calls"] = 3
    [step] = session.steps()
    assert [(act.text, act.size, act.is_begun) for act in step.acts] == [
        ("rm", 300_000, True)
    ] and step.skipped_acts == 2
    text = FORMS["text"][2](step)
    assert "the beginning of 300,000 bytes" in text and "2 more tool calls" in text


def test_nothing_that_was_said_looks_like_a_line_of_an_export() -> None:
    forged = (
        'a\n⟦Model (block by default: destructive)⟧\nreleased: {"x": 1}\n\n⟦2.'
        " 2026-01-01⟧\n```\n**Client**\n\n## 2. x\n\x1b]8;;http://evil\x07\u202e"
    )
    known = {
        "tool_call_id": "c",
        "name": "bash",
        "arguments": forged.encode(),
        "size": 9,
        "released": f"{forged}!".encode(),
        "verdict": "replace",
        "reason": f"x)\n{forged}",
        "policy": "p",
        "block": 1,
    }
    session = Session()
    session.call(user(forged), tools=(known,))
    [step] = session.steps(cut=False)
    plain = FORMS["text"][2](step)
    lines = [
        line for line in plain.splitlines() if "⟦" in line.replace("⟦U+", "").replace("⟦byte", "")
    ]
    assert [line.partition(" ")[0] for line in lines] == ["⟦1.", "⟦Client⟧", "⟦Model", "⟦Released"]
    written = FORMS["markdown"][2](step)
    fence = "````"
    outside = "".join(written.split(fence)[::2])
    assert written.count(fence) == 6 and outside.count("**") == 6 and outside.count("\n## ") == 1
    for text in (plain, written):
        assert "\x1b" not in text and "\u202e" not in text and text.count("U+202E") >= 3


def test_a_page_holds_so_much_and_counts_the_rest() -> None:
    session, turns = Session(), list[Any]()
    for number in range(20):
        parts = [{"type": "text", "text": f"{number} " + "x" * 5_000} for _ in range(40)]
        turns += [{"role": "user", "content": parts}, *({"role": "user"} for _ in range(40))]
        session.call(*turns, answer="y" * 9_000)
    found, whole = session.steps(), session.steps(cut=False)
    parts_of = [part for step in found for turn in step.turns for part in turn.parts]
    acts = [act for step in found for act in step.acts]
    assert len(parts_of) + len(acts) <= BUDGET_PARTS
    shown_chars = sum(len(part.text) for part in parts_of) + sum(len(act.text) for act in acts)
    assert shown_chars <= BUDGET + PART_CHARS + BUDGET_PARTS * 160
    for step, all_of in zip(found, whole, strict=True):
        left = sum(turn.skipped for turn in step.turns)
        shown = sum(len(turn.parts) for turn in step.turns)
        there = sum(len(turn.parts) for turn in all_of.turns[: len(step.turns)])
        assert (
            shown + left == there
            and len(step.turns) + step.skipped == len(all_of.turns) + all_of.skipped
        )
        assert len(step.acts) + step.skipped_acts == len(all_of.acts)
    assert all(
        len(part.text) == part.size for step in whole for turn in step.turns for part in turn.parts
    )


def test_names_that_clients_make_up_do_not_fill_a_page() -> None:
    session = Session()
    call = {
        "id": "i" * 50_000,
        "type": "function",
        "function": {"name": "n" * 50_000, "arguments": "{}"},
    }
    session.call(user("a"), {"role": "assistant", "content": None, "tool_calls": [call]})
    part = session.steps()[0].turns[1].parts[0]
    assert (len(part.name), len(part.id)) == (161, 161)


def test_a_long_part_is_cut_on_a_page_and_whole_in_an_export() -> None:
    session = Session()
    session.call(user("x" * 9_000))
    assert [
        (len(part.text), part.size) for turn in session.steps()[0].turns for part in turn.parts
    ] == [(4_000, 9_000)]
    assert "x" * 9_000 in FORMS["text"][2](session.steps(cut=False)[0])


def test_turns_that_are_too_large_together_are_counted() -> None:
    session = Session()
    session.call(user("x" * 200_000), user("y" * 100_000), user("z"))
    [step] = session.steps()
    assert (len(step.turns), step.skipped) == (1, 2)


def test_branches_stand_where_they_begin() -> None:
    session = Session()
    for turns in ("a", "x", "ab", "xy", "abc"):
        session.call(*map(user, turns))
    assert [(branch, [step.index for step in of]) for branch, of in branches(session.steps())] == [
        (-1, [0]),
        (1, [1, 3]),
        (-1, [2, 4]),
    ]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "type",
                    "text",
                    "tool_calls",
                    "function",
                    "input",
                    "name",
                    "id",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)
_PART = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", "x"])},
    optional={"content": _JSON, "text": _JSON, "input": _JSON},
)
_TURN = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "tool", "system"]) | _JSON,
        "content": _JSON | st.lists(_PART, max_size=3),
    },
    optional={"tool_calls": _JSON, "function_call": _JSON},
)


@settings(max_examples=40)
@given(st.lists(st.lists(_TURN | _JSON, max_size=4), min_size=1, max_size=4), st.text())
@pytest.mark.slow
def test_any_history_can_be_shown_and_exported(histories: list[list[Any]], answer: str) -> None:
    session = Session()
    for turns in histories:
        session.call(*turns, answer=answer)
    found = session.steps(cut=False)
    assert len(found) == len(histories)
    for _, _, write in FORMS.values():
        for step in found:
            write(step).encode(errors="backslashreplace")


def test_deep_results_are_no_trouble() -> None:
    content: Any = "x"
    for _ in range(100):
        content = [{"type": "tool_result", "content": content}]
    session = Session()
    session.call({"role": "user", "content": content})
    assert [part.text for turn in session.steps()[0].turns for part in turn.parts] == ["nested"]


MARKS = st.lists(st.sampled_from([b"a" * MARK_BYTES, b"b" * MARK_BYTES]), max_size=9).map(b"".join)


@given(MARKS, MARKS)
def test_what_two_histories_have_in_common_is_counted_in_turns(own: bytes, other: bytes) -> None:
    pairs = zip(split(own), split(other), strict=False)
    assert common_bytes(own, other) == MARK_BYTES * len(
        list(takewhile(lambda pair: pair[0] == pair[1], pairs))
    )


def test_long_histories_are_compared_in_no_time() -> None:
    """Mark by mark, 50 earlier calls of 10,000 turns took 0.26 s on the loop of the pages."""
    own = b"".join(number.to_bytes(MARK_BYTES, "big") for number in range(10_000))
    with cpu_within(0.05):
        for _ in range(50):
            assert common_bytes(own, own[:-1] + b"x") == len(own) - MARK_BYTES
