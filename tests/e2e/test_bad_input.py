"""Bad input gets a clear error in the caller's dialect, and nothing is paid for: the upstream is
never asked."""

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx2 as httpx
import pytest

from db.keys import KeyStore
from protocol.dialects.table import CLIENTS
from protocol.request import DialectName
from tests.support.clients.readers import PATHS
from tests.support.json_values import Json, as_json
from tests.support.servers.product import CLIENT_KEY, KEY, Product
from tests.support.upstreams.replay import Replay
from tests.support.waiting import wait_for

T = TypeVar("T")
MODELS: dict[DialectName, str] = {"openai": "gpt-x", "anthropic": "claude-x", "responses": "gpt-x"}
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
}
KINDS |= {405: "invalid_request_error", 413: "request_too_large"}

dialects = pytest.mark.parametrize("dialect", CLIENTS)


@functools.cache
def http() -> httpx.Client:
    """One client for all tests: making one costs more than a request."""
    return httpx.Client(timeout=30)


def good(dialect: DialectName, **changes: Any) -> Json:
    """A request that would be served."""
    most, said = (
        ("max_output_tokens", "input") if dialect == "responses" else ("max_tokens", "messages")
    )
    body: Json = {
        "model": MODELS[dialect],
        most: 10,
        said: [{"role": "user", "content": "hello"}],
    }
    body |= changes
    return {k: v for k, v in body.items() if v is not None}


def post(
    product: Product,
    dialect: DialectName,
    body: bytes | Json,
    *,
    key: str | None = KEY,
    path: str = "",
    **headers: str,
) -> httpx.Response:
    """Send a request as a client of that dialect does."""
    head = {
        "content-type": "application/json",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    if dialect == "anthropic":
        head["anthropic-version"] = "2023-06-01"
    if key is not None:
        head |= {"x-api-key": key} if dialect == "anthropic" else {"authorization": f"Bearer {key}"}
    data = body if isinstance(body, bytes) else as_json(body)
    return http().post(
        product.url + (path or PATHS[dialect]), content=data, headers=head, timeout=30
    )


def refused(
    upstream: Replay,
    dialect: DialectName,
    answer: httpx.Response,
    status: int,
    *,
    says: str = "",
    code: str = "",
) -> None:
    """The answer is that error in that dialect, keeps the key to itself, and upstream was not
    asked."""
    assert answer.status_code == CLIENTS[dialect].statuses.get(status, status), answer.text
    assert answer.headers["content-type"] == "application/json"
    data = answer.json()
    if dialect == "anthropic":
        assert data["type"] == "error"
        assert data["error"]["type"] == KINDS.get(status, data["error"]["type"])
    else:
        assert set(data["error"]) == {"message", "type", "param", "code"}
        assert code in ("", data["error"]["code"])
    assert says in data["error"]["message"]
    assert KEY not in answer.text and "sk-" not in answer.text
    assert upstream.asked == []


# --- who ---


async def kept(product: Product, use: Callable[[KeyStore], Awaitable[T]]) -> T:
    """What comes of using the keys in Postgres."""
    store = KeyStore.open(product.database_url)
    try:
        return await use(store)
    finally:
        await store.close()


@pytest.mark.case("C6")
@dialects
@pytest.mark.parametrize("key", [None, "wrong", KEY + "x", KEY[:-1], "x" * 10_000])
def test_no_key_or_a_wrong_one(
    product: Product, upstream: Replay, dialect: DialectName, key: str | None
) -> None:
    answer = post(product, dialect, good(dialect), key=key)
    says = "no API key was sent" if key is None else "Incorrect API key provided"
    refused(upstream, dialect, answer, 401, says=says, code="invalid_api_key")


@pytest.mark.slow
@pytest.mark.case("C6")
def test_a_revoked_key(product: Product, upstream: Replay) -> None:
    text = asyncio.run(kept(product, lambda store: store.create("revoked")))
    hello = good("openai", model="demo")
    assert post(product, "openai", hello, key=text).status_code == 200
    asyncio.run(kept(product, lambda store: store.revoke("revoked")))
    wait_for(
        lambda: post(product, "openai", hello, key=text).status_code == 401,
        what="the key is revoked",
    )
    for dialect in CLIENTS:
        refused(
            upstream,
            dialect,
            post(product, dialect, good(dialect), key=text),
            401,
            code="invalid_api_key",
        )


@pytest.mark.case("C6")
@dialects
@pytest.mark.parametrize("name", ["key", "api_key", "token"])
def test_a_key_in_the_address_is_none(
    product: Product, upstream: Replay, dialect: DialectName, name: str
) -> None:
    answer = post(product, dialect, good(dialect), key=None, path=f"{PATHS[dialect]}?{name}={KEY}")
    refused(upstream, dialect, answer, 401)


# --- where to ---


@dialects
@pytest.mark.parametrize("model", ["nothing", "gpt", "Demo", "openai/gpt-x", "*", "x" * 200])
def test_an_unknown_model(
    product: Product, upstream: Replay, dialect: DialectName, model: str
) -> None:
    refused(
        upstream,
        dialect,
        post(product, dialect, good(dialect, model=model)),
        404,
        says="model",
        code="model_not_found",
    )


@dialects
def test_an_unknown_policy(product: Product, upstream: Replay, dialect: DialectName) -> None:
    answer = post(product, dialect, good(dialect), x_sluice_policy="nothing")
    refused(
        upstream,
        dialect,
        answer,
        404,
        says="there is no policy 'nothing'; this key may use 'default', 'noop', 'upper'",
        code="policy_not_found",
    )
    assert "x-sluice-policy" in answer.text


@dialects
def test_a_default_policy_that_is_not_in_the_configuration(
    product: Product, upstream: Replay, dialect: DialectName
) -> None:
    text = asyncio.run(
        kept(product, lambda store: store.create(f"typo-{dialect}", policies=("defualt", "noop")))
    )
    answer = post(product, dialect, good(dialect), key=text)
    refused(
        upstream,
        dialect,
        answer,
        404,
        says="there is no policy 'defualt', the default of this key",
        code="policy_not_found",
    )
    said = answer.json()["error"]["message"]
    # no header was sent, so none is to blame
    assert "which may use 'noop': name one in the header" in said and not said.startswith(
        "x-sluice-policy"
    )
    assert (
        post(
            product, dialect, good(dialect, model="demo"), key=text, x_sluice_policy="noop"
        ).status_code
        == 200
    )


@dialects
def test_a_policy_that_the_key_may_not_use(
    product: Product, upstream: Replay, dialect: DialectName
) -> None:
    answer = post(product, dialect, good(dialect), key=CLIENT_KEY, x_sluice_policy="noop")
    says = "this key may not use the policy 'noop'; it may use 'default'"
    refused(upstream, dialect, answer, 403, says=says, code="policy_forbidden")


@dialects
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon", "601", ""])
def test_a_wrong_timeout(
    product: Product, upstream: Replay, dialect: DialectName, value: str
) -> None:
    refused(
        upstream,
        dialect,
        post(product, dialect, good(dialect), x_sluice_timeout_s=value),
        400,
        says="x-sluice-timeout-s",
    )


@pytest.mark.case("C7")
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/chat/completions/",
        "/v1/files",
        "/v2/x",
    ],
)
def test_an_unknown_path(
    product: Product, upstream: Replay, dialect: DialectName, path: str
) -> None:
    refused(
        upstream,
        dialect,
        post(product, dialect, good(dialect), path=path),
        404,
        says="is not served",
        code="unknown_path",
    )


@dialects
def test_a_wrong_method(product: Product, upstream: Replay, dialect: DialectName) -> None:
    answer = http().get(
        product.url + PATHS[dialect], headers={"authorization": f"Bearer {KEY}"}, timeout=10
    )
    refused(upstream, dialect, answer, 405, says="POST", code="method_not_allowed")


# --- what ---


@pytest.mark.case("C4")
@dialects
@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large(
    product: Product, upstream: Replay, dialect: DialectName, announced: bool
) -> None:
    large = as_json(good(dialect, user="x" * (2**20 + 1)))
    head = {"x-api-key": KEY, "content-type": "application/json"}
    if announced:
        answer = http().post(product.url + PATHS[dialect], content=large, headers=head, timeout=30)
    else:
        answer = http().post(
            product.url + PATHS[dialect],
            content=iter([large[:1000], large[1000:]]),
            headers=head,
            timeout=30,
        )
    refused(upstream, dialect, answer, 413, says="larger than", code="request_too_large")


@pytest.mark.case("C4")
@dialects
def test_a_compressed_body(product: Product, upstream: Replay, dialect: DialectName) -> None:
    answer = post(product, dialect, good(dialect), content_encoding="br")
    refused(
        upstream, dialect, answer, 415, says="without content-encoding", code="unsupported_encoding"
    )
    assert answer.headers["accept-encoding"] == "gzip, zstd"


@pytest.mark.case("C4")
@dialects
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe{}",
        b'{"model":NaN}',
        b"{}{}",
        b'{"a":1e999}',
        b"[" * 100_000,
        b'{"a":' * 200 + b"1" + b"}" * 200,
        b"--x\r\ncontent-disposition: form-data\r\n\r\n",
        b'{"model":"gpt-x","model":"gpt-x","messages":[]}',
        b'{"model":"gpt-x","messages":[{"role":"user","content":"x","content":"y"}]}',
        b'{"model":"gpt-x","messages":[{"role":"user","content":"\\ud800"}]}',
    ],
)
def test_a_body_that_is_not_one_json_object(
    product: Product, upstream: Replay, dialect: DialectName, body: bytes
) -> None:
    refused(
        upstream,
        dialect,
        post(product, dialect, body),
        400,
        says="the request body",
        code="invalid_json",
    )


WRONG: list[tuple[DialectName, Json, str]] = [
    ("openai", {"messages": []}, "messages"),
    ("openai", {"max_tokens": True}, "max_tokens"),
    ("openai", {"base_url": "http://evil"}, "base_url"),
    ("anthropic", {"max_tokens": None}, "max_tokens"),
    ("anthropic", {"api_key": "not-ours"}, "api_key"),
    ("responses", {"input": [{"type": "unheard_of"}]}, "input"),
    ("responses", {"background": True}, "background"),
]
"""Some of each; all of them are in the unit tests of requests."""


@pytest.mark.case("C5", "A8")
@pytest.mark.parametrize(
    ("dialect", "changes", "param"), WRONG, ids=[f"{d}-{json.dumps(c)[:60]}" for d, c, _ in WRONG]
)
def test_wrong_fields_are_named(
    product: Product, upstream: Replay, dialect: DialectName, changes: Json, param: str
) -> None:
    body = good(dialect) | changes
    body = {k: v for k, v in body.items() if v is not None}
    answer = post(product, dialect, body)
    refused(
        upstream,
        dialect,
        answer,
        400,
        says=param if dialect == "anthropic" else "",
        code="" if dialect == "responses" else "invalid_request",
    )
    if dialect != "anthropic":
        assert answer.json()["error"]["param"] == param


def test_count_tokens_of_a_wrong_body(product: Product, upstream: Replay) -> None:
    answer = post(
        product, "anthropic", good("anthropic", messages=[]), path="/v1/messages/count_tokens"
    )
    refused(upstream, "anthropic", answer, 400, says="messages")


@dialects
def test_refusals_are_on_record(product: Product, upstream: Replay, dialect: DialectName) -> None:
    answer = post(product, dialect, good(dialect, stream=7))
    call_id = answer.headers["x-sluice-call-id"]
    calls = wait_for(
        lambda: product.audit("calls", call_id=call_id)["items"], what="the call on record"
    )
    call = wait_for(
        lambda: next(
            (c for c in product.audit("calls", call_id=call_id)["items"] if c["ended_at"]), None
        ),
        what="its end",
    )
    assert len(calls) == 1
    assert (call["state"], call["reason"], call["status"]) == ("FAILED", "invalid_request", 400)


@dialects
@pytest.mark.parametrize(
    "model", ["a\0b", "\u202e\U0001f600", "'; DROP TABLE calls; --", "<script>", "%00", "\n"]
)
def test_odd_models_are_refused_and_on_record(
    product: Product, upstream: Replay, dialect: DialectName, model: str
) -> None:
    answer = post(product, dialect, good(dialect, model=model))
    refused(upstream, dialect, answer, 404, code="model_not_found")
    call_id = answer.headers["x-sluice-call-id"]
    call = wait_for(
        lambda: next(
            (c for c in product.audit("calls", call_id=call_id)["items"] if c["ended_at"]), None
        ),
        what="its end",
    )
    assert call["reason"] == "model_not_found"
    assert call["model"].replace("\ufffd", "\0") == model


@dialects
@pytest.mark.parametrize(
    "session", [b"s\xe9ance", b"\xf0\x9f\x98\x80", b"x" * 200, b"a, b", b"'\";"]
)
def test_odd_sessions_are_on_record(
    product: Product, upstream: Replay, dialect: DialectName, session: bytes
) -> None:
    body = as_json(good(dialect, n=2))
    answer = http().post(
        product.url + PATHS[dialect],
        content=body,
        headers=[(b"x-api-key", KEY.encode()), (b"x-sluice-session", session)],
    )
    refused(upstream, dialect, answer, 400)
    call_id = answer.headers["x-sluice-call-id"]
    calls = wait_for(
        lambda: product.audit("calls", call_id=call_id)["items"], what="the call on record"
    )
    assert calls[0]["session"] == session.decode("latin-1")


@dialects
@pytest.mark.parametrize(
    ("header", "most"),
    [("x-sluice-session", 200), ("x-sluice-policy", 64), ("x-sluice-project", 4_096)],
)
def test_a_name_past_its_bound_is_refused(
    product: Product, upstream: Replay, dialect: DialectName, header: str, most: int
) -> None:
    body = as_json(good(dialect))
    answer = http().post(
        product.url + PATHS[dialect],
        content=body,
        headers={"x-api-key": KEY, header: "x" * (most + 1)},
    )
    refused(
        upstream,
        dialect,
        answer,
        400,
        says=f"{header} has {most + 1:,} characters; at most {most:,} are allowed",
    )


@pytest.mark.case("A7")
def test_keys_are_in_no_log(product: Product, upstream: Replay) -> None:
    post(product, "openai", good("openai"), key="sk-a-wrong-key-that-nobody-has")
    logs = "".join(c.log.read_text() for c in product.children)
    assert "sk-" not in logs
    assert "hello" not in logs
