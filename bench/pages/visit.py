"""What a person meets, on a machine where nothing else runs: the login, a page until it can be
used, a word in a large text, and what the process of the pages holds in memory, before anybody
asked and with many readers.

`python -m bench.pages.visit` starts a product of its own, prints a line a figure, and ends with 1
where one is past its bound. The browser's figures are left out where there is no chromium or no
playwright.
"""

import argparse
import asyncio
import hashlib
import json
import re
import shutil
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

from bench.pages.call import large_arguments, large_body, long_call
from bench.pages.served import Reader
from bench.start import held
from db.engine import open_engine
from db.reads import PageRead, note
from db.write.insert import AuditInserter
from pages import links
from protocol.records import Record
from sluice.bench import RunningSluice, started
from tests.support.checks.record import call_id, call_record, now_ms

READERS = VIEWS = 20
OF_KEY = 2
LOGINS, LOADS, READS, PAGES = 20, 10, 200, 3
BOUNDS = {
    "idle, PSS MB": 12.0,
    "20 readers of 16 MB and 20 views, RSS MB": 200.0,
    "login to first page, ms": 200.0,
    "a row of who read, ms": 3.0,
    "a call's page can be used, ms": 500.0,
}
KEYS = tuple(f"sk-sluice-bench-reader-{n}" for n in range(READERS // OF_KEY))
CONFIG = {
    "keys": [
        {
            "name": f"reader-{n}",
            "sha256": hashlib.sha256(key.encode()).hexdigest(),
            "roles": ["client", "auditor"],
        }
        for n, key in enumerate(KEYS)
    ]
}
_STREAM = "long 1500 slowly, with a gap 20 ms"


def most_mb(pids: list[int]) -> float:
    """The most that these processes ever held, in MB."""
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return (
        sum(int(found[1]) for text in texts if (found := re.search(r"VmHWM:\s+(\d+)", text))) / 1024
    )


async def fill(url: str) -> dict[str, str]:
    """Put large calls on record; returns their ids."""
    calls = {name: call_id(now_ms() + n) for n, name in enumerate(("page", "text", "body"))}
    body: list[Record] = [call_record(calls["body"], dialect="anthropic", upstream="demo")]
    async with AuditInserter(url) as inserter:
        for name, records in (
            ("page", long_call(calls["page"], chunks=2_000, tools=40)),
            ("text", large_arguments(calls["text"])),
        ):
            listed = list(records)
            for at in range(0, len(listed), 500):
                await inserter.insert(listed[at : at + 500], {calls[name]: b"{}"})
        await inserter.insert(body, {calls["body"]: large_body()})
    return calls


def login(url: str) -> float:
    """How long a login and the first page behind it take, in ms; the median."""
    times = []
    for number in range(LOGINS):
        began = time.perf_counter()
        reader = Reader(url, KEYS[number % len(KEYS)])
        reader.get(links.ROOT)
        times.append(1000 * (time.perf_counter() - began))
        reader.close()
    return statistics.median(times)


def stream(place: RunningSluice, call_ids: list[str]) -> None:
    """One call that goes on for half a minute."""
    line = HTTPConnection(urlsplit(place.url).netloc, timeout=120)
    body = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": _STREAM}]}
    head = {"authorization": f"Bearer {place.key}", "content-type": "application/json"}
    line.request("POST", "/v1/chat/completions", json.dumps(body), head)
    answer = line.getresponse()
    assert answer.status == 200, answer.read()
    call_ids.append(answer.getheader("x-sluice-call-id", ""))
    while answer.read1(65_536):
        pass


def watch(
    url: str, head: dict[str, str], call: str, seen: list[int], end: threading.Event, host: str
) -> None:
    """One live view, read until the end, from an address of its own: one address has half of all
    views."""
    line = HTTPConnection(urlsplit(url).netloc, timeout=60, source_address=(host, 0))
    line.request("GET", links.tab(call, "events"), headers={**head, "accept": "text/event-stream"})
    answer = line.getresponse()
    assert answer.status == 200, (answer.status, answer.read())
    while not end.is_set() and answer.readline():
        seen.append(1)
    line.close()


def crowd(place: RunningSluice, call: str) -> tuple[Counter[int], int]:
    """20 people who watch a call each, and 20 who read a request of 16 MB three times; returns the
    statuses, and how many saw something."""
    call_ids: list[str] = []
    streams = [
        threading.Thread(target=stream, args=(place, call_ids), daemon=True) for _ in range(VIEWS)
    ]
    for one in streams:
        one.start()
    while len(call_ids) < VIEWS:
        time.sleep(0.05)
    heads = [Reader(place.url, KEYS[n // OF_KEY]).head for n in range(READERS)]
    seen: list[list[int]] = [[] for _ in range(VIEWS)]
    end, statuses = threading.Event(), list[int]()

    def load(head: dict[str, str]) -> None:
        line, got = HTTPConnection(urlsplit(place.url).netloc, timeout=60), 0
        while got < PAGES:
            line.request("GET", links.tab(call, "request"), headers=head)
            answer = line.getresponse()
            answer.read()
            # as a person does who is told to come again
            time.sleep(int(answer.getheader("retry-after", "0")))
            got += answer.status == 200
            statuses.append(answer.status)
        line.close()

    hosts = [f"127.0.0.{n + 2}" for n in range(VIEWS)]
    views = zip(heads, call_ids, seen, hosts, strict=True)
    watching = [
        threading.Thread(target=watch, args=(place.url, *one[:3], end, one[3]), daemon=True)
        for one in views
    ]
    reading = [threading.Thread(target=load, args=(head,)) for head in heads]
    for one in (*watching, *reading):
        one.start()
    for one in reading:
        one.join()
    end.set()
    return Counter(statuses), sum(1 for one in seen if one)


async def row_ms(url: str, call: str) -> float:
    """How long the row takes that says who reads, in ms; the median."""
    engine = open_engine(url, read_only=False, pool_size=1, answer_s=5.0)
    times = []
    for _ in range(READS):
        began = time.perf_counter()
        await note(engine, PageRead("bench", "", links.call(call), call_ids=[UUID(call)], rows=1))
        times.append(1000 * (time.perf_counter() - began))
    await engine.dispose()
    return statistics.median(times)


def browsed(url: str, calls: dict[str, str]) -> Iterator[tuple[str, float]]:
    """A call's page until scripts ran, and finding the last word of a text of 5 MB."""
    path = shutil.which("chromium")
    if path is None:
        return
    from playwright.sync_api import sync_playwright  # not everywhere there

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_context().new_page()
        page.goto(f"{url}{links.LOGIN}")
        page.fill("#key", KEYS[0])
        page.click("main button")
        page.wait_for_load_state()
        times = []
        for _ in range(LOADS):
            page.goto(f"{url}{links.call(calls['page'])}", wait_until="load")
            times.append(
                page.evaluate(
                    "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
                )
            )
        yield "a call's page can be used, ms", statistics.median(times)
        yield "its elements", page.evaluate("document.querySelectorAll('*').length")
        page.goto(f"{url}{links.tab(calls['text'], 'text')}", wait_until="load")
        size = page.evaluate("document.body.innerText.length")
        last = page.evaluate("document.body.innerText.trim().slice(-12)")
        yield "a text of 5 MB, characters", size
        began = time.perf_counter()
        assert page.evaluate("last => window.find(last)", last), "the last word is not found"
        yield "its last word is found, ms", 1000 * (time.perf_counter() - began)
        browser.close()


def main() -> int:
    """Print each figure with its bound."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found: dict[str, float] = {}
    with started(CONFIG) as place:
        pids = place.roles["pages"]
        found["idle, PSS MB"] = held(pids)["pss_mb"]
        calls = asyncio.run(fill(place.database_url))
        found["login to first page, ms"] = login(place.url)
        found |= browsed(place.url, calls)
        found["a row of who read, ms"] = asyncio.run(row_ms(place.database_url, calls["page"]))
        statuses, views = crowd(place, calls["body"])
        found["20 readers of 16 MB and 20 views, RSS MB"] = most_mb(pids)
        print(f"pages of the readers by status: {dict(statuses)}; {views} views had events")
    for name, value in found.items():
        print(
            f"{name:45} {value:12,.1f} "
            f" {'at most ' + format(BOUNDS[name], ',.0f') if name in BOUNDS else ''}"
        )
    return int(any(found[name] > bound for name, bound in BOUNDS.items() if name in found))


if __name__ == "__main__":
    sys.exit(main())
