"""`bench.scaling`, so that it can be repeated by whoever reads its figure."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.scaling import rate


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


def test_a_rate_does_not_depend_on_where_the_window_ends() -> None:
    bursts = [burst * 0.1 for burst in range(20) for _ in range(4)]
    assert rate(bursts) == pytest.approx(40, rel=0.01)
    assert rate([1.0]) == 0.0
