"""A replica of Redis is promoted under the load of the chaos run, while one writer and one worker
stay on the old primary."""

import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.chaos import check
from tests.chaos.breaking import Breaker, Fault
from tests.chaos.load import Load
from tests.chaos.run import SETTLE_S, stage
from tests.support.checks.holes import NAMED_S
from tests.support.checks.invariants import settle
from tests.support.checks.record import rows
from tests.support.checks.sealed import verified
from tests.support.servers.stores import client, database, follow, own_valkey, promote
from tests.support.waiting import wait_for

CALLS = 600
UNSEALED = (
    "SELECT count(*) FROM ends e WHERE NOT EXISTS (SELECT FROM seals s WHERE s.call_id = e.call_id)"
)


@pytest.mark.timeout(600)
def test_after_a_failover_every_call_is_right_on_record_or_named(tmp_path: Path, seed: int) -> None:
    with (
        stage(tmp_path) as (product, valkey, postgres, proxies, ports, server, clocks),
        own_valkey(tmp_path / "replica") as replica,
    ):
        follow(replica, valkey)
        proxied = dict(product.redis_urls)
        product.redis_urls.clear()
        stale = product.start("audit", "policy")
        product.redis_urls = proxied
        load = Load(
            [f"http://127.0.0.1:{port}" for port in ports], seed=seed, at_once=16, calls=CALLS
        )
        breaker = Breaker(product, valkey, postgres, proxies, ports, seed, clocks)
        load.start()
        wait_for(lambda: len(load.done) > CALLS / 3, timeout_s=60, what="calls before the failover")
        fault = Fault("Valkey fails over", time.monotonic(), float("inf"), visible=True)
        breaker.faults.append(fault)
        promote(replica, valkey)
        for name, proxy in proxies.items():
            if name.endswith("-redis"):
                proxy.retarget("127.0.0.1", urlsplit(replica.url).port or 0)
                proxy.reset()
        wait_for(
            lambda: all(child.process.poll() == 70 for child in stale),
            timeout_s=40,
            what="the stale processes stop",
        )
        fault.ended = time.monotonic()
        # what is left has fewer workers than before, on a machine that runs other tests: one that is
        # late for its lease is rightly taken for dead
        breaker.faults.append(Fault("policy workers are fewer", fault.ended, float("inf"), False))
        load.wait(90)
        load.stop(timeout_s=60)
        with client(replica) as store, database(postgres) as connection:
            # a call that only the old primary knew goes on asking until its gateway names it
            found = settle(connection, store, timeout_s=SETTLE_S + NAMED_S)
            found += check.faults(load.done, server, breaker, connection, postgres.url, every=10)
        # what a call lacks is named when it is sealed
        wait_for(
            lambda: rows(postgres.url, UNSEALED) == [(0,)],
            timeout_s=2 * NAMED_S,
            what="a seal for each call",
        )
        code, said = verified(postgres.url)
        named = said["incomplete_calls"]
        assert code == (4 if named else 0), said
        assert not [
            sentence for sentence in found if not any(call in sentence for call in named)
        ], (seed, named, found, product.logs())
        assert len(load.done) > CALLS / 2 and not load.failures
