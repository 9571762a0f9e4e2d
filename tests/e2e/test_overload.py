"""Past a stated bound a call is refused in its dialect before anything is paid for, and served
again once there is room."""

import threading
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from protocol.request import DialectName
from streams import layout
from tests.e2e.conftest import configured
from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY, Product, Role
from tests.support.upstreams.replay import Replay, Reply
from tests.support.waiting import wait_for

DIALECTS: list[DialectName] = ["openai", "anthropic"]
ANSWER = as_json(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
)


def ask(
    product: Product, dialect: DialectName, model: str = "claude-x", words: str = "hello"
) -> httpx.Response:
    path = "/v1/messages" if dialect == "anthropic" else "/v1/chat/completions"
    body = {"model": model, "max_tokens": 10, "messages": [{"role": "user", "content": words}]}
    head = {"authorization": f"Bearer {KEY}", "x-sluice-policy": "noop"}
    return httpx.post(product.url + path, json=body, headers=head, timeout=30)


def overloaded(answer: httpx.Response, dialect: DialectName, says: str) -> None:
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    error = answer.json()["error"]
    assert says in error["message"]
    if dialect == "anthropic":
        assert answer.json()["type"] == "error" and error["type"] == "overloaded_error"
    else:
        assert error["type"] == "api_error" and error["code"] in ("overloaded", "no_worker")


def begin(
    folder: Path,
    redis_url: str,
    database_url: str,
    server: Replay,
    limits: Json,
    *roles: Role,
) -> Product:
    config = configured(server)
    config["limits"] |= limits
    product = Product(folder, redis_url, database_url, config)
    product.__enter__()
    product.start(*roles)
    return product


@pytest.mark.slow
@pytest.mark.case("D3")
def test_the_record_is_too_far_behind(
    tmp_path: Path, redis_url: str, database_url: str, upstream: Replay
) -> None:
    upstream.answer(Reply(ANSWER))
    product = begin(
        tmp_path, redis_url, database_url, upstream, {"backlog": 1}, "gateway", "policy"
    )
    try:
        served = ask(product, "openai")
        assert served.status_code == 200
        upstream.answer(Reply(ANSWER))
        for dialect in DIALECTS:
            overloaded(ask(product, dialect), dialect, "record")
        assert upstream.asked == []
        product.start("audit")
        wait_for(lambda: ask(product, "openai").status_code == 200, what="room again")
        found = wait_for(
            lambda: product.audit("calls", call_id=served.headers["x-sluice-call-id"])["items"],
            what="the call on record",
        )
        wait_for(
            lambda: (
                found[0]["ended_at"]
                or product.audit("calls", call_id=found[0]["call_id"])["items"][0]["ended_at"]
            ),
            what="its end",
        )
    finally:
        product.stop()


@pytest.mark.slow
def test_a_gateway_has_as_many_calls_as_it_may(
    tmp_path: Path, redis_url: str, database_url: str, upstream: Replay
) -> None:
    product = begin(
        tmp_path, redis_url, database_url, upstream, {"open_calls": 1}, "gateway", "policy", "audit"
    )
    try:
        first: list[httpx.Response] = []
        slow = threading.Thread(
            target=lambda: first.append(ask(product, "openai", "demo", "wait 2 seconds")),
            daemon=True,
        )
        slow.start()
        store: Any = product.redis
        wait_for(lambda: store.xlen(layout.dispatch_key(0)) == 1, what="the first call")
        for dialect in DIALECTS:
            overloaded(ask(product, dialect), dialect, "limit for open calls")
        slow.join(20)
        assert first[0].status_code == 200
        assert upstream.asked == []
    finally:
        product.stop()
