"""Connections from clients: who sends no more and waits for its answer, who is gone, several
requests at once, HTTP/1.0, idle ones."""

import json
import socket
import time
from collections.abc import Iterator

import pytest

from protocol.request import DialectName
from tests.support.checks.figures import Figure
from tests.support.clients.raw import Answers
from tests.support.clients.readers import PATHS, request
from tests.support.json_values import as_json
from tests.support.servers.product import KEY, Product, running
from tests.support.servers.stores import Stores
from tests.support.upstreams import product as upstreams
from tests.support.upstreams.product import call_of, new_session
from tests.support.upstreams.replay import Replay

DIALECTS: list[DialectName] = ["openai", "anthropic"]
IDLE_S = 2.0


@pytest.fixture(scope="module")
def product(stores: Stores, replay: Replay) -> Iterator[Product]:
    config = upstreams.config(replay)
    config["limits"] |= {"client_idle_s": IDLE_S, "keepalive_s": 1.0}
    with running(*stores, config) as made:
        yield made
        assert "Traceback" not in product_log(made)


def product_log(product: Product) -> str:
    return "".join(
        child.log.read_text(errors="replace")
        for child in product.children
        if child.role == "gateway"
    )


class Client:
    """A connection, and what came on it."""

    def __init__(self, product: Product) -> None:
        self.socket = socket.create_connection(("127.0.0.1", product.port), timeout=10)
        self.session, self.came = new_session(), b""

    def ask(
        self,
        prompt: str,
        *,
        dialect: DialectName = "openai",
        model: str = "demo",
        streams: bool = True,
        version: str = "1.1",
        more: str = "",
    ) -> None:
        """Send a request."""
        data = as_json(request(prompt, dialect, model=model, stream=streams))
        lines = [
            f"POST {PATHS[dialect]} HTTP/{version}",
            f"authorization: Bearer {KEY}",
            "x-sluice-policy: noop",
        ]
        lines += [
            f"x-sluice-session: {self.session}",
            f"content-length: {len(data)}",
            "host: x",
            *([more] if more else []),
        ]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode() + data)

    def send_no_more(self) -> None:
        """Close one half."""
        self.socket.shutdown(socket.SHUT_WR)

    def until(self, mark: bytes) -> None:
        """Read until `mark` came."""
        while mark not in self.came:
            data = self.socket.recv(65536)
            assert data, f"the end came before {mark!r}: {self.came!r}"
            self.came += data

    def rest(self) -> bytes:
        """Read to the end."""
        with self.socket:
            while data := self.socket.recv(65536):
                self.came += data
        return self.came


@pytest.mark.slow
@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_client_that_sends_no_more_gets_its_whole_answer(
    product: Product, dialect: DialectName, streams: bool
) -> None:
    client = Client(product)
    client.ask("long 30 slowly, with a gap 20 ms", dialect=dialect, streams=streams)
    client.send_no_more()
    answers = Answers(client.rest())
    # nothing was to be read of the answer yet
    assert answers.interim == [100]
    ((status, body),) = answers.whole
    assert status == 200 and body.count(b"word30") == 1
    assert call_of(product, client.session)["reason"] == "complete"


def test_a_client_that_sends_no_more_within_its_answer_gets_the_rest(product: Product) -> None:
    client = Client(product)
    client.ask("long 30 slowly, with a gap 30 ms")
    client.until(b"word3")
    client.send_no_more()
    answers = Answers(client.rest())
    ((status, body),) = answers.whole
    # the first digit of a chunk's size is no part of a body
    assert status == 200 and not answers.interim and b"\r\n0" in client.came.split(b"word3", 1)[1]
    text = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
    assert "".join(
        f["choices"][0]["delta"].get("content") or "" for f in text if f["choices"]
    ) == "".join(f"word{n} " for n in range(1, 31))


def test_requests_sent_at_once_are_answered_in_order_though_nothing_follows(
    product: Product,
) -> None:
    client = Client(product)
    for number in (3, 2, 1):
        client.ask(f"long {number} slowly, with a gap 20 ms", streams=number == 2)
    client.send_no_more()
    answers = Answers(client.rest())
    assert [(s, b.count(b"word")) for s, b in answers.whole] == [(200, 3), (200, 2), (200, 1)]


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
def test_a_client_of_http_1_0_gets_no_chunks(product: Product, streams: bool) -> None:
    client = Client(product)
    client.ask(
        "long 5 slowly, with a gap 20 ms",
        streams=streams,
        version="1.0",
        more="connection: keep-alive",
    )
    head, body = client.rest().split(b"\r\n\r\n", 1)
    assert (
        b"transfer-encoding" not in head
        and b"connection: close" in head
        and head.startswith(b"HTTP/1.1 200 ")
    )
    if streams:
        assert (
            b"content-length" not in head
            and body.startswith(b"data: {")
            and body.endswith(b"data: [DONE]\n\n")
        )
    else:
        assert (
            b"content-length: %d\r\n" % len(body) in head + b"\r\n"
            and json.loads(body)["object"] == "chat.completion"
        )


@pytest.mark.slow
def test_an_idle_connection_is_kept_as_long_as_configured(product: Product, figure: Figure) -> None:
    client = Client(product)
    client.ask("hello", streams=False)
    client.until(b'"usage"')
    began = time.monotonic()
    client.rest()
    took = time.monotonic() - began
    figure("client_idle_s 2: the gateway closes after", took, "s")
    assert IDLE_S - 0.1 <= took < IDLE_S + 1
