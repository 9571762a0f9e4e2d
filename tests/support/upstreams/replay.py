"""An upstream on loopback that answers with recorded bodies and remembers what it was asked."""

import asyncio
import itertools
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from aiohttp import web

Cutting = Literal["whole", "random", "events", "bytes"]
PATHS = (
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses",
    "/{model}/ask",
    "/{model}/tell",
    "/model/{model}/{way}",
    "/models/{model}",
    "/v1/projects/{model:.+}",
    "/v1beta/models/{model}",
    "/openai/{rest:.+}",
    "/token",
)


@dataclass(frozen=True)
class Reply:
    """What the upstream answers, with `gap_s` between two writes.

    `ending`: "" ends as HTTP does, "cut" drops the connection after the body, "hang" stays silent.
    """

    body: bytes = b"{}"
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    cutting: Cutting = "whole"
    seed: int = 0
    ending: Literal["", "cut", "hang"] = ""
    gap_s: float = 0.0
    make: Callable[[bytes], bytes] | None = None
    """Makes the body of what was asked, in the place of `body`."""


@dataclass(frozen=True)
class Asked:
    """One request that came in; names of headers in lower case."""

    path: str
    headers: dict[str, str]
    raw: bytes
    target: str = ""
    """Path and query as they were sent, which is what a signature is about."""

    @property
    def body(self) -> Any:
        """The decoded body."""
        return json.loads(self.raw)


def stream(
    body: bytes,
    *,
    cutting: Cutting = "whole",
    seed: int = 0,
    ending: Literal["", "cut", "hang"] = "",
    gap_s: float = 0.0,
) -> Reply:
    """An SSE answer."""
    return Reply(
        body,
        content_type="text/event-stream; charset=utf-8",
        cutting=cutting,
        seed=seed,
        ending=ending,
        gap_s=gap_s,
    )


def pieces(reply: Reply) -> list[bytes]:
    """The body as it is written, one item a write."""
    body = reply.body
    if reply.cutting == "events":
        parts = body.split(b"\n\n")
        return [part + b"\n\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    if reply.cutting == "bytes":
        return [body[at : at + 1] for at in range(len(body))]
    if reply.cutting == "random":
        chance = random.Random(reply.seed)
        marks = sorted(
            {0, len(body), *(chance.randrange(len(body) + 1) for _ in range(min(64, len(body))))}
        )
        return [body[a:b] for a, b in itertools.pairwise(marks)]
    return [body]


class Replay:
    """The server. `replies` are its next answers, of which the last stays; `asked` is what it was
    asked since the last `answer`, `left` how many hanging answers were closed by those who
    asked."""

    def __init__(self) -> None:
        self.replies = [Reply()]
        self.asked: list[Asked] = []
        self.left = 0
        self.port = 0
        self._closing: asyncio.Event | None = None
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        """Its address, without /v1."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def reply(self) -> Reply:
        """What it answers next."""
        return self.replies[0]

    def answer(self, *replies: Reply) -> None:
        """Answer with one reply after the other, from then on with the last, and forget what was
        asked."""
        assert replies
        self.asked.clear()
        self.left = 0
        self.replies = list(replies)

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
        self.asked.append(
            Asked(
                request.path,
                {k.lower(): v for k, v in request.headers.items()},
                await request.read(),
                request.raw_path,
            )
        )
        reply = self.reply
        if len(self.replies) > 1:
            self.replies.pop(0)
        if reply.make is not None:
            reply = replace(reply, body=reply.make(self.asked[-1].raw))
        response = web.StreamResponse(
            status=reply.status, headers={"content-type": reply.content_type, **reply.headers}
        )
        try:
            await response.prepare(request)
            for number, piece in enumerate(pieces(reply)):
                if number:
                    await asyncio.sleep(reply.gap_s)
                await response.write(piece)
        except ConnectionResetError:
            # who asked may be gone before the first byte
            self.left += reply.ending == "hang"
            raise
        if reply.ending == "hang":
            await self._hang(request)
        if not reply.ending:
            await response.write_eof()
        elif request.transport is not None:
            request.transport.abort()
        return response

    async def _hang(self, request: web.Request) -> None:
        assert self._closing is not None
        while not self._closing.is_set():
            if request.transport is None or request.transport.is_closing():
                self.left += 1
                return
            await asyncio.sleep(0.01)


@contextmanager
def replaying() -> Iterator[Replay]:
    """Run a replay server."""
    server = Replay()
    server.start()
    try:
        yield server
    finally:
        server.stop()
