"""Postgres is away under traffic: clients do not notice but for tool calls, and the record catches
up to the last row."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from protocol.request import DialectName
from streams import layout
from tests.support.checks.figures import Figure
from tests.support.clients.readers import streamed_text
from tests.support.clients.traffic import Finished, Traffic, call, faults, is_served
from tests.support.servers.memory import BOUND, MIB, bounded
from tests.support.servers.product import KEY, Product, Role, base_config
from tests.support.servers.proxy import Proxy, proxied
from tests.support.servers.stores import Server, client, database
from tests.support.waiting import wait_for

pytestmark = pytest.mark.long

AWAY_S = float(os.environ.get("SLUICE_TEST_AWAY_S", "60"))
COMMIT_S = 3.0
DIALECTS: tuple[DialectName, ...] = ("openai", "anthropic")


@pytest.fixture
def links() -> list[Proxy]:
    """The one proxy between every role and Postgres."""
    return []


@pytest.fixture
def product(
    tmp_path: Path, valkey: Server, postgres: Server, links: list[Proxy]
) -> Iterator[Product]:
    config = base_config()
    config["limits"] |= {"commit_s": COMMIT_S, "ended_ttl_s": 10.0}
    roles: tuple[Role, ...] = ("audit", "judge", "gateway", "policy", "policy")
    with ExitStack() as stack:
        links.append(stack.enter_context(proxied(postgres.url)))
        product = stack.enter_context(Product(tmp_path, valkey.url, postgres.url, config))
        product.database_urls = dict.fromkeys(roles, links[0].url(postgres.url))
        product.start(*roles)
        yield product


def check(product: Product, valkey: Server, postgres: Server, finished: list[Finished]) -> None:
    with client(valkey) as store, database(postgres) as connection:
        found = faults(finished, connection, store, deadline_s=40, settle_s=40)
    assert not found, "\n".join(found) + product.logs()
    assert "audit conflict" not in product.logs()
    assert all(c.process.poll() is None for c in product.children), product.logs()


def backlog(store: Any) -> int:
    return int(store.xlen(layout.audit_key(0)))


def metric(product: Product) -> float:
    said = httpx.get(
        f"{product.url}/metrics", headers={"authorization": f"Bearer {KEY}"}, timeout=10
    ).text
    return next(
        float(line.split()[1])
        for line in said.splitlines()
        if line.startswith("sluice_audit_backlog_entries ")
    )


@pytest.mark.case("D1")
@pytest.mark.timeout(90 + AWAY_S)
def test_d1_postgres_away_under_traffic(
    product: Product, valkey: Server, postgres: Server, figure: Figure
) -> None:
    """Killed, so that connections break; away; back with its data."""
    traffic = Traffic(product.url, 10, kinds=("text", "whole"))
    traffic.under_way(10)
    postgres.kill()
    at = time.monotonic()
    # a minute of this is some 25,000 records, and the batch in the writer's hand
    with (
        client(valkey) as store,
        bounded(product, figure, f"{AWAY_S:g} s without Postgres", redis=BOUND + int(AWAY_S) * MIB),
    ):
        before = metric(product)
        wait_for(lambda: time.monotonic() > at + AWAY_S, timeout_s=AWAY_S + 5, what="the outage")
        assert metric(product) > before
        waiting = backlog(store)
        began_away = [f for f in list(traffic.finished) if f.began > at]
        assert len(began_away) > 10 and all(is_served(f.seen) for f in began_away), (
            "clients do not notice"
        )
        started_s = postgres.start()
        back = time.monotonic()
        wait_for(
            lambda: backlog(store) < 100, timeout_s=30, what="the record catches up under traffic"
        )
        figure(
            f"catch-up under traffic after {AWAY_S:g} s without Postgres",
            time.monotonic() - back,
            "s",
        )
    finished = traffic.stop()
    assert all(is_served(f.seen) for f in finished)
    check(product, valkey, postgres, finished)
    with database(postgres) as connection:
        [(rows,)] = connection.execute("SELECT count(*) FROM chunks").fetchall()
    figure("entries that waited", waiting, "")
    figure("calls in all, none with an error", len(finished), "")
    figure("new calls refused", sum(f.seen.status == 503 for f in finished), "")
    figure("chunks on record, compared with what clients got", rows, "")
    figure("Postgres' own start", started_s, "s")


@pytest.mark.case("D2")
@pytest.mark.timeout(120)
def test_d2_tool_calls_wait_for_their_commit_and_are_then_blocked(
    product: Product, valkey: Server, postgres: Server, links: list[Proxy], figure: Figure
) -> None:
    """In each way to be away: killed, refused, silent. Text flows all the time."""
    finished: list[Finished] = []
    assert is_served(call(product.url, "openai", "allowed").seen)
    for name, away, back in (
        ("killed", postgres.kill, postgres.start),
        ("silent", links[0].black_hole, links[0].heal),
        ("stopped", postgres.freeze, postgres.thaw),
    ):
        away()
        with ThreadPoolExecutor() as pool:
            asked = [pool.submit(call, product.url, dialect, "allowed") for dialect in DIALECTS]
            texts = [call(product.url, "openai", "text"), call(product.url, "anthropic", "whole")]
        assert all(is_served(f.seen) for f in texts), f"{name}: text flows"
        held = [one.result() for one in asked]
        for one in held:
            read = streamed_text(one.seen.dialect, one.seen.body)
            assert (
                "Sluice blocked" in read
                and "it could not be recorded in time" in read
                and "ls -la" not in read
            ), (name, one.seen.body)
            assert COMMIT_S <= one.seen.elapsed_s < COMMIT_S + 5
        back()
        since = time.monotonic()
        wait_for(
            lambda: b"ls -la" in call(product.url, "openai", "allowed").seen.body,
            timeout_s=40,
            what=f"{name}: released again",
        )
        figure(
            f"tool calls released again after Postgres was {name}", time.monotonic() - since, "s"
        )
        finished += texts + held
    check(product, valkey, postgres, finished)
