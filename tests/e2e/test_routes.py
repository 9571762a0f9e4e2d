"""Routes with several targets through a running product: what one upstream fails to answer, another
answers, and the client sees one answer."""

import os
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import anthropic
import httpx2 as httpx
import openai
import pytest

from tests.support.checks.blocked import answered
from tests.support.checks.record import rows
from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY, Product, base_config, running
from tests.support.servers.stores import Stores
from tests.support.upstreams.replay import Replay, Reply, replaying, stream
from tests.support.waiting import wait_for

CALLS = int(os.environ.get("SLUICE_ROUTE_CALLS", "160"))
PATHS = {"openai": "chat/completions", "anthropic": "messages", "responses": "responses"}
ERRORS = {
    "openai": b'data: {"error": {"message": "busy", "type": "server_error"}}\n\n',
    "anthropic": (
        b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error",'
        b' "message": "busy"}}\n\n'
    ),
}


@pytest.fixture(scope="module")
def flaky() -> Iterator[Replay]:
    with replaying() as server:
        yield server


@pytest.fixture(scope="module")
def healthy() -> Iterator[Replay]:
    with replaying() as server:
        yield server


@pytest.fixture(scope="module")
def product(stores: Stores, flaky: Replay, healthy: Replay) -> Iterator[Product]:
    config = base_config()
    config["upstreams"] = {
        "a": {"dialect": "openai", "base_url": f"{flaky.url}/v1", "breaker": False},
        "b": {"dialect": "openai", "base_url": f"{healthy.url}/v1"},
        "c": {"dialect": "anthropic", "base_url": healthy.url},
        "dead": {"dialect": "openai", "base_url": "http://127.0.0.1:1/v1", "breaker": False},
    }
    config["models"] = [
        {"match": "pair", "upstream": "a", "then": [{"upstream": "b", "model": "other"}]},
        {"match": "other-dialect", "upstream": "a", "then": [{"upstream": "c"}]},
        {"match": "dead", "upstream": "dead", "then": [{"upstream": "b"}]},
        {"match": "alone", "upstream": "a", "retry": {"attempts": 3}},
    ]
    with running(*stores, config) as made:
        yield made


def body_of(dialect: str, model: str, *, streams: bool) -> Json:
    body: Json = {"model": model, "stream": streams}
    if dialect == "responses":
        return body | {"input": "hello"}
    if dialect == "anthropic":
        body["max_tokens"] = 100
    return body | {"messages": [{"role": "user", "content": "hello"}]}


def ask(product: Product, dialect: str, model: str, *, streams: bool) -> httpx.Response:
    return httpx.post(
        f"{product.url}/v1/{PATHS[dialect]}",
        headers={"authorization": f"Bearer {KEY}"},
        json=body_of(dialect, model, streams=streams),
        timeout=60,
    )


def good(dialect: str, text: str, *, streams: bool) -> Reply:
    frames = answered(dialect, text, streams=streams)
    return stream(b"".join(frames)) if streams else Reply(frames[0])


def attempts(product: Product, call_id: str) -> list[tuple[Any, ...]]:
    """The rows of a call, once its end is on record."""
    ended = "SELECT 1 FROM ends WHERE call_id = %s"
    wait_for(lambda: rows(product.database_url, ended, call_id), what="the call's end")
    query = (
        "SELECT attempt, upstream, model, outcome, status, chosen FROM attempts"
        " WHERE call_id = %s ORDER BY attempt"
    )
    return rows(product.database_url, query, call_id)


WAYS = ("reset", "503", "529", "error event", "cut")


def failing(way: str, *, streams: bool) -> Reply:
    match way:
        case "reset":
            return Reply(b"", ending="cut")
        case "error event" if streams:
            return stream(ERRORS["openai"])
        case "cut" if streams:
            return stream(answered("openai", "")[0], ending="cut")
        case "503" | "529":
            return Reply(as_json({"error": {"message": "busy"}}), status=int(way))
        case _:
            return Reply(as_json({"error": {"message": "busy"}}), status=500)


def test_no_client_sees_an_upstream_that_fails_at_random(
    product: Product, flaky: Replay, healthy: Replay
) -> None:
    seed = int(os.environ.get("SLUICE_ROUTE_SEED", random.randrange(10**6)))
    print(f"SLUICE_ROUTE_SEED={seed}")
    chance = random.Random(seed)
    failed = Counter[str]()
    for streams in (True, False):
        ok = good("openai", "Hello.", streams=streams)
        flaky.answer(
            *[
                failing(chance.choice(WAYS), streams=streams) if chance.random() < 0.3 else ok
                for _ in range(CALLS // 2)
            ],
            ok,
        )
        healthy.answer(ok)

        def one(number: int, streams: bool = streams) -> None:
            dialect = list(PATHS)[number % 3]
            answer = ask(product, dialect, "pair", streams=streams)
            if answer.status_code != 200 or "Hello." not in answer.text:
                failed[f"{dialect} {streams} {answer.status_code} {answer.text[:300]}"] += 1

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, range(CALLS // 2)))
        assert len(healthy.asked) > CALLS // 20, "the second was asked"
    assert sum(failed.values()) <= CALLS // 1000, failed


def test_an_upstream_that_cannot_be_reached(product: Product, healthy: Replay) -> None:
    healthy.answer(good("openai", "Hello.", streams=True))
    answer = ask(product, "openai", "dead", streams=True)
    assert answer.status_code == 200 and "Hello." in answer.text
    assert answer.headers["x-sluice-attempts"] == "2"
    assert answer.headers["x-sluice-upstream"] == "b"
    found = attempts(product, answer.headers["x-sluice-call-id"])
    assert [(row[1], row[3], row[5]) for row in found] == [
        ("dead", "connect", False),
        ("b", "ok", True),
    ]
    shown = product.audit(f"calls/{answer.headers['x-sluice-call-id']}")["attempts"]
    assert [(one["upstream"], one["outcome"], one["chosen"]) for one in shown] == [
        ("dead", "connect", False),
        ("b", "ok", True),
    ]


def is_over(product: Product, call: str) -> bool:
    return bool(product.audit(f"calls/{call}")["state"] != "ACTIVE")


def test_a_call_shows_its_only_attempt(product: Product, flaky: Replay) -> None:
    flaky.answer(good("openai", "Hello.", streams=False), Reply(as_json({"error": {}}), status=400))
    for status, outcome in ((200, "ok"), (400, "bad_request")):
        answer = ask(product, "openai", "alone", streams=False)
        call = answer.headers["x-sluice-call-id"]
        wait_for(partial(is_over, product, call), what="the end")
        [shown] = product.audit(f"calls/{call}")["attempts"]
        said = shown["upstream"], shown["outcome"], shown["status"], shown["chosen"]
        assert said == ("a", outcome, status, status == 200)


@pytest.mark.parametrize("streams", [True, False])
def test_another_dialect_answers(
    product: Product, flaky: Replay, healthy: Replay, streams: bool
) -> None:
    flaky.answer(failing("503", streams=streams))
    healthy.answer(good("anthropic", "Hello.", streams=streams))
    for dialect in PATHS:
        answer = ask(product, dialect, "other-dialect", streams=streams)
        assert answer.status_code == 200 and "Hello." in answer.text, answer.text
    assert {asked.path for asked in healthy.asked} == {"/v1/messages"}


@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_sdks_at_their_defaults_see_one_answer(
    product: Product, flaky: Replay, client: str
) -> None:
    busy = Reply(as_json({"error": {"message": "busy"}}), status=529)
    flaky.answer(busy, busy, good("openai", "Hello.", streams=False))
    if client == "openai":
        said = openai.OpenAI(base_url=f"{product.url}/v1", api_key=KEY)
        completion = said.chat.completions.with_raw_response.create(
            model="alone", messages=[{"role": "user", "content": "hello"}]
        )
        assert completion.parse().choices[0].message.content == "Hello."
        headers = completion.headers
    else:
        told = anthropic.Anthropic(base_url=product.url, api_key=KEY)
        message = told.messages.with_raw_response.create(
            model="alone", max_tokens=100, messages=[{"role": "user", "content": "hello"}]
        )
        assert "Hello." in str(message.parse().content)
        headers = message.headers
    assert len(flaky.asked) == 3
    found = attempts(product, headers["x-sluice-call-id"])
    assert [(row[3], row[4]) for row in found] == [("server", 529), ("server", 529), ("ok", 200)]


def test_an_exhausted_chain_is_not_tried_again_by_sdks(product: Product, flaky: Replay) -> None:
    flaky.answer(failing("503", streams=False))
    with pytest.raises(openai.InternalServerError) as raised:
        openai.OpenAI(base_url=f"{product.url}/v1", api_key=KEY).chat.completions.create(
            model="alone", messages=[{"role": "user", "content": "hello"}]
        )
    assert raised.value.response.headers["x-should-retry"] == "false"
    assert len(flaky.asked) == 3, "the SDK tried nothing again"
