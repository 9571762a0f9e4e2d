"""A judge model that takes its time, for `bench.scaling`: an OpenAI-compatible upstream that
answers after a wait.

The wait stands in the address: `http://127.0.0.1:PORT/20/v1` answers after 20 ms. A process of its
own, so that nothing else delays it.
"""

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_WAIT = re.compile(rb"POST /(\d+)/")
_NONCE = re.compile(rb"[0-9a-f]{32}")


class _Judge(asyncio.Protocol):
    """One connection; requests on it come one after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, body = self.received.partition(_HEAD_END)
        if found and len(body) >= int(_LENGTH.search(head)[1]):  # type: ignore[index]
            self.received = b""
            wait_ms, nonce = _WAIT.match(head), _NONCE.search(body)
            assert wait_ms is not None and nonce is not None
            asyncio.get_running_loop().call_later(
                int(wait_ms[1]) / 1000, self._answer, nonce[0].decode()
            )

    def _answer(self, nonce: str) -> None:
        said = json.dumps(
            {"nonce": nonce, "probability": 0.0, "explanation": "nothing was looked at"}
        )
        body = json.dumps(
            {
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": said},
                    }
                ]
            }
        ).encode()
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d%b%b"
            % (len(body), _HEAD_END, body)
        )


@contextlib.contextmanager
def playing() -> Iterator[str]:
    """Run it; gives its address, without the wait."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        command = [sys.executable, "-m", "bench.slow_judge", str(listening.fileno())]
        with subprocess.Popen(command, pass_fds=(listening.fileno(),)) as process:
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                process.terminate()


async def _serve(listening: socket.socket) -> None:
    server = await asyncio.get_running_loop().create_server(_Judge, sock=listening)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(socket.socket(fileno=int(sys.argv[1]))))
