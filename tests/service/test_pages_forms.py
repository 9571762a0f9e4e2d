"""Forms on their way in to the pages: slow ones, however many and from wherever, keep nobody from
logging in."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway.http_limits import BoundedConnection
from gateway.record import form_uploads
from gateway.record.pages_proxy import MAX_OF_STRANGERS, MAX_WAITING, PagesRelay
from protocol.bounds import FORM_S, MAX_FORMS, MAX_RELAYED_FORM_BYTES, MAX_RELAYS
from settings.config import Config
from settings.pages import Pages
from settings.runtime import Runtime

pytestmark = pytest.mark.slow

HEAD = b"POST /debug/login HTTP/1.1\r\nhost: h\r\nx-forwarded-for: %b\r\n"
FORM = b"key=sk-key&next=%2Fdebug"
SLOW = {
    "nothing": b"content-length: 500\r\n\r\n",
    "half": b"content-length: 500\r\n\r\n" + b"x" * 250,
    "chunks": b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n1\r\n",
    "much": b"content-length: 65536\r\n\r\n" + b"x" * 65_535,
}
"""What comes of forms that do not come whole."""


class Served:
    """A door of a gateway, over its own connections."""

    def __init__(self, door: PagesRelay, port: int) -> None:
        self.door, self.port = door, port
        self.answered = 0
        """By the process behind it."""
        self._writers = list[asyncio.StreamWriter]()

    async def open(
        self, address: bytes, rest: bytes
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send the head of a form, and what of it comes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        writer.write(HEAD % address + rest)
        return reader, writer

    async def log_in(self, address: bytes, *pieces: bytes) -> tuple[int, float]:
        """The status of a form that comes, and how long that took."""
        began = time.monotonic()
        reader, writer = await self.open(
            address, b"content-length: %d\r\n\r\n" % len(FORM) + (b"" if pieces else FORM)
        )
        for piece in pieces:
            await writer.drain()
            writer.write(piece)
        status = int((await reader.readline()).split()[1])
        return status, time.monotonic() - began

    def close(self) -> None:
        """Close all of them."""
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def served(folder: Path, body: bytes = b"") -> AsyncIterator[Served]:
    """A door that tells its clients apart by what they say, before pages that answer each form
    after a moment."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        found.answered += 1
        writer.write(b"HTTP/1.1 303 See Other\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    config = Config(pages=Pages(trusted_proxies=("127.0.0.1",)))
    door = PagesRelay(
        Runtime(
            config=config, redis_url="", database_url="", pages_url=f"unix:{folder / 'pages.sock'}"
        )
    )
    state, made = ServerState(), uvicorn.Config(door, lifespan="off", log_config=None)
    made.load()
    loop = asyncio.get_running_loop()
    behind = await asyncio.start_unix_server(answer, folder / "pages.sock", backlog=MAX_RELAYS)
    server = await loop.create_server(
        lambda: BoundedConnection(config=made, server_state=state, app_state={}),
        "127.0.0.1",
        0,
        backlog=2048,
    )
    async with behind, server, asyncio.timeout(30):
        found = Served(door, server.sockets[0].getsockname()[1])
        yield found
        found.close()
        while state.tasks:
            await asyncio.wait(state.tasks)
        assert (
            not len(door._forms)
            and door._strangers.turns.free == MAX_OF_STRANGERS
            and not door._strangers.places.used
        )


@pytest.mark.parametrize("kind", SLOW)
@pytest.mark.parametrize("addresses", [1, 8, 200])
async def test_a_form_that_comes_is_never_kept_out_by_slow_ones(
    socket_folder: Path, kind: str, addresses: int
) -> None:
    async with served(socket_folder) as at:
        for number in range(200):
            await at.open(b"10.0.0.%d" % (number % addresses), SLOW[kind])
        while len(at.door._forms) < 200:
            await asyncio.sleep(0)
        for address in (b"10.0.0.0", b"10.9.9.9"):
            for pieces in ((), (FORM,), (FORM[:5], FORM[5:])):
                status, took_s = await at.log_in(address, *pieces)
                assert status == 303 and took_s < 1


async def test_past_the_bound_the_oldest_of_who_has_most_goes(socket_folder: Path) -> None:
    async with served(socket_folder) as at:
        innocent, _ = await at.open(b"10.9.9.9", SLOW["half"])
        first, _ = await at.open(b"10.0.0.1", SLOW["half"])
        for number in range(MAX_FORMS - 2):
            await at.open(b"10.0.0.%d" % (number % 2), SLOW["nothing"])
        while len(at.door._forms) < MAX_FORMS:
            await asyncio.sleep(0)
        last, _ = await at.open(b"10.0.0.1", SLOW["half"])
        said = await first.read()
        assert (
            said.startswith(b"HTTP/1.1 503 ")
            and b"retry-after: 1" in said
            and b"connection: close" in said
        )
        assert len(at.door._forms) == MAX_FORMS and not innocent.at_eof() and not last.at_eof()
        # those that go on coming only take each other's places
        for _ in range(300):
            await at.open(b"10.0.0.2", SLOW["half"])
        assert (await at.log_in(b"10.0.0.2", FORM))[0] == 303
        assert len(at.door._forms) == MAX_FORMS and not innocent.at_eof()


async def test_a_form_has_a_time(socket_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FORM_S <= 3
    monkeypatch.setattr(form_uploads, "FORM_S", 0.05)
    async with served(socket_folder) as at:
        for rest in SLOW.values():
            reader, _ = await at.open(b"10.0.0.1", rest)
            said = await reader.read()
            assert said.startswith(b"HTTP/1.1 408 ") and b"connection: close" in said


async def test_a_form_that_says_it_is_large_is_refused_before_it_comes(socket_folder: Path) -> None:
    async with served(socket_folder) as at:
        reader, _ = await at.open(
            b"10.0.0.1", b"content-length: %d\r\n\r\n" % (MAX_RELAYED_FORM_BYTES + 1)
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        reader, writer = await at.open(b"10.0.0.1", b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(MAX_RELAYED_FORM_BYTES // 4096 + 1):
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")


async def test_wrong_keys_without_end_from_one_address_keep_no_other_out(
    socket_folder: Path,
) -> None:
    async with served(socket_folder) as at:

        async def again() -> None:
            while True:
                await at.log_in(b"10.0.0.1")

        many = [asyncio.create_task(again()) for _ in range(MAX_OF_STRANGERS + MAX_WAITING)]
        while at.door._strangers.turns.free:
            await asyncio.sleep(0)
        try:
            for pieces in ((), (FORM,)):
                status, took_s = await at.log_in(b"10.9.9.9", *pieces)
                # behind all the others it would wait for a minute
                assert status == 303 and took_s < 10
        finally:
            for one in many:
                one.cancel()
            await asyncio.gather(*many, return_exceptions=True)


@pytest.mark.slow
async def test_whoever_asks_for_much_and_reads_nothing_makes_room_for_others(
    socket_folder: Path,
) -> None:
    async with served(socket_folder, b"x" * 200_000) as at:
        asked = b"content-length: %d\r\n\r\n" % len(FORM) + FORM + HEAD % b"10.0.0.1"
        for number in range(MAX_RELAYS + 4):
            await at.open(b"10.0.0.%d" % number, asked * 100)
        # until each has what the kernel takes of it
        before, still = -1, 0
        while still < 20:
            await asyncio.sleep(0.005)
            before, still = at.answered, still + 1 if at.answered == before else 0
        status, took_s = await at.log_in(b"10.9.9.9")
        assert status == 303 and took_s < 1
