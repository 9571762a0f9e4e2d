"""Keys with `requests_minute`: how many of their requests begin, over all gateways."""

import hashlib
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import cast

import httpx2 as httpx
import pytest

from streams import layout
from tests.support.json_values import Json
from tests.support.servers.ports import free_port
from tests.support.servers.product import Product, base_config, digest, running
from tests.support.servers.stores import Stores

LIMIT, AT_ONCE = 12, 60
BODY = {"model": "demo", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}


def key_of(name: str, **settings: int) -> Json:
    return {"name": name, "sha256": digest(f"sk-{name}"), "requests_minute": LIMIT, **settings}


def key_id(name: str) -> str:
    return hashlib.sha256(bytes.fromhex(digest(f"sk-{name}"))).hexdigest()[:16]


@pytest.fixture(scope="module")
def product(stores: Stores) -> Iterator[Product]:
    config: Json = base_config()
    config["keys"] += [key_of("many"), key_of("one", requests_minute=1), key_of("odd")]
    config["limits"] = {"claim_s": 3.0}
    with running(*stores, config) as made:
        yield made


def ask(url: str, name: str, path: str = "/v1/chat/completions", **change: bool) -> httpx.Response:
    head = {"authorization": f"Bearer sk-{name}"}
    return httpx.post(f"{url}{path}", json=BODY | change, headers=head, timeout=30)


def test_two_gateways_let_exactly_as_many_begin(product: Product) -> None:
    port = free_port()
    product.start("gateway", port=port)
    together = threading.Barrier(AT_ONCE)

    def one(number: int) -> httpx.Response:
        together.wait()
        return ask(f"http://127.0.0.1:{(product.port, port)[number % 2]}", "many")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(one, range(AT_ONCE)))
    assert Counter(answer.status_code for answer in answers) == {200: LIMIT, 429: AT_ONCE - LIMIT}
    left = {a.headers["x-ratelimit-remaining-requests"] for a in answers if a.status_code == 200}
    assert left == {str(n) for n in range(LIMIT)}, "each of them is told another number"
    for refused in (answer for answer in answers if answer.status_code == 429):
        error = refused.json()["error"]
        assert error["code"] == "budget_exceeded" and f"{LIMIT} requests" in error["message"]
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert refused.headers["x-ratelimit-limit-requests"] == str(LIMIT)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_clients_of_messages_are_told_in_their_own_headers(
    product: Product, is_streamed: bool
) -> None:
    product.redis.delete(layout.requests_key(key_id("one")))
    answer = ask(product.url, "one", "/v1/messages", stream=is_streamed)
    refused = ask(product.url, "one", "/v1/messages", stream=is_streamed)
    assert (answer.status_code, refused.status_code) == (200, 429)
    assert refused.json()["error"]["type"] == "rate_limit_error"
    for each in (answer, refused):
        assert each.headers["anthropic-ratelimit-requests-limit"] == "1"
        assert each.headers["anthropic-ratelimit-requests-remaining"] == "0"
        assert datetime.fromisoformat(each.headers["anthropic-ratelimit-requests-reset"]).tzinfo
        assert "x-ratelimit-limit-requests" not in each.headers


def test_what_nobody_served_is_given_back_and_a_wrong_clock_heals(product: Product) -> None:
    counted = layout.requests_key(key_id("odd"))
    store, workers = product.redis, product.of("policy")
    store.zadd(counted, {"far ahead": 10**14})
    assert ask(product.url, "odd").status_code == 200
    assert store.zcard(counted) == 1, "what is of the future is forgotten"
    for worker in workers:
        worker.kill(signal.SIGSTOP)
    try:
        assert ask(product.url, "odd").json()["error"]["code"] == "no_worker"
    finally:
        for worker in workers:
            worker.kill(signal.SIGCONT)
    assert store.zcard(counted) == 1 and 0 < cast(int, store.pttl(counted)) <= 60_000
