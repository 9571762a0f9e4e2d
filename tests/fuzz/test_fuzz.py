"""Every fuzz target for a short while, and on each input that once failed; `make fuzz` runs them
for longer, guided by coverage."""

import pytest

from tests.fuzz.run import Failure, keep, mutated
from tests.fuzz.targets import TARGETS

SECONDS = 2.0
SEED = 20261121
"""Always the same here, so that this test says something about a change; `make fuzz` takes another
each time."""


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_what_must_hold_for_any_bytes_holds(name: str) -> None:
    try:
        assert mutated(name, SECONDS, SEED) > 10
    except Failure as failure:
        print(f"the input is kept in {keep(name, failure.data)}")
        raise
