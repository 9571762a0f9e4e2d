"""The official SDKs, unchanged but for base URL and key, against the demo model."""

import time
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from protocol.request import DialectName
from settings.config import DEMO_MODELS
from tests.support.clients.sdk_calls import (
    DIALECTS,
    MODES,
    STOPS,
    Mode,
    anthropic_client,
    ask,
    openai_client,
    results,
    tool,
)
from tests.support.json_values import Json
from tests.support.servers.product import Product, running
from tests.support.servers.stores import Stores

SAYS = "I am the demo model inside Sluice"


@pytest.fixture(scope="module")
def product(stores: Stores) -> Iterator[Product]:
    with running(*stores) as made:
        yield made


def every(test: Any) -> Any:
    """Each SDK in each of its ways."""
    return pytest.mark.parametrize("dialect", DIALECTS)(
        pytest.mark.parametrize("mode", MODES)(test)
    )


def tools_of(dialect: DialectName) -> list[Json]:
    return [
        tool(dialect, "get_weather", city="string"),
        tool(dialect, "get_time"),
        tool(dialect, "bash", command="string"),
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_slow_answer_is_streamed_as_it_comes(product: Product, dialect: DialectName) -> None:
    words = "long 40 slowly, with a gap 20 ms"
    request: Any = {
        "model": "demo",
        "messages": [{"role": "user", "content": words}],
        "stream": True,
        "max_tokens": 100,
    }
    first = None
    client: Any = (
        openai_client(product.url) if dialect == "openai" else anthropic_client(product.url)
    )
    with client:
        create = client.chat.completions.create if dialect == "openai" else client.messages.create
        with create(**request) as parts:
            for part in parts:
                if first is None and "word1" in part.model_dump_json():
                    first = time.monotonic()
    # the gaps take 0.8 s; of an answer that came at once nothing would be left of them
    assert first is not None and time.monotonic() - first > 0.2


@every
def test_crossed_text_and_calls(product: Product, dialect: DialectName, mode: Mode) -> None:
    model = "demo-anthropic" if dialect == "openai" else "demo-openai"
    offered = tools_of(dialect)
    said = ask(product.url, dialect, mode, "hello", model=model)
    assert said.text.startswith(SAYS) and said.stop == STOPS[dialect]["end"] and said.model == model
    words = "the weather in Paris and Tokyo, the time, and delete everything with rm -rf /"
    said = ask(product.url, dialect, mode, words, model=model, tools=offered)
    assert said.plain_calls == [
        ("get_weather", {"city": "Paris"}),
        ("get_weather", {"city": "Tokyo"}),
        ("get_time", {}),
    ]
    assert said.stop == STOPS[dialect]["tools"]
    assert said.tokens is not None and min(said.tokens) > 0
    turns = [{"role": "user", "content": words}, *results(dialect, said, ["sun", "rain", "noon"])]
    assert (
        ask(product.url, dialect, mode, turns, model=model, tools=offered).text
        == "The tool said: noon"
    )


QUICK: Any = [{"role": "user", "content": "Alice and Bob are going to a science fair on Friday."}]


@pytest.mark.parametrize("base", ["", "/v1/v1", "/v1/"])
def test_a_wrong_base_url_of_the_openai_sdk_is_said(product: Product, base: str) -> None:
    with openai_client(product.url) as client:
        client.base_url = product.url + base
        if base == "/v1/":
            assert client.chat.completions.create(model="demo", messages=QUICK).model == "demo"
        else:
            with pytest.raises(
                openai.NotFoundError, match=f"set the base URL to {product.url}/v1 "
            ):
                client.chat.completions.create(model="demo", messages=QUICK)
            with pytest.raises(
                openai.NotFoundError, match=f"set the base URL to {product.url}/v1 "
            ):
                client.models.list()


def test_a_wrong_base_url_of_the_anthropic_sdk_is_said(product: Product) -> None:
    with anthropic_client(product.url) as client:
        client.base_url = product.url + "/v1"
        hint = rf"set the base URL to {product.url} \(without /v1"
        with pytest.raises(anthropic.NotFoundError, match=hint):
            client.messages.create(model="demo", max_tokens=5, messages=QUICK)
        with pytest.raises(anthropic.NotFoundError, match=hint):
            client.messages.count_tokens(model="demo", messages=QUICK)


@pytest.mark.parametrize("model", [*DEMO_MODELS, "demo-responses"])
def test_the_responses_api_answers_with_each_model(product: Product, model: str) -> None:
    with openai_client(product.url) as client:
        whole = client.responses.create(model=model, input="hello")
        with client.responses.stream(model=model, input="hello") as events:
            streamed = events.get_final_response()
    assert "demo model" in whole.output_text and streamed.output_text == whole.output_text
