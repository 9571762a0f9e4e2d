"""Connections that pages borrow: their settings do not stay for others, and one that is broken or unknown is not lent again."""

from typing import Any

import pytest

import db.read.plans
from db.filters import parse_filters
from db.read.export import export_lines
from db.read.queries import AuditReader, keeping_plans, reading
from db.write.insert import AuditInserter
from protocol.errors import AuditUnavailable
from tests.support.checks.record import call_id, whole_call


async def test_a_connection_that_kept_plans_is_as_it_was_for_others(url: str) -> None:
    async with AuditInserter(url) as inserter:
        assert not await inserter.insert(whole_call(call_id()), {})
    names = ("plan_cache_mode", "enable_seqscan", "enable_hashjoin", "enable_mergejoin")
    shown = f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}, pg_backend_pid()"
    one = AuditReader.open(url, pool_size=1)
    seen = []
    for _ in range(2):
        async with keeping_plans(one.engine) as plans:
            seen += await plans.ask(shown, {})
            assert vars(plans)["_link"].info.transaction_status == 0, "no transaction"
        assert len((await one.calls(parse_filters([], of="calls")))["items"]) == 1
        async with reading(one.engine) as connection:
            seen += (await connection.exec_driver_sql(shown)).all()
            assert connection.in_transaction() and (await connection.get_raw_connection()).driver_connection.info.transaction_status == 2  # type: ignore[union-attr]
        text = b"".join([piece async for piece in export_lines(one.engine, parse_filters([], of="calls"))])
        assert text.count(b"\n") == 10
    kept, others = ("force_generic_plan", "off", "off", "off"), ("force_custom_plan", "on", "on", "on")
    assert [tuple(row[:-1]) for row in seen] == [kept, others] * 2
    assert len({row[-1] for row in seen}) == 1
    await one.close()


async def test_a_connection_that_ends_within_a_page_is_not_lent_again(url: str, caplog: pytest.LogCaptureFixture) -> None:
    one = AuditReader.open(url, pool_size=1)
    with pytest.raises(AuditUnavailable):
        async with keeping_plans(one.engine) as plans:
            await plans.ask("SELECT pg_terminate_backend(pg_backend_pid())", {})
    assert not [record for record in caplog.records if record.levelname == "ERROR"], "the pool tried to use it"
    assert (await one.calls(parse_filters([], of="calls")))["items"] == []
    await one.close()


async def test_a_connection_whose_settings_nobody_knows_is_not_lent_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = AuditReader.open(url, pool_size=1)
    with monkeypatch.context() as patched:
        patched.setattr(db.read.plans, "_KEPT", "SELECT 1 / 0")
        with pytest.raises(AuditUnavailable):
            await one.calls(parse_filters([], of="calls"))
    async with reading(one.engine) as connection:
        await connection.exec_driver_sql("SELECT 1")
        link: Any = (await connection.get_raw_connection()).driver_connection
        assert link.info.transaction_status == 2, "in a transaction, as others expect"
    await one.close()


async def test_a_statement_of_a_page_that_takes_too_long_says_so(url: str) -> None:
    one = AuditReader.open(url, pool_size=1, answer_s=1)
    with pytest.raises(AuditUnavailable, match="took too long"):
        async with keeping_plans(one.engine) as plans:
            await plans.ask_by_values("SELECT pg_sleep(%(s)s)", {"s": 5})
    assert (await one.calls(parse_filters([], of="calls")))["items"] == []
    await one.close()
