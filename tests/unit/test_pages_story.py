"""The story of a call, made of rows as the record has them: the words of each row, and what is said
of the whole."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.read.call.story import BlockDetails, ChunkSpan, Overview
from pages.call import arguments, head, story
from pages.call.sides import Got, SideBlock
from pages.call.story import Cut, Sides
from pages.views.call import bounded_left
from tests.support.json_values import Json

CALL = UUID("01a1fcc0-0000-7000-8000-000000000001")
BEGAN = datetime(2026, 11, 22, 14, 3, 7, 120_000, UTC)
WHOLE = Cut(arguments.WHOLE, arguments.ENDS)
NO_TOKENS = dict.fromkeys(
    ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "thinking_tokens")
)


def at(ms: int) -> datetime:
    """A moment of the call."""
    return BEGAN + timedelta(milliseconds=ms)


def tool(block: int, verdict: str = "allow", **given: Any) -> Any:
    """A row of a tool call, released where it was allowed."""
    released = at(900) if verdict in ("allow", "replace") else None
    known = {
        "block": block,
        "index": 0,
        "at": at(800),
        "tool_call_id": f"t{block}",
        "name": "bash",
        "executor": "client",
        "form": "native",
        "verdict": verdict,
        "reason": "",
        "policy": "tool_rules",
        "rule": None,
        "schema_valid": None,
        "size": 7,
        "released_size": 7 if released else None,
        "is_same": True if released else None,
        "released_at": released,
    }
    return SimpleNamespace(**known | given)


def block(
    number: int, verdict: str = "allow", kind: str = "text", reason: str = "", **given: Any
) -> Any:
    """A row of another block."""
    known = {
        "block": number,
        "at": at(500),
        "kind": kind,
        "verdict": verdict,
        "reason": reason,
        "policy": "",
        "rule": None,
    }
    return SimpleNamespace(**known | given)


def call(
    *rows: Any,
    state: str = "ENDED",
    reason: str = "complete",
    judged: Any = (),
    events: Any = (),
    **given: Any,
) -> Overview:
    """A call with these blocks, a chunk each."""
    facts: Json = dict.fromkeys(
        "session key_id policy_set gateway status stop_reason tool_calls tool_calls_blocked"
        " user_agent incomplete".split()
    )
    facts |= {
        "call_id": str(CALL),
        "key": "dev",
        "model": "demo",
        "upstream": "demo",
        "policy": "default",
        "policy_revision": "r1",
        "stream": True,
        "dialect": "anthropic",
        "endpoint": "messages",
        "state": state,
        "reason": reason,
        "usage": NO_TOKENS,
        "created_at": "2026-11-22T14:03:07.120Z",
        "claimed_at": "2026-11-22T14:03:07.123Z",
        "ended_at": None if state == "ACTIVE" else "2026-11-22T14:03:11.900Z",
    } | given.pop("facts", {})
    numbers = [row.block for row in rows]
    spans = {n: ChunkSpan(2, 2 * n + 1, 2 * n + 2, at(400 + n), at(700 + n), 80) for n in numbers}
    found = Overview(
        CALL,
        facts,
        spans,
        {r.block: r for r in rows if hasattr(r, "index")},
        {r.block: r for r in rows if not hasattr(r, "index")},
        list(judged),
        SimpleNamespace(n=2, size=10, first_at=at(500), last_at=at(900), seqs=[2, 4]),
        list(events),
        [],
        SimpleNamespace(
            body_size=10, events=len(events), dead_letters=0, chunks_said=len(rows), debug_lines=0
        ),
        [],
    )
    found.numbers = numbers
    for name, value in given.items():
        setattr(found, name, value)
    return found


def told(
    found: Overview, *, sides: Sides | None = None, details: BlockDetails | None = None
) -> list[Json]:
    """The rows of all blocks."""
    return story.rows(
        found, found.numbers, details or BlockDetails({}, {}, {}, {}), sides or Sides(), WHOLE
    )


def test_each_verdict_says_what_happened_to_whom() -> None:
    found = call(
        block(0),
        tool(1, "block", reason="rule", rule="no-deletes"),
        tool(2, "replace", is_same=False),
        tool(3),
        tool(4, "block", executor="provider"),
        block(5, "withheld", reason="after_denied"),
        tool(6, "discarded"),
    )
    assert [(row["word"], row["by"], row["sentence"]) for row in told(found)] == [
        ("allowed", "", "released, unchanged"),
        ("BLOCKED", "rule", "asked for, never released"),
        ("REPLACED", "", "asked for, released with other arguments"),
        ("allowed", "", "asked for, released unchanged"),
        ("BLOCKED", "", "blocked, never released; the provider may have run it"),
        ("WITHHELD", "", "withheld behind #4"),
        ("DISCARDED", "", "asked for in an answer that was not chosen, never released"),
    ]


@pytest.mark.parametrize(
    "verdict", ["allow", "replace", "block", "withheld", "discarded", "hold", ""]
)
@pytest.mark.parametrize("kind", ["tool", "text", "thinking", "other"])
@pytest.mark.parametrize("state", ["ACTIVE", "ENDED", "FAILED"])
def test_what_was_refused_never_looks_like_something_done(
    verdict: str, kind: str, state: str
) -> None:
    row = tool(0, verdict) if kind == "tool" else block(0, verdict, kind)
    [made] = told(call(row, state=state))
    if verdict not in ("allow", "replace"):
        assert "released" not in made["sentence"].replace("never released", "")
    assert made["sentence"]


@pytest.mark.parametrize(
    ("row", "reason", "words"),
    [
        (
            block(0, "withheld", reason="unfinished"),
            "api_error",
            "cut: the upstream never finished it; its last chunk is 2",
        ),
        # who went away left a text that nobody decided about to its end
        (None, "client_gone", "cut: the client went away first; its last chunk is 2"),
    ],
)
def test_a_text_that_ended_early_is_cut_and_not_withheld(row: Any, reason: str, words: str) -> None:
    found = call(block(0), state="FAILED", reason=reason)
    found.blocks = {0: row} if row else {}
    got = {0: Got("hel")}
    sides = Sides({0: SideBlock(0, "text", pieces=["hel"])}, got, is_whole=True)
    [made] = told(found, sides=sides)
    assert (made["word"], made["sentence"]) == ("CUT", f"{words}; what came of it was released")
    got[0] = Got("he")
    assert (
        told(found, sides=sides)[0]["sentence"] == f"{words}; its first 2 characters were released"
    )
    assert head.head(found, at(5000))["verdicts"] == ([["withheld", "cut", 1]] if row else [])


def test_an_approved_call_that_never_went_out_is_said_to_have_stayed() -> None:
    [made] = told(call(tool(0, released_at=None), state="FAILED", reason="client_gone"))
    assert made["sentence"] == "asked for, approved, never released"
    [made] = told(call(tool(0, released_at=None), state="ACTIVE"))
    assert made["sentence"] == "asked for, approved, not released yet"


def test_a_later_word_on_a_tool_call_counts() -> None:
    found = call(tool(0))
    found.blocks[0] = block(0, "withheld", "tool_use", "undecided")
    [made] = told(found)
    assert (made["word"], made["because"]) == ("WITHHELD", "the call ended before it was decided")


def test_thinking_that_is_encrypted_is_named_so_and_never_looks_like_text() -> None:
    sides = Sides({0: SideBlock(0, "thinking", "redacted_thinking", sealed=2100)}, is_whole=True)
    [made] = told(call(block(0, kind="other")), sides=sides)
    assert (made["kind"], made["label"], made["sealed_bytes"], made["text"]) == (
        "thinking",
        "thinking, encrypted by the provider",
        2100,
        None,
    )


def judgement(step: int, probability: float | None, **given: Any) -> Any:
    known = {
        "block": 1,
        "step": step,
        "at": at(790),
        "model": "demo-judge",
        "policy": "tool_judge",
        "probability": probability,
        "threshold": 0.6,
        "latency_ms": 80,
        "attempts": 1,
        "error": "",
    }
    return SimpleNamespace(**known | given)


def test_every_question_to_a_judge_is_told_with_who_held_the_call_how_long() -> None:
    judged = [judgement(0, None, error="deadline"), judgement(1, 0.81)]
    read = [
        SimpleNamespace(
            block=1,
            step=own.step,
            prompt=b"harmful?",
            prompt_size=9_000,
            reply=b"{}",
            reply_size=2,
            explanation="deletes",
            input_tokens=None,
            output_tokens=None,
        )
        for own in judged
    ]
    details = BlockDetails({}, {1: read}, {}, {})
    [made] = told(
        call(tool(1, "block", reason="judge", policy="tool_judge"), judged=judged), details=details
    )
    assert [(step["probability"], step["reached"], step["error"]) for step in made["steps"]] == [
        (None, False, "deadline"),
        (0.81, True, ""),
    ]
    assert made["by"] == "judge" and made["steps"][0]["prompt"] == {
        "text": "harmful?",
        "size": 9_000,
        "cut": True,
    }
    assert made["holds"] == [{"who": "judge", "ms": 160}]


def read_of(asked: bytes, released: bytes | None = None) -> BlockDetails:
    row = SimpleNamespace(
        start=asked[:600], tail=asked[-100:], released=released, released_tail=None
    )
    return BlockDetails({0: row}, {}, {}, {})


def test_arguments_stand_in_the_order_in_which_they_were_sent_and_changes_by_line() -> None:
    asked, released = (
        b'{"b":1,"a":{"to":"ceo@example.com"}}',
        b'{"b":1,"a":{"to":"outbox@example.org"}}',
    )
    row = tool(0, "replace", size=len(asked), released_size=len(released), is_same=False)
    [made] = told(call(row), details=read_of(asked, released))
    assert (
        made["arguments"]["lines"] == '{\n  "b": 1,\n  "a": {\n    "to": "ceo@example.com"\n  }\n}'
    )
    assert [line["sign"] for line in made["changes"]["lines"]] == [
        " ",
        " ",
        " ",
        "-",
        "+",
        " ",
        " ",
    ]


@pytest.mark.parametrize("text", [b'{"a":1,"a":2}', b'{"a":', b"rm -rf /", b'{"a":NaN}'])
def test_doubtful_arguments_stand_exactly_as_sent_too(text: bytes) -> None:
    [made] = told(call(tool(0, size=len(text))), details=read_of(text))
    assert made["arguments"]["exact"] == text.decode() and made["arguments"]["why"]


def test_long_arguments_are_cut_and_say_so() -> None:
    side = arguments.shown(b"x" * 70_000, b"y" * 4096, 5_000_000, arguments.WHOLE)
    assert (side["cut"], len(side["text"]), side["tail"][-1], side["size"]) == (
        True,
        arguments.ENDS,
        "y",
        5_000_000,
    )
    found = call(*(tool(n, size=5_000_000, released_size=None) for n in range(50)))
    assert story.cut_for(found, found.numbers).most < 500
    assert story.cut_for(found, found.numbers[:2]).most == arguments.WHOLE


@given(st.integers(0, 12_000), st.integers(1, 10_000), st.integers(0, 5_000))
def test_both_ends_of_arguments_never_meet(size: int, most: int, tail: int) -> None:
    text = bytes(97 + n % 23 for n in range(size))
    tail = min(tail, most)
    made = arguments.shown(text[:most], text[-tail:] if size > most and tail else None, size, most)
    if not made["cut"]:
        assert made["text"].encode() == text
        return
    start, end = made["text"].encode(), made["tail"].encode()
    assert text.startswith(start) and text.endswith(end) and len(start) + len(end) < size
    assert (made["first"], made["last"]) == (len(start), len(end))


def test_what_the_client_got_besides_says_how_much_it_is() -> None:
    assert bounded_left("x" * 5_000, 4_096) == {"left": "x" * 4_096, "left_length": 5_000}
    assert bounded_left("", 4_096) == {"left": "", "left_length": 0}


def test_what_the_client_got_instead_is_told() -> None:
    sides = Sides(
        {0: SideBlock(0, "text", pieces=["hello"])},
        {1: Got("\n\n[not executed]", (1, 2))},
        is_whole=True,
    )
    rows = told(call(block(0), tool(1, "block"), tool(2, "block")), sides=sides)
    assert rows[1]["got"] == {"text": "[not executed]", "length": 14, "shared": [2]}
    assert rows[0]["text"] == {"text": "hello", "length": 5, "cut": False, "first": 5}


NOTES: dict[str, tuple[Json, str]] = {
    "redacted": (
        {
            "events": [
                {
                    "kind": "redacted",
                    "number": 1,
                    "at": "2026-11-23T00:00:00.000Z",
                    "detail": "asked for",
                }
            ]
        },
        "redacted",
    ),
    "incomplete": (
        {
            "events": [
                {"kind": "incomplete", "number": 1, "at": "", "detail": "3 chunks are on record"}
            ]
        },
        "record is incomplete",
    ),
    "shed": (
        {
            "spans": {},
            "counts": SimpleNamespace(body_size=1, events=0, dead_letters=0, chunks_said=412),
        },
        "412 chunks are not on record",
    ),
    "dead letters": (
        {"counts": SimpleNamespace(body_size=1, events=0, dead_letters=2, chunks_said=0)},
        "dead letters",
    ),
    "without a beginning": (
        {"facts": {"claimed_at": None}},
        "beginning of this call is not on record",
    ),
    "unsealed": ({}, "Not sealed yet"),
}


@pytest.mark.parametrize("name", NOTES)
def test_what_the_record_lacks_is_said(name: str) -> None:
    given, words = NOTES[name]
    found = call(block(0), **given)
    assert any(words in note["text"] for note in head.head(found, at(5000))["notes"])


def test_a_sentence_says_what_happened_the_gravest_first() -> None:
    def said(*rows: Any, **given: Any) -> str:
        return head.happened(call(*rows, **given))

    blocked = tool(2, "block", rule="no-rm")
    assert (
        said(
            block(0),
            tool(1),
            blocked,
            tool(3, "withheld", name="write"),
            tool(4, "replace", name="mail"),
        )
        == "The model asked for 4 tool calls: bash was blocked by tool_rules, rule no-rm; mail was"
        " changed and released; write was withheld; bash was released."
    )
    assert said(*(tool(n, name=f"t{n}") for n in range(9))).endswith(
        "t0, t1, t2 and 6 more were released."
    )
    assert said(*(tool(n) for n in range(9)), tool(9, name="mail")).endswith(
        ": 9 × bash, mail were released."
    )
    assert (
        said(tool(0, released_at=None), state="FAILED", reason="client_gone")
        == "The model asked for one tool call: bash was allowed and never released. The answer was"
        " cut: client_gone."
    )
    assert (
        said(tool(0, "hold"), state="ACTIVE")
        == "The model asked for one tool call: bash was not decided yet."
    )
    assert (
        said(block(0, "block", policy="words", rule="r"))
        == "The model answered without tool calls. Text was blocked by words, rule r."
    )
    assert (
        said(block(0, "withheld", reason="unfinished"), state="FAILED", reason="api_error")
        == "The model answered without tool calls. The answer was cut: api_error."
    )
    assert said(block(0), facts={"stop_reason": "refusal"}) == "The model refused to answer."
    assert said(block(0), facts={"stop_reason": "max_tokens"}).endswith(
        "The answer was cut at its token limit."
    )
    assert said(state="FAILED", reason="blocked_by_policy") == "A policy blocked the request."
    assert (
        said(state="FAILED", reason="overloaded")
        == "No answer is on record. The call failed: overloaded."
    )


def test_the_bar_has_each_stretch_with_its_time() -> None:
    found = call(block(0), tool(1, "allow"), judged=[judgement(0, 0.1)])
    line = head.timeline(found, at(5000))
    assert line is not None
    assert {one["name"]: one["ms"] for one in line["totals"]} == {
        "claim": 3,
        "first byte": 397,
        "stream": 301,
        "judge": 80,
        "commit": 100,
    }
    assert line["ms"] == 4780 and all(
        0 <= one["x"] <= 1000 and one["x"] + one["w"] <= 1002 for one in line["stretches"]
    )
    empty = head.timeline(call(state="ACTIVE", facts={"claimed_at": None}), at(0))
    assert empty is not None and empty["stretches"] == []


def test_the_table_of_stretches_says_how_many_there_are() -> None:
    found = call(*(tool(n) for n in range(60)))
    line = head.timeline(found, at(5000))
    assert line is not None and (len(line["stretches"]), line["all"]) == (40, 63)
    # all of them wait for the same 100 ms
    assert [total["ms"] for total in line["totals"] if total["name"] == "commit"] == [100]


def test_what_the_project_stands_on_is_said_once() -> None:
    detail = '{"source":"request","roots":["/srv/a","/srv/b"],"ignored":["/: the root folder"]}'
    found = call(block(0), events=[{"kind": "project", "number": 0, "at": "", "detail": detail}])
    assert head.head(found, at(0))["project"] == {
        "source": "request",
        "roots": "/srv/a, /srv/b",
        "ignored": "/: the root folder",
    }
    assert head.events(found)["items_"] == []
    assert set(head.head(call(block(0)), at(0))["project"].values()) == {""}


def test_where_the_session_was_found_is_said_once() -> None:
    events = [
        {"kind": "identified", "number": 0, "at": "", "detail": '{"source": "x-sluice-session"}'}
    ]
    found = call(block(0), events=events)
    assert head.head(found, at(0))["session_from"] == "x-sluice-session"
    assert head.events(found)["items_"] == []
    assert (
        head.head(call(block(0), events=[{**events[0], "detail": "no json"}]), at(0))[
            "session_from"
        ]
        == ""
    )


@pytest.mark.parametrize(
    "reason",
    ["client_gone", "gateway_lost", "unclaimed", "stream_lost", "overloaded", "blocked_by_policy"],
)
def test_how_a_call_ended_is_a_sentence(reason: str) -> None:
    assert head.head(call(state="FAILED", reason=reason), at(5000))["sentence"].endswith(".")
