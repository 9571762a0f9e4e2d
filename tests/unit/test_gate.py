"""The gate of bench/gate: what it fails for, that its probe counts exactly, and that its streams
are calls that Sluice completes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gate import live, paths, wire
from bench.gate.__main__ import problems
from bench.gate.bounds import BOUNDS, MEASURED, TOLERANCE
from bench.gate.wire import Client, Upstream

CHUNKS = 7
COUNTED = """
import signal, sys
def counted():
    pass
signal.raise_signal(signal.SIGUSR1)
for _ in range(int(sys.argv[1])):
    counted()
signal.raise_signal(signal.SIGUSR2)
"""


def test_what_was_measured_holds() -> None:
    assert problems(MEASURED) == []


@pytest.mark.parametrize("name", MEASURED)
def test_a_figure_past_its_tolerance_fails(name: str) -> None:
    kind = BOUNDS[name].kind
    worse = TOLERANCE[kind] + 0.01
    said = problems(
        MEASURED | {name: MEASURED[name] / worse if kind == "rate" else MEASURED[name] * worse}
    )
    assert len(said) == 1 and said[0].startswith(f"{name}: ")
    better = problems(
        MEASURED | {name: MEASURED[name] * 2 if kind == "rate" else MEASURED[name] / 2}
    )
    assert better == []


def test_a_quarter_more_work_is_past_every_exact_tolerance_and_three_fifths_past_every_other_of_cost() -> (
    None
):
    assert max(TOLERANCE[kind] for kind in ("exact", "redis", "count", "audit")) < 1.25
    assert max(TOLERANCE["ratio"], TOLERANCE["rate"], TOLERANCE["kernel"]) <= 1.6


def test_a_figure_without_a_bound_and_one_that_was_not_measured_fail() -> None:
    assert problems(MEASURED | {"a new one": 1.0}) == ["a new one: has no bound"]
    missing = next(iter(MEASURED))
    assert problems({k: v for k, v in MEASURED.items() if k != missing}) == [
        f"{missing}: was not measured"
    ]


def test_without_valgrind_only_its_own_figures_may_be_missing() -> None:
    counted = {k: v for k, v in MEASURED.items() if ", instructions: " not in k}
    assert 0 < len(counted) < len(MEASURED)
    assert problems(counted, "valgrind is not installed") == []
    assert len(problems(counted)) == len(MEASURED) - len(counted)


def test_the_probe_counts_each_call(tmp_path: Path) -> None:
    def counted(times: int) -> tuple[int, int]:
        environment = {**os.environ, "PYTHONPATH": str(live.PROBE), "GATE_COUNTS": str(tmp_path)}
        with subprocess.Popen(
            [sys.executable, "-c", COUNTED, str(times)], env=environment
        ) as process:
            assert process.wait(30) == 0
        assert (tmp_path / f"{process.pid}.counting").exists()
        instructions, calls = (tmp_path / f"{process.pid}.counted").read_text().split()
        return int(instructions), int(calls)

    few, more, most = counted(100), counted(200), counted(300)
    assert more[1] - few[1] == most[1] - more[1] == 100
    # at least what the body of the function has
    assert more[0] - few[0] == most[0] - more[0] >= 200


@pytest.mark.parametrize("name", paths.cases(2))
def test_the_worker_completes_the_calls_that_are_measured(name: str) -> None:
    for case in paths.cases(2)[name]:
        assert case() == "complete"
        assert paths.reference(case.frames) > 10 * len(case.frames)


async def test_the_bare_upstream_sends_what_is_asked_for() -> None:
    upstream = Upstream()
    url = f"http://127.0.0.1:{await upstream.start()}"
    async with Client(url, at_once=3) as client:
        assert await client.run("bare", rounds=2, chunks=CHUNKS) == 6 * CHUNKS
        assert await client.run("bare", streamed=False) == 3
    upstream.close()


async def test_a_chunk_that_does_not_come_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_CHUNK", wire._CHUNK.replace(wire.MARK, b"-"))
    upstream = Upstream()
    url = f"http://127.0.0.1:{await upstream.start()}"
    with pytest.raises(ConnectionError, match="7 chunks came with 0"):
        async with Client(url, at_once=1) as client:
            await client.run("bare", chunks=CHUNKS)
    upstream.close()
