"""The scripts of the judge queue: asking, and with which a judge stores its answer and takes its
next job."""

import time
from typing import Any

import pytest
from arq.constants import in_progress_key_prefix, job_key_prefix, retry_key_prefix

from policy.base import JudgeQuestion
from policy.judging import SYSTEM
from protocol.errors import JudgeUnavailable
from streams import judge_scripts, layout
from streams.connection import Connection
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
        await queue.ask(call_id, 0, 0, 0, QUESTION, 10)
    assert await redis.zcard(layout.JUDGE_QUEUE) == 1


QUEUE = [layout.JUDGE_QUEUE, layout.JUDGE_WAKE_UPS, layout.JUDGE_TURNS, layout.JUDGE_SHARES]
TAKE: list[Any] = ["1", "0", 670_000, 3_000, 5, 88_400, 4_000]


async def turn(
    connection: Connection, mine: str, *last: str | bytes | int, call_id: str = ""
) -> Any:
    keys = [*QUEUE, *([layout.facts_key(call_id), layout.call_key(call_id)] if call_id else [])]
    stored, *taken = await connection.script(judge_scripts.JUDGE_TURN, keys, [mine, *TAKE, *last])
    assert stored == 1
    return taken


async def test_a_turn_names_keys_as_everybody_does(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    """The script makes keys of a job's id: those of `streams.layout` and arq's."""
    # the last byte names the shard
    for call_id in (layout.new_call_id()[:-2] + "07", layout.new_call_id()[:-2] + "2c"):
        job_id = layout.judge_job_id(call_id, 3, 14, 0)
        await queue.ask(call_id, 3, 14, 0, QUESTION, 20)
        assert (await turn(connection, "me"))[::2] == [job_id.encode(), 1]
        assert await redis.get(layout.judge_beat_key(call_id, 3, 14)) == b"me"
        assert await redis.get(in_progress_key_prefix + job_id) == b"me"
        assert await redis.get(retry_key_prefix + job_id) == b"1"
        field = layout.judgement_field(3, 14)
        said = await turn(
            connection, "me", job_id, layout.facts_channel(call_id), field, "{}", call_id=call_id
        )
        assert said == []
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
    await queue.ask(call_id, 0, 0, 0, QUESTION, 20)
    first = await turn(connection, "one")
    assert await turn(connection, "two") == []
    assert (await turn(connection, "one"))[:2] == first[:2]


async def test_a_turn_gives_no_question_that_is_answered_or_worked_on(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    answered, begun, expired, tried, open_ = (layout.new_call_id() for _ in range(5))
    for number, call_id in enumerate((answered, begun, expired, tried, open_)):
        await queue.ask(call_id, 0, 0, 1, QUESTION, 20)
        await redis.zadd(layout.JUDGE_QUEUE, {f"{call_id}:0:0:1": number + 1})
    await redis.hset(layout.facts_key(answered), layout.judgement_field(0, 0), "{}")
    await redis.set(layout.judge_beat_key(begun, 0, 0), "another")
    await redis.delete(f"arq:job:{expired}:0:0:1")
    await redis.set(f"arq:retry:{tried}:0:0:1", 5)
    assert (await turn(connection, "me"))[0] == f"{open_}:0:0:1".encode()
    # the others are off the queue
    assert await redis.zrange(layout.JUDGE_QUEUE, 0, -1) == [f"{open_}:0:0:1".encode()]
    assert await redis.get(layout.judge_beat_key(begun, 0, 0)) == b"another"


async def test_a_turn_looks_past_all_that_others_work_on(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    """More than a page of the queue, some of it to be taken away in passing."""
    calls = [layout.new_call_id() for _ in range(90)]
    for number, call_id in enumerate(calls):
        await queue.ask(call_id, 0, 0, 0, QUESTION, 20)
        await redis.zadd(layout.JUDGE_QUEUE, {f"{call_id}:0:0:0": number + 1})
        if number % 3 == 0:
            await redis.delete(f"arq:job:{call_id}:0:0:0")
        elif number < 85:
            await redis.set(f"arq:in-progress:{call_id}:0:0:0", "another", ex=60)
    assert [(await turn(connection, name))[0] for name in "abcd"] == [
        f"{calls[n]}:0:0:0".encode() for n in (85, 86, 88, 89)
    ]
    assert await turn(connection, "e") == []
    assert await redis.zcard(layout.JUDGE_QUEUE) == 60


async def test_a_judge_that_is_busy_leaves_no_bell_behind(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    for _ in range(3):
        await queue.ask(layout.new_call_id(), 0, 0, 0, QUESTION, 20)
    assert await redis.llen(layout.JUDGE_WAKE_UPS) == 3
    for name in "abc":
        assert await turn(connection, name)
    assert await redis.llen(layout.JUDGE_WAKE_UPS) == 0


async def test_a_late_answer_is_told_so_and_changes_nothing(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    call_id, field = layout.new_call_id(), layout.judgement_field(0, 0)
    await queue.ask(call_id, 0, 0, 0, QUESTION, 20)
    job_id = (await turn(connection, "me"))[0]
    await redis.hset(layout.facts_key(call_id), field, "first")
    keys = [*QUEUE, layout.facts_key(call_id), layout.call_key(call_id)]
    last: list[Any] = [job_id, layout.facts_channel(call_id), field, "second"]
    said = await connection.script(judge_scripts.JUDGE_TURN, keys, ["me", *TAKE, *last])
    assert said == [0]
    assert await redis.hget(layout.facts_key(call_id), field) == b"first"
    assert await redis.zcard(layout.JUDGE_QUEUE) == 0


async def test_an_answer_about_a_call_that_is_over_is_not_kept(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    call_id = layout.new_call_id()
    await queue.ask(call_id, 0, 0, 0, QUESTION, 20)
    await redis.delete(layout.call_key(call_id))
    job_id = (await turn(connection, "me"))[0]
    keys = [*QUEUE, layout.facts_key(call_id), layout.call_key(call_id)]
    last: list[Any] = [job_id, layout.facts_channel(call_id), layout.judgement_field(0, 0), "{}"]
    assert await connection.script(judge_scripts.JUDGE_TURN, keys, ["me", *TAKE, *last]) == [0]
    assert not await redis.exists(layout.facts_key(call_id))
    assert await redis.zcard(layout.JUDGE_QUEUE) == 0, "the question is over all the same"


async def test_a_judge_that_ends_stores_its_answer_and_takes_nothing(
    queue: JudgeQueue, connection: Connection, redis: Client
) -> None:
    mine, other = layout.new_call_id(), layout.new_call_id()
    for number, call_id in enumerate((mine, other)):
        await queue.ask(call_id, 0, 0, 0, QUESTION, 20)
        await redis.zadd(layout.JUDGE_QUEUE, {f"{call_id}:0:0:0": number + 1})
    job_id = (await turn(connection, "me"))[0]
    keys = [*QUEUE, layout.facts_key(mine), layout.call_key(mine)]
    last: list[Any] = [job_id, layout.facts_channel(mine), layout.judgement_field(0, 0), "{}"]
    assert await connection.script(
        judge_scripts.JUDGE_TURN, keys, ["again", "0", *TAKE[1:], *last]
    ) == [1]
    assert await redis.zrange(layout.JUDGE_QUEUE, 0, -1) == [f"{other}:0:0:0".encode()]
    assert not await redis.exists(in_progress_key_prefix + f"{other}:0:0:0")


# --- turns ---


async def ask(queue: JudgeQueue, key: str, count: int = 1) -> list[str]:
    """Ask so many questions of a key, each of another call; gives the jobs."""
    calls = [layout.new_call_id() for _ in range(count)]
    for call_id in calls:
        await queue.ask(call_id, 0, 0, 0, QUESTION, 20, key=key)
    return [layout.judge_job_id(call_id, 0, 0, 0) for call_id in calls]


async def taken(connection: Connection, count: int, *, done: bool = False) -> list[str]:
    """Take so many jobs, each for a place of its own; `done`: and answer each."""
    jobs = []
    for _ in range(count):
        found = await turn(connection, f"place {time.monotonic_ns()}")
        if not found:
            break
        jobs.append(found[0].decode())
        if done:
            await connection.call("ZREM", layout.JUDGE_QUEUE, found[0])
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
    again = ["me", "again", *TAKE[1:]]
    assert (await connection.script(judge_scripts.JUDGE_TURN, QUEUE, again))[1] == first[0]


async def test_turns_and_shares_expire(queue: JudgeQueue, redis: Client) -> None:
    await ask(queue, "x", 3)
    assert 0 < await redis.ttl(layout.JUDGE_TURNS) <= layout.JUDGE_TURNS_S
    assert 0 < await redis.ttl(layout.JUDGE_SHARES) <= layout.JUDGE_TURNS_S
