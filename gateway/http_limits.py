"""HTTP limits, on uvicorn's httptools server. It bounds the size of a request head, the length of
its lines and the time it takes; it bounds how long a client may leave sent data unread; it answers
clients that half-close or speak HTTP/1.0; and it writes a chunk without a task.

A head past these bounds gets 431, or the connection is closed: before a head is complete, caller
and dialect are unknown. A client that half-closes looks like a client that is gone, because both
send the same FIN. Only writing tells them apart: a dead peer answers with a reset. So the server
writes at once something that is not yet part of an answer. Before the head this is an interim
response; in a chunked body it is a leading zero of the next chunk's size. HTTP/1.0 allows neither,
so there a half-closed client is treated as gone.

Requests that wait for an answer before theirs stay in the socket, and of what is not read the loop
sees no end. So the socket itself is asked. What fills the kernel's buffers keeps a FIN out of them.
Then only writing finds out: interim responses before the head, within an answer its next chunk or
keepalive.

A connection stays in step: each request has the body that its head declares, and gets one answer.
So an offer to upgrade is ignored, CONNECT is refused, and nothing is written into an answer that
has begun. Behind a proxy that reuses connections, one answer too many would reach somebody else.
"""

import asyncio
import fcntl
import select
import socket
import sys
import termios
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from protocol.bounds import HEAD_S, MAX_HEAD_BYTES, MAX_HEADERS

_GONE_S = 0.1
"""How often a connection that is not read is asked whether its client is gone: one that sends no
more, or has requests that wait."""
_NO_MORE, _RESET = getattr(select, "POLLRDHUP", 0), select.POLLHUP | select.POLLERR
"""What a socket says of a client that sends no more, where the system knows that, and of one that
is gone."""
_ASK_S, _MUCH = 0.5, 16 * 1024
"""How often a client is asked of which so many bytes are unread: they may be all that the kernel
takes."""
_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
_LOOKS = 4
"""How often in the stall time a connection with unsent bytes is looked at."""


def _refusal(status: bytes, kind: bytes, code: bytes, message: bytes) -> bytes:
    body = b'{"error":{"message":"%b","type":"%b","param":null,"code":"%b"}}' % (
        message,
        kind,
        code,
    )
    head = (
        b"HTTP/1.1 %b\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length:"
        b" %d\r\n\r\n"
    )
    return head % (status, len(body)) + body


_TOO_LARGE = _refusal(
    b"431 Request Header Fields Too Large",
    b"invalid_request_error",
    b"head_too_large",
    b"the request head is too large",
)
_NO_MEMORY = _refusal(
    b"503 Service Unavailable\r\nretry-after: 1",
    b"api_error",
    b"gateway_memory",
    b"this gateway is out of memory; try again in 1 second",
)
_NOT_HTTP = _refusal(
    b"400 Bad Request",
    b"invalid_request_error",
    b"not_http",
    b"this is not a valid HTTP/1.1 request",
)
_NO_TUNNEL = _refusal(
    b"405 Method Not Allowed",
    b"invalid_request_error",
    b"no_proxy",
    b"this is no HTTP proxy and knows no CONNECT; set the address as the base URL of the API",
)
_MANY = 12
"""How many connections past the limit are accepted, to get an error."""
_MANY_HEAD_S = 2.0
"""How long the head of a request may take to come where there are too many connections, also one
that began before."""


Write = Callable[[bytes], bool]
LINK = "sluice.link"
"""The ASGI extension with the `Link` of the request as `link`."""


class _WithHead:
    """The transport of an answer: the head waits for what follows in the same turn of the loop, so
    that one system call sends both. Not streamed, 50 at a time: 1.08x requests/s."""

    __slots__ = ("_begun", "_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head, self._begun = b"", False

    def write(self, data: bytes) -> None:
        """Write, or keep the very first until the next write, and no longer than this turn."""
        if self._begun:
            if self._head:
                data, self._head = self._head + data, b""
            self._transport.write(data)
        else:
            self._begun, self._head = True, data
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what was kept, unless the client went in the same turn."""
        if self._head and not self._transport.is_closing():
            self.write(b"")

    def close(self) -> None:
        """Close behind what was written."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """As the transport says."""
        return self._transport.is_closing()


class _ExpectingCycle(RequestResponseCycle):
    """An answer to a client that waits for `100 Continue` before it sends the body."""

    async def send(self, message: Any) -> None:
        """As ASGI has it."""
        if self.waiting_for_100_continue and self.more_body and not self.body:
            # answered without it: whether the body still comes, or the next request, nobody can
            # tell
            self.keep_alive = False
        await super().send(message)


class _OldCycle(RequestResponseCycle):
    """An answer to a client of HTTP/1.0, or of a version that is none: of a body without a length,
    the end of the connection is the end."""

    _is_unsized = False

    async def send(self, message: Any) -> None:
        """As ASGI has it."""
        if message["type"] == "http.response.start":
            if not any(name.lower() == b"content-length" for name, _ in message.get("headers", ())):
                self._is_unsized, self.chunked_encoding, self.keep_alive = True, False, False
        elif self._is_unsized:
            # what uvicorn counts down to
            self.expected_content_length = len(message.get("body", b"")) + bool(
                message.get("more_body")
            )
        await super().send(message)


class Link:
    """What one request needs of its connection in addition to ASGI's `receive` and `send`: plain
    calls where those would need a task. `write` saves a task's wake-up, a coroutine and two
    dictionaries for each chunk; the socket's flow control stays what it was.
    """

    __slots__ = ("_connection", "_cycle", "_flow", "_transport")

    def __init__(self, connection: "BoundedConnection") -> None:
        self._connection = connection
        self._cycle, self._flow, self._transport = (
            connection.cycle,
            connection.flow,
            connection.cycle.transport,
        )

    def is_crowded(self) -> bool:
        """Are there so many connections that this one must go after its answer?"""
        if self._connection.is_crowded():
            self._cycle.keep_alive = False
            return True
        return False

    def has_body(self) -> bool:
        """Did the whole body come already?"""
        return not self._cycle.more_body

    def when_lost(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the client goes before its answer is complete; its body was read
        before."""
        if self._cycle.disconnected:
            tell()
        else:
            self._connection.when_lost = tell
            # a body may have ended with the socket paused, and who does not read does not see an
            # end
            self._flow.resume_reading()

    def write(self, data: bytes) -> bool:
        """Write `data`; False, and nothing written, where that is up to `send`: the client is slow
        or gone, or no body may follow."""
        cycle = self._cycle
        if (
            self._flow.write_paused
            or cycle.disconnected
            or cycle.response_complete
            or not cycle.response_started
            or not cycle.chunked_encoding
        ):
            return False
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True


def _look_at(transport: asyncio.Transport) -> tuple[int, int]:
    """Return what a connection's socket says of its other end, though nobody reads, and how many
    bytes it holds unread."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is None or (number := sock.fileno()) < 0:
        return 0, 0
    poll = select.poll()
    poll.register(number, _NO_MORE)
    unread = int.from_bytes(fcntl.ioctl(number, termios.FIONREAD, bytes(4)), sys.byteorder)
    return next((events for _, events in poll.poll(0)), 0), unread


class Crowd:
    """What happens where clients have more connections than there are descriptors for.
    `is_too_many` says whether a number is too large."""

    def __init__(self, is_too_many: Callable[[int], bool] = lambda connections: False) -> None:
        self.is_too_many = is_too_many
        self.pause: Callable[[], None] = lambda: None
        """Called to accept nobody while there are too many even for an error answer."""

    def is_full(self, connections: int) -> bool:
        """Are there too many even for an error answer?"""
        return self.is_too_many(connections - _MANY)


class _Requests(httptools.HttpRequestParser):
    """Parses requests for a server that speaks nothing else than HTTP/1. At an offer to upgrade
    httptools stops behind the head, and reads what follows as a new request, though it is the body.
    So that head is parsed once more, without the offer.
    """

    def __init__(self, connection: "BoundedConnection") -> None:
        super().__init__(connection)
        # requests may be sent at once; those behind one with `connection: close` are not served
        self.set_dangerous_leniencies(lenient_data_after_close=True)
        self._connection = connection

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]
        """Parse these bytes. Raises HttpParserError."""
        connection, parser, left = self._connection, self, memoryview(data)
        while left:
            try:
                super(_Requests, parser).feed_data(left)
                return
            except httptools.HttpParserUpgrade as offer:
                left = left[offer.args[0] :]
                head = connection.head_without_offer()
                # this one reads nothing more where that head says `connection: close`
                parser = connection.parser = _Requests(connection)
                parser.feed_data(head)


class BoundedConnection(HttpToolsProtocol):
    """One client connection. A head may have 64 KiB, not counting what comes in the same read as
    its end, 128 lines, and 30 s, with all that comes before it. The same bounds hold for what comes
    between two pieces of a body: sizes of chunks, trailers.

    A client that takes none of its unsent bytes for `stall_s` is cut off, whatever is sent to it: a
    sender would wait for ever.
    """

    stall_s = 60.0
    crowd = Crowd()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parser = _Requests(self)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_since = 0.0
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unsent = self._still_looks = 0
        self._answering: RequestResponseCycle | None = None
        """The request whose answer is under way, or was last; `cycle` is the newest, which may have
        to wait for it."""
        self._gone_timer: asyncio.TimerHandle | None = None
        self._is_at_end = False
        self._asked: RequestResponseCycle | None = None
        """The answer in which a client that sends no more was asked last whether it is there."""
        self._interim_at = 0.0
        self.when_lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        head_s = HEAD_S
        if self.is_crowded():
            head_s = _MANY_HEAD_S
            if self.crowd.is_full(len(self.connections)):
                self.crowd.pause()
        self._wait_for_head(head_s)

    def _wait_for_head(self, head_s: float) -> None:
        self._head_since = self.loop.time()
        self._head_timer = self.loop.call_later(head_s, self.transport.close)

    def is_crowded(self) -> bool:
        """Are there too many connections, though the idle ones and those with a slow head make
        room?"""
        while self.crowd.is_too_many(len(self.connections)):
            idle = next(
                (
                    connection
                    for connection in self.connections
                    if isinstance(connection, BoundedConnection) and connection.is_idle
                ),
                None,
            )
            if idle is None:
                return True
            idle.transport.close()
            # now: what is next may come before that is done
            self.connections.discard(idle)
        return False

    @property
    def is_idle(self) -> bool:
        """Does it wait for a next request, or too long for the rest of one's head?"""
        is_late = (
            self._head_timer is not None and self.loop.time() - self._head_since > _MANY_HEAD_S
        )
        return (
            is_late or self.timeout_keep_alive_task is not None
        ) and not self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._stop_timer()
        for timer in (self._stall_timer, self._gone_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        self.pipeline.clear()
        # with others behind it, uvicorn notified the last of those
        if (cycle := self._answering) is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.when_lost is not None:
            self.when_lost()

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless the head that they belong to is too long already."""
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(_TOO_LARGE)
            return
        self._head_bytes += len(data)
        try:
            super().data_received(data)
        except MemoryError:
            self._refuse(_NO_MEMORY)
        if (
            self._head_timer is None
            and self._answering is not None
            and self._answering.response_complete
        ):
            # the rest of a body that was answered before it came, or blank lines: uvicorn has no
            # time for the head behind them
            self._wait_for_head(HEAD_S)
        if self.pipeline and self.flow.read_paused and self._gone_timer is None:
            self._gone_timer = self.loop.call_later(_GONE_S, self._look_if_gone)

    def _refuse(self, answer: bytes) -> None:
        cycle = self._answering
        if not self.transport.is_closing():
            if cycle is None or cycle.response_complete or not cycle.response_started:
                self.transport.write(answer)
            self.transport.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of a head is there. One too many ends the connection, and the parsing of what came
        with it: 65,536 took 0.1 s."""
        if len(self.headers) >= MAX_HEADERS:
            self._refuse(_TOO_LARGE)
            raise ConnectionAbortedError
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        """Say that this is not HTTP, unless it was refused already, or it is our fault."""
        error = sys.exc_info()[1]
        if error is not None and isinstance(error.__cause__ or error.__context__, MemoryError):
            self._refuse(_NO_MEMORY)
        else:
            self._refuse(_NOT_HTTP)

    def _should_upgrade(self) -> bool:
        """Whatever is offered: uvicorn then leaves that head alone, and `_Requests` comes back with
        it."""
        return True

    def head_without_offer(self) -> bytes:
        """Return the head that has just come, without what it offers to upgrade to. Raises
        ConnectionAbortedError."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(_NO_TUNNEL)
            raise httptools.HttpParserError
        lines = [b"%b: %b\r\n" % line for line in self.headers if line[0] != b"upgrade"]
        start = b"%b %b HTTP/%b\r\n" % (method, self.url, self.parser.get_http_version().encode())
        return b"".join([start, *lines, b"\r\n"])

    def on_message_begin(self) -> None:
        """A head begins."""
        if self._head_timer is None:
            self._wait_for_head(HEAD_S)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._head_bytes = 0
        super().on_headers_complete()
        if self.parser.should_upgrade():
            return
        self._stop_timer()
        # its task has not begun: it sees these
        if self.scope["http_version"] != "1.1":
            self.cycle.__class__ = _OldCycle
        elif self.expect_100_continue:
            self.cycle.__class__ = _ExpectingCycle
        # what is appended from now on are trailers
        self.scope["headers"] = list(self.headers)
        self.cycle.transport = _WithHead(self.transport, self.loop)  # type: ignore[assignment]
        self.scope["extensions"] = {LINK: {"link": Link(self)}}

    def on_body(self, body: bytes) -> None:
        """A piece of a body is there."""
        self._head_bytes = 0
        super().on_body(body)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    # --- clients that send no more ---

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more: True where it is owed an answer and may still be there."""
        cycle = self._answering
        if (
            cycle is None
            or cycle.response_complete
            or self.cycle.more_body
            or cycle.scope["http_version"] != "1.1"
        ):
            return False
        self._is_at_end, self.cycle.keep_alive = True, False
        self._ask_if_there(cycle)
        if self._gone_timer is None:
            self._gone_timer = self.loop.call_later(_GONE_S, self._look_if_gone)
        return True

    def _ask_if_there(self, cycle: RequestResponseCycle) -> None:
        """Write what a client that is gone answers with a reset: once for an answer, as some
        readers bound the digits of a chunk's size."""
        if cycle is self._asked:
            return
        self._asked = cycle
        if not cycle.response_started:
            self.transport.write(_INTERIM)
        elif cycle.chunked_encoding:
            cycle.transport.write(b"0")

    def _look_if_gone(self) -> None:
        # nothing is read now, so nobody else would notice a reset before the next write
        self._gone_timer, cycle = None, self._answering
        if cycle is None or not (self._is_at_end or self.flow.read_paused):
            return
        says, unread = _look_at(self.transport)
        has_interims, now = cycle.scope["http_version"] == "1.1", self.loop.time()
        if says & _RESET:
            self.transport.abort()
        elif says & _NO_MORE and not has_interims:
            self.transport.close()
        elif says & _NO_MORE:
            self._ask_if_there(cycle)
        elif (
            unread >= _MUCH
            and has_interims
            and not cycle.response_started
            and now - self._interim_at >= _ASK_S
        ):
            self._interim_at = now
            self.transport.write(_INTERIM)
        self._gone_timer = self.loop.call_later(_GONE_S, self._look_if_gone)

    # --- unread answers ---

    def pause_writing(self) -> None:
        """The client is slower than what is sent to it."""
        super().pause_writing()
        self._watch_unsent()

    def resume_writing(self) -> None:
        """The client has taken most of it."""
        super().resume_writing()
        self._unsent = 2**63

    def on_response_complete(self) -> None:
        """An answer is complete, its end perhaps unread."""
        self.when_lost = None
        super().on_response_complete()
        self._watch_unsent()

    def _watch_unsent(self) -> None:
        if self._stall_timer is None and (unsent := self.transport.get_write_buffer_size()):
            self._unsent, self._still_looks = unsent, 0
            self._stall_timer = self.loop.call_later(self.stall_s / _LOOKS, self._look)

    def _look(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        self._still_looks = 0 if unsent < self._unsent else self._still_looks + 1
        self._unsent, self._stall_timer = unsent, None
        if self._still_looks >= _LOOKS:
            self.transport.abort()
        elif unsent:
            self._stall_timer = self.loop.call_later(self.stall_s / _LOOKS, self._look)


def bounded_connection(stall_s: float, crowd: Crowd) -> type[BoundedConnection]:
    """Return the protocol for uvicorn with this stall time."""
    return type("BoundedConnection", (BoundedConnection,), {"stall_s": stall_s, "crowd": crowd})
