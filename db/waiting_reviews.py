"""How many decisions wait for a person to look at them. Must not know: who asks."""

from typing import Any, LiteralString

import psycopg

from db.connections import conninfo

MANY = 10_000
"""So far they are counted."""
_WAITING: LiteralString = (
    f"SELECT count(*), min(at) FROM (SELECT at FROM audits WHERE state = 'waiting' LIMIT {MANY}) w"
)


def waiting_at(url: str) -> tuple[int, Any]:
    """Return how many wait, and since when the first does."""
    with psycopg.connect(conninfo(url)) as connection:
        row = connection.execute(_WAITING).fetchone()
    assert row is not None
    return int(row[0]), row[1]


def say_waiting(count: int, since: Any) -> str:
    """Return the sentence for people."""
    decisions = "decision waits" if count == 1 else "decisions wait"
    return (
        f"{count:,} {decisions} for a person to look at, the first since {since:%Y-%m-%d %H:%M}Z:"
        " `sluice audit review`"
    )
