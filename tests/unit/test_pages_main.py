"""The process of the pages: what it serves where, with pages switched off or on a port of their
own; and whose keys its API knows."""

import contextlib
import random
import socket
from typing import Any

import pytest

from pages.audit.keyed import KeyedAudit
from pages.main import LazyApp, bind, bind_for_browsers
from settings.config import Config, Key
from tests.support.servers.pages_runtime import runtime


async def ask(
    app: Any, path: str, *headers: tuple[bytes, bytes], host: bytes = b"gateway"
) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", host), *headers],
        "client": None,
        "server": None,
        "scheme": "http",
        "root_path": "",
    }
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])


async def test_pages_that_are_off_say_so_and_the_record_is_there_for_programs() -> None:
    app = LazyApp(runtime(enabled=False))
    for path in ("/debug", "/debug/login"):
        status, body = await ask(app.of_gateways, path)
        assert status == 404 and b"pages.enabled" in body
    assert (await ask(app.of_gateways, "/health"))[0] == 200
    status, body = await ask(app.of_gateways, "/audit/calls")
    assert status == 401 and b"invalid_api_key" in body
    await app.close()


async def test_pages_that_listen_alone_are_there_alone_and_without_the_record_for_programs() -> (
    None
):
    app = LazyApp(runtime(on_gateway=False, port=1))
    assert (await ask(app.of_gateways, "/debug"))[0] == 404
    assert (await ask(app.of_gateways, "/audit/calls"))[0] == 401
    status, body = await ask(app, "/audit/calls")
    assert status in (404, 421) and b"invalid_api_key" not in body
    await app.close()


async def test_pages_that_listen_alone_answer_under_their_own_address_and_not_under_the_gateways() -> (
    None
):
    settings = runtime(on_gateway=False, host="10.0.0.5", port=8081).model_copy(
        update={"host": "10.0.0.9"}
    )
    app, shared = LazyApp(settings), LazyApp(settings.model_copy(update={"config": Config()}))
    asked = {
        (at, host): (await ask(of, "/debug/nothing", host=host))[0]
        for at, of in (("alone", app), ("gateway", shared.of_gateways))
        for host in (b"10.0.0.5:8081", b"10.0.0.9")
    }
    assert [where for where, status in asked.items() if status == 421] == [
        ("alone", b"10.0.0.9"),
        ("gateway", b"10.0.0.5:8081"),
    ]
    await app.close()
    await shared.close()


def port_of_no_connection() -> int:
    """A port that is free on every address, and that no connection of another test takes: those
    come from 32,768 up."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port


def test_gateways_have_their_own_socket_and_browsers_where_they_come_without_one() -> None:
    port, other = port_of_no_connection(), port_of_no_connection()
    where = f"http://127.0.0.1:{port}"
    with bind(runtime(where)) as bound:
        assert bound.getsockname()[1] == port
    assert bind_for_browsers(runtime(where)) is None
    assert bind_for_browsers(runtime(where, on_gateway=False, enabled=False, port=other)) is None
    # one address cannot be listened on twice
    assert bind_for_browsers(runtime(where, on_gateway=False, port=port)) is None
    both = runtime(where, on_gateway=False, host="0.0.0.0", port=port)
    assert bind_for_browsers(both) is None
    with bind(both) as bound:
        assert bound.getsockname() == ("0.0.0.0", port)
    for given in ({"port": other}, {"port": port, "host": "127.0.0.2"}):
        found = bind_for_browsers(runtime(where, on_gateway=False, **given))
        assert found is not None
        with found:
            assert found.getsockname()[1] == given["port"]


@pytest.mark.parametrize(
    ("sent", "status", "says"),
    [
        (b"", 401, b"no API key was sent"),
        (b"a", 503, b"audit_unavailable"),
        (b"c", 403, b"wrong_role"),
        # it may be one of those that cannot be read
        (b"other", 503, b"keys cannot be read now"),
    ],
)
async def test_without_postgres_nobody_is_told_that_a_key_is_none(
    sent: bytes, status: int, says: bytes
) -> None:
    keys = (
        Key(
            name="a",
            sha256="ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
            roles=("auditor",),
        ),
        Key(name="c", sha256="2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6"),
    )
    app = KeyedAudit(runtime(keys=keys))
    found, body = await ask(app, "/audit/calls", (b"x-api-key", sent))
    assert (found, says in body) == (status, True), body
    await app.close()
