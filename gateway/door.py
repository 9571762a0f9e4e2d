"""The door to the pages: passes the bytes of /debug on to their process and its answers back, so that browsers see one origin and one port.

It understands nothing of a page. What a request carries further is a list of headers that pages read, and the client's address, which no
client can say itself. Without that process everything else goes on. Must not know: keys, the record.
"""

import asyncio
import contextlib
import logging
from urllib.parse import urlsplit

import httptools

from gateway.admission import RoundRobin, Shares
from gateway.forms import Forms
from gateway.http_limits import LINK, Link
from gateway.relay import Receive, Scope, Send
from protocol.bounds import MAX_RELAYS
from protocol.errors import RequestError
from protocol.runtime import Runtime

log = logging.getLogger(__name__)
CONNECT_S, AGAIN_S = 3.0, 0.05
"""How long a request waits for the process of the pages, which may be starting, and how often it looks."""
TURN_S, MAX_WAITING = 2.0, 256
"""How long a request waits for a relay, and how many of them wait; one address has as many of these places as are still free."""
MAX_STREAMS, MAX_IN_PIECES = 20, 24
"""So many of the relays may be streams of events, which stay open; and so many streams and downloads: the others are for pages."""
HEAD_MARGIN_S = 20.0
"""How much longer than its longest question to the record the beginning of a page may take."""
ADDRESS = b"x-sluice-client-address"
LOGIN = "/debug/login"
_PIECE_BYTES = 64 * 1024
_PASSED = frozenset((
    b"host", b"origin", b"cookie", b"accept", b"user-agent", b"content-type", b"last-event-id", b"if-none-match", b"sec-fetch-site",
    b"sec-fetch-mode", b"sec-fetch-dest", b"sec-fetch-user",
))  # fmt: skip
_HOP_BY_HOP = frozenset((
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"date",
))  # fmt: skip
_HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
        b"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"), (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"), (b"cross-origin-resource-policy", b"same-origin"), (b"x-frame-options", b"DENY"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"), (b"vary", b"accept, cookie"),
)  # fmt: skip
"""Those of the pages themselves, which a gateway does not load."""
_TITLES = {408: "Too late", 413: "Too large", 503: "Too many at once"}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{status} · Sluice</title></head>
<body><main><h1>{title}</h1><p>{sentence}</p><p>Calls are relayed and recorded all the same.</p></main></body></html>
"""


class Door:
    """Relays requests for pages to the process at `settings.pages_url`."""

    def __init__(self, settings: Runtime) -> None:
        pages = settings.config.pages
        self.is_open = pages.enabled and pages.on_gateway
        """Are there pages here at all?"""
        self._url = settings.pages_url
        self._head_s = settings.config.limits.audit_read_s + HEAD_MARGIN_S
        self._pages = pages
        self._streams = self._in_pieces = 0
        self._forms = Forms()
        # address by address: who asks for much waits for oneself
        self._turns, self._places = RoundRobin(MAX_RELAYS, most=MAX_RELAYS), Shares(MAX_WAITING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["method"] not in ("GET", "HEAD", "POST"):
            await _say(send, 405, "Not done here", "Pages are read with GET, and forms are sent with POST.", (b"allow", b"GET, HEAD, POST"))
            return
        address, form = self._address(scope), b""
        if scope["method"] == "POST":
            link: Link | None = scope.get("extensions", {}).get(LINK, {}).get("link")
            is_here = link is not None and link.has_body()
            try:
                found = await self._forms.read(address, scope["headers"], receive, is_here=is_here)
            except RequestError as error:
                # what is left of a form that is late or made room is not waited for
                more = ((b"retry-after", b"1"), (b"connection", b"close")) if error.http_status != 413 else ()
                await _say(send, error.http_status, _TITLES[error.http_status], error.message, *more)
                return
            if found is None:
                return
            form = found
        await self._admit(scope, address, form, receive, send)

    async def _admit(self, scope: Scope, address: str, form: bytes, receive: Receive, send: Send) -> None:
        if not await self._has_turn(address):
            await self._refuse(send)
            return
        try:
            await self._relay(scope, address, form, receive, send)
        finally:
            self._turns.leave(address)

    async def _has_turn(self, address: str) -> bool:
        """Take a relay, as soon as one is free; False where none is for long, or too many wait."""
        if self._turns.enters(address):
            return True
        if self._places.take(address):
            return False
        try:
            async with asyncio.timeout(TURN_S):
                await self._turns.enter(address)
        except TimeoutError:
            return False
        finally:
            self._places.give_back(address)
        return True

    async def _refuse(self, send: Send) -> None:
        loading = MAX_RELAYS - self._turns.free
        sentence = f"{loading} pages are loading through this gateway already. Close a live view, or try again in a second."
        await _say(send, 503, "Too many at once", sentence, (b"retry-after", b"1"))

    async def _relay(self, scope: Scope, address: str, form: bytes, receive: Receive, send: Send) -> None:
        answer = _Answer(send)
        # from the beginning: who leaves while the process is waited for makes room at once
        gone = asyncio.create_task(_until_gone(receive), name="page reader")
        relaying = asyncio.create_task(self._ask(scope, address, form, answer), name="page")
        try:
            try:
                await asyncio.wait({relaying, gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                relaying.cancel()
                # what is under way may be a write that its own cancelling ends
                await asyncio.wait({relaying})
            if not relaying.cancelled():
                relaying.result()
        except _FullError:
            await self._refuse(send)
        except (OSError, TimeoutError, httptools.HttpParserError):
            if answer.has_begun:
                # not completed: the connection ends, so that no client takes the beginning for the whole
                log.warning("a page was cut off")
                return
            sentence = "The process that makes the pages (sluice pages) does not answer. It is started again by itself; try again shortly."
            await _say(send, 503, "The pages are away", sentence, (b"retry-after", b"2"))
        finally:
            gone.cancel()

    async def _ask(self, scope: Scope, address: str, form: bytes, answer: "_Answer") -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await self._connected()
                writer.write(_request(scope, form, address))
                await writer.drain()
            await self._pass_on(reader, answer, is_head=scope["method"] == "HEAD")
        finally:
            if writer is not None:
                writer.close()

    def _address(self, scope: Scope) -> str:
        peer = str((scope.get("client") or ("",))[0])
        said = b", ".join(value for name, value in scope["headers"] if name == b"x-forwarded-for").decode("latin-1")
        return self._pages.address_of(peer, said)

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
                        if self._in_pieces >= MAX_IN_PIECES or (answer.is_stream and self._streams >= MAX_STREAMS):
                            raise _FullError
                        is_counted, is_stream = True, answer.is_stream
                        self._in_pieces += 1
                        self._streams += is_stream
                    await answer.send_on(is_head=is_head)
                    if answer.has_begun:
                        # a stream of events may be silent for long
                        head.reschedule(None)
        finally:
            self._in_pieces -= is_counted
            self._streams -= is_stream


class _FullError(Exception):
    """So many answers in pieces are open already."""


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


def _request(scope: Scope, form: bytes, address: str) -> bytes:
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    lines = [b"%b %b HTTP/1.1" % (scope["method"].encode(), target)]
    lines += [b"%b: %b" % header for header in scope["headers"] if header[0] in _PASSED]
    lines += [b"%b: %b" % (ADDRESS, address.encode("latin-1", "replace")), b"connection: close", b"content-length: %d" % len(form)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + form


async def _say(send: Send, status: int, title: str, sentence: str, *headers: tuple[bytes, bytes]) -> None:
    body = _PAGE.format(status=status, title=title, sentence=sentence).encode()
    head = [*_HEADERS, *headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def is_page(path: str) -> bool:
    """Is this a path of the pages?"""
    return path == "/debug" or path.startswith("/debug/")
