"""Every queue and store stands in the table of shares, with what one key may have of it: also those
that are added later."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from streams import layout

ROOT = Path(__file__).resolve().parents[2]
QUEUES = {
    "FairQueue",
    "RoundRobin",
    "Shares",
    "Semaphore",
    "BoundedSemaphore",
    "Queue",
    "SimpleQueue",
    "LifoQueue",
    "PriorityQueue",
}
FOLDERS = ("demo", "gateway", "workers", "pages", "streams", "db", "providers")
TABLE = (
    (ROOT / "docs/run/operations.md")
    .read_text()
    .partition("\n### Shares\n")[2]
    .partition("\n## ")[0]
)
ROWS = [line for line in TABLE.splitlines() if line.startswith("| `")]
NAMED = {name for row in ROWS for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def stores() -> set[str]:
    """The names in `streams.layout` that are or make keys in Redis."""
    kinds = {name for name in vars(layout) if name.endswith("_key") and not name.startswith("_")}
    return kinds | {
        name
        for name, value in vars(layout).items()
        if isinstance(value, str) and value.startswith("sluice:")
    }


def queues(folders: tuple[str, ...] = FOLDERS) -> Iterator[str]:
    """Modules that make something with places in it."""
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            made = node.func if isinstance(node, ast.Call) else None
            made = made.value if isinstance(made, ast.Subscript) else made
            if (getattr(made, "attr", "") or getattr(made, "id", "")) in QUEUES:
                yield path.relative_to(ROOT).as_posix()


def test_every_key_in_redis_stands_in_the_table() -> None:
    assert {f"layout.{name}" for name in stores()} == {
        name for name in NAMED if name.startswith("layout.")
    }


def test_every_bounded_queue_stands_in_the_table() -> None:
    found = set(queues())
    assert found == {name for name in NAMED if not name.startswith("layout.")}
    assert "workers/cpu_lane.py" in found and "gateway/admission.py" in found, (
        "it finds what there is"
    )


def test_every_row_says_what_one_key_may_have() -> None:
    assert ROWS and all(len(row.split("|")) == 5 and row.split("|")[2].strip() for row in ROWS)
