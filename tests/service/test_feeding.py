"""What calls are fed with comes from the loop and from the lane; only one of them is ever in a
call's session."""

import asyncio
import threading
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from policy.base import AskJudge, Judgement, JudgeQuestion, Policy, ToolCall, Verdict
from policy.session.choosing import session_of
from policy.session.effects import SendUpstream
from policy.session.session import Session
from protocol.bounds import HEAVY_BYTES, LARGE_STEP_BYTES
from protocol.dialects.table import CLIENTS
from settings.config import Config
from streams import layout
from streams.connection import Connection
from streams.layout import Entry
from tests.support.checks import blocked
from tests.support.checks.deferred import CONFIG, TOOLS, Critical
from tests.support.checks.owned_calls import BODY, START
from tests.support.checks.start_records import chunk
from tests.support.json_values import as_json
from tests.support.worker_calls import call_info, owned, start_of
from workers.cpu_lane import Lane
from workers.policy.call.owned import OwnedCall
from workers.policy.fair import FairQueue
from workers.policy.feeding import Feeder
from workers.policy.release import Releaser

CALLED = {
    "index": 0,
    "id": "c",
    "type": "function",
    "function": {"name": "bash", "arguments": "{}"},
}
UNCOUNTED: Any = SimpleNamespace(add=lambda shard, key, size: None)
LATE = b'{"error":"invalid","prompt":"' + b"x" * LARGE_STEP_BYTES + b'"}'


INSIDE, GO_ON = threading.Event(), threading.Event()


class Slow(Policy):
    """Its decision on a judgement takes until it is told to go on."""

    asks = True

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return AskJudge(JudgeQuestion("m", "s", "p", "n", 0.5, None, {}))

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        INSIDE.set()
        assert GO_ON.wait(10)
        return super().on_judgement(call, judgement)


def begun(redis: Connection) -> tuple[OwnedCall, Feeder]:
    """A call of a slow policy, and who feeds it."""
    INSIDE.clear()
    GO_ON.clear()
    info = call_info(START.call_id, max_arguments_bytes=1000)
    call = owned(START, Session(info, [Slow()], Config()))
    call.begin(BODY)
    calls: Any = SimpleNamespace(
        owns=lambda _: True,
        is_over=lambda one: one.is_ending,
        after=lambda _: None,
        close=lambda *_: None,
    )
    return call, _feeder(redis, calls)


def _feeder(redis: Connection, calls: Any) -> Feeder:
    releaser = Releaser(redis, calls, UNCOUNTED, max_reply=1000, strict=False)
    return Feeder(redis, redis, Lane(blocked_s=60), releaser, calls, FairQueue())


async def test_what_was_read_waits_for_a_large_fact(redis: Connection) -> None:
    call, feeder = begun(redis)
    assert call.feed_entry(
        Entry(1, 1, "chunks", [chunk({"tool_calls": [CALLED]}), chunk({}, "tool_calls")])
    )
    [field] = call.waits.open_asks
    await redis.call("XADD", call.call_key, "3-0", layout.BLOB, layout.pack(Entry(3, 1, "eof", [])))
    reading = asyncio.create_task(feeder.read(call))
    # the read is under way when the fact comes to the lane
    await asyncio.sleep(0)
    feeding = asyncio.create_task(feeder.feed(call, field, LATE))
    while not INSIDE.is_set():
        await redis.call("PING")
    for _ in range(3):
        # answered behind the read
        await redis.call("PING")
    taken = call.inbox.expected
    GO_ON.set()
    await asyncio.gather(reading, feeding)
    assert (taken, call.inbox.expected) == (3, 4)


async def test_a_step_that_waited_is_not_taken_for_a_call_that_ends(redis: Connection) -> None:
    """Its records are being written."""
    call, feeder = begun(redis)
    calls = [
        chunk({"tool_calls": [CALLED]}),
        chunk({"tool_calls": [{**CALLED, "index": 1, "id": "d"}]}),
        chunk({}, "tool_calls"),
    ]
    assert call.feed_entry(Entry(1, 1, "chunks", calls))
    first, second = call.waits.open_asks
    async with feeder.lane.turn("other"), feeder.lane.turn("other"):
        feeding = [asyncio.create_task(feeder.feed(call, field, LATE)) for field in (first, second)]
        # both are free to go on, but for their turns
        await redis.call("PING")
    while not INSIDE.is_set():
        await redis.call("PING")
    call.end()
    GO_ON.set()
    await asyncio.gather(*feeding)
    assert list(call.waits.facts) == [first]


async def test_a_key_that_is_held_gets_no_turn_on_the_lane(redis: Connection) -> None:
    """Large steps write the most records."""
    call, feeder = begun(redis)
    assert call.feed_entry(
        Entry(1, 1, "chunks", [chunk({"tool_calls": [CALLED]}), chunk({}, "tool_calls")])
    )
    [field] = call.waits.open_asks
    GO_ON.set()
    feeder._fair.hold(["k"])
    feeding = asyncio.create_task(feeder.feed(call, field, LATE))
    async with feeder.lane.turn("other"):
        await redis.call("PING")
    assert not INSIDE.is_set() and not feeding.done()
    feeder._fair.hold([])
    await feeding
    assert INSIDE.is_set() and list(call.waits.facts) == [field]


@pytest.mark.parametrize("way", ["stream", "together", "broken", "body"])
async def test_a_large_request_is_written_again_beside_the_loop(
    redis: Connection, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the step is that decides about the turn, without a judge or a commit to wait for."""
    read: list[bool] = []
    decode = type(CLIENTS["openai"]).decode_request

    def noted(self: Any, *given: Any, **more: Any) -> Any:
        read.append(threading.current_thread() is threading.main_thread())
        return decode(self, *given, **more)

    monkeypatch.setattr(type(CLIENTS["openai"]), "decode_request", noted)
    messages = [{"role": "user", "content": "x" * HEAVY_BYTES}]
    body = as_json(
        {"model": "gpt-x", "stream": way != "body", "messages": messages, "tools": TOOLS["openai"]}
    )
    start = msgspec.structs.replace(
        START, call_id=layout.new_call_id(), body_sha256=sha256(body).digest()
    )
    info = call_info(start.call_id)
    session = session_of(info, [Critical("gpt-trusted")], CONFIG)
    call = owned(start, session)
    calls: Any = SimpleNamespace(
        owns=lambda _: True,
        is_over=lambda one: one.is_ending,
        after=lambda _: None,
        close=lambda *_: None,
    )
    feeder = _feeder(redis, calls)
    await redis.call("SET", layout.body_key(call.id), body)
    function = {"name": "deploy", "arguments": "{}"}
    called = {"index": 0, "id": "c", "type": "function", "function": function}
    whole = {
        "index": 0,
        "message": {"role": "assistant", "tool_calls": [called]},
        "finish_reason": "tool_calls",
    }
    chunks = [
        chunk({"content": "I deploy."}),
        chunk({"tool_calls": [called]}),
        chunk({}, "tool_calls"),
        b"data: [DONE]\n\n",
    ]
    ways: dict[str, list[Any]] = {
        "stream": [*([one] for one in chunks), Entry(5, 1, "eof", [])],
        "together": [chunks, Entry(5, 1, "eof", [])],
        "broken": [chunks, Entry(5, 1, "failed", [], 0, "upstream_timeout")],
        "body": [Entry(1, 1, "body", [as_json({"id": "x", "model": "m", "choices": [whole]})])],
    }
    await feeder.begin_large(call)
    assert call.inbox.from_stream is (way == "body")
    seq = 1
    for one in ways[way]:
        entry = one if isinstance(one, Entry) else Entry(seq, 1, "chunks", one)
        seq = entry.next_seq
        await redis.call("XADD", call.call_key, f"{entry.seq}-0", layout.BLOB, layout.pack(entry))
        if call.inbox.from_stream:
            await feeder.read(call)
        else:
            assert call.feed_entry(entry)
    assert read == [False, False], "begun and written again on the lane"
    assert (
        not call.is_broken
        and sum(isinstance(output, SendUpstream) for output in call.queue._outputs)
        + (call.queue.sending is not None)
        >= 1
    )


@pytest.mark.parametrize("size", [2, HEAVY_BYTES])
async def test_a_replay_reads_the_part_of_itself_that_the_first_owner_read(
    redis: Connection, size: int
) -> None:
    """Also where nothing came behind it: the request that followed is what the replay is held to."""
    body = as_json(
        {
            "model": blocked.MODELS["anthropic"],
            "max_tokens": 100,
            "stream": True,
            "messages": [{"role": "user", "content": "x" * size}],
            "tools": blocked.TOOLS["anthropic"],
        }
    )
    start = start_of(body, layout.new_call_id(), dialect="anthropic", endpoint="messages", key="k")
    info = call_info(start.call_id, "anthropic")
    calls: Any = SimpleNamespace(
        owns=lambda _: True,
        is_over=lambda one: one.is_ending,
        after=lambda _: None,
        close=lambda *_: None,
    )
    feeder = _feeder(redis, calls)
    await redis.call("SET", layout.body_key(start.call_id), body)
    chunks = blocked.answered("anthropic", "I delete.", [blocked.BAD])
    eof = Entry(len(chunks) + 1, 1, "eof", [])
    entries = [Entry(1, 1, "chunks", chunks[:2]), Entry(3, 1, "chunks", chunks[2:]), eof]
    digests = []
    for is_replayed in (False, True):
        call = owned(start, session_of(info, [blocked.NoDeletes()], blocked.CONFIG))
        if is_replayed:
            call.take_over()
        call.begin(body)
        for entry in entries if not is_replayed else ():
            assert call.feed_entry(entry)
            await redis.call(
                "XADD", call.call_key, f"{entry.seq}-0", layout.BLOB, layout.pack(entry)
            )
        wanted = call.waits.segment
        assert (wanted is None) is is_replayed
        if wanted is not None:
            await feeder.feed_segment(call, wanted)
        else:
            await feeder.read(call)
        assert call.waits.segment is None and not call.is_broken
        digests.append(call.session.out.hash.digest)
    assert digests[0] == digests[1]
