"""The process of the pages as a gateway reaches it: passes one request on, and its answer back piece by piece.

It understands HTTP as far as where an answer ends. Must not know: keys, the record, what a page is.
"""

import asyncio
import contextlib
import logging
from urllib.parse import urlsplit

import httptools

from gateway.relay import Receive, Send

log = logging.getLogger(__name__)
CONNECT_S, AGAIN_S = 3.0, 0.05
"""How long a request waits for the process of the pages, which may be starting, and how often it looks."""
_PIECE_BYTES = 64 * 1024
_HOP_BY_HOP = frozenset((
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"date",
))  # fmt: skip


class AwayError(Exception):
    """The process does not answer, and nothing was sent to the client."""


class FullError(Exception):
    """So many answers in pieces are open already, and nothing was sent to the client."""


class PagesProcess:
    """The process at `url`. `head_s`: how long the beginning of an answer may take; `most_in_pieces`: answers without a length that may be
    open at once, of which `most_streams` may be streams of events."""

    def __init__(self, url: str, *, head_s: float, most_in_pieces: int, most_streams: int) -> None:
        self._url, self._head_s, self._most_in_pieces, self._most_streams = url, head_s, most_in_pieces, most_streams
        self.open = self.in_pieces = self.streams = 0
        """Requests under way; those whose answer says no length, which are streams and downloads; and those that are streams."""

    async def relay(self, request: bytes, receive: Receive, send: Send, *, is_head: bool) -> None:
        """Pass a request on, and its answer back. Raises AwayError, FullError."""
        answer = _Answer(send)
        # from the beginning: who leaves while the process is waited for makes room at once
        gone = asyncio.create_task(_until_gone(receive), name="page reader")
        relaying = asyncio.create_task(self._ask(request, answer, is_head=is_head), name="page")
        self.open += 1
        try:
            try:
                await asyncio.wait({relaying, gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                relaying.cancel()
                # what is under way may be a write that its own cancelling ends
                await asyncio.wait({relaying})
            if not relaying.cancelled():
                relaying.result()
        except (OSError, TimeoutError, httptools.HttpParserError):
            if not answer.has_begun:
                raise AwayError from None
            # not completed: the connection ends, so that no client takes the beginning for the whole
            log.warning("a page was cut off")
        finally:
            self.open -= 1
            gone.cancel()

    async def _ask(self, request: bytes, answer: "_Answer", *, is_head: bool) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await self._connected()
                writer.write(request)
                await writer.drain()
            await self._pass_on(reader, answer, is_head=is_head)
        finally:
            if writer is not None:
                writer.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, as often as that takes: whoever opens the address that `sluice up` printed may be faster than the process."""
        while True:
            try:
                return await self._connect()
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(AGAIN_S)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._url.startswith("unix:"):
            return await asyncio.open_unix_connection(self._url.removeprefix("unix:"), limit=_PIECE_BYTES)
        url = urlsplit(self._url)
        return await asyncio.open_connection(url.hostname, url.port, limit=_PIECE_BYTES)

    async def _pass_on(self, reader: asyncio.StreamReader, answer: "_Answer", *, is_head: bool) -> None:
        is_counted = is_stream = False
        try:
            async with asyncio.timeout(self._head_s) as head:
                while not answer.is_whole:
                    data = await reader.read(_PIECE_BYTES)
                    if not data:
                        raise ConnectionResetError("the process of the pages ended within an answer")
                    answer.take(data)
                    if not (is_counted or is_head) and answer.is_in_pieces:
                        # only now: anybody may ask for a stream, and who is not logged in gets none
                        if self.in_pieces >= self._most_in_pieces or (answer.is_stream and self.streams >= self._most_streams):
                            raise FullError
                        is_counted, is_stream = True, answer.is_stream
                        self.in_pieces += 1
                        self.streams += is_stream
                    await answer.send_on(is_head=is_head)
                    if answer.has_begun:
                        # a stream of events may be silent for long
                        head.reschedule(None)
        finally:
            self.in_pieces -= is_counted
            self.streams -= is_stream


class _Answer:
    """An answer of the pages, parsed as far as HTTP goes, and sent on piece by piece: each waits until the client took the one before."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._has_head = self._has_end = False
        self.has_begun = self.is_whole = False

    @property
    def is_in_pieces(self) -> bool:
        """Is this a stream or a download, which says no length and stays open for as long as its reader takes?"""
        return self._has_head and not any(name == b"content-length" for name, _ in self._headers)

    @property
    def is_stream(self) -> bool:
        """Is this a stream of events?"""
        return (b"content-type", b"text/event-stream") in self._headers

    def take(self, data: bytes) -> None:
        """Read these bytes of it."""
        self._parser.feed_data(data)

    async def send_on(self, *, is_head: bool) -> None:
        """Send on what was read."""
        if self._has_head and not self.has_begun:
            self.has_begun = True
            await self._send({"type": "http.response.start", "status": self._parser.get_status_code(), "headers": self._headers})
        if not self.has_begun:
            return
        self.is_whole = self._has_end or is_head
        piece = b"" if is_head else b"".join(self._pieces)
        self._pieces.clear()
        if piece or self.is_whole:
            await self._send({"type": "http.response.body", "body": piece, "more_body": not self.is_whole})

    # --- called by the parser ---

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head is there."""
        lower = name.lower()
        if lower not in _HOP_BY_HOP:
            self._headers.append((lower, value))

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """Some of the body is there."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        self._has_end = True


async def _until_gone(receive: Receive) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass
