"""What is refused at the door is on the overview and on the key's page in moments, and a Redis that
starts again takes nothing of it."""

from contextlib import closing
from functools import partial
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.support.clients.readers import Reader, request, words
from tests.support.servers.asked import ask
from tests.support.servers.product import CLIENT_KEY, KEY, Product, base_config
from tests.support.servers.stores import Server
from tests.support.waiting import wait_for

SOON_S = 3.0
BODY_BYTES = 65_536


@pytest.mark.slow
def test_what_is_refused_at_the_door_is_shown_at_once_also_after_redis_started_again(
    valkey: Server, url: str, tmp_path: Path
) -> None:
    config = base_config()
    config["limits"] |= {"body_bytes": BODY_BYTES, "open_calls": 1}
    with (
        Product(tmp_path, valkey.url, url, config) as product,
        closing(
            httpx.Client(base_url=product.url, timeout=20, headers={"origin": product.url})
        ) as reader,
    ):
        product.start("gateway", "pages", "audit", "policy")
        assert reader.post("/debug/login", data={"key": KEY}).status_code == 303

        def refuse(count: int) -> None:
            with closing(httpx.Client(base_url=product.url, timeout=20)) as client:
                for _ in range(count):
                    answer = client.post(
                        "/v1/chat/completions",
                        headers={"authorization": "Bearer sk-wrong"},
                        json={},
                    )
                    assert answer.status_code == 401
                own = {"authorization": f"Bearer {KEY}"}
                assert (
                    client.post(
                        "/v1/chat/completions", headers=own, content=b" " * (BODY_BYTES + 1)
                    ).status_code
                    == 413
                )
                beside = Reader(product.url, request(words(80)))
                wait_for(lambda: beside.came or None, what="a stream")
                full = client.post(
                    "/v1/chat/completions",
                    headers={"authorization": f"Bearer {CLIENT_KEY}"},
                    json=request("hello"),
                )
                assert full.status_code == 503, full.text
                beside.join(20)

        def counts(path: str) -> dict[int, int]:
            return {
                one["status"]: one["n"]
                for one in ask(
                    product.database_url,
                    product.config,
                    lambda pages: pages.page(path),
                    product.redis_url,
                ).values["door"]
            }

        def are_shown(round_: int) -> bool:
            of_keys = {**counts("/debug/keys/dev"), **counts("/debug/keys/app")}
            return counts("/debug") == {401: 50 * round_, 413: round_, 503: round_} and of_keys == {
                413: round_,
                503: round_,
            }

        for round_ in (1, 2):
            refuse(50)
            wait_for(
                partial(are_shown, round_),
                timeout_s=SOON_S,
                what=f"{counts('/debug')} {counts('/debug/keys/app')}",
            )
            if round_ == 1:
                valkey.kill()
                valkey.start()
                # until its gateway has a connection again, every call is refused with 503
                wait_for(
                    lambda: httpx.get(f"{product.url}/ready").status_code == 200, what="readiness"
                )
