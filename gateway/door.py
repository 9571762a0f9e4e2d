"""The door to the pages: passes the bytes of /debug on to their process and its answers back, so that browsers see one origin and one port.

It understands nothing of a page. What a request carries further is a list of headers that pages read, and the client's address, which no
client can say itself. Without that process everything else goes on. Must not know: keys, the record.
"""

import asyncio
import contextlib
from collections.abc import Callable, MutableMapping
from typing import Any

from gateway.admission import Shares
from gateway.forms import Forms
from gateway.http_limits import LINK, Link
from gateway.pages_process import AwayError, FullError, PagesProcess
from gateway.relay import Receive, Scope, Send
from protocol.bounds import MAX_RELAYS
from protocol.errors import RequestError
from protocol.runtime import Runtime
from streams.round_robin import RoundRobin

TURN_S, MAX_WAITING = 2.0, 256
"""How long a request waits for a relay, and how many of them wait; one address has as many of these places as are still free."""
MAX_STREAMS, MAX_IN_PIECES = 20, 24
"""So many of the relays may be streams of events, which stay open; and so many streams, downloads and very long pages: the others are for
pages. One address has as many of these as are still free: alone, half."""
HEAD_MARGIN_S = 20.0
"""How much longer than its longest question to the record the beginning of a page may take."""
ADDRESS = b"x-sluice-client-address"
LOGIN = "/debug/login"
_PASSED = frozenset((
    b"host", b"origin", b"cookie", b"accept", b"user-agent", b"content-type", b"last-event-id", b"if-none-match", b"sec-fetch-site",
    b"sec-fetch-mode", b"sec-fetch-dest", b"sec-fetch-user",
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
        head_s = settings.config.limits.audit_read_s + HEAD_MARGIN_S
        self._process = PagesProcess(
            settings.pages_url, head_s=head_s, most_in_pieces=MAX_IN_PIECES, most_streams=MAX_STREAMS, has_long=True
        )
        self._pages = pages
        self._forms = Forms()
        # address by address: who asks for much waits for oneself
        self._turns, self._places = RoundRobin(MAX_RELAYS, most=MAX_RELAYS), Shares(MAX_WAITING)

    @property
    def open(self) -> int:
        """Connections to that process."""
        return self._process.open

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
        with contextlib.ExitStack() as turn:
            turn.callback(self._turns.leave, address)
            await self._relay(scope, _request(scope, form, address), address, receive, send, turn.close)

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

    async def _relay(
        self, scope: Scope, request: bytes, address: str, receive: Receive, send: Send, when_read: Callable[[], None]
    ) -> None:  # fmt: skip
        try:
            await self._process.relay(
                request, receive, _with_headers(send), who=address, is_head=scope["method"] == "HEAD", when_read=when_read
            )
        except FullError:
            sentence = "Too many live views and downloads are open through this gateway, or from your address alone."
            await _say(send, 503, "Too many at once", f"{sentence} Close one, or try again in a second.", (b"retry-after", b"1"))
        except AwayError:
            sentence = "The process that makes the pages (sluice pages) does not answer. It is started again by itself; try again shortly."
            await _say(send, 503, "The pages are away", sentence, (b"retry-after", b"2"))

    def _address(self, scope: Scope) -> str:
        peer = str((scope.get("client") or ("",))[0])
        said = b", ".join(value for name, value in scope["headers"] if name == b"x-forwarded-for").decode("latin-1")
        return self._pages.address_of(peer, said)


def _request(scope: Scope, form: bytes, address: str) -> bytes:
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    lines = [b"%b %b HTTP/1.1" % (scope["method"].encode(), target)]
    lines += [b"%b: %b" % header for header in scope["headers"] if header[0] in _PASSED]
    lines += [b"%b: %b" % (ADDRESS, address.encode("latin-1", "replace")), b"connection: close", b"content-length: %d" % len(form)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + form


def _with_headers(send: Send) -> Send:
    """Send what the HTTP server of the pages says itself, as of two hosts, with the headers that every answer of theirs has."""

    async def send_on(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message["headers"]}
            if b"content-security-policy" not in own:
                missing = [header for header in _HEADERS if header[0] not in own]
                message = {**message, "headers": [*message["headers"], *missing]}
        await send(message)

    return send_on


async def _say(send: Send, status: int, title: str, sentence: str, *headers: tuple[bytes, bytes]) -> None:
    body = _PAGE.format(status=status, title=title, sentence=sentence).encode()
    head = [*_HEADERS, *headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def is_page(path: str) -> bool:
    """Is this a path of the pages?"""
    return path == "/debug" or path.startswith("/debug/")
