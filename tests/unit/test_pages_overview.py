"""The figures of the overview in words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pages.views.overview import sparkline, texts
from policy import preset
from protocol.config import Config, PolicyStep
from sluice.check import with_presets

READ = {"age_s": 0.1, "limit_s": 6.0}
NEVER = {"age_s": None, "limit_s": 6.0}
NAMES = ("streams", "record", "redis", "workers", "doctor", "open")


def shown(**groups: dict[str, Any]) -> dict[str, str]:
    """The words of these groups; the others were never read."""
    found = texts({name: READ | groups[name] if name in groups else NEVER for name in NAMES})
    return {name: text for name, (group, text) in found.items() if group in groups or text != "–"}


def streams(**changes: int) -> dict[str, Any]:
    return {
        "open_calls": 0,
        "waiting": 0,
        "oldest_ms": 0,
        "questions": 0,
        "question_ms": 0,
    } | changes


def record(**changes: Any) -> dict[str, Any]:
    none = {"sealed_at": None, "checkpoint": None, "checkpoint_at": None}
    return (
        {
            "calls_per_minute": 41,
            "per_minute": [0, 41],
            "blocked": 3,
            "is_more": False,
            "answer_ms": 3.0,
        }
        | none
        | changes
    )


@pytest.mark.parametrize("name", preset.names())
def test_pages_have_the_rules_and_judges_that_a_preset_stands_for(name: str) -> None:
    given = {"judge": "demo-judge"} if name == "coding-agent-judged" else {}
    step = PolicyStep.model_validate({"use": "preset", "name": name, **given})
    series = with_presets(Config(policies={"own": (step,)})).policies["own"]
    assert list(series) == [step, *preset.expanded([step])]


def test_what_was_never_read_is_a_dash() -> None:
    assert shown() == {}
    assert {text for _, text in texts(dict.fromkeys(NAMES, NEVER)).values()} == {"–"}


def test_what_waits_says_for_how_long() -> None:
    assert shown(streams=streams()) == {"open_calls": "0", "records": "0", "questions": "0"}
    found = shown(
        streams=streams(open_calls=1200, waiting=214, oldest_ms=100, questions=2, question_ms=40)
    )
    assert found == {
        "open_calls": "1,200",
        "records": "214, oldest 100 ms",
        "questions": "2, oldest 40 ms",
    }


def test_the_record_and_its_seals() -> None:
    found = shown(record=record())
    assert (found["per_minute"], found["blocked"], found["sealed"]) == ("41", "3", "none yet")
    ago = [(datetime.now(UTC) - timedelta(seconds=s)).isoformat() for s in (2, 600)]
    found = shown(
        record=record(
            blocked=1000, is_more=True, sealed_at=ago[0], checkpoint=41200, checkpoint_at=ago[1]
        )
    )
    assert (found["blocked"], found["sealed"]) == (
        "1,000 or more",
        "2 s ago, checkpoint 10 min ago",
    )
    assert shown(record=record(sealed_at="once"))["sealed"] == "once"


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([], "none"),
        (["warning"], "1 warning"),
        (["failed", "warning", "warning"], "1 failed, 2 warnings"),
        (["failed"], "1 failed"),
    ],
)
def test_findings_are_counted(states: list[str], said: str) -> None:
    assert shown(doctor={"found": [{"state": state} for state in states]}) == {"doctor": said}


def test_memory_and_processes() -> None:
    assert shown(redis={"used": 212_000_000, "most": 1_000_000_000})["redis"] == "212 MB of 1.0 GB"
    assert shown(redis={"used": 212_000_000, "most": 0})["redis"] == "212 MB of what there is"
    assert shown(workers={"roles": {"gateway": 2, "policy": 4}})["workers"] == "2 gateway, 4 policy"


def test_a_sparkline_is_as_high_as_its_highest() -> None:
    assert sparkline([0, 1, 50, 100]) == "▁▂▅█"
    assert sparkline([0, 0]) == "▁▁" and sparkline([]) == ""
