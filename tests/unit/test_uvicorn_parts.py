"""What the gateway uses of uvicorn beside its documented interface is there: a version without it
must fail here, not under load."""

import ast
import asyncio
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

ROOT = Path(__file__).resolve().parents[2]


def used(module: str, classes: tuple[str, ...], *names: str) -> set[str]:
    """Attributes that some classes read of `names` (`self`, or `cycle` also as `self.cycle`) and do
    not set or define themselves."""
    found: set[str] = set()
    for one in ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8"))):
        if not isinstance(one, ast.ClassDef) or one.name not in classes:
            continue
        own: set[str] = set()
        reads: set[str] = set()
        for node in ast.walk(one):
            match node:
                case (
                    ast.FunctionDef(name=name)
                    | ast.AsyncFunctionDef(name=name)
                    | ast.Assign(targets=[ast.Name(id=name)])
                ):
                    own.add(name)
                    if name == "__init__":
                        own |= {
                            n.attr
                            for n in ast.walk(node)
                            if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
                        }
                case ast.Attribute(value=ast.Name(id=of) | ast.Attribute(attr=of), attr=name) if (
                    of in names
                ):
                    reads.add(name)
                case ast.Call(
                    func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name)
                ) if "self" in names:
                    # what is overridden and called must be there
                    found.add(name)
        found |= reads - own
    return found - {"__init__"}


async def serving() -> tuple[HttpToolsProtocol, Any]:
    """A connection of uvicorn's own, while it answers a request, and the cycle of that."""
    inside, go_on = asyncio.Event(), asyncio.Event()
    made: list[HttpToolsProtocol] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        inside.set()
        await go_on.wait()

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()

    def make() -> HttpToolsProtocol:
        made.append(HttpToolsProtocol(config=config, server_state=ServerState(), app_state={}))
        return made[0]

    async with await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await inside.wait()
        go_on.set()
        writer.close()
    return made[0], made[0].cycle


async def test_a_connection_has_what_the_gateway_reads_of_it() -> None:
    connection, cycle = await serving()
    limits = "gateway/http_limits.py"
    of_connection = used(limits, ("BoundedConnection",), "self")
    assert (
        len(of_connection) > 15
        and {name for name in of_connection if not hasattr(connection, name)} == set()
    )
    of_cycle = used(limits, ("BoundedConnection", "Link"), "cycle", "_cycle") | used(
        limits, ("_OldCycle",), "self"
    )
    assert len(of_cycle) > 8 and {name for name in of_cycle if not hasattr(cycle, name)} == set()


def test_a_server_has_what_the_gateway_reads_of_it() -> None:
    server: Any = uvicorn.Server(uvicorn.Config(lambda: None, lifespan="off", log_config=None))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    assert hasattr(server, "capture_signals")
    # set when it listens
    server.servers = []
    read = used("gateway/server.py", ("Server",), "self")
    assert {"server_state", "should_exit", "startup"} <= read and {
        name for name in read if not hasattr(server, name)
    } == set()
    assert (
        server.server_state.connections == set()
        and server.lifespan.state == {}
        and server.config.http_protocol_class is not None
    )
