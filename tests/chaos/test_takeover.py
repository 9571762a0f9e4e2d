"""Processes killed in the middle of calls: another takes over, the stream is whole, the record is complete."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import redis

from streams import layout
from tests.support.product import KEY, Product, parse_sse, running
from tests.support.waiting import wait_for

WORDS = 100


def body(words: int = WORDS) -> dict[str, Any]:
    return {"model": "demo", "stream": True, "messages": [{"role": "user", "content": f"long {words} slowly, with a gap 20 ms"}]}


class Reader(threading.Thread):
    """A client that reads one stream and remembers what came and the longest silence."""

    def __init__(self, product: Product, words: int = WORDS) -> None:
        super().__init__(daemon=True)
        self.product, self.words = product, words
        self.received, self.call_id, self.longest_s, self.failure = b"", "", 0.0, ""
        self.start()

    def run(self) -> None:
        try:
            with httpx.stream(
                "POST",
                f"{self.product.url}/v1/chat/completions",
                json=body(self.words),
                headers={"authorization": f"Bearer {KEY}", "x-sluice-policy": "noop"},
                timeout=40,
            ) as answer:
                self.call_id = answer.headers.get("x-sluice-call-id", "")
                last = time.monotonic()
                for data in answer.iter_raw():
                    now = time.monotonic()
                    self.longest_s, last = max(self.longest_s, now - last), now
                    self.received += data
        except Exception as error:  # noqa: BLE001 - the test reads it
            self.failure = repr(error)

    @property
    def frames(self) -> list[dict[str, Any]]:
        return parse_sse(self.received)

    @property
    def text(self) -> str:
        return "".join(f["choices"][0]["delta"].get("content") or "" for f in self.frames if f.get("choices"))


@pytest.fixture
def product(tmp_path: Path, redis_url: str, database_url: str) -> Iterator[Product]:
    with running(tmp_path, redis_url, database_url, policy=2) as made:
        yield made


def owners(product: Product) -> dict[str, list[str]]:
    """Call ids by the policy worker that has them."""
    store: redis.Redis[Any] = product.redis  # type: ignore[type-arg]
    found: dict[str, list[str]] = {}
    entries: Any = store.xrange(layout.dispatch_key(0))
    calls = {entry: fields[b"c"].decode() for entry, fields in entries}
    pending: Any = store.xpending_range(layout.dispatch_key(0), "policy", "-", "+", 100)
    for item in pending:
        if item["message_id"] in calls:
            found.setdefault(item["consumer"].decode(), []).append(calls[item["message_id"]])
    return found


def owned_by(product: Product, pid: int) -> list[str]:
    return [call for name, calls in owners(product).items() if name.endswith(f"-{pid}") for call in calls]


def assert_whole(product: Product, reader: Reader) -> None:
    """I1 to I5 for one call: all text once and in order, one terminal on the wire, and a record of every chunk and release."""
    assert not reader.failure and reader.text == "".join(f"word{n} " for n in range(1, reader.words + 1)), (
        f"{reader.failure}\n{reader.text[-80:]}\n{product.logs()}"
    )
    assert reader.received.count(b"data: [DONE]") == 1
    call = wait_for(lambda: ended(product, reader.call_id), timeout_s=15, what="terminal record")
    assert (call["state"], call["reason"]) == ("ENDED", "complete")
    # entries that a dead audit writer held are taken over after five seconds
    wait_for(lambda: chunks(product, reader.call_id) == list(range(1, reader.words + 4)), timeout_s=15, what="every chunk on record")


def chunks(product: Product, call_id: str) -> list[int]:
    return [c["seq"] for c in product.audit(f"calls/{call_id}/chunks", limit=500)["items"]]


def ended(product: Product, call_id: str) -> dict[str, Any] | None:
    items = product.audit("calls", call_id=call_id)["items"]
    return items[0] if items and items[0]["ended_at"] else None


def no_pending_calls(product: Product) -> bool:
    store: Any = product.redis
    return bool(store.xlen(layout.dispatch_key(0)) == 0 and store.xpending(layout.dispatch_key(0), "policy")["pending"] == 0)


def keys_without_ttl(product: Product) -> list[str]:
    permanent = {layout.dispatch_key(0), layout.audit_key(0), layout.WORKERS_KEY}
    store: Any = product.redis
    return [k.decode() for k in store.keys("*") if k.decode() not in permanent and store.ttl(k) == -1]


def test_kill_9_of_the_owner_in_the_middle_of_streams(product: Product) -> None:
    readers = [Reader(product) for _ in range(6)]
    victim = wait_for(lambda: next((c for c in product.of("policy") if len(owned_by(product, c.pid)) >= 2), None), what="calls")
    wait_for(lambda: all(len(r.frames) > 10 for r in readers), what="streams under way")
    taken = owned_by(product, victim.pid)
    victim.kill(signal.SIGKILL)
    for reader in readers:
        reader.join(30)
    assert taken
    for reader in readers:
        assert_whole(product, reader)
        if reader.call_id in taken:
            kinds = {e["kind"] for e in product.audit(f"calls/{reader.call_id}")["events"]}
            assert "takeover" in kinds
    # lease 1 s: takeover within lease + 1 s
    assert max(r.longest_s for r in readers) < 2.5
    wait_for(lambda: no_pending_calls(product), what="nothing pending")
    assert keys_without_ttl(product) == []


def test_a_stopped_and_resumed_owner_is_fenced(product: Product) -> None:
    reader = Reader(product, 200)
    victim = wait_for(lambda: next((c for c in product.of("policy") if owned_by(product, c.pid)), None), what="an owner")
    wait_for(lambda: len(reader.frames) > 5, what="the stream is under way")
    os.kill(victim.pid, signal.SIGSTOP)
    before = len(reader.text)
    try:
        wait_for(lambda: not owned_by(product, victim.pid), timeout_s=10, what="takeover")
        wait_for(lambda: len(reader.text) > before + 100, what="the other goes on")
    finally:
        os.kill(victim.pid, signal.SIGCONT)
    reader.join(30)
    assert_whole(product, reader)
    kinds = wait_for(
        lambda: {e["kind"] for e in product.audit(f"calls/{reader.call_id}")["events"]} & {"fenced"},
        timeout_s=10,
        what="the zombie is refused",
    )
    assert kinds == {"fenced"}


def test_sigterm_hands_calls_over_at_once(product: Product) -> None:
    readers = [Reader(product) for _ in range(4)]
    wait_for(lambda: all(len(r.frames) > 5 for r in readers), what="streams under way")
    victim = product.of("policy")[0]
    victim.kill(signal.SIGTERM)
    assert victim.wait(10) == 0
    for reader in readers:
        reader.join(30)
        assert_whole(product, reader)
    assert max(r.longest_s for r in readers) < 1.0


def test_kill_9_of_the_audit_writer_loses_nothing(product: Product) -> None:
    readers = [Reader(product) for _ in range(4)]
    wait_for(lambda: all(len(r.frames) > 5 for r in readers), what="streams under way")
    product.of("audit")[0].kill(signal.SIGKILL)
    product.start("audit")
    for reader in readers:
        reader.join(30)
        assert_whole(product, reader)


def test_kill_9_of_the_gateway_ends_its_calls_in_the_record(product: Product) -> None:
    reader = Reader(product)
    wait_for(lambda: len(reader.frames) > 5, what="the stream is under way")
    call_id = next(call for calls in owners(product).values() for call in calls)
    product.of("gateway")[0].kill(signal.SIGKILL)
    reader.join(30)
    product.start("gateway")
    call = wait_for(lambda: ended(product, call_id), timeout_s=30, what="the call is closed")
    assert call["reason"] == "gateway_lost"
    wait_for(lambda: no_pending_calls(product), what="nothing pending")


def test_a_judge_killed_over_a_question_is_replaced_by_the_next_attempt(product: Product) -> None:
    request = {
        "model": "demo",
        "messages": [{"role": "user", "content": "please list the files"}],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
    }
    judge = product.of("judge")[0]
    os.kill(judge.pid, signal.SIGSTOP)
    answers: list[httpx.Response] = []

    def ask() -> None:
        headers = {"authorization": f"Bearer {KEY}"}
        answers.append(httpx.post(f"{product.url}/v1/chat/completions", json=request, headers=headers, timeout=40))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    store: Any = product.redis
    wait_for(lambda: store.zcard(layout.JUDGE_QUEUE) == 1, what="the question is asked")
    judge.kill(signal.SIGKILL)
    product.start("judge")
    asking.join(30)
    message = answers[0].json()["choices"][0]["message"]
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"command": "ls -la"}
