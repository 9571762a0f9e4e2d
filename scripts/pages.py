"""Pages of docs/ that are made from code: written, or with `--check` compared with what they should
be."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; `|` in a cell is escaped."""
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in (head, *rows)]
    return "\n".join(
        [f"| {lines[0]} |", "|---" * len(head) + "|", *(f"| {line} |" for line in lines[1:]), ""]
    )


def write_or_check(
    page: Path, text: str, *, made_from: str, command: str, about: str | None
) -> int:
    """Write `text` to the page, or with `--check` among the arguments say whether it is there
    already; returns the exit code."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        page.write_text(text)
        return 0
    if page.exists() and page.read_text() == text:
        return 0
    sys.stdout.write(f"docs/{page.name} is not what {made_from} says: run {command}\n")
    return 1
