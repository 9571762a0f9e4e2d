"""A TCP proxy with faults, for tests: between one role and one store, so that a single role can be
cut off.

It knows no protocol. It runs on an event loop in a thread of its own; every method may be called
from any other thread and has taken effect when it returns. What a direction holds back is kept and
goes on in order at `heal`, as TCP does after a network came back; `reset` is what loses it, with
the connection.
"""

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
_HOST = "127.0.0.1"
_BLOCK = 65_536
_QUEUED = 16
"""Blocks that wait in one direction of one connection; then its sender's socket fills, as with a
network that is gone."""


@dataclass(slots=True)
class _Way:
    """One direction: to the server (`requests`) or from it (`replies`)."""

    is_open: asyncio.Event
    delay_s: float = 0.0
    passed: int = 0
    alter: Callable[[bytes], bytes] | None = None


@dataclass(slots=True, eq=False)
class _Link:
    """One client's connection and ours to the server."""

    writers: list[asyncio.StreamWriter]
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class Proxy:
    """Forwards connections to `host:port`; `url` gives a store's URL through it."""

    def __init__(self, host: str, port: int) -> None:
        self._target, self._links = (host, port), set[_Link]()
        self._loop = asyncio.new_event_loop()
        self._requests, self._replies = _Way(asyncio.Event()), _Way(asyncio.Event())
        self._server: asyncio.Server | None = None
        self.port = 0
        self.accepted = 0
        """Connections so far."""
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"proxy-{port}", daemon=True
        )
        self._thread.start()
        self.heal()

    def url(self, url: str) -> str:
        """The same URL through this proxy."""
        parts = urlsplit(url)
        return parts._replace(
            netloc=f"{parts.netloc.rpartition('@')[0]}@{_HOST}:{self.port}"
        ).geturl()

    @property
    def passed(self) -> tuple[int, int]:
        """Bytes that went to the server and from it."""
        return self._requests.passed, self._replies.passed

    def black_hole(self) -> None:
        """Nothing passes either way; connections stay, new ones are accepted and hear nothing."""
        self.hold_requests()
        self.hold_replies()

    def hold_replies(self) -> None:
        """The server gets and does everything; no reply comes back (`reset` loses them)."""
        self._do(self._replies.is_open.clear)

    def hold_replies_from(self, found: bytes) -> None:
        """From the block of requests on that matches this regular expression, no reply comes
        back."""
        pattern = re.compile(found, re.DOTALL)

        def change(data: bytes) -> bytes:
            if pattern.search(data):
                self._replies.is_open.clear()
            return data

        self._requests.alter = change

    def hold_requests(self) -> None:
        """The server gets nothing; what it sends comes through."""
        self._do(self._requests.is_open.clear)

    def delay(self, seconds: float) -> None:
        """Every byte takes so much longer, each way."""
        self._requests.delay_s = self._replies.delay_s = seconds

    def alter_requests(self, change: Callable[[bytes], bytes] | None) -> None:
        """Every block of bytes to the server is passed through `change`, on the proxy's thread;
        None: as it is again."""
        self._requests.alter = change

    def alter_replies(self, change: Callable[[bytes], bytes] | None) -> None:
        """The same for bytes from the server."""
        self._replies.alter = change

    def alter_reply(self, found: bytes, instead: bytes) -> None:
        """Alter a reply once: in the first that holds `found`, a regular expression with one group,
        that group becomes `instead`."""
        pattern = re.compile(found, re.DOTALL)

        def change(data: bytes) -> bytes:
            if (match := pattern.search(data)) is None:
                return data
            self._replies.alter = None
            return data[: match.start(1)] + instead + data[match.end(1) :]

        self._replies.alter = change

    @property
    def has_altered(self) -> bool:
        """Is what was to be altered?"""
        return self._replies.alter is None

    def reset(self) -> None:
        """Every open connection ends with a RST, and what was held back is lost."""
        self._do(self._cut)

    def retarget(self, host: str, port: int) -> None:
        """New connections go there."""
        self._target = (host, port)

    def refuse(self) -> None:
        """New connections are refused; open ones go on."""
        asyncio.run_coroutine_threadsafe(self._stop_listening(), self._loop).result()

    def heal(self) -> None:
        """Everything passes again, what was held back first."""
        for way in (self._requests, self._replies):
            way.delay_s, way.alter = 0.0, None
            self._do(way.is_open.set)
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def close(self) -> None:
        """Cut everything and end the thread."""
        self.refuse()
        self.reset()
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, action: Callable[[], object]) -> None:
        async def run() -> None:
            action()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, _HOST, self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            theirs, ours = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(writer)
            return
        link = _Link([writer, ours])
        self._links.add(link)
        for way, source, sink in ((self._requests, reader, ours), (self._replies, theirs, writer)):
            link.tasks.append(asyncio.create_task(self._pump(link, way, source, sink)))

    async def _pump(
        self, link: _Link, way: _Way, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        """Carry one direction until its sender ends, which ends the connection once what it sent
        has passed."""
        queue = asyncio.Queue[tuple[float, bytes]](_QUEUED)
        reading = asyncio.create_task(_read(way, source, queue))
        link.tasks.append(reading)
        try:
            while (item := await queue.get())[1]:
                await asyncio.sleep(max(0.0, item[0] - self._loop.time()))
                await self._forward(way, item[1] if way.alter is None else way.alter(item[1]), sink)
            await way.is_open.wait()
            self._end(link, lambda writer: writer.close())
        except OSError:
            self._end(link, _reset)

    async def _forward(self, way: _Way, data: bytes, sink: asyncio.StreamWriter) -> None:
        if data:
            await way.is_open.wait()
            sink.write(data)
            way.passed += len(data)
            await sink.drain()

    def _cut(self) -> None:
        for link in list(self._links):
            self._end(link, _reset)

    def _end(self, link: _Link, how: Callable[[asyncio.StreamWriter], None]) -> None:
        self._links.discard(link)
        for writer in link.writers:
            how(writer)
        for task in link.tasks:
            task.cancel()


async def _read(
    way: _Way, source: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]]
) -> None:
    """Read a direction ahead, so that a delay costs time and not throughput; an empty block is its
    end."""
    data = b"more"
    while data:
        try:
            data = await source.read(_BLOCK)
        except OSError:
            data = b""
        await queue.put((asyncio.get_running_loop().time() + way.delay_s, data))


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    """Run a proxy in front of the server of `url`, which must name its port."""
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    proxy = Proxy(parts.hostname, parts.port)
    try:
        yield proxy
    finally:
        proxy.close()
