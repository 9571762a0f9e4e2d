"""An upstream on loopback that answers with recorded bodies and remembers what it was asked."""

import asyncio
import itertools
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

Cutting = Literal["whole", "random", "events"]
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens")


@dataclass(frozen=True)
class Reply:
    """What the upstream answers. `ending`: "" ends as HTTP does, "cut" drops the connection after the body, "hang" stays silent."""

    body: bytes = b"{}"
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    cutting: Cutting = "whole"
    seed: int = 0
    ending: Literal["", "cut", "hang"] = ""


@dataclass(frozen=True)
class Asked:
    """One request that came in."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """The decoded body."""
        return json.loads(self.raw)


def stream(body: bytes, *, cutting: Cutting = "whole", seed: int = 0, ending: Literal["", "cut", "hang"] = "") -> Reply:
    """An SSE answer."""
    return Reply(body, content_type="text/event-stream; charset=utf-8", cutting=cutting, seed=seed, ending=ending)


def pieces(reply: Reply) -> list[bytes]:
    """The body as it is written, one item a write."""
    body = reply.body
    if reply.cutting == "events":
        parts = body.split(b"\n\n")
        return [part + b"\n\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    if reply.cutting == "random":
        chance = random.Random(reply.seed)
        marks = sorted({0, len(body), *(chance.randrange(len(body) + 1) for _ in range(min(64, len(body))))})
        return [body[a:b] for a, b in itertools.pairwise(marks)]
    return [body]


class Replay:
    """The server. `reply` is what it answers next and from then on; `asked` what it was asked since the last `answer`."""

    def __init__(self) -> None:
        self.reply = Reply()
        self.asked: list[Asked] = []
        self.port = 0
        self._closing: asyncio.Event | None = None
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        """Its address, without /v1."""
        return f"http://127.0.0.1:{self.port}"

    def answer(self, reply: Reply) -> None:
        """Answer with `reply` from now on and forget what was asked."""
        self.asked.clear()
        self.reply = reply

    def start(self) -> None:
        """Listen on a free port."""
        self._thread.start()
        assert self._ready.wait(10), "the replay server does not start"

    def stop(self) -> None:
        """End it, hanging answers too."""
        if self._closing is not None:
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._closing = asyncio.Event()
        app = web.Application(client_max_size=64 * 2**20)
        for path in PATHS:
            app.router.add_post(path, self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._closing.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(Asked(request.path, dict(request.headers), await request.read()))
        reply = self.reply
        response = web.StreamResponse(status=reply.status, headers={"content-type": reply.content_type, **reply.headers})
        await response.prepare(request)
        for piece in pieces(reply):
            await response.write(piece)
            if reply.cutting != "whole":
                await asyncio.sleep(0)
        if reply.ending == "hang":
            assert self._closing is not None
            await self._closing.wait()
        if reply.ending and request.transport is not None:
            request.transport.abort()
        else:
            await response.write_eof()
        return response


@contextmanager
def replaying() -> Iterator[Replay]:
    """Run a replay server."""
    server = Replay()
    server.start()
    try:
        yield server
    finally:
        server.stop()
