"""Budgets of keys, teams and sessions: never more than the limit, and what Redis counts is what the
record says, to the token."""

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import httpx2 as httpx
import pytest

from streams import layout
from tests.support.checks.record import rows
from tests.support.json_values import Json, as_json
from tests.support.servers.ports import free_port
from tests.support.servers.product import Product, base_config, digest, running
from tests.support.servers.stores import Stores
from tests.support.upstreams.replay import Replay, Reply, replaying
from tests.support.waiting import wait_for

TAKES = {"prompt_tokens": 20, "completion_tokens": 30, "total_tokens": 50}
ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
    ],
    "usage": TAKES,
}
COST = 20 * 3_000 + 30 * 15_000
"""Nano-dollars, at 3 and 15 dollars a million."""
BODY = {"model": "m", "max_tokens": 40, "messages": [{"role": "user", "content": "hello"}]}
LIMITS: dict[str, Json] = {
    "day": {"tokens_day": 1_000, "usd_month": "1.5", "team": "red"},
    "few": {"tokens_day": 120},
    "cents": {"usd_day": "0.0015"},
    "session": {"session_tokens": 200},
    "teamed": {"team": "blue"},
    "mate": {"team": "blue"},
    "plain": {},
    "minute": {"tokens_minute": 1_000},
    "again": {"tokens_day": 100, "usd_day": 1},
}


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with replaying() as server:
        server.replies = [Reply(body=as_json(ANSWER))]
        yield server


@pytest.fixture(scope="module")
def product(stores: Stores, replay: Replay) -> Iterator[Product]:
    config = base_config()
    config["upstreams"] = {"mine": {"dialect": "openai", "base_url": f"{replay.url}/v1"}}
    twice = {"names": ["twice"], "upstream": "mine", "model": "m", "retry": {}}
    config["models"] = [twice, {"match": "*", "upstream": "mine"}]
    config["prices"] = {"m": {"input": 3, "output": "15"}}
    config["budgets"] = {"blue": {"tokens_day": 350, "requests_minute": 100}}
    config["keys"] += [
        {"name": name, "sha256": digest(f"sk-{name}"), **limits} for name, limits in LIMITS.items()
    ]
    with running(*stores, config) as made:
        yield made


def key_id(name: str) -> str:
    return hashlib.sha256(bytes.fromhex(digest(f"sk-{name}"))).hexdigest()[:16]


def ask(
    url: str, name: str, path: str = "/v1/chat/completions", body: Json = BODY, session: str = ""
) -> httpx.Response:
    headers = {"authorization": f"Bearer sk-{name}"}
    headers |= {"x-sluice-session": session} if session else {}
    return httpx.post(f"{url}{path}", json=body, headers=headers, timeout=30)


def account(product: Product, subject: str, window: str = "d") -> tuple[int, int]:
    """What Redis counts in the newest window of a kind."""
    held = cast("dict[bytes, bytes]", product.redis.hgetall(layout.account_key(subject)))
    found = {f.decode(): int(value) for f, value in held.items() if f[:1] == window.encode()}
    tokens, nano = (sum(n for field, n in found.items() if field[-1] == kind) for kind in "tu")
    return tokens, nano


def recorded(product: Product, where: str) -> tuple[int, int]:
    """What the record says."""
    (row,) = rows(
        product.database_url,
        "SELECT coalesce(sum(charged_tokens), 0), coalesce(sum(coalesce(cost_nanousd, 0)"
        f" + coalesce(judge_nanousd, 0)), 0) FROM ends JOIN calls USING (call_id) WHERE {where}",
    )
    return int(row[0]), int(row[1])


def test_an_answer_is_charged_and_said(product: Product) -> None:
    answer = ask(product.url, "day")
    assert answer.status_code == 200, answer.text
    left = int(answer.headers["x-ratelimit-remaining-tokens"])
    assert answer.headers["x-ratelimit-limit-tokens"] == "1000" and 800 < left < 1000
    assert answer.headers["x-ratelimit-limit-usd"] == "1.50"
    subject = f"k{key_id('day')}"
    wait_for(lambda: account(product, subject) == (50, COST))
    wait_for(lambda: recorded(product, f"key_id = '{key_id('day')}'") == (50, COST))
    call = product.audit(f"calls/{answer.headers['x-sluice-call-id']}")
    assert call["usage"]["cost_nanousd"] == COST and call["team"] == "red"
    used = product.audit("usage", by="team")["items"]
    assert [item["cost_nanousd"] for item in used if item["team"] == "red"] == [COST]


def test_another_attempt_holds_what_the_first_did_not_take(
    product: Product, replay: Replay
) -> None:
    usual, replay.replies = replay.replies, [Reply(status=503, body=b"{}"), *replay.replies]
    try:
        answer = ask(product.url, "again", body=BODY | {"model": "twice"})
    finally:
        replay.replies = usual
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-sluice-attempts"] == "2"
    wait_for(lambda: account(product, f"k{key_id('again')}") == (50, COST))


def test_refusals_take_nothing_and_say_what_to_do(product: Product) -> None:
    assert [ask(product.url, "few").status_code for _ in range(2)] == [200, 200]
    wait_for(lambda: account(product, f"k{key_id('few')}")[0] == 100)
    for path, name in (
        ("/v1/chat/completions", "x-ratelimit-remaining-tokens"),
        ("/v1/messages", "anthropic-ratelimit-tokens-remaining"),
        ("/v1/responses", "x-ratelimit-remaining-tokens"),
    ):
        body = {**BODY, "stream": True}
        if path == "/v1/responses":
            body = {"model": "m", "input": "hello", "max_output_tokens": 40}
        refused = ask(product.url, "few", path, body)
        error = refused.json()["error"]
        assert refused.status_code == 429, refused.text
        assert (
            "tokens_day of this key is 120 tokens, of which 20 tokens is left" in error["message"]
        )
        assert "it opens again at" in error["message"]
        assert refused.headers["x-sluice-limit"] == "tokens_day"
        assert refused.headers[name] == "20"
        assert 0 < int(refused.headers["retry-after"]) <= 86_400
        if path == "/v1/chat/completions":
            assert error["code"] == "budget_exceeded"
    huge = ask(product.url, "few", body={**BODY, "max_tokens": 500})
    assert "ask for less" in huge.json()["error"]["message"]
    assert huge.headers["x-should-retry"] == "false" and "retry-after" not in huge.headers
    assert account(product, f"k{key_id('few')}")[0] == 100
    where = f"key_id = '{key_id('few')}' AND reason = 'budget_exceeded'"
    wait_for(
        lambda: rows(
            product.database_url, f"SELECT 1 FROM ends JOIN calls USING (call_id) WHERE {where}"
        )
    )
    assert recorded(product, where) == (0, 0)


def test_money_sessions_and_teams(product: Product) -> None:
    assert ask(product.url, "cents").status_code == 200
    wait_for(lambda: account(product, f"k{key_id('cents')}") == (50, COST))
    assert ask(product.url, "cents").status_code == 200
    wait_for(lambda: account(product, f"k{key_id('cents')}") == (100, 2 * COST))
    refused = ask(product.url, "cents")
    assert "usd_day of this key is $0.0015" in refused.json()["error"]["message"]
    unknown = ask(product.url, "cents", body={**BODY, "model": "other"})
    assert unknown.status_code == 403 and unknown.json()["error"]["code"] == "unknown_price"
    in_loop = [ask(product.url, "session", session="loop") for _ in range(5)]
    assert {answer.status_code for answer in in_loop[:2]} == {200}
    assert in_loop[-1].status_code == 429
    assert "begin another session" in in_loop[-1].json()["error"]["message"]
    assert ask(product.url, "session", session="next").status_code == 200
    assert ask(product.url, "session").status_code == 200
    for number in range(6):
        of_team = ask(product.url, ("teamed", "mate")[number % 2])
        assert of_team.headers["x-ratelimit-limit-requests"] == "100"
    wait_for(lambda: account(product, "tblue")[0] == 300)
    assert "of the team 'blue'" in ask(product.url, "mate").json()["error"]["message"]


def test_an_emptied_redis_is_filled_from_the_record_and_drift_heals(product: Product) -> None:
    subject = f"k{key_id('few')}"
    product.redis.delete(layout.account_key(subject))
    assert ask(product.url, "few").status_code == 429
    assert account(product, subject)[0] == 100, "as the record says"
    for field in cast("list[bytes]", product.redis.hkeys(layout.account_key(subject))):
        if field[:1] == b"d":
            product.redis.hincrby(layout.account_key(subject), field.decode(), -60)
    product.redis.sadd(layout.budgets_cold_key(), layout.account_key(subject))
    product.redis.publish(layout.budget_channel(), "")
    wait_for(lambda: account(product, subject)[0] == 100)


def test_old_minutes_do_not_stay(product: Product) -> None:
    assert ask(product.url, "minute").status_code == 200
    name = layout.account_key(f"k{key_id('minute')}")
    assert product.redis.sismember(layout.budget_accounts_key(), name)
    product.redis.hset(name, mapping={"m60000t": 5, "m60000u": 5})
    product.redis.sadd(layout.budgets_cold_key(), name)
    product.redis.publish(layout.budget_channel(), "")
    wait_for(lambda: not product.redis.hexists(name, "m60000t"))
    assert account(product, f"k{key_id('minute')}", "m")[0] >= 50


def test_parallel_requests_of_two_gateways_never_pass_a_limit(product: Product) -> None:
    port = free_port()
    product.start("gateway", port=port)
    together = threading.Barrier(30)

    def one(number: int) -> int:
        together.wait()
        return ask(f"http://127.0.0.1:{(product.port, port)[number % 2]}", "day").status_code

    with ThreadPoolExecutor(30) as pool:
        statuses = Counter(pool.map(one, range(30)))
    assert statuses[200] + statuses[429] == 30 and 8 <= statuses[200] <= 19, statuses
    subject = f"k{key_id('day')}"
    took = 50 * (1 + statuses[200])
    wait_for(lambda: recorded(product, f"key_id = '{key_id('day')}'")[0] == took)
    wait_for(lambda: account(product, subject) == recorded(product, f"key_id = '{key_id('day')}'"))
