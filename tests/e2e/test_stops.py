"""Processes told to stop while calls run, all of a role or all of all roles at once: every call
goes on to its end."""

import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.support.clients.readers import Reader, hold_invariants, joined, owned_by, under_way
from tests.support.clients.sdk_calls import tool
from tests.support.json_values import Json
from tests.support.servers.product import Product, Role
from tests.support.upstreams.product import config, replayed
from tests.support.upstreams.replay import Replay, stream
from tests.support.upstreams.turns import streamed

pytestmark = pytest.mark.timeout(120)
CALLS, WORDS, GAP_S = 24, 40, 0.05
ROLES: tuple[Role, ...] = ("gateway", "policy", "judge", "audit")
MODEL = "claude-sonnet-4-5"


def made(replay: Replay) -> Json:
    base = config(replay)
    return base | {
        "policies": (
            base["policies"]
            | {"default": [{"use": "tool_judge", "model": "demo-judge", "threshold": 0.6}]}
        )
    }


def running_calls(product: Product, replay: Replay, count: int = CALLS) -> list[Reader]:
    """Calls under way: some seconds of text, then a tool call that needs a judge and a commit."""
    text = [{"type": "text", "text": f"word{n} "} for n in range(1, WORDS + 1)]
    content: list[Json] = [
        *text,
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"city": "Paris"}},
    ]
    about = {
        "role": "assistant",
        "model": MODEL,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
    replay.answer(
        stream(b"".join(streamed(content, "tool_use", about=about)), cutting="events", gap_s=GAP_S)
    )
    body = {
        "model": MODEL,
        "stream": True,
        "tools": [tool("openai", "f", city="string")],
        "messages": [{"role": "user", "content": "go"}],
    }
    readers = [Reader(product.url, body, policy="default") for _ in range(count)]
    under_way(readers)
    return readers


def all_whole(readers: Sequence[Reader], product: Product) -> None:
    joined(readers)
    for reader in readers:
        finishes = [f["choices"][0].get("finish_reason") for f in reader.frames if f.get("choices")]
        assert reader.has_all(WORDS) and finishes[-1] == "tool_calls", (
            reader.text[-40:] + product.logs()
        )


def stop(product: Product, roles: Sequence[Role], *, apart_s: float = 0.0) -> None:
    """SIGTERM to every process of these roles, one role after the other."""
    for role in roles:
        for child in product.of(role):
            child.kill(signal.SIGTERM)
        time.sleep(apart_s)


def all_gone(product: Product, within_s: float) -> None:
    until = time.monotonic() + within_s
    assert [child.wait(max(0.1, until - time.monotonic())) for child in product.children] == [
        0
    ] * len(product.children), product.logs()


@pytest.mark.parametrize("role", ["policy", "judge", "audit"])
@pytest.mark.slow
def test_all_workers_of_a_role_stop_at_once_and_no_call_ends_early(
    tmp_path: Path, redis_url: str, database_url: str, role: Role
) -> None:
    with replayed(tmp_path, redis_url, database_url, made) as (product, replay):
        product.start(role)
        readers = running_calls(product, replay)
        stopped = product.of(role)
        stop(product, [role])
        all_whole(readers, product)
        assert [child.wait(10) for child in stopped] == [0, 0]
        product.start(role)
        assert {end.end[:2] for end in hold_invariants(product, readers).values()} == {
            ("ENDED", "complete")
        }


@pytest.mark.slow
def test_a_worker_that_was_left_calls_and_is_told_to_stop_before_it_took_them_loses_none(
    tmp_path: Path, redis_url: str, database_url: str
) -> None:
    with replayed(tmp_path, redis_url, database_url, made) as (product, replay):
        first = product.of("policy")[0]
        (second,) = product.start("policy")
        # it stands still as a worker that the first one sees alive: what it is left waits
        second.kill(signal.SIGSTOP)
        time.sleep(0.6)
        readers = running_calls(product, replay, 4)
        first.kill(signal.SIGTERM)
        time.sleep(0.3)
        second.kill(signal.SIGKILL)
        all_whole(readers, product)
        assert first.wait(10) == 0


def test_whoever_is_told_to_stop_while_nothing_runs_is_gone_at_once(
    tmp_path: Path, redis_url: str, database_url: str
) -> None:
    with replayed(tmp_path, redis_url, database_url, made) as (product, _):
        for child in product.children:
            child.kill(signal.SIGTERM)
            child.kill(signal.SIGTERM)
        all_gone(product, 15)


def orders(seed: int) -> list[tuple[Role, ...]]:
    """The order of compose, the opposite, and one by chance."""
    chance = cast(tuple[Role, ...], tuple(random.Random(seed).sample(ROLES, len(ROLES))))
    return [ROLES, ROLES[::-1], chance]


@pytest.mark.slow
@pytest.mark.parametrize("apart_s", [0.0, 0.4])
@pytest.mark.parametrize("which", range(3))
def test_all_roles_stop_and_all_calls_complete(
    tmp_path: Path, redis_url: str, database_url: str, seed: int, which: int, apart_s: float
) -> None:
    with replayed(tmp_path, redis_url, database_url, made) as (product, replay):
        product.start("policy", "audit", "judge")
        readers = running_calls(product, replay)
        stop(product, orders(seed)[which], apart_s=apart_s)
        all_whole(readers, product)
        all_gone(product, 30)
        assert {end.end[:2] for end in hold_invariants(product, readers).values()} == {
            ("ENDED", "complete")
        }


@pytest.mark.slow
def test_workers_are_replaced_one_by_one_and_no_call_ends(
    tmp_path: Path, redis_url: str, database_url: str
) -> None:
    with replayed(tmp_path, redis_url, database_url, made) as (product, replay):
        old = product.of("policy") + product.start("policy")
        readers = running_calls(product, replay)
        taken = [call for child in old for call in owned_by(product, child.pid)]
        product.start("policy", "policy")
        for child in old:
            child.kill(signal.SIGTERM)
            assert child.wait(20) == 0
        all_whole(readers, product)
        records = hold_invariants(product, readers)
        assert taken and {end.end[:2] for end in records.values()} == {("ENDED", "complete")}
