"""The client of `sluice bench`: many streams at once, each delta carrying the moment at which the demo upstream sent it."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp

_STAMP = re.compile(rb"@(\d+);")
_LONGEST_STAMP = 40
TIMEOUT_S = 60.0


@dataclass
class Result:
    """What streams of one workload measured. Times are milliseconds, but `seconds`, the workload's whole time."""

    delays: list[float] = field(default_factory=list)
    """From the upstream's send of a chunk to its arrival at the client."""
    firsts: list[float] = field(default_factory=list)
    """From the request to the first chunk."""
    answers: int = 0
    failures: int = 0
    seconds: float = 0.0
    last_call: str = ""
    why: str = ""
    """Why the last that failed did."""

    @property
    def chunks(self) -> int:
        """Chunks that arrived."""
        return len(self.delays)


class Load:
    """A client of one gateway, for as many calls at once as asked."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._headers = f"{url}/v1/chat/completions", {"authorization": f"Bearer {key}"}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Load":
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def run(self, words: str, *, at_once: int, rounds: int, streamed: bool = True) -> Result:
        """Send the same request `rounds` times over each of `at_once` clients. A call that fails is counted, not raised."""
        result, began = Result(), time.monotonic()

        async def client() -> None:
            for _ in range(rounds):
                await self._call(words, result, streamed=streamed)

        await asyncio.gather(*(client() for _ in range(at_once)))
        result.seconds = time.monotonic() - began
        return result

    @contextlib.asynccontextmanager
    async def going(self, words: str, *, at_once: int) -> AsyncIterator[Result]:
        """Streams that begin anew until the block ends; `Result` has what came so far. Calls that are open then are dropped."""
        result = Result()

        async def client() -> None:
            while True:
                await self._call(words, result, streamed=True)

        clients = [asyncio.create_task(client(), name="client") for _ in range(at_once)]
        try:
            yield result
        finally:
            for one in clients:
                one.cancel()
            await asyncio.gather(*clients, return_exceptions=True)

    async def _call(self, words: str, result: Result, *, streamed: bool) -> None:
        assert self._session is not None
        body = {"model": "demo", "stream": streamed, "messages": [{"role": "user", "content": words}]}
        began = time.monotonic_ns()
        try:
            async with self._session.post(self._url, json=body) as answer:
                if answer.status != 200:
                    result.failures += 1
                    result.why = f"it answers with status {answer.status}"
                    return
                await _read(answer, result, began)
                result.last_call = answer.headers.get("x-sluice-call-id", "")
                result.answers += 1
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            result.failures += 1
            cause = getattr(error, "os_error", error)
            refused = "nothing listens there (connection refused)"
            result.why = refused if isinstance(cause, ConnectionRefusedError) else str(cause) or type(error).__name__


async def _read(answer: aiohttp.ClientResponse, result: Result, began: int) -> None:
    rest, is_first = b"", True
    async for data in answer.content.iter_any():
        now = time.monotonic_ns()
        buffer, end = rest + data, 0
        for stamp in _STAMP.finditer(buffer):
            if is_first:
                is_first = False
                result.firsts.append((now - began) / 1e6)
            result.delays.append((now - int(stamp[1])) / 1e6)
            end = stamp.end()
        rest = buffer[max(end, len(buffer) - _LONGEST_STAMP) :]
