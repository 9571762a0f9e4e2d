"""What happens when something is slow or silent: keepalives, activity timeout, commits that do not
come, clients that leave."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.json_values import Json
from tests.support.servers.product import CLIENT_KEY, KEY, Product, base_config, parse_sse, running
from tests.support.servers.stores import Stores
from tests.support.waiting import wait_for

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
HEADERS = {"authorization": f"Bearer {KEY}", "x-sluice-policy": "noop"}


@pytest.fixture(scope="module")
def product(stores: Stores) -> Iterator[Product]:
    config = base_config()
    config["limits"] |= {"keepalive_s": 0.4, "commit_s": 1.0, "output_bytes": 200_000}
    with running(*stores, config) as made:
        yield made


def post(
    product: Product, words: str, *, path: str = "chat/completions", **changes: Any
) -> httpx.Response:
    body = {
        "model": "demo",
        "stream": True,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": words}],
        **changes,
    }
    return httpx.post(f"{product.url}/v1/{path}", json=body, headers=HEADERS, timeout=30)


def end_of(product: Product, call_id: str) -> Json:
    def ended() -> Json | None:
        items = product.audit("calls", call_id=call_id)["items"]
        return items[0] if items and items[0]["ended_at"] else None

    return wait_for(ended, timeout_s=15, what="terminal record")


@pytest.mark.slow
def test_a_silent_upstream_shows_life_in_the_clients_dialect(product: Product) -> None:
    signs = {"chat/completions": ": keepalive", "messages": "event: ping"}
    with ThreadPoolExecutor() as clients:
        answers = clients.map(
            lambda path: post(product, "long 3 slowly, with a gap 900 ms", path=path).text, signs
        )
        for (path, sign), text in zip(signs.items(), answers, strict=True):
            assert text.count(sign) >= 2 and "word3" in text, path


@pytest.mark.slow
def test_a_key_has_its_own_time_until_a_keepalive(
    tmp_path: Path, redis_url: str, database_url: str
) -> None:
    config = base_config()
    config["limits"] |= {"keepalive_s": 20.0}
    config["keys"][0]["keepalive_s"] = 5
    # a policy set of its own: workers of the other product have other limits
    config["policies"]["here"] = [{"use": "noop"}]
    with running(tmp_path, redis_url, database_url, config) as product:
        body = {
            "model": "demo",
            "stream": True,
            "messages": [{"role": "user", "content": "long 1 slowly, with a gap 7000 ms"}],
        }

        def keepalives(key: str) -> int:
            headers = {"authorization": f"Bearer {key}"}
            return httpx.post(
                f"{product.url}/v1/chat/completions", json=body, headers=headers, timeout=30
            ).text.count(": keepalive")

        with ThreadPoolExecutor() as clients:
            sooner, later = clients.map(keepalives, (KEY, CLIENT_KEY))
    assert sooner >= 1 and later == 0


@pytest.mark.slow
def test_silent_workers_end_the_call_with_an_error_frame(product: Product) -> None:
    (worker,) = product.of("policy")
    body = {
        "model": "demo",
        "stream": True,
        "messages": [{"role": "user", "content": "long 500 slowly, with a gap 20 ms"}],
    }
    headers = HEADERS | {"x-sluice-timeout-s": "1.5"}
    received = b""
    try:
        with httpx.stream(
            "POST", f"{product.url}/v1/chat/completions", json=body, headers=headers, timeout=30
        ) as answer:
            call_id = answer.headers["x-sluice-call-id"]
            for data in answer.iter_raw():
                if not received:
                    os.kill(worker.pid, signal.SIGSTOP)
                received += data
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    assert parse_sse(received)[-1]["error"]["code"] == "stream_timeout"
    assert b"[DONE]" not in received
    assert end_of(product, call_id)["reason"] == "stream_timeout"


def test_output_past_the_limit_ends_the_call(product: Product) -> None:
    answer = post(product, "long 20000")
    assert "error" in parse_sse(answer.content)[-1]
    assert end_of(product, answer.headers["x-sluice-call-id"])["state"] == "FAILED"


@pytest.mark.slow
@pytest.mark.case("D2")
def test_without_an_audit_writer_text_flows_and_tool_calls_are_blocked(
    product: Product, tmp_path: Path
) -> None:
    (writer,) = product.of("audit")
    os.kill(writer.pid, signal.SIGSTOP)
    try:
        assert "demo model" in "".join(
            f["choices"][0]["delta"].get("content") or ""
            for f in parse_sse(post(product, "hello").content)
        )
        answer = post(product, "please list the files", tools=[BASH])
        text = "".join(
            f["choices"][0]["delta"].get("content") or "" for f in parse_sse(answer.content)
        )
        assert "it could not be recorded in time" in text and "tool_calls" not in answer.text
    finally:
        os.kill(writer.pid, signal.SIGCONT)
    call_id = answer.headers["x-sluice-call-id"]

    def call() -> Any:
        return next(iter(product.audit("tool-calls", call_id=call_id)["items"]), None)

    record = wait_for(call, timeout_s=15, what="the record catches up")
    wait_for(lambda: call()["verdict"] == "block", what="the verdict that counted")
    assert (call()["reason"], record["arguments"], call()["released_arguments"]) == (
        "audit_unavailable",
        '{"command": "ls -la"}',
        None,
    )
