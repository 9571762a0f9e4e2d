"""Tables of a page in Markdown, for tests that hold a page against what it describes."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
Table = list[list[str]]
"""The rows of a table, its head first."""


def tables(page: str, heading: str) -> list[Table]:
    """Return the tables of a section, without those of its subsections."""
    lines = section(page, heading).splitlines()
    found: list[Table] = []
    for above, line in zip(["", *lines], lines, strict=False):
        if line.startswith("|") and not line.startswith("|---"):
            if not above.startswith("|"):
                found.append([])
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def section(page: str, heading: str) -> str:
    """Return the text of a section, without its subsections."""
    [text] = re.findall(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL
    )
    return str(text)


def names(cell: str) -> list[str]:
    """Return what a cell names in code."""
    return re.findall(r"`([^`]+)`", cell)
