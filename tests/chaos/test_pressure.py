"""One part that is slow: what everything holds stays bounded, other calls go on as before, and past the bound calls are refused."""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
import pytest

from protocol.request import Dialect
from tests.support.figures import Figure
from tests.support.judges import JudgeModel, judge_model, judged_by
from tests.support.product import KEY, Product, base_config, running
from tests.support.readers import PATHS, Reader, hold_invariants, joined, request, resident_bytes, under_way, words
from tests.support.waiting import wait_for

pytestmark = pytest.mark.long

DIALECTS: list[Dialect] = ["openai", "anthropic"]
ROUNDS, CALLS = 3, 25
BOUND = 64 * 2**20
"""Far above what these calls need (tens of KiB each), far below what a leak or an unbounded buffer would take."""
SLACK_S = 0.1
"""What the machine may add by itself: the two halves of a round do not see the same neighbours."""


def p95(product: Product, *, tool: bool = False) -> float:
    """The 95th percentile of calls one after the other."""
    took = []
    with httpx.Client(base_url=product.url, headers={"authorization": f"Bearer {KEY}"}, timeout=30) as client:
        for n in range(CALLS):
            dialect = DIALECTS[n % 2]
            body = request("please list the files" if tool else "hello", dialect, tool=tool)
            began = time.monotonic()
            answer = client.post(PATHS[dialect], json=body)
            took.append(time.monotonic() - began)
            assert answer.status_code == 200 and b'"error"' not in answer.content, answer.text
    return statistics.quantiles(took, n=20)[-1]


def compared(product: Product, slow: Callable[[], Any], figure: Figure, name: str, *, tool: bool = False) -> None:
    """Other calls' p95 with and without the slow one, in turns in one run: the same, but for what the machine adds."""
    without, with_it = [], []
    p95(product, tool=tool)
    for _ in range(ROUNDS):
        without.append(p95(product, tool=tool))
        with slow():
            with_it.append(p95(product, tool=tool))
    quiet, loaded = statistics.median(without), statistics.median(with_it)
    figure(f"{name}: other calls' p95, in proportion to that without it", loaded / quiet, "x")
    assert loaded < 1.5 * quiet + SLACK_S, (without, with_it)


def held(product: Product) -> dict[str, int]:
    """What every process and Redis hold."""
    store: Any = product.redis
    found = {f"{c.role} {c.pid}": resident_bytes(c.pid) for c in product.children if c.process.poll() is None}
    return found | {"redis": int(store.info("memory")["used_memory"])}


@contextmanager
def bounded(product: Product, figure: Figure, what: str, most_bytes: int) -> Iterator[None]:
    """While this lasts nothing grows by more than `most_bytes`."""
    before, stopping = held(product), threading.Event()
    grown = dict.fromkeys(before, 0)

    def watch() -> None:
        while not stopping.wait(0.1):
            for name, now in held(product).items():
                grown[name] = max(grown.get(name, 0), now - before.get(name, now))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        stopping.set()
        watching.join(5)
    for name, size in grown.items():
        figure(f"{what}: growth of {name.split()[0]}", size / 2**20, "MiB")
    assert max(grown.values()) < most_bytes, grown


def assert_refused(readers: list[Reader]) -> None:
    for reader in readers:
        assert reader.status == 503 and int(reader.headers["retry-after"]) >= 1, (reader.status, reader.received[:300])
        assert (b'"type":"error"' in reader.received) is (reader.dialect == "anthropic"), reader.received


@pytest.mark.case("C11")
def test_c11_a_slow_judge(tmp_path: Path, redis_url: str, database_url: str, figure: Figure) -> None:
    with judge_model() as model:
        config = judged_by(base_config(), model)
        config["limits"] |= {"open_calls": 12}
        with running(tmp_path, redis_url, database_url, config) as product:
            held: list[Reader] = []

            @contextmanager
            def slow() -> Iterator[None]:
                before = len(model.asked)
                model.open.clear()
                held.append(Reader(product.url, request("please list the files", tool=True), policy="asking"))
                wait_for(lambda: len(model.asked) > before, what="the slow judge is asked")
                yield
                assert held[-1].is_alive()
                model.open.set()
                joined(held)

            # judged calls too: one slow question takes one of the judge's places, not all
            compared(product, slow, figure, "a slow judge", tool=True)
            many(product, model, figure)
            hold_invariants(product, held)


def many(product: Product, model: JudgeModel, figure: Figure) -> None:
    """As many calls as may be open wait for the judge: the next are refused, and all are served once it answers."""
    with bounded(product, figure, "12 calls that wait for a judge", BOUND):
        model.open.clear()
        open_calls = [Reader(product.url, request("please list the files", tool=True), policy="asking") for _ in range(12)]
        store: Any = product.redis
        wait_for(lambda: store.xlen("sluice:{00}:dispatch") == 12, what="all are open")
        refused = [Reader(product.url, request("hello", d), dialect=d) for d in DIALECTS]
        joined(refused)
        assert_refused(refused)
        model.open.set()
        joined(open_calls)
        assert all(b"ls -la" in r.received for r in open_calls)
    hold_invariants(product, [*open_calls, *refused])


def test_a_slow_worker_pool(tmp_path: Path, redis_url: str, database_url: str, figure: Figure) -> None:
    config = base_config()
    config["limits"] |= {"max_calls": 5, "claim_s": 1.0, "queue": 20}
    with running(tmp_path, redis_url, database_url, config) as product:
        with bounded(product, figure, "a slow worker pool with 45 calls", BOUND):
            served = [Reader(product.url, request(words(120, 50), d), dialect=d) for d in [*DIALECTS, *DIALECTS, DIALECTS[0]]]
            under_way(served, 1)
            # the worker holds all it may: others wait their time, and past the queue's bound not even that
            refused = [Reader(product.url, request("hello", d), dialect=d) for d in DIALECTS for _ in range(20)]
            joined(refused)
            assert all(r.is_alive() for r in served), "the worker was free too soon"
            assert_refused(refused)
            figure("a slow worker pool: slowest refusal (claim_s 1)", max(r.elapsed_s for r in refused), "s")
            joined(served)
            assert all(r.has_all(120) for r in served)
        hold_invariants(product, [*served, *refused])


@contextmanager
def slow_postgres(product: Product) -> Iterator[None]:
    """Every insert waits: another transaction holds the tables."""
    with psycopg.connect(product.database_url) as connection:
        connection.execute("LOCK TABLE chunks, releases, calls IN ACCESS EXCLUSIVE MODE")
        yield
        connection.rollback()


def test_a_slow_postgres(tmp_path: Path, redis_url: str, database_url: str, figure: Figure) -> None:
    config = base_config()
    config["limits"] |= {"backlog": 900}
    with running(tmp_path, redis_url, database_url, config) as product:
        compared(product, lambda: slow_postgres(product), figure, "a slow Postgres, text")
        # 1,200 chunks of a few hundred bytes wait, each with its release
        with bounded(product, figure, "a slow Postgres with 1,200 chunks waiting", BOUND), slow_postgres(product):
            streams = [Reader(product.url, request(words(300, 5), d), dialect=d) for d in DIALECTS * 2]
            joined(streams)
            assert all(r.has_all(300) for r in streams), "open calls go on past the bound"
            refused = [Reader(product.url, request("hello", d), dialect=d) for d in DIALECTS]
            joined(refused)
            assert_refused(refused)
            assert all(b"record is too far behind" in r.received for r in refused)
        hold_invariants(product, [*streams, *refused])
        again = Reader(product.url, request("hello"))
        joined([again])
        assert again.status == 200
