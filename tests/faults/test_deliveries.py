"""A policy worker stops or dies with calls in hand that Redis gave it and that it never claimed:
the other answers them."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.request import DialectName
from sluice.check.rights import USERS
from streams import layout
from tests.support.checks.figures import Figure
from tests.support.clients.readers import Reader, hold_invariants, joined, owned_by, request
from tests.support.servers.least import guarded_server, url_of
from tests.support.servers.product import Child, Product, base_config
from tests.support.waiting import wait_for

CLAIM_S = LEASE_S = 5.0
"""As they are by default: what waits for its lease comes too late."""
SOON_S = 4.0
"""A second without a heartbeat, two looks, and what a busy machine adds."""
CALLS, TRIES = 8, 20
DIALECTS: list[DialectName] = ["openai", "anthropic"]


@pytest.fixture
def product(tmp_path: Path, database_url: str) -> Iterator[Product]:
    """Two policy workers, each role with the rights in Redis that we ship: none of them is
    missing."""
    config = base_config()
    config["limits"] |= {"claim_s": CLAIM_S, "lease_s": LEASE_S, "ended_ttl_s": 2.0}
    with (
        guarded_server(tmp_path / "redis", "valkey") as url,
        Product(tmp_path, url, database_url, config) as made,
    ):
        for role, user in USERS.items():
            made.redis_urls[role] = url_of(user, url)  # type: ignore[index]
        made.start("audit", "judge", "gateway", "policy", "policy")
        made.redis.acl_log_reset()
        yield made


def handed(product: Product, victim: Child, readers: list[Reader]) -> list[str]:
    """Wait until a worker has calls, or all are answered; returns what it has."""
    wait_for(
        lambda: owned_by(product, victim.pid) or not any(map(Reader.is_alive, readers)),
        what="calls in hand, or answers",
    )
    return owned_by(product, victim.pid)


def stopped_with_calls_in_hand(product: Product) -> tuple[Child, list[Reader], list[str]]:
    """Stop a worker whose read of the dispatch stream Redis still answers; returns it, the calls
    that began, and those it was handed."""
    victim = product.of("policy")[0]
    for _ in range(TRIES):
        victim.kill(signal.SIGSTOP)
        readers = [
            Reader(product.url, request("hello", DIALECTS[n % 2]), dialect=DIALECTS[n % 2])
            for n in range(CALLS)
        ]
        if taken := handed(product, victim, readers):
            assert not any(product.redis.exists(layout.ctl_key(call)) for call in taken), (
                "it claimed them"
            )
            return victim, readers, taken
        # its read was over, or the other's turn came before its own
        victim.kill(signal.SIGCONT)
        joined(readers)
    raise AssertionError(f"no call was handed to a stopped worker in {TRIES} tries")


def assert_answered_soon(readers: list[Reader], taken: list[str]) -> float:
    """All are answered, those that the worker was handed long before their claim deadline; returns
    how late the last of these was."""
    joined(readers)
    assert [(r.status, r.received[-200:]) for r in readers if r.status != 200 or not r.whole] == []
    slowest = max(r.elapsed_s for r in readers if r.call_id in taken)
    assert slowest < SOON_S, slowest
    return slowest


@pytest.mark.slow
@pytest.mark.case("W1")
def test_w1_calls_that_a_killed_worker_was_handed_and_never_claimed(
    product: Product, figure: Figure
) -> None:
    victim, readers, taken = stopped_with_calls_in_hand(product)
    victim.kill(signal.SIGKILL)
    figure(
        "slowest answer to a call that a killed worker was handed and never claimed",
        assert_answered_soon(readers, taken),
        "s",
    )
    hold_invariants(product, readers)
    store: Any = product.redis
    assert not [d for d in store.acl_log() if d["object"] != "client|setinfo"]


@pytest.mark.case("W2")
@pytest.mark.slow
def test_w2_calls_that_a_stopped_worker_was_handed_are_not_its_own_when_it_goes_on(
    product: Product, figure: Figure
) -> None:
    victim, readers, taken = stopped_with_calls_in_hand(product)
    figure(
        "slowest answer to a call that a stopped worker was handed and never claimed",
        assert_answered_soon(readers, taken),
        "s",
    )
    victim.kill(signal.SIGCONT)
    # it forgets them and takes others
    other = next(c for c in product.of("policy") if c is not victim)
    other.kill(signal.SIGTERM)
    assert other.wait(10) == 0
    later = [Reader(product.url, request("hello")) for _ in range(CALLS)]
    joined(later)
    assert [r.status for r in later] == [200] * CALLS, product.logs()
    hold_invariants(product, [*readers, *later])
