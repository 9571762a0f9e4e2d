"""What goes wrong at an upstream, as both SDKs see it, same dialect and crossed; nothing is
retried, nothing of its payload leaks."""

import dataclasses
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import anthropic
import openai
import pytest

from protocol.request import DialectName
from tests.e2e.conftest import configured
from tests.support.clients.sdk_calls import ask
from tests.support.json_values import Json, as_json
from tests.support.servers.ports import free_port
from tests.support.servers.product import Product, running
from tests.support.servers.stores import Stores
from tests.support.upstreams.product import call_of, new_session, recorded_bytes
from tests.support.upstreams.recordings import own
from tests.support.upstreams.replay import Replay, Reply, stream

DIALECTS: list[DialectName] = ["openai", "anthropic"]
MODELS: dict[DialectName, str] = {"openai": "gpt-x", "anthropic": "claude-x"}
TEXTS: dict[DialectName, str] = {"openai": "openai-text.sse", "anthropic": "anthropic-text.sse"}
crossed = pytest.mark.parametrize(
    ("client", "provider"), [(c, p) for c in DIALECTS for p in DIALECTS]
)
SECRET = "what-the-provider-let-slip"
CALL_S = 6.0


@pytest.fixture(scope="module")
def product(
    stores: Stores,
    replay_server: Replay,
) -> Iterator[Product]:
    config = configured(replay_server)
    config["limits"] |= {
        "first_byte_s": 1.0,
        "idle_s": 1.0,
        "output_bytes": 2**20,
        "event_bytes": 2**14,
        "call_s": CALL_S,
    }
    config["upstreams"]["nobody"] = {
        "dialect": "openai",
        "base_url": f"http://127.0.0.1:{free_port()}/v1",
    }
    config["models"].append({"match": "nobody-*", "upstream": "nobody"})
    with running(*stores, config) as made:
        yield made


class Failed(Exception):
    """What an SDK raised: the status, the fields of the error object, the headers."""

    def __init__(self, error: Any) -> None:
        response: Any = getattr(error, "response", None)
        self.status: int = getattr(error, "status_code", 0) or 0
        body: Any = error.body
        self.error: Json = body.get("error", body) if isinstance(body, dict) else {}
        self.headers: dict[str, str] = dict(response.headers) if response is not None else {}
        self.text = f"{error.message} {error.body}"


def failure(
    product: Product,
    client: DialectName,
    provider: str,
    *,
    mode: Literal["whole", "iterate"],
    session: str = "",
) -> Failed:
    """Ask, and return the error that the SDK raises."""
    headers = {"x-sluice-session": session or new_session(), "x-sluice-policy": "noop"}
    with pytest.raises((openai.APIError, anthropic.APIError)) as raised:
        ask(product.url, client, mode, "hello", model=provider, headers=headers)
    failed = Failed(raised.value)
    assert SECRET not in failed.text
    return failed


def error_body(dialect: DialectName, kind: str, message: str = "no") -> bytes:
    """A provider's error, with something in it that is not ours to forward."""
    error = {"type": kind, "message": message, "internal": SECRET}
    return as_json(
        {"type": "error", "error": error}
        if dialect == "anthropic"
        else {"error": {**error, "code": None}}
    )


STATUSES: list[tuple[int, str, int, int]] = [
    (400, "invalid_request_error", 400, 400),
    (401, "authentication_error", 502, 502),
    (402, "billing_error", 502, 502),
    (403, "permission_error", 403, 403),
    (404, "not_found_error", 404, 404),
    (413, "request_too_large", 413, 413),
    (429, "rate_limit_error", 429, 429),
    (500, "api_error", 502, 500),
    (529, "overloaded_error", 503, 529),
]


@pytest.mark.slow
@pytest.mark.case("U1")
@crossed
@pytest.mark.parametrize("mode", ["whole", "iterate"])
@pytest.mark.parametrize(("status", "kind", "ours", "theirs"), STATUSES)
def test_error_statuses(
    product: Product,
    upstream: Replay,
    client: DialectName,
    provider: DialectName,
    mode: Any,
    status: int,
    kind: str,
    ours: int,
    theirs: int,
) -> None:
    upstream.answer(
        Reply(
            error_body(provider, kind, "said the provider"),
            status=status,
            headers={"retry-after": "7"},
        )
    )
    failed = failure(product, client, MODELS[provider], mode=mode)
    assert failed.status == (ours if client == "openai" else theirs)
    assert len(upstream.asked) == 1
    if status in (401, 402):
        # our account with the provider, not the client's: nothing of it is said
        assert "said the provider" not in failed.text
        assert failed.headers["x-should-retry"] == "false"
    else:
        assert "said the provider" in failed.error["message"]
        assert failed.headers["retry-after"] == "7"
    if client == "anthropic":
        assert failed.error["type"] == (kind if status not in (401, 402) else "api_error")
    assert failed.headers["x-sluice-call-id"]


@pytest.mark.case("U1")
@crossed
@pytest.mark.parametrize(
    "body", [b"", b"<html>bad gateway</html>", b"[]", b'{"error":"x"}', b"\xff", b"[" * 50_000]
)
def test_error_answers_that_are_not_the_dialects(
    product: Product, upstream: Replay, client: DialectName, provider: DialectName, body: bytes
) -> None:
    upstream.answer(Reply(body, status=503, content_type="text/html"))
    failed = failure(product, client, MODELS[provider], mode="iterate")
    assert failed.status == (503 if client == "openai" else 529)
    assert "html" not in failed.error["message"]


@pytest.mark.slow
@pytest.mark.case("U5")
@crossed
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"<html>",
        b'{"choices":[]}',
        b'{"type":"message","content":7}',
        b"[" * 50_000,
    ],
)
def test_answers_that_are_not_the_dialects(
    product: Product, upstream: Replay, client: DialectName, provider: DialectName, body: bytes
) -> None:
    upstream.answer(Reply(body))
    session = new_session()
    failed = failure(product, client, MODELS[provider], mode="whole", session=session)
    assert failed.status in (500, 502)
    assert failed.headers["x-should-retry"] == "false"
    call = call_of(product, session)
    assert call["state"] == "FAILED"
    assert recorded_bytes(product, call["call_id"]) == body


@pytest.mark.case("U10")
@crossed
def test_a_redirect_is_not_followed(
    product: Product, upstream: Replay, client: DialectName, provider: DialectName
) -> None:
    upstream.answer(Reply(b"", status=307, headers={"location": f"{upstream.url}/v1/messages"}))
    failed = failure(product, client, MODELS[provider], mode="iterate")
    assert failed.status in (500, 502)
    assert len(upstream.asked) == 1


@pytest.mark.case("U1")
@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("mode", ["whole", "iterate"])
def test_an_upstream_that_is_not_there(product: Product, client: DialectName, mode: Any) -> None:
    session = new_session()
    failed = failure(product, client, "nobody-x", mode=mode, session=session)
    assert failed.status == 502
    assert "cannot be reached" in failed.error["message"]
    assert call_of(product, session)["state"] == "FAILED"


@pytest.mark.case("U11")
@crossed
@pytest.mark.parametrize("ending", ["", "cut"])
def test_a_stream_without_its_end(
    product: Product, upstream: Replay, client: DialectName, provider: DialectName, ending: Any
) -> None:
    body = own(TEXTS[provider])
    half = body[: body.rindex(b"\n\n", 0, body.rindex(b"stop") - 100) + 2]
    assert 200 < len(half) < len(body)
    upstream.answer(stream(half, cutting="events", ending=ending))
    session = new_session()
    failed = failure(product, client, MODELS[provider], mode="iterate", session=session)
    # the status was 200 already: the error is a frame of the stream
    assert failed.error["message"]
    call = call_of(product, session)
    assert call["state"] == "FAILED" and call["reason"] != "complete"
    assert recorded_bytes(product, call["call_id"]) == half
    assert len(upstream.asked) == 1


@pytest.mark.case("U2")
@crossed
def test_silence_before_the_first_byte_is_bounded(
    product: Product, upstream: Replay, client: DialectName, provider: DialectName
) -> None:
    upstream.answer(dataclasses.replace(stream(b""), ending="hang"))
    failed = failure(product, client, MODELS[provider], mode="iterate")
    assert failed.status == 504
    assert failed.error["type"] == ("timeout_error" if client == "anthropic" else "api_error")


@pytest.mark.case("U2")
@crossed
def test_silence_within_a_stream_is_bounded(
    product: Product, upstream: Replay, client: DialectName, provider: DialectName
) -> None:
    body = own(TEXTS[provider])
    half = body[: body.index(b"\n\n", len(body) // 3) + 2]
    upstream.answer(stream(half, cutting="events", ending="hang"))
    session = new_session()
    failure(product, client, MODELS[provider], mode="iterate", session=session)
    call = call_of(product, session)
    assert call["state"] == "FAILED"
    assert recorded_bytes(product, call["call_id"]) == half


@pytest.mark.slow
@pytest.mark.case("U2")
@pytest.mark.parametrize("provider", DIALECTS)
def test_u2_a_drip_ends_with_the_calls_time(
    product: Product, upstream: Replay, provider: DialectName
) -> None:
    upstream.answer(stream(own(TEXTS[provider]), cutting="bytes", gap_s=0.3))
    sessions: dict[DialectName, str] = {client: new_session() for client in DIALECTS}
    began = time.monotonic()

    def drip(client: DialectName) -> Failed:
        return failure(product, client, MODELS[provider], mode="iterate", session=sessions[client])

    with ThreadPoolExecutor() as clients:
        failures = dict(zip(DIALECTS, clients.map(drip, DIALECTS), strict=True))
    assert time.monotonic() - began > CALL_S - 0.5
    for client, failed in failures.items():
        assert "deadline has passed" in failed.error["message"]
        assert call_of(product, sessions[client])["reason"] == "timeout_error"


def text_chunks(dialect: DialectName, text: str, times: int) -> bytes:
    """A stream of many deltas and no end."""
    if dialect == "openai":
        chunk = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "delta": {"content": text}}],
        }
        return f"data: {json.dumps(chunk)}\n\n".encode() * times
    start = own("anthropic-text.sse").split(b"\n\n")[0] + b"\n\n"
    block = (
        b"event: content_block_start\ndata:"
        b' {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    )
    delta = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": text},
    }
    return (
        start
        + block
        + f"event: content_block_delta\ndata: {json.dumps(delta)}\n\n".encode() * times
    )


@pytest.mark.case("U4")
@crossed
def test_more_than_the_limit_ends_the_call(
    product: Product, upstream: Replay, client: DialectName, provider: DialectName
) -> None:
    upstream.answer(stream(text_chunks(provider, "x" * 5000, 300)))
    session = new_session()
    failure(product, client, MODELS[provider], mode="iterate", session=session)
    call = call_of(product, session)
    assert call["state"] == "FAILED"
    assert len(recorded_bytes(product, call["call_id"])) <= 2**20


@pytest.mark.case("U4")
@crossed
def test_an_event_without_end_ends_the_call(
    product: Product, upstream: Replay, client: DialectName, provider: DialectName
) -> None:
    upstream.answer(stream(b"data: " + b"x" * (2**14 * 6 + 100)))
    failed = failure(product, client, MODELS[provider], mode="iterate")
    assert failed.status in (500, 502)
