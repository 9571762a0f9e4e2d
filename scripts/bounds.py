"""Write docs/bounds.md from the table in protocol/bounds_table.py; with `--check`, say whether it is up to date."""

import argparse
import sys
from pathlib import Path

from protocol.bounds import Bound
from protocol.bounds_table import BOUNDS

PAGE = Path(__file__).parents[1] / "docs" / "bounds.md"
_WHO = {
    "client": ("Clients", "anybody with one key of role `client`; of the audit API, of role `auditor`"),
    "upstream": ("Upstreams", "a provider, or a model through it"),
    "policy": ("Authors of policies", "the Python and the options of a policy"),
    "configuration": ("Configuration", "the operator's file"),
}
_HEAD = """# Bounds

Everything that somebody else can send more of, with its bound. Made by `scripts/bounds.py` from `protocol/bounds_table.py`, where each
number stands once; `make check` says when this page is older. Bounds with a setting can be changed in the configuration
([operations.md](operations.md)); the others are far above what is in use, and there so that no one call can stop others.
`tests/unit/test_bounds.py` multiplies them: at the bound a step takes a fraction of a second of CPU, below it the work grows with the
size, past it comes an error that says what there was too much of.
"""


def page() -> str:
    """Return the page."""
    parts = [_HEAD]
    for by, (title, who) in _WHO.items():
        rows = [_row(bound) for bound in BOUNDS if bound.by == by]
        if rows:
            parts.append(
                f"## {title}\n\nWho: {who}.\n\n| what | bound | past it | kept by | test |\n|---|---|---|---|---|\n" + "".join(rows)
            )
    return "\n".join(parts)


def _row(bound: Bound) -> str:
    limit = f"{bound.limit:,g}" if isinstance(bound.limit, float) else f"{bound.limit:,}"
    setting = f" (`{bound.setting}`)" if bound.setting else ""
    path, _, name = bound.test.partition("::")
    cells = [
        f"`{bound.name}`: {bound.what}", f"{limit} {bound.unit}{setting}", bound.past, f"`{bound.keeper}`", f"[{name}](../{path})",
    ]  # fmt: skip
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def main() -> int:
    """Write or check the page; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        PAGE.write_text(page())
        return 0
    if PAGE.exists() and PAGE.read_text() == page():
        return 0
    sys.stdout.write("docs/bounds.md is not what protocol/bounds_table.py says: run python -m scripts.bounds\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
