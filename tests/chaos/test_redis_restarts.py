"""Redis dies under traffic, and comes back with its data, without it, or as a replica that misses
the end."""

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from db.connections import conninfo
from tests.support.checks.figures import Figure
from tests.support.checks.record import fresh_database
from tests.support.clients.traffic import Traffic, faults
from tests.support.json_values import Json
from tests.support.servers.product import Product, base_config, running
from tests.support.servers.stores import Server, client

pytestmark = pytest.mark.long

DEADLINE_S = 45.0


def config() -> Json:
    made = base_config()
    made["limits"] |= {
        "redis_silent_s": 2.0,
        "activity_s": 10.0,
        "judge_s": 10.0,
        "commit_s": 10.0,
        "ended_ttl_s": 4.0,
    }
    return made


@pytest.fixture
def product(tmp_path: Path, valkey: Server, database_url: str) -> Iterator[Product]:
    with (
        fresh_database(database_url) as url,
        running(tmp_path, valkey.url, url, config(), policy=2) as made,
    ):
        yield made


def check(product: Product, valkey: Server, traffic: Traffic, *, lost_at: float = 0.0) -> None:
    """All invariants, no conflict in the record, and every process is the one that was started.

    `lost_at`: when Redis lost what was not in PostgreSQL yet.
    """
    finished = traffic.stop()
    with (
        client(valkey) as store,
        psycopg.connect(conninfo(product.database_url), autocommit=True) as connection,
    ):
        found = faults(
            finished,
            connection,
            store,
            deadline_s=DEADLINE_S,
            lost=lambda one: one.began < lost_at and one.ended > lost_at - 1.0,
        )
    assert not found, "\n".join(found) + product.logs()
    assert "audit conflict" not in product.logs()
    assert all(c.process.poll() is None for c in product.children), product.logs()


@pytest.mark.case("R1")
@pytest.mark.timeout(150)
def test_r1_redis_killed_and_restarted_with_its_file(
    product: Product, valkey: Server, figure: Figure
) -> None:
    traffic = Traffic(product.url, 8)
    traffic.under_way(12)
    valkey.kill()
    at = time.monotonic()
    away_s = valkey.start()
    figure("first call served after a restart of Redis", traffic.goes_on(at + away_s), "s")
    check(product, valkey, traffic)
    figure("calls", len(traffic.finished), "")
    figure("calls ended by it with an error", len(traffic.finished) - len(traffic.served()), "")


@pytest.mark.case("R2")
@pytest.mark.timeout(150)
def test_r2_redis_restarted_empty(product: Product, valkey: Server, figure: Figure) -> None:
    traffic = Traffic(product.url, 8)
    traffic.under_way(12)
    valkey.kill()
    valkey.wipe()
    at = time.monotonic()
    away_s = valkey.start()
    figure("first call served after Redis came back empty", traffic.goes_on(at + away_s), "s")
    check(product, valkey, traffic, lost_at=at)
    figure("calls ended by it with an error", len(traffic.finished) - len(traffic.served()), "")
