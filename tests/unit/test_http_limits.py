"""HTTP limits, and how answers are written: a head with what follows or alone when nothing does;
chunks where a body may follow."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway import http_limits
from gateway.http_limits import LINK, Crowd, Link, _WithHead, bounded_connection
from protocol.bounds import HEAD_S
from tests.support.clients.raw import served
from tests.support.json_values import Json


class Socket:
    """A transport that only remembers."""

    def __init__(self) -> None:
        self.writes = list[bytes]()
        self.is_closed = False

    def write(self, data: bytes) -> None:
        """Remember."""
        assert not self.is_closed
        self.writes.append(data)

    def close(self) -> None:
        """Remember."""
        self.is_closed = True

    def is_closing(self) -> bool:
        """Was it closed?"""
        return self.is_closed


def answer() -> tuple[Socket, _WithHead]:
    socket = Socket()
    return socket, _WithHead(socket, asyncio.get_running_loop())  # type: ignore[arg-type]


async def test_a_head_goes_out_with_what_follows_it() -> None:
    socket, out = answer()
    out.write(b"head ")
    assert not socket.writes
    out.write(b"body")
    out.write(b"more")
    await asyncio.sleep(0)
    assert socket.writes == [b"head body", b"more"]


async def test_a_head_alone_waits_for_no_more_than_this_turn() -> None:
    socket, out = answer()
    out.write(b"head")
    await asyncio.sleep(0)
    assert socket.writes == [b"head"]
    out.write(b"body")
    assert socket.writes == [b"head", b"body"]


async def test_closing_sends_a_head_first() -> None:
    socket, out = answer()
    out.write(b"head")
    assert not out.is_closing()
    out.close()
    await asyncio.sleep(0)
    assert socket.writes == [b"head"] and out.is_closing()


@pytest.mark.parametrize(
    ("change", "writes"),
    [
        ({}, True),
        ({"write_paused": True}, False),
        ({"disconnected": True}, False),
        ({"response_complete": True}, False),
        ({"response_started": False}, False),
        ({"chunked_encoding": False}, False),
        ({"chunked_encoding": None}, False),
    ],
)
def test_a_chunk_is_written_only_where_send_would_do_no_more(change: Json, writes: bool) -> None:
    state = {
        "disconnected": False,
        "response_complete": False,
        "response_started": True,
        "chunked_encoding": True,
        "write_paused": False,
    }
    state |= change
    socket = Socket()
    connection: Any = SimpleNamespace(
        cycle=SimpleNamespace(transport=socket, **state), flow=SimpleNamespace(**state)
    )
    assert Link(connection).write(b"x" * 17) is writes
    assert socket.writes == ([b"11\r\n" + b"x" * 17 + b"\r\n"] if writes else [])


async def whole_body(link: Link, receive: Callable[[], Awaitable[Any]]) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    assert link.has_body()
    return body


@pytest.mark.parametrize("size", [0, 10, 200_000, 1_000_000])
async def test_a_client_that_goes_is_noticed_whatever_it_sent_before(size: int) -> None:
    """Also where its body left the socket paused."""
    waits, gone = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        link: Link = scope["extensions"][LINK]["link"]
        assert len(await whole_body(link, receive)) == size
        link.when_lost(gone.set)
        waits.set()
        await gone.wait()

    async with served(app) as (_, writer), asyncio.timeout(10):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size)
        writer.write(b"x" * size)
        await waits.wait()
        assert not gone.is_set()
        writer.close()
        await gone.wait()


@pytest.mark.parametrize("answer", ["none yet", "under way"])
@pytest.mark.parametrize("size", [0, 4_000_000])
async def test_a_client_that_goes_is_noticed_though_requests_wait(answer: str, size: int) -> None:
    """What waits leaves the socket paused, and who does not read sees no end; nor does the kernel,
    where its buffers are full."""
    waits, gone, begun = asyncio.Event(), asyncio.Event(), list[str]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.append(scope["path"])
        link: Link = scope["extensions"][LINK]["link"]
        await whole_body(link, receive)
        link.when_lost(gone.set)
        if answer == "under way":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"part", "more_body": True})
        waits.set()
        while not gone.is_set():
            await asyncio.sleep(0.1)
            if size and answer == "under way":
                link.write(b": keepalive\n\n")

    async with served(app) as (reader, writer), asyncio.timeout(10):
        writer.write(b"POST /1 HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        await waits.wait()
        if answer == "under way":
            await reader.readuntil(b"part\r\n")
        for name in b"23":
            writer.write(
                b"POST /%c HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b"
                % (name, size, b"x" * size)
            )
            await asyncio.sleep(0.05)
        assert not gone.is_set()
        writer.transport.abort()
        await gone.wait()
    assert begun == ["/1"]


async def test_a_client_that_sends_no_more_gets_the_answers_to_what_waits() -> None:
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await whole_body(scope["extensions"][LINK]["link"], receive)
        await go_on.wait()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
        )
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    async with served(app) as (reader, writer), asyncio.timeout(10):
        for name in b"123":
            writer.write(b"POST /%c HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n" % name)
            await asyncio.sleep(0.02)
        writer.write_eof()
        # the client is asked once whether it is there
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await asyncio.sleep(0.25)
        go_on.set()
        answers = await reader.read()
    assert answers.startswith(b"HTTP/1.1 200") and [
        answers.count(path) for path in (b"\n/1", b"\n/2", b"\n/3")
    ] == [1, 1, 1]


async def test_what_a_client_sends_behind_a_request_that_waits_stays_in_its_socket() -> None:
    """Neither kept in memory nor read to look for the end."""
    waits, over = asyncio.Event(), asyncio.Event()
    links = list[Link]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        links.append(scope["extensions"][LINK]["link"])
        await whole_body(links[0], receive)
        links[0].when_lost(over.set)
        waits.set()
        await over.wait()

    async with served(app) as (_, writer), asyncio.timeout(10):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        await waits.wait()
        writer.write(
            b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 30000000\r\n\r\n" + b"x" * 30_000_000
        )
        await asyncio.sleep(0.3)
        assert len(links[0]._connection.cycle.body) < 1_000_000
        writer.transport.abort()
        await over.wait()


async def test_a_client_that_went_before_is_said_at_once_and_one_that_has_its_answer_not_at_all() -> (
    None
):
    links, told, go_on, over = list[Link](), list[str](), asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        link: Link = scope["extensions"][LINK]["link"]
        await whole_body(link, receive)
        links.append(link)
        if len(links) == 1:
            link.when_lost(lambda: told.append("after its answer"))
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-length", b"2")],
                }
            )
            await send({"type": "http.response.body", "body": b"ok"})
            return
        await go_on.wait()
        link.when_lost(lambda: told.append("before"))
        over.set()

    async with served(app) as (reader, writer), asyncio.timeout(10):
        for _ in range(2):
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        await reader.readuntil(b"ok")
        while len(links) < 2:
            await asyncio.sleep(0)
        writer.close()
        while not links[1]._cycle.disconnected:
            await asyncio.sleep(0)
        assert told == []
        go_on.set()
        await over.wait()
        assert told == ["before"]


@pytest.mark.parametrize("version", [b"0.9", b"1.0", b"2.0"])
async def test_an_answer_without_a_length_ends_with_its_connection_whatever_the_client_asks(
    version: bytes,
) -> None:
    """Where a parser takes a version that has no chunks, the next answer would be read as the rest
    of this one."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for more in (True, False):
            await send({"type": "http.response.body", "body": b"part ", "more_body": more})

    async with served(app) as (reader, writer), asyncio.timeout(5):
        writer.write(b"GET / HTTP/%b\r\nhost: x\r\nconnection: keep-alive\r\n\r\n" % version * 2)
        head, body = (await reader.read()).split(b"\r\n\r\n", 1)
    assert (
        b"connection: close" in head and b"transfer-encoding" not in head and body == b"part part "
    )


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: "])
async def test_a_head_has_a_time(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("it is no request")

    assert HEAD_S <= 30
    monkeypatch.setattr(http_limits, "HEAD_S", 0.1)
    async with served(app) as (reader, writer), asyncio.timeout(5):
        writer.write(sent)
        assert await reader.read() == b""


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"\r\n"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n", b"x"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n", b"once"),
    ],
)
async def test_who_was_answered_and_sends_on_has_a_time_too(
    monkeypatch: pytest.MonkeyPatch, first: bytes, then: bytes
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
        )
        await send({"type": "http.response.body", "body": b"ok"})

    monkeypatch.setattr(http_limits, "HEAD_S", 0.1)
    async with served(app) as (reader, writer), asyncio.timeout(4):
        writer.write(first)
        await reader.readuntil(b"ok")
        writer.write(then)
        while not (reader.at_eof() or reader.exception()):
            if then != b"once":
                writer.write(then)
            await asyncio.sleep(0.01)


async def test_a_next_request_ends_the_time_of_what_came_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
        )
        if scope["path"] == "/slow":
            await answered.wait()
        await send({"type": "http.response.body", "body": b"ok"})

    monkeypatch.setattr(http_limits, "HEAD_S", 0.1)
    async with served(app) as (reader, writer), asyncio.timeout(4):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"ok")
        writer.write(b"\r\n")
        writer.write(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        asyncio.get_running_loop().call_later(0.3, answered.set)
        assert await reader.readexactly(2) == b"ok"


async def test_slow_heads_make_room_where_there_are_too_many_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert not scope["extensions"][LINK]["link"].is_crowded()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
        )
        await send({"type": "http.response.body", "body": b"ok"})

    config, state = uvicorn.Config(app, lifespan="off", log_config=None), ServerState()
    config.load()
    kind = bounded_connection(60, Crowd(lambda connections: connections > 5))
    monkeypatch.setattr(http_limits, "_MANY_HEAD_S", 0.05)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: kind(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server, asyncio.timeout(5):
        place = server.sockets[0].getsockname()
        slow = [await asyncio.open_connection(*place) for _ in range(5)]
        for (_, writer), sent in zip(
            slow, (b"", b"GET", b"GET / HTTP/1.1\r\nhost: ", b"\r\n", b"POST"), strict=True
        ):
            writer.write(sent)
        began = loop.time()
        while loop.time() < began + 0.1:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection(*place)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"ok")
        for _, one in (*slow, (reader, writer)):
            one.close()
