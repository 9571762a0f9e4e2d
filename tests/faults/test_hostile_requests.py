"""Requests and schemas made to keep a policy worker busy, beside the streams of others: they are
refused by name, or cost little."""

import asyncio
from collections.abc import Iterator

import httpx2 as httpx
import pytest

from tests.support.clients.innocents import innocents, slow_upstream
from tests.support.clients.readers import PATHS
from tests.support.clients.schemas import doubled
from tests.support.json_values import Json, as_json
from tests.support.servers.product import Product, base_config, digest, running
from tests.support.servers.stores import Stores

ATTACKER = "sk-sluice-attacker"
SILENCE_S = 2.0
AGAIN = 3
"""How often each attack is made: where it ends a worker, the next one finds that."""
SAID = [{"role": "user", "content": "What is the weather in Paris?"}]


def tool(schema: Json) -> list[Json]:
    return [{"type": "function", "function": {"name": "get_weather", "parameters": schema}}]


def small_messages(end: str) -> bytes:
    many = '{"role":"user","content":"a"},' * 480_000
    return f'{{"model":"demo","max_tokens":9,"messages":[{many}{end}]}}'.encode()


SLOW_PATTERN = {"properties": {"city": {"pattern": r"\s" * 4_000}}}
ATTACKS: dict[str, tuple[str, bytes, int, str]] = {
    "a schema of 2^40 steps": (
        "openai",
        as_json({"model": "demo", "messages": SAID, "tools": tool(doubled(40))}),
        400,
        "references unfolded",
    ),
    "a pattern that is long to compile": (
        "openai",
        as_json({"model": "demo", "messages": SAID, "tools": tool(SLOW_PATTERN)}),
        200,
        "",
    ),
    "14 MB of small messages": (
        "anthropic",
        small_messages('{"role":"user","content":"a"}'),
        400,
        "JSON values",
    ),
    "a fault at the end of 14 MB": ("openai", small_messages("1e999"), 400, "JSON values"),
}


@pytest.fixture(scope="module")
def product(stores: Stores) -> Iterator[Product]:
    with slow_upstream() as slow:
        config = slow.into(base_config())
        config["keys"].append(
            {
                "name": "attacker",
                "sha256": digest(ATTACKER),
                "roles": ["client"],
                "policies": list(config["policies"]),
            }
        )
        with running(*stores, config, policy=2) as made:
            yield made


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", ATTACKS)
async def test_a_hostile_request_costs_nobody_else_anything(product: Product, name: str) -> None:
    dialect, body, status, said = ATTACKS[name]
    before = [child.pid for child in product.of("policy")]

    def attack() -> httpx.Response:
        headers = {
            "authorization": f"Bearer {ATTACKER}",
            "content-type": "application/json",
            "x-sluice-policy": "noop",
        }
        path = PATHS["anthropic" if dialect == "anthropic" else "openai"]
        return httpx.post(product.url + path, content=body, headers=headers, timeout=60)

    async with innocents(product, n=4) as watch:
        answers = [await asyncio.to_thread(attack) for _ in range(AGAIN)]
    assert [(a.status_code, said in a.text) for a in answers] == [(status, True)] * AGAIN, answers[
        0
    ].text[:300]
    assert watch.longest_silence_s < SILENCE_S and not watch.ended, product.logs()
    assert [child.pid for child in product.of("policy")] == before, product.logs()
