"""Every fuzz target for a short while, and on each input that once failed; `make fuzz` runs them for longer, guided by coverage."""

import os

import pytest

from tests.fuzz.run import Failure, keep, mutated
from tests.fuzz.targets import TARGETS

SECONDS = 5.0 if os.environ.get("CI") else 2.0


@pytest.mark.parametrize("name", TARGETS)
def test_what_must_hold_for_any_bytes_holds(name: str, seed: int) -> None:
    try:
        assert mutated(name, SECONDS, seed) > 10
    except Failure as failure:
        print(f"the input is kept in {keep(name, failure.data)}")
        raise
