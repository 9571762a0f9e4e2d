"""`sluice bench` as users run it."""

import json
import os
import subprocess
import sys

import pytest

from sluice.bench import cpu_s


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_bench_starts_a_sluice_of_its_own_and_measures_it() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    done = subprocess.run(
        [sys.executable, "-m", "sluice.cli", "bench", "--quick", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert len(said["workloads"]) == 4 and said["own"]
    for row in said["workloads"]:
        assert (
            row["failures"] == 0
            and row["answers"] > 0
            and row["per_second"] > 0
            and row["cpu_ms_per_1000"] > 0
        )
        assert row["audit_lag_ms"] < 30_000
    streamed = [row for row in said["workloads"] if row["chunks"]]
    assert [row["chunks"] for row in streamed] == [200, 50 * 100, 50 * 300]
    assert all(
        0 < row["added_p50_ms"] <= row["added_p99_ms"] and row["first_token_p50_ms"] > 0
        for row in streamed
    )


def test_cpu_of_a_process_and_what_it_started_is_counted() -> None:
    before = cpu_s((os.getpid(),))
    subprocess.run([sys.executable, "-c", "for _ in range(3_000_000): pass"], check=True)
    assert sum(n for n in range(3_000_000)) and cpu_s((os.getpid(),)) > before
    assert cpu_s(()) == 0.0


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        (
            "http://127.0.0.1:9",
            1,
            (
                "sluice: no call was answered at http://127.0.0.1:9: nothing listens there"
                " (connection refused)"
            ),
        ),
        (
            "127.0.0.1:9",
            2,
            "sluice: --url: must begin with http:// or https://, as in http://127.0.0.1:8080",
        ),
    ],
)
def test_why_nothing_is_measured_is_one_sentence(url: str, code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sluice.cli", "bench", "--url", url, "--key", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert done.stderr == f"{said}\n"
