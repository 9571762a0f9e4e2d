"""A Redis without memory: new calls are refused, open ones wait or end with an error, and it
recovers by itself."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
import pytest
import redis

from db.connections import conninfo
from protocol.request import DialectName
from tests.support.checks.figures import Figure
from tests.support.checks.record import fresh_database
from tests.support.clients.traffic import Finished, Traffic, call, faults, is_served, request
from tests.support.servers.product import KEY, Product, base_config, running
from tests.support.servers.stores import Server, client, own_valkey
from tests.support.waiting import wait_for

MB = 2**20
MEMORY = 40 * MB
DIALECTS: tuple[DialectName, ...] = ("openai", "anthropic")


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Server]:
    with own_valkey(tmp_path) as server:
        with client(server) as store:
            store.config_set("maxmemory", MEMORY)
        yield server


@pytest.fixture
def product(tmp_path: Path, valkey: Server, database_url: str) -> Iterator[Product]:
    config = base_config()
    config["limits"] |= {
        "activity_s": 8.0,
        "ended_ttl_s": 2.0,
        "judge_s": 8.0,
        "commit_s": 8.0,
        "idle_s": 20.0,
    }
    with (
        fresh_database(database_url) as url,
        running(tmp_path, valkey.url, url, config, policy=2) as made,
    ):
        yield made


class Filler(threading.Thread):
    """Takes all memory and what becomes free, until `stop`, which gives it back."""

    def __init__(self, valkey: Server) -> None:
        super().__init__(daemon=True)
        self._valkey, self._stopping = valkey, threading.Event()
        self.start()

    def run(self) -> None:
        """Fill until stopped."""
        with client(self._valkey) as store:
            size, n = 8 * MB, 0
            while not self._stopping.is_set():
                try:
                    store.set(f"filler:{n}", b"x" * size, ex=600)
                    n += 1
                except redis.exceptions.OutOfMemoryError:
                    size = size // 4
                if size < 64:
                    self._stopping.wait(0.02)
                    size = 64 * 1024
            store.delete(*[f"filler:{k}" for k in range(n)])

    def stop(self) -> None:
        """Give the memory back."""
        self._stopping.set()
        self.join()


def ask(product: Product, dialect: DialectName, timeout_s: float = 20) -> httpx.Response:
    path, body = request(dialect, "whole")
    return httpx.post(
        product.url + path, json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=timeout_s
    )


def refusal(product: Product, dialect: DialectName) -> httpx.Response | None:
    """The answer to a call, once it is a refusal."""
    try:
        answer = ask(product, dialect, timeout_s=1)
    except httpx.ReadTimeout:
        # it began just before Redis was full, and waits like the open ones, which have no heartbeat
        # for longer than `activity_s` then
        return None
    return answer if answer.status_code == 503 else None


def check(product: Product, valkey: Server, finished: list[Finished]) -> None:
    with (
        client(valkey) as store,
        psycopg.connect(conninfo(product.database_url), autocommit=True) as connection,
    ):
        found = faults(finished, connection, store, deadline_s=40)
        stats: Any = store.info("stats")
        assert stats["evicted_keys"] == 0
    assert not found, "\n".join(found) + product.logs()
    assert "audit conflict" not in product.logs()
    assert all(c.process.poll() is None for c in product.children), product.logs()


@pytest.mark.case("R5")
@pytest.mark.timeout(150)
@pytest.mark.slow
def test_r5_a_full_redis_refuses_new_calls_and_recovers(
    product: Product, valkey: Server, figure: Figure
) -> None:
    traffic = Traffic(product.url, 6)
    traffic.under_way()
    filler, full_at = Filler(valkey), time.monotonic()
    for dialect in DIALECTS:
        refused = wait_for(partial(refusal, product, dialect), what="new calls are refused")
        assert int(refused.headers["retry-after"]) >= 1
        assert (refused.json().get("type") == "error") is (dialect == "anthropic")
    wait_for(lambda: httpx.get(f"{product.url}/ready").status_code == 503, what="not ready")
    wait_for(lambda: time.monotonic() > full_at + 3.0)
    at = time.monotonic()
    filler.stop()
    wait_for(
        lambda: {f.kind for f in traffic.served(at)} == set(traffic.kinds),
        timeout_s=20,
        what="calls of every kind are served again",
    )
    figure(
        "first call served after memory was freed",
        min(f.ended for f in traffic.served(at)) - at,
        "s",
    )
    finished = traffic.stop()
    opened = [f for f in finished if f.began < full_at < f.ended]
    assert opened and all(is_served(f.seen) for f in opened), "open calls drain"
    figure(
        "longest silence of a call that was open when Redis was full",
        max(f.longest_s for f in opened),
        "s",
    )
    check(product, valkey, finished)


@pytest.mark.case("R5")
@pytest.mark.timeout(150)
@pytest.mark.slow
def test_r5_calls_that_fill_redis_themselves_end_and_free_it(
    product: Product, valkey: Server, figure: Figure
) -> None:
    """Nothing but the calls' own streams takes the memory: only their ends give it back, so these
    must go through a full Redis."""
    finished: list[Finished] = []
    with client(valkey) as store:
        memory: Any = store.info("memory")
        store.config_set("maxmemory", int(memory["used_memory"]) + 6 * MB)

        def one(dialect: DialectName) -> None:
            finished.append(
                call(product.url, dialect, "text", words="long 30000 slowly, with a gap 1 ms")
            )

        threads = [threading.Thread(target=one, args=(DIALECTS[n % 2],)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a call hangs\n" + product.logs()
        failed = [f for f in finished if b"error" in f.seen.body]
        assert failed, "Redis was never full"
        at = time.monotonic()
        wait_for(
            lambda: ask(product, "openai").status_code == 200,
            timeout_s=40,
            what="calls are served again",
        )
        figure("calls served again after open ones had filled Redis", time.monotonic() - at, "s")
    check(product, valkey, finished)
