"""An upstream that answers as the model's name says: `text-CHUNKS-GAP_US-CHARACTERS` or `tool-...`,
in chat/completions, streamed.

`calls-COUNT-GAP_US-CHARACTERS`: so many complete tool calls.

`python -m bench.scripted PORT`. Each text delta that has room for it begins with `@NANOSECONDS;`,
when it was sent. A protocol of its own on the socket: what answers must cost little beside what is
measured. It reads nothing of a body but length and model.
"""

import asyncio
import json
import re
import sys
import time
from typing import Any

import uvloop

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_MODEL = re.compile(rb'"model": ?"(?:hostile-)?(text|tool|calls)-(\d+)-(\d+)-(\d+)"')
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STAMP_CHARACTERS = 24


def _event(delta: str, finish: str = "null") -> bytes:
    data = (
        '{"id":"chatcmpl-scripted","object":"chat.completion.chunk","created":1780000000,"model":"scripted",'
        f'"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}'
    )
    return f"data: {data}\n\n".encode()


def _framed(*events: bytes) -> bytes:
    data = b"".join(events)
    return b"%x\r\n%b\r\n" % (len(data), data)


def _text(size: int) -> bytes:
    if size < STAMP_CHARACTERS:
        return _event(json.dumps({"content": "x" * size}))
    stamp = f"@{time.monotonic_ns()};"
    return _event(json.dumps({"content": stamp + "x" * (size - len(stamp))}))


def _call(index: int, arguments: str) -> dict[str, Any]:
    function = {"name": "write_file", "arguments": arguments}
    return {
        "index": index,
        "id": f"call_{time.monotonic_ns()}",
        "type": "function",
        "function": function,
    }


def _fragment(text: str) -> bytes:
    return _event(json.dumps({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}))


class Answer(asyncio.Protocol):
    """One connection, any number of requests one after the other."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._missing = 0
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._may_write = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport  # type: ignore[assignment]
        self._may_write.set()

    def connection_lost(self, _: Exception | None) -> None:
        """Stop what is being said."""
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Wait for a reader that is slower."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Go on."""
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request."""
        self._parts.append(data)
        if not self._missing:
            data = b"".join(self._parts)
            self._parts = [data]
            end = data.find(b"\r\n\r\n")
            if end < 0:
                return
            found = _LENGTH.search(data, 0, end)
            self._missing = end + 4 + (int(found[1]) if found else 0) - len(data)
        else:
            self._missing -= len(data)
        if self._missing <= 0:
            request, self._parts, self._missing = b"".join(self._parts), [], 0
            self._task = asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request: bytes) -> None:
        found = _MODEL.search(request)
        if found is None:
            self._write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        kind, (chunks, gap_us, size) = found[1], map(int, found.groups()[1:])
        role: dict[str, Any] = {"role": "assistant", "content": ""}
        if kind == b"tool":
            role["tool_calls"] = [_call(0, "")]
        self._write(_HEAD + _framed(_event(json.dumps(role))))
        began = time.monotonic()
        for number in range(chunks):
            if kind == b"text":
                event = _text(size)
            elif kind == b"calls":
                event = _event(
                    json.dumps({"tool_calls": [_call(number, json.dumps({"content": "y" * size}))]})
                )
            elif chunks == 1:
                event = _fragment(json.dumps({"content": "y" * size}))
            else:
                event = _fragment(
                    '{"content": "' if number == 0 else '"}' if number == chunks - 1 else "y" * size
                )
            self._write(_framed(event))
            if gap_us:
                await asyncio.sleep(
                    max(0.0, began + (number + 1) * gap_us / 1e6 - time.monotonic())
                )
            elif not self._may_write.is_set():
                await self._may_write.wait()
        finish = '"stop"' if kind == b"text" else '"tool_calls"'
        self._write(_framed(_event("{}", finish), b"data: [DONE]\n\n") + b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


async def main(port: int) -> None:
    """Serve until ended."""
    server = await asyncio.get_running_loop().create_server(Answer, "127.0.0.1", port, backlog=4096)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
