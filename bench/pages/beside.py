"""What people who read pages cost the calls beside them: 50 streams with 10 ms gaps, without readers and with them, in turns.

With readers: one who loads 5 pages a second, five who watch a call that is open, and one who has the overview open; with `--audit` one
who asks /audit 5 times a second instead, which a gateway answers itself. `python -m bench.pages.beside` prints p99 of the delay of a
chunk and the gateway's CPU a chunk, and each as a ratio. Exit code 1: one is over 1.1. Rounds alternate, because what else the machine
does changes both.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from typing import NamedTuple
from urllib.parse import urlsplit

from bench.pages.served import Reader
from bench.profile import children, total
from pages import links
from sluice.bench import WORKLOADS, Place, started
from sluice.load import Load

MOST = 1.1
PAGES_A_SECOND, VIEWS = 5, 5
WORKLOAD = next(one for one in WORKLOADS if one.name == "50 streams, 10 ms gap")
AUDIT = ("/audit/calls", "/audit/tool-calls", "/audit/judge-blocks", "/audit/counts", "/audit/usage")
PATHS = (links.ROOT, links.CALLS, links.TOOL_CALLS, links.JUDGE_BLOCKS, links.POLICIES, links.KEYS)


class Round(NamedTuple):
    """One round: p99 of the delay in ms, and the gateway's CPU a chunk in us."""

    p99_ms: float
    cpu_us: float


async def measure(place: Place, load: Load) -> Round:
    """Run the workload once."""
    pids = place.roles["gateway"]
    before = total([one for pid in pids for one in children(pid)])["cpu_us"]
    result = await load.run(WORKLOAD.words, at_once=WORKLOAD.at_once, rounds=1)
    spent = total([one for pid in pids for one in children(pid)])["cpu_us"] - before
    assert not result.failures, result.why
    return Round(statistics.quantiles(result.delays, n=100)[98], spent / result.chunks)


class Readers:
    """People who read meanwhile, each on a thread and over a connection of its own."""

    def __init__(self, place: Place, paths: Sequence[str], views: int) -> None:
        self._paths, self._views = paths, views
        self._place, self._stop, self.pages, self.frames = place, threading.Event(), 0, 0
        self._head = Reader(place.url, place.key).head | {"authorization": f"Bearer {place.key}"}

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read for as long as this is open."""
        self._stop.clear()
        threads = [
            threading.Thread(target=self._load_pages),
            *(threading.Thread(target=self._watch, args=(n,)) for n in range(self._views)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _load_pages(self) -> None:
        reader = Reader(self._place.url, head=self._head)
        due, n = time.monotonic(), 0
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            reader.get(self._paths[n % len(self._paths)])
            due, n = max(due + 1 / PAGES_A_SECOND, time.monotonic() - 1), n + 1
            self.pages += 1
        reader.close()

    def _watch(self, number: int) -> None:
        reader = Reader(self._place.url, head=self._head)
        while not self._stop.is_set():
            path = f"{links.ROOT}/events" if number == 0 else self._open_call(reader, number)
            if path is None:
                self._stop.wait(0.2)
                continue
            line = HTTPConnection(urlsplit(self._place.url).netloc, timeout=2)
            try:
                line.request("GET", path, headers={**reader.head, "accept": "text/event-stream"})
                answer = line.getresponse()
                while not self._stop.is_set() and (piece := answer.readline()):
                    self.frames += piece.startswith(b"data:")
            except OSError:
                pass
            finally:
                line.close()
        reader.close()

    def _open_call(self, reader: Reader, number: int) -> str | None:
        _, body = reader.get(f"{links.ROOT}?format=json")
        found = json.loads(body)["open"]
        return links.tab(found[number % len(found)]["call_id"], "events") if found else None


async def compare(place: Place, rounds: int, readers: Readers) -> tuple[list[Round], list[Round]]:
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
    options.add_argument("--audit", action="store_true", help="questions to /audit in place of pages and live views")
    given = options.parse_args()
    with started() as place:
        readers = Readers(place, AUDIT, 0) if given.audit else Readers(place, PATHS, VIEWS + 1)
        without, beside = asyncio.run(compare(place, given.rounds, readers))
    print(f"{readers.pages} pages and {readers.frames} frames were read")
    is_over = False
    for place_, name in enumerate(("p99 of a chunk's delay, ms", "the gateway's CPU a chunk, us")):
        alone, more = (statistics.median(one[place_] for one in found) for found in (without, beside))
        is_over |= more > MOST * alone
        print(f"{name:32} without {alone:7.2f}  with readers {more:7.2f}  {more / alone:5.2f}x")
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
