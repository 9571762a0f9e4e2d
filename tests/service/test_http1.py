"""The client for providers on real sockets: which connections are used again, what silence costs,
how reading stops, and TLS."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocol.errors import UpstreamTimeout, UpstreamUnreachable
from providers.http1 import Pool, UpstreamConnection
from providers.origin import Origin
from tests.support.servers.certificates import certificate
from tests.support.waiting import wait_until

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
Answering = Callable[["Provider", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Provider:
    """A server that answers by a script, and remembers its connections and requests."""

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.connections = 0
        self.bodies = list[bytes]()
        self.left = 0
        self.open = set[asyncio.StreamWriter]()
        self.host, self.port = "127.0.0.1", 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        self.open.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.bodies.append(await reader.readexactly(size))
                await self.answering(self, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left += 1
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self.open.discard(writer)

    @property
    def origin(self) -> Origin:
        """Its address."""
        return Origin(f"http://{self.host}:{self.port}/v1")


@asynccontextmanager
async def provider(
    answering: Answering, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Provider]:
    made = Provider(answering)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for writer in made.open:
            writer.transport.abort()
        await wait_until(lambda: not made.open)


@asynccontextmanager
async def pool(*, first_byte_s: float = 5.0, idle_s: float = 5.0) -> AsyncIterator[Pool]:
    made = Pool(connect_s=5.0, first_byte_s=first_byte_s, idle_s=idle_s)
    try:
        yield made
    finally:
        await made.close()


class Taking:
    """A sink; pauses its line once it has `most` bytes."""

    def __init__(self, most: int = 2**40) -> None:
        self.size, self.most, self.ends = 0, most, 0
        self.line: UpstreamConnection | None = None
        self.begun = asyncio.Event()

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Begin."""
        self.begun.set()

    def on_data(self, data: bytes, line: UpstreamConnection) -> None:
        """Count, and pause past the mark."""
        self.size, self.line = self.size + len(data), line
        if self.size > self.most:
            line.pause()

    def on_end(self) -> None:
        """Count."""
        self.ends += 1


async def post(
    to: Provider,
    by: Pool,
    body: bytes = b"{}",
    sink: Taking | None = None,
    origin: Origin | None = None,
) -> Taking:
    sink, origin = sink or Taking(), origin or to.origin
    async with asyncio.timeout(20):
        await by.post(origin, origin.head("/chat", {}), body, sink)
    return sink


async def say_ok(to: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)


async def test_a_clean_connection_is_used_again_and_several_at_once_have_their_own() -> None:
    async with provider(say_ok) as server, pool() as by:
        for _ in range(3):
            assert (await post(server, by)).ends == 1
        assert server.connections == 1
        await asyncio.gather(*(post(server, by) for _ in range(4)))
        assert server.connections == 4
        await asyncio.gather(*(post(server, by) for _ in range(4)))
        assert (server.connections, len(server.bodies)) == (4, 11)


async def test_a_connection_that_the_provider_closed_while_idle_is_not_used_again() -> None:
    async def once(
        to: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(OK)
        await writer.drain()
        writer.close()

    async with provider(once) as server, pool() as by:
        await post(server, by)
        await wait_until(lambda: not by._lines)
        assert (await post(server, by)).ends == 1
        assert server.connections == 2


async def asked_again(to: Provider, by: Pool, *, again: bool = True) -> tuple[int, str]:
    """Ask once, and once more on the same connection: how often it was sent again, and the
    error."""
    times = list[int]()
    await post(to, by)
    sink = Taking()
    try:
        await by.post(
            to.origin,
            to.origin.head("/chat", {}),
            b"twice",
            sink,
            when_again=(lambda: times.append(1)) if again else None,
        )
    except UpstreamUnreachable as error:
        assert not sink.ends
        return len(times), error.error_code
    assert sink.ends == 1
    return len(times), ""


@pytest.mark.parametrize("again", [True, False])
async def test_a_request_on_a_kept_connection_that_had_ended_is_sent_once_more_on_a_new_one(
    again: bool,
) -> None:
    async def one_each(
        to: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if len(to.bodies) == 2:
            # as if it had closed while the request was on its way
            raise ConnectionError
        writer.write(OK)

    async with provider(one_each) as server, pool() as by:
        assert await asked_again(server, by, again=again) == (
            (1, "") if again else (0, "upstream_closed")
        )
        assert server.bodies[1:] == [b"twice"] * (2 if again else 1) and server.connections == (
            2 if again else 1
        )


@pytest.mark.parametrize("said", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n", OK[:-1]])
async def test_a_request_of_whose_answer_a_byte_came_is_not_sent_again(said: bytes) -> None:
    async def part(
        to: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if len(to.bodies) > 1:
            writer.write(said)
            await writer.drain()
            raise ConnectionError
        writer.write(OK)

    async with provider(part) as server, pool() as by:
        assert await asked_again(server, by) == (0, "upstream_cut")
        assert len(server.bodies) == 2


async def test_only_a_kept_connection_and_one_that_ends_at_once_is_an_excuse() -> None:
    async def never(
        to: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if len(to.bodies) == 2:
            writer.write(OK)
            return
        if len(to.bodies) == 3:
            # the provider has it, and is at work
            (line,) = by._lines
            await wait_until(lambda: line.again is None)
        raise ConnectionError

    async with provider(never) as server, pool(first_byte_s=0.8) as by:
        with pytest.raises(UpstreamUnreachable, match="did not answer"):
            await by.post(
                server.origin,
                server.origin.head("/chat", {}),
                b"1",
                Taking(),
                when_again=lambda: None,
            )
        assert server.connections == 1
        assert await asked_again(server, by) == (0, "upstream_closed")
        assert len(server.bodies) == 3


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (b"timeout=60", 30.0),
        (b"max=9, timeout=5", 4.0),
        (b"Timeout = 2", 1.0),
        (b"timeout=x", 30.0),
    ],
)
async def test_a_connection_is_dropped_before_its_provider_does_so(
    said: bytes, kept: float
) -> None:
    async def says(
        to: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(OK.replace(b"\r\n\r\n", b"\r\nkeep-alive: %b\r\n\r\n" % said))

    async with provider(says) as server, pool(idle_s=0.8) as by:
        await post(server, by)
        (line,) = by._lines
        assert line.keep_s == kept
        if kept == 1.0:
            began = asyncio.get_running_loop().time()
            await wait_until(lambda: not by._lines)
            assert asyncio.get_running_loop().time() - began <= 1.2


async def test_a_connection_that_its_provider_closes_within_a_second_is_not_kept() -> None:
    async def says(
        to: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(OK.replace(b"\r\n\r\n", b"\r\nkeep-alive: timeout=1\r\n\r\n"))

    async with provider(says) as server, pool() as by:
        for _ in range(2):
            await post(server, by)
        assert server.connections == 2


async def test_a_provider_that_speaks_unasked_is_not_believed_the_next_time() -> None:
    async def twice(
        to: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(OK)
        await writer.drain()
        await wait_until(lambda: taking.ends == 1)
        writer.write(OK.replace(b"hello", b"wrong"))

    taking = Taking()
    async with provider(twice) as server, pool() as by:
        await post(server, by, sink=taking)
        await wait_until(lambda: not by._lines)
        assert server.connections == 1 and taking.size == 5


async def test_nobody_listens_or_the_name_is_unknown() -> None:
    async with provider(say_ok) as server, pool() as by:
        port = server.port
    for host, code in (
        ("127.0.0.1", "upstream_refused"),
        ("localhost", "upstream_refused"),
        ("no-such-host.invalid", "upstream_dns"),
    ):
        with pytest.raises(UpstreamUnreachable) as failed:
            await post(server, by, origin=Origin(f"http://{host}:{port}"))
        assert failed.value.error_code == code


async def test_a_name_with_several_addresses_is_reached_by_the_one_that_answers() -> None:
    async with provider(say_ok) as server, pool() as by:
        assert (await post(server, by, origin=Origin(f"http://localhost:{server.port}"))).ends == 1


@pytest.mark.slow
async def test_silence_is_bounded_before_and_within_an_answer_but_not_while_nobody_listens() -> (
    None
):
    async def part(
        to: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(to.bodies[-1])
        await reader.read()

    loop = asyncio.get_running_loop()
    async with provider(part) as server, pool(first_byte_s=0.6, idle_s=0.4) as by:
        # also 1xx is not yet an answer
        for said, least, most in (
            (b"", 0.6, 0.9),
            (b"HTTP/1.1 100 Continue\r\n\r\n", 0.6, 0.9),
            (OK[:-1], 0.4, 0.7),
        ):
            began = loop.time()
            with pytest.raises(UpstreamTimeout):
                await post(server, by, said)
            assert least <= loop.time() - began < most
        await wait_until(lambda: server.left == 3)
        paused = Taking(most=1)
        asking = asyncio.create_task(post(server, by, OK[:-1], paused))
        await paused.begun.wait()
        assert await asyncio.wait({asking}, timeout=1.0) == (set(), {asking})
        assert paused.line is not None
        paused.line.resume()
        with pytest.raises(UpstreamTimeout):
            await asking


async def test_a_paused_answer_is_not_read_and_comes_whole_afterwards() -> None:
    size = 64 * 2**20

    async def much(
        to: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size // 2**16):
            writer.write(b"x" * 2**16)
            await writer.drain()
        to.bodies.append(b"sent")

    async with provider(much) as server, pool() as by:
        sink = Taking(most=2**16)
        asking = asyncio.create_task(post(server, by, sink=sink))
        await wait_until(lambda: sink.line is not None and sink.line.is_paused)
        assert await asyncio.wait({asking}, timeout=0.3) == (set(), {asking})
        # one read past the mark
        assert sink.size <= 2**16 + 2**18 and server.bodies[-1] != b"sent"
        assert sink.line is not None
        sink.most = 2**40
        sink.line.resume()
        await asking
        assert (sink.size, sink.ends) == (size, 1)
        await post(server, by)
        assert server.connections == 1


async def test_who_is_cancelled_leaves() -> None:
    async def part(
        to: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(OK[:-1])
        await reader.readexactly(1)

    async with provider(part) as server, pool() as by:
        sink = Taking()
        asking = asyncio.create_task(post(server, by, sink=sink))
        await sink.begun.wait()
        asking.cancel()
        await asyncio.wait({asking})
        await wait_until(lambda: server.left == 1)
        assert asking.cancelled() and not sink.ends and not by._lines


async def test_megabytes_are_sent_whole() -> None:
    async with provider(say_ok) as server, pool() as by:
        body = bytes(range(256)) * 2**16
        await post(server, by, body)
        await post(server, by, b"next")
        assert server.bodies == [body, b"next"] and server.connections == 1


async def test_idle_connections_go_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.http1.KEEPALIVE_S", 0.3)
    async with provider(say_ok) as server, pool(idle_s=0.4) as by:
        await post(server, by)
        await wait_until(lambda: server.left == 1)
        assert not by._lines


# --- TLS ---


@pytest.mark.parametrize(
    ("name", "is_trusted", "works"),
    [("127.0.0.1", True, True), ("127.0.0.1", False, False), ("127.0.0.2", True, False)],
)
async def test_only_a_provider_with_a_trusted_certificate_of_its_name_gets_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_trusted: bool, works: bool
) -> None:
    pem, context = certificate(tmp_path, name)
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    async with provider(say_ok, context) as server, pool() as by:
        origin = Origin(f"https://127.0.0.1:{server.port}")
        if works:
            for _ in range(2):
                assert (await post(server, by, origin=origin)).size == 5
            assert server.connections == 1
        else:
            with pytest.raises(UpstreamUnreachable) as failed:
                await post(server, by, origin=origin)
            assert failed.value.error_code == "upstream_tls" and "certificate" in str(
                failed.value.__cause__
            )
            assert not server.bodies


async def test_certificates_that_are_replaced_are_trusted_by_the_next_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    pem, context = certificate(tmp_path, "127.0.0.1")
    before, _ = certificate(tmp_path / "other", "127.0.0.1")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(before.read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    async with provider(say_ok, context) as server, pool() as by:
        origin = Origin(f"https://127.0.0.1:{server.port}")
        with pytest.raises(UpstreamUnreachable):
            await post(server, by, origin=origin)
        (tmp_path / "new.pem").write_bytes(pem.read_bytes())
        (tmp_path / "new.pem").rename(trusted)
        assert (await post(server, by, origin=origin)).size == 5
