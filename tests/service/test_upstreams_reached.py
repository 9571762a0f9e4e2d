"""`sluice doctor --upstreams`: what keeps an upstream from answering, each cause told apart and in
bounded time."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from settings.config import Config
from sluice.check.upstreams import check_upstreams
from tests.support.json_values import as_json
from tests.support.servers.certificates import certificate
from tests.support.servers.ports import free_port

KEY = "sk-right"


class _Listing(BaseHTTPRequestHandler):
    """Lists two models for who has the key."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        known = (self.headers.get("authorization"), self.headers.get("x-api-key"))
        status = (
            404
            if self.path not in ("/v1/models",)
            else 200
            if known in ((f"Bearer {KEY}", None), (None, KEY))
            else 401
        )
        body = as_json({"data": [{"id": "a"}, {"id": "b"}]})
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def listing(tls: ssl.SSLContext | None = None) -> Iterator[HTTPServer]:
    """A provider; `asked` are the paths that it was asked for."""
    with HTTPServer(("127.0.0.1", 0), _Listing) as server:
        server.asked = []  # type: ignore[attr-defined]
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def raw(answer: Callable[[socket.socket], object]) -> Iterator[int]:
    """A port on which each connection is handed to `answer`."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def looked(
    base_url: str, *, step_s: float = 5.0, whole_s: float = 20.0, **upstream: Any
) -> tuple[str, str]:
    config = Config.model_validate(
        {"upstreams": {"u": {"dialect": "openai", "base_url": base_url, **upstream}}}
    )
    [(name, state, said)] = check_upstreams(config, step_s=step_s, whole_s=whole_s)
    assert name == "upstream u" and KEY not in said and "secret" not in said
    return state, said


@pytest.mark.parametrize(
    ("dialect", "path"), [("openai", "/v1"), ("anthropic", ""), ("anthropic", "/v1")]
)
def test_an_upstream_that_takes_the_key_is_ok(
    dialect: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with listing() as server:
        found = looked(
            f"http://127.0.0.1:{server.server_port}{path}", dialect=dialect, api_key_env="MY_KEY"
        )
    assert found == ("ok", "reached, and it lists 2 models")


def test_a_refused_key_says_where_the_key_comes_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with listing() as server:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        monkeypatch.delenv("MY_KEY", raising=False)
        assert looked(url, api_key_env="MY_KEY") == (
            "failed",
            "the key was refused (status 401): the variable MY_KEY is not set here",
        )
        monkeypatch.setenv("MY_KEY", "sk-secret")
        assert looked(url, api_key_env="MY_KEY") == (
            "failed",
            "the key was refused (status 401): correct the variable MY_KEY",
        )
        (tmp_path / "key").write_text("sk-secret\n")
        assert looked(url, api_key_file=str(tmp_path / "key"))[1].endswith(
            f"correct what is in {tmp_path}/key"
        )
        assert looked(url)[1].endswith("name the variable that holds it with api_key_env")


def test_a_wrong_path_is_a_warning_that_says_what_to_look_at() -> None:
    with listing() as server:
        state, said = looked(f"http://127.0.0.1:{server.server_port}")
    assert (
        state == "warning"
        and said.startswith("reached, but it lists no models (status 404)")
        and "/v1" in said
    )


def test_a_name_without_an_address_and_a_port_without_a_listener_are_told_apart() -> None:
    state, said = looked("https://no.such.host.invalid/v1")
    assert state == "failed" and said.startswith(
        "DNS: the name 'no.such.host.invalid' has no address"
    )
    port = free_port()
    assert looked(f"http://127.0.0.1:{port}/v1") == (
        "failed",
        (
            f"TCP: nothing listens on 127.0.0.1:{port} (connection refused): start it, or correct"
            " base_url"
        ),
    )


def test_https_to_a_port_of_http_and_a_certificate_that_is_not_trusted_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listing() as server:
        state, said = looked(f"https://127.0.0.1:{server.server_port}/v1")
        assert (
            state == "failed"
            and said.startswith("TLS: no handshake (")
            and "http there, and not https" in said
        )
    pem, context = certificate(tmp_path, "127.0.0.1")
    monkeypatch.setenv("MY_KEY", KEY)
    with listing(context) as server:
        url = f"https://127.0.0.1:{server.server_port}/v1"
        state, said = looked(url)
        assert state == "failed" and said.startswith(
            "TLS: its certificate is not trusted: self-signed certificate"
        )
        assert server.asked == []  # type: ignore[attr-defined]
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        assert looked(url, api_key_env="MY_KEY") == ("ok", "reached, and it lists 2 models")


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        (
            b"SSH-2.0-OpenSSH\r\n",
            "failed",
            "HTTP: its answer is not HTTP (BadStatusLine): correct base_url",
        ),
        (b"", "failed", "HTTP: it closed the connection without an answer"),
        (
            b"HTTP/1.1 301 Moved\r\nlocation: /x\r\n\r\n",
            "warning",
            "reached, but it redirects (status 301)",
        ),
        (
            b"HTTP/1.1 500 Oops\r\n\r\n",
            "warning",
            "reached, but it answers a listing of models with status 500",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "warning", "reached, but what it lists is not models"),
    ],
)
def test_what_is_no_api_is_told_apart(answer: bytes, state: str, said: str) -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(answer)

    with raw(talk) as port:
        found = looked(f"http://127.0.0.1:{port}/v1")
    assert found[0] == state and found[1].startswith(said)


def test_an_upstream_that_says_nothing_is_given_up_in_time() -> None:
    ended = threading.Event()
    with raw(lambda connection: ended.wait(30)) as port:
        began = monotonic()
        assert looked(f"http://127.0.0.1:{port}/v1", step_s=0.2) == (
            "failed",
            "HTTP: connected, and then no answer in time",
        )
        assert looked(f"https://127.0.0.1:{port}/v1", step_s=0.2) == (
            "failed",
            "TLS: the handshake was not finished in time",
        )
        assert looked(f"http://127.0.0.1:{port}/v1", whole_s=0.2) == (
            "failed",
            "no whole answer in 0.2 s",
        )
        assert monotonic() - began < 10
        ended.set()


def test_without_upstreams_there_is_nothing_to_ask() -> None:
    assert check_upstreams(Config()) == [
        ("upstreams", "ok", "none are configured: the demo model answers")
    ]
