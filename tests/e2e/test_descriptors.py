"""A gateway with few file descriptors: it refuses what it could not serve, in words, and resets
nobody."""

import asyncio
import os
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.clients.readers import PATHS, request, words
from tests.support.servers.product import CLIENT_KEY, KEY, Product
from tests.support.upstreams import product as upstreams
from tests.support.upstreams.replay import Reply, replaying
from tests.support.waiting import wait_for

FEW, BURST = 80, 300


@pytest.fixture
def product(tmp_path: Path, redis_url: str, database_url: str) -> Iterator[Product]:
    with replaying() as replay:
        replay.answer(Reply(b"", status=500))
        config = upstreams.config(replay)
        for key in config["keys"]:
            key["policies"] = ["noop"]
        with Product(tmp_path, redis_url, database_url, config) as made:
            made.start("audit", "policy")
            yield made


def limits_of(pid: int) -> tuple[int, int]:
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)


@pytest.mark.slow
def test_the_soft_limit_is_raised_to_the_hard_one(product: Product) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    (gateway,) = product.start("gateway", limit="-S -n 64")
    assert limits_of(gateway.pid) == (hard, hard)
    (worker,) = product.start("policy", limit="-n 400")
    assert limits_of(worker.pid) == (400, 400)


async def asked(client: httpx.AsyncClient, key: str) -> int:
    answer = await client.post(
        PATHS["openai"], json=request(words(20, 50)), headers={"authorization": f"Bearer {key}"}
    )
    if answer.status_code == 200:
        assert "word20 " in answer.text and "[DONE]" in answer.text
    else:
        error = answer.json()["error"]
        assert (
            error["code"] in ("overloaded", "gateway_descriptors", "key_calls")
            and "retry-after" in answer.headers
        ), answer.text
    return answer.status_code


@pytest.mark.slow
def test_past_its_descriptors_a_gateway_answers_503_and_resets_nobody(product: Product) -> None:
    (gateway,) = product.start("gateway", limit=f"-n {FEW}")

    async def burst() -> list[int]:
        limits = httpx.Limits(max_connections=BURST, max_keepalive_connections=BURST)
        async with httpx.AsyncClient(base_url=product.url, limits=limits, timeout=30) as client:
            return await asyncio.gather(
                *(asked(client, (KEY, CLIENT_KEY)[n % 2]) for n in range(BURST))
            )

    statuses = asyncio.run(burst())
    # none was reset: that would be no status, but an exception. How many are refused at the door,
    # and how many for their key's share of the places that there are descriptors for, is up to how
    # quickly they come
    assert (
        statuses.count(200) >= 4 and statuses.count(503) >= 1 and statuses.count(200) < BURST / 2
    ), Counter(statuses)
    assert (
        "too few file descriptors" in gateway.tail()
        and "limits.open_calls is 5,000" in gateway.tail()
    )
    with httpx.Client(base_url=product.url, timeout=10) as client:
        assert client.get("/ready").json()["warnings"]
        assert (
            client.post(
                PATHS["openai"], json=request("hello"), headers={"authorization": f"Bearer {KEY}"}
            ).status_code
            == 200
        )


@pytest.mark.slow
def test_idle_connections_of_clients_make_room(product: Product) -> None:
    (gateway,) = product.start("gateway", limit=f"-n {FEW}")
    with_connection = [httpx.Client(base_url=product.url, timeout=10) for _ in range(2 * FEW)]
    try:
        for client in with_connection:
            assert (
                client.post(
                    PATHS["openai"],
                    json=request("hello"),
                    headers={"authorization": f"Bearer {KEY}"},
                ).status_code
                == 200
            )
        assert len(os.listdir(f"/proc/{gateway.pid}/fd")) < FEW
    finally:
        for client in with_connection:
            client.close()


@pytest.mark.slow
def test_an_upstream_that_no_descriptor_is_left_for_is_not_called_unreachable(
    product: Product,
) -> None:
    (gateway,) = product.start("gateway")

    def ask(model: str) -> Any:
        return client.post(
            PATHS["openai"],
            json=request("go", model=model, stream=False),
            headers={"authorization": f"Bearer {KEY}"},
        )

    with httpx.Client(base_url=product.url, timeout=10) as client:
        assert ask("demo").status_code == 200
        taken = {int(name) for name in os.listdir(f"/proc/{gateway.pid}/fd")}
        # the client has its connection; no number is free below this
        least = next(n for n in range(len(taken) + 1) if n not in taken)
        _, hard = limits_of(gateway.pid)
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (least, hard))
        answer = ask("gpt-x")
        assert (
            answer.status_code == 503 and "this gateway has no file descriptor left" in answer.text
        ), answer.text
        wait_for(lambda: "gateway_descriptors" in gateway.tail(), what="the log")
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (hard, hard))
        assert "the upstream" in ask("gpt-x").text and "descriptor" not in ask("gpt-x").text
