"""The built-in models as upstreams: a process for each, that the gateway starts with the first
request for it and stops when the gateway ends. What they play so takes no time from other calls.

`python -m demo.server` is that process: the demo model, or with a folder behind it the
scripted model. It serves HTTP/1.1 to its gateway only, on a loopback port that it prints to
standard output, and ends when standard input ends.
"""

import asyncio
import contextlib
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path

from demo import model as demo
from demo.answer import CLOCK
from demo.model import ScriptedAnswer
from protocol.bounds import DEMO_BODY_BYTES, SCRIPT_BODY_BYTES
from protocol.dialects.table import check_name
from protocol.errors import UpstreamUnreachable
from protocol.request import DialectName

START_S = 20.0
_HERE = str(Path(__file__).resolve().parent.parent)
_HEAD_BYTES = 16 * 1024
_TOGETHER_BYTES = 64 * 1024
"""Pieces without a pause between them go out together."""
Answers = Callable[[DialectName, str, bytes], Awaitable[ScriptedAnswer]]


class DemoServer:
    """The gateway's side: where the process is. It is started when it is first asked for, and again
    when it died. `what` names the model, `arguments` are the process's."""

    def __init__(self, what: str = "the demo model", *arguments: str) -> None:
        self._what, self._arguments = what, arguments
        self._process: Process | None = None
        self._url = ""
        self._starting = asyncio.Lock()

    async def url(self) -> str:
        """Return its address. Raises UpstreamUnreachable where it does not start."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self._start()
        return self._url

    async def close(self) -> None:
        """End it."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def _start(self) -> None:
        path = os.pathsep.join(filter(None, [_HERE, os.environ.get("PYTHONPATH")]))
        # a session of its own: Ctrl-C in a terminal is for the gateway, whose calls go on while it
        # drains
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            *self._arguments,
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,
            env={"PYTHONPATH": path},
        )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            await self.close()
            raise UpstreamUnreachable(f"{self._what} does not start")
        self._url = line.decode().strip()


class _Connection(asyncio.Protocol):
    """One connection of the gateway: a request, its answer, the next request. What is no such
    request ends it."""

    def __init__(self, answers: Answers, most_bytes: int) -> None:
        self._answers, self._most = answers, _HEAD_BYTES + most_bytes
        self._data = b""
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > self._most:
            self._transport.abort()
        elif self._task is None:
            self._begin()

    def _begin(self) -> None:
        head, separator, body = self._data.partition(b"\r\n\r\n")
        if not separator:
            return
        try:
            request, *fields = head.decode("latin-1").split("\r\n")
            length = int(
                next(f for f in fields if f.lower().startswith("content-length:")).partition(":")[2]
            )
            dialect, endpoint = request.split(" ")[1].removeprefix("/").split("/")
            check_name(dialect)
        except (StopIteration, ValueError, LookupError):
            self._transport.abort()
            return
        if len(body) >= length:
            self._data = body[length:]
            self._task = asyncio.get_running_loop().create_task(
                self._answer(dialect, endpoint, body[:length]), name="demo answer"
            )

    async def _answer(self, dialect: DialectName, endpoint: str, body: bytes) -> None:
        script = await self._answers(dialect, endpoint, body)
        head = [
            f"HTTP/1.1 {script.status} Demo",
            f"content-type: {script.content_type}",
            "transfer-encoding: chunked",
        ]
        if script.retry_after:
            head.append(f"retry-after: {script.retry_after}")
        self._transport.write("\r\n".join([*head, "", ""]).encode())
        pieces, size = list[bytes](), 0
        for delay_s, data in script.steps:
            if delay_s or size > _TOGETHER_BYTES:
                await self._write(b"".join(pieces))
                pieces, size = [], 0
                await asyncio.sleep(delay_s)
            pieces.append(
                data.replace(CLOCK, b"@%d;" % time.monotonic_ns()) if CLOCK in data else data
            )
            size += len(data)
        await self._write(b"".join(pieces))
        self._transport.write(b"0\r\n\r\n")
        self._task = None
        if self._data:
            self._begin()

    async def _write(self, data: bytes) -> None:
        if data:
            await self._writable.wait()
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))


async def _demo(dialect: DialectName, endpoint: str, body: bytes) -> ScriptedAnswer:
    return demo.script(dialect, endpoint, body)


async def _serve(folder: str) -> None:
    loop = asyncio.get_running_loop()
    answers, most = _demo, DEMO_BODY_BYTES
    if folder:
        from demo.script_model import ScriptModel

        answers, most = ScriptModel(folder).answer, SCRIPT_BODY_BYTES
    server = await loop.create_server(
        lambda: _Connection(answers, most), "127.0.0.1", 0, backlog=1024
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)  # noqa: T201
    over = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), over.set)
    await over.wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve("".join(sys.argv[1:2])))
