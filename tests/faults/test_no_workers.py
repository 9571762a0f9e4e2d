"""Calls while no worker is there: refused fast, in their dialect, and paid for by nobody."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2 as httpx
import openai
import pytest

from protocol.request import DialectName
from tests.support.checks.figures import Figure
from tests.support.clients.readers import Reader, hold_invariants, joined, request
from tests.support.servers.product import KEY, Product
from tests.support.upstreams import product as upstreams
from tests.support.upstreams.replay import Replay, replaying, stream
from tests.support.waiting import wait_for

DIALECTS: list[DialectName] = ["openai", "anthropic"]
ANSWER = (
    b"data:"
    b' {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}\n\ndata:'
    b" [DONE]\n\n"
)


@pytest.fixture
def replay() -> Iterator[Replay]:
    with replaying() as server:
        server.answer(stream(ANSWER))
        yield server


@pytest.mark.slow
@pytest.mark.case("C10")
def test_c10_without_workers_calls_are_refused_fast_and_skipped_later(
    tmp_path: Path, redis_url: str, database_url: str, replay: Replay, figure: Figure
) -> None:
    config = upstreams.config(replay)
    config["limits"] |= {"claim_s": 1.0, "queue": 6, "key_calls": 200}
    with Product(tmp_path, redis_url, database_url, config) as product:
        product.start("gateway", "audit")
        readers = [
            Reader(product.url, request("go", d, model="gpt-x"), dialect=d, policy="noop")
            for _ in range(75)
            for d in DIALECTS
        ]
        joined(readers)
        assert {r.status for r in readers} == {503}
        assert all(int(r.headers["retry-after"]) >= 1 and b'"error"' in r.received for r in readers)
        at_once = [r for r in readers if b"limit for open and waiting calls" in r.received]
        assert len(at_once) == 144, "past the queue's bound"
        figure(
            "no workers: slowest refusal of 150 calls at once (claim_s 1)",
            max(r.elapsed_s for r in readers),
            "s",
        )
        product.start("policy")
        store: Any = product.redis
        wait_for(
            lambda: store.xlen("sluice:{00}:dispatch") == 0, what="the expired calls are put away"
        )
        served = Reader(product.url, request("go", model="gpt-x"))
        joined([served])
        assert served.status == 200 and len(replay.asked) == 1, (
            "nothing was paid for a call that was refused"
        )
        hold_invariants(product, [*readers, served])


@pytest.mark.slow
def test_official_clients_see_a_refusal_that_they_may_retry(
    tmp_path: Path, redis_url: str, database_url: str, replay: Replay
) -> None:
    config = upstreams.config(replay)
    config["limits"] |= {"claim_s": 0.5}
    with Product(tmp_path, redis_url, database_url, config) as product:
        product.start("gateway", "audit")
        with openai.OpenAI(base_url=f"{product.url}/v1", api_key=KEY, max_retries=0) as client:
            with pytest.raises(openai.InternalServerError) as refused:
                client.chat.completions.create(
                    model="gpt-x", messages=[{"role": "user", "content": "go"}]
                )
            assert refused.value.status_code == 503 and refused.value.code == "no_worker"
        with anthropic.Anthropic(base_url=product.url, api_key=KEY, max_retries=0) as other:
            with pytest.raises(anthropic.InternalServerError) as overloaded:
                other.messages.create(
                    model="gpt-x", max_tokens=9, messages=[{"role": "user", "content": "go"}]
                )
            assert overloaded.value.response.headers["retry-after"] == "1"
        assert replay.asked == []
        assert httpx.get(f"{product.url}/ready", timeout=5).status_code == 503
