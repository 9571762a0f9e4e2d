"""Metrics have a bound, and the alerts of deploy/prometheus fire just past their thresholds and not on them, and each says what
to do."""

import re
import shutil
import subprocess

import pytest
import yaml

from streams.metrics import MOST_SERIES, ProcessFigures, Span, Total
from tests.support.checks.markdown import DOCS

FOLDER = DOCS.parent / "deploy" / "prometheus"


def test_each_alert_has_tests_and_a_paragraph() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
    names = {rule["alert"] for rule in rules}
    page = (DOCS / "run" / "metrics.md").read_text(encoding="utf-8")
    assert set(re.findall("^### (.*)$", page, re.MULTILINE)) == names
    for rule in rules:
        assert rule["annotations"]["runbook"] == f"docs/run/metrics.md#{rule['alert'].lower()}"
    tests = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
    tried = {
        (case["alertname"], bool(case["exp_alerts"]))
        for test in tests
        for case in test["alert_rule_test"]
    }
    assert tried == {(name, fires) for name in names for fires in (True, False)}


def test_alerts_fire_past_their_thresholds_alone() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("NO PROMTOOL: the alerts were not tried; scripts/servers installs it")
    for command in (
        ("check", "config", "prometheus.yml"),
        ("check", "config", "compose.yml"),
        ("test", "rules", "alerts_test.yml"),
    ):
        done = subprocess.run(
            [promtool, *command], cwd=FOLDER, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_metric_has_so_many_series() -> None:
    figures = ProcessFigures()
    for n in range(2 * MOST_SERIES):
        figures.add(Total.CALLS_ENDED, f"route {n}", "ENDED", "complete")
        figures.observe(Span.CALL_SECONDS, 1.0, f"upstream {n}")
    counts = figures.totals[Total.CALLS_ENDED]
    assert len(counts) == len(figures.spans[Span.CALL_SECONDS]) == MOST_SERIES
    assert counts["other", "other", "other"] == MOST_SERIES + 1
