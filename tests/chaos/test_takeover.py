"""Processes killed in the middle of calls: another takes over, the stream is whole, the record is
complete."""

import itertools
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from protocol.dialects.table import CLIENTS
from streams import layout
from tests.support.checks.figures import Figure
from tests.support.clients.readers import (
    Reader,
    hold_invariants,
    joined,
    kinds,
    owned_by,
    request,
    under_way,
    words,
)
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Child, Product, base_config, running
from tests.support.waiting import wait_for

WORDS = 100
LEASE_S = 1.0


@pytest.fixture
def product(tmp_path: Path, redis_url: str, database_url: str) -> Iterator[Product]:
    with running(tmp_path, redis_url, database_url, policy=2) as made:
        yield made


def read(product: Product, count: int, *, length: int = WORDS, gap_ms: int = 20) -> list[Reader]:
    """Streams, as many of them in each dialect."""
    return [
        Reader(product.url, request(words(length, gap_ms), dialect), dialect=dialect)
        for dialect in itertools.islice(itertools.cycle(CLIENTS), count)
    ]


def assert_whole(product: Product, readers: list[Reader], *, length: int = WORDS) -> Json:
    """Every stream has all text once and in order; the invariants hold. Returns the records."""
    joined(readers)
    assert [r.text[-60:] for r in readers if not r.has_all(length)] == [], product.logs()
    records = hold_invariants(product, readers)
    assert {r.end[:2] for r in records.values()} == {("ENDED", "complete")}
    return records


def owner_of(product: Product, at_least: int = 1) -> Child:
    return wait_for(
        lambda: next(
            (c for c in product.of("policy") if len(owned_by(product, c.pid)) >= at_least), None
        ),
        what="an owner",
    )


@pytest.mark.case("W1")
def test_w1_kill_9_of_the_owner_in_the_middle_of_streams(product: Product, figure: Figure) -> None:
    readers = read(product, 6)
    victim = owner_of(product, 2)
    under_way(readers, 10)
    taken = owned_by(product, victim.pid)
    victim.kill(signal.SIGKILL)
    records = assert_whole(product, readers)
    assert taken and all("takeover" in kinds(records[c]) for c in taken)
    stall = max(r.longest_s for r in readers if r.call_id in taken)
    figure("longest stall with kill -9 of a policy worker (lease 1 s)", stall, "s")
    # a lease and a second, and what a busy machine does to calls that nobody touched
    assert stall < LEASE_S + 1.0 + max(
        (r.longest_s for r in readers if r.call_id not in taken), default=0.5
    )


@pytest.mark.case("W2")
def test_w2_a_stopped_and_resumed_owner_is_fenced(product: Product, figure: Figure) -> None:
    readers = read(product, 4, length=250)
    victim = owner_of(product)
    under_way(readers)
    taken = owned_by(product, victim.pid)
    victim.kill(signal.SIGSTOP)
    before = {r.call_id: len(r.text) for r in readers}
    try:
        wait_for(lambda: not owned_by(product, victim.pid), what="takeover")
        wait_for(
            lambda: all(len(r.text) > before[r.call_id] + 100 for r in readers),
            what="the other goes on",
        )
    finally:
        victim.kill(signal.SIGCONT)
    records = assert_whole(product, readers, length=250)
    assert taken and all({"takeover", "fenced"} <= kinds(records[c]) for c in taken)
    refused = sum(kind == "fenced" for r in records.values() for kind, _ in r.events)
    # counted: once for each call it had, and for no other
    assert refused == len(taken)
    figure("publishes of a resumed owner that Redis refused", refused, "calls")


@pytest.mark.case("W7")
def test_w7_sigterm_to_half_of_the_workers_under_load(
    tmp_path: Path, redis_url: str, database_url: str, figure: Figure
) -> None:
    with running(tmp_path, redis_url, database_url, policy=6) as product:
        # 500 words a second in all
        readers = read(product, 50, length=50, gap_ms=100)
        under_way(readers)
        victims = sorted(product.of("policy"), key=lambda c: len(owned_by(product, c.pid)))[3:]
        taken = {call for c in victims for call in owned_by(product, c.pid)}
        for victim in victims:
            victim.kill(signal.SIGTERM)
        assert [victim.wait(10) for victim in victims] == [0, 0, 0]
        records = assert_whole(product, readers, length=50)
        assert all("takeover" in kinds(records[c]) for c in taken)
        stalls: dict[bool, list[float]] = {True: [], False: []}
        for reader in readers:
            stalls[reader.call_id in taken].append(reader.longest_s)
        figure("calls handed over by SIGTERM to half of the policy workers", len(taken), "calls")
        figure("longest stall of those", max(stalls[True]), "s")
        figure("longest stall of the other calls", max(stalls[False]), "s")
        # handed over, not left until a lease ends; the others show what the machine does to
        # everybody
        assert max(stalls[True]) < max(stalls[False]) + LEASE_S


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_an_audit_writer_loses_nothing(product: Product, number: signal.Signals) -> None:
    readers = read(product, 4)
    under_way(readers)
    product.of("audit")[0].kill(number)
    product.start("audit")
    assert_whole(product, readers)


@pytest.mark.case("W9")
def test_w9_a_judge_killed_over_a_question_is_replaced_by_the_next_attempt(
    product: Product,
) -> None:
    request = {
        "model": "demo",
        "messages": [{"role": "user", "content": "please list the files"}],
        "tools": [
            {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
        ],
    }
    judge = product.of("judge")[0]
    os.kill(judge.pid, signal.SIGSTOP)
    answers: list[httpx.Response] = []

    def ask() -> None:
        headers = {"authorization": f"Bearer {KEY}"}
        answers.append(
            httpx.post(
                f"{product.url}/v1/chat/completions", json=request, headers=headers, timeout=40
            )
        )

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    store: Any = product.redis
    wait_for(lambda: store.zcard(layout.JUDGE_QUEUE) == 1, what="the question is asked")
    judge.kill(signal.SIGKILL)
    product.start("judge")
    asking.join(30)
    message = answers[0].json()["choices"][0]["message"]
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"command": "ls -la"}


@pytest.mark.case("W9")
def test_w9_without_a_judge_the_call_is_blocked_at_its_deadline(
    tmp_path: Path, redis_url: str, database_url: str
) -> None:
    config = base_config()
    config["limits"] |= {"judge_s": 2.0}
    with running(tmp_path, redis_url, database_url, config) as product:
        (judge,) = product.of("judge")
        os.kill(judge.pid, signal.SIGSTOP)
        try:
            reader = Reader(
                product.url, request("please list the files", tool=True), policy="default"
            )
            joined([reader])
            assert "tool_calls" not in reader.received.decode() and "Sluice blocked" in reader.text
        finally:
            os.kill(judge.pid, signal.SIGCONT)
        store: Any = product.redis
        wait_for(
            lambda: store.zcard(layout.JUDGE_QUEUE) == 0,
            what="the late judge takes the question off the queue",
        )
        records = hold_invariants(product, [reader])
        assert [t["verdict"] for t in records[reader.call_id].tools] == ["block"]


def test_sigterm_to_a_judge_under_load_loses_no_call(product: Product) -> None:
    readers = [
        Reader(product.url, request("please list the files", tool=True), policy="default")
        for _ in range(30)
    ]
    wait_for(lambda: any(r.status for r in readers), what="answers")
    product.start("judge")
    old = product.of("judge")[0]
    old.kill(signal.SIGTERM)
    assert old.wait(10) == 0
    joined(readers)
    assert [r.received for r in readers if "tool_calls" not in r.received.decode()] == []
    hold_invariants(product, readers)
