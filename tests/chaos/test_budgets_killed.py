"""Two gateways and three policy workers under kill -9: a budget is never passed, and at the end Redis
counts what the record says, to the token."""

import random
import threading
import time
from collections.abc import Iterator

import httpx2 as httpx
import pytest

from tests.e2e.test_budgets import ANSWER, BODY, account, key_id, recorded
from tests.support.checks.record import rows
from tests.support.json_values import as_json
from tests.support.servers.ports import free_port
from tests.support.servers.product import Product, Role, base_config, digest, running
from tests.support.servers.stores import Stores
from tests.support.upstreams.replay import Replay, Reply, replaying
from tests.support.waiting import wait_for

LIMIT, CHAOS_S = 6_000, 10.0
KILLED: tuple[Role, ...] = ("policy", "policy", "gateway", "audit")


@pytest.fixture
def replay() -> Iterator[Replay]:
    with replaying() as server:
        server.replies = [Reply(body=as_json(ANSWER))]
        yield server


@pytest.mark.slow
def test_kills_neither_pass_a_budget_nor_lose_of_it(stores: Stores, replay: Replay) -> None:
    config = base_config()
    config["upstreams"] = {"mine": {"dialect": "openai", "base_url": f"{replay.url}/v1"}}
    config["models"] = [{"match": "*", "upstream": "mine"}]
    config["prices"] = {"m": {"input": 3, "output": "15"}}
    config["budgets"] = {"blue": {"tokens_day": LIMIT}}
    config["keys"] += [
        {"name": name, "sha256": digest(f"sk-{name}"), "team": "blue"}
        for name in ("teamed", "mate")
    ]
    with running(*stores, config, policy=3) as product:
        ports = [product.port, free_port()]
        product.start("gateway", port=ports[1])
        over, stop = list[int](), threading.Event()
        statuses = list[int]()

        def client(number: int) -> None:
            drawn = random.Random(number)
            while not stop.is_set():
                url = f"http://127.0.0.1:{drawn.choice(ports)}/v1/chat/completions"
                head = {"authorization": f"Bearer sk-{drawn.choice(('teamed', 'mate'))}"}
                try:
                    statuses.append(
                        httpx.post(url, json=BODY, headers=head, timeout=10).status_code
                    )
                except httpx.HTTPError:
                    statuses.append(0)
                used = account(product, "tblue")[0]
                if used > LIMIT:
                    over.append(used)

        clients = [threading.Thread(target=client, args=(n,)) for n in range(6)]
        for thread in clients:
            thread.start()
        drawn, until = random.Random(1), time.monotonic() + CHAOS_S
        while time.monotonic() < until:
            role = drawn.choice(KILLED)
            victims = product.of(role)
            victim = drawn.choice(victims)
            victim.kill()
            victim.wait()
            port = next((p for p in ports if not _listens(p)), None) if role == "gateway" else None
            product.start(role, port=port)
        stop.set()
        for thread in clients:
            thread.join()
        assert not over and 200 in statuses and set(statuses) <= {0, 200, 429, 502, 503}, statuses
        where = " OR ".join(f"key_id = '{key_id(n)}'" for n in ("teamed", "mate"))
        _all_ended(product)
        wait_for(lambda: account(product, "tblue") == recorded(product, where), timeout_s=60)
        assert 0 < account(product, "tblue")[0] <= LIMIT


def _listens(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _all_ended(product: Product) -> None:
    open_calls = (
        "SELECT 1 FROM calls c WHERE NOT EXISTS (SELECT FROM ends e WHERE e.call_id = c.call_id)"
    )
    wait_for(lambda: not rows(product.database_url, open_calls), timeout_s=90)
