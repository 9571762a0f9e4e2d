"""`bench.scaling`, so that it can be repeated by whoever reads its figure."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.plot import steps
from bench.scaling import Curve, Point, rate


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_the_whole_measurement_in_small(tmp_path: Path) -> None:
    drawn = tmp_path / "scaling.svg"
    counts = ["--policy-workers", "2", "--judge-workers", "2", "--seconds", "0.8"]
    command = [sys.executable, "-m", "bench.scaling", *counts, "--json", "--svg", str(drawn)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    curves = json.loads(done.stdout)["curves"]
    points = [curve["points"][0] for curve in curves]
    assert [(point["workers"], point["failures"], point["efficiency"]) for point in points] == [
        (2, 0, 1.0)
    ] * 5
    # a judge waits: two of them, one judgement at a time each, do no more; half is for so short a
    # look
    for point, most in zip(points[1:], (100, 100, 20, 20), strict=True):
        assert 0 < point["per_second"] <= most * 1.5
    assert 0 < points[0]["per_second"] < 2 * 2000 * 1.5
    circles = [one for one in ElementTree.parse(drawn).iter() if one.tag.endswith("circle")]
    assert len(circles) == len(points)


def test_efficiency_is_that_of_a_worker_beside_the_first() -> None:
    curve = Curve("a judge", "judgements")
    for workers, per_second in ((1, 40.0), (2, 78.0), (8, 240.0)):
        curve.add(Point(workers, per_second, workers / 4, 0.0))
    assert [round(point.efficiency, 3) for point in curve.points] == [1.0, 0.975, 0.75]


def test_a_rate_does_not_depend_on_where_the_window_ends() -> None:
    bursts = [burst * 0.1 for burst in range(20) for _ in range(4)]
    assert rate(bursts) == pytest.approx(40, rel=0.01)
    assert rate([1.0]) == 0.0


@pytest.mark.parametrize(
    ("top", "last", "count"),
    [(6400, 8000, 5), (672, 800, 5), (155.2, 200, 5), (10, 10, 6), (0.9, 1, 6)],
)
def test_ticks_are_round_and_few(top: float, last: float, count: int) -> None:
    found = steps(top)
    assert (found[0], len(found)) == (0, count) and found[-1] == pytest.approx(last)
