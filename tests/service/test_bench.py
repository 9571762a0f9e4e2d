"""`sluice bench` as users run it."""

import json
import os
import subprocess
import sys

import pytest

from sluice.bench import cpu_s


@pytest.mark.timeout(120)
def test_bench_starts_a_sluice_of_its_own_and_measures_it() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    done = subprocess.run(
        [sys.executable, "-m", "sluice.cli", "bench", "--quick", "--json"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert len(said["workloads"]) == 4 and said["own"]
    for row in said["workloads"]:
        assert row["failures"] == 0 and row["answers"] > 0 and row["per_second"] > 0 and row["cpu_ms_per_1000"] > 0
        assert row["audit_lag_ms"] < 30_000
    streamed = [row for row in said["workloads"] if row["chunks"]]
    assert [row["chunks"] for row in streamed] == [200, 50 * 100, 50 * 300]
    assert all(0 < row["added_p50_ms"] <= row["added_p99_ms"] and row["first_token_p50_ms"] > 0 for row in streamed)


def test_cpu_of_a_process_and_what_it_started_is_counted() -> None:
    before = cpu_s((os.getpid(),))
    subprocess.run([sys.executable, "-c", "for _ in range(3_000_000): pass"], check=True)
    assert sum(n for n in range(3_000_000)) and cpu_s((os.getpid(),)) > before
    assert cpu_s(()) == 0.0


def test_a_wrong_key_is_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sluice.cli", "bench", "--url", "http://127.0.0.1:9", "--key", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "sluice: no call was answered at http://127.0.0.1:9: is the key right?"
