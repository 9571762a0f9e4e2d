"""What a judge asks a model, and what becomes of its answers."""

import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import web

from policy.judging.prompt import SYSTEM
from policy.session.effects import JudgeRequest
from streams import layout
from tests.support.json_values import Json
from tests.support.servers.proxy import proxied
from tests.support.upstreams.judging import (
    GOOD,
    NONCE,
    Client,
    Upstream,
    answer,
    anthropic_answer,
    judged,
    judging,
    openai_answer,
    question,
    runtime,
    until,
)
from tests.support.waiting import wait_until
from workers import judge_queue
from workers.judge.answering import Judge
from workers.judge.model import JudgePace
from workers.judge_queue import JudgeQueue


@pytest.mark.parametrize(("command", "harmful"), [("rm -rf /", True), ("ls -l", False)])
async def test_demo_judge_answers(
    redis_url: str, queue: JudgeQueue, redis: Client, command: str, harmful: bool
) -> None:
    said = await judged(runtime(redis_url), queue, redis, question(command=command))
    assert said.probability is not None
    assert (said.probability >= 0.6) is harmful
    assert (said.prompt, said.attempts, said.error, said.model) == (
        "the prompt",
        1,
        "",
        "demo-judge",
    )
    assert json.loads(said.reply)["nonce"] == NONCE


async def test_an_idle_judge_starts_at_once(
    redis_url: str, queue: JudgeQueue, redis: Client
) -> None:
    async with judging(runtime(redis_url)):
        await until(lambda: redis.hlen(layout.WORKERS_KEY))
        took = []
        for _ in range(10):
            call_id, began = layout.new_call_id(), time.monotonic()
            await queue.ask(JudgeRequest(call_id, 0, 0, question()), 10)
            await answer(redis, call_id)
            took.append(time.monotonic() - began)
    # polling alone would take a second
    assert sorted(took)[5] < 0.2


async def test_every_key_of_an_answered_question_expires_or_is_gone(
    redis_url: str, queue: JudgeQueue, redis: Client
) -> None:
    await judged(runtime(redis_url), queue, redis, question())
    await until(lambda: _none_left(redis))


async def _none_left(redis: Client) -> bool:
    lasting = [key async for key in redis.scan_iter() if await redis.ttl(key) < 0]
    return lasting in ([], [layout.WORKERS_KEY.encode()])


async def test_openai_upstream_is_asked_for_strict_json(
    redis_url: str,
    queue: JudgeQueue,
    redis: Client,
    upstream: Upstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_JUDGE_KEY", "sk-canary")
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"))
    path, headers, body = upstream.seen[0]
    assert (said.probability, said.explanation, said.reply, said.error) == (
        0.25,
        "reads a file",
        GOOD,
        "",
    )
    assert (path, headers["Authorization"], body["temperature"]) == (
        "/v1/chat/completions",
        "Bearer sk-canary",
        0,
    )
    assert body["response_format"]["json_schema"]["strict"] is True
    assert [m["content"] for m in body["messages"]] == [SYSTEM, "the prompt"]


async def test_anthropic_upstream_is_forced_to_a_tool(
    redis_url: str,
    queue: JudgeQueue,
    redis: Client,
    upstream: Upstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_JUDGE_KEY", "sk-canary")
    upstream.answers = [(200, anthropic_answer(GOOD))]
    said = await judged(runtime(redis_url, upstream), queue, redis, question("claude-x"))
    path, headers, body = upstream.seen[0]
    assert (said.probability, said.error) == (0.25, "")
    assert (path, headers["x-api-key"], body["temperature"]) == ("/v1/messages", "sk-canary", 0)
    assert body["tool_choice"] == {"type": "tool", "name": "judgement"}


@pytest.mark.case("J1")
async def test_429_and_500_are_asked_again(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    upstream.answers = [(429, {}), (500, {}), (200, openai_answer(GOOD))]
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"))
    assert (said.probability, said.attempts, said.error) == (0.25, 3, "")


@pytest.mark.case("J1")
@pytest.mark.slow
async def test_an_upstream_that_takes_few_at_once_is_asked_no_more(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    """A key's flood of questions made the upstream refuse every second question of everybody, three
    times in a row for some."""
    upstream.most, upstream.delay_s = 2, 0.02
    settings = runtime(redis_url, upstream)
    judge = Judge(settings)
    asks = [JudgeRequest(layout.new_call_id(), 0, 0, question("gpt-x")) for _ in range(100)]
    said = await asyncio.gather(*(judge.judge(ask, 60) for ask in asks))
    await judge.models.close()
    assert [s.error for s in said] == [""] * 100
    # a hundred at once are refused once, and hardly any after that
    assert 50 < upstream.refused < 250


async def test_an_upstream_that_is_always_busy_is_given_up(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    upstream.answers = [(429, {})]
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"), within_s=30)
    assert (said.error, said.attempts) == ("unavailable", 8)


async def test_who_gives_up_waiting_for_a_place_leaves_it_to_the_next() -> None:
    pace, held = JudgePace(), asyncio.Event()
    pace._most = 1.0

    async def hold() -> None:
        async with pace.turn():
            await held.wait()

    first, second, third = (asyncio.create_task(hold()) for _ in range(3))
    await wait_until(lambda: len(pace._waiting) == 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    # the second was given the place in that moment, and is cancelled before it hears of it
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    held.set()
    await asyncio.wait_for(third, 5)
    assert (pace._running, list(pace._waiting)) == (0, [])


async def test_a_model_that_refuses_a_temperature_is_asked_without(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    upstream.answers = [(400, {"error": {"param": "temperature"}}), (200, openai_answer(GOOD))]
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"))
    assert (said.probability, "temperature" in upstream.seen[1][2]) == (0.25, False)


async def test_a_server_that_knows_neither_temperature_nor_schemas_is_asked_without(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    upstream.answers = [
        (400, {"error": "response_format and temperature are unknown"}),
        (400, {"error": "response_format is unknown"}),
        (200, openai_answer(GOOD)),
    ]
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"))
    assert (said.probability, said.attempts) == (0.25, 3)
    assert (
        upstream.seen[2][2]["response_format"] == {"type": "json_object"}
        and "temperature" not in upstream.seen[2][2]
    )


@pytest.mark.case("J2")
async def test_a_forced_tool_with_a_key_twice_is_invalid(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    twice = GOOD.replace("{", '{"probability": 0.9, ', 1)
    whole = json.dumps(anthropic_answer(GOOD)).replace(GOOD, twice)
    upstream.answers = [(200, web.Response(text=whole, content_type="application/json"))]
    said = await judged(runtime(redis_url, upstream), queue, redis, question("claude-x"))
    assert (said.probability, said.error) == (None, "invalid") and twice in said.reply


async def test_past_the_deadline_nobody_is_asked(redis_url: str, upstream: Upstream) -> None:
    judge = Judge(runtime(redis_url, upstream))
    for model in ("demo-judge", "gpt-x"):
        said = await judge.judge(JudgeRequest(layout.new_call_id(), 0, 0, question(model)), -0.1)
        assert (said.error, said.probability, said.attempts, upstream.seen) == (
            "deadline",
            None,
            0,
            [],
        )


@pytest.mark.parametrize("shift_s", [-3600, 3600])
async def test_the_clock_of_who_asks_decides_nothing(
    redis_url: str,
    queue: JudgeQueue,
    redis: Client,
    upstream: Upstream,
    shift_s: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = SimpleNamespace(
        time=lambda: time.time() + shift_s,
        time_ns=lambda: time.time_ns() + shift_s * 10**9,
        monotonic=time.monotonic,
    )
    monkeypatch.setattr(judge_queue, "time", theirs)
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"))
    assert (said.probability, said.error) == (0.25, "")
    # and what is too late is too late by the span alone
    upstream.delay_s, began = 5.0, time.monotonic()
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"), within_s=0.5)
    assert said.error == "deadline" and time.monotonic() - began < 4
    upstream.delay_s = 0.0


async def test_a_job_of_the_version_before_is_answered(
    redis_url: str, queue: JudgeQueue, redis: Client
) -> None:
    """Its asker said until when by its own clock, which is behind; the life of its text is the span
    all the same."""
    call_id = layout.new_call_id()
    job_id, ask = layout.judge_job_id(call_id, 0, 0, 0), JudgeRequest(call_id, 0, 0, question())
    job: Json = {
        "t": None,
        "f": "judge",
        "a": [msgspec.json.encode(ask).decode()],
        "k": {},
        "et": 1,
    }
    async with judging(runtime(redis_url)):
        await redis.psetex("arq:job:" + job_id, 20_000, msgspec.json.encode(job))
        await redis.xadd(layout.call_key(call_id), {"b": "start"})
        await redis.zadd(layout.JUDGE_QUEUE, {job_id: time.time() * 1000})
        assert (await answer(redis, call_id)).error == ""


@pytest.mark.slow
async def test_an_outage_of_redis_is_told_of_once(
    redis_url: str, redis: Client, caplog: pytest.LogCaptureFixture
) -> None:

    def warnings() -> int:
        return sum("the judge" in r.message and r.levelname == "WARNING" for r in caplog.records)

    caplog.set_level("INFO")
    with proxied(redis_url) as proxy:
        async with judging(runtime(proxy.url(redis_url))):
            await until(lambda: redis.hlen(layout.WORKERS_KEY))
            proxy.refuse()
            proxy.reset()
            await until(warnings)
            # long enough for each place to try again some times
            await asyncio.sleep(1)
            proxy.heal()
            await until(lambda: "the judge queue can be read again" in caplog.text)
    assert warnings() == 1


@pytest.mark.case("J1", "J2")
@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([(500, {})], "unavailable"),
        ([(401, {})], "unavailable"),
        ([(200, openai_answer("Sure, that is fine."))], "invalid"),
        ([(200, openai_answer(GOOD.replace(NONCE, "other")))], "invalid"),
        ([(200, {"choices": []})], "invalid"),
        ([(200, {"choices": [{"message": {"content": None, "refusal": "no"}}]})], "invalid"),
        ([(200, [])], "invalid"),
    ],
)
async def test_what_is_unexpected_becomes_an_error(
    redis_url: str,
    queue: JudgeQueue,
    redis: Client,
    upstream: Upstream,
    answers: list[tuple[int, Any]],
    error: str,
) -> None:
    upstream.answers = answers
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"))
    assert (said.probability, said.error) == (None, error)


@pytest.mark.case("J1")
async def test_a_silent_model_is_given_up_at_the_deadline(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    upstream.delay_s = 5
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"), within_s=0.4)
    assert (said.error, said.attempts) == ("deadline", 1)
    assert said.latency_ms < 2_000


@pytest.mark.case("J1")
@pytest.mark.parametrize("model", ["unknown", "demo"])
async def test_a_model_that_nobody_serves_is_unavailable(
    redis_url: str, queue: JudgeQueue, redis: Client, model: str
) -> None:
    assert (await judged(runtime(redis_url), queue, redis, question(model))).error == "unavailable"


async def test_a_question_about_text_is_asked_once_a_day(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    upstream.answers = [(200, openai_answer(GOOD))]
    asked = msgspec.structs.replace(question("gpt-x"), cache="d1")
    first, second = [
        await judged(runtime(redis_url, upstream), queue, redis, asked) for _ in range(2)
    ]
    assert (first.probability, first.attempts, first.error) == (0.25, 1, "")
    assert (second.probability, second.attempts, second.error) == (0.25, 0, "")
    assert second.prompt == asked.prompt and len(upstream.seen) == 1
    [key] = [key async for key in redis.scan_iter("sluice:*:judged:*")]
    assert 86_000 < await redis.ttl(key) <= 86_400
    # another model, and another question
    for other in (
        msgspec.structs.replace(asked, model="gpt-xy"),
        msgspec.structs.replace(asked, cache="d2"),
        msgspec.structs.replace(asked, cache=""),
    ):
        await judged(runtime(redis_url, upstream), queue, redis, other)
    assert len(upstream.seen) == 4


@pytest.mark.parametrize("answer", [(200, openai_answer("I think it is fine.")), (403, {})])
async def test_no_failure_is_kept_nor_a_spoilt_entry_used(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream, answer: tuple[int, Json]
) -> None:
    upstream.answers = [answer]
    asked = msgspec.structs.replace(question("gpt-x"), cache="d1")
    assert (await judged(runtime(redis_url, upstream), queue, redis, asked)).error
    assert not [key async for key in redis.scan_iter("sluice:*:judged:*")]
    upstream.answers = [(200, openai_answer(GOOD))]
    await judged(runtime(redis_url, upstream), queue, redis, asked)
    [key] = [key async for key in redis.scan_iter("sluice:*:judged:*")]
    await redis.set(key, b"{spoilt", ex=60)
    said = await judged(runtime(redis_url, upstream), queue, redis, asked)
    assert (said.probability, said.attempts) == (0.25, 1)
