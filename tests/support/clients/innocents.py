"""Innocent calls beside an attacker: how long each was left without a byte, and which of them
ended.

`slow_upstream` lends an upstream that says a word every 50 ms (`slow*`) or answers after 0.3 s
(`quick*`); `innocents` keeps streams open on a product that has it, and asks short questions one
after another. Both are processes of their own: what a test computes for its attack does not look
like the product's silence.

    with slow_upstream() as upstream, running(folder, redis_url, database_url,
    upstream.into(base_config())) as product:
        async with innocents(product, n=4) as watch:
            attack(product)
        assert watch.longest_silence_s < 1.0 and not watch.ended
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import httpx2 as httpx
from aiohttp import web

from tests.support.json_values import Json
from tests.support.servers.product import KEY, ROOT, Product

GAP_S = 0.05
QUICK_S = 0.3
READY_S = 30.0
_MOST_WORDS = 20_000
_COMMAND = [sys.executable, "-m", "tests.support.clients.innocents"]


@dataclass(frozen=True)
class SlowUpstream:
    """An upstream of the OpenAI dialect in a process of its own."""

    url: str

    def into(self, config: Json) -> Json:
        """The configuration with the models `slow*` and `quick*` of this upstream beside `demo`."""
        upstreams = config.get("upstreams", {}) | {
            "slow": {"dialect": "openai", "base_url": self.url + "/v1"}
        }
        models = [
            {"match": "slow*", "upstream": "slow"},
            {"match": "quick*", "upstream": "slow"},
            *config.get("models", ()),
        ]
        return {"demo": True} | config | {"upstreams": upstreams, "models": models}


@dataclass
class Watch:
    """What the innocent calls saw. Filled when the block is left."""

    silences_s: list[float] = field(default_factory=list)
    """The longest time without a byte of each stream, the last one before its end or the block's
    included."""
    ended: list[str] = field(default_factory=list)
    """How those streams ended that ended while they were watched: an error's code, or `cut`. Empty
    is good."""
    asked: list[tuple[int, float, float]] = field(default_factory=list)
    """Short questions: the status (0: the connection broke), the seconds it took, and when it began
    (seconds since the watch did)."""

    @property
    def longest_silence_s(self) -> float:
        """Of all streams."""
        return max(self.silences_s)

    @property
    def failed(self) -> list[int]:
        """Statuses of short questions that were not answered."""
        return [status for status, _, _ in self.asked if status != 200]

    @property
    def p95_s(self) -> float:
        """Of the short questions' times."""
        times = sorted(seconds for _, seconds, _ in self.asked)
        return times[min(len(times) - 1, int(len(times) * 0.95))]


@contextmanager
def slow_upstream() -> Iterator[SlowUpstream]:
    """Run the upstream."""
    with _child("upstream") as process:
        yield SlowUpstream(_line(process).strip())


@asynccontextmanager
async def innocents(
    product: Product, n: int = 4, *, asking: int = 0, key: str = KEY, policy: str = "noop"
) -> AsyncIterator[Watch]:
    """Keep `n` streams open and let `asking` clients ask short questions, one at a time each;
    begins when all streams have spoken."""
    watch = Watch()
    with _child("watch", product.url, key, policy, str(n), str(asking)) as process:
        said = await asyncio.to_thread(_line, process)
        assert said == "ready\n", f"the innocent streams did not begin: {said}\n{product.logs()}"
        yield watch
        assert process.stdin is not None
        process.stdin.close()
        watch.silences_s, watch.ended, watch.asked = json.loads(
            await asyncio.to_thread(_line, process)
        )
    print(
        "innocents:",
        [round(s, 2) for s in watch.silences_s],
        watch.ended,
        f"asked {len(watch.asked)}, failed {watch.failed[:5]}",
    )


@contextmanager
def _child(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [*_COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


# --- the upstream's process ---


def _chunk(text: str, finish: str | None = None) -> Json:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "slow",
        "choices": [choice],
    }


async def _answer(request: web.Request) -> web.StreamResponse:
    asked = await request.json()
    if asked["model"].startswith("quick"):
        await asyncio.sleep(QUICK_S)
        message = {"role": "assistant", "content": "so soon"}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return web.json_response(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": "quick",
                "choices": choices,
            }
        )
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        for number in range(_MOST_WORDS):
            await response.write(f"data: {json.dumps(_chunk(f'word {number} '))}\n\n".encode())
            await asyncio.sleep(GAP_S)
    return response


async def _serve() -> None:
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/chat/completions", _answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


# --- the watching process ---


class _Stream:
    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.last = self.longest = 0.0
        self.end = ""

    async def run(self, client: httpx.AsyncClient) -> None:
        body = {"model": "slow", "stream": True, "messages": [{"role": "user", "content": "speak"}]}
        received = b""
        try:
            async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                async for data in answer.aiter_raw():
                    now = time.monotonic()
                    if self.begun.is_set():
                        self.longest = max(self.longest, now - self.last)
                    self.last = now
                    received = (received + data)[-2000:]
                    if b"word" in data:
                        self.begun.set()
        except httpx.HTTPError:
            pass
        _, _, code = received.rpartition(b'"code":')
        self.end = code[:60].decode(errors="replace").strip('"}\r\n ') or "cut"
        self.begun.set()


async def _ask(
    client: httpx.AsyncClient, since: float, asked: list[tuple[int, float, float]]
) -> None:
    body = {"model": "quick", "messages": [{"role": "user", "content": "say it"}]}
    while True:
        began, status = time.monotonic(), 0
        with contextlib.suppress(httpx.HTTPError):
            status = (await client.post("/v1/chat/completions", json=body)).status_code
        asked.append((status, time.monotonic() - began, began - since))
        # a refusal comes back at once
        await asyncio.sleep(0.01 if status == 200 else 0.1)


async def _watch(url: str, key: str, policy: str, count: int, asking: int) -> None:
    streams, asked = [_Stream() for _ in range(count)], list[tuple[int, float, float]]()
    headers = {"authorization": f"Bearer {key}", "x-sluice-policy": policy}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=url, headers=headers, timeout=120.0, limits=limits
    ) as client:
        tasks = [asyncio.create_task(stream.run(client), name="innocent") for stream in streams]
        async with asyncio.timeout(READY_S):
            for stream in streams:
                await stream.begun.wait()
        failed = [stream.end for stream in streams if stream.end]
        print(failed or "ready", flush=True)
        tasks += [
            asyncio.create_task(_ask(client, time.monotonic(), asked), name="asking")
            for _ in range(asking)
        ]
        await asyncio.to_thread(sys.stdin.read)
        now = time.monotonic()
        silences = [
            stream.longest if stream.end else max(stream.longest, now - stream.last)
            for stream in streams
        ]
        print(
            json.dumps([silences, [stream.end for stream in streams if stream.end], asked]),
            flush=True,
        )
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    if sys.argv[1] == "upstream":
        asyncio.run(_serve())
    else:
        asyncio.run(
            _watch(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
        )
