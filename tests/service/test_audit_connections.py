"""Connections that readers borrow: one that ended is not lent again, and a statement that takes too
long says so."""

import pytest
from sqlalchemy import text

from db.engine import reading
from db.filters import parse_filters
from db.read.queries import AuditReader
from protocol.errors import AuditUnavailable


async def test_a_connection_that_ends_within_a_page_is_not_lent_again(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = AuditReader.open(url, pool_size=1)
    with pytest.raises(AuditUnavailable):
        async with reading(one.engine) as connection:
            await connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    assert not [record for record in caplog.records if record.levelname == "ERROR"], (
        "the pool tried to use it"
    )
    assert (await one.calls(parse_filters([], of="calls")))["items"] == []
    await one.close()


async def test_a_statement_of_a_page_that_takes_too_long_says_so(url: str) -> None:
    one = AuditReader.open(url, pool_size=1, answer_s=1)
    with pytest.raises(AuditUnavailable, match="took too long"):
        async with reading(one.engine) as connection:
            await connection.execute(text("SELECT pg_sleep(5)"))
    assert (await one.calls(parse_filters([], of="calls")))["items"] == []
    await one.close()
