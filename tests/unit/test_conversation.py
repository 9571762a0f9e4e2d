"""A session's calls become one conversation, whatever clients sent."""

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from db.read.sessions import Said, SessionCall
from pages.conversation import Step, branches, steps, wanted
from pages.session_export import FORMS
from protocol.histories import history
from protocol.prefix_tree import Marked, place

CHUNK = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}'


def stream(text: str) -> bytes:
    """A streamed answer."""
    said = CHUNK % (json.dumps({"role": "assistant", "content": text}), "null")
    return "\n\n".join([f"data: {said}", "data: " + CHUNK % ("{}", '"stop"'), "data: [DONE]", ""]).encode()


class Session:
    """Calls as the reader gives them, with what is read of them."""

    def __init__(self) -> None:
        self.calls: list[SessionCall] = []
        self.bodies: dict[UUID, bytes] = {}
        self.said = Said({}, {}, {}, {})

    def call(self, *messages: Any, answer: str = "", state: str = "ENDED", tools: tuple[dict[str, Any], ...] = ()) -> None:
        """Add a call."""
        body = json.dumps({"messages": messages}).encode()
        found, call = history(body), UUID(int=len(self.calls) + 1)
        item = {"call_id": str(call), "at": "2026-01-31T12:00:00.000Z", "dialect": "openai", "stream": True, "state": state, "model": "m"}
        self.calls.append(SessionCall(call, item, Marked(found.marks, found.is_side), found.turns, found.offsets))
        self.bodies[call] = body
        self.said.tool_calls[call] = list(tools)
        if answer:
            self.said.releases[call] = [stream(answer)]

    def steps(self, *, cut: bool = True) -> list[Step]:
        """All of them."""
        placed = place([call.marked for call in self.calls])
        pieces, _ = wanted(self.calls, placed, range(len(self.calls)))
        for call, (begin, end) in pieces.items():
            self.said.pieces[call] = begin, self.bodies[call][begin:end]
        return steps(self.calls, placed, range(len(self.calls)), self.said, cut=cut)


def user(text: str) -> dict[str, Any]:
    """Somebody typed this."""
    return {"role": "user", "content": text}


def texts(step: Step) -> list[tuple[str, str]]:
    """Who said what in a step."""
    return [(turn.role, part.text) for turn in step.turns for part in turn.parts]


def test_the_models_turn_that_comes_back_is_shown_once() -> None:
    session = Session()
    session.call(user("a"), answer="one two")
    session.call(user("a"), {"role": "assistant", "content": " one\ntwo "}, user("b"), answer="three")
    first, second = session.steps()
    assert (texts(first), texts(second)) == ([("user", "a")], [("user", "b")])
    assert [act.text for act in first.acts] == ["one two"]


@pytest.mark.parametrize(("kept", "is_foreign"), [("one", False), ("one two", False), ("two", True)])
def test_of_an_answer_that_broke_off_a_client_keeps_the_beginning(kept: str, is_foreign: bool) -> None:
    session = Session()
    session.call(user("a"), answer="one two", state="FAILED")
    session.call(user("a"), {"role": "assistant", "content": kept}, user("b"))
    assert any(turn.is_foreign for turn in session.steps()[1].turns) is is_foreign


def test_a_turn_that_was_not_released_is_marked_and_one_nobody_knows_is_not() -> None:
    session = Session()
    session.call(user("a"), {"role": "assistant", "content": "of before"}, user("b"), answer="one")
    session.call(user("a"), {"role": "assistant", "content": "of before"}, user("b"), {"role": "assistant", "content": "I may"}, user("c"))
    session.call(
        user("a"), {"role": "assistant", "content": "of before"}, user("b"), {"role": "assistant", "content": "I may"}, user("c"), user("d")
    )
    first, second, third = session.steps()
    assert not any(turn.is_foreign for turn in first.turns)
    assert [(turn.role, turn.is_foreign) for turn in second.turns] == [("assistant", True), ("user", False)]
    assert texts(third) == [("user", "d")]


def test_tool_calls_and_results_of_chat_completions_are_read() -> None:
    session = Session()
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
    old = {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}}
    session.call(
        user("a"), {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "x"}, old
    )
    [step] = session.steps()
    assert [(turn.role, part.kind, part.name, part.id) for turn in step.turns for part in turn.parts] == [
        ("user", "text", "", ""), ("assistant", "tool_use", "bash", "c1"), ("tool", "tool_result", "", "c1"),
        ("assistant", "tool_use", "old", ""),
    ]  # fmt: skip


def test_what_was_refused_or_replaced_has_both_sides() -> None:
    known = {
        "tool_call_id": "c",
        "name": "bash",
        "arguments": b"rm",
        "released": b"ls",
        "verdict": "replace",
        "reason": "r",
        "policy": "p",
        "block": 1,
    }
    session = Session()
    session.call(user("a"), tools=(known, {**known, "tool_call_id": "d", "released": None, "verdict": "block"}))
    replaced, blocked = session.steps()[0].acts
    assert (replaced.text, replaced.released, blocked.verdict, blocked.released) == ("rm", "ls", "block", None)


def test_a_long_part_is_cut_on_a_page_and_whole_in_an_export() -> None:
    session = Session()
    session.call(user("x" * 9_000))
    assert [(len(part.text), part.size) for turn in session.steps()[0].turns for part in turn.parts] == [(4_000, 9_000)]
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
    assert [(branch, [step.index for step in of]) for branch, of in branches(session.steps())] == [(-1, [0]), (1, [1, 3]), (-1, [2, 4])]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "tool_calls", "function", "input", "name", "id", "x"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)
_PART = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", "x"])},
    optional={"content": _JSON, "text": _JSON, "input": _JSON},
)
_TURN = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"]) | _JSON, "content": _JSON | st.lists(_PART, max_size=3)},
    optional={"tool_calls": _JSON, "function_call": _JSON},
)


@settings(max_examples=40)
@given(st.lists(st.lists(_TURN | _JSON, max_size=4), min_size=1, max_size=4), st.text())
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
