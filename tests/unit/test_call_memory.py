"""What large tool arguments take of a worker's memory while they are decided, recorded and
released; and that none of it stays."""

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from policy.builtin.tool_rules import ToolRules
from policy.session.session import Session
from settings.config import Config
from settings.limits import Limits
from streams import layout
from streams.connection import Connection
from streams.layout import Entry
from tests.support.checks.owned_calls import BODY, START, fragment
from tests.support.worker_calls import call_info, owned
from workers.policy.call_facts import FactWatcher
from workers.policy.release import Releaser

SIZE, TOGETHER = 2 * 2**20, 32
"""Bytes of the arguments, and fragments that come together."""
RULES = ToolRules(deny=[{"argument_matches": "rm -rf"}])


class Wire:
    """Says yes to every release, and keeps nothing."""

    def put(self, _: bytes, future: "asyncio.Future[Any] | None") -> None:
        if future is not None:
            future.set_result([b"OK"])

    def put_batch(self, _: list[bytes], __: int, future: "asyncio.Future[Any]") -> None:
        future.set_result([b"OK"])

    def flush(self) -> None:
        pass


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def entries(piece: str) -> list[bytes]:
    """The entries of a call with arguments of about `SIZE` bytes, which come in pieces."""
    pieces = ['{"a": "', *[piece] * (SIZE // len(piece)), '"}']
    chunks = [fragment(text, first=number == 0) for number, text in enumerate(pieces)]
    chunks.append(
        b'data: {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason":'
        b' "tool_calls"}]}\n\n'
    )
    chunks.append(b"data: [DONE]\n\n")
    return [
        layout.pack(Entry(at + 1, 1, "chunks", chunks[at : at + TOGETHER]))
        for at in range(0, len(chunks), TOGETHER)
    ]


async def take_through(blobs: list[bytes], monkeypatch: pytest.MonkeyPatch) -> str:
    """Decide, record, commit and release a call; returns the state in which it ended."""
    nobody: Any = None
    redis = Connection("redis://nobody", name="test")
    monkeypatch.setattr(redis, "_protocol", Wire())
    calls: Any = SimpleNamespace(owns=lambda _: True, spawn=lambda *_: None)
    uncounted: Any = SimpleNamespace(add=lambda shard, key, size: None)
    releaser = Releaser(redis, calls, uncounted, max_reply=10, strict=False)
    facts = FactWatcher(redis, nobody, nobody, nobody, nobody, Limits(), calls, nobody)
    info = call_info(START.call_id, durable=True, max_arguments_bytes=2 * SIZE)
    call = owned(START, Session(info, [RULES], Config()))
    call.begin(BODY)
    for blob in blobs:
        call.feed_entry(layout.unpack_entry(blob))
        facts.wait_for(call)
        releaser.add(call)
        while call.queue.is_waiting or call.queue.sending:
            await asyncio.sleep(0)
    assert call.waits.open_commits
    for block in list(call.waits.open_commits):
        call.feed_fact(layout.commit_field(block), b"1", 1)
    releaser.add(call)
    while call.queue.is_waiting or call.queue.sending:
        await asyncio.sleep(0)
    assert not call.is_broken
    return call.session.state


@pytest.mark.parametrize(("length", "most"), [(512, 5.5), (SIZE, 6.5)])
async def test_large_arguments_live_in_few_copies(
    length: int, most: float, no_collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are counted: msgspec asks for half as much again as it writes, which no page is taken
    for."""
    blobs = entries("y" * length)
    await take_through(blobs, monkeypatch)  # what is loaded with the first
    tracemalloc.start()
    try:
        assert await take_through(blobs, monkeypatch) == "ENDED"
        left, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most * SIZE
    # neither a timer nor a cycle keeps a call that has ended: the collector may not come for a long
    # time
    assert left < SIZE / 4
