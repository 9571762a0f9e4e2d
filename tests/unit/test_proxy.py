"""The fault proxy of the tests does what its methods say."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.servers.proxy import Proxy, proxied
from tests.support.waiting import wait_for


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that sends back what it gets; lends its URL."""

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(65_536):
                connection.sendall(data)

    def accept(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        yield f"redis://:secret@127.0.0.1:{server.getsockname()[1]}/0"
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(echo: str) -> Iterator[Proxy]:
    """A proxy in front of it."""
    with proxied(echo) as found:
        yield found


def _connect(proxy: Proxy) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
    link.sendall(b"hello")
    assert link.recv(64) == b"hello"
    link.settimeout(0.3)
    return link


def _hears_nothing(link: socket.socket) -> None:
    with pytest.raises(TimeoutError):
        link.recv(64)


def test_a_url_goes_through_the_proxy(proxy: Proxy) -> None:
    assert proxy.url("redis://:secret@127.0.0.1:1/0") == f"redis://:secret@127.0.0.1:{proxy.port}/0"
    assert (
        proxy.url("postgresql://u:p@h:5432/db?x=1")
        == f"postgresql://u:p@127.0.0.1:{proxy.port}/db?x=1"
    )


def test_a_black_hole_holds_everything_until_it_heals(proxy: Proxy) -> None:
    with _connect(proxy) as link:
        proxy.black_hole()
        link.sendall(b"one")
        _hears_nothing(link)
        assert proxy.passed == (5, 5)
        proxy.heal()
        link.settimeout(5)
        assert link.recv(64) == b"one"


def test_held_replies_are_lost_by_a_reset(proxy: Proxy) -> None:
    with _connect(proxy) as link:
        proxy.hold_replies()
        link.sendall(b"done")
        wait_for(lambda: proxy.passed[0] == 9)
        _hears_nothing(link)
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            link.recv(64)
    assert proxy.passed == (9, 5)
    proxy.heal()
    _connect(proxy).close()


def test_held_requests_do_not_arrive(proxy: Proxy) -> None:
    with _connect(proxy) as link:
        proxy.hold_requests()
        link.sendall(b"later")
        _hears_nothing(link)
        assert proxy.passed[0] == 5
        proxy.heal()
        link.settimeout(5)
        assert link.recv(64) == b"later"


def test_refused_connections_are_refused_and_open_ones_go_on(proxy: Proxy) -> None:
    with _connect(proxy) as link:
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port), timeout=1)
        link.settimeout(5)
        link.sendall(b"still")
        assert link.recv(64) == b"still"
    proxy.heal()
    _connect(proxy).close()
    wait_for(lambda: proxy.open_links == 0)


def test_delay_and_throttle_take_their_time(proxy: Proxy) -> None:
    with _connect(proxy) as link:
        link.settimeout(5)
        proxy.delay(0.1)
        began = time.monotonic()
        link.sendall(b"slow")
        assert link.recv(64) == b"slow" and time.monotonic() - began >= 0.2
        proxy.heal()
        proxy.throttle(20_000)
        began = time.monotonic()
        link.sendall(b"x" * 10_000)
        got = 0
        while got < 10_000:
            got += len(link.recv(65_536))
        assert time.monotonic() - began >= 0.4


def test_a_reply_is_altered_once(proxy: Proxy) -> None:
    with _connect(proxy) as link:
        link.settimeout(5)
        proxy.alter_reply(rb"word(\d)", b"9")
        assert not proxy.has_altered
        for sent, got in (
            (b"word ", b"word "),
            (b"the word1 word2", b"the word9 word2"),
            (b"word1", b"word1"),
        ):
            link.sendall(sent)
            assert link.recv(64) == got
        assert proxy.has_altered
