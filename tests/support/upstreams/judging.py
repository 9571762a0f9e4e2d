"""A judge worker in this process, a provider that it asks, and one question put to it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from aiohttp import web

from policy.base import Judgement, JudgeQuestion
from policy.judging.prompt import SYSTEM
from policy.session.effects import JudgeRequest
from settings.config import Config
from settings.runtime import Runtime
from streams import layout
from tests.support.json_values import Json
from tests.support.waiting import wait_until
from workers.judge.worker import serve
from workers.judge_queue import JudgeQueue

NONCE = "c0ffee"
GOOD = json.dumps({"nonce": NONCE, "probability": 0.25, "explanation": "reads a file"})
Client = Any
"""redis.asyncio.Redis, whose commands are typed as either awaitable or not."""


def question(
    model: str = "demo-judge", command: str = "ls", deadline_s: float | None = None
) -> JudgeQuestion:
    return JudgeQuestion(
        model,
        SYSTEM,
        "the prompt",
        NONCE,
        0.6,
        deadline_s,
        {"name": "bash", "arguments": json.dumps({"command": command})},
    )


async def until(condition: Callable[[], Any]) -> Any:
    return await wait_until(condition)


def openai_answer(text: str) -> Json:
    return {
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        ]
    }


def anthropic_answer(text: str) -> Json:
    call = {"type": "tool_use", "id": "t", "name": "judgement", "input": json.loads(text)}
    return {"type": "message", "content": [call], "stop_reason": "tool_use"}


class Upstream:
    """Plays a provider: answers from `answers` (status, body), the last one again and again; `seen`
    has the requests."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = [(200, openai_answer(GOOD))]
        self.seen: list[tuple[str, dict[str, str], Json]] = []
        self.delay_s = 0.0
        self.most, self.running, self.refused = 10**9, 0, 0
        """How many requests it takes at once; more are refused with 429."""
        self.refuses: Callable[[Json], tuple[int, Any] | None] = lambda body: None
        """Status and body for a request that it does not take."""
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.path, dict(request.headers), await request.json()))
        if self.running >= self.most:
            self.refused += 1
            return web.json_response({}, status=429)
        self.running += 1
        await asyncio.sleep(self.delay_s)
        self.running -= 1
        refusal = self.refuses(self.seen[-1][2])
        if refusal is not None:
            return web.json_response(refusal[1], status=refusal[0])
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return body if isinstance(body, web.Response) else web.json_response(body, status=status)


def runtime(
    redis_url: str, upstream: Upstream | None = None, judge_reply: str | None = None, **limits: Any
) -> Runtime:
    providers = {}
    if upstream is not None:
        providers = {
            "one": {
                "dialect": "openai",
                "base_url": f"{upstream.url}/v1",
                "api_key_env": "TEST_JUDGE_KEY",
            },
            "two": {
                "dialect": "anthropic",
                "base_url": upstream.url,
                "api_key_env": "TEST_JUDGE_KEY",
            },
        }
        if judge_reply:
            providers["one"]["judge_reply"] = judge_reply
    models = (
        [{"match": "gpt-*", "upstream": "one"}, {"match": "claude-*", "upstream": "two"}]
        if upstream
        else []
    )
    config = Config.model_validate(
        {"upstreams": providers, "models": models, "limits": {"drain_s": 0.2, **limits}}
    )
    return Runtime(
        config=config, redis_url=redis_url, database_url="", name="judge-test", concurrency=4
    )


@contextlib.asynccontextmanager
async def judging(settings: Runtime) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    task = asyncio.create_task(serve(settings, stopping))
    try:
        yield
    finally:
        stopping.set()
        await task


class QueueOfCalls(JudgeQueue):
    """The queue of a worker whose calls have the streams that calls have: without one, nobody keeps
    the answer."""

    async def ask(self, request: JudgeRequest, within_s: float, *, key: str = "") -> None:
        """Ask about a call."""
        stream = layout.call_key(request.call_id)
        await self._redis.call("XADD", stream, "*", "b", "start")
        await self._redis.call("PEXPIRE", stream, 60_000)
        await super().ask(request, within_s, key=key)


async def answer(redis: Client, call_id: str, *, block: int = 0, step: int = 0) -> Judgement:
    value = await until(
        lambda: redis.hget(layout.facts_key(call_id), layout.judgement_field(block, step))
    )
    return msgspec.json.decode(value, type=Judgement)


async def judged(
    settings: Runtime,
    queue: JudgeQueue,
    redis: Client,
    asked: JudgeQuestion,
    *,
    within_s: float = 10,
) -> Judgement:
    call_id = layout.new_call_id()
    async with judging(settings):
        await queue.ask(JudgeRequest(call_id, 0, 0, asked), within_s)
        return await answer(redis, call_id)
