"""Pages that listen for browsers themselves: whoever holds connections without a request keeps
nobody out."""

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway.http_limits import BoundedConnection
from pages.http import connection
from pages.http.connection import MOST_CONNECTIONS, BrowserConnection
from pages.http.replies import read_form
from protocol.errors import PipelineError

GET = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"
POST = b"POST /debug/login HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\n"


MUCH = GET.replace(b"/", b"/much", 1) * 20


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nho", GET, POST, POST + b"key", MUCH])
@pytest.mark.parametrize("addresses", [1, 8, MOST_CONNECTIONS])
async def test_connections_without_a_request_make_room(
    sent: bytes, addresses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STUCK_S", 0.0)
    holds = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            try:
                assert await read_form(receive) == {"key": "1"}
            except PipelineError:
                # it was ended
                return
        elif scope["path"] == "/stream":
            await holds.wait()
        body = b"ok" * (2**20 if scope["path"] == "/much" else 1)
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"%d" % len(body))],
            }
        )
        await send({"type": "http.response.body", "body": body})

    state, config = (
        ServerState(),
        uvicorn.Config(
            app, lifespan="off", log_config=None, limit_concurrency=MOST_CONNECTIONS + 1
        ),
    )
    config.load()
    loop, writers = asyncio.get_running_loop(), list[asyncio.StreamWriter]()

    async def connect(first: bytes, address: str) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        writers.append(writer)
        writer.write(first)
        return reader

    server = await loop.create_server(
        lambda: BrowserConnection(config=config, server_state=state, app_state={}),
        "127.0.0.1",
        0,
        backlog=512,
    )
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.timeout(20):
        stream = await connect(GET.replace(b"/", b"/stream", 1), "127.0.0.1")
        slow = [
            await connect(sent, f"127.0.1.{number % addresses + 1}")
            for number in range(MOST_CONNECTIONS + 20)
        ]
        while len(state.connections) < MOST_CONNECTIONS or (
            sent == MUCH and len(state.tasks) < MOST_CONNECTIONS
        ):
            await asyncio.sleep(0)
        for address in ("127.0.1.1", "127.0.9.9"):
            async with asyncio.timeout(1):
                assert await (await connect(GET, address)).readline() == b"HTTP/1.1 200 OK\r\n"
                form = await connect(POST, address)
                writers[-1].write(b"key=1")
                assert await form.readline() == b"HTTP/1.1 200 OK\r\n"
        assert len(state.connections) <= MOST_CONNECTIONS and not stream.at_eof()
        if sent == GET:
            assert (await slow[0].read()).startswith(b"HTTP/1.1 200 OK")
        holds.set()
        assert await stream.readline() == b"HTTP/1.1 200 OK\r\n"
        for writer in writers:
            writer.close()
        while state.tasks:
            await asyncio.wait(state.tasks)


@pytest.mark.parametrize("http", [BoundedConnection, BrowserConnection])
@pytest.mark.parametrize(
    "head",
    [
        "content-length: 5\r\ncontent-length: 5",
        "content-length: 5, 5",
        "content-length: 5\r\nx-a: b\r\nContent-Length: 5",
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "x-a: b\r\n c\r\ncontent-length: 5",
        "content-length:\r\n\t5",
    ],
)
async def test_a_head_whose_body_two_readers_could_end_in_two_places_is_refused(
    http: type[asyncio.Protocol], head: str
) -> None:
    """By the gateway and by the pages alike, before anything is asked."""
    asked = list[Any]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope)

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    made: Any = http
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: made(config=config, server_state=ServerState(), app_state={}), "127.0.0.1", 0
    )
    async with server, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(f"POST / HTTP/1.1\r\nhost: h\r\n{head}\r\n\r\nkey=1".encode())
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert asked == []
