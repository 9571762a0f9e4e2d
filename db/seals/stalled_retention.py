"""Whether retention stands still, and since when: for people to look at. Read-only; retention keeps
no list of rows that it could not take, so the rows that remain are queried."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import LiteralString
from uuid import UUID

import psycopg

from db.filters import first_id
from db.seals.retention import RetentionStep, find_due, left_behind
from db.seals.verify import snapshot

LATE_DAYS = 2
"""An audit writer takes old rows away once a day, so what is this much over its time is not on its
way."""
_RIGHT: LiteralString = """
SELECT CASE WHEN EXISTS (SELECT FROM pg_auth_members WHERE roleid = to_regrole('sluice_writer'))
    THEN has_function_privilege('sluice_writer', to_regproc(%s)::oid, 'EXECUTE') ELSE true END
"""
_FUNCTIONS = {"shed": "sluice_shed", "forget": "sluice_forget", "drop": "sluice_drop_before"}
_UNSEALED: LiteralString = """
SELECT min(call_id::text)::uuid FROM (
    SELECT call_id FROM calls WHERE call_id >= %(low)s AND call_id < %(high)s
    UNION ALL SELECT call_id FROM ends WHERE call_id >= %(low)s AND call_id < %(high)s
) c WHERE NOT EXISTS (SELECT FROM seals s WHERE s.call_id = c.call_id)
"""
_UNCHECKED: LiteralString = """
SELECT min(call_id::text)::uuid FROM seals WHERE call_id >= %(low)s AND call_id < %(high)s
    AND part >= 0
    AND position >= coalesce((SELECT max(size) FROM checkpoints), 0)
"""


def standing(database_url: str, days: Mapping[str, int], *, within_s: float = 15.0) -> list[str]:
    """Return a sentence for each kind of rows (`settings.retention`) that should have gone long
    ago, and for each table with rows that came after those of their day went. Raises
    AuditUnavailable."""
    today = datetime.now(UTC).date()
    with snapshot(
        database_url, statement_timeout_ms=int(within_s * 1000), within_s=within_s
    ) as connection:
        first: dict[str, RetentionStep] = {}
        for step in find_due(connection, days, today - timedelta(days=LATE_DAYS)):
            first.setdefault(step.kind.name, step)
        messages = [_say(connection, step, days[name]) for name, step in first.items()]
        messages += [
            f"rows of {table} of the call {call} came after those of their day went: they stay"
            " until all rows of the call go"
            for table, call in left_behind(connection)
        ]
    return messages


def _say(connection: psycopg.Connection, step: RetentionStep, days: int) -> str:
    day = step.until - timedelta(days=1)
    since = step.until + timedelta(days=days)
    return (
        f"retention of {step.kind.name} stands at {day} since {since}:"
        f" {_why(connection, step, day)}"
    )


def _why(connection: psycopg.Connection, step: RetentionStep, day: date) -> str:
    allowed = connection.execute(_RIGHT, (_FUNCTIONS[step.kind.way],)).fetchone()
    if allowed is not None and not allowed[0]:
        return (
            "audit writers have no right to it; run `sluice migrate` with this configuration, or"
            " `sluice audit retention` by the clock"
        )
    if step.kind.way != "forget":
        # of all days that go with it: some may have gone before, but for what came late
        within = {
            "low": UUID(int=0) if step.kind.way == "drop" else _first(day),
            "high": _first(step.until),
        }
        for query, reason in ((_UNSEALED, "has no seal"), (_UNCHECKED, "is under no checkpoint")):
            row = connection.execute(query, within).fetchone()
            if row is not None and row[0] is not None:
                return f"the call {row[0]} {reason}"
    return (
        "the log of the audit writers says why (action `retention`); they take a day of one table a"
        " minute"
    )


def _first(day: date) -> UUID:
    return first_id(datetime.combine(day, time(), UTC))
