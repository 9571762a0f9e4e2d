"""What policies did, apart from the sums of `db.read.usage`: refusals by reason, and readers'
labels of decisions. Bounded by indexes.

Reasons are content: a policy may quote the model in one. Must not know: HTTP.
"""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import first_id
from db.text import from_column, to_column
from protocol.records import PASSED

MOST = 5_000
"""Refusals that are looked at, the newest: 23 ms at ten million chunks."""
MAX_REASONS, MAX_RULES = 20, 30
_REFUSED = f"call_id >= CAST(:low AS uuid) AND verdict NOT IN {PASSED}"
_REPLACED = "call_id >= CAST(:low AS uuid) AND verdict = 'replace'"
# a refusal of a tool call that came later stands in `blocks`, and then its first word does not
# count
_REASONS = f"""
WITH refused AS (SELECT DISTINCT ON (call_id, block) * FROM (
    (SELECT call_id, block, verdict, reason, 1 AS word FROM tool_calls WHERE {_REFUSED}
        ORDER BY call_id DESC, block DESC LIMIT :most)
    UNION ALL
    (SELECT call_id, block, verdict, reason, 2 FROM blocks WHERE {_REFUSED}
        ORDER BY call_id DESC, block DESC LIMIT :most)
) r ORDER BY call_id DESC, block DESC, word DESC LIMIT :most)
SELECT c.policy, c.policy_revision, r.verdict, r.reason, count(*), (SELECT count(*) >= :most
    FROM refused)
FROM refused r JOIN calls c ON c.call_id = r.call_id AND c.call_id >= CAST(:low AS uuid)
WHERE CAST(:policy AS text) IS NULL OR c.policy = :policy GROUP BY 1, 2, 3, 4
    ORDER BY 5 DESC, 1, 2, 3, 4 LIMIT :shown
"""
_NEWEST = [
    f"(SELECT call_id, policy, rule FROM {table} WHERE {which} ORDER BY call_id DESC, block DESC"
    " LIMIT :most)"
    for table in ("tool_calls", "blocks")
    for which in (_REFUSED, _REPLACED)
]
_RULES = f"""
SELECT r.policy, r.rule, count(*) FROM ({" UNION ALL ".join(_NEWEST)}) r
JOIN calls c ON c.call_id = r.call_id AND c.call_id >= CAST(:low AS uuid)
WHERE c.policy = :policy AND r.rule <> '' GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT :shown
"""
_LABELS = """
SELECT c.policy, c.policy_revision, l.label, count(*)
FROM (SELECT DISTINCT ON (call_id, block) call_id, label FROM labels
    WHERE call_id >= CAST(:low AS uuid)
    ORDER BY call_id, block, at DESC) l
JOIN calls c ON c.call_id = l.call_id AND c.call_id >= CAST(:low AS uuid)
WHERE CAST(:policy AS text) IS NULL OR c.policy = :policy GROUP BY 1, 2, 3
"""


class Reason(NamedTuple):
    """A reason for refusals under a policy and revision, with their number."""

    policy: str
    revision: str
    verdict: str
    reason: str
    n: int


async def reasons(
    connection: AsyncConnection, since: datetime, policy: str | None = None
) -> tuple[list[Reason], bool]:
    """Return the most frequent reasons of refusals of calls that began since then, and whether
    there were more than are looked at."""
    parameters: dict[str, Any] = {
        "low": str(first_id(since)),
        "most": MOST,
        "shown": MAX_REASONS + 1,
        "policy": _stored(policy),
    }
    rows = (await connection.execute(text(_REASONS), parameters)).all()
    counted_reasons = []
    for row in rows:
        policy_, revision, verdict, reason = (from_column(value) for value in row[:4])
        counted_reasons.append(Reason(policy_, revision, verdict, reason, int(row[4])))
    return counted_reasons, bool(rows and rows[0][5])


async def rules(
    connection: AsyncConnection, since: datetime, policy: str
) -> list[tuple[str, str, int]]:
    """Return how often each rule decided under a policy, of the newest `MOST` decisions of each
    kind: its part, its name, the number."""
    parameters: dict[str, Any] = {
        "low": str(first_id(since)),
        "most": MOST,
        "shown": MAX_RULES,
        "policy": to_column(policy),
    }
    return [
        (from_column(part), from_column(rule), int(n))
        for part, rule, n in await connection.execute(text(_RULES), parameters)
    ]


async def labels(
    connection: AsyncConnection, since: datetime, policy: str | None = None
) -> dict[tuple[str, str], dict[str, int]]:
    """Return how often readers labelled a decision right, wrong or unsure, by policy and revision;
    only the newest label of each decision counts."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for name, revision, label, n in await connection.execute(
        text(_LABELS), {"low": str(first_id(since)), "policy": _stored(policy)}
    ):
        counts.setdefault((from_column(name), from_column(revision)), {})[label] = int(n)
    return counts


def _stored(policy: str | None) -> str | None:
    return None if policy is None else to_column(policy)
