"""What people who read pages cost the calls beside them: 50 streams with 10 ms gaps, without
readers and with them, in turns.

With readers: one who loads 5 pages a second, five who watch a call that is open, and one who has
the overview open. `python -m bench.pages.beside` prints p99 of the delay of a chunk and the
gateway's CPU a chunk, and each as a ratio. Exit code 1: one is over 1.1. Rounds alternate, because
what else the machine does changes both.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from multiprocessing.synchronize import Event
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bench.pages.served import Reader
from bench.profile import children, total
from pages import links
from sluice.bench import WORKLOADS, RunningSluice, started
from sluice.load import Load

MOST = 1.1
PAGES_A_SECOND, VIEWS = 5, 5
WORKLOAD = next(one for one in WORKLOADS if one.name == "50 streams, 10 ms gap")
PATHS = (links.ROOT, links.CALLS, links.TOOL_CALLS, links.JUDGE_BLOCKS, links.POLICIES, links.KEYS)


class Round(NamedTuple):
    """One round: p99 of the delay in ms, and the gateway's CPU a chunk in us."""

    p99_ms: float
    cpu_us: float


async def measure(place: RunningSluice, load: Load) -> Round:
    """Run the workload once."""
    pids = place.roles["gateway"]
    before = total([one for pid in pids for one in children(pid)])["cpu_us"]
    result = await load.run(WORKLOAD.words, at_once=WORKLOAD.at_once, rounds=1)
    spent = total([one for pid in pids for one in children(pid)])["cpu_us"] - before
    assert not result.failures, result.why
    return Round(statistics.quantiles(result.delays, n=100)[98], spent / result.chunks)


class Readers:
    """People who read meanwhile, in a process of their own: what they take in must not delay
    whoever measures."""

    def __init__(self, place: RunningSluice, paths: Sequence[str], views: int) -> None:
        made = multiprocessing.get_context("spawn")
        self._on, self._end, self._counts = made.Event(), made.Event(), made.Array("q", 2)
        given = (place.url, place.key, tuple(paths), views, self._on, self._end, self._counts)
        self._process = made.Process(target=_read, args=given, daemon=True)
        self._process.start()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """They read for as long as this is open."""
        self._on.set()
        try:
            yield
        finally:
            self._on.clear()

    def close(self) -> tuple[int, int]:
        """End it; returns how many pages and frames were read."""
        self._end.set()
        self._process.join()
        pages, frames = self._counts[:]
        return pages, frames


class _People:
    """Those of the process, each on a thread and over a connection of its own."""

    def __init__(self, url: str, key: str, on: Event, end: Event, counts: Any) -> None:
        self.url, self.on, self.end, self.counts = url, on, end, counts
        self.head = Reader(url, key).head | {"authorization": f"Bearer {key}"}

    def load(self, paths: Sequence[str]) -> None:
        """Load a page, five times a second."""
        reader = Reader(self.url, head=self.head)
        due, n = time.monotonic(), 0
        while not self.end.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1 / PAGES_A_SECOND, time.monotonic() - 1)
            if self.on.is_set():
                reader.get(paths[n % len(paths)])
                n += 1
                self.counts[0] += 1
        reader.close()

    def watch(self, number: int) -> None:
        """Follow a call that is open, or the overview."""
        reader = Reader(self.url, head=self.head)
        while not self.end.wait(0.2):
            path = self._path(reader, number) if self.on.is_set() else None
            if path is None:
                continue
            line = HTTPConnection(urlsplit(self.url).netloc, timeout=2)
            try:
                line.request("GET", path, headers={**reader.head, "accept": "text/event-stream"})
                answer = line.getresponse()
                while self.on.is_set() and (piece := answer.readline()):
                    if piece.startswith(b"data:"):
                        with self.counts.get_lock():
                            self.counts[1] += 1
            except OSError:
                pass
            finally:
                line.close()
        reader.close()

    def _path(self, reader: Reader, number: int) -> str | None:
        if number == 0:
            return f"{links.ROOT}/events"
        _, body = reader.get(f"{links.ROOT}?format=json")
        found = json.loads(body)["open"]
        return links.tab(found[number % len(found)]["call_id"], "events") if found else None


def _read(
    url: str, key: str, paths: Sequence[str], views: int, on: Event, end: Event, counts: Any
) -> None:
    people = _People(url, key, on, end, counts)
    watching = [threading.Thread(target=people.watch, args=(n,)) for n in range(views)]
    threads = [threading.Thread(target=people.load, args=(paths,)), *watching]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def compare(
    place: RunningSluice, rounds: int, readers: Readers
) -> tuple[list[Round], list[Round]]:
    """Return the rounds without readers and with them."""
    without, beside = [], []
    async with Load(place.url, place.key) as load:
        await load.run(WORKLOAD.words, at_once=WORKLOAD.at_once, rounds=1)
        with readers.reading():  # what the pages load at their first request
            await asyncio.sleep(3)
        for _ in range(rounds):
            without.append(await measure(place, load))
            with readers.reading():
                await asyncio.sleep(0.5)
                beside.append(await measure(place, load))
    return without, beside


def main() -> int:
    """Print both figures and their ratios."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument(
        "--views",
        type=int,
        default=VIEWS + 1,
        help="live views and one stream of the overview; 0: pages alone",
    )
    given = options.parse_args()
    with started() as place:
        readers = Readers(place, PATHS, given.views)
        without, beside = asyncio.run(compare(place, given.rounds, readers))
        pages, frames = readers.close()
    print(f"{pages} pages and {frames} frames were read")
    is_over = False
    for place_, name in enumerate(("p99 of a chunk's delay, ms", "the gateway's CPU a chunk, us")):
        alone, more = (
            statistics.median(one[place_] for one in found) for found in (without, beside)
        )
        is_over |= more > MOST * alone
        print(f"{name:32} without {alone:7.2f}  with readers {more:7.2f}  {more / alone:5.2f}x")
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
