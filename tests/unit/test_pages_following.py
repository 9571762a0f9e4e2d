"""Following an open call: what was said, what of it is out, what is held, and what a browser has
after any break."""

import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages.call.followed_blocks import FIRST_CHARS, HELD_MS
from pages.call.following import Following, StartFacts, parse_place
from pages.http.application import App
from pages.page import PageRequest, Who
from pages.views import live
from protocol.records import (
    BlockRecord,
    EndRecord,
    Record,
    ReleaseRecord,
    ToolCallRecord,
    ToolReleaseRecord,
)
from settings.config import Config
from settings.runtime import Runtime
from streams.layout import Entry
from tests.support.cpu import slowness
from tests.support.json_values import Json, as_json
from tests.support.waiting import watched

CALL = "01a20a86-69b6-7fcf-abde-7a9c0afc5c00"
NOW = 1_000_000


def event(**delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    body = {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "demo",
        "choices": [choice],
    }
    return f"data: {json.dumps(body)}\n\n".encode()


def text(*pieces: str) -> list[bytes]:
    return [event(role="assistant", content=""), *(event(content=piece) for piece in pieces)]


def tool(arguments: Sequence[str], name: str = "bash") -> list[bytes]:
    first = event(
        tool_calls=[
            {
                "index": 0,
                "id": "c1",
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }
        ]
    )
    return [
        first,
        *(event(tool_calls=[{"index": 0, "function": {"arguments": one}}]) for one in arguments),
    ]


def entries(raw: Sequence[bytes], first: int = 1) -> list[Entry]:
    return [Entry(first + n, NOW, "chunks", [one]) for n, one in enumerate(raw)]


def release(number: int, seq: int, payload: bytes) -> ReleaseRecord:
    return ReleaseRecord(
        call_id=CALL,
        number=number,
        number_next=number + 1,
        at=NOW,
        seq=seq,
        payload=payload,
        sha256=b"",
    )


def tool_call(verdict: Any, block: int = 1, reason: str = "rule") -> ToolCallRecord:
    return ToolCallRecord(
        call_id=CALL,
        block=block,
        index=0,
        at=NOW,
        tool_call_id="c1",
        name="bash",
        arguments=b"{}",
        released_arguments=None,
        executor="client",
        form="native",
        verdict=verdict,
        reason=reason,
        policy="p",
    )


def following(**facts: Any) -> Following:
    return Following(StartFacts("openai", **facts))


class Screen:
    """What a browser shows: per block what is out and what is held, and the words."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.out: dict[int, int] = {}
        self.word: dict[int, str] = {}
        self.why: dict[int, str] = {}
        self.got: dict[int, str] = {}
        self.loose = self.line = ""

    def take(self, told: Json | None) -> "Screen":
        for one in (told or {}).get("blocks", ()):
            block = one["b"]
            self.texts[block] = self.texts.get(block, "") + one.get("add", "")
            self.got[block] = self.got.get(block, "") + one.get("got", "")
            self.out[block], self.word[block], self.why[block] = one["out"], one["word"], one["why"]
        self.loose += (told or {}).get("loose", "")
        self.line = (told or {}).get("line", self.line)
        return self

    def halves(self, block: int) -> tuple[str, str]:
        raw = self.texts[block].encode("utf-16-le")
        cut = 2 * self.out[block]
        return raw[:cut].decode("utf-16-le"), raw[cut:].decode("utf-16-le")


def test_text_is_shown_as_it_comes_and_then_as_released() -> None:
    one, screen = following(), Screen()
    for entry in entries(text("Hello ", "you ✓ 😀")):
        assert one.entry(entry)
    screen.take(one.frame(NOW))
    assert screen.halves(0) == ("", "Hello you ✓ 😀") and "coming" in screen.word[0]
    screen.take(one.frame(NOW + HELD_MS))
    assert screen.word[0] == "‖ HELD" and "waits for its policies" in screen.why[0]
    one.record(release(0, 3, b"".join(text("Hello ", "you ✓ 😀"))))
    screen.take(one.frame(NOW + 400))
    assert screen.halves(0) == ("Hello you ✓ 😀", "") and screen.word[0] == "✓ released"
    assert one.frame(NOW + 401) is None, "nothing is new"


def test_a_tool_call_is_held_and_then_blocked_with_what_the_client_got() -> None:
    one, screen = following(judge=True), Screen()
    raw = [*text("Let me."), *tool(['{"command": ', '"rm -rf /"}'])]
    for entry in entries(raw[:4]):
        one.entry(entry)
    one.record(release(0, 2, b"".join(raw[:2])))
    screen.take(one.frame(NOW + 800))
    assert (
        screen.halves(0) == ("Let me.", "")
        and screen.word[1] == "‖ HELD"
        and screen.why[1] == "0.8 s, waits for the rest of its arguments"
    )
    one.entry(entries(raw[4:], 5)[0])
    screen.take(one.frame(NOW + 900))
    assert (
        screen.why[1] == "0.9 s, waits for a judge or its policies"
        and "held 1 (tool bash" in screen.line
    )
    for record in (tool_call("block"), ToolReleaseRecord(call_id=CALL, block=1, at=NOW)):
        one.record(record)
    one.record(release(1, 5, event(content="\n\n[not run]")))
    screen.take(one.frame(NOW + 1000))
    assert (screen.word[1], screen.why[1], screen.got[1]) == ("✗ BLOCKED", "rule", "\n\n[not run]")
    assert (
        screen.texts[1] == '{"command": "rm -rf /"}'
        and screen.got[0] == ""
        and "held" not in screen.line
    )


def test_arguments_that_nest_too_deep_are_held_like_others() -> None:
    one, screen = following(), Screen()
    for entry in entries(tool(['{"a":' + "[" * 3000])):
        one.entry(entry)
    screen.take(one.frame(NOW + 800))
    assert (
        screen.word[0] == "‖ HELD" and screen.why[0] == "0.8 s, waits for the rest of its arguments"
    )


def test_what_is_held_may_be_long() -> None:
    # what was held was copied for each piece: 9 s of work
    one, piece = following(), "x" * 200
    raw, begun = tool([piece] * 12_000), time.process_time()
    for entry in entries(raw):
        one.entry(entry)
    one.record(tool_call("allow", block=0))
    one.record(ToolReleaseRecord(call_id=CALL, block=0, at=NOW))
    one.record(release(1, len(raw), b"".join(raw)))
    told = one.frame(NOW)
    assert (
        told is not None
        and told["blocks"][0]["out"] == FIRST_CHARS
        and "released" in told["blocks"][0]["word"]
    )
    assert time.process_time() - begun < 4 * slowness()


def test_what_is_decided_need_not_be_read_again() -> None:
    one, seen = following(), list[tuple[int, bool]]()
    for entry in entries([*text("Let me."), *tool(["{}"])]):
        one.entry(entry)
    for record in (
        BlockRecord(
            call_id=CALL, block=0, at=NOW, kind="text", verdict="allow", reason="", policy="p"
        ),
        tool_call("allow"),
        ToolReleaseRecord(call_id=CALL, block=1, at=NOW),
    ):
        seen.append((one.decided_below, one.needs_record))
        one.record(record)
    assert [*seen, (one.decided_below, one.needs_record)] == [
        (0, True),
        (1, True),
        (1, True),
        (2, False),
    ]


def test_a_block_that_is_settled_is_told_again_when_something_comes_for_it() -> None:
    one, screen = following(), Screen()
    raw = text("a")
    for entry in entries(raw):
        one.entry(entry)
    one.record(release(0, 2, b"".join(raw)))
    screen.take(one.frame(NOW))
    one.record(
        BlockRecord(
            call_id=CALL, block=0, at=NOW, kind="text", verdict="allow", reason="fine", policy="p"
        )
    )
    assert screen.take(one.frame(NOW)).why[0] == "fine"
    one.entry(entries([event(content="b")], 3)[0])
    assert screen.take(one.frame(NOW)).halves(0) == ("a", "b")


def test_an_allowed_tool_call_waits_for_its_commit_and_goes_out() -> None:
    one, screen = following(), Screen()
    raw = tool(['{"a": 1}'])
    for entry in entries(raw):
        one.entry(entry)
    one.record(tool_call("allow", block=0))
    assert "approved, waits for its commit" in screen.take(one.frame(NOW)).why[0]
    one.record(ToolReleaseRecord(call_id=CALL, block=0, at=NOW))
    one.record(release(0, 2, b"".join(raw)))
    assert screen.take(one.frame(NOW)).word[0] == "✓ released" and screen.halves(0) == (
        '{"a": 1}',
        "",
    )


def test_what_a_policy_changed_stands_beside_what_was_said() -> None:
    one, screen = following(), Screen()
    for entry in entries(text("secret word")):
        one.entry(entry)
    one.record(release(0, 2, b"".join(text("SECRET", " WORD"))))
    screen.take(one.frame(NOW))
    assert (screen.texts[0], screen.got[0], screen.word[0]) == (
        "secret word",
        "SECRET WORD",
        "✓ changed",
    )
    one.record(
        BlockRecord(
            call_id=CALL,
            block=0,
            at=NOW,
            kind="text",
            verdict="replace",
            reason="upper",
            policy="p",
        )
    )
    assert screen.take(one.frame(NOW)).word[0] == "⇄ REPLACED"


def test_a_release_waits_for_its_chunks_and_with_strict_durability_for_its_commit() -> None:
    one, screen = following(strict=True), Screen()
    raw = text("Hello")
    one.record(release(0, 2, b"".join(raw)), (5, 0))
    for entry in entries(raw):
        one.entry(entry)
    assert screen.take(one.frame(NOW + HELD_MS)).halves(0) == ("", "Hello")
    assert "approved, waits for its commit" in screen.why[0]
    for below, waits in (((5, 0), True), ((5, 1), False)):
        one.committed(below)
        assert one.order.waits_for_commits == waits
    assert screen.take(one.frame(NOW + HELD_MS)).halves(0) == ("Hello", "")


def test_a_missing_chunk_is_told_and_one_that_came_twice_is_one() -> None:
    one = following()
    first, second, third = entries(text("a", "b"))
    assert (
        one.entry(first)
        and not one.entry(third)
        and one.entry(second)
        and one.entry(second)
        and one.entry(third)
    )
    assert Screen().take(one.frame(NOW)).texts[0] == "ab" and one.chunks == 3
    one.record(again := release(0, 3, b"".join(text("a", "b"))))
    one.record(again)
    assert one.releases == 1


def test_an_answer_that_comes_whole_is_followed_too() -> None:
    message = {"role": "assistant", "content": "Hi"}
    whole = as_json(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "demo",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }
    )
    one = following()
    one.entry(Entry(1, NOW, "body", [whole]))
    one.record(release(0, 1, whole))
    assert Screen().take(one.frame(NOW)).halves(0) == ("Hi", "")


def test_of_a_long_block_the_end_is_sent() -> None:
    one, screen = following(), Screen()
    raw = text("x" * FIRST_CHARS, "yz")
    for entry in entries(raw):
        one.entry(entry)
    one.record(release(0, 2, b"".join(raw[:2])))
    told = one.frame(NOW)
    assert told is not None and told["blocks"][0]["cut"].startswith("2 characters")
    assert screen.take(told).halves(0) == ("x" * (FIRST_CHARS - 2), "yz")


def test_the_end_is_known() -> None:
    one = following()
    one.entry(Entry(1, NOW, "closed", [], 0, "complete"))
    one.record(EndRecord(call_id=CALL, at=NOW, state="ENDED", reason="complete", status=200))
    assert one.is_closed and one.end is not None and one.end.reason == "complete"


def test_a_release_that_was_not_seen_is_waited_for_until_nobody_has_it() -> None:
    one, screen = following(), Screen()
    raw = text("a", "b", "c")
    for entry in entries(raw):
        one.entry(entry)
    first, second, third = (release(n + 1, n + 1, raw[n]) for n in range(3))
    one.record(first)
    one.record(third)
    states = [(one.order.has_gap, one.needs_record)]
    assert screen.take(one.frame(NOW)).halves(0) == ("", "abc")
    one.record(second)
    states.append((one.order.has_gap, one.needs_record))
    assert screen.take(one.frame(NOW)).halves(0) == ("ab", "c")
    one.record(release(6, 4, raw[3]))
    states.append((one.order.has_gap, one.needs_record))
    one.skip_gap()
    states.append((one.order.has_gap, one.needs_record))
    assert states == [(True, True), (False, False), (True, True), (False, False)]
    assert screen.take(one.frame(NOW)).halves(0) == ("abc", "")


def test_an_end_is_complete_with_all_that_was_released() -> None:
    one = following()
    for entry in entries(text("a")):
        one.entry(entry)
    one.record(
        EndRecord(call_id=CALL, at=NOW, state="ENDED", reason="complete", status=200, releases=2)
    )
    states = [one.is_complete]
    for number in (1, 2):
        one.record(release(number, number, text("a")[number - 1]))
        states.append(one.is_complete)
    assert states == [False, False, True]


def test_a_place_that_nobody_gave_is_the_beginning() -> None:
    assert parse_place("12.3") == (12, 3)
    for given_one in ("", "x", "1", "-1.2", "1.2.3", "9" * 30 + ".1", "１.1"):
        assert parse_place(given_one) == (0, 0)


@given(st.lists(st.text("ab 😀\n", min_size=1, max_size=6), min_size=1, max_size=8), st.data())
def test_a_browser_that_comes_back_has_what_one_has_that_stayed(
    pieces: list[str], data: st.DataObject
) -> None:
    raw = text(*pieces)
    steps: list[Entry | Record] = []
    for n, entry in enumerate(entries(raw)):
        steps += [entry, release(n, entry.seq, raw[n])]
    stayed, left = Screen(), Screen()
    one = following()
    cut, place = data.draw(st.integers(0, len(steps))), ""
    for n, step in enumerate([*steps, None]):
        if n == cut:
            told = one.frame(NOW)
            left.take(told)
            stayed.take(told)
            place = one.place
        _feed(one, step)
    stayed.take(one.frame(NOW))
    again = Following(StartFacts("openai"), parse_place(place))
    for step in steps:
        _feed(again, step)
    left.take(again.frame(NOW))
    assert left.texts == stayed.texts == {0: "".join(pieces)} and left.out == stayed.out


def _feed(one: Following, step: Entry | Record | None) -> None:
    if isinstance(step, Entry):
        one.entry(step)
    elif step is not None:
        one.record(step)


@pytest.fixture
async def follower() -> AsyncIterator[live._Follower]:
    """A viewer whose record and Redis are away."""
    app = App(
        Runtime(config=Config(), redis_url="", database_url="postgresql://nobody@127.0.0.1:1/none"),
        (),
    )
    asked = PageRequest(
        path="", params={}, query=(), who=Who("k", "k", frozenset(), "l"), services=app.services
    )
    yield live._Follower(asked, UUID(CALL))
    await app.close()


@pytest.mark.slow
async def test_one_large_event_holds_no_other_viewer_up(follower: live._Follower) -> None:
    """Of what nobody would see each character is a step of Python: 3 MB took a second on the loop,
    for each viewer."""
    said = [event(role="assistant", content=""), event(content="\u200b" * 1_000_000)]
    one = following()
    one.record(release(1, 2, b"".join(said)))
    assert one.order.kept_bytes > 6_000_000
    async with watched() as loop:
        for entry in entries(said):
            assert await follower._feed(one, entry)
    told = Screen().take(one.frame(NOW))
    assert told.texts[0].endswith("\\u200b\\u200b") and (one.releases, one.order.kept_bytes) == (
        1,
        0,
    )
    assert loop.longest_s < 0.25


async def test_a_live_view_has_an_end(follower: live._Follower) -> None:
    assert follower._is_over(following(), 9.0, 9.0, has_stream=True) is None
    over = follower._is_over(following(), 9.1, 9.0, has_stream=True)
    assert over is not None and "after 30 minutes" in str(over)
