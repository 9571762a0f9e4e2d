"""Tables: which columns a width has room for, how wide they are, and what a pipe gets."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len

from protocol.errors import InvalidRequest
from sluice import tables, times
from sluice.audit.audit_columns import of_calls, of_judge_blocks, of_tool_calls
from sluice.tables import TableColumn, printable, short_ids, show
from sluice.times import read_time
from tests.support.json_values import Json

ARGUMENTS = '{"command": "' + "find / -name core -delete " * 20 + '"}'
TOOL_CALL = {
    "call_id": "01a202c9-76c8-7000-8000-0123456789ab",
    "key": "agent-ci",
    "name": "bash",
    "executor": "client",
    "verdict": "block",
    "rule": None,
    "reason": "judge",
    "policy": "tool_rules",
    "arguments": ARGUMENTS,
    "session": "nightly-build-4711",
    "model": "gpt-4o",
    "decided_at": "2026-11-22T10:26:39.222Z",
    "created_at": "2026-11-22T10:26:38.000Z",
    "released_at": None,
    "key_id": "0123456789abcdef",
}


def plain(text: str) -> list[str]:
    """Lines without what makes them bold."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


@pytest.fixture
def terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """Shows items by a list of columns on a terminal of some width; gives its lines."""
    monkeypatch.setenv("_SLUICE_TERMINAL", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("TZ", "UTC")

    def shown(items: list[Json], of: Any, width: int, **more: Any) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        listed = of(items)
        show(items, listed.columns, listed.values, time=listed.time, **more)
        return plain(capsys.readouterr().out)

    return shown


@pytest.mark.parametrize("room", [80, 160])
def test_one_long_name_pushes_out_no_other_column(
    terminal: Callable[..., list[str]], room: int
) -> None:
    short, long = (
        terminal([TOOL_CALL | more], of_tool_calls, room)[0].split()
        for more in ({}, {"key": "k" * 64})
    )
    assert short == long


@pytest.mark.parametrize(
    ("of", "width", "kept"),
    [
        (of_tool_calls, 20, ["tool", "verdict"]),
        (of_tool_calls, 40, ["time", "key", "tool", "verdict", "rule"]),
        (of_calls, 20, ["key", "state"]),
        (of_calls, 40, ["time", "key", "model", "state", "reason"]),
    ],
)
def test_what_says_least_leaves_a_narrow_terminal_first(
    terminal: Callable[..., list[str]], of: Any, width: int, kept: list[str]
) -> None:
    call = {
        "state": "ENDED",
        "status": 200,
        "tool_calls": 1,
        "tool_calls_blocked": 1,
        "upstream": "demo",
        "stop_reason": "end_turn",
    }
    assert terminal([TOOL_CALL | call], of, width)[0].split() == kept


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 140, 220])
@pytest.mark.parametrize(
    "name", ["bash", "a_very_long_name_of_a_tool_that_somebody_made_up", "工具" * 12]
)
def test_no_line_is_wider_than_its_terminal(
    terminal: Callable[..., list[str]], width: int, name: str
) -> None:
    judged = {
        "judge": {
            "model": "judge-model-with-a-name",
            "probability": 0.97,
            "threshold": 0.6,
            "explanation": "it deletes " * 30,
        }
    }
    call = {
        "state": "ENDED",
        "status": 200,
        "tool_calls": 1,
        "tool_calls_blocked": 1,
        "upstream": name,
        "stop_reason": "end_turn",
    }
    for of in (of_tool_calls, of_judge_blocks, of_calls):
        for line in terminal(
            [TOOL_CALL | judged | call | {"name": name, "kind": "tool_call"}], of, width
        ):
            assert cell_len(line) <= max(width, 25), line


def test_a_pipe_gets_a_header_line_and_values_with_tabs_between(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed = of_tool_calls([TOOL_CALL])
    show([TOOL_CALL | {"name": "a\tb\nc\x1b[2J"}], listed.columns, listed.values)
    header, line = capsys.readouterr().out.splitlines()
    found = dict(zip(header.split("\t"), line.split("\t"), strict=True))
    assert (
        found["call_id"] == TOOL_CALL["call_id"]
        and found["arguments"] == ARGUMENTS
        and found["released_at"] == ""
    )
    assert found["name"] == "a\\tb\\nc\\x1b[2J" and found["decided_at"] == TOOL_CALL["decided_at"]


def test_an_empty_result_says_so(
    terminal: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert terminal([], of_tool_calls, 80) == ["nothing matches"]
    monkeypatch.delenv("_SLUICE_TERMINAL")
    monkeypatch.setenv("FORCE_COLOR", "1")
    show([], (), ("a", "b"))
    told = capsys.readouterr()
    assert (told.out, told.err) == ("a\tb\n", "nothing matches\n")


def test_ids_are_as_short_as_tells_them_apart() -> None:
    ids = [
        "01a202c9-76c8-7000-8000-000000000001",
        "01a202c9-76c8-7400-8000-000000000001",
        "01a202ff-76c8-7000-8000-000000000001",
    ]
    items = [{"call_id": one} for one in ids]
    assert {short_ids(items)(item) for item in items} == {one[:16] for one in ids}
    assert (
        short_ids(items[1:])(items[1]) == ids[1][:13]
        and short_ids(items[:1])(items[0]) == ids[0][:13]
    )
    assert printable("a\u202eb") == "a\\u202eb"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1h", "2026-11-22T11:30:00Z"),
        ("2D", "2026-11-20T12:30:00Z"),
        ("90s", "2026-11-22T12:28:30Z"),
        ("1w", "2026-11-15T12:30:00Z"),
        ("1h ago", "2026-11-22T11:30:00Z"),
        ("1h30m", "2026-11-22T11:00:00Z"),
        ("2 days", "2026-11-20T12:30:00Z"),
        ("1 week 2 hours ago", "2026-11-15T10:30:00Z"),
        ("now", "2026-11-22T12:30:00Z"),
        ("today", "2026-11-22T05:00:00Z"),
        ("yesterday", "2026-11-21T05:00:00Z"),
        ("9:05", "2026-11-22T14:05:00Z"),
        ("2026-01-31", "2026-01-31T05:00:00Z"),
        ("2026-07-01 10:00", "2026-07-01T14:00:00Z"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("2026-01-31T12:00+02:00", "2026-01-31T10:00:00Z"),
        ("", ""),
    ],
)
def test_times_are_read_as_people_write_them(
    text: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time as clock
    from datetime import UTC, datetime

    class Fixed(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime(2026, 11, 22, 12, 30, tzinfo=UTC).astimezone().replace(tzinfo=None)

    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        clock.tzset()
        patch.setattr(times, "datetime", Fixed)
        assert read_time(text, "since") == meant
    clock.tzset()


@pytest.mark.parametrize(
    "text", ["never", "1x", "25:00", "2026-13-01", "999999w", "-1h", "1hh", "ago", "1 h ago ago"]
)
def test_what_is_no_time_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(InvalidRequest, match="yesterday") as caught:
        read_time(text, "until")
    assert caught.value.param == "until"


def test_a_wider_terminal_adds_session_policy_and_model(terminal: Callable[..., list[str]]) -> None:
    heading = terminal([TOOL_CALL], of_tool_calls, 140)[0].split()
    assert heading == [
        "time",
        "call",
        "key",
        "tool",
        "verdict",
        "rule",
        "session",
        "policy",
        "model",
        "why",
        "arguments",
    ]
    wide = terminal([TOOL_CALL], of_tool_calls, 180)
    assert "why" in wide[0].split() and "judged harmful" in wide[2], (
        "the words of a reason of Sluice's own"
    )
    assert "why" not in terminal([TOOL_CALL | {"reason": "rule"}], of_tool_calls, 180)[0].split()
    assert (
        "session" in terminal([TOOL_CALL], of_tool_calls, 120)[0]
        and "session" not in terminal([TOOL_CALL], of_tool_calls, 90)[0]
    )


def test_judge_blocks_say_who_judged_how_sure_and_why(terminal: Callable[..., list[str]]) -> None:
    judge = {
        "model": "demo-judge",
        "probability": 0.97,
        "threshold": 0.6,
        "explanation": "it deletes files",
    }
    judge["explanation"] = "it deletes files " * 8
    for width in (80, 140):
        _, _, line, *below = terminal(
            [TOOL_CALL | {"kind": "tool_call", "judge": judge}], of_judge_blocks, width
        )
        assert "0.97 of 0.60  demo-" in line and "find / -name cor" in line
        assert " ".join(" ".join(below).split()) == str(judge["explanation"]).strip() and all(
            len(one) <= width for one in below
        )


def test_only_text_is_aligned_to_the_left(
    terminal: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    columns = (
        TableColumn(heading="key", value="key"),
        TableColumn(heading="tool calls", value="n"),
    )
    terminal([], of_calls, 80)
    show([{"key": "a", "n": 5}, {"key": "bbb", "n": 1000}], columns, ("key", "n"))
    assert plain(capsys.readouterr().out)[1:] == ["a             5", "bbb        1000"]
    assert tables.is_terminal()
