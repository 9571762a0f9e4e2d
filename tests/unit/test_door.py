"""The door to the pages: what it passes on, what it keeps back, and what it does when nobody is
behind it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.record import pages_process
from gateway.record import pages_proxy as doors
from gateway.record.pages_proxy import MAX_IN_PIECES, MAX_STREAMS, PagesRelay, is_page
from pages.http.request_checks import NOWHERE
from protocol.bounds import MAX_RELAYED_FORM_BYTES, MAX_RELAYS
from settings.config import Config
from settings.pages import Pages
from settings.runtime import Runtime
from streams.logins import LOGIN_HEADER, login_of

OK = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\nkeep-alive: 5\r\nx-own: 1\r\n"
    b"set-cookie: a=1\r\nset-cookie: b=2\r\ncontent-security-policy: own\r\n\r\nhi"
)


class Behind:
    """A process behind the door that answers as it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked = b""
        self.raw = OK
        self.holds = asyncio.Event()
        self.stays = False
        self.open = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            self.asked = await reader.readuntil(b"\r\n\r\n")
            writer.write(self.raw)
            await writer.drain()
            if self.stays or not self.raw:
                await self.holds.wait()
        except (ConnectionError, asyncio.CancelledError):
            # whoever asked left, or the test is over
            pass
        finally:
            self.open -= 1
            writer.close()


@pytest.fixture
async def behind(socket_folder: Path) -> AsyncIterator[Behind]:
    made = Behind()
    server = await asyncio.start_unix_server(made, socket_folder / "pages.sock")
    yield made
    made.holds.set()
    server.close()
    await server.wait_closed()


def door(folder: Path, **pages: Any) -> PagesRelay:
    config = Config(pages=Pages(**pages))
    return PagesRelay(
        Runtime(
            config=config, redis_url="", database_url="", pages_url=f"unix:{folder / 'pages.sock'}"
        )
    )


def cookie_of(name: str) -> bytes:
    return b"sluice_pages=" + name.replace(".", "-").encode().ljust(43, b"x")


def reader(of: PagesRelay, address: str) -> tuple[bytes, bytes]:
    """The cookie of somebody who is logged in, with a key that is named like the address."""
    cookie = cookie_of(address)
    of._known.remember(login_of([cookie]), address)
    return b"cookie", cookie


async def ask(
    of: PagesRelay,
    method: str = "GET",
    *headers: tuple[bytes, bytes],
    body: bytes = b"",
    leaves: bool = False,
    address: str = "10.1.2.3",
    is_stranger: bool = False,
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """What a client gets: status, headers, body."""
    sent: list[Any] = []
    pieces = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if pieces:
            return pieces.pop(0)
        if not leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "raw_path": b"/debug/calls/%2e%2e",
        "path": "/debug",
        "query_string": b"a=%00",
        "headers": [(b"host", b"h"), *headers, *([] if is_stranger else [reader(of, address)])],
        "client": (address, 5),
    }
    await of(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return (sent[0]["status"], sent[0]["headers"], body) if sent else (0, [], b"")


async def test_it_passes_on_bytes_and_drops_what_is_of_the_connection(
    behind: Behind, socket_folder: Path
) -> None:
    status, headers, body = await ask(door(socket_folder))
    assert (status, body) == (200, b"hi")
    own = [
        (b"content-length", b"2"),
        (b"x-own", b"1"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
    ]
    assert headers == [*own, (b"content-security-policy", b"own")]
    assert behind.asked.startswith(b"GET /debug/calls/%2e%2e?a=%00 HTTP/1.1\r\nhost: h\r\n")


async def test_keys_stay_outside_and_no_client_says_where_it_is(
    behind: Behind, socket_folder: Path
) -> None:
    kept = [
        (b"authorization", b"Bearer k"),
        (b"x-api-key", b"k"),
        (b"x-forwarded-for", b"1.1.1.1"),
        (b"x-sluice-client-address", b"9.9.9.9"),
    ]
    kept += [
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"99"),
        (b"connection", b"upgrade"),
        (b"upgrade", b"websocket"),
    ]
    await ask(door(socket_folder), "GET", *kept, (b"cookie", b"c=1"), (b"sec-fetch-site", b"none"))
    lines = behind.asked.split(b"\r\n")
    assert (
        b"x-sluice-client-address: 10.1.2.3" in lines
        and b"cookie: c=1" in lines
        and b"sec-fetch-site: none" in lines
    )
    assert b"connection: close" in lines and b"content-length: 0" in lines
    assert not [
        line
        for line in lines
        if b"9.9.9.9" in line or line[-1:] == b"k" or b"upgrade" in line or b"1.1.1.1" in line
    ]


@pytest.fixture
def soon_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is not there is waited for for a short while only."""
    monkeypatch.setattr(pages_process, "CONNECT_S", 3 * pages_process.AGAIN_S)


@pytest.mark.usefixtures("soon_away")
async def test_without_a_process_behind_it_says_so(socket_folder: Path) -> None:
    status, headers, body = await ask(door(socket_folder))
    assert status == 503 and b"sluice pages" in body and (b"retry-after", b"2") in headers
    assert dict(headers)[b"content-security-policy"].startswith(b"default-src 'none'")
    # who leaves meanwhile is told nothing, and makes room at once
    assert await ask(door(socket_folder), leaves=True) == (0, [], b"")


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
    ],
)
async def test_what_is_no_answer_is_none(behind: Behind, socket_folder: Path, raw: bytes) -> None:
    behind.raw = raw
    assert (await ask(door(socket_folder)))[0] == 503


async def test_an_answer_that_is_cut_off_is_not_completed(
    behind: Behind, socket_folder: Path
) -> None:
    behind.raw = b"HTTP/1.1 200 OK\r\ncontent-length: 3000000\r\n\r\nhalf"
    status, _, body = await ask(door(socket_folder))
    assert (status, body) == (200, b"half")
    # a short one is read whole before it is begun
    behind.raw = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"
    assert (await ask(door(socket_folder)))[0] == 503


async def test_head_has_no_body_and_other_methods_are_refused(
    behind: Behind, socket_folder: Path
) -> None:
    behind.raw = OK.partition(b"hi")[0]
    assert (await ask(door(socket_folder), "HEAD"))[2] == b""
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert (await ask(door(socket_folder), method))[0] == 405


async def test_a_form_has_an_end(behind: Behind, socket_folder: Path) -> None:
    assert (await ask(door(socket_folder), "POST", body=b"x" * MAX_RELAYED_FORM_BYTES))[0] == 200
    assert (await ask(door(socket_folder), "POST", body=b"x" * (MAX_RELAYED_FORM_BYTES + 1)))[
        0
    ] == 413
    # before any of it is here
    assert (await ask(door(socket_folder), "POST", (b"content-length", b"9" * 18)))[0] == 413


async def test_so_many_at_once_and_no_more_and_who_leaves_makes_room(
    behind: Behind, socket_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "TURN_S", 0.01)
    behind.raw = b""
    of = door(socket_folder)
    waiting = [asyncio.create_task(ask(of)) for _ in range(MAX_RELAYS)]
    while behind.open < MAX_RELAYS:
        await asyncio.sleep(0)
    status, headers, _ = await ask(of)
    assert status == 503 and (b"retry-after", b"1") in headers
    waiting.pop().cancel()
    while not of._readers.turns.free:
        await asyncio.sleep(0.001)
    # who went away is not waited for, though nothing comes
    await ask(of, leaves=True)
    behind.holds.set()
    await asyncio.gather(*waiting)


async def test_whoever_waits_for_a_relay_gets_the_next_one_whatever_others_ask_for(
    behind: Behind, socket_folder: Path
) -> None:
    behind.raw = b""
    of = door(socket_folder)
    many = [
        asyncio.create_task(ask(of, address=f"10.0.0.{number % 4}"))
        for number in range(MAX_RELAYS + doors.MAX_WAITING)
    ]
    while behind.open < MAX_RELAYS:
        await asyncio.sleep(0)
    one_more = asyncio.create_task(ask(of, "POST", body=b"key=k", address="10.9.9.9"))
    await asyncio.sleep(0)
    assert not one_more.done()
    behind.raw = OK
    # as many as there are addresses, and one
    for one in many[:5]:
        one.cancel()
    assert (await one_more)[0] == 200
    behind.holds.set()
    assert {status for status, *_ in await asyncio.gather(*many[5:])} <= {200, 503}
    assert of._readers.turns.free == MAX_RELAYS and not of._readers.places.used


async def test_strangers_take_no_relay_and_no_waiting_place_of_who_is_logged_in(
    behind: Behind, socket_folder: Path
) -> None:
    behind.raw = b""
    of = door(socket_folder)
    forged = (LOGIN_HEADER, b"dev")
    # from the reader's own address, and from many
    addresses = ["10.1.2.3", *(f"10.0.0.{number % 99}" for number in range(doors.MAX_WAITING))]
    cookies = [cookie_of(f"random{number}") for number in range(len(addresses))]
    asked = zip(addresses, cookies, strict=True)
    many = [
        asyncio.create_task(
            ask(of, "GET", forged, (b"cookie", cookie), address=one, is_stranger=True)
        )
        for one, cookie in asked
    ]
    while behind.open < doors.MAX_OF_STRANGERS or not of._strangers.places.used:
        await asyncio.sleep(0)
    assert behind.open == doors.MAX_OF_STRANGERS and LOGIN_HEADER not in behind.asked
    assert (of._readers.turns.free, of._readers.places.used) == (MAX_RELAYS, 0)
    behind.raw = OK
    assert (await ask(of))[0] == 200
    for one in many:
        one.cancel()
    await asyncio.gather(*many, return_exceptions=True)
    assert (of._strangers.turns.free, of._strangers.places.used) == (doors.MAX_OF_STRANGERS, 0)


async def test_only_the_pages_say_who_is_logged_in_and_no_client_hears_it(
    behind: Behind, socket_folder: Path
) -> None:
    of, old, new = door(socket_folder), cookie_of("old"), cookie_of("new")

    async def says(raw: bytes, *cookies: bytes) -> tuple[str, str]:
        behind.raw = OK.replace(b"x-own: 1", raw)
        _, headers, _ = await ask(
            of, "GET", *((b"cookie", one) for one in cookies), is_stranger=True
        )
        assert LOGIN_HEADER not in dict(headers)
        return of._known.key_of(login_of([old])), of._known.key_of(login_of([new]))

    assert await says(b"x-own: 1", old) == ("", "")
    assert await says(b"X-Sluice-Login: dev", old) == ("dev", "")
    # a file says nothing of a login
    assert await says(b"x-own: 1", old) == ("dev", "")
    # which of two it is nobody knows, and without one it is nobody's
    assert await says(b"x-sluice-login: dev", old, new) == ("dev", "")
    assert await says(b"x-sluice-login: dev") == ("dev", "") and not of._known.key_of("")
    assert await says(b"x-sluice-login: boss\r\nset-cookie: %b; Path=/debug" % new, old) == (
        "dev",
        "boss",
    )
    assert await says(b"x-sluice-login:", old) == ("", "boss")


async def test_streams_leave_room_for_pages(behind: Behind, socket_folder: Path) -> None:
    kind = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding:"
        b" chunked\r\n\r\n1\r\nx\r\n"
    )
    behind.raw, behind.stays = kind, True
    of = door(socket_folder)
    waiting = [
        asyncio.create_task(ask(of, address=f"10.0.0.{number}")) for number in range(MAX_STREAMS)
    ]
    while of._process.streams.used < MAX_STREAMS:
        await asyncio.sleep(0)
    assert (await ask(of))[0] == 503
    # a download
    behind.raw = kind.replace(b"text/event-stream", b"text/plain")
    waiting.append(asyncio.create_task(ask(of)))
    while of._process.in_pieces.used <= MAX_STREAMS:
        await asyncio.sleep(0)
    behind.raw, behind.stays = OK, False
    # who asks for a stream and gets none takes no place of one
    assert (await ask(of, "GET", (b"accept", b"text/event-stream")))[0] == 200
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (of._readers.turns.free, of._process.streams.used, of._process.in_pieces.used) == (
        MAX_RELAYS,
        0,
        0,
    )


async def test_streams_and_downloads_that_stay_open_leave_room_for_pages(
    behind: Behind, socket_folder: Path
) -> None:
    behind.raw, behind.stays = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n",
        True,
    )
    of = door(socket_folder)
    waiting = [
        asyncio.create_task(ask(of, address=f"10.0.0.{number}")) for number in range(MAX_IN_PIECES)
    ]
    while of._process.in_pieces.used < MAX_IN_PIECES:
        await asyncio.sleep(0)
    status, headers, _ = await ask(of)
    assert status == 503 and (b"retry-after", b"1") in headers
    behind.raw, behind.stays = OK, False
    assert (await ask(of))[0] == 200
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (of._readers.turns.free, of._process.in_pieces.used) == (MAX_RELAYS, 0)


def slow(
    of: PagesRelay, taken: asyncio.Event, begun: list[int], address: str
) -> asyncio.Task[None]:
    """A reader that takes nothing of its answer until `taken`; `begun` has a status as soon as one
    is there."""

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        begun.extend([message["status"]] if "status" in message else [])
        if message.get("status", 200) == 200:
            await taken.wait()

    scope = {
        "type": "http",
        "method": "GET",
        "raw_path": b"/debug",
        "path": "/debug",
        "query_string": b"",
        "headers": [(b"host", b"h"), reader(of, address)],
        "client": (address, 5),
    }
    return asyncio.create_task(of(scope, receive, send))


@pytest.mark.parametrize("size", [250_000, 1_000_000, 3_000_000])
async def test_pages_that_one_address_does_not_take_keep_no_other_out(
    behind: Behind, socket_folder: Path, size: int
) -> None:
    """Each kept its relay for as long as its reader liked, past 256 KiB, and its bytes below
    that."""
    behind.raw = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size)
    of, taken, begun = door(socket_folder), asyncio.Event(), list[int]()
    many = [slow(of, taken, begun, "10.0.0.1") for _ in range(2 * MAX_RELAYS)]
    while len(begun) < len(many):
        await asyncio.sleep(0.001)
    process = of._process
    assert (
        process.untaken.used <= pages_process.UNTAKEN_BYTES // 2 + size
        and process.in_pieces.used <= MAX_IN_PIECES // 2
    )
    assert of._readers.turns.free >= MAX_RELAYS - MAX_IN_PIECES // 2
    assert (await ask(of, address="10.9.9.9"))[0] == 200
    behind.raw = OK
    # a short page comes also to who has all of a share
    assert (await ask(of, address="10.0.0.1"))[0] == 200
    taken.set()
    await asyncio.gather(*many)
    assert (of._readers.turns.free, process.untaken.used, process.in_pieces.used, process.open) == (
        MAX_RELAYS,
        0,
        0,
        0,
    )


@pytest.mark.usefixtures("soon_away")
async def test_its_own_answers_have_the_headers_of_pages(socket_folder: Path) -> None:
    for headers in (
        (await ask(door(socket_folder)))[1],
        (await ask(door(socket_folder), "PUT"))[1],
    ):
        assert dict(headers).items() >= dict(NOWHERE.headers()).items()


async def test_what_the_server_of_the_pages_says_itself_has_the_headers_of_pages(
    behind: Behind, socket_folder: Path
) -> None:
    """As to two hosts, which it refuses before any page is asked."""
    behind.raw = (
        b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nno."
    )
    status, headers, body = await ask(door(socket_folder), "GET", (b"host", b"other"))
    assert (status, body) == (400, b"no.") and (b"content-type", b"text/plain") in headers
    assert dict(headers).items() >= dict(NOWHERE.headers()).items() and len(dict(headers)) == len(
        headers
    )


async def test_a_trusted_proxy_says_who_comes_through_it(
    behind: Behind, socket_folder: Path
) -> None:
    await ask(
        door(socket_folder, trusted_proxies=("10.1.2.3",)),
        "GET",
        (b"x-forwarded-for", b"1.1.1.1"),
        (b"x-forwarded-for", b"2.2.2.2"),
    )
    assert b"x-sluice-client-address: 2.2.2.2" in behind.asked.split(b"\r\n")


def test_the_door_is_for_pages_alone() -> None:
    assert (
        is_page("/debug")
        and is_page("/debug/x")
        and not is_page("/debugger")
        and not is_page("/v1/debug")
    )
    assert (
        not door(Path(), enabled=False).is_open
        and not door(Path(), on_gateway=False).is_open
        and door(Path()).is_open
    )
