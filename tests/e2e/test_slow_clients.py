"""Clients that send without end, or not at all: bounded before anybody knows who they are."""

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.bounds import MAX_HEADERS
from tests.e2e.conftest import configured
from tests.support.json_values import as_json
from tests.support.servers.product import KEY, Product, running
from tests.support.servers.stores import Stores
from tests.support.upstreams.replay import Replay

START = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
AUTH = b"authorization: Bearer " + KEY.encode() + b"\r\n"


@pytest.fixture(scope="module")
def product(
    stores: Stores,
    replay_server: Replay,
) -> Iterator[Product]:
    config = configured(replay_server)
    config["limits"] |= {"client_stall_s": 0.5}
    with running(*stores, config) as made:
        yield made


def connected(product: Product) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", product.port), timeout=10)
    connection.settimeout(10)
    return connection


def answer(connection: socket.socket) -> bytes:
    """Everything until the server closes; a reset is its way to say that it does not read on."""
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


def send_until_refused(product: Product, first: bytes, piece: bytes, most: int) -> int:
    """Send `first`, then `piece` again and again; returns the bytes that the server took."""
    with connected(product) as connection:
        connection.sendall(first)
        for count in range(most):
            try:
                connection.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                return count * len(piece)
    return most * len(piece)


def resident_kb(product: Product) -> int:
    status = Path(f"/proc/{product.of('gateway')[0].pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1])


@pytest.mark.case("C4")
@pytest.mark.parametrize(
    "piece", [b"x" * 65536, b"x-a: b\r\n" * 8192], ids=["one header", "many headers"]
)
def test_a_head_without_end_is_cut_off(product: Product, piece: bytes) -> None:
    before = resident_kb(product)
    sent = send_until_refused(product, START + b"x-big: ", piece, 2000)
    assert sent < 64 * 2**20
    assert resident_kb(product) - before < 20_000


def test_a_head_of_usual_size_is_taken(product: Product) -> None:
    body = as_json({"model": "demo", "messages": [{"role": "user", "content": "hello"}]})
    with connected(product) as connection:
        for end in (b"", b"connection: close\r\n"):
            head = (
                START
                + AUTH
                + b"x-big: "
                + b"y" * 30_000
                + b"\r\n"
                + end
                + b"content-length: %d\r\n\r\n" % len(body)
            )
            connection.sendall(head + body)
        data = answer(connection)
    assert data.count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize("lines", [MAX_HEADERS + 1, 15_000])
def test_a_head_of_many_lines_is_refused(product: Product, lines: int) -> None:
    with connected(product) as connection:
        connection.sendall(START + b"a:\r\n" * lines + b"\r\n" + START + AUTH + b"\r\n")
        data = answer(connection)
    assert data.startswith(b"HTTP/1.1 431 ") and data.count(b"HTTP/1.1") == 1
    with connected(product) as connection:
        connection.sendall(
            b"GET /health HTTP/1.1\r\nconnection: close\r\n"
            + b"a:\r\n" * (MAX_HEADERS - 1)
            + b"\r\n"
        )
        assert answer(connection).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_does_not_come(product: Product, upstream: Replay) -> None:
    with connected(product) as connection:
        connection.sendall(
            START + AUTH + b'connection: close\r\ncontent-length: 1000\r\n\r\n{"model"'
        )
        data = answer(connection)
    assert data.startswith(b"HTTP/1.1 408 ") and b"retry-after: 1" in data
    assert b'"code":"body_timeout"' in data
    assert upstream.asked == []


def test_a_large_body_may_come_slowly_but_must_not_stand_still(product: Product) -> None:
    """The stall time is that of a piece, not of the whole."""
    body = as_json({"model": "demo", "messages": [{"role": "user", "content": "h" * 240_000}]})
    head = START + AUTH + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    with connected(product) as connection:
        connection.sendall(head)
        for at in range(0, len(body), 50_000):
            # a piece each 0.2 s: 1.4 s in all, the stall time being 0.5 s
            connection.sendall(body[at : at + 50_000])
            time.sleep(0.2)
        assert answer(connection).startswith(b"HTTP/1.1 200 ")
    with connected(product) as connection:
        connection.sendall(head + body[:200_000])
        data = answer(connection)
    assert data.startswith(b"HTTP/1.1 408 ") and b"retry-after: 1" in data
    assert b'"code":"body_timeout"' in data


def test_a_body_whose_client_leaves_halfway_is_no_call(product: Product, upstream: Replay) -> None:
    before = resident_kb(product)
    for _ in range(20):
        with connected(product) as connection:
            connection.sendall(
                START + AUTH + b"content-length: 10000000\r\n\r\n" + b"x" * 9_000_000
            )
    with connected(product) as connection:
        connection.sendall(START + AUTH + b"connection: close\r\ncontent-length: 2\r\n\r\n{}")
        assert answer(connection).startswith(b"HTTP/1.1 400 ")
    assert upstream.asked == []
    assert resident_kb(product) - before < 100_000


def test_a_large_body_behind_another_answer_on_one_connection(product: Product) -> None:
    """Each body is its own request's, though the next begins in the read that brings its end."""
    large = as_json({"model": "demo", "messages": [{"role": "user", "content": "h" * 250_000}]})
    small = as_json({"model": "demo", "messages": [{"role": "user", "content": "hello"}]})
    with connected(product) as connection:
        for body, end in ((large, b""), (small, b""), (large, b"connection: close\r\n")):
            connection.sendall(
                START + AUTH + end + b"content-length: %d\r\n\r\n" % len(body) + body
            )
        data = answer(connection)
    assert data.count(b"HTTP/1.1 200 OK") == 3


def test_without_a_key_no_body_is_read(product: Product) -> None:
    with connected(product) as connection:
        connection.sendall(START + b"connection: close\r\ncontent-length: 1000\r\n\r\n")
        assert answer(connection).startswith(b"HTTP/1.1 401 ")
