"""Redis pauses, is out of connections, cannot write its file, or is replaced by a replica that
misses the end."""

import dataclasses
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from db.connections import conninfo
from sluice.up import embedded
from streams import layout
from tests.support.checks.figures import Figure
from tests.support.checks.record import fresh_database
from tests.support.clients.traffic import Traffic, faults
from tests.support.servers.product import Product, Role, base_config
from tests.support.servers.proxy import Proxy, proxied
from tests.support.servers.stores import Server, client, own_valkey
from tests.support.waiting import wait_for

pytestmark = pytest.mark.long

ROLES: tuple[Role, ...] = get_args(Role)


@pytest.fixture
def links() -> list[Proxy]:
    """The one proxy between every role and Redis."""
    return []


@pytest.fixture
def product(
    tmp_path: Path, valkey: Server, database_url: str, links: list[Proxy]
) -> Iterator[Product]:
    config = base_config()
    config["limits"] |= {
        "lease_s": 5.0,
        "activity_s": 15.0,
        "judge_s": 12.0,
        "commit_s": 12.0,
        "ended_ttl_s": 4.0,
        "keepalive_s": 2.0,
    }
    with ExitStack() as stack:
        url = stack.enter_context(fresh_database(database_url))
        links.append(stack.enter_context(proxied(valkey.url)))
        product = stack.enter_context(Product(tmp_path, valkey.url, url, config))
        product.redis_urls = dict.fromkeys(ROLES, links[0].url(valkey.url))
        product.start("audit", "judge", "gateway", "policy", "policy")
        yield product


def check(product: Product, valkey: Server, traffic: Traffic, *, lost_at: float = 0.0) -> None:
    finished = traffic.stop()
    with (
        client(valkey) as store,
        psycopg.connect(conninfo(product.database_url), autocommit=True) as connection,
    ):
        found = faults(
            finished,
            connection,
            store,
            deadline_s=45,
            lost=lambda one: one.began < lost_at and one.ended > lost_at - 2.0,
        )
    assert not found, "\n".join(found) + product.logs()
    # what a promoted replica has not heard of is ended a second time; the record keeps the first
    # end, and says so
    assert lost_at or "audit conflict" not in product.logs()
    assert all(c.process.poll() is None for c in product.children), product.logs()


def takeovers(product: Product) -> int:
    with psycopg.connect(conninfo(product.database_url)) as connection:
        [(count,)] = connection.execute(
            "SELECT count(*) FROM events WHERE kind = 'takeover'"
        ).fetchall()
    return int(count)


def replication(store: Any) -> Any:
    return store.info("replication")


@pytest.mark.case("R6")
@pytest.mark.timeout(120)
def test_r6_a_redis_that_pauses(product: Product, valkey: Server, figure: Figure) -> None:
    traffic = Traffic(product.url, 6)
    traffic.under_way()
    with client(valkey) as store:
        store.client_pause(4000, all=False)
        figure(
            "first call served after writes had paused for 4 s", traffic.goes_on(within_s=40), "s"
        )
        # as DEBUG SLEEP, which is off by default: nothing is answered, and time goes on for leases
        valkey.freeze()
        time.sleep(4)
        valkey.thaw()
        figure("first call served after Redis had slept for 4 s", traffic.goes_on(within_s=40), "s")
    check(product, valkey, traffic)
    found = takeovers(product)
    figure("takeovers by both", found, "")
    assert found <= 6, "a storm of takeovers"


@pytest.mark.case("R9")
@pytest.mark.timeout(120)
def test_r9_no_connection_is_left(
    product: Product, valkey: Server, links: list[Proxy], figure: Figure
) -> None:
    traffic = Traffic(product.url, 6)
    traffic.under_way()
    place = urlsplit(valkey.url)
    with client(valkey) as store:
        clients: Any = store.client_list()
        store.config_set("maxclients", len(clients) + 20)
        taken: list[socket.socket] = []
        # all connections go to others, also those that the product loses now
        while True:
            taken.append(
                socket.create_connection((str(place.hostname), place.port or 0), timeout=5)
            )
            taken[-1].sendall(b"PING\r\n")
            if b"max number of clients" in taken[-1].recv(200):
                break
        links[0].reset()
        more = [
            socket.create_connection((str(place.hostname), place.port or 0), timeout=5)
            for _ in range(40)
        ]
        refused = len(traffic.finished)
        wait_for(
            lambda: len(traffic.finished) > refused + 3,
            timeout_s=40,
            what="calls end, they do not hang",
        )
        for one in (*taken, *more):
            one.close()
        figure("first call served after connections came free", traffic.goes_on(within_s=40), "s")
    check(product, valkey, traffic)


@pytest.mark.case("R7")
@pytest.mark.timeout(120)
def test_r7_a_replica_that_misses_the_last_writes_is_promoted(
    product: Product, valkey: Server, links: list[Proxy], tmp_path: Path, figure: Figure
) -> None:
    primary, password = urlsplit(valkey.url), urlsplit(valkey.url).password or ""
    folder = tmp_path / "replica"
    folder.mkdir()
    with (
        own_valkey(folder) as replica,
        proxied(valkey.url) as behind,
        client(valkey) as store,
        client(replica) as copy,
    ):
        copy.config_set("masterauth", password)
        copy.replicaof(primary.hostname, behind.port)
        wait_for(
            lambda: replication(copy)["master_link_status"] == "up", what="the replica follows"
        )
        traffic = Traffic(product.url, 6)
        traffic.under_way()
        behind.hold_replies()
        missed = replication(store)["master_repl_offset"] + 100_000
        wait_for(lambda: replication(store)["master_repl_offset"] > missed, what="writes it misses")
        lost_at = time.monotonic()
        behind.reset()
        copy.replicaof("NO", "ONE")
        links[0].retarget(str(urlsplit(replica.url).hostname), urlsplit(replica.url).port or 0)
        # the product has the primary's password, the test the replica's own
        copy.acl_setuser(
            "default",
            enabled=True,
            passwords=[f"+{password}"],
            keys=["*"],
            channels=["*"],
            categories=["+@all"],
        )
        links[0].reset()
        figure("first call served by a promoted replica", traffic.goes_on(within_s=40), "s")
        check(product, replica, traffic, lost_at=lost_at)


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Server]:
    """A Valkey that gets an error from the kernel, not a signal, where its file may not grow."""
    spec, url = embedded.valkey(tmp_path / "limited", log=tmp_path / "limited.log")
    argv = ["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh", *spec.argv]
    server = Server(dataclasses.replace(spec, argv=argv), url, tmp_path / "limited")
    try:
        yield server
    finally:
        server.close()


@pytest.mark.case("R10")
@pytest.mark.timeout(120)
def test_r10_redis_cannot_write_its_file(
    tmp_path: Path, limited: Server, database_url: str, figure: Figure
) -> None:
    config = base_config()
    config["limits"] |= {"activity_s": 8.0, "judge_s": 8.0, "commit_s": 8.0, "ended_ttl_s": 4.0}
    with (
        fresh_database(database_url) as url,
        Product(tmp_path, limited.url, url, config) as product,
    ):
        product.start("audit", "judge", "gateway", "policy", "policy")
        traffic = Traffic(product.url, 6)
        traffic.under_way()
        with client(limited) as store:
            size = max(f.stat().st_size for f in (limited.data / "appendonlydir").iterdir())
            resource.prlimit(
                limited.pid, resource.RLIMIT_FSIZE, (size + 4096, resource.RLIM_INFINITY)
            )

            def refuses() -> bool:
                try:
                    store.set("probe", "x", ex=60)
                except redis.ResponseError as error:
                    return "MISCONF" in str(error)
                return False

            wait_for(refuses, timeout_s=20, what="Redis takes no writes")
            at = time.monotonic()
            wait_for(lambda: time.monotonic() > at + 3.0, what="a while of it")
            assert not [
                f for f in list(traffic.finished) if f.began > at + 0.5 and f.seen.status == 200
            ], "new calls are refused"
            resource.prlimit(
                limited.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )
            figure(
                "first call served after the file could grow again",
                traffic.goes_on(within_s=40),
                "s",
            )
            assert store.xinfo_groups(layout.audit_key(0))
        check(product, limited, traffic)
