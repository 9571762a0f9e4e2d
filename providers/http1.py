"""A minimal HTTP/1.1 client: it POSTs a request to a provider and passes on the answer's bytes in
the callback that read them.

Why not aiohttp: its reader costs a task wake-up, a timer and a pause of the socket for each piece
of an answer, in w2 a quarter of the gateway (docs/change/decisions.md has the figures). Parsing is
done by llhttp (httptools), as strict as Node: two lengths, obsolete line folding, bare line feeds
and the like end the answer with an error. No redirects, no cookies, no decompression. A connection that may not be clean is not used again. A request is sent twice in one case only: the
provider closed a kept connection at the moment in which it was used again. One coarse timer serves
all connections."""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Protocol

import httptools
from aiohappyeyeballs import start_connection

from protocol.errors import PipelineError, RemoteProtocolError, UpstreamTimeout, UpstreamUnreachable
from providers.http_answer import HttpAnswer
from providers.origin import Origin, OriginKey
from providers.outbound import MOST_HEAD_BYTES, Outbound

log = logging.getLogger(__name__)
_Stamps = tuple[tuple[str, int, int], ...]
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
_TIMEOUT = re.compile(rb"(?:^|[\s,;])timeout\s*=\s*(\d{1,9})(?!\d)")


class AnswerSink(Protocol):
    """Receives an answer, in callbacks that must not block. A PipelineError raised by `on_head` or
    `on_data` ends the answer."""

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """The head is there; names are in lower case, of repeated ones the first."""

    def on_data(self, data: bytes, line: "UpstreamConnection") -> None:
        """Some of the body. May call `line.pause`."""

    def on_end(self) -> None:
        """The body is complete."""


class _Unanswered(UpstreamUnreachable):
    """The connection ended before a byte of an answer."""

    code = "upstream_closed"


class UpstreamConnection(asyncio.Protocol):
    """One connection. It carries one request at a time; `pool` gets it back after an answer that
    left it clean."""

    def __init__(self, pool: "Pool", key: OriginKey, context: ssl.SSLContext | None = None) -> None:
        self.pool, self.key, self.context = pool, key, context
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
        self._answer: HttpAnswer | None = None
        self._bodiless_bytes = 0

    # --- asked by Pool ---

    def send(
        self, head: bytes, body: bytes, sink: AnswerSink, *, remembers: bool = False
    ) -> "asyncio.Future[None]":
        """Send a request, and remember its body if it may have to be sent again. The future ends
        after `sink.on_end`, or with a PipelineError."""
        assert self.transport is not None and self.done is None
        self.done = asyncio.get_running_loop().create_future()
        self._sink, self._answer = sink, HttpAnswer()
        self._parser = self._answer.parser
        self.again = body if remembers else None
        self._bodiless_bytes = 0
        # the next look comes before its time
        self.silent_s = -self.pool.look_s
        self.heard = self.has_head = False
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
        parser, answer = self._parser, self._answer
        if parser is None or answer is None or self.done is None:
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
            answer.is_spoiled = True
        try:
            self._hand_on(data, answer)
        except PipelineError as error:
            self.drop(error)

    def _hand_on(self, data: bytes, answer: HttpAnswer) -> None:
        sink, parts = self._sink, answer.parts
        assert sink is not None
        if answer.has_head and not self.has_head:
            self.has_head, self.again = True, None
            *_, is_tls, out = self.key
            if out is not None and out.proxy and not is_tls:
                out.check_status(answer.status)
            sink.on_head(answer.status, answer.headers)
        if parts:
            self._bodiless_bytes = 0
            # one piece for the chunks that came in one read: in bursts there are a hundred
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            sink.on_data(body, self)
        else:
            self._bodiless_bytes += len(data)
            if self._bodiless_bytes > MAX_HEAD_BYTES and not answer.is_complete:
                raise RemoteProtocolError("the upstream's answer has too much head")
        if answer.is_complete:
            self._finish(sink, answer)
        elif answer.is_spoiled:
            raise RemoteProtocolError("the upstream's answer is not HTTP")

    def _finish(self, sink: AnswerSink, answer: HttpAnswer) -> None:
        sink.on_end()
        done, self.done, self._sink, self._parser = self.done, None, None, None
        assert done is not None
        if not done.done():
            done.set_result(None)
        transport = self.transport
        if transport is None:
            return
        is_clean = not answer.is_spoiled and answer.stays and not transport.is_closing()
        if (keep_alive := answer.headers.get(b"keep-alive")) and (
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
        sink, answer = self._sink, self._answer
        if self.done is None or sink is None or answer is None:
            return
        if answer.until_close and self.has_head and not answer.is_spoiled and error is None:
            try:
                self._finish(sink, answer)
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


class Pool:
    """Connections to providers, kept for `KEEPALIVE_S` after their last answer. Limits in
    seconds."""

    def __init__(self, *, connect_s: float, first_byte_s: float, idle_s: float) -> None:
        self._connect_s, self._first_byte_s, self._idle_s = connect_s, first_byte_s, idle_s
        self.look_s = min(1.0, first_byte_s / _LOOKS, idle_s / _LOOKS)
        """How long it is from one look at the connections to the next."""
        self._lines = set[UpstreamConnection]()
        self._idle: dict[OriginKey, list[UpstreamConnection]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._contexts: dict[tuple[str, ...], tuple[ssl.SSLContext, _Stamps]] = {}

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
        line = self._take(origin)
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

    def _take(self, origin: Origin) -> UpstreamConnection | None:
        idle = self._idle.get(origin.key)
        while idle:
            line = idle.pop()
            if line.transport is None or line.transport.is_closing():
                continue
            if origin.out is None or line.context is self._trusting(origin):
                return line
            # it was made with certificates that were replaced
            line.transport.close()
        return None

    def _trusting(self, origin: Origin) -> ssl.SSLContext | None:
        """Return the context for new connections, made anew when a file of certificates was
        replaced. One that cannot be used leaves those in use that were read before."""
        if not origin.is_tls:
            return None
        out = origin.out or Outbound()
        stamps, known = out.stamps(), self._contexts.get(out.files)
        if known is not None and known[1] == stamps:
            return known[0]
        try:
            context = out.context()
        except OSError as error:
            why = f"{' or '.join(out.files)}: {error.strerror or error}"
            if known is None:
                raise UpstreamUnreachable(
                    f"certificates cannot be read: {why}", code="upstream_certificates"
                ) from None
            log.error("certificates cannot be read; the earlier ones stay", extra={"why": why})
            context = known[0]
        self._contexts[out.files] = context, stamps
        return context

    async def _connect(self, origin: Origin) -> UpstreamConnection:
        loop, context = asyncio.get_running_loop(), self._trusting(origin)
        name = origin.host if origin.is_tls else None
        to = "upstream"

        def make() -> UpstreamConnection:
            return UpstreamConnection(self, origin.key, context)

        try:
            async with asyncio.timeout(min(self._connect_s, self._first_byte_s)):
                if origin.out is not None and origin.out.proxy:
                    to = "proxy"
                    sock = await _tunneled(origin, origin.out)
                    to = "upstream"
                elif _is_address(origin.host):
                    sock = None
                else:
                    sock = await _reached(origin.host, origin.port)
                where = {"sock": sock} if sock else {"host": origin.host, "port": origin.port}
                _, line = await loop.create_connection(
                    make, **where, ssl=context, server_hostname=name
                )
        except TimeoutError as error:
            raise UpstreamTimeout(
                f"no connection to the {to} in time", code=f"{to}_connect_timeout"
            ) from error
        except OSError as error:
            raise _not_connected(error, to) from error
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


async def _reached(host: str, port: int) -> socket.socket:
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # of two families one may lead nowhere
    return await start_connection(addresses, happy_eyeballs_delay=0.25)


async def _tunneled(origin: Origin, out: Outbound) -> socket.socket:
    """Return a connection to the proxy that leads to the provider, or takes requests for it."""
    sock, loop = await _reached(*out.place), asyncio.get_running_loop()
    if not origin.is_tls:
        return sock
    try:
        await loop.sock_sendall(sock, out.connect_head(origin.host, origin.port))
        answer = b""
        while not out.is_tunnel(answer):
            if not (more := await loop.sock_recv(sock, MOST_HEAD_BYTES)):
                raise ConnectionResetError("the proxy closed the connection")
            answer += more
    except BaseException:
        sock.close()
        raise
    return sock


def _not_connected(error: OSError, to: str) -> UpstreamUnreachable:
    """What an operator must know apart: the code is in the record and in the log. `to`: `upstream`,
    or `proxy` where that was not reached."""
    code = f"{to}_unreachable"
    # a look-up without a descriptor says that there is no such name
    if error.errno in (errno.EMFILE, errno.ENFILE) or not _has_descriptor():
        code = "gateway_descriptors"
    elif isinstance(error, ssl.SSLError):
        code = f"{to}_tls"
    elif isinstance(error, socket.gaierror):
        code = f"{to}_dns"
    elif isinstance(error, ConnectionRefusedError):
        code = f"{to}_refused"
    return UpstreamUnreachable(f"no connection to the {to}", code=code)


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
