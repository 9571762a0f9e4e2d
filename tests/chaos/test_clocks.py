"""Processes whose clocks are an hour off: leases, heartbeats, order and deadlines are spans or on
Redis' clock. A gateway's may not be: its calls have a day on record (test_wrong_clocks.py)."""

import signal
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.support.checks.figures import Figure
from tests.support.clients.readers import (
    Reader,
    hold_invariants,
    joined,
    kinds,
    owned_by,
    request,
    under_way,
    words,
)
from tests.support.json_values import Json
from tests.support.servers.product import ROOT, Product, base_config
from tests.support.waiting import wait_for

SHIFT = """
import time
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {0}
time.time_ns = lambda: _time_ns() + {0} * 10**9
"""
WORDS = 150
LEASE_S = 1.0
MACHINE_S = 8.0
"""What a busy machine may add."""


def shifted(folder: Path, seconds: int) -> dict[str, str]:
    """The environment of a process whose wall clock is wrong: Python reads this module before any
    other."""
    place = folder / f"clock{seconds}"
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(SHIFT.format(seconds))
    return {"PYTHONPATH": f"{place}:{ROOT}"}


@pytest.mark.case("C12")
def test_c12_clocks_an_hour_off(
    tmp_path: Path, redis_url: str, database_url: str, figure: Figure
) -> None:
    config: Json = base_config()
    config["limits"] |= {"judge_s": 2.0}
    with Product(tmp_path, redis_url, database_url, config) as product:
        product.start("gateway", env=shifted(tmp_path, -50))
        product.start("judge", env=shifted(tmp_path, -3600))
        product.start("audit", env=shifted(tmp_path, 7200))
        (late,) = product.start("policy", env=shifted(tmp_path, -3600))
        (early,) = product.start("policy", env=shifted(tmp_path, 3600))
        assert httpx.get(f"{product.url}/ready", timeout=5).status_code == 200, (
            "both show life, on Redis' clock"
        )
        readers = [Reader(product.url, request(words(WORDS))) for _ in range(6)]
        under_way(readers)
        wait_for(
            lambda: owned_by(product, early.pid) and owned_by(product, late.pid),
            what="both have calls",
        )
        # nobody takes over from a living owner for its clock; the one that dies is followed within
        # its lease
        taken = owned_by(product, early.pid)
        early.kill(signal.SIGKILL)
        joined(readers)
        assert all(r.has_all(WORDS) for r in readers), product.logs()
        records = hold_invariants(product, readers)
        assert {c for c, r in records.items() if "takeover" in kinds(r)} == set(taken)
        stall = max(r.longest_s for r in readers)
        figure(
            "takeover from a worker whose clock is an hour ahead, by one an hour behind: longest"
            " stall",
            stall,
            "s",
        )
        assert stall < LEASE_S + MACHINE_S
        # the judge's clock and the asking worker's are two hours apart or none: nobody compares
        # them
        (early,) = product.start("policy", env=shifted(tmp_path, 3600))
        judged = [
            Reader(product.url, request("please list the files", tool=True), policy="default")
            for _ in range(8)
        ]
        joined(judged)
        assert all(b"tool_calls" in reader.received for reader in judged), product.logs()
        hold_invariants(product, judged)
