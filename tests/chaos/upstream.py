"""The upstream of the chaos run: it plays the demo model's scripts and remembers, for each numbered
call, what it sent."""

import asyncio
import contextlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator

from aiohttp import web

from demo import model as demo
from protocol.request import DialectName
from tests.chaos import hostile
from tests.chaos.hostile_wire import in_anthropic, in_openai

_NUMBER = re.compile(rb"call (\d+):(?: attack ([a-z ]+)!)?")
PATHS: dict[str, DialectName] = {"/v1/chat/completions": "openai", "/v1/messages": "anthropic"}


class Upstream:
    """A server of both dialects. `sent` holds the bytes written for each call, `asked` how often it
    was asked for it."""

    def __init__(self) -> None:
        self.sent: dict[int, bytes] = {}
        self.asked = Counter[int]()
        self.fields: dict[int, set[str]] = {}
        """The fields of the requests of attacks."""
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready, self._closing = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        """Its address, without /v1."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen on a free port."""
        self._thread.start()
        assert self._ready.wait(10), "the upstream does not start"

    def stop(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(10)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=2**26)
        for path in PATHS:
            app.router.add_post(path, self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._closing.wait()
        await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        # the last: before it stands what the call goes on with
        *_, found = _NUMBER.finditer(body)
        number = int(found[1])
        self.asked[number] += 1
        if found[2]:
            self.fields[number] = set(json.loads(body))
            script = _hostile(PATHS[request.path], found[2].decode(), number, body)
        else:
            script = demo.script(PATHS[request.path], "chat", body)
        headers = {"content-type": script.content_type} | (
            {"retry-after": script.retry_after} if script.retry_after else {}
        )
        response = web.StreamResponse(status=script.status, headers=headers)
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for delay_s, data in script.steps:
                if delay_s:
                    await asyncio.sleep(delay_s)
                # before the write: what the gateway read must be in here, whatever happens to this
                # connection
                self.sent[number] = self.sent.get(number, b"") + data
                await response.write(data)
        return response


def _hostile(dialect: DialectName, name: str, number: int, body: bytes) -> demo.ScriptedAnswer:
    streams = b'"stream":true' in body.replace(b'"stream": ', b'"stream":')
    said = (in_openai if dialect == "openai" else in_anthropic)(
        hostile.answered(name, number), stream=streams
    )
    script = demo.ScriptedAnswer(
        content_type="text/event-stream" if streams else "application/json"
    )
    # as it is read from a network: in pieces that know nothing of events
    script.steps = [(0.0, said[n : n + 16_384]) for n in range(0, len(said), 16_384)]
    return script


@contextlib.contextmanager
def upstream() -> Iterator[Upstream]:
    """Run one."""
    server = Upstream()
    server.start()
    try:
        yield server
    finally:
        server.stop()
