"""The chaos run of CI: `make chaos`, longer with `make chaos SECONDS=1800 CALLS=20000 SEED=7`."""

import json
import os
from pathlib import Path

import pytest

from tests.chaos.run import run
from tests.support.figures import Figure

SECONDS = float(os.environ.get("SLUICE_CHAOS_SECONDS") or 150)
CALLS = int(os.environ.get("SLUICE_CHAOS_CALLS") or 1_000_000)


@pytest.mark.case("S1")
@pytest.mark.timeout(SECONDS + 400)
def test_s1_everything_breaks_at_random(tmp_path: Path, seed: int, figure: Figure) -> None:
    chosen = int(os.environ.get("SLUICE_CHAOS_SEED") or seed)
    said, found = run(tmp_path, seed=chosen, seconds=SECONDS, calls=CALLS, at_once=16)
    assert not found, "\n".join([f"seed {chosen}", json.dumps(said), *found[:50]])
    # a run in which little was served, or little was broken, says nothing
    assert said["faults"] > SECONDS / 10 and said["outcomes"]["served"] > said["calls"] / 2
    print(json.dumps(said))
    figure("calls", said["calls"], "")
    figure("faults", said["faults"], "")
    figure("takeovers", said["takeovers"], "")
    figure("fenced publishes", said["fenced_publishes"], "")
    figure("longest stall", said["longest_stall_s"], "s")
