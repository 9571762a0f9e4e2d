"""What `make conformance` runs: every recording of both sets for clients of every dialect, through
a product of its own, as a table.

One row a recording, one column a client's dialect: `ok` and how many ways of asking it was, or the
first field that differs, with all differences below the table. Ends with 1 if there is any.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from db.migrations.migrate import upgrade
from protocol.dialects.table import CLIENTS
from protocol.request import DialectName
from tests.support.checks.conformance import Conformance, Result
from tests.support.checks.dialect_facts import Facts, configuration_of_all, facts_are_enough
from tests.support.servers.stores_shared import postgres_server, valkey_server
from tests.support.upstreams.dialect_recordings import DIALECT_STREAMS, dialect_recordings
from tests.support.upstreams.product import replayed
from tests.support.upstreams.recordings import SHARED, Recording, own_recordings, recordings

_SHOWN = 12
"""Differences that are printed of one answer."""


class Checks:
    """Both kinds of checks against one product."""

    def __init__(self, whole: Conformance, facts: Facts) -> None:
        self._whole, self._facts = whole, facts

    def check(self, recording: Recording, client: DialectName) -> list[Result]:
        """Run one recording for clients of one dialect."""
        return (self._facts if facts_are_enough(recording, client) else self._whole).check(
            recording, client
        )


@contextmanager
def started(seed: int) -> Iterator[Checks]:
    """Run a product with servers of its own, and lend the checks against it."""
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-conformance-"))
        )
        for name in ("valkey", "postgres", "product"):
            (folder / name).mkdir()
        redis_url = stack.enter_context(valkey_server(folder / "valkey"))
        database_url = stack.enter_context(postgres_server(folder / "postgres"))
        upgrade(database_url)
        product, replay = stack.enter_context(
            replayed(folder / "product", redis_url, database_url, configuration_of_all)
        )
        whole, facts = Conformance(product.url, replay, seed), Facts(product.url, replay, seed)
        stack.callback(whole.close)
        stack.callback(facts.close)
        yield Checks(whole, facts)


def table_of(found: list[Recording], results: list[Result]) -> Table:
    """The table: an empty cell is a direction in which nothing is known of a recording but its
    bytes."""
    table = Table(box=None, pad_edge=False)
    for name in ("recording", "upstream", *(f"→ {client}" for client in CLIENTS)):
        table.add_column(name, no_wrap=True)
    for recording in found:
        cells = [
            [r for r in results if (r.recording, r.client) == (recording.name, client)]
            for client in CLIENTS
        ]
        table.add_row(recording.name, recording.dialect, *map(_cell, cells))
    return table


def _cell(results: list[Result]) -> str:
    wrong = [r for r in results if r.problems]
    if wrong:
        return (
            f"[red]{' '.join(dict.fromkeys(r.word for r in wrong))}"
            f" {len(wrong)}/{len(results)}[/red]"
        )
    return f"[green]ok[/green] {len(results)}" if results else ""


def main() -> int:
    """Run and print; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument(
        "--streams",
        type=Path,
        default=SHARED,
        help="a folder with recordings and their expected.json",
    )
    parser.add_argument(
        "--dialect-streams",
        type=Path,
        default=DIALECT_STREAMS,
        help="the same, with the answers of further dialects",
    )
    parser.add_argument("--only", default="", help="recordings whose names have this in them")
    parser.add_argument(
        "--seed",
        type=int,
        default=int(os.environ.get("SLUICE_TEST_SEED") or random.SystemRandom().randrange(2**32)),
    )
    asked = parser.parse_args()
    began = time.monotonic()
    found = [
        r
        for r in [
            *recordings(asked.streams),
            *own_recordings(),
            *dialect_recordings(asked.dialect_streams),
        ]
        if asked.only in r.name
    ]
    console = Console(width=max(110, Console().width) if not sys.stdout.isatty() else None)
    results: list[Result] = []
    with (
        started(asked.seed) as checks,
        Progress(transient=True, console=console, disable=not sys.stdout.isatty()) as progress,
    ):
        for recording in progress.track(found):
            for client in CLIENTS:
                results += checks.check(recording, client)
    console.print(table_of(found, results))
    wrong = [r for r in results if r.problems]
    for result in wrong:
        console.print(
            f"\n{result.recording}, {result.upstream} → {result.client}, {result.way}:",
            style="red",
            markup=False,
        )
        for problem in result.problems[:_SHOWN]:
            console.print(f"  {problem}", markup=False, highlight=False)
        if len(result.problems) > _SHOWN:
            console.print(f"  and {len(result.problems) - _SHOWN} more")
    took = time.monotonic() - began
    for folder in (asked.streams, asked.dialect_streams):
        if not (folder / "expected.json").exists():
            console.print(f"\nThere are no recordings in {folder}.")
    console.print(
        f"\n{len(found)} recordings, {len(results)} answers, {len(wrong)} not as they must be;"
        f" --seed {asked.seed}; {took:.0f} s"
    )
    return 1 if wrong or not results else 0


if __name__ == "__main__":
    sys.exit(main())
