"""Bounds on request heads, which uvicorn's httptools server has none of: their size, and how long they may take to come.

What is past them gets 431, or is closed; before a head is complete nobody knows who asks, or in which dialect.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
HEAD_S = 30.0
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 121\r\n\r\n"
    b'{"error":{"message":"the request head is too large","type":"invalid_request_error","param":null,"code":"head_too_large"}}'
)


class BoundedHeads(HttpToolsProtocol):
    """One client connection. A head may have 64 KiB beside what comes in the same read as its end, and 30 s."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless the head that they belong to is too long already."""
        if self._in_head:
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.write(_TOO_LARGE)
                self.transport.close()
                return
            self._head_bytes += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self.transport.close)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._in_head, self._head_bytes = False, 0
        self._stop_timer()
        super().on_headers_complete()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
