"""Gateways killed, stopped in order, and restarted one after the other under load."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
import pytest

from protocol.request import DialectName
from tests.support.checks.figures import Figure
from tests.support.checks.invariants import read_call
from tests.support.clients.readers import (
    Reader,
    hold_invariants,
    joined,
    owners,
    request,
    under_way,
    words,
)
from tests.support.servers.ports import free_port
from tests.support.servers.product import Child, Product, Role, base_config, running
from tests.support.upstreams import product as upstreams
from tests.support.upstreams.replay import Replay, replaying, stream
from tests.support.waiting import wait_for

BEGINNING = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":"hi"}}]}\n\n'
)
DIALECTS: list[DialectName] = ["openai", "anthropic"]


@pytest.fixture
def upstream() -> Iterator[Replay]:
    with replaying() as server:
        server.answer(stream(BEGINNING, ending="hang"))
        yield server


def end_of(product: Product, call_id: str) -> Any:
    with psycopg.connect(product.database_url) as connection:
        return read_call(connection, call_id).end


@pytest.mark.case("G1")
def test_g1_kill_9_of_a_gateway_with_open_streams(
    tmp_path: Path, redis_url: str, database_url: str, upstream: Replay, figure: Figure
) -> None:
    with running(tmp_path, redis_url, database_url, upstreams.config(upstream)) as product:
        readers = [Reader(product.url, request("go", model="gpt-x")) for _ in range(20)]
        under_way(readers, 0)
        calls = {r.call_id for r in readers}
        assert {c for found in owners(product).values() for c in found} == calls
        killed_at = time.monotonic()
        product.of("gateway")[0].kill(signal.SIGKILL)
        joined(readers)
        wait_for(lambda: upstream.left == 20, timeout_s=5, what="the upstream's sockets are closed")
        figure(
            "from kill -9 of a gateway to closed upstream sockets",
            time.monotonic() - killed_at,
            "s",
        )
        wait_for(lambda: not owners(product), timeout_s=30, what="workers let go of the calls")
        took = time.monotonic() - killed_at
        product.start("gateway")
        for call_id in calls:
            end = wait_for(lambda c=call_id: end_of(product, c), what="the end on record")  # type: ignore[misc]
            assert end[:2] == ("FAILED", "gateway_lost")
        figure("from kill -9 of a gateway to the end of its calls on record", took, "s")
        hold_invariants(product, readers)
        # room again: a new call is served
        upstream.answer(stream(BEGINNING))
        again = Reader(product.url, request("hello"))
        joined([again])
        assert again.status == 200 and again.whole


@pytest.mark.case("G2")
def test_g2_sigterm_to_a_gateway_with_open_streams(
    tmp_path: Path, redis_url: str, database_url: str, figure: Figure
) -> None:
    config = base_config()
    config["limits"] |= {"drain_s": 8.0}
    with running(tmp_path, redis_url, database_url, config, policy=2) as product:
        gateway = product.of("gateway")[0]
        short = [
            Reader(product.url, request(words(60), d), dialect=d)
            for d in DIALECTS
            for _ in range(5)
        ]
        endless = [
            Reader(product.url, request(words(3000), d), dialect=d)
            for d in DIALECTS
            for _ in range(5)
        ]
        under_way([*short, *endless])
        with httpx.Client(base_url=product.url, timeout=10) as probe:
            assert probe.get("/ready").status_code == 200
            gateway.kill(signal.SIGTERM)
            began = time.monotonic()
            wait_for(
                lambda: probe.get("/ready").status_code == 503,
                timeout_s=1.0,
                what="not ready at once",
            )
            assert probe.get("/ready").json()["why"] == "shutting down"
        for dialect in DIALECTS:
            refused = Reader(product.url, request("hello", dialect), dialect=dialect)
            joined([refused])
            assert refused.status == 503 and int(refused.headers["retry-after"]) >= 1, (
                refused.received
            )
            assert refused.frames == [] and b'"error"' in refused.received
        joined([*short, *endless])
        assert gateway.wait(10) == 0
        figure(
            "from SIGTERM to the end of a gateway with endless streams (drain_s 8)",
            time.monotonic() - began,
            "s",
        )
        assert all(r.has_all(60) for r in short), product.logs()
        for reader in endless:
            assert reader.whole and b"shutting down" in reader.received[-300:], reader.received[
                -300:
            ]
        product.start("gateway")
        records = hold_invariants(product, [*short, *endless])
        assert {records[r.call_id].end[1] for r in endless} == {"gateway_shutdown"}


class Load:
    """Clients that go on and on, alternating gateways and dialects, and retry before the first byte
    as the official SDKs do."""

    def __init__(self, urls: list[str], clients: int) -> None:
        self.urls, self.done = urls, list[Reader]()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        turn = number
        while not self._stopping.is_set():
            turn += 1
            dialect, urls = (
                DIALECTS[turn % 2],
                self.urls[turn % len(self.urls) :] + self.urls[: turn % len(self.urls)],
            )
            tool = turn % 3 == 0
            prompt = "please list the files" if tool else words(15, 40)
            reader = Reader(
                urls,
                request(prompt, dialect, tool=tool),
                dialect=dialect,
                policy="default",
                tries=20,
            )
            reader.join(60)
            self.done.append(reader)

    def wait_for(self, count: int) -> None:
        """Wait until so many more calls are done."""
        before = len(self.done)
        wait_for(lambda: len(self.done) >= before + count, timeout_s=30, what="calls under way")

    def stop(self) -> list[Reader]:
        """End it; returns all calls."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
        return self.done


def restart(product: Product, child: Child, port: int | None = None) -> None:
    child.kill(signal.SIGTERM)
    assert child.wait(20) == 0, child.tail()
    product.start(child.role, port=port)


@pytest.mark.case("G3")
def test_g3_rolling_restart_of_everything_under_load(
    tmp_path: Path, redis_url: str, database_url: str, figure: Figure
) -> None:
    with running(tmp_path, redis_url, database_url, policy=2) as product:
        other = free_port()
        product.start("gateway", "judge", "audit", port=other)
        load = Load([product.url, f"http://127.0.0.1:{other}"], 8)
        began = time.monotonic()
        roles: list[Role] = ["gateway", "policy", "judge", "audit"]
        for role in roles:
            for child, port in zip(product.of(role), (product.port, other), strict=True):
                load.wait_for(4)
                restart(product, child, port)
        took = time.monotonic() - began
        readers = load.stop()
        failed = [
            (r.status, r.failure, r.received[-300:])
            for r in readers
            if r.status != 200 or not r.whole or b'"error"' in r.received
        ]
        assert failed == []
        for reader in readers:
            if "tools" in reader.body:
                assert b"ls -la" in reader.received, reader.received
            else:
                assert reader.has_all(15), reader.text
        hold_invariants(product, readers)
        figure(
            "rolling restart of 2 gateways, 2 policy workers, 2 judges, 2 audit writers: calls",
            len(readers),
            "calls",
        )
        figure("failed calls", len(failed), "calls")
        figure(
            "tries again at the other gateway, before the first byte",
            sum(r.retries for r in readers),
            "tries",
        )
        figure("longest stall", max(r.longest_s for r in readers), "s")
        figure("time of the restarts", took, "s")
