"""The process of the pages as a gateway reaches it: passes one request on, and its answer back piece by piece.

It understands HTTP as far as where an answer ends. Must not know: keys, the record, what a page is.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from urllib.parse import urlsplit

import httptools

from gateway.relay import Receive, Send

log = logging.getLogger(__name__)
CONNECT_S, AGAIN_S = 3.0, 0.05
"""How long a request waits for the process of the pages, which may be starting, and how often it looks."""
_PIECE_BYTES = 64 * 1024
_SHORT_BYTES = 256 * 1024
"""Answers up to so long are read whole before they are sent on."""
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

    async def relay(self, request: bytes, receive: Receive, send: Send, *, is_head: bool, when_read: Callable[[], None]) -> None:
        """Pass a request on, and its answer back; `when_read` is called as soon as all of that is here, at the latest at the end. Raises
        AwayError, FullError."""
        with contextlib.ExitStack() as asking:
            asking.callback(when_read)
            asking.callback(self._asked)
            self.open += 1
            answer = _Answer(send, asking.close)
            # from the beginning: who leaves while the process is waited for makes room at once
            gone = asyncio.create_task(_until_gone(receive), name="page reader")
            relaying = asyncio.create_task(self._ask(request, answer, asking, is_head=is_head), name="page")
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
                gone.cancel()

    def _asked(self) -> None:
        self.open -= 1

    async def _ask(self, request: bytes, answer: "_Answer", asking: contextlib.ExitStack, *, is_head: bool) -> None:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await self._connected()
            asking.callback(writer.close)
            writer.write(request)
            await writer.drain()
        await self._pass_on(reader, answer, is_head=is_head)

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
                    if answer.is_short and not (answer.has_end or is_head):
                        continue
                    await answer.send_on(is_head=is_head)
                    if answer.has_begun:
                        # a stream of events may be silent for long
                        head.reschedule(None)
        finally:
            self.in_pieces -= is_counted
            self.streams -= is_stream


class _Answer:
    """An answer of the pages, parsed as far as HTTP goes, and sent on piece by piece: each waits until the client took the one before. A
    short one is read first, so that whoever does not take it holds nothing but its bytes."""

    def __init__(self, send: Send, when_read: Callable[[], None]) -> None:
        self._send, self._when_read = send, when_read
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._has_head = False
        self.has_begun = self.has_end = self.is_short = self.is_whole = False

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
        self.is_whole = self.has_end or is_head
        piece = b"" if is_head else b"".join(self._pieces)
        self._pieces.clear()
        if piece or self.is_whole:
            await self._send({"type": "http.response.body", "body": piece, "more_body": not self.is_whole})

    # --- called by the parser ---

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head is there."""
        lower = name.lower()
        self.is_short |= lower == b"content-length" and int(value) <= _SHORT_BYTES
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
        self.has_end = True
        self._when_read()


async def _until_gone(receive: Receive) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass
