"""Marks of turns, and the conversation that the calls of a session are by them."""

import json
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.conversations.histories import MARK_BYTES, NONE, history, split, typed
from protocol.conversations.prefix_tree import MAIN, Marked, Placed, place
from tests.support.cpu import cpu_within, slowness
from tests.support.json_values import Json, as_json


def _body(*turns: Any, **more: Any) -> bytes:
    return as_json({"model": "m", "messages": turns, **more})


def _user(text: Any) -> Json:
    return {"role": "user", "content": text}


def test_a_turn_keeps_its_mark_where_only_its_place_or_its_form_changes() -> None:
    plain = history(_body(_user("hi")))
    cached = {
        "role": "user",
        "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
    }
    assert history(_body(cached)).marks == plain.marks
    assert (
        history(
            json.dumps({"messages": [{"content": "hi", "role": "user"}]}, indent=1).encode()
        ).marks
        == plain.marks
    )
    result = {
        "type": "tool_result",
        "tool_use_id": "t",
        "content": [{"type": "text", "text": "hi"}],
    }
    marked = {
        **result,
        "content": [{**result["content"][0], "cache_control": {"type": "ephemeral"}}],  # type: ignore[dict-item]
    }
    assert history(_body(_user([result]))).marks == history(_body(_user([marked]))).marks
    # what the model reads is compared, whatever its name
    calls = [
        {"type": "tool_use", "id": "t", "name": "x", "input": {"cache_control": said}}
        for said in ("harmless", "changed")
    ]
    one, other = (history(_body({"role": "assistant", "content": [call]})).marks for call in calls)
    assert one != other
    assert history(_body(_user("hi!"))).marks != plain.marks
    assert history(_body({"role": "assistant", "content": "hi"})).marks != plain.marks


def test_the_marks_of_a_longer_history_begin_with_those_of_a_shorter_one() -> None:
    turns = [_user("a"), {"role": "assistant", "content": "b"}, _user("a")]
    whole = history(_body(*turns))
    assert whole.turns == 3 and whole.marks.startswith(history(_body(*turns[:2])).marks)
    first, _, third = split(whole.marks)
    assert first == third


def test_marks_of_turns_that_come_again_are_the_same_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [_user(f"turn {n}") for n in range(9)]
    known: dict[bytes, bytes] = {}
    bodies = [_body(*turns[:n]) for n in range(1, 10)]
    assert [history(body, known) for body in bodies] == [history(body) for body in bodies]
    assert len(known) == 8
    monkeypatch.setattr("protocol.conversations.histories._MOST_KNOWN", 3)
    assert [history(body, known) for body in bodies] == [history(body) for body in bodies]
    assert len(known) <= 8


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("hello  there\n", "hello there"),
        ("<system-reminder>\nrules say\n</system-reminder>\nmend the test", "mend the test"),
        (
            [
                {"type": "text", "text": "<system-reminder>a</system-reminder>"},
                {"type": "text", "text": "b < c"},
            ],
            "b < c",
        ),
        ([{"type": "image"}, 7, {"type": "tool_result", "content": "x"}], ""),
        ("<system-reminder>not closed", ""),
        ("<<system-reminder>a</system-reminder><system-reminders>b", "<<system-reminders>b"),
        ("a <command-args x=1>b</command-args> c", "a c"),
        (
            "<environment_context>\n<cwd>/a</cwd></environment_context><task>do it</task>",
            "<task>do it</task>",
        ),
        (None, ""),
        ("x" * 200, "x" * 160 + "…"),
    ],
)
def test_the_preview_is_what_a_person_typed(content: Any, expected: str) -> None:
    assert typed(content) == expected


def test_the_preview_is_of_the_first_turn_that_has_words() -> None:
    body = _body(
        _user("<system-reminder>a</system-reminder>"),
        {"role": "assistant", "content": "b"},
        _user("c"),
    )
    assert history(body).preview == "c"


@pytest.mark.parametrize(
    ("more", "is_side"),
    [
        ({"max_tokens": 1}, True),
        ({"max_completion_tokens": 1}, True),
        ({"max_tokens": 2}, False),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, True),
        ({"output_config": {"format": {"type": "json_schema"}}, "tools": []}, True),
        ({"output_config": {"effort": "high"}}, False),
        ({"response_format": {"type": "json_schema"}, "tools": [{"name": "a"}]}, False),
    ],
)
def test_calls_beside_the_conversation_are_known(more: Json, is_side: bool) -> None:
    assert history(_body(_user("a"), **more)).is_side is is_side


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"messages":7}',
        b'{"messages":' + b"[" * 100_000,
        b'{"messages":[' + b"{}," * 99_999 + b"{}]}",
        b'{"messages":[' + b"[]," * 4_000_000 + b"[]]}",
        _body(*[{}] * 10_001),
    ],
    ids=[
        "empty",
        "list",
        "cut",
        "bytes",
        "number",
        "deep",
        "100,000 turns",
        "16 MB of lists",
        "10,001 turns",
    ],
)
def test_what_is_no_request_has_no_history(body: bytes) -> None:
    with cpu_within(2):
        assert history(body) == NONE


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    ).map(lambda x: _body(_user(x)))
)
def test_any_body_has_as_many_marks_as_offsets(body: bytes) -> None:
    found = history(body)
    assert (len(found.marks), len(found.offsets)) == (MARK_BYTES * found.turns, 8 * found.turns)


# --- the tree ---


def _marked(turns: str, **more: Any) -> Marked:
    return Marked(b"".join(turn.encode() * MARK_BYTES for turn in turns), **more)


def _common(a: Marked, b: Marked) -> int:
    pairs = list(zip(split(a.marks), split(b.marks), strict=False))
    return next((i for i, (x, y) in enumerate(pairs) if x != y), len(pairs))


@given(st.lists(st.text("abc", max_size=6), max_size=12))
@example(["ab", "abc", "ab", "abd", "", "a", "abcc"])
def test_the_parent_is_the_newest_of_those_with_the_longest_common_beginning(
    histories: list[str],
) -> None:
    calls = [_marked(turns) for turns in histories]
    for index, placed in enumerate(place(calls)):
        most = max((_common(calls[i], calls[index]) for i in range(index)), default=0)
        alike = [i for i in range(index) if most and _common(calls[i], calls[index]) == most]
        assert (placed.parent, placed.common) == (alike[-1] if alike else -1, most)
        assert placed.changed == (placed.parent >= 0 and len(histories[placed.parent]) > most)


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=3), min_size=1, max_size=10))
def test_of_a_conversation_that_only_grows_each_turn_is_new_once(pieces: list[str]) -> None:
    calls = [_marked("".join(pieces[: n + 1])) for n in range(len(pieces))]
    placed = place(calls)
    assert sum(
        len(c.marks) // MARK_BYTES - p.common for c, p in zip(calls, placed, strict=True)
    ) == len("".join(pieces))
    assert {p.branch for p in placed} == {MAIN} and not any(p.changed or p.begins for p in placed)


def test_an_edit_is_seen_and_a_second_way_on_is_a_branch() -> None:
    assert place([_marked("abc"), _marked("abcde"), _marked("abx"), _marked("abcdf")]) == [
        Placed(-1, 0, False, MAIN, False),
        Placed(0, 3, False, MAIN, False),
        Placed(1, 2, True, MAIN, False),
        Placed(1, 4, True, 3, False),
    ]


@pytest.mark.slow
def test_2000_calls_of_2000_turns_take_little() -> None:
    marks = b"".join(i.to_bytes(MARK_BYTES, "big") for i in range(4_000))
    calls = [Marked(marks[: MARK_BYTES * (2_000 + n)]) for n in range(2_000)]
    began = time.process_time()
    placed = place(calls)
    assert time.process_time() - began < 2 * slowness() and placed[-1] == Placed(
        1_998, 3_998, False, MAIN, False
    )
