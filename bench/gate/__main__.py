"""`python -m bench.gate`: measure, hold it against the bounds, and say what is past them. Exit code
1 where something is.

`--print` prints the figures as lines for bench/gate/bounds.py instead and judges nothing; `--json`
prints what was found. What is past its bound is measured again, and only then believed. Linux only:
it reads /proc.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import uvloop
from rich import box
from rich.console import Console
from rich.table import Table

from bench.gate import callgrind, live
from bench.gate.bounds import BOUNDS, Figure, kind_of


def measure() -> tuple[dict[str, float], str]:
    """All figures by name, and why those of callgrind are not among them (empty where they are)."""
    found: dict[str, float] = {}
    reason = callgrind.why_not_counted()
    with tempfile.TemporaryDirectory(prefix="sluice-gate-") as folder:
        # beside the start and the counts, which do not mind; what depends on time waits for its end
        counting = None if reason else callgrind.counting(Path(folder))
        try:
            found |= uvloop.run(
                live.measure(lambda: counting is None or counting.poll() is not None, is_past)
            )
            if counting is not None:
                found |= callgrind.counted(counting, Path(folder))
        except callgrind.NotCounted as error:
            reason = str(error)
        finally:
            if counting is not None:
                counting.kill()
                counting.wait()
    return found, reason


def is_past(name: str, found: float) -> bool:
    """Is this figure past its bound?"""
    return name in BOUNDS and not BOUNDS[name].holds(found)


def past(found: Mapping[str, float]) -> list[str]:
    """The figures that are past their bounds."""
    return [name for name, n in found.items() if is_past(name, n)]


def problems(found: Mapping[str, float], reason: str = "") -> list[str]:
    """A sentence for each figure that is past its bound, has none, or is missing."""
    said = [
        f"{name}: {found[name]:.4g}, the bound is {BOUNDS[name].bound:.4g} (measured"
        f" {BOUNDS[name].measured:g})"
        for name in past(found)
    ]
    said += [f"{name}: has no bound" for name in found if name not in BOUNDS]
    return said + [
        f"{name}: was not measured"
        for name in BOUNDS
        if name not in found and not (reason and ", instructions: " in name)
    ]


def show(found: Mapping[str, float], reason: str) -> None:
    """Print the figures beside their bounds."""
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    for column in "", "found", "measured", "bound":
        justify: Literal["left", "right"] = "right" if column else "left"
        table.add_column(column, justify=justify, no_wrap=True, min_width=9 if column else None)
    for name, n in found.items():
        figure = BOUNDS.get(name, Figure(n, kind_of(name)))
        table.add_row(
            name,
            *(_shown(value) for value in (n, figure.measured, figure.bound)),
            style="red" if is_past(name, n) else "",
        )
    Console(width=132).print(table)
    if reason:
        print(f"instructions are not counted: {reason}")


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def main() -> int:
    """Measure and judge."""
    options = argparse.ArgumentParser(prog="bench.gate", description=__doc__)
    options.add_argument(
        "--print", action="store_true", help="print the figures as lines for bench/gate/bounds.py"
    )
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    if platform.system() != "Linux":
        print("The gate is skipped: it reads /proc, which only Linux has.")
        return 0
    began = time.monotonic()
    found, reason = measure()
    if asked.json:
        print(json.dumps(found))
    elif asked.print:
        print(
            "\n".join(f'    "{name}": {_shown(n).replace(",", "_")},' for name, n in found.items())
        )
        return 0
    else:
        show(found, reason)
    wrong = problems(found, reason)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    print(
        f"The gate {'fails' if wrong else 'holds'} ({time.monotonic() - began:.0f} s).",
        file=sys.stderr,
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
