"""Statements in one write: what comes back, what an error leaves behind, and a server that is
gone."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg import AsyncConnection

from db.connections import conninfo
from db.write.pipeline import Pipeline, Statement
from tests.support.checks.record import rows
from tests.support.waiting import wait_until

MB = 2**20
PUT = "INSERT INTO noted (n) SELECT $1::text::int"
SLEEP = (
    "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND query LIKE '%%pg_sleep(60)%%' AND"
    " state = 'active'"
)


@pytest.fixture
async def connection(url: str) -> AsyncIterator[AsyncConnection]:
    rows(url, "CREATE TABLE noted (n int PRIMARY KEY)")
    connection = await AsyncConnection.connect(conninfo(url), autocommit=True)
    yield connection
    await connection.close()


def noted(url: str) -> list[int]:
    return [n for (n,) in rows(url, "SELECT n FROM noted ORDER BY n")]


async def test_each_statement_has_its_result(url: str, connection: AsyncConnection) -> None:
    pipeline = Pipeline(connection)
    twice = "SELECT n FROM noted WHERE n <> $1::text::int ORDER BY n"
    for first in (1, 3):
        put = [Statement(PUT, (b"%d" % n,)) for n in (first, first + 1)]
        inserted, looked = await pipeline.run(
            [
                put,
                [Statement(twice, (b"1",)), Statement("SELECT NULL WHERE $1::text = ''", (b"x",))],
            ]
        )
        assert [one.command_tuples for one in inserted] == [1, 1]
        assert [looked[0].get_value(row, 0) for row in range(looked[0].ntuples)] == [
            n.to_bytes(4, "big") for n in range(2, first + 2)
        ]
        assert looked[1].ntuples == 0
    assert noted(url) == [1, 2, 3, 4]
    # and psycopg's own way goes on beside it
    prepared = await (
        await connection.execute("SELECT statement FROM pg_prepared_statements")
    ).fetchall()
    assert sorted(text for (text,) in prepared) == sorted(
        [PUT, twice, "SELECT NULL WHERE $1::text = ''"]
    )
    assert await pipeline.run([]) == []


async def test_an_error_undoes_its_own_transaction_alone(
    url: str, connection: AsyncConnection
) -> None:
    pipeline = Pipeline(connection)
    good, again, bad = (Statement(PUT, (n,)) for n in (b"1", b"1", b"no number"))
    for failing, error in (
        ([good, again], psycopg.errors.UniqueViolation),
        ([good, bad], psycopg.DataError),
    ):
        rows(url, "TRUNCATE noted")
        with pytest.raises(error):
            await pipeline.run([failing, [Statement(PUT, (b"7",))]])
        assert noted(url) == [7]
    with pytest.raises(psycopg.errors.UndefinedTable):
        await pipeline.run(
            [
                [Statement("INSERT INTO nowhere SELECT $1::text", (b"",)), good],
                [Statement("SELECT $1::text", (b"",))],
            ]
        )
    await pipeline.run([[good]])
    assert noted(url) == [1, 7]


@pytest.mark.timeout(30)
async def test_megabytes_both_ways_do_not_wait_for_each_other(connection: AsyncConnection) -> None:
    """A server whose answers nobody reads stops reading, too."""
    values = [bytes([n]) * (8 * MB) for n in range(4)]
    [results] = await Pipeline(connection).run(
        [[Statement("SELECT $1::bytea", (value,)) for value in values]]
    )
    assert [one.get_value(0, 0) for one in results] == values


@pytest.mark.timeout(30)
@pytest.mark.parametrize("how", ["ended by the server", "cut here"])
async def test_a_connection_that_is_lost_is_an_error(
    url: str, connection: AsyncConnection, how: str
) -> None:
    pipeline = Pipeline(connection)
    pid = connection.info.backend_pid
    asked = asyncio.create_task(
        pipeline.run(
            [[Statement(PUT, (b"1",)), Statement("SELECT pg_sleep(60), $1::text", (b"",))]]
        )
    )
    await wait_until(lambda: rows(url, SLEEP, pid) == [(1,)], what="the server is at it")
    if how == "cut here":
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await connection.close()
        rows(url, f"SELECT pg_terminate_backend({pid})")
    else:
        rows(url, f"SELECT pg_terminate_backend({pid})")
        with pytest.raises(psycopg.OperationalError):
            await asked
        with pytest.raises(psycopg.OperationalError):
            await pipeline.run([[Statement(PUT, (b"2",))]])
    assert noted(url) == []
