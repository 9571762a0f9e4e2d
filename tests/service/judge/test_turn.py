"""The scripts of the judge queue: asking, and with which a judge stores its answer and takes its
next job."""

import time
from typing import Literal

import pytest
from arq.constants import in_progress_key_prefix, job_key_prefix, retry_key_prefix

from policy.base import JudgeQuestion
from policy.judging.prompt import SYSTEM
from policy.session.effects import JudgeRequest
from protocol.errors import JudgeUnavailable
from streams import judge_scripts, layout
from streams.connection import Connection
from streams.judge_scripts import JudgeAnswer, JudgeTurn
from tests.support.upstreams.judging import Client
from workers.judge_queue import JudgeQueue

QUESTION = JudgeQuestion(
    "demo-judge",
    SYSTEM,
    "the prompt",
    "c0ffee",
    0.6,
    None,
    {"name": "bash", "arguments": '{"command":"ls"}'},
)


def in_ms(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


async def test_asking_twice_is_one_job(queue: JudgeQueue, redis: Client) -> None:
    call_id = layout.new_call_id()
    for _ in range(2):
        await queue.ask(JudgeRequest(call_id, 0, 0, QUESTION), 10)
    assert await redis.zcard(layout.JUDGE_QUEUE) == 1


async def turn(
    connection: Connection,
    token: str,
    *,
    take: Literal["no", "first", "again"] = "first",
    judged: JudgeAnswer | None = None,
    is_stored: bool = True,
) -> JudgeTurn:
    found = await judge_scripts.take_turn(
        connection,
        token,
        take=take,
        was_woken=False,
        mark_ms=670_000,
        beat_ms=3_000,
        max_tries=5,
        retry_s=88_400,
        max_depth=4_000,
        answered=judged,
    )
    assert found.is_stored == is_stored
    return found


async def test_a_turn_names_keys_as_everybody_does(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    """The script makes keys of a job's id: those of `streams.layout` and arq's."""
    # the last byte names the shard
    for call_id in (layout.new_call_id()[:-2] + "07", layout.new_call_id()[:-2] + "2c"):
        job_id = layout.judge_job_id(call_id, 3, 14, 0)
        await queue.ask(JudgeRequest(call_id, 3, 14, QUESTION), 20)
        found = await turn(connection, "me")
        assert (found.job_id, found.tries) == (job_id.encode(), 1)
        assert await redis.get(layout.judge_beat_key(call_id, 3, 14)) == b"me"
        assert await redis.get(in_progress_key_prefix + job_id) == b"me"
        assert await redis.get(retry_key_prefix + job_id) == b"1"
        field = layout.judgement_field(3, 14)
        judged = JudgeAnswer(call_id, job_id, field, b"{}")
        assert not (await turn(connection, "me", judged=judged)).job_id
        assert await redis.hget(layout.facts_key(call_id), field) == b"{}"
        left = {
            layout.judge_beat_key(call_id, 3, 14),
            *(p + job_id for p in (job_key_prefix, in_progress_key_prefix, retry_key_prefix)),
        }
        assert await redis.exists(*left) == 0


async def test_a_turn_gives_a_job_to_one_judge_and_again_to_that(
    queue: JudgeQueue, connection: Connection
) -> None:
    call_id = layout.new_call_id()
    await queue.ask(JudgeRequest(call_id, 0, 0, QUESTION), 20)
    first = await turn(connection, "one")
    assert not (await turn(connection, "two")).job_id
    assert (await turn(connection, "one"))[1:3] == first[1:3]


async def test_a_turn_gives_no_question_that_is_answered_or_worked_on(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    answered, begun, expired, tried, open_ = (layout.new_call_id() for _ in range(5))
    for number, call_id in enumerate((answered, begun, expired, tried, open_)):
        await queue.ask(JudgeRequest(call_id, 0, 0, QUESTION, 1), 20)
        await redis.zadd(layout.JUDGE_QUEUE, {f"{call_id}:0:0:1": number + 1})
    await redis.hset(layout.facts_key(answered), layout.judgement_field(0, 0), "{}")
    await redis.set(layout.judge_beat_key(begun, 0, 0), "another")
    await redis.delete(f"arq:job:{expired}:0:0:1")
    await redis.set(f"arq:retry:{tried}:0:0:1", 5)
    assert (await turn(connection, "me")).job_id == f"{open_}:0:0:1".encode()
    # the others are off the queue
    assert await redis.zrange(layout.JUDGE_QUEUE, 0, -1) == [f"{open_}:0:0:1".encode()]
    assert await redis.get(layout.judge_beat_key(begun, 0, 0)) == b"another"


async def test_a_turn_looks_past_all_that_others_work_on(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    """More than a page of the queue, some of it to be taken away in passing."""
    calls = [layout.new_call_id() for _ in range(90)]
    for number, call_id in enumerate(calls):
        await queue.ask(JudgeRequest(call_id, 0, 0, QUESTION), 20)
        await redis.zadd(layout.JUDGE_QUEUE, {f"{call_id}:0:0:0": number + 1})
        if number % 3 == 0:
            await redis.delete(f"arq:job:{call_id}:0:0:0")
        elif number < 85:
            await redis.set(f"arq:in-progress:{call_id}:0:0:0", "another", ex=60)
    assert [(await turn(connection, name)).job_id for name in "abcd"] == [
        f"{calls[n]}:0:0:0".encode() for n in (85, 86, 88, 89)
    ]
    assert not (await turn(connection, "e")).job_id
    assert await redis.zcard(layout.JUDGE_QUEUE) == 60


async def test_a_judge_that_is_busy_leaves_no_bell_behind(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    for _ in range(3):
        await queue.ask(JudgeRequest(layout.new_call_id(), 0, 0, QUESTION), 20)
    assert await redis.llen(layout.JUDGE_WAKE_UPS) == 3
    for name in "abc":
        assert (await turn(connection, name)).job_id
    assert await redis.llen(layout.JUDGE_WAKE_UPS) == 0


async def test_a_late_answer_is_told_so_and_changes_nothing(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    call_id, field = layout.new_call_id(), layout.judgement_field(0, 0)
    await queue.ask(JudgeRequest(call_id, 0, 0, QUESTION), 20)
    job_id = (await turn(connection, "me")).job_id.decode()
    await redis.hset(layout.facts_key(call_id), field, "first")
    judged = JudgeAnswer(call_id, job_id, field, b"second")
    assert not (await turn(connection, "me", judged=judged, is_stored=False)).job_id
    assert await redis.hget(layout.facts_key(call_id), field) == b"first"
    assert await redis.zcard(layout.JUDGE_QUEUE) == 0


async def test_an_answer_about_a_call_that_is_over_is_not_kept(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    call_id = layout.new_call_id()
    await queue.ask(JudgeRequest(call_id, 0, 0, QUESTION), 20)
    await redis.delete(layout.call_key(call_id))
    job_id = (await turn(connection, "me")).job_id.decode()
    judged = JudgeAnswer(call_id, job_id, layout.judgement_field(0, 0), b"{}")
    assert not (await turn(connection, "me", judged=judged, is_stored=False)).job_id
    assert not await redis.exists(layout.facts_key(call_id))
    assert await redis.zcard(layout.JUDGE_QUEUE) == 0, "the question is over all the same"


async def test_a_judge_that_ends_stores_its_answer_and_takes_nothing(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    mine, other = layout.new_call_id(), layout.new_call_id()
    for number, call_id in enumerate((mine, other)):
        await queue.ask(JudgeRequest(call_id, 0, 0, QUESTION), 20)
        await redis.zadd(layout.JUDGE_QUEUE, {f"{call_id}:0:0:0": number + 1})
    job_id = (await turn(connection, "me")).job_id.decode()
    judged = JudgeAnswer(mine, job_id, layout.judgement_field(0, 0), b"{}")
    assert not (await turn(connection, "again", take="no", judged=judged)).job_id
    assert await redis.zrange(layout.JUDGE_QUEUE, 0, -1) == [f"{other}:0:0:0".encode()]
    assert not await redis.exists(in_progress_key_prefix + f"{other}:0:0:0")


# --- turns ---


async def ask(queue: JudgeQueue, key: str, count: int = 1) -> list[str]:
    """Ask so many questions of a key, each of another call; gives the jobs."""
    calls = [layout.new_call_id() for _ in range(count)]
    for call_id in calls:
        await queue.ask(JudgeRequest(call_id, 0, 0, QUESTION), 20, key=key)
    return [layout.judge_job_id(call_id, 0, 0, 0) for call_id in calls]


async def taken(connection: Connection, count: int, *, done: bool = False) -> list[str]:
    """Take so many jobs, each for a place of its own; `done`: and answer each."""
    jobs = []
    for _ in range(count):
        found = await turn(connection, f"place {time.monotonic_ns()}")
        if not found.job_id:
            break
        jobs.append(found.job_id.decode())
        if done:
            await connection.call("ZREM", layout.JUDGE_QUEUE, found.job_id)
    return jobs


async def _nobody_looks_by_time(connection: Connection) -> None:
    """Make the queue of times empty for scans: only turns count. One in sixteen turns takes the
    oldest of all, which is meant."""
    for job in await connection.call("ZRANGE", layout.JUDGE_QUEUE, 0, -1):
        await connection.call("ZADD", layout.JUDGE_QUEUE, "99999999999999", job)


async def test_keys_take_turns_whatever_they_asked_before(
    queue: JudgeQueue, connection: Connection
) -> None:
    many, few = await ask(queue, "many", 300), list[str]()
    for _ in range(5):
        few += await ask(queue, "few")
    await _nobody_looks_by_time(connection)
    assert await taken(connection, 10) == [
        job for pair in zip(many, few, strict=False) for job in pair
    ]
    # who asks later is not behind those who wait, and has not saved up turns
    late = await ask(queue, "late", 3)
    await _nobody_looks_by_time(connection)
    order = await taken(connection, 8)
    assert set(order[:2]) == {late[0], many[5]}
    assert [job for job in order if job in late] == late
    assert len(order[: order.index(late[-1])]) <= 5


async def test_a_key_has_a_share_of_the_queue_and_leaves_room(
    redis_url: str, connection: Connection, redis: Client
) -> None:
    queue = JudgeQueue(redis_url, connection, max_depth=40)
    counts = dict.fromkeys(("one", "two", "three"), 0)

    async def ask_on(key: str) -> None:
        while True:
            await ask(queue, key)
            counts[key] += 1

    for key in counts:
        with pytest.raises(JudgeUnavailable, match="share"):
            await ask_on(key)
    assert counts["one"] == 21 and counts["two"] >= 9 and counts["three"] >= 4
    # whoever comes next can ask
    assert await ask(queue, "four")
    # a key whose questions were taken may ask again
    await _nobody_looks_by_time(connection)
    assert len(await taken(connection, 40, done=True)) == sum(counts.values()) + 1
    assert await redis.exists(layout.JUDGE_TURNS) == 0
    assert len(await ask(queue, "one", 21)) == 21
    await queue.close()


async def test_what_has_no_turn_is_found_by_its_time(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    """Of arq's own client, and what was left when the turns expired."""
    [foreign] = await ask(queue, "x")
    await redis.delete(layout.JUDGE_TURNS, layout.JUDGE_SHARES)
    await redis.zadd(layout.JUDGE_QUEUE, {foreign: 1})
    flood = await ask(queue, "many", 200)
    order = await taken(connection, 200)
    assert foreign in order
    assert set(order) <= {foreign, *flood}
    assert await taken(connection, 5) == [job for job in flood if job not in order]
    assert await taken(connection, 1) == []


async def test_turns_of_jobs_that_went_another_way_are_forgotten(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    """arq's own worker takes jobs off its queue and knows nothing of turns."""
    for _ in range(200):
        [job] = await ask(queue, "x")
        await redis.zrem(layout.JUDGE_QUEUE, job)
        await redis.delete(job_key_prefix + job)
    assert await redis.zcard(layout.JUDGE_TURNS) <= 1
    [job] = await ask(queue, "y")
    assert await taken(connection, 3) == [job]


async def test_a_job_that_was_let_go_is_next(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    flood = await ask(queue, "many", 50)
    [mine] = await ask(queue, "few")
    await _nobody_looks_by_time(connection)
    assert set(await taken(connection, 2)) == {flood[0], mine}
    # as a judge that stops does
    await redis.delete(
        in_progress_key_prefix + mine, layout.judge_beat_key(mine.split(":")[0], 0, 0)
    )
    await redis.zadd(layout.JUDGE_TURNS, {mine: -1})
    assert await taken(connection, 1) == [mine]
    assert await redis.hget(layout.JUDGE_SHARES, "now") != b"-1"


async def test_a_judge_that_asks_again_gets_what_it_took(
    queue: JudgeQueue, connection: Connection
) -> None:
    await ask(queue, "many", 40)
    first = await turn(connection, "me")
    await taken(connection, 20)
    assert (await turn(connection, "me", take="again")).job_id == first.job_id


async def test_turns_and_shares_expire(queue: JudgeQueue, redis: Client) -> None:
    await ask(queue, "x", 3)
    assert 0 < await redis.ttl(layout.JUDGE_TURNS) <= layout.JUDGE_TURNS_S
    assert 0 < await redis.ttl(layout.JUDGE_SHARES) <= layout.JUDGE_TURNS_S
