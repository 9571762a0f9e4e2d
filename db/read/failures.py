"""Which upstreams and judges failed lately, and why, as the record has it. Must not know: what the
kinds mean."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, NamedTuple

import psycopg

from db.connections import conninfo, statement_timeout_ms
from db.filters import first_id
from db.text import from_column

MOST = 10_000
"""Events that are looked at, the newest first."""
ANSWER_S = 5.0
_FAILURES: LiteralString = """
SELECT c.upstream, e.kind, count(DISTINCT e.call_id), max(e.at), (array_agg(e.detail
    ORDER BY e.at DESC))[1]
FROM (SELECT call_id, kind, at, detail FROM events WHERE call_id >= %(low)s
    AND kind = ANY(%(kinds)s)
    ORDER BY call_id DESC LIMIT %(most)s) e
JOIN calls c USING (call_id) GROUP BY 1, 2 ORDER BY 1, 4 DESC
"""
_JUDGES: LiteralString = """
SELECT j.model, j.error, count(*), max(j.at)
FROM (SELECT model, error, at FROM judgements WHERE call_id >= %(low)s AND error <> ''
    ORDER BY call_id DESC LIMIT %(most)s) j
GROUP BY 1, 2 ORDER BY 1, 4 DESC
"""


class Failures(NamedTuple):
    """The failures of one upstream for one reason."""

    upstream: str
    kind: str
    calls: int
    last_at: datetime
    detail: str
    """Of the last one; empty where it was redacted."""


def upstream_failures(url: str, kinds: Sequence[str], *, within: timedelta) -> list[Failures]:
    """Return how often each upstream failed in the last `within`, by kind of event; of each
    upstream the newest first."""
    rows = _read(url, _FAILURES, within, {"kinds": list(kinds)})
    return [
        Failures(from_column(upstream), kind, int(calls), at, from_column(detail))
        for upstream, kind, calls, at, detail in rows
    ]


class Unjudged(NamedTuple):
    """Questions to one judge model without an answer, for one reason."""

    model: str
    error: str
    """As in `policy.base.Judgement`."""
    questions: int
    last_at: datetime


def judge_failures(url: str, *, within: timedelta) -> list[Unjudged]:
    """Return how often each judge model gave no answer in the last `within`, by reason; of each
    model the newest first."""
    return [
        Unjudged(from_column(model), error, int(count), at)
        for model, error, count, at in _read(url, _JUDGES, within, {})
    ]


def _read(
    url: str, statement: LiteralString, within: timedelta, values: dict[str, Any]
) -> list[tuple[Any, ...]]:
    options = (
        f"-c statement_timeout={statement_timeout_ms(ANSWER_S)} -c default_transaction_read_only=on"
    )
    with psycopg.connect(conninfo(url), options=options) as connection:
        return connection.execute(
            statement, {"low": first_id(datetime.now(UTC) - within), "most": MOST, **values}
        ).fetchall()
