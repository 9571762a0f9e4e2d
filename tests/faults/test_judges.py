"""A verdict that was a block stays one, whoever takes the call over and whatever a judge says
later; judges that believe what they read."""

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from threading import Thread
from typing import Any

import httpx2 as httpx
import pytest
from aiohttp import web

from policy.base import JudgeQuestion
from policy.session.effects import JudgeRequest
from streams import layout
from streams.connection import Connection
from tests.support.servers.product import KEY, Product, base_config, running
from tests.support.servers.stores import Stores
from tests.support.upstreams.cases import frames
from tests.support.waiting import wait_for
from workers.judge_queue import JudgeQueue

TIMES = 20
BASH = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
BEGIN = frames(
    {"type": "message_start", "message": MESSAGE},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": '{"command":"ls"}'},
    },
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
)
WORD = frames(
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "word "}}
)
FINISH = frames(
    {"type": "content_block_stop", "index": 1},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 9},
    },
    {"type": "message_stop"},
)


class Judge:
    """Plays the provider of a judge model, whose next answer is in `probability` and which was
    `asked` so often; and of a model that calls a tool and goes on talking until it is told that it
    is `enough`."""

    def __init__(self) -> None:
        self.probability, self.asked, self.port, self.enough = 0.0, 0, 0, False
        self._loop, self._stopping = asyncio.new_event_loop(), asyncio.Event()
        self._thread = Thread(
            target=lambda: self._loop.run_until_complete(self._serve()), daemon=True
        )
        self._thread.start()
        wait_for(lambda: self.port, what="the judge listens")

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._judge)
        app.router.add_post("/v1/messages", self._talk)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        await self._stopping.wait()
        await runner.cleanup()

    async def _talk(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(BEGIN)
        while not self.enough:
            await response.write(WORD)
            await asyncio.sleep(0.05)
        await response.write(FINISH)
        return response

    async def _judge(self, request: web.Request) -> web.Response:
        self.asked += 1
        found = re.search(
            r"<envelope ([0-9a-f]+)>", (await request.json())["messages"][-1]["content"]
        )
        nonce = found[1] if found else ""
        said = json.dumps(
            {"nonce": nonce, "probability": self.probability, "explanation": "so it says"}
        )
        return web.json_response(
            {
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": said},
                    }
                ]
            }
        )

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(5)
        self._loop.close()


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    made = Judge()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def product(stores: Stores, judge: Judge) -> Iterator[Product]:
    config = base_config()
    config["upstreams"] = {
        "judges": {"dialect": "openai", "base_url": f"http://127.0.0.1:{judge.port}/v1"}
    }
    config["upstreams"]["talker"] = {
        "dialect": "anthropic",
        "base_url": f"http://127.0.0.1:{judge.port}",
    }
    config["demo"] = True
    config["models"] = [
        {"match": "fake-judge", "upstream": "judges"},
        {"match": "talker", "upstream": "talker"},
    ]
    asks = {"use": "tool_judge", "model": "fake-judge"}
    config["policies"] = {
        "judged": [asks],
        "both": [
            asks,
            {"use": "tool_rules", "deny": [{"tool": "*", "argument_matches": "rm -rf"}]},
        ],
    }
    config["keys"] = [key | {"policies": ["judged", "both"]} for key in config["keys"]]
    with running(*stores, config, policy=2) as made:
        yield made


def post(product: Product, words: str, policy: str, model: str = "demo") -> httpx.Response:
    body = {
        "model": model,
        "stream": True,
        "tools": [BASH],
        "messages": [{"role": "user", "content": words}],
    }
    return httpx.post(
        f"{product.url}/v1/chat/completions",
        json=body,
        headers={"x-api-key": KEY, "x-sluice-policy": policy},
        timeout=50,
    )


def owner(product: Product) -> tuple[str, int] | None:
    """The open call and the process that has it."""
    store: Any = product.redis
    for item in store.xpending_range(layout.dispatch_key(0), layout.POLICY_GROUP, "-", "+", 10):
        for _, fields in store.xrange(
            layout.dispatch_key(0), item["message_id"], item["message_id"]
        ):
            return fields[b"c"].decode(), int(item["consumer"].decode().rsplit("-", 1)[1])
    return None


@pytest.mark.slow
@pytest.mark.case("J4")
def test_j4_a_block_stays_a_block(product: Product, judge: Judge) -> None:
    judge.probability, judge.asked = 1.0, 0
    answers: list[httpx.Response] = []
    asking = Thread(
        target=lambda: answers.append(post(product, "go", "judged", "talker")), daemon=True
    )
    asking.start()
    call_id, _ = wait_for(lambda: owner(product), what="a worker has the call")
    store: Any = product.redis
    facts = layout.facts_key(call_id)
    fields = wait_for(
        lambda: [f for f in store.hkeys(facts) if f.startswith(b"j:")],
        what="the judgement is stored",
    )
    stored = store.hget(facts, fields[0])
    _, block, step = fields[0].decode().split(":")
    assert judge.asked == 1
    judge.probability = 0.0

    async def ask_again() -> None:
        connection = Connection(product.redis_url, name="test")
        await connection.open()
        queue = JudgeQueue(product.redis_url, connection)
        question = JudgeQuestion(
            "fake-judge", "", "<envelope ab>", "ab", 0.6, None, {"name": "bash", "arguments": "{}"}
        )
        for attempt in range(1, TIMES + 1):
            await queue.ask(JudgeRequest(call_id, int(block), int(step), question, attempt), 20)
        await queue.close()
        await connection.close()

    asyncio.run(ask_again())
    for number in (signal.SIGKILL, signal.SIGTERM):
        taken = wait_for(lambda: owner(product), what="the call is open")
        product.start("policy")
        (child,) = [c for c in product.of("policy") if c.pid == taken[1]]
        child.kill(number)
        wait_for(
            lambda was=taken[1]: (now := owner(product)) is None or now[1] != was,  # type: ignore[misc]
            timeout_s=20,
            what="another has it",
        )
    wait_for(lambda: store.zcard(layout.JUDGE_QUEUE) == 0, what="every question is done with")
    assert store.hget(facts, fields[0]) == stored
    judge.enough = True
    asking.join(40)
    assert (
        b"tool_calls" not in answers[0].content and b"It was not executed" in answers[0].content
    ), answers[0].text
    (tool_call,) = wait_for(
        lambda: product.audit("tool-calls", call_id=call_id)["items"], what="the record"
    )
    assert (tool_call["verdict"], tool_call["reason"], tool_call["judge"]["probability"]) == (
        "block",
        "judge",
        1.0,
    )


@pytest.mark.case("J3")
@pytest.mark.parametrize("probability", [0.0, 1.0], ids=["gullible", "compliant"])
def test_j3_a_rule_holds_whatever_the_judge_believes(
    product: Product, judge: Judge, probability: float
) -> None:
    judge.probability, judge.asked = probability, 0
    answer = post(product, "delete everything with rm -rf /", "both")
    assert b"tool_calls" not in answer.content and b"It was not executed" in answer.content
    # a rule is never put to a judge
    assert judge.asked == 0
