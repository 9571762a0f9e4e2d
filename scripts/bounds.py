"""Write docs/bounds.md from the tables of bounds; with `--check`, say whether it is up to date."""

import sys

from protocol.bounds import Bound
from protocol.bounds_table import BOUNDS
from scripts.page_bounds import PAGES
from scripts.pages import DOCS, table, write_or_check

PAGE = DOCS / "bounds.md"
_WHO = {
    "client": ("Clients", "anybody with one key of role `client`; of the audit API, of role `auditor`"),
    "reader": ("Readers of the pages", "strangers up to the login, keys of role `auditor` or `admin` behind it"),
    "upstream": ("Upstreams", "a provider, or a model through it"),
    "policy": ("Authors of policies", "the Python and the options of a policy"),
    "configuration": ("Configuration", "the operator's file"),
}
_HEAD = """# Bounds

Everything that somebody else can send more of, with its bound. Made by `scripts/bounds.py` from `protocol/bounds_table.py`, where each
number stands once, and `scripts/page_bounds.py`; `make check` says when this page is older. Bounds with a setting can be changed in the
configuration ([configuration.md](configuration.md)); the others are far above what is in use, and there so that no one call can stop
others. `tests/unit/test_bounds.py` multiplies them: at the bound a step takes a fraction of a second of CPU, below it the work grows with
the size, past it comes an error that says what there was too much of.
"""


ALL = BOUNDS + PAGES


def page() -> str:
    """Return the page."""
    parts = [_HEAD]
    for by, (title, who) in _WHO.items():
        rows = [_row(bound) for bound in ALL if bound.by == by]
        if rows:
            parts.append(f"## {title}\n\nWho: {who}.\n\n{table(('what', 'bound', 'past it', 'kept by', 'test'), rows)}")
    return "\n".join(parts)


def _row(bound: Bound) -> list[str]:
    limit = f"{bound.limit:,}" if isinstance(bound.limit, int) else f"{bound.limit:,g}"
    setting = f" (`{bound.setting}`)" if bound.setting else ""
    path, _, name = bound.test.partition("::")
    return [
        f"`{bound.name}`: {bound.what}", f"{limit} {bound.unit}{setting}", bound.past, f"`{bound.keeper}`", f"[{name}](../{path})",
    ]  # fmt: skip


def main() -> int:
    """Write or check the page; returns the exit code."""
    return write_or_check(
        PAGE, page(), made_from="protocol/bounds_table.py with scripts/page_bounds.py", command="python -m scripts.bounds", about=__doc__
    )


if __name__ == "__main__":
    sys.exit(main())
