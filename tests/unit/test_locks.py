"""No two kinds of work wait for each other by mistake: a chore whose lock another holds would never
have its turn."""

from pathlib import Path

from db import locks


def test_each_lock_has_a_number_of_its_own() -> None:
    numbers = [value for name, value in vars(locks).items() if name.endswith("_LOCK")]
    assert len(numbers) == len(set(numbers)) >= 8
    assert [path for path in Path("db").rglob("*.py") if "7_310_581" in path.read_text()] == [
        Path("db/locks.py")
    ]
