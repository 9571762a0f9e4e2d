"""A judge model that fails, or is silent: another one answers, and nobody waits for it any more."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import msgspec
import redis as sync

from policy.base import Judgement
from policy.session.effects import JudgeRequest
from settings.config import Config
from streams import layout
from streams.connection import Connection
from streams.health import Health
from tests.support.upstreams.judging import (
    GOOD,
    Client,
    Upstream,
    answer,
    anthropic_answer,
    judging,
    openai_answer,
    question,
    runtime,
    until,
)
from tests.support.waiting import wait_until
from workers.judge.answering import Judge
from workers.judge.cache import CachedJudgements
from workers.judge_queue import JudgeQueue


@contextlib.asynccontextmanager
async def opened(redis_url: str, upstream: Upstream) -> AsyncIterator[Judge]:
    judge = Judge(runtime(redis_url, upstream))
    try:
        yield judge
    finally:
        await judge.models.close()


async def ask(judge: Judge, fallback: str = "", left_s: float = 20) -> Judgement:
    asked = msgspec.structs.replace(question("gpt-x"), fallback=fallback)
    return await judge.judge(JudgeRequest(layout.new_call_id(), 0, 0, asked), left_s)


def fails(upstream: Upstream) -> None:
    """Let the model of the first dialect fail, and the other answer."""
    upstream.answers = [(200, anthropic_answer(GOOD))]
    upstream.refuses = lambda body: (503, {}) if body["model"] == "gpt-x" else None


async def test_a_model_that_fails_is_left_alone(redis_url: str, upstream: Upstream) -> None:
    async with opened(redis_url, upstream) as judge:
        upstream.answers = [(503, {})]
        for _ in range(4):
            assert (await ask(judge)).error == "unavailable"
        assert len(upstream.seen) == 10
        refused = await ask(judge)
        assert (refused.error, refused.attempts, len(upstream.seen)) == ("unavailable", 0, 10)
        assert "failed too often and is left alone for" in refused.explanation
        # another model of the same upstream is asked
        upstream.answers = [(200, openai_answer(GOOD))]
        other = JudgeRequest(layout.new_call_id(), 0, 0, question("gpt-y"))
        assert (await judge.judge(other, 20)).error == ""
        states = judge.models.breakers.states(time.monotonic())
        assert states["gpt-x"] > 0 and states["gpt-y"] == 0


async def test_operators_are_told_of_a_model_that_is_left_alone(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    upstream.answers = [(503, {})]
    health = Health(Config(), sync.Redis.from_url(redis_url), judged=True, ops="")
    async with judging(runtime(redis_url, upstream)):
        for _ in range(4):
            call_id = layout.new_call_id()
            await queue.ask(JudgeRequest(call_id, 0, 0, question("gpt-x")), 10)
            await answer(redis, call_id)
        await until(lambda: "the model 'gpt-x'" in str(health.workers()))


async def test_a_key_that_makes_a_model_fail_stops_itself_alone(
    redis_url: str, upstream: Upstream
) -> None:
    async with opened(redis_url, upstream) as judge:

        async def asked_by(key: str) -> Judgement:
            ask = JudgeRequest(layout.new_call_id(), 0, 0, question("gpt-x"), key_id=key)
            return await judge.judge(ask, 20)

        upstream.answers = [(503, {})]
        for _ in range(4):
            await asked_by("hostile")
        assert (await asked_by("hostile")).attempts == 0
        upstream.answers = [(200, openai_answer(GOOD))]
        assert (await asked_by("innocent")).error == ""
        assert (await asked_by("hostile")).attempts == 0


async def test_another_model_answers_and_is_named(redis_url: str, upstream: Upstream) -> None:
    async with opened(redis_url, upstream) as judge:
        fails(upstream)
        first = await ask(judge, "claude-x")
        assert (first.error, first.model, first.probability, first.attempts) == (
            "",
            "claude-x",
            0.25,
            4,
        )
        while len(upstream.seen) < 13:
            await ask(judge, "claude-x")
        asked = len(upstream.seen)
        # the first is not asked any more
        last = await ask(judge, "claude-x")
        assert (last.model, last.attempts, len(upstream.seen)) == ("claude-x", 1, asked + 1)


async def test_its_answers_are_not_kept_for_the_first(
    redis_url: str, connection: Connection, upstream: Upstream
) -> None:
    cache, asked = CachedJudgements(connection), question("gpt-x")
    asked = msgspec.structs.replace(asked, fallback="claude-x", cache="key:text")
    judge = Judge(runtime(redis_url, upstream), cache)
    try:
        fails(upstream)
        request = JudgeRequest(layout.new_call_id(), 0, 0, asked)
        assert (await judge.judge(request, 20)).model == "claude-x"
        upstream.answers, upstream.refuses = [(200, openai_answer(GOOD))], lambda _: None
        assert (await judge.judge(request, 20)).model == "gpt-x"
    finally:
        await judge.models.close()


async def test_a_silent_model_has_half_of_the_time(redis_url: str, upstream: Upstream) -> None:
    async with opened(redis_url, upstream) as judge:
        upstream.answers, upstream.delay_s = [(200, anthropic_answer(GOOD))], 30
        asking = asyncio.create_task(ask(judge, "claude-x", left_s=2))
        await wait_until(lambda: upstream.seen)
        upstream.delay_s = 0.0
        answer = await asking
        assert (answer.error, answer.model) == ("", "claude-x")
        assert [body["model"] for _, _, body in upstream.seen] == ["gpt-x", "claude-x"]
