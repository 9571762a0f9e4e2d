"""The rows of Claude models: what a name gets."""

import re

from protocol.dialects.anthropic.models import MODELS
from protocol.requests.neutral import EFFORTS


def test_the_data_has_its_shape() -> None:
    rows = MODELS.rows
    names = [name for r in rows for name in r.models]
    assert len(names) == len(set(names))
    assert [r.models for r in rows if "*" in r.models] == [("*",)] == [rows[-1].models]
    assert all(re.fullmatch(r"claude-[a-z0-9]+(-[a-z0-9]+)*", name) for name in names[:-1])
    assert all(
        not r.efforts or list(r.efforts) == sorted(r.efforts, key=EFFORTS.index) for r in rows
    )
    assert all(r.max_output > 0 for r in rows[:-1])
    assert list(MODELS.budgets) == list(EFFORTS)
    assert list(MODELS.budgets.values()) == sorted(MODELS.budgets.values())
