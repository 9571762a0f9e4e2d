"""Where a call stands in its worker: every step from every phase."""

from contextlib import suppress
from itertools import product

import pytest

from protocol.errors import LocalProtocolError
from workers.policy.call.phases import Phase, Step, next_phase

POSSIBLE = {
    ("claimed", "take over", "taken over"),
    ("claimed", "begin", "running"),
    ("claimed", "end", "ending"),
    ("taken over", "begin", "replaying"),
    ("taken over", "end", "ending"),
    ("replaying", "begin", "replaying"),
    ("replaying", "catch up", "running"),
    ("replaying", "end", "ending"),
    ("running", "begin", "running"),
    ("running", "end", "ending"),
    ("ending", "begin", "ending"),
}


def test_no_other_step_is_possible() -> None:
    taken = set()
    for phase, step in product(Phase, Step):
        with suppress(LocalProtocolError):
            taken.add((str(phase), str(step), str(next_phase(phase, step))))
    assert taken == POSSIBLE


def test_an_impossible_step_is_named() -> None:
    with pytest.raises(LocalProtocolError, match="a call that is running cannot take over"):
        next_phase(Phase.RUNNING, Step.TAKE_OVER)


def test_an_ending_call_never_runs_again() -> None:
    for step in Step:
        if step is not Step.BEGIN:
            with pytest.raises(LocalProtocolError):
                next_phase(Phase.ENDING, step)
