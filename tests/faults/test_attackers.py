"""An attacker with one key of role `client` beside innocent streams on the running product: their longest silence is the assertion."""

import time
from pathlib import Path

import httpx2 as httpx

from tests.support.innocents import innocents, slow_upstream
from tests.support.product import CLIENT_KEY, base_config, running


async def test_cities_without_end_for_the_demo_model(tmp_path: Path, redis_url: str, database_url: str) -> None:
    config = base_config()
    body = {
        "model": "demo",
        "stream": True,
        "messages": [{"role": "user", "content": "weather " + "in A " * 100_000}],
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}],
    }
    with slow_upstream() as upstream, running(tmp_path, redis_url, database_url, upstream.into(config)) as product:
        async with innocents(product) as watch:
            began = time.monotonic()
            async with httpx.AsyncClient(timeout=60) as client:
                answer = await client.post(
                    product.url + "/v1/chat/completions", json=body, headers={"authorization": f"Bearer {CLIENT_KEY}"}
                )
            print(answer.status_code, answer.text[:300], time.monotonic() - began)
        assert not watch.ended
        assert watch.longest_silence_s < 1.0
