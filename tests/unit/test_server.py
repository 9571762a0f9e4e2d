"""The gateway's server: it listens again, whatever kept it from that."""

import asyncio
import socket
from typing import Any

import pytest
import uvicorn

from gateway.server import Server
from tests.support.waiting import wait_until


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer."""
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"ok"})


async def test_a_server_that_cannot_listen_again_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound = socket.create_server(("127.0.0.1", 0))
    server = Server(uvicorn.Config(app, lifespan="off", log_config=None), lambda connections: False)
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    await wait_until(lambda: server.started)
    loop, tries = asyncio.get_running_loop(), list[object]()
    create = loop.create_server

    async def refuse_twice(*args: Any, **kwargs: Any) -> Any:
        tries.append(kwargs["sock"])
        if len(tries) <= 2:
            kwargs["sock"].close()
            raise OSError(24, "Too many open files")
        return await create(*args, **kwargs)

    monkeypatch.setattr(loop, "create_server", refuse_twice)
    port = bound.getsockname()[1]
    server.pause()
    await wait_until(lambda: server.servers)
    assert len(tries) == 3
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert (await reader.read()).endswith(b"ok")
    writer.close()
    server.should_exit = True
    await serving
    bound.close()
