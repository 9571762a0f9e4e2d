"""What a gateway looks at beside its calls goes on, whatever Redis answers: its end would be that
of every call."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from gateway import main, policy_sets, ready_and_metrics
from gateway.policy_sets import PolicySets
from gateway.ready_and_metrics import Status
from streams.identity import Identity
from streams.metrics import ProcessFigures
from tests.support.waiting import wait_until


class Spoilt:
    """A Redis whose every answer has a changed byte."""

    def __init__(self) -> None:
        self.asked = 0

    async def call(self, command: str, *args: object) -> Any:
        """Answer."""
        self.asked += 1
        return {"HGETALL": [b"policy:w", b"17x"], "TIME": [b"1", b"2"], "XLEN": b"+", "GET": 7}.get(
            command
        )

    def quiet(self, said: Coroutine[Any, Any, Any]) -> None:
        """Forget an answer."""
        said.close()


def looks_at_sets(redis: Any) -> Coroutine[Any, Any, None]:
    return PolicySets(redis, "g", ("0123456789ab",)).watch()


def looks_at_backlog(redis: Any) -> Coroutine[Any, Any, None]:
    async def nothing() -> bool:
        return False

    async def lacking() -> tuple[int, int]:
        return 0, 0

    bus: Any = SimpleNamespace(redis=redis, shards=1, calls={}, figures=ProcessFigures())
    return Status(bus).watch(nothing, lacking)


def looks_at_identity(redis: Any) -> Coroutine[Any, Any, None]:
    async def mine(known: int | None, run_id: str) -> tuple[str, int | None]:
        return "mine", 0

    return main._watch_identity(Identity(redis, mine))


@pytest.mark.parametrize("watch", [looks_at_sets, looks_at_backlog, looks_at_identity])
async def test_an_answer_that_is_none_ends_no_watch(
    watch: Callable[[Any], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (
        (policy_sets, "LOOK_S"),
        (ready_and_metrics, "SCHEMA_S"),
        (main, "IDENTITY_S"),
    ):
        monkeypatch.setattr(module, name, 0.01)
    redis = Spoilt()
    watching = asyncio.create_task(watch(redis))
    await wait_until(lambda: redis.asked > 3 or watching.done())
    assert not watching.done()
    watching.cancel()
