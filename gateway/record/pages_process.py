"""The process of the pages as a gateway reaches it: passes one request on, and its answer back
piece by piece.

It understands HTTP as far as where an answer ends. Must not know: keys, the record, what a page is.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from urllib.parse import urlsplit

import httptools

from gateway.admission import Shares
from gateway.asgi import Receive, Scope, Send
from streams.round_robin import RoundRobin

log = logging.getLogger(__name__)
CONNECT_S, AGAIN_S = 3.0, 0.05
"""How long a request waits for the process of the pages, which may be starting, and how often it
looks."""
_PIECE_BYTES = 64 * 1024
_WHOLE_BYTES = 2 * 2**20
"""Answers up to so long, which nearly all pages are, are read whole before they are sent on, so
that the process has done with them."""
UNTAKEN_BYTES = 32 * 2**20
"""So much of such answers may be here; who asks has as much of it as is still free. What does not
fit is passed on in pieces."""
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"date",
    )
)


class AwayError(Exception):
    """The process does not answer, and nothing was sent to the client."""


class FullError(Exception):
    """Too many answers in pieces are open already, or the client has its share of them; nothing was
    sent to the client."""


class CrowdedError(Exception):
    """No turn came in time, or too many wait for one; nothing was sent to the client."""


class Line:
    """Requests that may be under way at once, and those who wait for that, key by key: who asks for
    much waits for oneself."""

    def __init__(self, slots: int, *, most: int, wait_s: float, waiting: int = 2**31) -> None:
        self.turns, self.places = RoundRobin(slots, most=most), Shares(waiting)
        self._slots, self._wait_s = slots, wait_s

    @property
    def taken(self) -> int:
        """How many are under way."""
        return self._slots - self.turns.free

    @contextlib.asynccontextmanager
    async def turn(self, who: str) -> AsyncIterator[Callable[[], None]]:
        """Wait for a turn, and lend what gives it back before the end. Raises CrowdedError."""
        if not self.turns.enters(who):
            await self._wait(who)
        with contextlib.ExitStack() as turn:
            turn.callback(self.turns.leave, who)
            yield turn.close

    async def _wait(self, who: str) -> None:
        if self.places.take(who):
            raise CrowdedError
        try:
            async with asyncio.timeout(self._wait_s):
                await self.turns.enter(who)
        except TimeoutError:
            raise CrowdedError from None
        finally:
            self.places.give_back(who)


class PagesProcess:
    """The process at `url`. `head_s`: how long the beginning of an answer may take;
    `most_in_pieces`: answers in pieces that may be open at once, of which `most_streams` may be
    streams of events; `has_long`: those with a length that are not read whole count too. Who asks
    has as many of these as are still free: alone, half."""

    def __init__(
        self,
        url: str,
        *,
        head_s: float,
        most_in_pieces: int,
        most_streams: int,
        has_long: bool = False,
    ) -> None:
        self._url, self._head_s, self._has_long = url, head_s, has_long
        self.open = 0
        """Requests under way."""
        self.in_pieces, self.streams, self.untaken = (
            Shares(most_in_pieces),
            Shares(most_streams),
            Shares(UNTAKEN_BYTES),
        )
        """Answers that last as long as their reader takes; those that are streams; and bytes of
        answers that are read whole."""

    async def relay(
        self,
        request: bytes,
        receive: Receive,
        send: Send,
        *,
        line: Line,
        who: str,
        is_head: bool,
    ) -> None:
        """Pass a request on, and its answer back, when `who` has a turn in `line`; the turn is over
        as soon as all of the answer is here. Raises CrowdedError, AwayError, FullError."""
        async with line.turn(who) as leave:
            await self._relay(request, receive, _Answer(send, who, is_head=is_head), leave)

    async def _relay(
        self, request: bytes, receive: Receive, answer: "_Answer", when_read: Callable[[], None]
    ) -> None:
        with contextlib.ExitStack() as asking:
            asking.callback(when_read)
            asking.callback(self._asked)
            self.open += 1
            # from the beginning: who leaves while the process is waited for makes room at once
            gone = asyncio.create_task(_until_gone(receive), name="page reader")
            relaying = asyncio.create_task(self._ask(request, answer, asking), name="page")
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
                # not completed: the connection ends, so that no client takes the beginning for the
                # whole
                log.warning("a page was cut off")
            finally:
                gone.cancel()

    def _asked(self) -> None:
        self.open -= 1

    async def _ask(self, request: bytes, answer: "_Answer", asking: contextlib.ExitStack) -> None:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await self._connected()
            asking.callback(writer.close)
            writer.write(request)
            await writer.drain()
        await self._pass_on(reader, answer, asking)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, as often as that takes: whoever opens the address that `sluice up` printed may
        be faster than the process."""
        while True:
            try:
                return await self._connect()
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(AGAIN_S)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._url.startswith("unix:"):
            return await asyncio.open_unix_connection(
                self._url.removeprefix("unix:"), limit=_PIECE_BYTES
            )
        url = urlsplit(self._url)
        return await asyncio.open_connection(url.hostname, url.port, limit=_PIECE_BYTES)

    async def _pass_on(
        self, reader: asyncio.StreamReader, answer: "_Answer", asking: contextlib.ExitStack
    ) -> None:
        is_held = False
        with contextlib.ExitStack() as held:
            async with asyncio.timeout(self._head_s) as head:
                while not answer.is_whole:
                    data = await reader.read(_PIECE_BYTES)
                    if not data:
                        raise ConnectionResetError(
                            "the process of the pages ended within an answer"
                        )
                    answer.take(data)
                    if answer.has_head and not is_held:
                        # only now: anybody may ask for a stream, and who is not logged in gets none
                        self._hold(answer, held)
                        is_held = True
                    if answer.has_end:
                        asking.close()
                    if answer.is_due:
                        await answer.send_on()
                        # a stream of events may be silent for long
                        head.reschedule(None)

    def _hold(self, answer: "_Answer", held: contextlib.ExitStack) -> None:
        """Count what its reader may leave here for long, until it is taken. Raises FullError."""

        def holds(places: Shares, amount: int = 1) -> bool:
            if places.take(answer.who, amount):
                return False
            held.callback(places.give_back, answer.who, amount)
            return True

        if answer.is_head:
            return
        length = answer.size if answer.has_end else answer.length
        # what fits into a connection's own buffer never waits for its reader: forms, redirects,
        # most pages
        if length is not None and (
            length <= _PIECE_BYTES or (length <= _WHOLE_BYTES and holds(self.untaken, length))
        ):
            answer.is_kept = True
            return
        is_counted = self._has_long or length is None
        if is_counted and (
            (answer.is_stream and not holds(self.streams)) or not holds(self.in_pieces)
        ):
            raise FullError


class _Answer:
    """An answer of the pages, parsed as far as HTTP goes, and sent on piece by piece: each waits
    until the client took the one before. One that is kept is read first, so that whoever does not
    take it holds nothing but its bytes."""

    def __init__(self, send: Send, who: str, *, is_head: bool) -> None:
        self._send, self.who, self.is_head = send, who, is_head
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self.size = 0
        """Bytes of its body that were read."""
        self.length: int | None = None
        """How many there are to be, where it says that."""
        self.has_head = self.has_begun = self.has_end = self.is_whole = False
        self.is_kept = False
        """Is it sent on only when it is here whole?"""

    @property
    def is_due(self) -> bool:
        """Is what was read to be sent on now?"""
        return self.has_head and (self.has_end or self.is_head or not self.is_kept)

    @property
    def is_stream(self) -> bool:
        """Is this a stream of events?"""
        return (b"content-type", b"text/event-stream") in self._headers

    def take(self, data: bytes) -> None:
        """Read these bytes of it."""
        self._parser.feed_data(data)

    async def send_on(self) -> None:
        """Send on what was read."""
        if not self.has_begun:
            self.has_begun = True
            await self._send(
                {
                    "type": "http.response.start",
                    "status": self._parser.get_status_code(),
                    "headers": self._headers,
                }
            )
        self.is_whole = self.has_end or self.is_head
        piece = b"" if self.is_head else b"".join(self._pieces)
        self._pieces.clear()
        if piece or self.is_whole:
            await self._send(
                {"type": "http.response.body", "body": piece, "more_body": not self.is_whole}
            )

    # --- called by the parser ---

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head is there."""
        lower = name.lower()
        if lower == b"content-length":
            self.length = int(value)
        if lower not in _HOP_BY_HOP:
            self._headers.append((lower, value))

    def on_headers_complete(self) -> None:
        """The head is there."""
        self.has_head = True

    def on_body(self, body: bytes) -> None:
        """Some of the body is there."""
        self._pieces.append(body)
        self.size += len(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        self.has_end = True


async def _until_gone(receive: Receive) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass


async def read_body(receive: Receive, most: int) -> bytes | None:
    """Return the body of a request, and of one that is longer than `most` a little more than that;
    None where its client is gone."""
    parts, size = list[bytes](), 0
    while size <= most:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if not message.get("more_body"):
            break
    return b"".join(parts)[: most + 1]


def request_bytes(scope: Scope, target: bytes, lines: Iterable[bytes], body: bytes) -> bytes:
    """Return a request as the process of the pages reads it."""
    head = [
        b"%b %b HTTP/1.1" % (scope["method"].encode(), target),
        *lines,
        b"connection: close",
        b"content-length: %d" % len(body),
    ]
    return b"\r\n".join(head) + b"\r\n\r\n" + body
