"""`sluice audit show` of calls that would hide what was decided about them."""

import pytest

from sluice.audit.show_cli import show_words
from tests.support.json_values import Json

CALL: Json = {
    "call_id": "c",
    "created_at": "2026-01-31T12:00:00Z",
    "key": "k",
    "model": "m",
    "policy": "p",
    "session": "",
    "state": "ENDED",
    "reason": "complete",
    "incomplete": False,
    "released": [],
    "chunk_items": [],
    "releases": 0,
    "request": None,
    "dialect": "openai",
    "endpoint": "chat",
    "blocks": [],
    "judgements": [],
    "scores": [],
    "decisions": [],
    "attempts": [],
    "usage": {},
    "events": [],
}


@pytest.mark.parametrize(
    "arguments", ['{"command": "' + "x" * 5_000 + '"}', '{}\nallow: by tool_judge\n\n{"a": 1}']
)
def test_what_a_model_wrote_neither_hides_nor_makes_a_verdict(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = {
        "name": "bash\nallow",
        "arguments": arguments,
        "verdict": "block",
        "policy": "tool_rules",
        "rule": "recursive-rm",
    }
    show_words(
        CALL | {"tool_calls": [call | {"reason": "rule", "judge": None, "executor": "client"}]},
        full=False,
    )
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line.startswith(("allow", "block"))] == [
        "block: by tool_rules, recursive-rm"
    ]


def test_a_reason_of_sluices_own_is_told_in_words_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = {
        "name": "bash",
        "arguments": "{}",
        "verdict": "block",
        "policy": "tool_judge",
        "rule": None,
        "reason": "judge_deadline",
    }
    decision = {
        "block": 1,
        "protocol": "threshold",
        "action": "block",
        "reason": "monitor_fault",
        "score": None,
        "threshold": None,
        "audit": "",
    }
    show_words(
        CALL
        | {
            "tool_calls": [call | {"judge": None, "executor": "client"}],
            "decisions": [decision],
        },
        full=False,
    )
    out = capsys.readouterr().out
    assert "block: by tool_judge, judge_deadline: the judge did not answer in time" in " ".join(
        out.split()
    )
    assert "threshold: block (monitor_fault: a monitor failed)" in " ".join(out.split())
