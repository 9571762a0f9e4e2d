"""A PostgreSQL that says nothing, whether the network or the server is gone: the writer notices by a clock of its own."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from db import insert
from db.insert import AuditInserter
from protocol.errors import AuditUnavailable
from tests.support.proxy import Proxy, proxied
from tests.support.record import call_id, fresh_database, rows, whole_call


@pytest.fixture
def url(database_url: str) -> Iterator[str]:
    with fresh_database(database_url) as fresh:
        yield fresh


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with proxied(url) as link:
        yield link


@pytest.mark.case("D7")
@pytest.mark.parametrize("fault", ["black_hole", "hold_replies"])
async def test_d7_a_silent_connection_is_given_up_and_made_anew(
    url: str, proxy: Proxy, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert, "SILENT_S", 0.5)
    call = call_id()
    async with AuditInserter(proxy.url(url)) as inserter:
        assert await inserter.ensure_partitions("2031-01-01", 1) > 0
        getattr(proxy, fault)()
        began = time.monotonic()
        with pytest.raises(AuditUnavailable):
            async with asyncio.timeout(10):
                await inserter.insert(whole_call(call), {})
        assert time.monotonic() - began < 5
        proxy.reset()
        proxy.heal()
        found = await inserter.insert(whole_call(call), {call: b"{}"})
    # the batch whose answer was lost may have been committed: then nothing is new but the body
    assert not found and found.rows in ((12,) if fault == "black_hole" else (1, 12))
    assert rows(url, "SELECT count(*) FROM chunks") == [(3,)]


@pytest.mark.case("D7")
async def test_d7_a_slow_server_gets_more_time_at_each_attempt(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert, "SILENT_S", 0.2)
    rows(url, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END $$")
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
