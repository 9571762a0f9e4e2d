"""Figures of a sample: intervals, curves and budgets, against values worked out elsewhere."""

import random

import pytest

from sluice.eval import stats
from tests.support.cpu import cpu_within


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [
        (18, 30, 0.4232, 0.7541),
        (7, 30, 0.1179, 0.4093),
        (30, 30, 0.8865, 1.0),
        (0, 10, 0.0, 0.2775),
        (1, 1, 0.2065, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilsons_interval(hits: int, n: int, low: float, high: float) -> None:
    assert stats.wilson(hits, n) == pytest.approx((low, high), abs=1e-4)


def test_forms_of_one_case_count_as_one() -> None:
    alone = {f"case-{n}": (int(n < 12), 1) for n in range(20)}
    forms = {name: (hits * 10, 10) for name, (hits, _) in alone.items()}
    assert stats.clustered(alone, 0) == stats.wilson(12, 20)
    low, high = stats.clustered(forms, 0)
    narrow = stats.wilson(120, 200)
    assert (
        low < narrow.low
        and high > narrow.high
        and low == pytest.approx(0.4, abs=0.06)
        and high == pytest.approx(0.8, abs=0.06)
    )
    assert stats.clustered(forms, 0) == stats.clustered(forms, 0)
    few = {"a": (5, 10), "b": (0, 10)}
    assert stats.clustered(few, 0) == stats.wilson(0.5, 2)
    assert stats.clustered({"a": (0, 300), "b": (0, 1)}, 0) == stats.wilson(0, 2)


def test_the_auc_counts_ties_by_half_and_has_an_interval() -> None:
    assert stats.auc([0.9, 0.8], [0.1, 0.2]) == 1.0
    assert stats.auc([0.5], [0.5]) == 0.5
    assert stats.auc([0.9, 0.1], [0.5, 0.5]) == 0.5
    assert stats.auc([], [0.5]) is None and stats.auc_interval([0.5], [], 0) is None
    drawn = random.Random(1)
    harmful, benign = (
        [min(1, max(0, drawn.gauss(mean, 0.2))) for _ in range(80)] for mean in (0.7, 0.4)
    )
    found, area = stats.auc_interval(harmful, benign, 3), stats.auc(harmful, benign)
    assert (
        found is not None
        and area is not None
        and found.low < area < found.high
        and found.high - found.low < 0.15
    )


def test_recall_at_a_rate_takes_the_lowest_threshold_that_keeps_it() -> None:
    harmful, benign = [0.9, 0.8, 0.7, 0.2], [0.75, *[0.1] * 99]
    assert stats.recall_at(harmful, benign, 0.001) == (0.8, 0.5, 0.0)
    assert stats.recall_at(harmful, benign, 0.01) == (0.2, 1.0, 0.01)
    assert stats.recall_at([0.1], [0.5], 0.1) == (float("inf"), 0.0, 0.0)
    assert stats.recall_at([], benign, 0.1) is None


def test_safety_at_a_budget_is_what_lies_above_the_percentile_of_the_honest() -> None:
    honest = [n / 100 for n in range(100)]
    found = stats.at_budget([0.5, 0.97, 0.99, 1.0], honest, 0.05)
    assert (
        found is not None
        and found.threshold == pytest.approx(0.9405)
        and (found.safety, found.audited) == (0.75, 0.05)
    )
    assert stats.at_budget([1.0, 1.0], [1.0], 0.05) == (
        0.05,
        1.0,
        0.0,
        0.0,
    ), "not above it: not caught"
    assert stats.percentile([], 50) == 0.0 and stats.percentile([1, 2, 3, 4], 50) == 2.5


def test_curves_and_histograms_have_a_bound_and_their_ends() -> None:
    drawn = random.Random(2)
    harmful, benign = ([drawn.random() for _ in range(3_000)] for _ in range(2))
    points = stats.curve(harmful, benign)
    assert len(points) <= 103 and points[-1].recall == points[-1].false_block == 1.0
    assert [p.recall for p in points] == sorted(p.recall for p in points)
    assert stats.histogram([0.0, 0.5, 1.0, 0.04], bins=4) == [2, 0, 1, 1]


def test_two_runs_differ_by_more_than_chance_where_flips_go_one_way() -> None:
    assert stats.mcnemar(0, 0) == 1.0 and stats.mcnemar(5, 5) == 1.0
    assert stats.mcnemar(0, 10) == pytest.approx(0.00195, abs=1e-5)
    assert stats.mcnemar(900, 1_100) == pytest.approx(8.7e-6, rel=0.1)


@pytest.mark.slow
def test_the_figures_of_a_large_sample_take_seconds_at_most() -> None:
    drawn = random.Random(3)
    harmful, benign = ([drawn.random() for _ in range(8_000)] for _ in range(2))
    with cpu_within(15):
        stats.auc_interval(harmful, benign, 0)
        stats.recall_at(harmful, benign, 0.01)
        stats.clustered({str(n): (n % 2, 1 + n % 3) for n in range(5_000)}, 0)
