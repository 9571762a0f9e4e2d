"""What sweeps over every command have in common: which faults, how many, and how long."""

import logging
import os
from collections.abc import Iterator

import pytest

from tests.support.servers.lanes import Lane, hastened
from tests.support.servers.wire import Way
from tests.support.upstreams.kinds import Kind

ONLY = os.environ.get("SLUICE_FAULT_ONLY", "")
_TESTS = float(os.environ.get("SLUICE_TEST_SHARE") or 1)
SHARE = float(os.environ.get("SLUICE_FAULT_SHARE") or (1 if _TESTS == 1 else _TESTS / 30))
"""Where a share of the tests runs, a small one of the faults does: there are thousands."""
SILENT_WAYS: tuple[Way, ...] = ("before", "after")
IDLE_S = 1.2
"""In this time each role has done whatever it does by the clock."""


@pytest.fixture(autouse=True)
def short_times() -> Iterator[None]:
    """Short times, and none of the thousands of warnings that thousands of faults cause."""
    logging.disable(logging.CRITICAL)
    with hastened():
        yield
    logging.disable(logging.NOTSET)


async def clean(lane: Lane, kind: Kind) -> None:
    outcome = await lane.run(kind)
    assert not outcome.faults and outcome.seen.status == 200 and outcome.seen.whole, (
        f"without a fault: {outcome}"
    )
