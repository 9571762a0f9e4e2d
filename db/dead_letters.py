"""Dead letters: records that are in no table of their calls, counted so that nobody takes the
record for whole. Must not know: who asks."""

from typing import Any, LiteralString
from uuid import UUID

import psycopg

from db.connections import conninfo

MOST_CALLS = 100
"""Calls that are named."""
MANY = 10_000
"""What is asked every few seconds counts up to here."""
OF_CALL: LiteralString = "left(call_id, 36)"
"""As the index has it: what should be a call's id can be any text of any length."""
COUNT: LiteralString = f"SELECT count(*) AS count FROM (SELECT FROM dead_letters LIMIT {MANY}) d"
_FOUND: LiteralString = f"""
WITH chosen AS (SELECT {OF_CALL} COLLATE "C" AS call_id, created_at FROM dead_letters
    WHERE %(low)s::text IS NULL OR {OF_CALL} COLLATE "C" >= %(low)s
        AND {OF_CALL} COLLATE "C" < %(high)s)
SELECT (SELECT count(*) FROM chosen), (SELECT max(created_at) FROM chosen),
    ARRAY(SELECT DISTINCT call_id FROM chosen WHERE call_id <> '' ORDER BY 1 LIMIT {MOST_CALLS})
"""


def find_letters(
    connection: psycopg.Connection, low: UUID | None = None, high: UUID | None = None
) -> tuple[int, Any, list[str]]:
    """Return how many there are, when the last came, and the first calls they are of; of all calls,
    also of none, or of those from `low` to before `high`."""
    bounds = (
        {"low": None, "high": None}
        if low is None or high is None
        else {"low": str(low), "high": str(high)}
    )
    row = connection.execute(_FOUND, bounds).fetchone()
    assert row is not None
    count, last, calls = row
    return int(count), last, list(calls)


def letters_at(url: str) -> tuple[int, Any, list[str]]:
    """Return the same of all calls, over a connection of its own."""
    with psycopg.connect(conninfo(url)) as connection:
        return find_letters(connection)


def say_letters(count: int, calls: list[str]) -> str:
    """Return the sentence for people."""
    known = (
        ", of calls"
        f" {', '.join(calls[:3])}{f' and {len(calls) - 3} more' if len(calls) > 3 else ''}"
        if calls
        else ""
    )
    return (
        f"{count:,} records are dead letters and in no list{known}: see the table dead_letters and"
        " docs/run/audit.md"
    )
