"""What a provider may answer, byte by byte and at once, on a connection that is played: the right
bytes, or an error, and never a second use of a connection that may not be clean."""

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from protocol.errors import PipelineError, RemoteProtocolError, UpstreamUnreachable
from providers.http1 import MAX_HEAD_BYTES, Pool, UpstreamConnection
from providers.origin import Origin

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nhello"


class Wire(asyncio.Transport):
    """A transport that only remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False
        self.unsent = 0
        self.flow = list[str]()

    def write(self, data: Any) -> None:
        """Remember."""
        self.written += data

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Remember."""
        self.written += b"".join(list_of_data)

    def abort(self) -> None:
        """Remember."""
        self.is_aborted = True

    def is_closing(self) -> bool:
        """Was it aborted?"""
        return self.is_aborted

    def get_write_buffer_size(self) -> int:
        """As many as the test says."""
        return self.unsent

    def pause_reading(self) -> None:
        """Remember."""
        self.flow.append("pause")

    def resume_reading(self) -> None:
        """Remember."""
        self.flow.append("resume")


class Heard:
    """A sink that only remembers; `raises` is raised at the first data."""

    def __init__(self, raises: PipelineError | None = None) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.pieces = list[bytes]()
        self.ends = 0
        self.raises = raises

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Remember."""
        assert not self.status
        self.status, self.headers = status, dict(headers)

    def on_data(self, data: bytes, line: UpstreamConnection) -> None:
        """Remember."""
        assert self.status and not self.ends
        if self.raises is not None:
            raise self.raises
        self.pieces.append(data)

    def on_end(self) -> None:
        """Remember."""
        self.ends += 1

    @property
    def body(self) -> bytes:
        """All that came."""
        return b"".join(self.pieces)


ORIGIN = Origin("http://h")


class Played:
    """One request on a played connection."""

    def __init__(self, heard: Heard | None = None) -> None:
        self.pool = Pool(connect_s=1, first_byte_s=1, idle_s=1)
        self.wire, self.heard = Wire(), heard or Heard()
        self.line = UpstreamConnection(self.pool, ORIGIN.key)
        self.line.connection_made(self.wire)
        self.done = self.line.send(b"HEAD ", b"body", self.heard)

    def feed(self, *pieces: bytes) -> "Played":
        """What the provider sends, in these reads; none comes after an abort."""
        for piece in pieces:
            if not self.wire.is_aborted:
                self.line.data_received(piece)
        return self

    def close(self, error: Exception | None = None) -> "Played":
        """The connection ends."""
        self.line.connection_lost(error)
        return self

    @property
    def error(self) -> BaseException | None:
        """How the answer ended, which it must have."""
        return self.done.exception()

    @property
    def is_kept(self) -> bool:
        """May the connection carry another request?"""
        return self.pool._take(ORIGIN) is self.line


def cuts(data: bytes) -> list[list[bytes]]:
    """The same bytes at once, byte by byte, and in two pieces."""
    return [
        [data],
        [data[i : i + 1] for i in range(len(data))],
        *([data[:i], data[i:]] for i in range(1, len(data))),
    ]


@pytest.mark.parametrize(
    ("answer", "is_kept"),
    [
        (LENGTH, True),
        (CHUNKED, True),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + LENGTH,
            True,
        ),
        (
            CHUNKED.replace(b"2\r\n", b"2;name=value\r\n", 1).replace(
                b"0\r\n\r\n", b"0\r\nTrailer: x\r\n\r\n"
            ),
            True,
        ),
        (LENGTH.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"), False),
        (CHUNKED.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"), False),
        (LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"), False),
    ],
)
async def test_an_answer_however_it_is_cut(answer: bytes, is_kept: bool) -> None:
    played = Played()
    for pieces in cuts(answer):
        played = Played().feed(*pieces)
        assert (played.error, played.heard.body, played.heard.ends, played.heard.status) == (
            None,
            b"hello",
            1,
            200,
        )
        assert b"link" not in played.heard.headers and b"trailer" not in played.heard.headers
        assert (played.is_kept, played.wire.is_aborted) == (is_kept, not is_kept), pieces
    assert played.wire.written == b"HEAD 4\r\n\r\nbody"


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    for pieces in cuts(UNTIL_CLOSE):
        played = Played().feed(*pieces)
        assert not played.done.done()
        assert (played.close().error, played.heard.body, played.heard.ends) == (None, b"hello", 1)
        assert not played.is_kept
    # cut by an error it is not known to be whole
    assert isinstance(
        Played().feed(UNTIL_CLOSE).close(ConnectionResetError()).error, UpstreamUnreachable
    )


async def test_what_comes_in_one_read_is_one_piece() -> None:
    assert Played().feed(CHUNKED).heard.pieces == [b"hello"]


async def test_statuses_without_a_body_and_repeated_headers() -> None:
    played = Played().feed(b"HTTP/1.1 204 No Content\r\nRetry-After: 1\r\nretry-after: 2\r\n\r\n")
    assert (
        played.error,
        played.heard.status,
        played.heard.body,
        played.heard.ends,
        played.is_kept,
    ) == (None, 204, b"", 1, True)
    assert played.heard.headers == {b"retry-after": b"1"}


@pytest.mark.parametrize("answer", [LENGTH, CHUNKED])
async def test_a_connection_that_ends_before_its_answer_is_an_error_wherever(answer: bytes) -> None:
    for end, error in itertools.product(range(len(answer)), (None, ConnectionResetError())):
        played = Played()
        if answer[:end]:
            played.feed(answer[:end])
        played.close(error)
        assert isinstance(played.error, UpstreamUnreachable), end
        assert not played.heard.ends
        assert b"hello".startswith(played.heard.body)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20x OK\r\n\r\n",
        (
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade:"
            b" websocket\r\n\r\nbytes"
        ),
        # each of these is one answer to one reader and two to another
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello",
        b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX: a\rContent-Length: 5\r\n\r\nhello",
    ],
)
async def test_what_is_not_plain_http_is_an_error_and_ends_the_connection(answer: bytes) -> None:
    for pieces in ([answer], [answer[i : i + 1] for i in range(len(answer))]):
        played = Played().feed(*pieces)
        assert isinstance(played.error, RemoteProtocolError), played.heard.pieces
        assert played.wire.is_aborted and not played.heard.ends and not played.is_kept


async def test_what_came_before_damage_is_handed_on() -> None:
    played = Played().feed(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n"
    )
    assert played.heard.body == b"hello" and isinstance(played.error, RemoteProtocolError)


@pytest.mark.parametrize("answer", [LENGTH, CHUNKED])
@pytest.mark.parametrize("more", [b"x", b"\r\n\r\nx", LENGTH, b"HTTP/1.1 200 OK\r\n\r\nsmuggled"])
async def test_bytes_behind_an_answer_belong_to_nobody(answer: bytes, more: bytes) -> None:
    at_once, later = Played().feed(answer + more), Played().feed(answer, more)
    for played in (at_once, later):
        assert (played.error, played.heard.body, played.heard.ends) == (None, b"hello", 1)
        assert played.wire.is_aborted and not played.is_kept


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n" * 1024),
        (b"HTTP/1.1 200 OK\r\nx-a: ", b"y" * 8192),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 300),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5;", b"y" * 8192),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-a: ",
            b"y" * 8192,
        ),
    ],
    ids=["headers", "one header", "1xx", "chunk extension", "trailer"],
)
async def test_what_has_no_end_but_no_body_is_cut_off(begin: bytes, piece: bytes) -> None:
    played = Played().feed(begin or piece)
    reads = 0
    while not played.wire.is_aborted:
        played.feed(piece)
        reads += 1
        assert reads * len(piece) < 2 * MAX_HEAD_BYTES
    assert isinstance(played.error, RemoteProtocolError)


async def test_a_long_body_in_small_chunks_is_no_long_head() -> None:
    played = Played().feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(MAX_HEAD_BYTES):
        played.feed(b"1\r\nx\r\n")
    assert played.feed(b"0\r\n\r\n").error is None
    assert len(played.heard.body) == MAX_HEAD_BYTES


async def test_a_sink_that_refuses_ends_the_answer() -> None:
    refusal = PipelineError("no more", code="upstream_too_large")
    played = Played(Heard(refusal)).feed(LENGTH)
    assert (
        played.error is refusal
        and played.wire.is_aborted
        and not played.heard.ends
        and not played.is_kept
    )


async def test_an_answer_that_comes_before_all_of_its_request_is_sent_leaves_no_clean_connection() -> (
    None
):
    played = Played()
    played.wire.unsent = 1
    played.feed(LENGTH)
    assert played.error is None and played.wire.is_aborted and not played.is_kept


async def test_a_paused_connection_goes_on_when_its_answer_ended() -> None:
    played = Played()
    played.line.pause()
    played.line.pause()
    played.feed(LENGTH)
    assert played.wire.flow == ["pause", "resume"] and played.is_kept


async def test_who_is_cancelled_as_the_answer_ends_leaves_the_connection_to_the_next() -> None:
    played = Played().feed(LENGTH)
    pool, heard = played.pool, [Heard(), Heard()]
    origin = Origin("http://h")
    first = asyncio.create_task(pool.post(origin, b"", b"1", heard[0]))
    await asyncio.sleep(0)
    played.feed(LENGTH)
    first.cancel()
    second = asyncio.create_task(pool.post(origin, b"", b"2", heard[1]))
    await asyncio.wait({first})
    await asyncio.sleep(0)
    assert first.cancelled() and heard[0].ends == 1 and not played.wire.is_aborted
    played.feed(LENGTH)
    await second
    assert heard[1].body == b"hello" and played.wire.written.endswith(b"\r\n\r\n2")


# --- requests ---


def test_heads() -> None:
    head = Origin("https://host.example:8443/a b/v1/").head(
        "/chat", {"Authorization": "Bearer k", "X-Name": "Grüße"}
    )
    assert head.decode().split("\r\n") == [
        "POST /a%20b/v1/chat HTTP/1.1",
        "host: host.example:8443",
        "accept: */*",
        "user-agent: sluice",
        "authorization: Bearer k",
        "x-name: Grüße",
        "content-length: ",
    ]
    assert b"\r\nhost: [::1]:80\r\n" in Origin("http://[::1]:80").head("/", {})
    assert b"\r\nhost: xn--bcher-kva.example\r\n" in Origin("http://bücher.example").head("/", {})
    assert b"\r\nhost: other\r\n" in Origin("http://a").head("/", {"Host": "other"})
    login = Origin("http://me:p%40ss@a/v1")
    assert b"\r\nauthorization: Basic bWU6cEBzcw==\r\n" in login.head("/", {})
    assert b"Basic" not in login.head("/", {"authorization": "Bearer k"})
    assert Origin("http://a/x").key == Origin("http://a:80/y").key != Origin("https://a:80").key


@pytest.mark.parametrize(
    "headers",
    [{"x": "a\r\nx-y: b"}, {"x": "a\nb"}, {"x": "a\x00"}, {"x y": "a"}, {"x:": "a"}, {"": "a"}]
    + [{name: "1"} for name in ("Content-Length", "transfer-encoding", "Connection", "expect")],
)
def test_headers_that_would_change_the_request_are_not_sent(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        Origin("http://a").head("/", headers)


@pytest.mark.parametrize(
    "url",
    ["", "host", "ftp://host", "http://", "http:///path", "http://host/#a", "http://host:port"],
)
def test_base_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match=r"base_url|[Pp]ort"):
        Origin(url)
