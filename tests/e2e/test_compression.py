"""Compressed bodies of requests, compressed answers of upstreams, and answers compressed for
clients that ask."""

import gzip
import zlib
from collections.abc import Iterator

import httpx2 as httpx
import pytest

from protocol.bytes.compressed import zstd
from tests.e2e.conftest import configured
from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY, Product, running
from tests.support.servers.stores import Stores
from tests.support.upstreams.replay import Replay, Reply, stream

HEAD = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
WORDS = [f"word{n} " for n in range(4)]
FRAMES = b"".join(
    b"data: %b\n\n"
    % as_json({"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": word}}]})
    for word in WORDS
)
ASKED = as_json(
    {"model": "gpt-x", "stream": True, "messages": [{"role": "user", "content": "hello " * 5000}]}
)


@pytest.fixture(scope="module")
def product(stores: Stores, replay_server: Replay) -> Iterator[Product]:
    """Whose key compresses, and whose upstream is asked for gzip."""
    config: Json = configured(replay_server)
    config["keys"][0]["compress"] = "gzip"
    config["upstreams"]["openai"]["compress"] = True
    with running(*stores, config) as made:
        yield made


def zipped(data: bytes, *, end: bool = True) -> bytes:
    coder = zlib.compressobj(wbits=31)
    return coder.compress(data) + coder.flush(zlib.Z_FINISH if end else zlib.Z_SYNC_FLUSH)


def streamed(product: Product, body: bytes = ASKED, **headers: str) -> tuple[httpx.Headers, str]:
    """Read until all the words are there: their upstream does not end."""
    head = HEAD | {name.replace("_", "-"): value for name, value in headers.items()}
    url, text = f"{product.url}/v1/chat/completions", ""
    with httpx.stream("POST", url, content=body, headers=head, timeout=20) as answer:
        for each in answer.iter_text():
            text += each
            if WORDS[-1] in text:
                break
        return answer.headers, text


@pytest.mark.parametrize("coding", ["gzip", "zstd", "identity"])
def test_each_release_of_an_answer_comes_at_once(
    product: Product, upstream: Replay, coding: str
) -> None:
    """A body in each coding, an upstream whose gzip has no end, and a client that gets gzip."""
    body = {"gzip": zipped(ASKED), "zstd": zstd.compress(ASKED), "identity": ASKED}
    upstream.answer(
        Reply(
            zipped(FRAMES, end=False),
            content_type="text/event-stream",
            headers={"content-encoding": "gzip"},
            ending="hang",
        )
        if coding != "identity"
        else stream(FRAMES, cutting="events", ending="hang")
    )
    headers, text = streamed(
        product, body[coding], content_encoding=coding, accept_encoding="br, gzip;q=0.5"
    )
    assert headers["content-encoding"] == "gzip" and headers["vary"] == "accept-encoding"
    assert all(word in text for word in WORDS)
    [asked] = upstream.asked
    assert asked.raw == ASKED, "upstream gets plain bytes"
    assert asked.headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("coding", ["identity", "gzip;q=0", "gzip;q=0.5, identity;q=0.8", "br"])
def test_who_does_not_ask_gets_plain_bytes(product: Product, upstream: Replay, coding: str) -> None:
    upstream.answer(stream(FRAMES, ending="hang"))
    headers, _ = streamed(product, accept_encoding=coding)
    assert "content-encoding" not in headers


def test_a_whole_answer_and_an_error_are_compressed_too(product: Product, upstream: Replay) -> None:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "hi"},
        "finish_reason": "stop",
    }
    whole: Json = {"id": "x", "model": "m", "object": "chat.completion", "created": 1}
    whole["choices"] = [choice]
    url = f"{product.url}/v1/chat/completions"
    body = ASKED.replace(b'"stream":true', b'"stream":false')
    for status, reply in ((200, whole), (400, {"error": {"message": "hi"}})):
        upstream.answer(
            Reply(zipped(as_json(reply)), status=status, headers={"content-encoding": "gzip"})
        )
        answer = httpx.post(url, content=body, headers=HEAD | {"accept-encoding": "gzip"})
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.status_code == status and "hi" in answer.text


@pytest.mark.parametrize(
    ("body", "coding", "status", "says"),
    [
        (zipped(ASKED)[:-9], "gzip", 400, "it was cut; send it again"),
        (zipped(ASKED) + b"x", "gzip", 400, "bytes follow the end"),
        (zipped(ASKED) * 2, "gzip", 400, "compress it as one piece"),
        (ASKED, "gzip", 400, "the body is not the gzip data"),
        (zipped(ASKED), "zstd", 400, "the body is not the zstd data"),
        (zipped(ASKED), "gzip, gzip", 415, "gzip or zstd, one of them and once"),
        (zipped(ASKED), "br", 415, "without content-encoding"),
        (zipped(b" " * 2**18), "gzip", 413, "opens to more than 200 times its size"),
        (zipped(ASKED[:-1] + b" " * 2**20 + b"}"), "gzip", 413, "200 times"),
        (gzip.compress(bytes(range(256)) * 2**13, 1), "gzip", 413, "larger than 1048576 bytes"),
        (
            zlib.compress(b"")[:0] + b"\x1f\x8b\x08" + b"\0" * 7 + b"\0\0\0\xff\xff" * 2**18,
            "gzip",
            413,
            "larger than 1048576 bytes",
        ),
    ],
)
def test_a_body_that_is_not_taken(
    product: Product, upstream: Replay, body: bytes, coding: str, status: int, says: str
) -> None:
    upstream.asked.clear()
    url = f"{product.url}/v1/chat/completions"
    answer = httpx.post(url, content=body, headers=HEAD | {"content-encoding": coding})
    assert answer.status_code == status and says in answer.json()["error"]["message"]
    assert not upstream.asked
    assert (answer.headers.get("accept-encoding") == "gzip, zstd") is (status == 415)
