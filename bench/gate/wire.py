"""The bare upstream and the client that asks it, directly or through Sluice: as little of HTTP as
both need, so that ratios measure Sluice.

`python -m bench.gate.wire` is the upstream as a process of its own; it prints its port. What a
request says in its message is what it gets: {"chunks": N, "gap_s": S}, and with {"step": true} each
chunk only when `Upstream.step` is called. Every chunk is a write of its own, as model servers do
it, and has one mark in its text, which the client counts: whoever is between may frame and join as
it likes.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import uvloop

MARK = b"~"
_SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
_END = b"0\r\n\r\n"
_HEAD = {
    "id": "chatcmpl-gate",
    "object": "chat.completion.chunk",
    "created": 1_767_225_600,
    "model": "gate",
}
TIMEOUT_S = 60.0


def frame(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """An SSE event as OpenAI sends it."""
    body = {
        **_HEAD,
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


CHUNK = frame({"content": f"word{MARK.decode()} "})


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


_FIRST, _CHUNK = _framed(frame({"role": "assistant", "content": ""})), _framed(CHUNK)
_LAST = _framed(frame({}, "stop")) + _framed(b"data: [DONE]\n\n") + _END


class _Answering(asyncio.Protocol):
    """One connection of the upstream, one request after the other."""

    def __init__(self, upstream: "Upstream") -> None:
        self._upstream, self._loop = upstream, asyncio.get_running_loop()
        self._buffer = b""
        self._left = 0
        self._gap_s = 0.0
        self._is_paused = self._is_stepped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._left = 0

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._left and not self._gap_s and not self._is_stepped:
            self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end or len(body) < _length(head):
            return
        self._buffer = b""
        request = json.loads(body)
        asked = json.loads(request["messages"][-1]["content"])
        if not request.get("stream"):
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": MARK.decode()},
                "finish_reason": "stop",
            }
            answer = json.dumps(
                {**_HEAD, "object": "chat.completion", "choices": [choice]}
            ).encode()
            self._transport.write(_WHOLE % (len(answer), answer))
            return
        self._left, self._gap_s, self._is_stepped = (
            asked["chunks"],
            asked.get("gap_s", 0.0),
            asked.get("step", False),
        )
        self._transport.write(_SSE + _FIRST)
        if self._is_stepped:
            self._upstream.stepped.append(self._send)
        else:
            self._loop.call_later(self._gap_s, self._send)

    def _send(self) -> None:
        if self._transport.is_closing() or not self._left:
            return
        self._left -= 1
        if not self._left:
            self._transport.write(_CHUNK + _LAST)
            return
        self._transport.write(_CHUNK)
        if self._gap_s:
            self._loop.call_later(self._gap_s, self._send)
        elif not self._is_paused and not self._is_stepped:
            self._loop.call_soon(self._send)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


class Upstream:
    """Listens on a free port of the loopback."""

    def __init__(self) -> None:
        self.stepped: list[Callable[[], None]] = []
        """Streams that asked for steps: each call sends the next chunk of one."""

    async def start(self) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Answering(self), "127.0.0.1", 0, backlog=512
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Listen no more."""
        self._server.close()


class _Asking(asyncio.Protocol):
    """One connection of the client: counts the marks of each answer."""

    def __init__(self, on_marks: Callable[[int], None]) -> None:
        self._on_marks = on_marks
        self._head: bytes | None = b""
        self._tail = b""
        self._left = -1
        self._marks = 0
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes) -> "asyncio.Future[int]":
        """Send a request; the future gives how many marks its answer had."""
        self._head, self._tail, self._left, self._marks = b"", b"", -1, 0
        self.done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.done

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(
                ConnectionResetError("the connection ended in the middle of an answer")
            )

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            head, end, data = (self._head + data).partition(b"\r\n\r\n")
            if not end:
                self._head = head
                return
            self._head = None
            if not head.startswith(b"HTTP/1.1 200"):
                self.done.set_exception(
                    ConnectionError(f"an answer was {head[:40]!r} {data[:200]!r}")
                )
                return
            self._left = _length(head) or -1
        if marks := data.count(MARK):
            self._marks += marks
            self._on_marks(marks)
        if self._left >= 0:
            self._left -= len(data)
            is_over = self._left <= 0
        else:
            self._tail = (self._tail + data)[-len(_END) :]
            is_over = self._tail == _END
        if is_over:
            self.done.set_result(self._marks)


class Client:
    """Connections to one address, `at_once` of them, kept from call to call."""

    def __init__(self, url: str, *, at_once: int, key: str = "") -> None:
        self._at, self._at_once, self._key = url.removeprefix("http://"), at_once, key
        self._open: deque[_Asking] = deque()
        self.on_marks: Callable[[int], None] = lambda _: None

    async def __aenter__(self) -> "Client":
        host, port = self._at.split(":")
        for _ in range(self._at_once):
            _, asking = await asyncio.get_running_loop().create_connection(
                lambda: _Asking(lambda n: self.on_marks(n)), host, int(port)
            )
            self._open.append(asking)
        return self

    async def __aexit__(self, *_: object) -> None:
        for asking in self._open:
            asking.transport.close()

    async def run(
        self,
        model: str,
        *,
        rounds: int = 1,
        streamed: bool = True,
        chunks: int = 1,
        **asked: object,
    ) -> int:
        """Ask over each connection `rounds` times, one call after the other. Returns the chunks;
        raises where one is missing or doubled."""
        words = json.dumps({"chunks": chunks, **asked})
        body = json.dumps(
            {"model": model, "stream": streamed, "messages": [{"role": "user", "content": words}]}
        ).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self._at}\r\nauthorization: Bearer"
            f" {self._key}\r\n"
        )
        request = (
            f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )

        async def client(asking: _Asking) -> None:
            for _ in range(rounds):
                got = await asking.ask(request)
                if got != chunks:
                    raise ConnectionError(f"an answer of {chunks} chunks came with {got}")

        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*(client(asking) for asking in self._open))
        return chunks * rounds * self._at_once


async def _serve() -> None:
    print(await Upstream().start(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve())
