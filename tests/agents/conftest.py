"""One product for all agents, with a scripted provider of each dialect behind it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from protocol.dialects import DIALECTS
from tests.support.servers.product import Product, base_config, running
from tests.support.vendors.server import VENDORS, Vendors, vendors

PREFIXES = {"openai": "/v1", "responses": "/v1"}


@dataclass(frozen=True)
class Place:
    """A running product and the providers behind it."""

    product: Product
    vendors: Vendors


def configuration(url: str) -> dict[str, Any]:
    """An upstream and a model for each dialect of upstreams that there is, and what ships for coding agents as the policy."""
    made = base_config()
    made["policies"] = {"default": [{"use": "preset", "name": "coding-agent"}]}
    made["limits"] |= {"seal_s": 0.1}
    for key in made["keys"]:
        key["policies"] = ["default"]
    spoken = [name for name in VENDORS if name in DIALECTS]
    made["upstreams"] = {name: {"dialect": name, "base_url": url + PREFIXES.get(name, "")} for name in spoken}
    made["models"] = [{"match": f"{name}-model", "upstream": name} for name in spoken]
    return made


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str) -> Iterator[Place]:
    """The product and its providers."""
    with vendors() as made, running(tmp_path_factory.mktemp("product"), redis_url, database_url, configuration(made.url)) as product:
        yield Place(product, made)
