"""A pipelined connection for the hot path: commands of one event-loop tick go out in one write,
replies come by position.

Why not redis-py here: at 5,000 entries/s an awaited command per chunk collapses, and pipelines cost
2.5-4 times the CPU. Everything that is not per chunk uses redis-py. A
connection reconnects by itself; what was unanswered when it broke fails with StreamConnectionLost,
and the caller, who knows whether repeating is safe, decides. A connection on which Redis is silent
while it owes an answer is cut: a host that is gone sends no end.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import hiredis
from redis.asyncio.connection import parse_url

from protocol.errors import StreamConnectionLost
from streams import lua

log = logging.getLogger(__name__)

Argument = str | bytes | int
_pack: Callable[[tuple[Argument, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]
Push = Callable[[list[Any]], None]
_MULTI, _EXEC = _pack(("MULTI",)), _pack(("EXEC",))
SLICE_S = 0.005
"""How long messages of one subscription are handed out before everything else on the loop has its
turn."""
_PROBES = 4
"""How often in `silent_s` a connection is probed."""
_JOINED_BYTES = 64 * 1024
"""Commands larger than this are written as they are, not joined with the others of their tick: 1 MB
is 0.2 ms to copy."""


def pack(*args: Argument) -> bytes:
    """Pack a command for `Connection.transaction`."""
    return _pack(args)


def pack_large(*args: Argument) -> list[bytes]:
    """The same in pieces, of which `bytes` over 64 KiB are the arguments themselves and no
    copies."""
    pieces, small = [], [b"*%d\r\n" % len(args)]
    for arg in args:
        value = arg if isinstance(arg, bytes) else str(arg).encode()
        if len(value) > _JOINED_BYTES:
            pieces += [b"".join([*small, b"$%d\r\n" % len(value)]), value]
            small = [b"\r\n"]
        else:
            small.append(_bulk(value))
    return [*pieces, b"".join(small)]


class RedisError(Exception):
    """Redis refused a command; the text is Redis' own."""

    @property
    def is_spoilt_key(self) -> bool:
        """Does a key hold something of another type than it must? It will again: repeating is in
        vain."""
        return str(self).startswith("WRONGTYPE")


class NotAnAnswer(RedisError):
    """What came is no answer to what was asked: a byte changed on the way, or it answers something
    else. A fault of Redis like others."""


NOT_AN_ANSWER = (ValueError, TypeError, IndexError, KeyError, AttributeError)
"""What comes of reading an answer of Redis in which a byte changed on the way; UnicodeDecodeError
is a ValueError."""


class Append:
    """XADD to one stream and PUBLISH on one channel, packed once but for what differs: 0.6 us an
    entry instead of 1.5."""

    __slots__ = ("_head", "_middle")

    def __init__(self, key: str, channel: str, field: bytes) -> None:
        self._head = b"*6\r\n" + b"".join(map(_bulk, (b"XADD", key.encode(), b"NOMKSTREAM")))
        self._middle = _bulk(field), b"*3\r\n" + _bulk(b"PUBLISH") + _bulk(channel.encode())

    def pack(self, entry_id: bytes, blob: bytes, hint: bytes) -> bytes:
        """The two commands for one entry: its id, what is appended, what is published."""
        field, publish = self._middle
        return b"%b$%d\r\n%b\r\n%b$%d\r\n%b\r\n%b$%d\r\n%b\r\n" % (
            self._head,
            len(entry_id),
            entry_id,
            field,
            len(blob),
            blob,
            publish,
            len(hint),
            hint,
        )


def _bulk(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


class _Protocol(asyncio.Protocol):
    """One TCP or unix connection: packs, joins, matches replies to futures."""

    def __init__(
        self, on_push: Push | None, on_late: Push | None, on_lost: Callable[["_Protocol"], None]
    ) -> None:
        self.reader = hiredis.Reader(replyError=RedisError)
        self.waiting: deque[asyncio.Future[Any] | None] = deque()
        self.on_push, self.on_late, self.on_lost = on_push, on_late, on_lost
        self._out: list[bytes] = []
        self.transport: asyncio.Transport | None = None
        self.loop = asyncio.get_running_loop()
        self.pushing = False
        self.heard = True
        """Has anything come since the last probe?"""
        self.unsent = 0
        self.silent_probes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        lost = StreamConnectionLost("the connection to Redis broke")
        while self.waiting:
            future = self.waiting.popleft()
            if future is not None and not future.done():
                future.set_exception(lost)
        self.on_lost(self)

    def data_received(self, data: bytes) -> None:
        self.heard = True
        self.reader.feed(data)
        self._take()

    def _take(self) -> None:
        if self.pushing and self.on_push is not None:
            self._hand_out(self.on_push)
            return
        gets, waiting = self.reader.gets, self.waiting
        while (reply := gets()) is not False:
            if waiting and (future := waiting.popleft()) is not None and not future.done():
                self._answer(future, reply)

    def _hand_out(self, on_push: Push) -> None:
        """Hand out messages. One read may bring hundreds of them, and each may cost a policy
        milliseconds: past a slice they go to `on_late`, where there is one. Nothing more is read
        then, before all others on the loop had their turn.
        """
        gets, waiting, until = self.reader.gets, self.waiting, monotonic() + SLICE_S
        is_late = False
        while (reply := gets()) is not False:
            if type(reply) is list and reply and reply[0] == b"message":
                on_push(reply)
                if not is_late and monotonic() > until:
                    is_late, on_push = True, self.on_late or on_push
            elif waiting and (future := waiting.popleft()) is not None and not future.done():
                is_told = (
                    type(reply) is list
                    and reply
                    and reply[0] in (b"subscribe", b"unsubscribe", b"pong")
                )
                self._answer(future, reply[1] if is_told else reply)
        if is_late and self.transport is not None:
            self.transport.pause_reading()
            self.loop.call_soon(self._go_on)

    def _answer(self, future: asyncio.Future[Any], reply: Any) -> None:
        if not isinstance(reply, Exception):
            future.set_result(reply)
            return
        if str(reply).startswith("NOSCRIPT"):
            # Redis has forgotten them: whoever asks again finds them there
            self.load_scripts()
        if str(reply).startswith("READONLY") and self.transport is not None:
            # it was a primary: the next connection may lead to the one that is now
            self.transport.abort()
        future.set_exception(reply)

    def load_scripts(self) -> list[asyncio.Future[Any]]:
        """Let Redis know all scripts by their names; the futures give its answers."""
        answers = [self.loop.create_future() for _ in lua.SOURCES]
        for source, future in zip(lua.SOURCES.values(), answers, strict=True):
            future.add_done_callback(_quiet)
            self.put(_pack(("SCRIPT", "LOAD", source)), future)
        return answers

    def _go_on(self) -> None:
        if self.transport is not None:
            self.heard = True
            self.transport.resume_reading()

    def put(self, packed: bytes, future: asyncio.Future[Any] | None) -> None:
        if not self._out:
            self.loop.call_soon(self.flush)
        self._out.append(packed)
        self.waiting.append(future)

    def put_batch(self, packed: list[bytes], skipped: int, future: asyncio.Future[Any]) -> None:
        """Put commands of which only the last one's reply is of interest, and write at once: they
        are a whole tick's."""
        self._out += packed
        self.waiting.extend((None,) * skipped)
        self.waiting.append(future)
        self.flush()

    def flush(self) -> None:
        """Write what was put."""
        out, self._out = self._out, []
        if self.transport is None or not out:
            return
        if len(out) == 1:
            self.transport.write(out[0])
        elif max(map(len, out)) > _JOINED_BYTES:
            self.transport.writelines(out)
        else:
            self.transport.write(b"".join(out))

    def probe(self) -> None:
        """Send PING on an idle connection; cut one that owed an answer at the last probes and sent
        nothing."""
        if self.transport is None:
            return
        unsent = self.transport.get_write_buffer_size()
        moved, self.heard, self.unsent = self.heard or unsent < self.unsent, False, unsent
        if not self.waiting:
            self.put(_pack(("PING",)), None)
        self.silent_probes = 0 if moved else self.silent_probes + 1
        if self.silent_probes >= _PROBES:
            self.transport.abort()


def _quiet(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()


class Connection:
    """A reconnecting connection. `on_push` gets Pub/Sub messages (then it may only subscribe), but
    `on_late` those that came in such numbers that they may wait; `on_connect` runs at each new
    connection. `has_scripts`: not for a user who may only read.

    Cut and made anew when Redis owes an answer and sends nothing for `silent_s`: blocking commands
    must ask for at most `block_ms`.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        silent_s: float = 5.0,
        on_push: Push | None = None,
        on_late: Push | None = None,
        on_connect: Callable[[], Awaitable[None]] | None = None,
        has_scripts: bool = True,
    ) -> None:
        self._kwargs: dict[str, Any] = dict(parse_url(url))
        self._tls = url.startswith("rediss://")
        self._name, self._on_push, self._on_late, self._on_connect = (
            name,
            on_push,
            on_late,
            on_connect,
        )
        self._has_scripts = has_scripts and on_push is None
        self._protocol: _Protocol | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._closed = False
        self._probe_s = silent_s / _PROBES
        self.database: int = self._kwargs.get("db", 0)
        """The number of the database in the server."""
        self.block_ms = max(1, int(min(1.0, self._probe_s) * 1000))
        """The longest that a blocking command may block."""
        self.connected = asyncio.Event()

    async def open(self, *, patience_s: float = 30.0) -> None:
        """Connect, retrying for `patience_s`. Raises StreamConnectionLost."""
        loop = asyncio.get_running_loop()
        until, delay = loop.time() + patience_s, 0.02
        while True:
            try:
                return await self._connect()
            except (OSError, RedisError, StreamConnectionLost) as error:
                if isinstance(error, RedisError) and not str(error).startswith(
                    ("LOADING", "MASTERDOWN")
                ):
                    raise StreamConnectionLost(f"Redis refused the connection: {error}") from error
                if loop.time() > until or self._closed:
                    raise StreamConnectionLost("cannot reach Redis") from error
                await asyncio.sleep(delay)
                delay = min(delay * 2, 0.5)

    async def _connect(self) -> None:
        loop, kwargs = asyncio.get_running_loop(), self._kwargs

        def make() -> _Protocol:
            return _Protocol(self._on_push, self._on_late, self._lost)

        async with asyncio.timeout(_PROBES * self._probe_s):
            if path := kwargs.get("path"):
                _, protocol = await loop.create_unix_connection(make, path)
            else:
                context = ssl.create_default_context() if self._tls else None
                _, protocol = await loop.create_connection(
                    make, kwargs.get("host", "localhost"), kwargs.get("port", 6379), ssl=context
                )
        try:
            async with asyncio.timeout(_PROBES * self._probe_s):
                await self._greet(protocol)
        except BaseException:
            if protocol.transport is not None:
                protocol.transport.abort()
            raise
        protocol.pushing = self._on_push is not None
        self._protocol = protocol
        loop.call_later(self._probe_s, self._probe, protocol)
        if self._on_connect is not None:
            await self._on_connect()
        self.connected.set()

    def _probe(self, protocol: _Protocol) -> None:
        if self._protocol is protocol:
            protocol.probe()
            protocol.loop.call_later(self._probe_s, self._probe, protocol)

    async def _greet(self, protocol: _Protocol) -> None:
        kwargs = self._kwargs
        answers: list[asyncio.Future[Any]] = []

        def ask(*args: Argument) -> None:
            future: asyncio.Future[Any] = protocol.loop.create_future()
            future.add_done_callback(_quiet)
            protocol.put(_pack(args), future)
            answers.append(future)

        if password := kwargs.get("password"):
            ask("AUTH", *([kwargs["username"]] if kwargs.get("username") else []), password)
        if kwargs.get("db"):
            ask("SELECT", kwargs["db"])
        ask("CLIENT", "SETNAME", self._name)
        if self._has_scripts:
            answers += protocol.load_scripts()
        for future in answers:
            await future

    def _lost(self, protocol: _Protocol) -> None:
        if self._protocol is not protocol:
            return
        self._protocol = None
        self.connected.clear()
        if not self._closed:
            log.warning("redis connection lost", extra={"connection": self._name})
            self._reconnecting = asyncio.get_running_loop().create_task(
                self._reconnect(), name=f"reconnect {self._name}"
            )

    async def _reconnect(self) -> None:
        while not self._closed:
            with contextlib.suppress(StreamConnectionLost):
                await self.open(patience_s=5)
                log.info("redis connection restored", extra={"connection": self._name})
                return
            # one that refuses the greeting (too many clients) does so at once
            await asyncio.sleep(self._probe_s / _PROBES)

    def call(self, *args: Argument) -> "asyncio.Future[Any]":
        """Send a command with this tick's others. The future gives the reply, RedisError or
        StreamConnectionLost."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._protocol is None:
            future.set_exception(StreamConnectionLost("no connection to Redis"))
            future.add_done_callback(_quiet)
        else:
            self._protocol.put(_pack(args), future)
        return future

    def transaction(self, packed: list[bytes], commands: int) -> "asyncio.Future[Any]":
        """Send packed commands as one MULTI; the future gives EXEC's reply, RedisError or
        StreamConnectionLost.

        What Redis answers when it queues them is dropped unread: a future for each was a third of
        the price (per chunk).
        """
        return self._batch([_MULTI, *packed, _EXEC], commands + 1)

    def _batch(self, packed: list[bytes], skipped: int) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._protocol is None:
            future.set_exception(StreamConnectionLost("no connection to Redis"))
            future.add_done_callback(_quiet)
        else:
            self._protocol.put_batch(packed, skipped, future)
        return future

    def flush(self) -> None:
        """Write what was put in this turn of the loop now and not at its end: for a tick's whole
        output."""
        if self._protocol is not None:
            self._protocol.flush()

    def send_quiet(self, *args: Argument) -> None:
        """Send a command whose outcome does not matter; its reply is dropped unread."""
        if self._protocol is not None:
            self._protocol.put(_pack(args), None)

    @staticmethod
    def quiet(future: "asyncio.Future[Any]") -> None:
        """Let a command's outcome not matter."""
        future.add_done_callback(_quiet)

    def script(
        self, name: str, keys: list[str], args: list[Argument], *, is_large: bool = False
    ) -> "asyncio.Future[Any]":
        """Run a script of `streams/lua/`; they are loaded at each connect, and again when Redis has
        forgotten them (then repeat).

        `is_large`: arguments of megabytes go out at once and as they are. Packing 10 MB takes 20 MB
        more for a moment.
        """
        if is_large:
            return self._batch(pack_large("EVALSHA", lua.SHA[name], len(keys), *keys, *args), 0)
        return self.call("EVALSHA", lua.SHA[name], len(keys), *keys, *args)

    def cut(self) -> None:
        """Break the connection; it is made anew. For who got an answer that was not to what it
        asked: the next may not be either."""
        if self._protocol is not None and self._protocol.transport is not None:
            self._protocol.transport.abort()

    async def close(self) -> None:
        """Close for good."""
        self._closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reconnecting
        if self._protocol is not None and self._protocol.transport is not None:
            self._protocol.transport.close()
