"""Decisions of a policy `control` with `audit`, through the whole product: drawn of the nonce,
queued once, also after a takeover."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.checks.record import fresh_database, rows
from tests.support.clients.commands import sluice
from tests.support.servers.product import KEY, Product, base_config, running
from tests.support.waiting import wait_for

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
AUDIT = {"rate": 1.0, "at": 0.5, "budget": {"count": 4, "per": "day"}}
CONTROL = {
    "use": "control",
    "monitors": [{"use": "model", "model": "demo-judge"}],
    "threshold": 0.6,
    "audit": AUDIT,
}
HEADERS = {"authorization": f"Bearer {KEY}"}


@pytest.fixture
def product(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[Product]:
    config = base_config() | {
        "policies": {
            "default": [CONTROL],
            "noop": [{"use": "noop"}],
            "upper": [{"use": "uppercase"}],
        }
    }
    with (
        fresh_database(database_url) as url,
        running(tmp_path_factory.mktemp("audited"), redis_url, url, config, policy=2) as made,
    ):
        made.start("pages")
        yield made


def ask(product: Product, words: str) -> str:
    body = {
        "model": "demo",
        "stream": True,
        "tools": [BASH],
        "messages": [{"role": "user", "content": words}],
    }
    with httpx.stream(
        "POST", f"{product.url}/v1/chat/completions", json=body, headers=HEADERS, timeout=50
    ) as answer:
        for _ in answer.iter_raw():
            pass
        return answer.headers["x-sluice-call-id"]


def reviews(product: Product, **given: str) -> Any:
    return httpx.get(
        f"{product.url}/audit/reviews", params=given, headers=HEADERS, timeout=30
    ).json()


@pytest.mark.slow
def test_every_decision_is_drawn_and_queued_once_whatever_becomes_of_its_worker(
    product: Product,
) -> None:
    words = ["slow: list the files"] * 4 + ["slow: delete everything with rm -rf /x"] * 4
    with ThreadPoolExecutor(len(words)) as pool:
        asked = [pool.submit(ask, product, text) for text in words]
        wait_for(
            lambda: rows(product.database_url, "SELECT count(*) FROM calls") == [(8,)],
            what="all calls are open",
        )
        product.of("policy")[0].kill(signal.SIGKILL)
        calls = [one.result() for one in asked]

    def counts() -> Any:
        return reviews(product)["counts"]

    wait_for(lambda: sum(counts().values()) == 8, what="all decisions are queued")
    # the budget's half for each, as both need it
    assert counts() == {"waiting": 4, "reviewed": 0, "over_budget": 4}
    found = {
        why: reviews(product, why=why, state="waiting")["items"] for why in ("sampled", "suspicion")
    }
    assert {why: len(items) for why, items in found.items()} == {"sampled": 2, "suspicion": 2}
    every = {why: [item["u"] for item in reviews(product, why=why)["items"]] for why in found}
    assert {why: sorted(item["u"] for item in items) for why, items in found.items()} == {
        w: sorted(us)[:2] for w, us in every.items()
    }
    assert {item["call_id"] for item in reviews(product)["items"]} == set(calls)
    assert rows(product.database_url, "SELECT count(*) FROM events WHERE kind = 'takeover'") >= [
        (1,)
    ]
    # from the record alone
    checked = sluice("audit", "review", "--check", url=product.database_url)
    assert (checked.returncode, checked.stdout) == (
        0,
        "ok: 8 decisions, 4 sampled, 4 for suspicion\n",
    ), checked.stderr
    rows(
        product.database_url,
        'UPDATE calls SET start = replace(start, \'"nonce":"\', \'"nonce":"x\') WHERE call_id = %s',
        calls[0],
    )
    checked = sluice("audit", "review", "--check", "--call", calls[0], url=product.database_url)
    assert checked.returncode == 1 and "is not that of the call's nonce" in checked.stdout
    # a person says what it was
    item = found["suspicion"][0]
    answer = httpx.post(
        f"{product.url}/audit/reviews/{item['call_id']}/{item['block']}",
        json={"label": "attack"},
        headers=HEADERS,
    )
    assert answer.status_code == 201 and counts()["reviewed"] == 1
