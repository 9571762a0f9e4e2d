import asyncio
import contextlib
import json
import pickle
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import arq
import msgspec
import pytest
from aiohttp import web
from arq.worker import func
from redis.asyncio import Redis

from policy.base import Judgement, JudgeQuestion
from policy.judging import SYSTEM
from protocol.config import Config, Runtime
from protocol.errors import JudgeUnavailable
from streams import layout
from streams.connection import Connection
from tests.support.product import Product
from tests.support.proxy import proxied
from tests.support.waiting import wait_until
from workers import judge_queue
from workers.judge import Judge, JudgeWorker, serve
from workers.judge_model import Pace
from workers.judge_queue import MAX_ATTEMPTS, Ask, JudgeQueue, deserialize, open_pool, serialize

NONCE = "c0ffee"
GOOD = json.dumps({"nonce": NONCE, "probability": 0.25, "explanation": "reads a file"})
Client = Any
"""redis.asyncio.Redis, whose commands are typed as either awaitable or not."""


def question(model: str = "demo-judge", command: str = "ls", deadline_s: float | None = None) -> JudgeQuestion:
    return JudgeQuestion(
        model, SYSTEM, "the prompt", NONCE, 0.6, deadline_s, {"name": "bash", "arguments": json.dumps({"command": command})}
    )


async def until(condition: Callable[[], Any]) -> Any:
    return await wait_until(condition)


def in_ms(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


def openai_answer(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}]}


def anthropic_answer(text: str) -> dict[str, Any]:
    return {"content": [{"type": "tool_use", "id": "t", "name": "judgement", "input": json.loads(text)}], "stop_reason": "tool_use"}


class Upstream:
    """Plays a provider: answers from `answers` (status, body), the last one again and again; `seen` has the requests."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = [(200, openai_answer(GOOD))]
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.delay_s = 0.0
        self.most, self.running, self.refused = 10**9, 0, 0
        """How many requests it takes at once; more are refused with 429."""
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.path, dict(request.headers), await request.json()))
        if self.running >= self.most:
            self.refused += 1
            return web.json_response({}, status=429)
        self.running += 1
        await asyncio.sleep(self.delay_s)
        self.running -= 1
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return body if isinstance(body, web.Response) else web.json_response(body, status=status)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    played = Upstream()
    app = web.Application()
    app.router.add_post("/{path:.*}", played.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    played.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield played
    await runner.cleanup()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Client]:
    client: Client = Redis.from_url(redis_url)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
async def connection(redis_url: str, redis: Client) -> AsyncIterator[Connection]:
    opened = Connection(redis_url, name="test")
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def queue(redis_url: str, connection: Connection) -> AsyncIterator[JudgeQueue]:
    asked = JudgeQueue(redis_url, connection)
    yield asked
    await asked.close()


def runtime(redis_url: str, upstream: Upstream | None = None, **limits: Any) -> Runtime:
    providers = {}
    if upstream is not None:
        providers = {
            "one": {"dialect": "openai", "base_url": f"{upstream.url}/v1", "api_key_env": "TEST_JUDGE_KEY"},
            "two": {"dialect": "anthropic", "base_url": upstream.url, "api_key_env": "TEST_JUDGE_KEY"},
        }
    models = [{"match": "gpt-*", "upstream": "one"}, {"match": "claude-*", "upstream": "two"}] if upstream else []
    config = Config.model_validate({"upstreams": providers, "models": models, "limits": {"drain_s": 0.2, **limits}})
    return Runtime(config=config, redis_url=redis_url, database_url="", name="judge-test", concurrency=4)


@contextlib.asynccontextmanager
async def judging(settings: Runtime) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    task = asyncio.create_task(serve(settings, stopping))
    try:
        yield
    finally:
        stopping.set()
        await task


async def answer(redis: Client, call_id: str, *, block: int = 0, step: int = 0) -> Judgement:
    value = await until(lambda: redis.hget(layout.facts_key(call_id), layout.judgement_field(block, step)))
    return msgspec.json.decode(value, type=Judgement)


async def judged(settings: Runtime, queue: JudgeQueue, redis: Client, asked: JudgeQuestion, *, within_s: float = 10) -> Judgement:
    call_id = layout.new_call_id()
    async with judging(settings):
        await queue.ask(call_id, 0, 0, 0, asked, within_s)
        return await answer(redis, call_id)


@pytest.mark.parametrize(("command", "harmful"), [("rm -rf /", True), ("ls -l", False)])
async def test_demo_judge_answers(redis_url: str, queue: JudgeQueue, redis: Client, command: str, harmful: bool) -> None:
    said = await judged(runtime(redis_url), queue, redis, question(command=command))
    assert said.probability is not None
    assert (said.probability >= 0.6) is harmful
    assert (said.prompt, said.attempts, said.error, said.model) == ("the prompt", 1, "", "demo-judge")
    assert json.loads(said.reply)["nonce"] == NONCE


async def test_an_idle_judge_starts_at_once(redis_url: str, queue: JudgeQueue, redis: Client) -> None:
    async with judging(runtime(redis_url)):
        await until(lambda: redis.hlen(layout.WORKERS_KEY))
        took = []
        for _ in range(10):
            call_id, began = layout.new_call_id(), time.monotonic()
            await queue.ask(call_id, 0, 0, 0, question(), 10)
            await answer(redis, call_id)
            took.append(time.monotonic() - began)
    # polling alone would take a second
    assert sorted(took)[5] < 0.2


async def test_every_key_of_an_answered_question_expires_or_is_gone(redis_url: str, queue: JudgeQueue, redis: Client) -> None:
    await judged(runtime(redis_url), queue, redis, question())
    await until(lambda: _none_left(redis))


async def _none_left(redis: Client) -> bool:
    lasting = [key async for key in redis.scan_iter() if await redis.ttl(key) < 0]
    return lasting in ([], [layout.WORKERS_KEY.encode()])


async def test_openai_upstream_is_asked_for_strict_json(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_JUDGE_KEY", "sk-canary")
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"))
    path, headers, body = upstream.seen[0]
    assert (said.probability, said.explanation, said.reply, said.error) == (0.25, "reads a file", GOOD, "")
    assert (path, headers["Authorization"], body["temperature"]) == ("/v1/chat/completions", "Bearer sk-canary", 0)
    assert body["response_format"]["json_schema"]["strict"] is True
    assert [m["content"] for m in body["messages"]] == [SYSTEM, "the prompt"]


async def test_anthropic_upstream_is_forced_to_a_tool(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_JUDGE_KEY", "sk-canary")
    upstream.answers = [(200, anthropic_answer(GOOD))]
    said = await judged(runtime(redis_url, upstream), queue, redis, question("claude-x"))
    path, headers, body = upstream.seen[0]
    assert (said.probability, said.error) == (0.25, "")
    assert (path, headers["x-api-key"], body["temperature"]) == ("/v1/messages", "sk-canary", 0)
    assert body["tool_choice"] == {"type": "tool", "name": "judgement"}


@pytest.mark.case("J1")
async def test_429_and_500_are_asked_again(redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream) -> None:
    upstream.answers = [(429, {}), (500, {}), (200, openai_answer(GOOD))]
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"))
    assert (said.probability, said.attempts, said.error) == (0.25, 3, "")


@pytest.mark.case("J1")
async def test_an_upstream_that_takes_few_at_once_is_asked_no_more(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    """A key's flood of questions made the upstream refuse every second question of everybody, three times in a row for some."""
    upstream.most, upstream.delay_s = 2, 0.02
    settings = runtime(redis_url, upstream)
    judge = Judge(settings)
    asks = [Ask(layout.new_call_id(), 0, 0, 0, question("gpt-x"), in_ms(60)) for _ in range(100)]
    said = await asyncio.gather(*(judge.judge(ask, 60) for ask in asks))
    await judge.models.close()
    assert [s.error for s in said] == [""] * 100
    # a hundred at once are refused once, and hardly any after that
    assert 50 < upstream.refused < 250


async def test_an_upstream_that_is_always_busy_is_given_up(redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream) -> None:
    upstream.answers = [(429, {})]
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"), within_s=30)
    assert (said.error, said.attempts) == ("unavailable", 8)


async def test_who_gives_up_waiting_for_a_place_leaves_it_to_the_next() -> None:
    pace, held = Pace(), asyncio.Event()
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


async def test_a_server_that_knows_no_schemas_is_asked_without(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    upstream.answers = [
        (400, {"error": "response_format and temperature are unknown"}),
        (400, {"error": "response_format is unknown"}),
        (200, openai_answer(GOOD)),
    ]
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"))
    assert (said.probability, said.attempts) == (0.25, 3)
    assert set(upstream.seen[2][2]) == {"model", "messages"}


@pytest.mark.case("J2")
async def test_a_forced_tool_with_a_key_twice_is_invalid(redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream) -> None:
    twice = GOOD.replace("{", '{"probability": 0.9, ', 1)
    whole = json.dumps(anthropic_answer(GOOD)).replace(GOOD, twice)
    upstream.answers = [(200, web.Response(text=whole, content_type="application/json"))]
    said = await judged(runtime(redis_url, upstream), queue, redis, question("claude-x"))
    assert (said.probability, said.error, said.reply) == (None, "invalid", twice)


async def test_past_the_deadline_nobody_is_asked(redis_url: str, upstream: Upstream) -> None:
    judge = Judge(runtime(redis_url, upstream))
    for model in ("demo-judge", "gpt-x"):
        said = await judge.judge(Ask(layout.new_call_id(), 0, 0, 0, question(model), in_ms(60)), -0.1)
        assert (said.error, said.probability, said.attempts, upstream.seen) == ("deadline", None, 0, [])


@pytest.mark.parametrize("shift_s", [-3600, 3600])
async def test_the_clock_of_who_asks_decides_nothing(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream, shift_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = SimpleNamespace(time=lambda: time.time() + shift_s, time_ns=lambda: time.time_ns() + shift_s * 10**9, monotonic=time.monotonic)
    monkeypatch.setattr(judge_queue, "time", theirs)
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"))
    assert (said.probability, said.error) == (0.25, "")
    # and what is too late is too late by the span alone
    upstream.delay_s, began = 5.0, time.monotonic()
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"), within_s=0.5)
    assert said.error == "deadline" and time.monotonic() - began < 4
    upstream.delay_s = 0.0


async def test_a_job_of_the_version_before_is_answered(redis_url: str, queue: JudgeQueue, redis: Client) -> None:
    """Its asker said until when by its own clock, which is behind; the life of its text is the span all the same."""
    call_id = layout.new_call_id()
    job_id, ask = layout.judge_job_id(call_id, 0, 0, 0), Ask(call_id, 0, 0, 0, question(), in_ms(-3600))
    job: dict[str, Any] = {"t": None, "f": "judge", "a": [msgspec.json.encode(ask).decode()], "k": {}, "et": 1}
    async with judging(runtime(redis_url)):
        await redis.psetex("arq:job:" + job_id, 20_000, msgspec.json.encode(job))
        await redis.zadd(layout.JUDGE_QUEUE, {job_id: time.time() * 1000})
        assert (await answer(redis, call_id)).error == ""


async def test_an_outage_of_redis_is_told_of_once(redis_url: str, redis: Client, caplog: pytest.LogCaptureFixture) -> None:

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
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream, answers: list[tuple[int, Any]], error: str
) -> None:
    upstream.answers = answers
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"))
    assert (said.probability, said.error) == (None, error)


@pytest.mark.case("J1")
async def test_a_silent_model_is_given_up_at_the_deadline(redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream) -> None:
    upstream.delay_s = 5
    said = await judged(runtime(redis_url, upstream), queue, redis, question("gpt-x"), within_s=0.4)
    assert (said.error, said.attempts) == ("deadline", 1)
    assert said.latency_ms < 2_000


@pytest.mark.case("J1")
@pytest.mark.parametrize("model", ["unknown", "demo"])
async def test_a_model_that_nobody_serves_is_unavailable(redis_url: str, queue: JudgeQueue, redis: Client, model: str) -> None:
    assert (await judged(runtime(redis_url), queue, redis, question(model))).error == "unavailable"


@pytest.mark.case("J4")
async def test_the_first_answer_stays(redis_url: str, queue: JudgeQueue, redis: Client) -> None:
    call_id = layout.new_call_id()
    first = '{"probability":null,"error":"deadline"}'
    await redis.hset(layout.facts_key(call_id), layout.judgement_field(0, 0), first)
    async with judging(runtime(redis_url)):
        await queue.ask(call_id, 0, 0, 0, question(), 10)
        await until(lambda: _depth_is(queue, 0))
    assert await redis.hget(layout.facts_key(call_id), layout.judgement_field(0, 0)) == first.encode()


async def _depth_is(queue: JudgeQueue, depth: int) -> bool:
    return (await queue.stats())["depth"] == depth


@pytest.mark.case("W10")
async def test_a_pickle_is_rejected_and_the_queue_goes_on(redis_url: str, queue: JudgeQueue, redis: Client, tmp_path: Any) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (open, (str(tmp_path / "owned"), "w"))

    await redis.set("arq:job:evil", pickle.dumps({"t": 1, "f": "judge", "a": (Evil(),), "k": {}, "et": 1}), ex=60)
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
    text = msgspec.json.encode(Ask(meant, 0, 0, 0, question("gpt-x"), in_ms(20))).decode()
    job: dict[str, Any] = {"t": None, "f": "judge", "a": [text], "k": {}, "et": 1}
    await redis.set(f"arq:job:{named}:0:0:0", serialize(job), ex=60)
    await redis.zadd(layout.JUDGE_QUEUE, {f"{named}:0:0:0": time.time() * 1000})
    async with judging(runtime(redis_url, upstream)):
        await until(lambda: redis.get(layout.JUDGE_REJECTED))
        await until(lambda: _depth_is(queue, 0))
    assert not upstream.seen
    assert not await redis.exists(layout.facts_key(named), layout.facts_key(meant))


async def test_what_arq_enqueues_is_judged(redis_url: str, redis: Client) -> None:
    """arq's own client and ours put the same onto the queue."""
    call_id = layout.new_call_id()
    text = msgspec.json.encode(Ask(call_id, 0, 0, 0, question(), in_ms(20))).decode()
    pool = open_pool(redis_url)
    async with judging(runtime(redis_url)):
        await pool.enqueue_job("judge", text, _job_id=layout.judge_job_id(call_id, 0, 0, 0))
        assert (await answer(redis, call_id)).error == ""
    await pool.aclose(close_connection_pool=True)


async def test_what_we_enqueue_arq_can_run(redis_url: str, queue: JudgeQueue, redis: Client) -> None:
    call_id, run = layout.new_call_id(), list[tuple[Any, ...]]()

    async def judge(ctx: dict[str, Any], text: str) -> None:
        run.append((ctx["job_id"], ctx["job_try"], msgspec.json.decode(text, type=Ask).call_id))

    await queue.ask(call_id, 0, 0, 0, question(), 20)
    pool = open_pool(redis_url)
    worker = arq.Worker(
        [func(judge, name="judge")], redis_pool=pool, queue_name=layout.JUDGE_QUEUE, burst=True, poll_delay=0.01, handle_signals=False,
        keep_result=0, job_serializer=serialize, job_deserializer=deserialize,
    )  # fmt: skip
    await worker.async_run()
    assert run == [(layout.judge_job_id(call_id, 0, 0, 0), 1, call_id)]
    assert await _depth_is(queue, 0)
    await pool.aclose(close_connection_pool=True)


def test_jobs_survive_serialization_and_errors_become_names() -> None:
    assert deserialize(serialize({"f": "judge", "a": ["x"], "r": KeyError("secret")})) == {"f": "judge", "a": ["x"], "r": "KeyError"}


async def test_a_full_queue_refuses_at_once(redis_url: str, connection: Connection) -> None:
    queue = JudgeQueue(redis_url, connection, max_depth=2)
    for _ in range(2):
        await queue.ask(layout.new_call_id(), 0, 0, 0, question(), 10)
    with pytest.raises(JudgeUnavailable, match="2 questions"):
        await queue.ask(layout.new_call_id(), 0, 0, 0, question(), 10)
    stats = await queue.stats()
    assert stats["depth"] == 2
    assert 0 <= stats["oldest_wait_s"] < 10
    await queue.close()


async def test_asking_past_the_deadline_is_refused(queue: JudgeQueue) -> None:
    with pytest.raises(JudgeUnavailable, match="deadline"):
        await queue.ask(layout.new_call_id(), 0, 0, 0, question(), -1)


async def test_a_waiting_or_beating_question_has_not_died(queue: JudgeQueue, redis: Client) -> None:
    call_id = layout.new_call_id()
    await queue.ask(call_id, 0, 0, 0, question(), 10)
    assert await queue.died(call_id, 0, 0) is None
    await redis.set(f"arq:in-progress:{layout.judge_job_id(call_id, 0, 0, 0)}", "1", ex=60)
    await redis.set(layout.judge_beat_key(call_id, 0, 0), "1", ex=60)
    assert await queue.died(call_id, 0, 0) is None


async def test_a_judge_that_died_is_noticed_and_its_job_taken_away(queue: JudgeQueue, redis: Client) -> None:
    call_id = layout.new_call_id()
    for attempt in range(MAX_ATTEMPTS - 1):
        await queue.ask(call_id, 0, 0, attempt, question(), 10)
        await redis.set(f"arq:in-progress:{layout.judge_job_id(call_id, 0, 0, attempt)}", "1", ex=60)
        assert await queue.died(call_id, 0, 0) == attempt + 1
        assert await _depth_is(queue, 0)
    await queue.ask(call_id, 0, 0, MAX_ATTEMPTS - 1, question(), 10)
    await redis.delete(layout.JUDGE_QUEUE)
    assert await queue.died(call_id, 0, 0) is None


async def test_a_job_that_vanished_has_died_unless_it_was_answered(queue: JudgeQueue, redis: Client) -> None:
    call_id = layout.new_call_id()
    assert await queue.died(call_id, 0, 0) == 1
    await redis.hset(layout.facts_key(call_id), layout.judgement_field(0, 0), "{}")
    assert await queue.died(call_id, 0, 0) is None


async def test_a_judge_killed_over_a_question_is_followed_by_another(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream, tmp_path: Path
) -> None:
    settings, call_id = runtime(redis_url, upstream), layout.new_call_id()
    upstream.delay_s = 60
    config = settings.config.model_dump(mode="json", exclude={"keys"})
    with Product(tmp_path, redis_url, "postgresql://nobody@127.0.0.1:1/none", config) as product:
        [judge] = await asyncio.to_thread(product.start, "judge")
        await queue.ask(call_id, 0, 0, 0, question("gpt-x"), 20)
        await until(lambda: len(upstream.seen) == 1)
        assert await queue.died(call_id, 0, 0) is None
        judge.kill(signal.SIGKILL)
        assert await until(lambda: queue.died(call_id, 0, 0)) == 1
    upstream.delay_s = 0
    async with judging(settings):
        await queue.ask(call_id, 0, 0, 1, question("gpt-x"), 20)
        said = await answer(redis, call_id)
    assert (said.probability, said.attempts) == (0.25, 2)


async def test_a_stopping_judge_leaves_its_question_to_the_next(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    settings, call_id = runtime(redis_url, upstream), layout.new_call_id()
    upstream.delay_s = 5
    async with judging(settings):
        await queue.ask(call_id, 0, 0, 0, question("gpt-x"), 20)
        await until(lambda: len(upstream.seen) == 1)
        assert await redis.exists(layout.judge_beat_key(call_id, 0, 0))
    upstream.delay_s = 0
    async with judging(settings):
        assert (await answer(redis, call_id)).probability == 0.25


async def test_more_questions_than_slots_are_all_answered(redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream) -> None:
    upstream.delay_s = 0.02
    calls = [layout.new_call_id() for _ in range(20)]
    async with judging(runtime(redis_url, upstream)):
        await asyncio.gather(*(queue.ask(call_id, 0, 0, 0, question("gpt-x"), 20) for call_id in calls))
        said = await asyncio.gather(*(answer(redis, call_id) for call_id in calls))
    assert {j.error for j in said} == {""}
    assert len(upstream.seen) == 20


async def test_a_judge_that_hears_nothing_of_what_it_took_asks_the_model_once(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    call_id = layout.new_call_id()
    judge, pool, bell = Judge(runtime(redis_url, upstream)), open_pool(redis_url), Connection(redis_url, name="bell")
    with proxied(redis_url) as proxy:
        connection = Connection(proxy.url(redis_url), name="judge", silent_s=0.3)
        await asyncio.gather(connection.open(), bell.open())
        working = asyncio.create_task(JudgeWorker(judge, pool, connection, bell, ttl_ms=60_000, concurrency=1).main())
        # only the bell is heard
        await until(lambda: _client_blocks(redis, "bell"))
        proxy.hold_replies()
        await queue.ask(call_id, 0, 0, 0, question("gpt-x"), 20)
        # it takes the question and shows life, and is told nothing of it
        await until(lambda: redis.exists(layout.judge_beat_key(call_id, 0, 0)))
        assert not upstream.seen
        proxy.reset()
        proxy.heal()
        assert (await answer(redis, call_id)).probability == 0.25
        await until(lambda: _depth_is(queue, 0))
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await asyncio.gather(judge.models.close(), connection.close(), bell.close(), pool.aclose(close_connection_pool=True))
    assert len(upstream.seen) == 1


async def _client_blocks(redis: Client, name: str) -> bool:
    return any(client["name"] == name and "b" in client["flags"] for client in await redis.client_list())


async def test_an_answer_that_redis_did_not_take_is_stored_when_it_can(
    redis_url: str, queue: JudgeQueue, redis: Client, upstream: Upstream
) -> None:
    call_id, upstream.delay_s = layout.new_call_id(), 0.5
    with proxied(redis_url) as proxy:
        async with judging(runtime(proxy.url(redis_url), upstream, redis_silent_s=0.4)):
            await queue.ask(call_id, 0, 0, 0, question("gpt-x"), 20)
            await until(lambda: len(upstream.seen) == 1)
            proxy.reset()
            proxy.heal()
            assert (await answer(redis, call_id)).probability == 0.25
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("model", ["demo-judge", "gpt-x"])
async def test_a_thousand_questions_of_one_key_hardly_delay_anothers(
    redis_url: str, connection: Connection, redis: Client, upstream: Upstream, model: str
) -> None:
    """In order of time the other key waited for all thousand: 1.7 s of demo-judge, 12.5 s of a model of 50 ms."""
    upstream.delay_s = 0.05
    queue = JudgeQueue(redis_url, connection, max_depth=2_100)

    async def times(count: int) -> list[float]:
        took = []
        for _ in range(count):
            call_id, began = layout.new_call_id(), time.monotonic()
            await queue.ask(call_id, 0, 0, 0, question(model), 60, key="few")
            await answer(redis, call_id)
            took.append(time.monotonic() - began)
        return sorted(took)

    # the judges begin when all are asked
    flood = [layout.new_call_id() for _ in range(1_000)]
    async with judging(runtime(redis_url, upstream)):
        await times(5)
        before = await times(20)
    for call_id in flood:
        await queue.ask(call_id, 0, 0, 0, question(model), 60, key="many")
    async with judging(runtime(redis_url, upstream)):
        during = await times(20)
        left = (await queue.stats())["depth"]
    print(f"{model}: 95th of 100 before {before[18]:.3f} s, during {during[18]:.3f} s, {left:.0f} of 1000 still wait")
    assert left > 100
    # what is being judged is not put back: one question's time at most, and what the test machine adds
    assert during[18] < 2 * before[18] + 0.1
    await queue.close()
