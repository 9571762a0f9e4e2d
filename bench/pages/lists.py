"""First bytes of lists and figures over a large record: every page with up to two filters, as a
browser gets it.

`python -m bench.pages.lists DIR` takes the record that `bench/grow DIR` made, makes the
figures of its hours, and asks `sluice pages` over HTTP. Exit code 1: the slowest twentieth of some
page's answers took longer than the bound.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

from bench.asking import alone, together
from bench.pages.served import KEY, Reader, served
from bench.volume import Volume
from db.migrations.migrate import upgrade
from db.write.usage import HOUR, Roller, hour_of
from pages import links
from sluice.up import embedded

BOUND_MS = 100.0
ROUNDS = 3
FIGURES = (links.ROOT, links.POLICIES, links.policy("default"), links.KEYS, links.key("key-0"))
ALL = {"calls": links.CALLS, "tool calls": links.TOOL_CALLS, "judge blocks": links.JUDGE_BLOCKS}


async def make_figures(url: str, days: int) -> None:
    """Make those that are missing, as an audit writer does."""
    now = hour_of(datetime.now(UTC))
    async with await Roller.open(url) as roller:
        first, last = await roller.known()
        hour = now - HOUR
        while hour > now - timedelta(days=days):
            if first is None or last is None or not first <= hour <= last:
                await roller.roll_up(hour)
            hour -= HOUR


def asked(volume: Volume) -> Iterator[tuple[str, str]]:
    """Each page by name, with no filter, one, or two."""
    for path in FIGURES:
        yield path, path
    for name, path in ALL.items():
        for given in (*alone(), *together(volume)):
            # lists of the pages have no filter by words; search has
            if len(given) <= 2 and "q" not in given:
                yield name, f"{path}?{urlencode(given)}" if given else path
    yield "sessions", links.SESSIONS


def main() -> int:
    """Print one line a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--calls", type=int, default=400_000)
    parser.add_argument("--days", type=int, default=30)
    given = parser.parse_args()
    spec, url = embedded.postgres(given.dir / "postgres", log=given.dir / "postgres.log")
    with tempfile.TemporaryDirectory() as folder, embedded.running(spec, given.dir / "run"):
        upgrade(url)
        asyncio.run(make_figures(url, given.days))
        store, redis_url = embedded.valkey(Path(folder) / "valkey", log=Path(folder) / "valkey.log")
        with (
            embedded.running(store, Path(folder) / "run"),
            served(Path(folder), url, redis_url) as pages,
        ):
            return ask(Reader(pages, KEY), Volume(given.calls, given.days))


def ask(reader: Reader, volume: Volume) -> int:
    """Ask for every page, some times; returns the exit code."""
    found: dict[str, list[tuple[float, int, str]]] = {}
    for _, path in list(asked(volume))[: len(FIGURES) + 1]:
        reader.get(path)  # what is loaded once
    for name, path in asked(volume):
        for _ in range(ROUNDS):
            took, body = reader.get(path)
            found.setdefault(name, []).append((took, len(body), path))
    is_late = False
    for name, answers in found.items():
        times = sorted(took for took, _, _ in answers)
        p95, slowest = times[int(0.95 * (len(times) - 1))], max(answers)
        is_late |= p95 > BOUND_MS
        size = max(size for _, size, _ in answers)
        print(
            f"{name:24} {len(times):4} answers  p50 {statistics.median(times):6.1f} ms  p95"
            f" {p95:6.1f} ms  {size:>8,} bytes  slowest {slowest[0]:6.1f} ms  {slowest[2]}"
        )
    return int(is_late)


if __name__ == "__main__":
    sys.exit(main())
