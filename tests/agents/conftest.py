"""One product for all agents, with a scripted provider of each dialect behind it."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from protocol.dialects.table import DIALECTS
from tests.support.json_values import Json
from tests.support.servers.product import Product, base_config, running
from tests.support.servers.stores import Stores
from tests.support.vendors.server import VENDORS, Vendors, vendors

MODELS = {
    "openai": "gpt-5.1",
    "anthropic": "claude-sonnet-4-5",
    "responses": "gpt-5.5",
    "gemini": "gemini-3-pro-preview",
    "converse": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "strict": "mistralai/Devstral-Small-2-24B-Instruct-2512",
}
"""Real names: agents and rows of models go by them."""
PREFIXES = {"openai": "/v1", "responses": "/v1", "gemini": "/v1beta", "strict": "/strict/v1"}
UPSTREAMS = {
    name: dialect
    for name in VENDORS
    if (dialect := {"strict": "openai"}.get(name, name)) in DIALECTS
}
"""The dialect of each upstream."""


@dataclass(frozen=True)
class Place:
    """A running product and the providers behind it."""

    product: Product
    vendors: Vendors


def configuration(url: str) -> Json:
    """An upstream and a model for each dialect of upstreams that there is, and what ships for
    coding agents as the policy."""
    made = base_config()
    made["policies"] = {"default": [{"use": "preset", "name": "coding-agent"}]}
    made["limits"] |= {"seal_s": 0.1}
    for key in made["keys"]:
        key["policies"] = ["default"]
    made["upstreams"] = {
        name: {"dialect": dialect, "base_url": url + PREFIXES.get(name, "")}
        for name, dialect in UPSTREAMS.items()
    }
    made["models"] = [{"match": MODELS[name], "upstream": name} for name in UPSTREAMS]
    return made


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    """The product and its providers."""
    with (
        vendors() as made,
        running(*stores, configuration(made.url)) as product,
    ):
        yield Place(product, made)
