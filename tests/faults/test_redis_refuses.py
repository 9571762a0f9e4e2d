"""A Redis that answers and takes no writes (MISCONF, NOREPLICAS), for longer than a gateway may be
silent: calls wait, and go on."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from protocol.request import DialectName
from streams import layout
from tests.support.checks.invariants import Seen
from tests.support.checks.record import fresh_database, rows
from tests.support.clients.traffic import Finished, call, request
from tests.support.servers.product import KEY, Product, base_config
from tests.support.waiting import wait_for

WORDS = "long 14 slowly, with a gap 500 ms"
LEASE_S, IMPATIENT_S = 3.0, 2.0


@pytest.fixture
def product(redis_url: str, database_url: str, tmp_path: Path) -> Iterator[Product]:
    config = base_config()
    config["limits"] |= {"lease_s": LEASE_S}
    with fresh_database(database_url) as url, Product(tmp_path, redis_url, url, config) as started:
        started.start("audit", "judge", "gateway", "policy", "policy")
        try:
            yield started
        finally:
            started.redis.config_set("min-replicas-to-write", 0)


def begin(product: Product, pool: ThreadPoolExecutor, dialect: DialectName) -> "Future[Finished]":
    begun = threading.Event()
    future = pool.submit(
        call, product.url, dialect, "text", words=WORDS, on_data=lambda seen: begun.set()
    )
    assert begun.wait(20), "no first byte"
    return future


def impatient(product: Product, begun: threading.Event) -> tuple[str, bytes]:
    """A call whose client waits for two seconds of silence."""
    path, body = request("openai", "text", WORDS)
    headers = {"authorization": f"Bearer {KEY}", "x-sluice-timeout-s": str(IMPATIENT_S)}
    with httpx2.stream(
        "POST", product.url + path, json=body, headers=headers, timeout=60
    ) as answer:
        seen = Seen("openai", True, call_id=answer.headers["x-sluice-call-id"])
        for data in answer.iter_raw():
            seen.body += data
            begun.set()
    return seen.call_id, seen.body


def refuse_writes(product: Product) -> None:
    """Refuse them from now on, every gateway's heartbeat being as old as after a longer time of
    it."""
    store: Any = product.redis
    with store.pipeline(transaction=True) as pipe:
        for key in store.keys(layout.gateway_key(0, "*")):
            pipe.pexpire(key, 100)
        pipe.execute_command("CONFIG", "SET", "min-replicas-to-write", "1")
        pipe.execute()


@pytest.mark.case("R10")
@pytest.mark.slow
def test_r10_no_gateway_counts_as_lost_while_redis_takes_no_writes(product: Product) -> None:
    with ThreadPoolExecutor(3) as pool:
        open_calls = [begin(product, pool, "openai"), begin(product, pool, "anthropic")]
        begun = threading.Event()
        leaves = pool.submit(impatient, product, begun)
        assert begun.wait(20)
        refuse_writes(product)
        at = time.monotonic()
        call_id, body = leaves.result(30)
        assert b'"code":"streams_unavailable"' in body.replace(b": ", b":")
        # more looks at the gateway than make it a lost one, and longer than a lease
        wait_for(lambda: time.monotonic() > at + LEASE_S + 2.5, what="a while of it")
        product.redis.config_set("min-replicas-to-write", 0)
        for one in open_calls:
            finished = one.result(60)
            assert finished.seen.body.rstrip().endswith((b"[DONE]", b'{"type":"message_stop"}')), (
                finished.seen.body[-300:]
            )
    wait_for(
        lambda: len(rows(product.database_url, "SELECT 1 FROM ends")) == 3,
        what="the ends on record",
    )
    reasons = dict(rows(product.database_url, "SELECT call_id::text, reason FROM ends"))
    assert reasons.pop(call_id) == "streams_unavailable"
    assert set(reasons.values()) == {"complete"}
    assert not rows(product.database_url, "SELECT detail FROM events WHERE kind = 'takeover'")
