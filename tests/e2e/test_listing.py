"""What a gateway says of itself: the models that may be asked for, in both SDKs, and the page at
/."""

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2 as httpx
import openai
import pytest

from gateway.index_page import SERVED
from tests.support.clients.sdk_calls import anthropic_client, openai_client
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Product
from tests.support.upstreams.product import config, replayed
from tests.support.upstreams.replay import Replay

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
PAGES = "/debug"
"""They lead whoever has not logged in to the login."""


def naming(server: Replay) -> Json:
    made = config(server)
    made["models"][0]["names"] = ["gpt-x", "house/model"]
    return made


@pytest.fixture(scope="module")
def product(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[Product]:
    folder: Path = tmp_path_factory.mktemp("listing")
    with replayed(folder, redis_url, database_url, naming) as (made, _):
        made.answer_audit()
        yield made


@pytest.mark.slow
def test_both_sdks_list_what_routes_name(product: Product) -> None:
    want = ["demo", "demo-openai", "demo-anthropic", "demo-responses", "gpt-x", "house/model"]
    with openai_client(product.url) as client, anthropic_client(product.url) as other:
        assert [m.id for m in client.models.list()] == [m.id for m in other.models.list()] == want
        assert {m.id: m.owned_by for m in client.models.list()}["house/model"] == "openai"


@pytest.mark.parametrize(
    "name", ["demo", "gpt-x", "house/model", "gpt-of-a-pattern", "claude-of-a-pattern"]
)
def test_both_sdks_retrieve_what_may_be_asked_for(product: Product, name: str) -> None:
    with openai_client(product.url) as client, anthropic_client(product.url) as other:
        assert (client.models.retrieve(name).id, other.models.retrieve(name).id) == (name, name)
        assert other.models.retrieve(name).type == "model"


@pytest.mark.parametrize("name", ["nobody", "x" * 4000])
def test_an_unknown_model_is_not_found_in_the_clients_form_and_patterns_are_named(
    product: Product, name: str
) -> None:
    asked = [{"role": "user", "content": "hello"}]
    with openai_client(product.url) as client, anthropic_client(product.url) as other:
        with pytest.raises(openai.NotFoundError) as ours:
            client.models.retrieve(name)
        with pytest.raises(anthropic.NotFoundError) as theirs:
            other.models.retrieve(name)
        assert (ours.value.code, ours.value.param) == ("model_not_found", "model")
        said: Any = theirs.value.body
        assert said["type"] == "error" and said["error"]["type"] == "not_found_error"
        for text in (ours.value.message, said["error"]["message"]):
            assert (
                f"there is no model {name[:100]!r} here; GET /v1/models lists them" in text
                and "'gpt-*', 'claude-*'" in text
            )
        with pytest.raises(openai.NotFoundError, match=r"'gpt-\*', 'claude-\*' work too"):
            client.chat.completions.create(model="nobody", messages=asked)  # type: ignore[arg-type]


def test_models_are_for_keys(product: Product) -> None:
    for path in ("/v1/models", "/v1/models/demo", "/v1/models/nobody"):
        assert httpx.get(product.url + path).status_code == 401


def test_a_browser_gets_a_page_without_anything_that_runs(product: Product) -> None:
    got = httpx.get(product.url, headers={"accept": BROWSER})
    assert (got.status_code, got.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy, style = (
        got.headers["content-security-policy"],
        re.search("<style>(.*?)</style>", got.text),
    )
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert (
        policy
        == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    )
    assert got.headers["x-content-type-options"] == "nosniff"
    assert "<script" not in got.text and KEY not in got.text
    for path in re.findall('href="([^"]*)"', got.text):
        assert httpx.get(product.url + path).status_code == (303 if path == PAGES else 200)


def test_what_a_request_says_is_not_on_the_page(product: Product) -> None:
    odd = "<script>alert(1)</script>"
    got = httpx.get(
        product.url,
        params={"q": odd},
        headers={"accept": BROWSER, "user-agent": odd, "referer": odd},
    )
    assert "alert" not in got.text


@pytest.mark.parametrize("accept", ["*/*", "application/json", ""])
def test_other_clients_get_json_that_says_what_is_served(product: Product, accept: str) -> None:
    got = httpx.get(product.url, headers={"accept": accept})
    assert (got.status_code, got.headers["content-type"]) == (200, "application/json")
    assert [(s["method"], s["path"]) for s in got.json()["serves"]] == [
        (method, path) for method, path, _ in SERVED
    ]
    with httpx.Client(base_url=product.url, headers={"x-api-key": KEY}) as client:
        for method, path, _ in SERVED:
            assert client.request(method, path).status_code in (
                (303,) if path == PAGES else (200, 400)
            ), path


@pytest.mark.slow
def test_head_says_what_get_says_without_its_body(product: Product) -> None:
    key = {"authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=product.url, headers=key) as client:
        for path in ("/", "/health", "/ready", "/v1/models"):
            asked, told = client.get(path), client.head(path)
            assert (told.status_code, told.content) == (
                asked.status_code,
                b"",
            ) and asked.status_code == 200, path
            assert told.headers["content-length"] == str(len(asked.content)), (
                "and the connection is still clean"
            )
        assert (
            client.head("/v1/messages").status_code == 405
            and client.head("/nowhere").status_code == 404
        )
