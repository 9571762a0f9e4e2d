"""The queue of the judges: what it takes, jobs that arq or nobody can run, judges that die, and
questions that wait."""

import asyncio
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import arq
import msgspec
import pytest
from arq.constants import in_progress_key_prefix
from arq.worker import func

from policy.session.effects import JudgeRequest
from protocol.errors import JudgeUnavailable
from streams import heartbeats, layout
from streams.connection import Connection
from tests.support.json_values import Json
from tests.support.servers.product import Product
from tests.support.servers.proxy import proxied
from tests.support.upstreams.judging import (
    Client,
    QueueOfCalls,
    Upstream,
    answer,
    judged,
    judging,
    question,
    runtime,
    until,
)
from workers.judge.answering import Judge
from workers.judge.worker import JudgeWorker
from workers.judge_queue import (
    MAX_ATTEMPTS,
    JudgeQueue,
    beat_key_of,
    deserialize,
    open_pool,
    serialize,
)


@pytest.mark.case("J4")
async def test_the_first_answer_stays(redis_url: str, queue: JudgeQueue, redis: Client) -> None:
    call_id = layout.new_call_id()
    first = '{"probability":null,"error":"deadline"}'
    await redis.hset(layout.facts_key(call_id), layout.judgement_field(0, 0), first)
    async with judging(runtime(redis_url)):
        await queue.ask(JudgeRequest(call_id, 0, 0, question()), 10)
        await until(lambda: _depth_is(redis, 0))
    assert (
        await redis.hget(layout.facts_key(call_id), layout.judgement_field(0, 0)) == first.encode()
    )


async def _depth_is(redis: Client, depth: int) -> bool:
    return int(await redis.zcard(layout.JUDGE_QUEUE)) == depth


@pytest.mark.case("W10")
async def test_a_pickle_is_rejected_and_the_queue_goes_on(
    redis_url: str, queue: JudgeQueue, redis: Client, tmp_path: Any
) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (open, (str(tmp_path / "owned"), "w"))

    await redis.set(
        "arq:job:evil",
        pickle.dumps({"t": 1, "f": "judge", "a": (Evil(),), "k": {}, "et": 1}),
        ex=60,
    )
    await redis.zadd(layout.JUDGE_QUEUE, {"evil": time.time() * 1000})
    said = await judged(runtime(redis_url), queue, redis, question())
    assert said.error == ""
    assert not (tmp_path / "owned").exists()
    assert await redis.zscore(layout.JUDGE_QUEUE, "evil") is None
    assert await redis.get(layout.JUDGE_REJECTED) == b"1"
    assert await redis.ttl(layout.JUDGE_REJECTED) > 0


@pytest.mark.case("W10")
async def test_a_job_of_another_question_than_its_id_is_rejected(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    named, meant = layout.new_call_id(), layout.new_call_id()
    text = msgspec.json.encode(JudgeRequest(meant, 0, 0, question("gpt-x"))).decode()
    job: Json = {"t": None, "f": "judge", "a": [text], "k": {}, "et": 1}
    await redis.set(f"arq:job:{named}:0:0:0", serialize(job), ex=60)
    await redis.zadd(layout.JUDGE_QUEUE, {f"{named}:0:0:0": time.time() * 1000})
    async with judging(runtime(redis_url, upstream)):
        await until(lambda: redis.get(layout.JUDGE_REJECTED))
        await until(lambda: _depth_is(redis, 0))
    assert not upstream.seen
    assert not await redis.exists(layout.facts_key(named), layout.facts_key(meant))


async def test_what_arq_enqueues_is_judged(redis_url: str, redis: Client) -> None:
    """arq's own client and ours put the same onto the queue."""
    call_id = layout.new_call_id()
    text = msgspec.json.encode(JudgeRequest(call_id, 0, 0, question())).decode()
    await redis.xadd(layout.call_key(call_id), {"b": "start"})
    pool = open_pool(redis_url)
    async with judging(runtime(redis_url)):
        await pool.enqueue_job("judge", text, _job_id=layout.judge_job_id(call_id, 0, 0, 0))
        assert (await answer(redis, call_id)).error == ""
    await pool.aclose(close_connection_pool=True)


async def test_what_we_enqueue_arq_can_run(
    redis_url: str, queue: JudgeQueue, redis: Client
) -> None:
    call_id, run = layout.new_call_id(), list[tuple[Any, ...]]()

    async def judge(ctx: Json, text: str) -> None:
        run.append(
            (ctx["job_id"], ctx["job_try"], msgspec.json.decode(text, type=JudgeRequest).call_id)
        )

    await queue.ask(JudgeRequest(call_id, 0, 0, question()), 20)
    pool = open_pool(redis_url)
    worker = arq.Worker(
        [func(judge, name="judge")],
        redis_pool=pool,
        queue_name=layout.JUDGE_QUEUE,
        burst=True,
        poll_delay=0.01,
        handle_signals=False,
        keep_result=0,
        job_serializer=serialize,
        job_deserializer=deserialize,
    )
    await worker.async_run()
    assert run == [(layout.judge_job_id(call_id, 0, 0, 0), 1, call_id)]
    assert await _depth_is(redis, 0)
    await pool.aclose(close_connection_pool=True)


def test_jobs_survive_serialization_and_errors_become_names() -> None:
    assert deserialize(serialize({"f": "judge", "a": ["x"], "r": KeyError("secret")})) == {
        "f": "judge",
        "a": ["x"],
        "r": "KeyError",
    }


async def test_a_full_queue_refuses_at_once(
    redis_url: str, connection: Connection, redis: Client
) -> None:
    queue = QueueOfCalls(redis_url, connection, max_depth=2)
    for _ in range(2):
        await queue.ask(JudgeRequest(layout.new_call_id(), 0, 0, question()), 10)
    with pytest.raises(JudgeUnavailable, match="2 questions"):
        await queue.ask(JudgeRequest(layout.new_call_id(), 0, 0, question()), 10)
    assert await _depth_is(redis, 2)
    await queue.close()


async def test_asking_past_the_deadline_is_refused(queue: JudgeQueue) -> None:
    with pytest.raises(JudgeUnavailable, match="deadline"):
        await queue.ask(JudgeRequest(layout.new_call_id(), 0, 0, question()), -1)


async def test_a_waiting_or_beating_question_has_not_died(queue: JudgeQueue, redis: Client) -> None:
    call_id = layout.new_call_id()
    await queue.ask(JudgeRequest(call_id, 0, 0, question()), 10)
    assert await queue.died(call_id, 0, 0) is None
    await redis.set(f"arq:in-progress:{layout.judge_job_id(call_id, 0, 0, 0)}", "1", ex=60)
    await redis.set(layout.judge_beat_key(call_id, 0, 0), "1", ex=60)
    assert await queue.died(call_id, 0, 0) is None


async def test_a_judge_that_died_is_noticed_and_its_job_taken_away(
    queue: JudgeQueue, redis: Client
) -> None:
    call_id = layout.new_call_id()
    for attempt in range(MAX_ATTEMPTS - 1):
        await queue.ask(JudgeRequest(call_id, 0, 0, question(), attempt), 10)
        await redis.set(
            f"arq:in-progress:{layout.judge_job_id(call_id, 0, 0, attempt)}", "1", ex=60
        )
        assert await queue.died(call_id, 0, 0) == attempt + 1
        assert await _depth_is(redis, 0)
    await queue.ask(JudgeRequest(call_id, 0, 0, question(), MAX_ATTEMPTS - 1), 10)
    await redis.delete(layout.JUDGE_QUEUE)
    assert await queue.died(call_id, 0, 0) is None


async def test_all_attempts_of_a_question_have_one_deadline(
    queue: JudgeQueue, redis: Client
) -> None:
    """Its call is blocked then: a judge that went on would ask its model for nobody."""
    call_id = layout.new_call_id()
    for attempt, within_s in enumerate((2, 60)):
        await queue.ask(JudgeRequest(call_id, 0, 0, question(), attempt), within_s)
        assert (
            0 < await redis.pttl(f"arq:job:{layout.judge_job_id(call_id, 0, 0, attempt)}") <= 2000
        )


async def test_a_stopping_judge_has_the_time_to_drain_once(
    redis_url: str, connection: Connection, redis: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays for the call that runs, and then has no time left."""
    await heartbeats.write(connection, ("policy", "w1"))
    await redis.xadd(layout.dispatch_key(0), {"c": layout.new_call_id()})
    drained, drain = list[float](), JudgeWorker.drain

    async def note(worker: JudgeWorker, grace_s: float) -> None:
        drained.append(grace_s)
        await drain(worker, grace_s)

    monkeypatch.setattr(JudgeWorker, "drain", note)
    async with judging(runtime(redis_url)):
        pass
    assert drained[0] == 0.0


async def test_a_job_that_vanished_has_died_unless_it_was_answered(
    queue: JudgeQueue, redis: Client
) -> None:
    call_id = layout.new_call_id()
    assert await queue.died(call_id, 0, 0) == 1
    await redis.hset(layout.facts_key(call_id), layout.judgement_field(0, 0), "{}")
    assert await queue.died(call_id, 0, 0) is None


@pytest.mark.slow
async def test_a_judge_killed_over_a_question_is_followed_by_another(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream, tmp_path: Path
) -> None:
    settings, call_id = runtime(redis_url, upstream), layout.new_call_id()
    upstream.delay_s = 60
    config = settings.config.model_dump(mode="json", exclude={"keys"})
    with Product(tmp_path, redis_url, "postgresql://nobody@127.0.0.1:1/none", config) as product:
        [judge] = await asyncio.to_thread(product.start, "judge")
        await queue.ask(JudgeRequest(call_id, 0, 0, question("gpt-x")), 20)
        await until(lambda: len(upstream.seen) == 1)
        assert await queue.died(call_id, 0, 0) is None
        judge.kill(signal.SIGKILL)
        assert await until(lambda: queue.died(call_id, 0, 0)) == 1
    upstream.delay_s = 0
    async with judging(settings):
        await queue.ask(JudgeRequest(call_id, 0, 0, question("gpt-x"), 1), 20)
        said = await answer(redis, call_id)
    assert (said.probability, said.attempts) == (0.25, 2)


async def test_a_stopping_judge_leaves_its_question_to_the_next(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    settings, call_id = runtime(redis_url, upstream), layout.new_call_id()
    upstream.delay_s = 5
    async with judging(settings):
        await queue.ask(JudgeRequest(call_id, 0, 0, question("gpt-x")), 20)
        await until(lambda: len(upstream.seen) == 1)
        assert await redis.exists(layout.judge_beat_key(call_id, 0, 0))
    upstream.delay_s = 0
    async with judging(settings):
        assert (await answer(redis, call_id)).probability == 0.25


async def test_more_questions_than_slots_are_all_answered(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    upstream.delay_s = 0.02
    calls = [layout.new_call_id() for _ in range(20)]
    async with judging(runtime(redis_url, upstream)):
        await asyncio.gather(
            *(queue.ask(JudgeRequest(call_id, 0, 0, question("gpt-x")), 20) for call_id in calls)
        )
        said = await asyncio.gather(*(answer(redis, call_id) for call_id in calls))
    assert {j.error for j in said} == {""}
    assert len(upstream.seen) == 20


async def test_a_judge_that_hears_nothing_of_what_it_took_asks_the_model_once(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    call_id = layout.new_call_id()
    judge, pool, bell = (
        Judge(runtime(redis_url, upstream)),
        open_pool(redis_url),
        Connection(redis_url, name="bell"),
    )
    with proxied(redis_url) as proxy:
        connection = Connection(proxy.url(redis_url), name="judge", silent_s=0.3)
        await asyncio.gather(connection.open(), bell.open())
        working = asyncio.create_task(
            JudgeWorker(judge, pool, connection, bell, concurrency=1).main()
        )
        # only the bell is heard
        await until(lambda: _client_blocks(redis, "bell"))
        proxy.hold_replies()
        await queue.ask(JudgeRequest(call_id, 0, 0, question("gpt-x")), 20)
        # it takes the question and shows life, and is told nothing of it
        await until(lambda: redis.exists(layout.judge_beat_key(call_id, 0, 0)))
        assert not upstream.seen
        proxy.reset()
        proxy.heal()
        assert (await answer(redis, call_id)).probability == 0.25
        await until(lambda: _depth_is(redis, 0))
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await asyncio.gather(
            judge.models.close(),
            connection.close(),
            bell.close(),
            pool.aclose(close_connection_pool=True),
        )
    assert len(upstream.seen) == 1


async def _client_blocks(redis: Client, name: str) -> bool:
    return any(
        client["name"] == name and "b" in client["flags"] for client in await redis.client_list()
    )


async def test_an_answer_that_redis_did_not_take_is_stored_when_it_can(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    call_id, upstream.delay_s = layout.new_call_id(), 0.5
    with proxied(redis_url) as proxy:
        async with judging(runtime(proxy.url(redis_url), upstream, redis_silent_s=0.4)):
            await queue.ask(JudgeRequest(call_id, 0, 0, question("gpt-x")), 20)
            await until(lambda: len(upstream.seen) == 1)
            proxy.reset()
            proxy.heal()
            assert (await answer(redis, call_id)).probability == 0.25
    assert len(upstream.seen) == 1


async def test_a_judge_survives_that_redis_forgets_who_took_a_question(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    call_id, upstream.delay_s = layout.new_call_id(), 0.5
    async with judging(runtime(redis_url, upstream)):
        await queue.ask(JudgeRequest(call_id, 0, 0, question("gpt-x")), 20)
        await until(lambda: len(upstream.seen) == 1)
        # as a replica that is promoted before it has it
        job_id = layout.judge_job_id(call_id, 0, 0, 0)
        await redis.delete(in_progress_key_prefix + job_id, beat_key_of(job_id))
        await redis.rpush(layout.JUDGE_WAKE_UPS, "1")
        await until(lambda: len(upstream.seen) == 2)
        await until(lambda: _depth_is(redis, 0))
        another = layout.new_call_id()
        await queue.ask(JudgeRequest(another, 0, 0, question("gpt-x")), 20)
        assert (await answer(redis, another)).probability == 0.25


@pytest.mark.slow
@pytest.mark.parametrize(("model", "waiting"), [("demo-judge", 6_000), ("gpt-x", 1_000)])
async def test_thousands_of_questions_of_one_key_hardly_delay_anothers(
    redis_url: str,
    connection: Connection,
    redis: Client,
    upstream: Upstream,
    model: str,
    waiting: int,
) -> None:
    """In order of time the other key waited for all of a thousand: 1.7 s of demo-judge, 12.5 s of a
    model of 50 ms.

    An idle machine has judged a thousand of demo-judge in 0.17 s, before the other key had asked
    its twenty.
    """
    upstream.delay_s = 0.05
    queue = QueueOfCalls(redis_url, connection, max_depth=2 * waiting + 100)

    async def times(count: int) -> list[float]:
        took = []
        for _ in range(count):
            call_id, began = layout.new_call_id(), time.monotonic()
            await queue.ask(JudgeRequest(call_id, 0, 0, question(model)), 60, key="few")
            await answer(redis, call_id)
            took.append(time.monotonic() - began)
        return sorted(took)

    # the judges begin when all are asked
    flood = [layout.new_call_id() for _ in range(waiting)]
    async with judging(runtime(redis_url, upstream)):
        await times(5)
        before = await times(20)
    for call_id in flood:
        await queue.ask(JudgeRequest(call_id, 0, 0, question(model)), 60, key="many")
    async with judging(runtime(redis_url, upstream)):
        during = await times(20)
        left = int(await redis.zcard(layout.JUDGE_QUEUE))
    print(
        f"{model}: 19th of 20 before {before[18]:.3f} s, during {during[18]:.3f} s, {left} of"
        f" {waiting} still wait"
    )
    assert left > 100
    # what is being judged is not put back: one question's time at most, and what the test machine
    # adds
    assert during[18] < 2 * before[18] + 0.1
    await queue.close()
