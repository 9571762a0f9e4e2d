"""A policy worker on a real Redis: what it notices of calls whose owner is gone, of its own loss,
and of what came meanwhile."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from bench.histories import history
from demo import model as demo
from policy.base import Judgement, JudgeQuestion
from policy.session.effects import JudgeRequest, SessionEffects
from protocol.records import (
    ChunksRecord,
    EndRecord,
    EventRecord,
    ReleaseRecord,
    decode_records,
)
from settings.config import Config
from settings.limits import Limits
from settings.runtime import Runtime
from streams import heartbeats, layout, metrics, scripts
from streams.connection import Connection
from streams.layout import Entry
from streams.metrics import Count
from streams.scripts import Claimed
from tests.support.checks.figures import Figure
from tests.support.checks.kinds import of_kind
from tests.support.checks.recorded_entries import ends, recorded
from tests.support.json_values import Json, as_json
from tests.support.servers.dispatch import (
    BODY,
    GATEWAY,
    Adopted,
    begin,
    dispatched,
    sent_request,
    took_over,
    with_gateway,
    working,
)
from tests.support.servers.scripted import take
from tests.support.waiting import wait_until
from workers.policy.call.owned import OwnedCall
from workers.policy.claims import Claims
from workers.policy.worker import PolicyWorker

HEALTHY = 60


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Connection]:
    async with with_gateway(redis_url) as connection:
        yield connection


@pytest.fixture
async def worker(
    redis: Connection, redis_url: str, database_url: str
) -> AsyncIterator[PolicyWorker]:
    series = [{"use": "tool_judge", "model": "demo-judge"}]
    async with working(
        redis_url,
        database_url,
        "w1",
        {"policies": {"default": series}, "limits": {"lease_s": 60.0}},
    ) as made:
        yield made


async def append(
    redis: Connection, call: OwnedCall, seq: int, chunk: bytes, *, tell: bool = True
) -> None:
    entry = Entry(seq, 1, "chunks", [chunk])
    await redis.call(
        "XADD", layout.call_key(call.id), "NOMKSTREAM", f"{seq}-0", layout.BLOB, layout.pack(entry)
    )
    if tell:
        await redis.call("PUBLISH", layout.chunk_channel(call.id), layout.pack(entry))


@pytest.mark.case("W1")
async def test_w1_a_worker_with_little_room_finds_orphans_behind_many_living_calls(
    redis: Connection, redis_url: str
) -> None:
    lease_s = 2.0
    blocking = Connection(redis_url, name="test-claim")
    await blocking.open()
    for _ in range(HEALTHY):
        await begin(redis)
    living = [
        e
        for e, _ in (
            await redis.call(
                "XREADGROUP", "GROUP", "policy", "living", "STREAMS", layout.dispatch_key(0), ">"
            )
        )[0][1]
    ]
    orphans = {await begin(redis) for _ in range(2)}
    found = (
        await redis.call(
            "XREADGROUP", "GROUP", "policy", "dead", "STREAMS", layout.dispatch_key(0), ">"
        )
    )[0][1]
    await redis.call(
        "XCLAIM",
        layout.dispatch_key(0),
        "policy",
        "dead",
        0,
        *(e for e, _ in found),
        "IDLE",
        600_000,
        "JUSTID",
    )
    adopted: Any = Adopted(redis, room=3)
    stopping = asyncio.Event()

    def adopt(claimed: Claimed) -> None:
        adopted[claimed.call_id] = claimed

    claims = Claims(redis, blocking, Limits(lease_s=lease_s), "w1", list, adopted, adopt)
    running = asyncio.create_task(claims.run(0, stopping))

    async def found_all() -> bool:
        await redis.call(
            "XCLAIM", layout.dispatch_key(0), "policy", "living", 0, *living, "IDLE", 0, "JUSTID"
        )
        return bool(adopted.keys() >= orphans)

    try:
        async with asyncio.timeout(10):
            while not await found_all():
                await asyncio.sleep(0.01)
        assert adopted.keys() == orphans
    finally:
        stopping.set()
        await running
        await blocking.close()


async def events(redis: Connection, kind: str) -> list[EventRecord]:
    return [r for r in await recorded(redis) if isinstance(r, EventRecord) and r.kind == kind]


@pytest.mark.case("W2")
async def test_w2_a_call_lost_while_two_commands_are_under_way_is_lost_once(
    redis: Connection, worker: PolicyWorker
) -> None:
    call = await dispatched(redis, worker)
    await redis.call("HSET", layout.ctl_key(call.id), "t", "another")
    call.ask_keepalive()
    worker.calls.releaser.add(call)
    await worker._leases.renew()
    await wait_until(lambda: call.id not in worker.calls, what="the call is let go of")
    await worker._redis.call("PING")
    assert len(await events(redis, "fenced")) == 1


async def test_what_is_heard_while_the_stream_is_read_is_read_too(
    redis: Connection, worker: PolicyWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = await dispatched(redis, worker)
    await append(redis, call, 1, b": one\n\n", tell=False)
    ask, late = worker._redis.call, [Entry(2, 1, "chunks", [b": two\n\n"])]

    async def answer_late(*args: Any) -> Any:
        said = await ask(*args)
        if args[0] == "XRANGE" and late:
            entry = late.pop()
            await append(redis, call, entry.seq, entry.chunks[0], tell=False)
            worker._on_push(
                [b"message", layout.chunk_channel(call.id).encode(), layout.pack(entry)]
            )
            await asyncio.sleep(0)
        return said

    monkeypatch.setattr(
        worker._redis, "call", lambda *args: asyncio.ensure_future(answer_late(*args))
    )
    assert await worker.calls.feeder.read(call)
    assert call.inbox.expected == 3


async def test_an_end_that_comes_while_a_claimed_call_waits_for_its_body_is_read_as_it_begins(
    redis: Connection, worker: PolicyWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its channel is nobody's yet; the sweep would find it after more than two seconds."""
    fetch, asked, may_come = worker._bodies.call, asyncio.Event(), asyncio.Event()

    async def fetch_late(*args: Any) -> Any:
        asked.set()
        await may_come.wait()
        return await fetch(*args)

    monkeypatch.setattr(
        worker._bodies, "call", lambda *args: asyncio.ensure_future(fetch_late(*args))
    )
    call_id = await begin(redis, body=history("demo", 2**17))
    await asked.wait()
    closed = Entry(1, 1, "closed", text="client_gone", number=-1)
    await redis.call(
        "XADD", layout.call_key(call_id), "NOMKSTREAM", "1-0", layout.BLOB, layout.pack(closed)
    )
    assert await redis.call("PUBLISH", layout.chunk_channel(call_id), layout.pack(closed)) == 1
    # on the connection that heard of it, so that it came before this
    await worker._sub.call("PING")
    assert not worker.calls[call_id].has_begun
    may_come.set()
    async with asyncio.timeout(1.5):
        while not (found := await ends(redis)):
            await asyncio.sleep(0.01)
    assert [end.reason for end in found] == ["client_gone"]


@pytest.mark.case("W9")
async def test_w9_what_a_call_waits_for_is_looked_after_also_while_upstream_talks(
    redis: Connection, worker: PolicyWorker
) -> None:
    call = await dispatched(redis, worker)
    steps = [data for _, data in demo.script("openai", "chat", BODY).steps]
    for seq, data in enumerate(steps[:-1], 1):
        await append(redis, call, seq, data)
    await wait_until(lambda: call.waits.open_asks, what="the question")
    field, seq = next(iter(call.waits.open_asks)), len(steps)
    # a judgement of which nobody was told: the judge died between the two, or the word was lost
    await redis.call(
        "HSET",
        layout.facts_key(call.id),
        field,
        msgspec.json.encode(Judgement(probability=0.0, model="demo-judge")),
    )

    async def goes_on() -> bool:
        nonlocal seq
        await append(redis, call, seq, b": still here\n\n")
        seq += 1
        return field in call.waits.facts

    async with asyncio.timeout(15):
        while not await goes_on():
            await asyncio.sleep(0.01)


async def test_what_is_released_as_a_call_ends_is_recorded_with_its_release(
    redis: Connection, worker: PolicyWorker
) -> None:
    call = await dispatched(redis, worker)
    [*_, text] = [
        data for _, data in demo.script("openai", "chat", BODY).steps if b'"content":' in data
    ][:2]
    for entry in Entry(1, 1, "chunks", [text]), Entry(2, 1, "closed", text="client_gone", number=0):
        blob = layout.pack(entry)
        await redis.call(
            "XADD", layout.call_key(call.id), "NOMKSTREAM", f"{entry.seq}-0", layout.BLOB, blob
        )
    for _, fields in await redis.call("XRANGE", layout.call_key(call.id), "1-0", "+"):
        # in one turn of the loop, as one read brings them
        worker._on_push([b"message", layout.chunk_channel(call.id).encode(), fields[1]])
    await wait_until(lambda: call.id not in worker.calls, what="the end")
    entries = [
        decode_records(blob)
        for _, fields in await redis.call("XRANGE", layout.audit_key(0), "-", "+")
        for blob in layout.blobs(fields)
    ]
    [released] = [
        records for records in entries if any(isinstance(r, ReleaseRecord) for r in records)
    ]
    assert [r.raw for r in released if isinstance(r, ChunksRecord)] == [[text]]
    assert [type(r) for r in entries[-1]][-1] is EndRecord
    assert sum(isinstance(r, EndRecord) for records in entries for r in records) == 1


async def test_a_fact_is_heard_of_by_a_call_that_waits_for_it(
    redis: Connection, worker: PolicyWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its channel, and not only by the look that comes every other second."""

    async def look_away(call: OwnedCall) -> None:
        pass

    monkeypatch.setattr(worker.calls.facts, "look_after", look_away)
    call = await dispatched(redis, worker)
    assert await redis.call("PUBSUB", "NUMSUB", layout.facts_channel(call.id)) == [
        layout.facts_channel(call.id).encode(),
        0,
    ]
    for seq, (_, data) in enumerate(list(demo.script("openai", "chat", BODY).steps)[:-1], 1):
        await append(redis, call, seq, data)
    await wait_until(lambda: call.waits.open_asks, what="the question")
    field = next(iter(call.waits.open_asks))
    judgement = msgspec.json.encode(Judgement(probability=0.0, model="demo-judge"))
    await scripts.set_fact(redis, call.id, field, judgement)
    await wait_until(lambda: field in call.waits.facts, what="the judgement")


def short_lease(
    redis_url: str, database_url: str, name: str, **policy: Any
) -> AbstractAsyncContextManager[PolicyWorker]:
    """A worker with a short lease, which is gone at the end as if killed."""
    config = {
        "policies": {"default": [policy or {"use": "noop"}]},
        "limits": {"lease_s": 1.0, "claim_s": 60.0},
    }
    return working(redis_url, database_url, name, config)


@pytest.mark.case("W1")
@pytest.mark.parametrize("refused_before", [True, False])
async def test_w1_a_refusal_is_said_once_whoever_says_it(
    redis: Connection, redis_url: str, database_url: str, refused_before: bool
) -> None:
    """A call under a policy that there is not is pinned without a revision: whoever takes it over
    refuses it in the same words."""
    call_id = await begin(redis, policy="no-such-policy")
    if refused_before:
        async with short_lease(redis_url, database_url, "first") as first:
            await wait_until(
                lambda: call_id in first.calls and first.calls[call_id].queue.released == 1,
                what="the refusal",
            )
        assert await redis.call("HMGET", layout.ctl_key(call_id), "n", "p", "r") == [
            b"1",
            b"no-such-policy",
            b"",
        ]
    else:
        [[_, [[entry, _]]]] = await redis.call(
            "XREADGROUP", "GROUP", "policy", "first", "STREAMS", layout.dispatch_key(0), ">"
        )
        pins = ("default@r",)
        await take(redis, call_id, entry.decode(), "t", consumer="first", pins=pins)
    async with short_lease(redis_url, database_url, "second") as second:
        await took_over(second, call_id)
        await wait_until(lambda: second.calls[call_id].queue.released == 1, what="the refusal")
        closed = Entry(1, 1, "closed", text="complete", number=1)
        await redis.call(
            "XADD", layout.call_key(call_id), "NOMKSTREAM", "1-0", layout.BLOB, layout.pack(closed)
        )
        await redis.call("PUBLISH", layout.chunk_channel(call_id), layout.pack(closed))
        await wait_until(lambda: call_id not in second.calls, what="its end")
    replies = [
        layout.unpack_reply(f[1])
        for _, f in await redis.call("XRANGE", layout.reply_key(0, GATEWAY), "-", "+")
    ]
    assert [(r.number, r.status, r.end) for r in replies if not r.keepalive] == [
        (0, 404, "policy_not_found")
    ]
    [end] = await ends(redis)
    assert (end.state, end.reason, end.status) == ("FAILED", "policy_not_found", 404)


@pytest.mark.parametrize("ended", [True, False])
async def test_a_worker_that_slept_before_its_replay_finds_no_stream_and_does_not_call_that_another_outcome(
    redis: Connection,
    redis_url: str,
    database_url: str,
    caplog: pytest.LogCaptureFixture,
    ended: bool,
) -> None:
    """Another had the call meanwhile and ended it, which Redis says; or Redis has lost the stream,
    which is what the record says."""
    call_id = await begin(redis)
    async with short_lease(redis_url, database_url, "first") as first:
        call = await sent_request(first, call_id)
        await append(
            redis, call, 1, next(data for _, data in demo.script("openai", "chat", BODY).steps)
        )
        await wait_until(
            lambda: call.queue.recorded == 1 and call.queue.sending is None, what="its first chunk"
        )
    async with short_lease(redis_url, database_url, "second") as second:
        async with second.calls.feeder._replays.place(call.start.key):
            await wait_until(lambda: call_id in second.calls, what="the takeover")
            await redis.call("DEL", layout.call_key(call_id))
            if ended:
                await redis.call("HSET", layout.ctl_key(call_id), "t", "closed")
        await wait_until(lambda: call_id not in second.calls, what="the end")
    assert [r.reason for r in await recorded(redis) if isinstance(r, EndRecord)] == (
        [] if ended else ["stream_lost"]
    )
    assert "gave other outputs" not in caplog.text


async def test_a_key_that_replays_a_call_holds_up_no_other_key(
    redis: Connection, redis_url: str, database_url: str
) -> None:
    call_id = await begin(redis)
    async with short_lease(redis_url, database_url, "first") as first:
        await sent_request(first, call_id)
    async with (
        short_lease(redis_url, database_url, "second") as second,
        second.calls.feeder._replays.place("another key"),
    ):
        await took_over(second, call_id)


async def test_a_worker_that_stops_goes_on_with_what_nobody_takes(
    redis: Connection, redis_url: str, database_url: str
) -> None:
    """The others are there and have no room: given to them once a second, a call would be replayed
    for ever and never end."""
    call_id = await begin(redis)
    async with short_lease(redis_url, database_url, "first") as first:
        await sent_request(first, call_id)
        full = [(role, shown.replace(first.name, "full")) for role, shown in first._heartbeats]
        await heartbeats.write(redis, *full)
        first.stop()
        await wait_until(lambda: call_id not in first.calls, what="it is left to the others")
        await wait_until(lambda: call_id in first.calls, what="nobody took it")
        call = first.calls[call_id]
        await wait_until(lambda: not call.is_replayed, what="its replay")
        for step, (_, data) in enumerate(demo.script("openai", "chat", BODY).steps, 1):
            await append(redis, call, step, data)
            await heartbeats.write(redis, *full)
            await wait_until(
                lambda: (
                    first.calls.get(call_id) is call
                    and call.queue.sending is None
                    and not call.queue.is_waiting
                ),
                what="a step",
            )
        assert call.queue.released > 1 and first.calls[call_id] is call


async def test_a_long_request_is_judged_by_its_end_also_after_a_takeover(
    redis: Connection, redis_url: str, database_url: str
) -> None:
    """No worker keeps a history once its request is sent: the next owner reads it again."""
    body = history("demo", 2**20)
    call_id = await begin(redis, body=body)
    delta = {
        "role": "assistant",
        "tool_calls": [
            {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": '{"command": '}}
        ],
    }
    rest = {"tool_calls": [{"index": 0, "function": {"arguments": '"ls"}'}}]}
    steps: list[Json] = [
        {"delta": {"content": "so far"}},
        {"delta": delta},
        {"delta": rest},
        {"delta": {}, "finish_reason": "tool_calls"},
    ]
    said = [
        b"data: " + as_json({"id": "x", "model": "demo", "choices": [{"index": 0, **s}]}) + b"\n\n"
        for s in steps
    ]
    judge = {"use": "tool_judge", "model": "demo-judge"}
    async with short_lease(redis_url, database_url, "first", **judge) as first:
        await sent_request(first, call_id)
        for seq, chunk in enumerate(said[:2], 1):
            await append(redis, first.calls[call_id], seq, chunk)
        call = first.calls[call_id]
        await wait_until(
            lambda: (
                call.inbox.expected == 3
                and call.queue.sending is None
                and not call.queue.is_waiting
            ),
            what="the text is released",
        )
        released, digest = call.queue.released, call.session.drain().digest
        assert released > 1
    async with short_lease(redis_url, database_url, "second", **judge) as second:
        call = await took_over(second, call_id)
        assert (call.queue.released, call.session.checkpoint_digest) == (released, digest)
        for seq, chunk in enumerate(said[2:], 3):
            await append(redis, call, seq, chunk)
        await wait_until(lambda: call.waits.open_asks, what="the question")
        [(field, ask)] = call.waits.open_asks.items()
        envelope = json.loads(ask.question.prompt.split("\n")[1])
        # said before the takeover
        assert envelope["answer"] == [{"text": "so far"}]
        shown = envelope["conversation"]
        assert max(item.get("turns_left_out", 0) for item in shown) > 100
        assert json.loads(body)["messages"][-1]["content"].startswith(
            shown[-1]["parts"][-1]["tool_result"][:500]
        )
        judgement = msgspec.json.encode(Judgement(probability=0.0, model="demo-judge"))
        await redis.call("HSET", layout.facts_key(call.id), field, judgement)
        await redis.call("PUBLISH", layout.facts_channel(call.id), field)
        await wait_until(
            lambda: call.waits.open_commits, what="the verdict that waits for its commit"
        )


async def test_a_blocked_tool_call_is_counted_once_also_after_a_takeover(
    redis: Connection, redis_url: str, database_url: str
) -> None:
    call_id = await begin(redis)
    steps = [data for _, data in demo.script("openai", "chat", BODY).steps]
    rule = {"use": "tool_rules", "deny": [{"tool": "bash", "reason": "no"}]}
    async with short_lease(redis_url, database_url, "first", **rule) as first:
        call = await sent_request(first, call_id)
        for seq, data in enumerate(steps, 1):
            await append(redis, call, seq, data)
        await wait_until(
            lambda: (
                call.decided.counts()[Count.TOOL_CALLS_BLOCKED] == 1
                and call.queue.recorded >= len(steps)
            ),
            what="the verdict",
        )
        assert (await metrics.read(redis, 1))[Count.TOOL_CALLS_BLOCKED] == 0, "its call is open"
    async with short_lease(redis_url, database_url, "second", **rule) as second:
        await took_over(second, call_id)
        closed = Entry(
            len(steps) + 1,
            1,
            "closed",
            text="complete",
            number=second.calls[call_id].queue.released,
        )
        await redis.call(
            "XADD",
            layout.call_key(call_id),
            "NOMKSTREAM",
            f"{closed.seq}-0",
            layout.BLOB,
            layout.pack(closed),
        )
        await redis.call("PUBLISH", layout.chunk_channel(call_id), layout.pack(closed))
        await wait_until(lambda: call_id not in second.calls, what="its end")
    assert len(await ends(redis)) == 1
    assert (await metrics.read(redis, 1))[Count.TOOL_CALLS_BLOCKED] == 1


async def test_one_key_never_has_all_places_of_a_worker(
    redis: Connection, redis_url: str, database_url: str
) -> None:
    config = Config.model_validate({"limits": {"lease_s": 1.0, "claim_s": 60.0, "max_calls": 20}})
    worker = PolicyWorker(
        Runtime(config=config, redis_url=redis_url, database_url=database_url, name="w")
    )
    many = [await begin(redis, key="many") for _ in range(40)]
    running = asyncio.create_task(worker.run())
    try:
        await wait_until(lambda: len(worker.calls) >= 16, what="its share")
        few = [await begin(redis, key="few") for _ in range(3)]
        await wait_until(lambda: worker.calls.keys() >= set(few), what="those of another key")
        taken = [one for one in many if one in worker.calls]
        assert len(taken) == 16
        for call_id in taken[:10]:
            worker.calls.close(worker.calls[call_id], "client_gone")
        await wait_until(
            lambda: sum(one in worker.calls for one in many) >= 14,
            what="more of it, when there is room",
        )
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def longest_pause_s(until: asyncio.Event) -> float:
    """How long the event loop did not come round."""
    longest = 0.0
    while not until.is_set():
        began = time.monotonic()
        await asyncio.sleep(0.002)
        longest = max(longest, time.monotonic() - began)
    return longest


@pytest.mark.slow
@pytest.mark.case("W13")
async def test_w13_a_long_replay_lets_other_calls_have_their_turn(
    redis: Connection, redis_url: str, database_url: str, figure: Figure
) -> None:
    entries, chunks = 800, 100
    call_id = await begin(redis)
    delta = {
        "index": 0,
        "delta": {"role": "assistant", "content": "word " * 8},
        "finish_reason": None,
    }
    chunk = (
        b"data: "
        + as_json(
            {"id": "c", "object": "chat.completion.chunk", "model": "demo", "choices": [delta]}
        )
        + b"\n\n"
    )
    async with short_lease(redis_url, database_url, "first") as first:
        await sent_request(first, call_id)
        for seq in range(1, entries * chunks, chunks):
            entry = layout.pack(Entry(seq, 1, "chunks", [chunk] * chunks))
            await redis.call("XADD", layout.call_key(call_id), f"{seq}-0", layout.BLOB, entry)
            await redis.call("PUBLISH", layout.chunk_channel(call_id), entry)
        await wait_until(
            lambda: first.calls[call_id].queue.released > entries * chunks,
            timeout_s=30,
            what="all is released",
        )
        released = first.calls[call_id].queue.released
    done = asyncio.Event()
    pause = asyncio.create_task(longest_pause_s(done))
    async with short_lease(redis_url, database_url, "second") as second:
        await wait_until(lambda: call_id in second.calls, what="the takeover")
        began = time.monotonic()
        await wait_until(
            lambda: not second.calls[call_id].is_replayed, timeout_s=30, what="the replay"
        )
        took_s = time.monotonic() - began
        assert second.calls[call_id].queue.released == released
        done.set()
    longest_s = await pause
    figure("replay of 80,000 chunks", took_s, "s")
    figure("longest pause of the event loop in it", longest_s, "s")
    assert longest_s < took_s / 2, "a long replay stops the loop"


@pytest.mark.case("W8")
async def test_w8_a_call_with_a_record_that_is_none_ends_like_others(
    redis: Connection, worker: PolicyWorker
) -> None:
    call = await dispatched(redis, worker)
    call.note("more than msgpack holds", 2**70, "", 1)
    call.note("no text", 1, object(), 1)  # type: ignore[arg-type]
    call.inbox.closed = Entry(1, 1, "closed", text="complete", number=1)
    worker.calls.finish(call, "complete", 1)
    await wait_until(lambda: call.id not in worker.calls, what="its end")
    found = await recorded(redis)
    assert [(r.state, r.reason) for r in found if isinstance(r, EndRecord)] == [
        ("FAILED", "unfinished")
    ]
    assert {"more than msgpack holds", "no text"} <= {
        r.kind for r in found if isinstance(r, EventRecord)
    }


@pytest.mark.case("W8")
async def test_w8_a_question_that_cannot_be_put_ends_its_call(
    redis: Connection, worker: PolicyWorker
) -> None:
    call = await dispatched(redis, worker)
    question = JudgeQuestion("demo-judge", "", "", "n", 0.5, "soon", {})  # type: ignore[arg-type]
    asks = [JudgeRequest(call.id, 0, 0, question)]
    call.waits.add(SessionEffects(0, 0, "", [], [], asks, [], "", None), call.session, 0)
    worker.calls.after(call)
    await wait_until(lambda: call.id not in worker.calls, what="its end")
    assert [(r.state, r.reason) for r in await recorded(redis) if isinstance(r, EndRecord)] == [
        ("FAILED", "policy_failed")
    ]


async def test_the_end_of_a_call_counts_the_release_that_its_last_chunk_led_to(
    redis: Connection, worker: PolicyWorker
) -> None:
    """A client went as that chunk came: whether its release went out must be known before the end
    is written."""
    call = await dispatched(redis, worker)
    text = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": "said"}}]}
    told = layout.pack(layout.Relayed(0, b"0" * 32))
    last = [
        Entry(1, 1, "chunks", [b"data: " + as_json(text) + b"\n\n"]),
        Entry(2, 1, "closed", [told], 1, "client_gone"),
    ]
    for entry in last:
        await redis.call(
            "XADD",
            layout.call_key(call.id),
            "NOMKSTREAM",
            f"{entry.seq}-0",
            layout.BLOB,
            layout.pack(entry),
        )
    # both in one turn of the worker's loop
    for entry in last:
        worker._on_push([b"message", layout.chunk_channel(call.id).encode(), layout.pack(entry)])
    await wait_until(lambda: call.id not in worker.calls, what="its end")
    records = [
        r
        for _, fields in await redis.call("XRANGE", layout.audit_key(0), "-", "+")
        for r in decode_records(fields[1])
    ]
    [end] = of_kind(records, EndRecord)
    released = of_kind(records, ReleaseRecord)
    assert (end.reason, end.chunks, end.releases) == ("client_gone", 1, len(released)) and released
    assert end.relayed_sha256 == b"0" * 32


async def test_a_call_that_is_given_up_after_its_gateway_closed_it_says_how_far_that_came(
    redis: Connection, worker: PolicyWorker
) -> None:
    call = await dispatched(redis, worker)
    told = layout.pack(layout.Relayed(1, b"0" * 32, [], b"own"))
    assert call.feed_entry(Entry(1, 1, "closed", [told], 1, "client_gone"))
    worker.calls.close(call, "policy_failed")
    await wait_until(lambda: call.id not in worker.calls, what="its end")
    [end] = await ends(redis)
    assert (end.reason, end.relayed, end.relayed_sha256) == ("policy_failed", 1, b"0" * 32)


async def test_a_call_whose_gateway_does_not_know_how_far_it_came_has_no_sum(
    redis: Connection, worker: PolicyWorker
) -> None:
    call = await dispatched(redis, worker)
    told = layout.pack(layout.Relayed(1, b"0" * 32))
    assert call.feed_entry(Entry(1, 1, "closed", [told], 1, "client_gone"))
    worker.calls.finish(call, "stream_lost", -1, gone=True)
    await wait_until(lambda: call.id not in worker.calls, what="its end")
    [end] = await ends(redis)
    assert (end.reason, end.relayed, end.relayed_sha256) == ("stream_lost", -1, None)


async def test_a_closed_call_ends_though_nothing_more_goes_out_to_its_gateway(
    redis: Connection, worker: PolicyWorker
) -> None:
    call = await dispatched(redis, worker)
    await redis.call("DEL", layout.gateway_key(0, GATEWAY))
    text = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": "said"}}]}
    for entry in (
        Entry(1, 1, "chunks", [b"data: " + as_json(text) + b"\n\n"]),
        Entry(2, 1, "closed", [], 1, "client_gone"),
    ):
        redis.send_quiet(
            "XADD",
            layout.call_key(call.id),
            "NOMKSTREAM",
            f"{entry.seq}-0",
            layout.BLOB,
            layout.pack(entry),
        )
        redis.send_quiet("PUBLISH", layout.chunk_channel(call.id), layout.pack(entry))
    # well before it is noticed that the gateway is gone
    await wait_until(lambda: call.id not in worker.calls, timeout_s=2.0, what="its end")
    [end] = await ends(redis)
    assert (end.reason, end.releases, end.relayed_sha256) == ("client_gone", 0, None)
