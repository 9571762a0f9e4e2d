"""Each reason that Sluice gives itself has words for people."""

import ast
from collections.abc import Iterator
from pathlib import Path

from protocol.reasons import SENTENCES, worded

_PLACES = {"Block": 0, "_block": 0, "_amend": 1, "deny": 0, "block_record": 2}
"""Which argument of a call is a reason."""
_KEPT = ("BlockRecord", "ToolCallRecord", "replace", "deny")


def reasons() -> Iterator[str]:
    for path in sorted([*Path("policy").rglob("*.py"), *Path("workers").rglob("*.py")]):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call):
                continue
            name = (
                call.func.attr
                if isinstance(call.func, ast.Attribute)
                else getattr(call.func, "id", "")
            )
            found: list[ast.expr] = call.args[_PLACES[name] :][:1] if name in _PLACES else []
            # what keeps a judge from being asked is the reason of the block
            named = (
                "reason"
                if name in _KEPT
                else "error"
                if name == "Score" and path.name == "model.py"
                else ""
            )
            found += [one.value for one in call.keywords if one.arg == named]
            yield from (
                str(one.value) for one in found if isinstance(one, ast.Constant) and one.value
            )


def test_each_reason_has_a_sentence() -> None:
    given = {
        *reasons(),
        *(f"judge_{error}" for error in ("deadline", "unavailable", "invalid", "fault")),
    }
    assert len(given) > 25 and given <= SENTENCES.keys(), given - SENTENCES.keys()
    assert all(
        sentence[0].islower() and not sentence.endswith(".") for sentence in SENTENCES.values()
    )


def test_a_reason_of_sluices_own_has_its_words() -> None:
    assert worded("judge_deadline") == "judge_deadline: the judge did not answer in time"
    assert worded("destructive") == "destructive" and worded("") == ""
