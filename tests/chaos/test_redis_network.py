"""The network between the roles and Redis fails in every way: silence, lost replies, both for all
roles and for one alone."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import get_args

import psycopg
import pytest

from db.connections import conninfo
from tests.support.checks.figures import Figure
from tests.support.checks.record import fresh_database
from tests.support.clients.traffic import Traffic, faults
from tests.support.json_values import Json
from tests.support.servers.product import Product, Role, base_config
from tests.support.servers.proxy import Proxy, proxied
from tests.support.servers.stores import Server, client

pytestmark = pytest.mark.long

DEADLINE_S = 45.0
SILENT_S = 2.0
ROLES: tuple[Role, ...] = get_args(Role)


def config() -> Json:
    made = base_config()
    made["limits"] |= {
        "redis_silent_s": SILENT_S,
        "lease_s": 2.0,
        "activity_s": 12.0,
        "judge_s": 12.0,
        "commit_s": 12.0,
    }
    return made


@pytest.fixture
def links() -> dict[Role, Proxy]:
    """The proxies of `product`, one for each role."""
    return {}


@pytest.fixture
def product(
    tmp_path: Path, valkey: Server, database_url: str, links: dict[Role, Proxy]
) -> Iterator[Product]:
    with ExitStack() as stack:
        url = stack.enter_context(fresh_database(database_url))
        for role in ROLES:
            links[role] = stack.enter_context(proxied(valkey.url))
        product = stack.enter_context(Product(tmp_path, valkey.url, url, config()))
        product.redis_urls = {role: link.url(valkey.url) for role, link in links.items()}
        product.start("audit", "judge", "gateway", "policy", "policy")
        yield product


def check(product: Product, valkey: Server, traffic: Traffic, figure: Figure) -> None:
    finished = traffic.stop()
    with (
        client(valkey) as store,
        psycopg.connect(conninfo(product.database_url), autocommit=True) as connection,
    ):
        found = faults(finished, connection, store, deadline_s=DEADLINE_S)
    assert not found, "\n".join(found) + product.logs()
    assert "audit conflict" not in product.logs()
    assert all(c.process.poll() is None for c in product.children), product.logs()
    figure("calls", len(finished), "")
    figure("calls ended with an error", len(finished) - len(traffic.served()), "")
    figure("longest silence a served client saw", max(f.longest_s for f in traffic.served()), "s")


def pause(seconds: float) -> None:
    """A fault lasts so long."""
    time.sleep(seconds)


@pytest.mark.case("R3")
@pytest.mark.timeout(120)
def test_r3_redis_silent_for_all_and_for_each_role(
    product: Product, valkey: Server, links: dict[Role, Proxy], figure: Figure
) -> None:
    traffic = Traffic(product.url, 6)
    traffic.under_way()
    for link in links.values():
        link.black_hole()
    pause(5)
    for link in links.values():
        link.heal()
    figure("first call served after 5 s of silence ended", traffic.goes_on(), "s")
    for role, link in links.items():
        link.black_hole()
        pause(1.5 * SILENT_S)
        link.heal()
        figure(f"first call served after Redis was silent to {role} alone", traffic.goes_on(), "s")
    check(product, valkey, traffic, figure)


@pytest.mark.case("R4")
@pytest.mark.timeout(120)
def test_r4_only_replies_are_lost(
    product: Product, valkey: Server, links: dict[Role, Proxy], figure: Figure
) -> None:
    traffic = Traffic(product.url, 6)
    traffic.under_way()
    for group in (*((role,) for role in ROLES), ROLES):
        for _ in range(3):
            for role in group:
                links[role].hold_replies()
            pause(0.3)
            for role in group:
                links[role].reset()
                links[role].heal()
            pause(0.3)
        traffic.goes_on()
    check(product, valkey, traffic, figure)
