"""PostgreSQL is silent, in recovery or gone: each page says so in time, and calls are relayed
meanwhile."""

import asyncio
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import psycopg
import pytest

from db.connections import CONNECT_TIMEOUT_S
from db.write.insert import AuditInserter
from settings.limits import Limits
from tests.support.checks.figures import Figure
from tests.support.checks.record import call_id, whole_call
from tests.support.clients.readers import Reader, request, words
from tests.support.servers.product import KEY, Product, base_config
from tests.support.servers.stores import Server
from tests.support.waiting import wait_for

READ_S = 1.5
WAITING_S = 2 * 2
"""For a place in the pool and a new connection; each has 2 s where `audit_read_s` is shorter."""


def recovers(server: Server) -> None:
    """Start it so that it replays its log and takes no connection: what others see of one that
    crashed and has much to replay."""
    server.kill(signal.SIGINT)
    (server.data / "standby.signal").touch()
    with open(server.data / "postgresql.auto.conf", "a") as settings:
        settings.write("hot_standby = off\n")
    server.begin()
    wait_for(
        lambda: "not accepting" in _refusal(server) or "starting up" in _refusal(server),
        what="recovery",
    )


def _refusal(server: Server) -> str:
    with pytest.raises(psycopg.OperationalError) as found:
        psycopg.connect(server.url)
    return str(found.value)


def goes(server: Server) -> None:
    """End it; when it starts again, it is a server as before."""
    server.kill(signal.SIGINT)
    (server.data / "standby.signal").unlink()


@pytest.mark.case("D12")
@pytest.mark.timeout(90)
@pytest.mark.slow
def test_d12_pages_without_postgres_say_so_in_time_and_streams_go_on(
    postgres: Server, redis_url: str, tmp_path: Path, figure: Figure
) -> None:
    assert Limits().audit_read_s >= 2 * CONNECT_TIMEOUT_S, (
        "by default, waiting for a connection is within that time"
    )
    call = call_id()

    async def insert() -> None:
        async with AuditInserter(postgres.url) as inserter:
            await inserter.insert(whole_call(call), {call: b"{}"})

    asyncio.run(insert())
    config = base_config()
    config["limits"] |= {"audit_read_s": READ_S}
    paths = [
        "/debug",
        "/debug/calls",
        f"/debug/calls/{call}",
        f"/debug/calls/{call}/text",
        "/debug/sessions",
        "/debug/search?q=rm",
    ]
    states: list[tuple[str, int, Callable[[], object], Callable[[], object] | None]] = [
        ("silent", 250, postgres.freeze, postgres.thaw),
        ("in recovery", 60, lambda: recovers(postgres), None),
        ("gone", 60, lambda: goes(postgres), postgres.start),
    ]
    with (
        Product(tmp_path, redis_url, postgres.url, config) as product,
        ThreadPoolExecutor(len(paths)) as pool,
    ):
        product.start("gateway", "policy", "pages")
        browser = httpx.Client(
            base_url=product.url, timeout=30, headers={"origin": product.url, "accept": "text/html"}
        )
        assert browser.post("/debug/login", data={"key": KEY}).status_code == 303

        def read(path: str) -> tuple[int, str, float]:
            began = time.monotonic()
            answer = browser.get(path)
            return answer.status_code, answer.text, time.monotonic() - began

        for path in paths:
            assert read(path)[0] == 200, path
        for name, count, away, back in states:
            beside = Reader(product.url, request(words(count)))
            wait_for(lambda beside=beside: beside.came, what="a stream")  # type: ignore[misc]
            away()
            since = time.monotonic()
            found = list(pool.map(read, paths))
            for path, (status, text, took_s) in zip(paths, found, strict=True):
                assert status == 503 and "cannot be read" in text, (name, path, status, text)
                assert "rm -rf" not in text and took_s < WAITING_S + 1, (name, path, took_s)
            figure(
                f"until pages say that Postgres is {name}, the longest of {len(paths)} at once",
                max(one[2] for one in found),
                "s",
            )
            beside.join(30)
            assert beside.has_all(count) and (name != "silent" or beside.came[-1] > since), (
                name,
                beside.failure,
            )
            if back is not None:
                back()
                wait_for(
                    lambda: read(paths[1])[0] == 200,
                    timeout_s=15,
                    what=f"pages after Postgres was {name}",
                )
        browser.close()
