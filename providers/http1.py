"""A minimal HTTP/1.1 client: it POSTs a request to a provider and passes on the answer's bytes in
the callback that read them.

Why not aiohttp: its reader costs a task wake-up, a timer and a pause of the socket for each piece
of an answer, in w2 a quarter of the gateway (docs/change/decisions.md has the figures). Parsing is
done by llhttp (httptools), as strict as Node: two lengths, obsolete line folding, bare line feeds
and the like end the answer with an error. No redirects, no cookies, no proxies, no decompression. A
connection that may not be clean is not used again. A request is sent twice in one case only: the
provider closed a kept connection at the moment in which it was used again. One coarse timer serves
all connections."""

import asyncio
import contextlib
import errno
import ipaddress
import os
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit

import httptools
from aiohappyeyeballs import start_connection

from protocol.errors import PipelineError, RemoteProtocolError, UpstreamTimeout, UpstreamUnreachable
from protocol.requests.addresses import bracketed

MAX_HEAD_BYTES = 64 * 1024
"""Bound on an answer's head, or on bytes in a row without a byte of its body, except those of the
same read."""
KEEPALIVE_S = 30.0
"""How long an idle connection is kept; less where the provider's `keep-alive: timeout` is less."""
_JOINED_BYTES = 16 * 1024
"""Bodies up to this are copied behind their head: one buffer is cheaper to write than two."""
_LOOKS = 4
"""How often in the shortest time limit connections are looked at; a limit is kept to a part in so
many."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_AS_IT_IS = "/%:@!$&'()*+,;=~"
"""What stays in a base URL beside letters and digits."""
_TIMEOUT = re.compile(rb"(?:^|[\s,;])timeout\s*=\s*(\d{1,9})(?!\d)")
_OURS = ("content-length", "transfer-encoding", "connection", "expect", "upgrade", "te", "trailer")


class AnswerSink(Protocol):
    """Receives an answer, in callbacks that must not block. A PipelineError raised by `on_head` or
    `on_data` ends the answer."""

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """The head is there; names are in lower case, of repeated ones the first."""

    def on_data(self, data: bytes, line: "UpstreamConnection") -> None:
        """Some of the body. May call `line.pause`."""

    def on_end(self) -> None:
        """The body is complete."""


class Origin:
    """Where a provider is, from its base URL. Raises ValueError for what is no http or https
    URL."""

    def __init__(self, base_url: str) -> None:
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname or url.fragment:
            raise ValueError(
                "an upstream's base_url is http://HOST[:PORT][/PATH][?QUERY] or the same with https"
            )
        self.is_tls = url.scheme == "https"
        self.host = url.hostname if ":" in url.hostname else url.hostname.encode("idna").decode()
        self.port = url.port or (443 if self.is_tls else 80)
        self._path = quote(url.path.rstrip("/"), safe=_AS_IT_IS)
        self._query = quote(url.query, safe=_AS_IT_IS + "?")
        self.named = (
            bracketed(self.host) if url.port is None else f"{bracketed(self.host)}:{url.port}"
        )
        """What the header `host` says."""
        self._login = (
            f"{unquote(url.username)}:{unquote(url.password or '')}" if url.username else ""
        )

    @property
    def key(self) -> tuple[str, int, bool]:
        """Equal where one connection may serve both."""
        return self.host, self.port, self.is_tls

    def target(self, path: str) -> str:
        """What a request line names for a path below this address, which may have a query: the
        address's own follows it."""
        if not self._query:
            return self._path + path
        return f"{self._path}{path}{'&' if '?' in path else '?'}{self._query}"

    def head(self, path: str, headers: Mapping[str, str]) -> bytes:
        """The head of a POST, up to the value of its content-length. Raises ValueError for a header
        that cannot be sent."""
        defaults = {"host": self.named, "accept": "*/*", "user-agent": "sluice"}
        all_headers = defaults | {name.lower(): value for name, value in headers.items()}
        if self._login:
            all_headers.setdefault(
                "authorization", "Basic " + b64encode(self._login.encode()).decode()
            )
        lines = [f"POST {self.target(path)} HTTP/1.1"]
        for name, value in all_headers.items():
            if _NAME.fullmatch(name) is None or name in _OURS or _VALUE.fullmatch(value) is None:
                raise ValueError(f"the header {name!r} of an upstream cannot be sent")
            lines.append(f"{name}: {value.strip()}")
        return ("\r\n".join(lines) + "\r\ncontent-length: ").encode()


class _Unanswered(UpstreamUnreachable):
    """The connection ended before a byte of an answer."""

    code = "upstream_closed"


class UpstreamConnection(asyncio.Protocol):
    """One connection. It carries one request at a time; `pool` gets it back after an answer that
    left it clean."""

    def __init__(self, pool: "Pool", key: tuple[str, int, bool]) -> None:
        self.pool, self.key = pool, key
        self.transport: asyncio.Transport | None = None
        self.done: asyncio.Future[None] | None = None
        """The end of the answer under way."""
        self.idle_s = 0.0
        self.keep_s = KEEPALIVE_S
        """How long it may be idle after its last answer."""
        self.again: bytes | None = None
        """The body of the request under way, while it may still have to be sent once more."""
        self.silent_s = 0.0
        self.heard = False
        """Has anything come since the pool's last look?"""
        self.has_head = False
        self.is_paused = False
        self._sink: AnswerSink | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._parts: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._bodiless_bytes = 0
        self._status = 0
        self._has_end = self._is_complete = self._is_spoiled = self._until_close = self._stays = (
            False
        )

    # --- asked by Pool ---

    def send(
        self, head: bytes, body: bytes, sink: AnswerSink, *, remembers: bool = False
    ) -> "asyncio.Future[None]":
        """Send a request, and remember its body if it may have to be sent again. The future ends
        after `sink.on_end`, or with a PipelineError."""
        assert self.transport is not None and self.done is None
        self.done = asyncio.get_running_loop().create_future()
        self._sink, self._parser = sink, httptools.HttpResponseParser(self)
        self.again = body if remembers else None
        self._headers = {}
        self._bodiless_bytes = self._status = 0
        # the next look comes before its time
        self.silent_s = -self.pool.look_s
        self.heard = self.has_head = False
        self._has_end = self._is_complete = self._is_spoiled = self._until_close = self._stays = (
            False
        )
        head = b"%b%d\r\n\r\n" % (head, len(body))
        if len(body) <= _JOINED_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))
        return self.done

    def drop(self, error: PipelineError | None = None) -> None:
        """Give up the answer under way, with `error` if somebody still waits for it, and close at
        once."""
        done, self.done, self._sink, self._parser = self.done, None, None, None
        if self.transport is not None:
            self.transport.abort()
        if done is not None and not done.done():
            if error is None:
                done.cancel()
            else:
                done.set_exception(error)

    # --- flow ---

    def pause(self) -> None:
        """Read no more until `resume`."""
        if not self.is_paused and self.transport is not None:
            self.is_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.is_paused and self.transport is not None:
            self.is_paused, self.heard = False, True
            self.transport.resume_reading()

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = transport  # type: ignore[assignment]
        if (sock := transport.get_extra_info("socket")) is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Parse what one read brought, then hand it on."""
        parser = self._parser
        if parser is None or self.done is None:
            # nobody asked: a provider that says more than its answer is not believed the next time
            # either
            self.drop()
            return
        self.heard = True
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.drop(RemoteProtocolError("the upstream wants another protocol"))
            return
        except httptools.HttpParserError:
            self._is_spoiled = True
        try:
            self._hand_on(data)
        except PipelineError as error:
            self.drop(error)

    def _hand_on(self, data: bytes) -> None:
        sink, parts = self._sink, self._parts
        assert sink is not None
        if self._has_end and not self.has_head:
            self.has_head, self.again = True, None
            sink.on_head(self._status, self._headers)
        if parts:
            self._bodiless_bytes = 0
            # one piece for the chunks that came in one read: in bursts there are a hundred
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            sink.on_data(body, self)
        else:
            self._bodiless_bytes += len(data)
            if self._bodiless_bytes > MAX_HEAD_BYTES and not self._is_complete:
                raise RemoteProtocolError("the upstream's answer has too much head")
        if self._is_complete:
            self._finish(sink)
        elif self._is_spoiled:
            raise RemoteProtocolError("the upstream's answer is not HTTP")

    def _finish(self, sink: AnswerSink) -> None:
        sink.on_end()
        done, self.done, self._sink, self._parser = self.done, None, None, None
        assert done is not None
        if not done.done():
            done.set_result(None)
        transport = self.transport
        if transport is None:
            return
        is_clean = not self._is_spoiled and self._stays and not transport.is_closing()
        if (keep_alive := self._headers.get(b"keep-alive")) and (
            match := _TIMEOUT.search(keep_alive.lower())
        ):
            # a second for the way there and back: a request must not meet the provider's end
            self.keep_s = min(KEEPALIVE_S, int(match[1]) - 1.0)
            is_clean = is_clean and self.keep_s > 0
        # an answer to a request that is not all sent: the rest of it must not become somebody's
        # next request
        if is_clean and not transport.get_write_buffer_size():
            self.resume()
            self.pool.keep(self)
        else:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """The end of an answer that has no other end, else an error."""
        self.transport = None
        self.pool.forget(self)
        sink, done = self._sink, self.done
        if done is None or sink is None:
            return
        if self._until_close and self.has_head and not self._is_spoiled and error is None:
            try:
                self._finish(sink)
            except PipelineError as refused:
                self.drop(refused)
        else:
            self.drop(self._cut())

    def _cut(self) -> UpstreamUnreachable:
        if self.has_head or self._bodiless_bytes:
            return UpstreamUnreachable(
                "the upstream closed the connection before its answer was complete",
                code="upstream_cut",
            )
        return _Unanswered("the upstream closed the connection and did not answer")

    # --- httptools; what these raise would only be wrapped, so they leave marks ---

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; what comes behind the body is ignored."""
        if not self._has_end:
            self._headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        """The end of a head, also of a 1xx."""
        if self._is_complete or self._has_end or self._parser is None:
            return
        self._status = self._parser.get_status_code()
        if self._status < 200:
            return
        self._has_end = True
        coding = self._headers.get(b"transfer-encoding")
        if coding is not None and coding.strip().lower() != b"chunked":
            # we accept no other, and where its end is would be a guess
            self._is_spoiled = True
        self._until_close = (
            coding is None
            and b"content-length" not in self._headers
            and self._status not in (204, 304)
        )
        # asked here: at the end of an answer the parser has forgotten it
        self._stays = not self._until_close and self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        if not self._is_complete and not self._is_spoiled:
            self._parts.append(body)

    def on_message_begin(self) -> None:
        """An answer begins."""
        # a second answer to one request
        self._is_spoiled = self._is_spoiled or self._is_complete

    def on_message_complete(self) -> None:
        """An answer is complete, also a 1xx."""
        if self._has_end:
            self._is_complete = not self._is_spoiled or self._is_complete
        else:
            # 1xx: the answer is still to come
            self._headers = {}


class Pool:
    """Connections to providers, kept for `KEEPALIVE_S` after their last answer. Limits in
    seconds."""

    def __init__(self, *, connect_s: float, first_byte_s: float, idle_s: float) -> None:
        self._connect_s, self._first_byte_s, self._idle_s = connect_s, first_byte_s, idle_s
        self.look_s = min(1.0, first_byte_s / _LOOKS, idle_s / _LOOKS)
        """How long it is from one look at the connections to the next."""
        self._lines = set[UpstreamConnection]()
        self._idle: dict[tuple[str, int, bool], list[UpstreamConnection]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None
        self._trusted: tuple[tuple[str, int, int], ...] = ()

    async def post(
        self,
        origin: Origin,
        head: bytes,
        body: bytes,
        sink: AnswerSink,
        *,
        when_again: Callable[[], None] | None = None,
    ) -> None:
        """Send a request whose head is from `origin.head`; returns after `sink.on_end`.

        With `when_again`, a request on a kept connection that ends before the first byte of an
        answer is sent once more, at once and on a new connection, after `when_again` was called.
        Callers whose request must not run twice omit it: it is almost certain, but not certain,
        that the provider did not take the first one. Raises UpstreamTimeout, UpstreamUnreachable,
        RemoteProtocolError, and what the sink raises.
        """
        line = self._take(origin.key)
        remembers = line is not None and when_again is not None
        line = line or await self._connect(origin)
        done = line.send(head, body, sink, remembers=remembers)
        # its answer may take half an hour, and bodies have megabytes
        del body
        try:
            await _answered(line, done)
            return
        except _Unanswered:
            again, line.again = line.again, None
            if again is None or when_again is None:
                raise
        when_again()
        line = await self._connect(origin)
        done = line.send(head, again, sink)
        del again
        await _answered(line, done)

    def _take(self, key: tuple[str, int, bool]) -> UpstreamConnection | None:
        idle = self._idle.get(key)
        while idle:
            line = idle.pop()
            if line.transport is not None and not line.transport.is_closing():
                return line
        return None

    def _trusting(self) -> ssl.SSLContext:
        """Return the context for new connections, made anew when the trusted certificates were
        replaced: that takes 30 ms."""
        trusted = _trusted()
        if self._tls is None or trusted != self._trusted:
            self._tls, self._trusted = ssl.create_default_context(), trusted
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls

    async def _connect(self, origin: Origin) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        tls, name = (self._trusting(), origin.host) if origin.is_tls else (None, None)

        def make() -> UpstreamConnection:
            return UpstreamConnection(self, origin.key)

        try:
            async with asyncio.timeout(min(self._connect_s, self._first_byte_s)):
                if _is_address(origin.host):
                    _, line = await loop.create_connection(
                        make, origin.host, origin.port, ssl=tls, server_hostname=name
                    )
                else:
                    addresses = await loop.getaddrinfo(
                        origin.host, origin.port, type=socket.SOCK_STREAM
                    )
                    # of two families one may lead nowhere
                    sock = await start_connection(addresses, happy_eyeballs_delay=0.25)
                    _, line = await loop.create_connection(
                        make, sock=sock, ssl=tls, server_hostname=name
                    )
        except TimeoutError as error:
            raise UpstreamTimeout(
                "no connection to the upstream in time", code="upstream_connect_timeout"
            ) from error
        except OSError as error:
            raise _not_connected(error) from error
        self._lines.add(line)
        if self._timer is None:
            self._timer = loop.call_later(self.look_s, self._look)
        return line

    @property
    def size(self) -> int:
        """How many connections are open."""
        return len(self._lines)

    def keep(self, line: UpstreamConnection) -> None:
        """Take back a clean connection."""
        line.idle_s = 0.0
        self._idle.setdefault(line.key, []).append(line)

    def forget(self, line: UpstreamConnection) -> None:
        """A connection is gone."""
        self._lines.discard(line)
        if line.done is None and line in (idle := self._idle.get(line.key, [])):
            idle.remove(line)

    def _look(self) -> None:
        # one timer for all: a timer for each piece of an answer was 2 us of the 130 us that a chunk
        # cost
        for line in list(self._lines):
            if line.done is None:
                line.idle_s += self.look_s
                if line.idle_s >= line.keep_s and line.transport is not None:
                    line.transport.close()
                continue
            if line.silent_s >= 0:
                # a provider that had closed it says so within a round trip; what ends later may
                # have been taken
                line.again = None
            # a paused one is silent because we do not listen; before the head everything counts,
            # also what is no answer yet
            is_still = not line.has_head or not (line.heard or line.is_paused)
            line.silent_s = line.silent_s + self.look_s if is_still else 0.0
            line.heard = False
            if line.silent_s >= (self._idle_s if line.has_head else self._first_byte_s):
                line.drop(UpstreamTimeout("the upstream was silent for too long"))
        self._timer = (
            asyncio.get_running_loop().call_later(self.look_s, self._look) if self._lines else None
        )

    async def close(self) -> None:
        """Close every connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for line in list(self._lines):
            line.drop(UpstreamUnreachable("the gateway is shutting down"))
        self._lines.clear()
        self._idle.clear()


async def _answered(line: UpstreamConnection, done: "asyncio.Future[None]") -> None:
    try:
        await done
    except asyncio.CancelledError:
        # its answer may have ended in this very turn, and the connection be another call's
        if line.done is done:
            line.drop()
        raise


def _not_connected(error: OSError) -> UpstreamUnreachable:
    """What an operator must know apart: the code is in the record and in the log."""
    code = "upstream_unreachable"
    # a look-up without a descriptor says that there is no such name
    if error.errno in (errno.EMFILE, errno.ENFILE) or not _has_descriptor():
        code = "gateway_descriptors"
    elif isinstance(error, ssl.SSLError):
        code = "upstream_tls"
    elif isinstance(error, socket.gaierror):
        code = "upstream_dns"
    elif isinstance(error, ConnectionRefusedError):
        code = "upstream_refused"
    return UpstreamUnreachable("no connection to the upstream", code=code)


def _has_descriptor() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    return True


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _trusted() -> tuple[tuple[str, int, int], ...]:
    """Where the trusted certificates lie, and which files they are: others once somebody replaced
    them."""
    paths, files = ssl.get_default_verify_paths(), []
    for path in (paths.cafile, paths.capath):
        with contextlib.suppress(OSError):
            if path:
                shown = os.stat(path)
                files.append((path, shown.st_ino, shown.st_mtime_ns))
    return tuple(files)
