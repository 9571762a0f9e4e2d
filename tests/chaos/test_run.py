"""The chaos run of CI: `make chaos`, longer with `make chaos SECONDS=1800 CALLS=20000 SEED=7`."""

import json
import os
from pathlib import Path

import pytest

from tests.chaos.hostile import ATTACKS
from tests.chaos.run import run
from tests.support.checks.figures import Figure

SECONDS = float(os.environ.get("SLUICE_CHAOS_SECONDS") or 150)
ALONE_S, ALONE_CALLS = 180.0, 400
"""So many calls, and no longer than that: 30 s on two cores."""
CALLS = int(os.environ.get("SLUICE_CHAOS_CALLS") or 1_000_000)


@pytest.mark.case("S1")
@pytest.mark.timeout(SECONDS + 400)
def test_s1_everything_breaks_at_random(tmp_path: Path, seed: int, figure: Figure) -> None:
    chosen = int(os.environ.get("SLUICE_CHAOS_SEED") or seed)
    said, found = run(tmp_path, seed=chosen, seconds=SECONDS, calls=CALLS, at_once=16)
    assert not found, "\n".join([f"seed {chosen}", json.dumps(said), *found[:50]])
    # a run in which little was served, or little was broken, says nothing
    assert said["faults"] > SECONDS / 10 and said["outcomes"]["served"] > said["calls"] / 2
    assert said["ends_that_say_what_was_relayed"] > said["calls"] / 2
    print(json.dumps(said))
    figure("calls", said["calls"], "")
    figure("faults", said["faults"], "")
    figure("takeovers", said["takeovers"], "")
    figure("fenced publishes", said["fenced_publishes"], "")
    figure("longest stall", said["longest_stall_s"], "s")
    figure("calls of a hostile client", sum(said["attacks"].values()), "")


@pytest.mark.timeout(ALONE_S + 400)
def test_a_hostile_client_alone_costs_nobody_a_call(tmp_path: Path, seed: int) -> None:
    """Nothing is broken here: whatever an innocent call suffers is the hostile client's doing."""
    said, found = run(
        tmp_path,
        seed=seed,
        seconds=ALONE_S,
        calls=ALONE_CALLS,
        at_once=16,
        hostile=0.3,
        breaks=False,
    )
    assert not found, "\n".join([f"seed {seed}", json.dumps(said), *found[:50]])
    assert said["attacks"].keys() == ATTACKS.keys()
    assert said["outcomes_of_innocents"]["served"] > 100
    print(json.dumps(said))
