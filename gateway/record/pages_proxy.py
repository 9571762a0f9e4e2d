"""The door to the pages: passes the bytes of /debug on to their process and its answers back, so
that browsers see one origin and one port.

It understands nothing of a page. What a request carries further is a list of headers that pages
read, and the client's address, which no client can say itself. Without that process everything else
goes on. Must not know: keys, the record.
"""

from gateway.asgi import Message, Receive, Scope, Send
from gateway.http_limits import LINK, Link
from gateway.record.form_uploads import FormUploads
from gateway.record.pages_process import (
    AwayError,
    CrowdedError,
    FullError,
    Line,
    PagesProcess,
    request_bytes,
)
from protocol.bounds import MAX_RELAYS
from protocol.errors import RequestError
from settings.pages import PAGE_HEADERS
from settings.runtime import Runtime
from streams.logins import LOGIN_HEADER, KnownLogins, login_of

TURN_S, MAX_WAITING = 2.0, 256
"""How long a request waits for a relay, and how many of them wait; one key or address has as many
of these places as are still free."""
MAX_OF_STRANGERS = 4
"""Relays, besides the others, for requests without a login."""
MAX_STREAMS, MAX_IN_PIECES = 20, 24
"""So many of the relays may be streams of events, which stay open; and so many streams, downloads
and very long pages: the others are for pages. One key has as many of these as are still free:
alone, half."""
HEAD_MARGIN_S = 20.0
"""How much longer than its longest question to the record the beginning of a page may take."""
ADDRESS = b"x-sluice-client-address"
LOGIN = "/debug/login"
_PASSED = frozenset(
    (
        b"host",
        b"origin",
        b"cookie",
        b"accept",
        b"user-agent",
        b"content-type",
        b"last-event-id",
        b"if-none-match",
        b"sec-fetch-site",
        b"sec-fetch-mode",
        b"sec-fetch-dest",
        b"sec-fetch-user",
    )
)
_HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    *PAGE_HEADERS,
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
_TITLES = {408: "Too late", 413: "Too large", 503: "Too many at once"}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{status} · Sluice</title></head>
<body><main><h1>{title}</h1><p>{sentence}</p><p>Calls are not affected: they are still relayed and recorded.</p></main></body></html>
"""


class PagesRelay:
    """Relays requests for pages to the process at `settings.pages_url`."""

    def __init__(self, settings: Runtime) -> None:
        pages = settings.config.pages
        self.is_open = pages.enabled and pages.on_gateway
        """Are there pages here at all?"""
        head_s = settings.config.limits.audit_read_s + HEAD_MARGIN_S
        self._process = PagesProcess(
            settings.pages_url,
            head_s=head_s,
            most_in_pieces=MAX_IN_PIECES,
            most_streams=MAX_STREAMS,
            has_long=True,
        )
        self._pages = pages
        self._forms = FormUploads()
        self._known = KnownLogins()
        # key by key, and address by address: who asks for much waits for oneself
        self._readers, self._strangers = (
            Line(slots, most=slots, wait_s=TURN_S, waiting=MAX_WAITING)
            for slots in (MAX_RELAYS, MAX_OF_STRANGERS)
        )

    @property
    def open(self) -> int:
        """Connections to that process."""
        return self._process.open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["method"] not in ("GET", "HEAD", "POST"):
            await _say(
                send,
                405,
                "Method not allowed",
                "Read pages with GET and send forms with POST.",
                (b"allow", b"GET, HEAD, POST"),
            )
            return
        address, form = self._address(scope), b""
        if scope["method"] == "POST":
            link: Link | None = scope.get("extensions", {}).get(LINK, {}).get("link")
            is_here = link is not None and link.has_body()
            try:
                submitted = await self._forms.read(
                    address, scope["headers"], receive, is_here=is_here
                )
            except RequestError as error:
                # what is left of a form that is late or made room is not waited for
                more = (
                    ((b"retry-after", b"1"), (b"connection", b"close"))
                    if error.http_status != 413
                    else ()
                )
                await _say(
                    send, error.http_status, _TITLES[error.http_status], error.message, *more
                )
                return
            if submitted is None:
                return
            form = submitted
        await self._relay(scope, address, form, receive, send)

    async def _relay(
        self, scope: Scope, address: str, form: bytes, receive: Receive, send: Send
    ) -> None:
        login = login_of(value for name, value in scope["headers"] if name == b"cookie")
        key_id = self._known.key_of(login)
        line, who = (self._readers, key_id) if key_id else (self._strangers, address)
        title, after_s = "Too many at once", b"1"
        try:
            await self._process.relay(
                _request(scope, form, address),
                receive,
                self._with_headers(login, send),
                line=line,
                who=who,
                is_head=scope["method"] == "HEAD",
            )
            return
        except CrowdedError:
            sentence = (
                f"{line.taken} pages are already loading through this gateway. Close a live view,"
                " or try again in a second."
            )
        except FullError:
            sentence = (
                "Too many live views and downloads are open through this gateway, or with your key"
                " alone. Close one, or try again in a second."
            )
        except AwayError:
            title, after_s = "The pages are unavailable", b"2"
            sentence = (
                "The process that makes the pages (sluice pages) does not answer. It restarts"
                " automatically; try again shortly."
            )
        await _say(send, 503, title, sentence, (b"retry-after", after_s))

    def _with_headers(self, login: str, send: Send) -> Send:
        """Send what the HTTP server of the pages says itself, as of two hosts, with the headers
        that every answer of theirs has. What the pages say of the login stays here."""

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [header for header in message["headers"] if header[0] != LOGIN_HEADER]
                for name, value in message["headers"]:
                    if name == LOGIN_HEADER:
                        new = login_of(cookie for name, cookie in headers if name == b"set-cookie")
                        self._known.remember(new or login, value.decode("latin-1"))
                names = {name for name, _ in headers}
                if b"content-security-policy" not in names:
                    headers += [header for header in _HEADERS if header[0] not in names]
                message = {**message, "headers": headers}
            await send(message)

        return send_on

    def _address(self, scope: Scope) -> str:
        peer = str((scope.get("client") or ("",))[0])
        forwarded_for = b", ".join(
            value for name, value in scope["headers"] if name == b"x-forwarded-for"
        ).decode("latin-1")
        return self._pages.address_of(peer, forwarded_for)


def _request(scope: Scope, form: bytes, address: str) -> bytes:
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    lines = [b"%b: %b" % header for header in scope["headers"] if header[0] in _PASSED]
    lines.append(b"%b: %b" % (ADDRESS, address.encode("latin-1", "replace")))
    return request_bytes(scope, target, lines, form)


async def _say(
    send: Send, status: int, title: str, sentence: str, *headers: tuple[bytes, bytes]
) -> None:
    body = _PAGE.format(status=status, title=title, sentence=sentence).encode()
    head = [*_HEADERS, *headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def is_page(path: str) -> bool:
    """Is this a path of the pages?"""
    return path == "/debug" or path.startswith("/debug/")
