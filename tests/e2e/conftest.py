"""The whole product once for each module of end-to-end tests, with a replaying upstream behind
it."""

from collections.abc import Iterator

import anthropic
import openai
import pytest

from tests.support.checks.record import fresh_database
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Product, running
from tests.support.servers.stores import Stores
from tests.support.upstreams import product as upstreams
from tests.support.upstreams.replay import Replay, replaying


@pytest.fixture(scope="session")
def replay_server() -> Iterator[Replay]:
    """The upstream of every model whose name begins with `gpt` or `claude`."""
    with replaying() as server:
        yield server


@pytest.fixture(scope="module")
def database_url(database_url: str) -> Iterator[str]:
    """A database of each module's own: what other modules recorded is not found there, and does not
    make lists long."""
    with fresh_database(database_url) as url:
        yield url


@pytest.fixture
def upstream(replay_server: Replay) -> Replay:
    """The upstream, not yet asked anything."""
    replay_server.asked.clear()
    return replay_server


@pytest.fixture(scope="module")
def product(
    stores: Stores,
    replay_server: Replay,
) -> Iterator[Product]:
    """The product with the upstreams `openai` and `anthropic`, both the replaying one."""
    config = configured(replay_server)
    with running(*stores, config) as made:
        yield made


def configured(server: Replay) -> Json:
    """The configuration with the replaying upstream in both dialects."""
    config = upstreams.config(server)
    config["limits"] |= {"body_bytes": 2**20}
    return config


@pytest.fixture(scope="module")
def openai_client(product: Product) -> Iterator[openai.OpenAI]:
    """The official client of the chat/completions dialect; nothing but address and key are set, and
    that it does not retry."""
    with openai.OpenAI(base_url=f"{product.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def anthropic_client(product: Product) -> Iterator[anthropic.Anthropic]:
    """The official client of the Messages dialect."""
    with anthropic.Anthropic(base_url=product.url, api_key=KEY, max_retries=0) as client:
        yield client
