"""Signals that are no SIGTERM: SIGHUP stops a process as SIGTERM does, SIGUSR1 and SIGUSR2 do
nothing."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.readers import Reader, hold_invariants, joined, request, under_way, words
from tests.support.servers.product import Product, base_config, running


@pytest.fixture
def product(tmp_path: Path, redis_url: str, database_url: str) -> Iterator[Product]:
    with running(tmp_path, redis_url, database_url, base_config(), policy=2) as made:
        yield made


@pytest.mark.slow
def test_no_call_is_cut_by_a_hangup_and_none_notices_a_user_signal(product: Product) -> None:
    readers = [Reader(product.url, request(words(60, 50))) for _ in range(4)]
    under_way(readers)
    for child in product.children:
        child.kill(signal.SIGUSR1)
        child.kill(signal.SIGUSR2)
    (gateway,), (first, _), (judge,), (writer,) = (
        product.of(role) for role in ("gateway", "policy", "judge", "audit")
    )
    for child in (first, judge, gateway):
        child.kill(signal.SIGHUP)
    joined(readers)
    assert [reader.has_all(60) for reader in readers] == [True] * 4
    assert [child.wait() for child in (first, judge, gateway)] == [0, 0, 0]
    writer.kill(signal.SIGUSR1)
    hold_invariants(product, readers)
    writer.kill(signal.SIGHUP)
    assert writer.wait() == 0
