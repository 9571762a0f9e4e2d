"""An upstream that is dead and comes back, as clients of a running product see it."""

import re
import time
from collections.abc import Iterator

import httpx2 as httpx
import pytest
import redis

from sluice.check.live import LiveHealth
from sluice.settings import load_config
from tests.support.json_values import as_json
from tests.support.servers.product import KEY, Product, base_config, running
from tests.support.servers.stores import Stores
from tests.support.upstreams.replay import Replay, Reply, replaying
from tests.support.waiting import wait_for

ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "yes"},
            "finish_reason": "stop",
        }
    ],
}


@pytest.fixture
def replay() -> Iterator[Replay]:
    with replaying() as server:
        yield server


@pytest.fixture
def product(stores: Stores, replay: Replay) -> Iterator[Product]:
    config = base_config()
    config["upstreams"] = {"mine": {"dialect": "openai", "base_url": f"{replay.url}/v1"}}
    config["models"] = [{"match": "*", "upstream": "mine"}]
    with running(*stores, config) as made:
        yield made


def ask(product: Product) -> httpx.Response:
    return httpx.post(
        f"{product.url}/v1/chat/completions",
        headers={"authorization": f"Bearer {KEY}"},
        json={"model": "m", "messages": [{"role": "user", "content": "hello"}]},
        timeout=20,
    )


def test_a_dead_upstream_is_left_alone_and_asked_again(product: Product, replay: Replay) -> None:
    replay.replies = [Reply(body=as_json({"error": {"message": "no"}}), status=503)]
    statuses = [ask(product) for _ in range(12)]
    assert len(replay.asked) == 10
    refused = statuses[-1]
    assert refused.status_code == 503 and 1 <= int(refused.headers["retry-after"]) <= 6
    assert "'mine' failed too often" in refused.json()["error"]["message"]
    ready = httpx.get(f"{product.url}/ready")
    assert ready.status_code == 200 and "the upstream 'mine' failed too often" in ready.text
    figures = httpx.get(f"{product.url}/metrics", headers={"authorization": f"Bearer {KEY}"}).text
    assert re.search(r'sluice_upstream_state\{upstream="mine"\} [12]\.0', figures)
    assert 'sluice_upstream_failures_total{outcome="failed",upstream="mine"} 10.0' in figures
    assert 'sluice_upstream_failures_total{outcome="left_alone",upstream="mine"} 2.0' in figures
    store = redis.Redis.from_url(product.redis_url)
    health = LiveHealth(load_config(product.config_file), store)
    wait_for(
        lambda: any(
            "the upstream 'mine' failed too often" in said for _, said in health.gateways()
        ),
        what="doctor's warning",
    )
    replay.replies = [Reply(body=as_json(ANSWER))]
    begun = time.monotonic()
    wait_for(lambda: ask(product).status_code == 200, what="traffic", timeout_s=15)
    assert ask(product).status_code == 200 and time.monotonic() - begun < 15
    assert "failed too often" not in httpx.get(f"{product.url}/ready").text
