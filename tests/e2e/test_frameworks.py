"""LangChain and instructor, unchanged but for address and key, against the demo model; they run in
an environment of their own."""

import os
from collections.abc import Iterator

import pytest

from tests.support.clients.frameworks import run_script
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Product, running
from tests.support.servers.stores import Stores

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        float(os.environ.get("SLUICE_TEST_SHARE") or 1) < 1 and "CI" not in os.environ,
        reason="it installs packages for two minutes: make test-all and CI run it",
    ),
]

MODELS = ["demo", "demo-openai", "demo-anthropic"]
EVENT = {"name": "demo", "day": "Friday", "guests": [], "place": "demo"}
WAYS: dict[str, list[str]] = {
    "langchain-openai": ["json_schema", "function_calling", "stream", "tool"],
    "langchain-anthropic": ["json_schema", "function_calling", "stream", "tool"],
    "instructor-openai": ["TOOLS", "JSON_SCHEMA", "JSON", "MD_JSON"],
    "instructor-anthropic": ["TOOLS", "JSON"],
}
CASES = [(client, way, model) for client, ways in WAYS.items() for way in ways for model in MODELS]
WRONG_KEYS = ["langchain-openai", "langchain-anthropic"]


@pytest.fixture(scope="module")
def answers(stores: Stores) -> Iterator[Json]:
    """What all cases say."""
    wanted = [*CASES, *((client, "key", "demo") for client in WRONG_KEYS)]
    cases = [
        {"name": " ".join(one), "client": one[0], "way": one[1], "model": one[2]} for one in wanted
    ]
    with running(*stores) as product:
        yield run_script("frameworks.py", place_of(product) | {"cases": cases})


def place_of(product: Product) -> Json:
    return {
        "url": product.url,
        "key": KEY,
        "words": "Alice and Bob are going to a science fair on Friday.",
    }


@pytest.mark.parametrize(("client", "way", "model"), CASES)
@pytest.mark.slow
def test_what_the_quick_starts_do(answers: Json, client: str, way: str, model: str) -> None:
    said = answers[f"{client} {way} {model}"]
    assert "error" not in said, said["error"]
    assert said["got"] == ({"city": "Oslo"} if way == "tool" else EVENT)


@pytest.mark.slow
@pytest.mark.parametrize("client", WRONG_KEYS)
def test_a_wrong_key_is_an_authentication_error(answers: Json, client: str) -> None:
    said = answers[f"{client} key demo"]
    assert "AuthenticationError" in said["kind"] and "Incorrect API key provided" in said["error"]
