"""`durability: strict`: whatever a client has was committed before."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from streams import layout
from tests.support.checks.record import rows
from tests.support.servers.product import KEY, Product, base_config, running
from tests.support.waiting import wait_for

HEADERS = {"authorization": f"Bearer {KEY}", "x-sluice-policy": "noop"}


@pytest.fixture(scope="module")
def product(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[Product]:
    with running(
        _folder(tmp_path_factory), redis_url, database_url, base_config() | {"durability": "strict"}
    ) as made:
        yield made


def _folder(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("product")


def committed(product: Product, call_id: str) -> bytes:
    return b"".join(
        bytes(p)
        for (p,) in rows(
            product.database_url,
            "SELECT payload FROM releases WHERE call_id = %s ORDER BY number",
            call_id,
        )
    )


def newest_call(store: Any) -> str:
    """The call that the gateway's newest reply is of."""
    (gateway,) = store.scan_iter(layout.tag(0) + "gw:*")
    newest = store.xrevrange(gateway.replace(b":gw:", b":reply:"), count=1)
    return layout.unpack_reply(newest[0][1][b"b"]).call_id if newest else ""


def waiting_call(store: Any) -> str | None:
    """A call whose first reply was read by the gateway, while its record is not committed."""
    (gateway,) = store.scan_iter(layout.tag(0) + "gw:*")
    last = store.xrevrange(gateway.replace(b":gw:", b":reply:"), count=1)
    if not store.xlen(layout.audit_key(0)) or not last or last[0][0] != store.get(gateway):
        return None
    return newest_call(store)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["chat/completions", "messages"])
def test_every_byte_was_committed_before_the_client_had_it(product: Product, path: str) -> None:
    body = {
        "model": "demo",
        "stream": True,
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "long 60 slowly, with a gap 5 ms"}],
    }
    received, looks = b"", 0
    with httpx.stream(
        "POST", f"{product.url}/v1/{path}", json=body, headers=HEADERS, timeout=30
    ) as answer:
        for data in answer.iter_raw():
            received += data
            looks += 1
            assert committed(product, answer.headers["x-sluice-call-id"]).startswith(received)
    assert b"word60" in received and looks > 5


def test_without_an_audit_writer_nothing_is_sent_upstream_and_nothing_lost(
    product: Product,
) -> None:
    (writer,) = product.of("audit")
    store: Any = product.redis
    answers: list[httpx.Response] = []
    body = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}

    def ask() -> None:
        answers.append(
            httpx.post(f"{product.url}/v1/chat/completions", json=body, headers=HEADERS, timeout=30)
        )

    # the end of the call before, whose bytes the client had earlier, would look like this one's
    # beginning
    before = newest_call(store)
    os.kill(writer.pid, signal.SIGSTOP)
    try:
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        call_id = wait_for(
            lambda: call if (call := waiting_call(store)) != before else None,
            what="a released request that the gateway has read",
        )
        assert store.xlen(layout.call_key(call_id)) == 1
        assert not answers
    finally:
        os.kill(writer.pid, signal.SIGCONT)
    asking.join(20)
    assert answers[0].status_code == 200


@pytest.mark.slow
def test_a_record_that_stays_away_ends_the_call_with_an_error(product: Product) -> None:
    (writer,) = product.of("audit")
    body = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
    os.kill(writer.pid, signal.SIGSTOP)
    try:
        headers = HEADERS | {"x-sluice-timeout-s": "1"}
        answer = httpx.post(
            f"{product.url}/v1/messages", json=body | {"max_tokens": 9}, headers=headers, timeout=30
        )
    finally:
        os.kill(writer.pid, signal.SIGCONT)
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "the audit log cannot be written now"
