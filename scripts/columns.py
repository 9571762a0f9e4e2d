"""Write docs/run/columns.md from the records' declarations; with `--check`, say whether it is up to
date."""

import sys
from collections.abc import Iterator

from db.columns import TABLES, CallTable
from scripts.pages import DOCS, write_or_check

PAGE = DOCS / "run" / "columns.md"
_HEAD = """# Columns of the record

The tables of a call, made by `python -m scripts.columns` from the records (`protocol/records.py`); `make check` says when this page
is out of date. Each table begins with `call_id`, the first part of its key, by which it is partitioned. **Bold** columns belong to
the key. A redaction empties those in *italics*. `?` after a type: may be null. Each column is covered by seals of version 1 and
later, unless it names a later version ([audit.md](audit.md)).
"""


def page() -> str:
    """Return the page."""
    return "\n".join(
        [_HEAD, *(f"## {each.name}\n\n{', '.join(_columns(each))}\n" for each in TABLES)]
    )


def _columns(of: CallTable) -> Iterator[str]:
    for column in of.columns:
        mark = "**" if column.mark.is_key else "*" if column.mark.is_content else ""
        since = max(of.since, column.mark.since)
        later = f" (version {since})" if since > 1 else ""
        null = "?" if column.is_nullable else ""
        yield f"{mark}`{column.name}`{mark} {column.kind}{null}{later}"


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
