"""`--fail-on` and `--baseline`: what is read, what is compared, and errors that point at the
column."""

from typing import Any

import pytest

from sluice.errors import SettingsError
from sluice.eval import bounds
from tests.support.json_values import Json


def case(name: str, label: str, verdict: str, category: str = "shell.destroy", **more: Any) -> Json:
    return {"id": name, "label": label, "verdict": verdict, "category": category, **more}


CASES = [
    case("h1", "harmful", "block"),
    case("h2", "harmful", "allow"),
    case("h3", "harmful", "unsure", "sql.destroy"),
    case("h4", "harmful", "block", "sql.destroy", asked=1),
    case("b1", "benign", "block"),
    case("b2", "benign", "allow", "sql.destroy"),
    case("b3", "benign", "ask"),
    case("b4", "benign", "error"),
]
RESULT: Json = {
    "cases": CASES,
    "categories": {"shell.destroy": {}, "sql.destroy": {}},
    "seed": 0,
    "revision": "r",
    "dataset": {"sha256": "s"},
    "latency_us": {"p50": 100.0, "p95": 200.0, "p99": 300.0},
    "cost": {
        "judge_calls_per_100": 12.5,
        "input_tokens_per_100": 10.0,
        "output_tokens_per_100": 5.0,
        "money_per_100": None,
    },
    "monitors": {
        "demo-judge": {"auc": 0.75, "interval": [0.6, 0.9]},
        "shell": {"auc": 0.95, "interval": [0.9, 1.0]},
    },
}


@pytest.mark.parametrize(
    ("text", "value", "failed"),
    [
        ("block < 0.95", 0.5, True),
        ("block[shell.*] >= 50%", 0.5, True),
        ("block[sql.*]<.5", 0.5, False),
        ("false_block > 0.02", 1 / 3, True),
        ("withheld < 75%", 0.75, False),
        ("false_withheld > 0.5", 1 / 3, False),
        ("unsure > 0.28", 2 / 7, True),
        ("false_unsure == 0", 1 / 3, False),
        ("asked != 0", 1 / 7, True),
        ("judged > 0", 1 / 7, True),
        ("n < 8", 8, False),
        ("errors > 0", 1, True),
        ("lower(block) < 0.2", 0.15, True),
        ("upper( false_block[*] ) > 0.9", 0.7923, False),
        ("auc < 0.8", 0.75, True),
        ("auc[shell] < 0.8", 0.95, False),
        ("lower(auc[demo*]) <= 60 %", 0.6, True),
        ("latency.p99 > 250", 300, True),
        ("judge_calls > 20", 12.5, False),
        ("tokens >= 15", 15, True),
        ("money > 1", None, True),
        ("deferred > 0", 0, False),
    ],
)
def test_an_expression_has_a_value(text: str, value: float | None, failed: bool) -> None:
    found = bounds.check(bounds.parse(text), RESULT)
    assert found == (text, value if value is None else pytest.approx(value, abs=1e-4), failed)


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("", 1, "a name such as block or false_block is expected"),
        ("blok > 1", 1, "'blok' is not known; did you mean 'block'?"),
        ("block", 6, "a comparison"),
        ("block >", 8, "a number is expected"),
        ("block > x", 9, "a number is expected"),
        ("block > 1 2", 11, "the end (give `--fail-on` once for each bound) is expected"),
        ("block ~ 1", 7, "a comparison"),
        ("block[] > 1", 6, "takes no such pattern"),
        ("block[a > 1", 6, "a comparison"),
        ("flips[a] > 1", 6, "flips takes no such pattern"),
        ("lower(n) > 1", 7, "have an interval"),
        ("lower(block > 1", 13, ") is expected"),
        ("lower(lower(block)) > 1", 12, ") is expected"),
        ("block > 1 and n > 2", 11, "the end (give"),
    ],
)
def test_what_is_no_expression_is_said_with_its_column(text: str, column: int, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        bounds.parse(text)
    first, shown, arrow = str(caught.value).split("\n")
    assert first.startswith(f"--fail-on: column {column}: ") and said in first, first
    assert shown == f"  {text}" and arrow.index("^") == column + 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "block[cloud.*] < 1",
            r"column 1: no category matches 'cloud\.\*' \(there are shell\.destroy, sql\.destroy\)",
        ),
        ("auc[none] < 1", "no monitor or judge gave a score whose name matches 'none'"),
        ("flips > 0", "give --baseline"),
    ],
)
def test_what_a_result_has_not_cannot_be_bound(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        bounds.check(bounds.parse(text), RESULT)


def test_a_bound_on_nothing_fails() -> None:
    nothing = {**RESULT, "cases": [case("h", "harmful", "block")]}
    assert bounds.check(bounds.parse("false_block > 0.5"), nothing) == (
        "false_block > 0.5",
        None,
        True,
    )


def test_a_baseline_is_met_where_nothing_is_worse_and_every_flip_is_named() -> None:
    found = bounds.compare(RESULT, RESULT, "old.json")
    assert (
        found["met"]
        and found["same_dataset"]
        and found["cases"] == 8
        and not any(found["flips"].values())
    )
    changed = {"h1": "allow", "h2": "block", "b1": "allow", "b2": "unsure", "b4": "block"}
    now = {
        **RESULT,
        "cases": [{**one, "verdict": changed.get(one["id"], one["verdict"])} for one in CASES],
        "dataset": {"sha256": "t"},
    }
    found = bounds.compare(now, RESULT, "old.json")
    assert found["flips"] == {
        "allowed_harmful": ["h1"],
        "blocked_harmful": ["h2"],
        "blocked_benign": ["b2"],
        "allowed_benign": ["b1"],
    }
    assert found["met"] and not found["same_dataset"]
    assert bounds.check(bounds.parse("flips.allowed_harmful > 0"), {**now, "baseline": found}) == (
        "flips.allowed_harmful > 0",
        1,
        True,
    )
    assert bounds.check(bounds.parse("flips > 4"), {**now, "baseline": found}).failed is False
    worse = {**RESULT, "cases": [{**one, "verdict": "allow"} for one in CASES]}
    assert not bounds.compare(worse, RESULT, "old.json")["met"]
    with pytest.raises(SettingsError, match=r"--baseline: old\.json has no case of this data"):
        bounds.compare({**RESULT, "cases": [case("other", "benign", "allow")]}, RESULT, "old.json")
