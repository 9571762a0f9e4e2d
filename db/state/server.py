"""What a PostgreSQL server says of itself: its clock, its settings, its standbys. Must not know:
tables."""

import time
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, LiteralString, NamedTuple

import psycopg

from db.connections import conninfo

_STANDBYS: LiteralString = """
SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
    current_setting('synchronous_standby_names'),
    count(*) FILTER (WHERE state IS DISTINCT FROM 'backup'), count(*)
        FILTER (WHERE sync_state IN ('sync', 'quorum')),
    count(*) FILTER (WHERE pid IS NOT NULL AND sync_state IS NULL)
FROM pg_stat_replication
"""


_MISSING_PARTITIONS: LiteralString = """
SELECT d.ahead, d.day, t.name
FROM (SELECT n AS ahead, (now() AT TIME ZONE 'UTC')::date + n AS day
    FROM generate_series(0, %s - 1) n) d, unnest(%s::text[]) t (name)
WHERE to_regclass('sluice_parts.' || t.name || to_char(d.day, '_YYYYMMDD')) IS NULL ORDER BY 1, 3
"""


class Standbys(NamedTuple):
    """The standbys of a server, and whether it may be written to."""

    is_standby: bool
    """The server itself follows another."""
    is_read_only: bool
    names: str
    """`synchronous_standby_names`; empty: no commit waits for a standby."""
    connected: int
    synchronous: int
    hidden: int
    """Those of which this login may not see more than that they are there."""


def clock_offset_s(url: str) -> tuple[float, float]:
    """Return how far the server's clock is ahead of ours, and how much of that the way there and
    back may be, in seconds."""
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        before, began = time.time(), time.monotonic()
        [theirs] = _one(connection, "SELECT extract(epoch FROM clock_timestamp())")
        way_s = time.monotonic() - began
    return float(theirs) - before - way_s / 2, way_s / 2


def settings(url: str, names: Iterable[str]) -> dict[str, str]:
    """Return the values that these settings of the server have for this login, where it sets none
    itself."""
    with psycopg.connect(conninfo(url), options="", autocommit=True) as connection:
        return {
            name: str(_one(connection, "SELECT current_setting(%s)", name)[0]) for name in names
        }


def startup_options(url: str) -> tuple[bool, str]:
    """Are the settings that a connection names when it begins in effect? And is a commit on disk
    before it is confirmed?"""
    with psycopg.connect(
        conninfo(url), options="-c synchronous_commit=on -c statement_timeout=4711", autocommit=True
    ) as connection:
        timeout, commit = _one(
            connection,
            "SELECT current_setting('statement_timeout'), current_setting('synchronous_commit')",
        )
    return timeout == "4711ms", str(commit)


def standbys(url: str) -> Standbys:
    """Return who follows the server."""
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        return Standbys(*_one(connection, _STANDBYS))


def missing_partitions(url: str, tables: Sequence[str], days: int) -> list[tuple[int, date, str]]:
    """Return the days, from today on by the server's clock, for which a table has no partition: how
    far ahead, the day, the table."""
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        return connection.execute(_MISSING_PARTITIONS, (days, list(tables))).fetchall()


def _one(
    connection: "psycopg.Connection[Any]", query: LiteralString, *values: object
) -> tuple[Any, ...]:
    row = connection.execute(query, values).fetchone()
    assert row is not None
    return tuple(row)
