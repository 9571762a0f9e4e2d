"""Write docs/columns.md from the records' declarations; with `--check`, say whether it is up to
date."""

import sys
from collections.abc import Iterator

from db.columns import TABLES, CallTable
from scripts.pages import DOCS, table, write_or_check

PAGE = DOCS / "columns.md"
_HEAD = """# Columns of the record

The tables of a call, made by `scripts/columns.py` from the records (`protocol/records.py`, where each column is declared once);
`make check` says when this page is older. Each table begins with `call_id`, the first part of its key and what its daily partitions are
by. A redaction empties what has a mark under `emptied`. `version` is that of the sealed form which first covers the column
([audit.md](audit.md)): seals of an earlier version say nothing of it.
"""


def page() -> str:
    """Return the page."""
    heading = ("column", "type", "key", "emptied", "version")
    return "\n".join(
        [_HEAD, *(f"## {each.name}\n\n{table(heading, _rows(each))}" for each in TABLES)]
    )


def _rows(of: CallTable) -> Iterator[list[str]]:
    for column in of.columns:
        kind = f"{column.kind}, may be null" if column.is_nullable else column.kind
        marks = ["x" if mark else "" for mark in (column.mark.is_key, column.mark.is_content)]
        yield [f"`{column.name}`", kind, *marks, str(max(of.since, column.mark.since))]


def main() -> int:
    """Write or check the page; returns the exit code."""
    return write_or_check(
        PAGE,
        page(),
        made_from="protocol/records.py",
        command="python -m scripts.columns",
        about=__doc__,
    )


if __name__ == "__main__":
    sys.exit(main())
