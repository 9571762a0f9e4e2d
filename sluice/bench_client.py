"""The client of `sluice bench`: many streams at once, each delta carrying the moment at which the
demo upstream sent it."""

import asyncio
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.errors import PipelineError, UpstreamUnreachable
from providers.http1 import Pool, UpstreamConnection
from providers.origin import Origin

_STAMP = re.compile(rb"@(\d+);")
_LONGEST_STAMP = 40
TIMEOUT_S = 60.0


@dataclass
class StreamFigures:
    """What streams of one workload measured. Times are milliseconds, except `seconds`, the
    workload's total time."""

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
    """A client of one gateway, for the requested number of concurrent calls; `more`: further
    headers. Raises ValueError for a URL that is not http or https."""

    def __init__(self, url: str, key: str, more: Mapping[str, str] | None = None) -> None:
        self._origin = Origin(url)
        headers = {
            "authorization": f"Bearer {key}",
            "content-type": "application/json",
            **(more or {}),
        }
        self._head = self._origin.head("/v1/chat/completions", headers)
        self._pool = Pool(connect_s=TIMEOUT_S, first_byte_s=TIMEOUT_S, idle_s=TIMEOUT_S)

    async def __aenter__(self) -> "Load":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    async def run(
        self, words: str, *, at_once: int, rounds: int, streamed: bool = True
    ) -> StreamFigures:
        """Send the same request `rounds` times over each of `at_once` clients. A call that fails is
        counted, not raised."""
        result, began = StreamFigures(), time.monotonic()

        async def client() -> None:
            for _ in range(rounds):
                await self.ask(words, result, streamed=streamed)

        await asyncio.gather(*(client() for _ in range(at_once)))
        result.seconds = time.monotonic() - began
        return result

    async def ask(self, words: str, result: StreamFigures, *, streamed: bool) -> None:
        """Send one request and measure its answer into `result`. A call that fails is counted, not
        raised."""
        body = json.dumps(
            {"model": "demo", "stream": streamed, "messages": [{"role": "user", "content": words}]}
        ).encode()
        answer = _Answer(result)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._pool.post(self._origin, self._head, body, answer)
        except (PipelineError, TimeoutError) as error:
            result.failures += 1
            refused = (
                isinstance(error, UpstreamUnreachable) and error.error_code == "upstream_refused"
            )
            result.why = (
                "nothing listens there (connection refused)"
                if refused
                else str(error) or type(error).__name__
            )


class _Answer:
    """Takes one answer as it comes."""

    def __init__(self, result: StreamFigures) -> None:
        self._result, self._began = result, time.monotonic_ns()
        self._status, self._call_id, self._tail, self._is_first = 0, "", b"", True

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Keep the status code and the call."""
        self._status, self._call_id = (
            status,
            headers.get(b"x-sluice-call-id", b"").decode("latin-1"),
        )

    def on_data(self, data: bytes, line: UpstreamConnection) -> None:
        """Measure the chunks in it."""
        now, result = time.monotonic_ns(), self._result
        buffer, end = self._tail + data, 0
        for stamp in _STAMP.finditer(buffer):
            if self._is_first:
                self._is_first = False
                result.firsts.append((now - self._began) / 1e6)
            result.delays.append((now - int(stamp[1])) / 1e6)
            end = stamp.end()
        self._tail = buffer[max(end, len(buffer) - _LONGEST_STAMP) :]

    def on_end(self) -> None:
        """Count it."""
        result = self._result
        if self._status == 200:
            result.last_call = self._call_id
            result.answers += 1
        else:
            result.failures += 1
            result.why = f"it answers with status {self._status}"
