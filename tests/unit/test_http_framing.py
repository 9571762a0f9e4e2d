"""Each request has the body that its head declares, and one answer, whatever it offers and however
it comes."""

import asyncio
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import pytest

from gateway.http_limits import BoundedConnection
from pages.http.connection import BrowserConnection
from pages.main import LazyApp
from protocol.bounds import MAX_HEAD_BYTES
from tests.support.clients.raw import Answers, served
from tests.support.servers.pages_runtime import runtime

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
OFFERS = {
    "h2c": (
        b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nHTTP2-Settings:"
        b" AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\r\n"
    ),
    "websocket": b"Connection: keep-alive , \t upgrade\r\nUPGRADE: websocket\r\nempty:\r\n",
    "TLS, in two lines": (
        b"upgrade: TLS/1.0\r\nupgrade: h2c\r\nconnection: keep-alive\r\nconnection: upgrade\r\n"
    ),
    "of a proxy": b"proxy-connection: upgrade\r\nupgrade: anything\r\n",
    "nothing": b"",
}
HEAD = b"POST /first HTTP/1.1\r\nhost: x\r\n"
SIZED, CHUNKED = HEAD + b"content-length: 3\r\n", HEAD + b"transfer-encoding: chunked\r\n\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with method, path and body, or at once where the path says so."""
    body, more = b"", scope["path"] != "/early"
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        body, more = body + message["body"], message["more_body"]
    body = scope["method"].encode() + b" " + scope["path"].encode() + b" " + body
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body})


def chunked(body: bytes) -> bytes:
    return (
        b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:7], body[7:]))
        + b"0\r\n\r\n"
    )


def split_at(data: bytes, place: Callable[[bytes], list[int]]) -> list[bytes]:
    cuts = [0, *place(data), len(data)]
    return [data[a:b] for a, b in pairwise(cuts)]


SPLITS: dict[str, Callable[[bytes], list[int]]] = {
    "one segment": lambda data: [],
    "head and body": lambda data: [data.index(b"\r\n\r\n") + 4],
    "within the offer": lambda data: [data.lower().find(b"upgrade") + 3],
    "each byte": lambda data: list(range(1, len(data))),
}


@pytest.mark.parametrize("kind", [BoundedConnection, BrowserConnection], ids=["gateway", "pages"])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("offer", OFFERS)
async def test_an_offer_to_upgrade_is_ignored(kind: Any, offer: str, split: str) -> None:
    last = b"GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    for method, is_chunked in product(
        [b"POST", b"PUT", b"PATCH", b"DELETE", b"GET"], [False, True]
    ):
        framing = (
            b"transfer-encoding: chunked" if is_chunked else b"content-length: %d" % len(SMUGGLED)
        )
        first = method + b" /first HTTP/1.1\r\nhost: x\r\n" + OFFERS[offer] + framing + b"\r\n\r\n"
        first += chunked(SMUGGLED) if is_chunked else SMUGGLED
        async with served(echo, kind) as (reader, writer), asyncio.timeout(30):
            # an offer behind another, at once and alone
            for data in [*split_at(first, SPLITS[split]), first + first, last]:
                writer.write(data)
                await asyncio.sleep(0)
            answers = Answers(await reader.read()).whole
        assert answers == [(200, method + b" /first " + SMUGGLED)] * 3 + [(200, b"GET /last ")]


@pytest.mark.parametrize("version", [b"0.9", b"1.0", b"2.0"])
async def test_an_offer_of_another_version_is_ignored_too(version: bytes) -> None:
    offer = OFFERS["h2c"].replace(b"Upgrade,", b"Upgrade, close,", 1)
    async with served(echo) as (reader, writer), asyncio.timeout(10):
        writer.write(
            b"POST /first HTTP/%b\r\n" % version
            + offer
            + b"content-length: %d\r\n\r\n" % len(SMUGGLED)
            + SMUGGLED
            + SMUGGLED
        )
        assert Answers(await reader.read()).whole == [(200, b"POST /first " + SMUGGLED)]


@pytest.mark.parametrize(
    "sent",
    [
        b"CONNECT /first HTTP/1.1\r\nhost: x\r\n\r\n",
        b"CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        SIZED + b"content-length: 3\r\n\r\nabc",
        SIZED + b"content-length: 4\r\n\r\nabc",
        SIZED + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        *(
            HEAD + b"content-length:%b\r\n\r\nabc" % size
            for size in (b"+3", b"-3", b"3, 3", b"", b"0x3", b"3 3", b"9" * 20, b"3\x0b")
        ),
        *(
            HEAD + b"transfer-encoding:%b\r\n\r\n0\r\n\r\n" % te
            for te in (
                b"identity",
                b"chunked, identity",
                b"chunked, chunked",
                b"xchunked",
                b"\x0bchunked",
                b"chunked;q=1",
                b"",
                b"chunked\r\n foo",
            )
        ),
        *(
            CHUNKED + body
            for body in (
                b"3 \r\nabc\r\n",
                b"0x3\r\nabc\r\n",
                b"+3\r\nabc\r\n",
                b"-1\r\n",
                b"3\nabc\r\n",
                b"3\r\nabcd\r\n",
                b"f" * 17,
            )
        ),
        HEAD + b"connection: x\r\n upgrade\r\nupgrade: h2c\r\n\r\n",
        SIZED.replace(b"content-length:", b"content-length :") + b"\r\nabc",
        SIZED.replace(b"\r\n", b"\n") + b"\nabc",
        HEAD + b"a: b\rcontent-length: 3\r\n\r\n",
        HEAD + b"a: \0\r\n\r\n",
    ],
)
async def test_a_request_without_a_clear_end_has_one_refusal(sent: bytes) -> None:
    async with served(echo) as (reader, writer), asyncio.timeout(10):
        writer.write(sent + SMUGGLED)
        data = await reader.read()
    ((status, body),) = Answers(data).whole
    assert (
        status in (400, 405)
        and b"connection: close" in data
        and b"smuggled" not in data
        and b'"message":' in body
    )


@pytest.mark.parametrize(
    "framing",
    [
        b"content-length: 3\r\ntransfer-encoding: chunked\r\n",
        b"expect: 100-continue\r\nCONTENT-LENGTH: 3\r\n",
    ],
)
async def test_pages_refuse_what_a_proxy_may_read_in_two_ways(framing: bytes) -> None:
    app = LazyApp(runtime())
    async with served(app, BrowserConnection) as (reader, writer), asyncio.timeout(10):
        writer.write(b"POST /debug/login HTTP/1.1\r\nhost: x\r\n" + framing + b"\r\n" + SMUGGLED)
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1
    await app.close()


@pytest.mark.parametrize(
    ("path", "body", "stays"),
    [(b"early", b"", False), (b"early", b"abc", True), (b"first", b"abc", True)],
)
async def test_who_was_answered_before_it_sent_a_body_cannot_go_on_with_the_next_request(
    path: bytes, body: bytes, stays: bool
) -> None:
    """Some proxies then send the next client's request, others the body."""
    async with served(echo) as (reader, writer), asyncio.timeout(10):
        writer.write(
            b"POST /%b HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
            % path
            + body
        )
        head = await reader.readuntil(b"POST /" + path)
        assert (b"connection: close" in head) is not stays
        assert stays or await reader.read() == b" "


async def test_trailers_are_no_headers() -> None:
    found = list[bytes]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await echo(scope, receive, send)
        found.extend(name for name, _ in scope["headers"])

    async with served(app) as (reader, writer), asyncio.timeout(10):
        writer.write(CHUNKED + b"3\r\nabc\r\n0\r\nauthorization: Bearer other\r\n\r\n")
        writer.write(b"GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert [body for _, body in Answers(await reader.read()).whole] == [
            b"POST /first abc",
            b"GET /last ",
        ]
    assert found == [b"host", b"transfer-encoding", b"host", b"connection"]


@pytest.mark.parametrize("begun", [b"3\r\nabc\r\n0\r\na: ", b"3;a=", b"3\r\nabc\r\n0\r\n\r\n"])
async def test_what_is_no_body_has_a_bound_behind_a_head_too(begun: bytes) -> None:
    async with served(echo) as (reader, writer), asyncio.timeout(10):
        writer.write(CHUNKED + begun)
        piece = b"\r\n" * 8192 if begun.endswith(b"\r\n") else b"x" * 16384
        answer = asyncio.create_task(reader.read())
        sent = 0
        while not answer.done() and sent < 10 * MAX_HEAD_BYTES:
            writer.write(piece)
            sent += len(piece)
            await asyncio.sleep(0.001)
        assert b"head_too_large" in await answer


@pytest.mark.parametrize(
    "behind",
    [
        b"nonsense\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200,
    ],
)
async def test_a_refusal_is_never_written_into_an_answer(behind: bytes) -> None:
    inside = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
        await inside.wait()

    async with served(app) as (reader, writer), asyncio.timeout(10):
        writer.write(b"GET /first HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"part\r\n")
        writer.write(behind)
        assert await reader.read() == b""
        inside.set()
