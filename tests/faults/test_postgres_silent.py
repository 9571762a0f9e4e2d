"""A PostgreSQL that says nothing, whether the network or the server is gone: writer and readers
notice by clocks of their own."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import text

from db.engine import reading
from db.keys import KeyStore
from db.read.queries import AuditReader
from db.state.polling import Watch
from db.write import connection as writing
from db.write.insert import AuditInserter
from protocol.errors import AuditUnavailable
from tests.support.checks.record import call_id, rows, whole_call
from tests.support.clients.sdk_calls import ask
from tests.support.servers.product import KEY, Product, base_config
from tests.support.servers.proxy import Proxy, proxied
from tests.support.waiting import wait_until


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with proxied(url) as link:
        yield link


@pytest.mark.slow
@pytest.mark.case("D7")
@pytest.mark.parametrize("fault", ["black_hole", "hold_replies"])
async def test_d7_a_silent_connection_is_given_up_and_made_anew(
    url: str, proxy: Proxy, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SILENT_S", 1.5)
    call = call_id()
    async with AuditInserter(proxy.url(url)) as inserter:
        assert await inserter.ensure_partitions("2031-01-01", 1) > 0
        getattr(proxy, fault)()
        with pytest.raises(AuditUnavailable):
            async with asyncio.timeout(15):
                await inserter.insert(whole_call(call), {})
        proxy.reset()
        proxy.heal()
        found = await inserter.insert(whole_call(call), {call: b"{}"})
    # the batch whose answer was lost may have been committed: then nothing is new but the body
    assert not found and found.rows in ((12,) if fault == "black_hole" else (1, 12))
    assert rows(url, "SELECT count(*) FROM chunks") == [(3,)]


@pytest.mark.case("D7")
async def test_d7_a_slow_server_gets_more_time_at_each_attempt(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SILENT_S", 0.2)
    rows(
        url,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5);"
        " RETURN NEW; END $$",
    )
    rows(url, "CREATE TRIGGER slow BEFORE INSERT ON ends FOR EACH ROW EXECUTE FUNCTION slow()")
    call, failed = call_id(), 0
    async with AuditInserter(url) as inserter:
        while True:
            try:
                await inserter.insert(whole_call(call), {})
                break
            except AuditUnavailable:
                failed += 1
                assert failed < 5
    assert failed > 0
    assert rows(url, "SELECT count(*) FROM ends") == [(1,)]


READ_S = 1.5
SLOWEST_S = 3 * READ_S + 10
"""Its turn in the pool, the ping of a pooled connection or a statement, a new connection; the rest
is for a loaded machine."""


async def _get(
    client: httpx2.AsyncClient, path: str, key: str = KEY
) -> tuple[httpx2.Response, float]:
    began = time.monotonic()
    answer = await client.get(path, headers={"authorization": f"Bearer {key}"})
    return answer, time.monotonic() - began


async def _until(status: int, client: httpx2.AsyncClient, path: str, key: str = KEY) -> None:
    async def is_so() -> Any:
        return (await _get(client, path, key))[0].status_code == status

    assert await wait_until(is_so, timeout_s=SLOWEST_S, what=f"{status} for {path}")


@pytest.mark.case("D7")
@pytest.mark.slow
async def test_d7_readers_of_a_silent_record_get_503_in_time_while_calls_go_on(
    redis_url: str, url: str, proxy: Proxy, tmp_path: Path
) -> None:
    store = KeyStore.open(url)
    key = await store.create("temporary", roles=("client", "auditor"))
    config = base_config()
    config["limits"] |= {"audit_read_s": READ_S}
    with Product(tmp_path, redis_url, url, config) as product:
        product.database_urls["gateway"] = product.database_urls["pages"] = proxy.url(url)
        product.start("audit", "gateway", "pages", "policy", "judge")
        call = call_id()
        async with AuditInserter(url) as inserter:
            await inserter.insert(whole_call(call), {})
        paths = [
            "/audit/calls",
            f"/audit/calls/{call}",
            f"/audit/verify?call_id={call}",
            "/audit/export",
        ]
        async with httpx2.AsyncClient(base_url=product.url, timeout=60) as client:
            assert [(await _get(client, path))[0].status_code for path in paths] == [200] * 4
            proxy.black_hole()
            asking = [asyncio.create_task(_get(client, path)) for path in paths * 2]
            for mode in ("whole", "iterate"):
                assert (await asyncio.to_thread(ask, product.url, "openai", mode, "say hello")).text
            # known keys stay while the record is away
            assert (await _get(client, "/v1/models", key))[0].status_code == 200
            for answer, took_s in await asyncio.gather(*asking):
                assert (answer.status_code, answer.json()["error"]["code"]) == (
                    503,
                    "audit_unavailable",
                )
                assert int(answer.headers["retry-after"]) > 0
                assert took_s < SLOWEST_S
            await store.revoke("temporary")
            before = proxy.accepted
            proxy.heal()
            await _until(200, client, "/audit/calls")
            assert proxy.accepted > before, "a connection that was silent is used again"
            await _until(401, client, "/v1/models", key)
    await store.close()


async def test_auditors_who_hold_every_connection_do_not_keep_a_revoked_key_in_use(
    url: str,
) -> None:
    store, reader, watch = KeyStore.open(url), AuditReader.open(url, pool_size=1), Watch(url)
    await store.create("temporary")
    async with reading(reader.engine) as connection:
        await connection.execute(text("SELECT 1"))
        assert [k.name for k in await watch.keys()] == ["temporary"]
        await store.revoke("temporary")
        assert not await watch.keys()
    await reader.close()
    await watch.close()
    await store.close()


async def test_a_slow_statement_is_refused_by_the_server_and_its_connection_stays(url: str) -> None:
    reader = AuditReader.open(url, pool_size=1, answer_s=0.5)

    async def ask_for(seconds: float) -> int:
        async with reading(reader.engine) as connection:
            return int(
                (
                    await connection.execute(
                        text("SELECT pg_backend_pid() FROM pg_sleep(:s)"), {"s": seconds}
                    )
                ).scalar_one()
            )

    first = await ask_for(0)
    with pytest.raises(AuditUnavailable, match="took too long"):
        await ask_for(5)
    assert await ask_for(0) == first
    await reader.close()
