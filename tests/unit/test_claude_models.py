"""The rows of Claude models: what a name gets."""

import re

import pytest

from protocol.anthropic.models import MODELS
from protocol.models import nearest_effort
from protocol.neutral import EFFORTS, Effort


def test_the_data_has_its_shape() -> None:
    rows = MODELS.rows
    names = [name for r in rows for name in r.models]
    assert len(names) == len(set(names))
    assert [r.models for r in rows if "*" in r.models] == [("*",)] == [rows[-1].models]
    assert all(re.fullmatch(r"claude-[a-z0-9]+(-[a-z0-9]+)*", name) for name in names[:-1])
    assert all(
        not r.efforts or list(r.efforts) == sorted(r.efforts, key=EFFORTS.index) for r in rows
    )
    assert all(r.max_output > 0 for r in rows[:-1])
    assert list(MODELS.budgets) == list(EFFORTS)
    assert list(MODELS.budgets.values()) == sorted(MODELS.budgets.values())


def test_an_unknown_model_loses_nothing() -> None:
    unknown = MODELS.row("mystery")
    assert unknown.models == ("*",)
    assert (
        unknown.sampling,
        unknown.thinking,
        unknown.native_schema,
        unknown.strict,
        unknown.forced,
    ) == (
        "both",
        "budget",
        False,
        True,
        True,
    )
    assert (unknown.max_output, unknown.efforts, unknown.mid_system) == (0, (), False)


@pytest.mark.parametrize(
    ("name", "known_as"),
    [
        ("claude-opus-4-8", "claude-opus-4-8"),
        ("Claude-Opus-4.8", "claude-opus-4-8"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("claude-sonnet-5[1m]", "claude-sonnet-5"),
        # a part of a known name is no known name
        ("claude-opus-4-9", "*"),
        ("claude-opus-4-8-fast", "*"),
        ("not-claude-opus-4-8", "*"),
        ("claude", "*"),
        ("", "*"),
    ],
)
def test_names_are_looked_up_whole(name: str, known_as: str) -> None:
    assert known_as in MODELS.row(name).models


@pytest.mark.parametrize(
    ("model", "wanted", "asked"),
    [
        ("claude-opus-4-8", "minimal", "low"),
        ("claude-opus-4-8", "xhigh", "xhigh"),
        ("claude-opus-4-6", "xhigh", "high"),
        ("claude-opus-4-6", "max", "max"),
        ("claude-opus-4-5", "max", "high"),
    ],
)
def test_an_effort_that_a_model_lacks_becomes_the_next_below(
    model: str, wanted: Effort, asked: Effort
) -> None:
    assert nearest_effort(MODELS.row(model).efforts, wanted) == asked
