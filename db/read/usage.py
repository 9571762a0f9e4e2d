"""Usage by day, key, model, policy and revision: sums of closed hours from tables (`usage_hours`),
and newer calls from the record itself, by the same function of the database.

An hour is that in which the call began. Newer calls are left out, and the answer shows it, where
there are too many to count at once. Must not know: HTTP, SQLAlchemy's models.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from db.engine import reading
from db.filters import created_at, first_id, parse_filters
from db.read.counts import USAGE_BY, UsageGroup, parse_by
from db.read.json_rows import JsonObject, time
from db.text import from_column, to_column
from protocol.errors import InvalidRequest

MS_RATIO: Final = 1.25
"""Each class of a judge's latency ends at so many times the one before: a p95 read from them is off
by a tenth at most."""
MS_CLASSES: Final = 60
"""The last one begins at 9 minutes."""
SUMS: Final = (
    "calls",
    "failed",
    "tool_calls",
    "refused",
    "replaced",
    "blocks_refused",
    "blocks_replaced",
    "faults",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "judge_n",
    "judge_failed",
    "judge_late",
    "judge_over",
    "judge_ms_sum",
    "cost_nanousd",
    "judge_nanousd",
    "unpriced",
    "estimated",
)
"""What is summed for each hour, key, team, model, policy and revision. `unpriced` are calls whose
model's price nobody knows; `estimated` those whose tokens nobody counted."""
GROUPS: Final = ("key", "model", "policy", "revision", "team")
HOUR = timedelta(hours=1)
MAX_LIVE_CALLS = 5_000
"""So many calls are counted from the record at most: with 12,500 tool calls they take 30 ms."""
MAX_LIVE_HOURS = 48
"""So many hours, each by a part of the statement. An hour that is over is in the tables some
minutes later."""
MAX_ROWS = 2_000
"""Rows of an answer; past it, it says so."""
MAX_DAYS, WEEK = 400, 7
BINS = 10
"""Classes of a judge's probability."""


class HourSpan(NamedTuple):
    """From the beginning of an hour to that of another, exclusive."""

    since: datetime
    until: datetime


def span(since: datetime, until: datetime | None, now: datetime) -> HourSpan:
    """Return whole hours around these times. Raises InvalidRequest where there are none, or too
    many."""
    high, first = now if until is None else min(until, now), _hour_of(since)
    if first >= high:
        raise InvalidRequest("must be before until, and not in the future", param="since")
    if high - first > timedelta(days=MAX_DAYS):
        raise InvalidRequest(f"more than {MAX_DAYS} days before until", param="since")
    last = _hour_of(high)
    return HourSpan(first, last + HOUR if high > last else last)


def last_days(days: int, now: datetime) -> HourSpan:
    """Return the hours of so many days until now."""
    return span(now - timedelta(days=days), None, now)


_ONLY = {UsageGroup.KEY: "key", UsageGroup.MODEL: "model", UsageGroup.POLICY: "policy"}
"""Filters of `/audit/usage`."""


def parse_usage(
    parameters: Iterable[tuple[str, str]], now: datetime
) -> tuple[HourSpan, tuple[UsageGroup, ...], dict[UsageGroup, str]]:
    """Check query parameters: a span (a week where no time is given), `by`, and which values alone.
    Raises InvalidRequest."""
    by, remaining = parse_by(parameters, UsageGroup, USAGE_BY)
    filters = parse_filters(remaining, of="usage")
    until = None if filters.high is None else created_at(filters.high)
    since = None if filters.low is None else created_at(filters.low)
    asked = span(since or (until or now) - timedelta(days=WEEK), until, now)
    return (
        asked,
        by,
        {
            group: value
            for group, name in _ONLY.items()
            if (value := getattr(filters, name)) is not None
        },
    )


async def usage(
    engine: AsyncEngine,
    asked: HourSpan,
    by: Sequence[UsageGroup],
    only: Mapping[UsageGroup, str] | None = None,
) -> JsonObject:
    """Return the sums of a span for each value of `by`, by time where that is among them, the most
    calls first; of `only` these values.

    `newest`: what there are no tables of yet is `counted`, or `left out` because it is too many
    calls. Raises AuditUnavailable.
    """
    async with reading(engine) as connection:
        live = await _live(connection, asked)
        statement, parameters = _statement(asked, live, by, only or {})
        rows = (await connection.execute(text(statement), parameters)).all()
    items = [
        {str(group): _shown(value) for group, value in zip(by, row, strict=False)}
        | {name: int(value or 0) for name, value in zip(SUMS, row[len(by) :], strict=True)}
        for row in rows[:MAX_ROWS]
    ]
    return {
        "since": time(asked.since),
        "until": time(asked.until),
        "by": [str(group) for group in by],
        "newest": "counted" if live.is_counted else "left out",
        "items": items,
        "truncated": len(rows) > MAX_ROWS,
    }


class Judged(NamedTuple):
    """Sums of judges' answers for a policy and revision: latencies, and how often a probability
    fell into each tenth."""

    policy: str
    revision: str
    p50_ms: int | None
    p95_ms: int | None
    bins: dict[float, list[int]]
    """By threshold."""


async def judged(engine: AsyncEngine, asked: HourSpan, policy: str | None = None) -> list[Judged]:
    """Return the figures of judges by policy and revision. A percentile is off by a tenth at most.
    Raises AuditUnavailable."""
    columns, chosen = (
        "policy, revision, figure, threshold, class, n",
        ("" if policy is None else "AND policy = :policy"),
    )
    async with reading(engine) as connection:
        live = await _live(connection, asked)
        parameters = live.values(asked) | ({} if policy is None else {"policy": to_column(policy)})
        source = f"SELECT {columns} FROM judge_hours WHERE hour >= :since AND hour < :live {chosen}"
        if live.is_counted:
            source += (
                f" UNION ALL SELECT {columns} FROM sluice_judged(CAST(:low AS uuid), CAST(:high AS"
                f" uuid)) WHERE true {chosen}"
            )
        summed = (
            f"SELECT policy, revision, figure, threshold, class, sum(n) FROM ({source}) h GROUP BY"
            " 1, 2, 3, 4, 5 ORDER BY 1, 2"
        )
        rows = (await connection.execute(text(summed), parameters)).all()
    return _judged(rows)


def _judged(rows: Sequence[Any]) -> list[Judged]:
    histograms: dict[tuple[str, str], tuple[list[int], dict[float, list[int]]]] = {}
    for policy, revision, figure, threshold, place, n in rows:
        ms, bins = histograms.setdefault((policy, revision), ([0] * MS_CLASSES, {}))
        (ms if figure == "ms" else bins.setdefault(float(threshold), [0] * BINS))[place] += int(n)
    return [
        Judged(
            from_column(policy),
            from_column(revision),
            percentile(ms, 0.5),
            percentile(ms, 0.95),
            bins,
        )
        for (policy, revision), (ms, bins) in histograms.items()
    ]


def percentile(classes: Sequence[int], share: float) -> int | None:
    """Return the latency in ms that this share of the answers did not pass: the middle of its
    class. None: there are no answers."""
    total, so_far = sum(classes), 0
    for place, n in enumerate(classes):
        so_far += n
        if n and so_far >= share * total:
            return round(MS_RATIO ** (place + 0.5)) if place else 1
    return None


def share(part: int, whole: int) -> float | None:
    """Return a share, None of nothing."""
    return part / whole if whole else None


class _Live(NamedTuple):
    """From when on there are no tables, and whether what is newer is counted from the record."""

    since: datetime
    is_counted: bool

    def values(self, asked: HourSpan) -> dict[str, Any]:
        """The parameters of a statement that reads both."""
        parameters: dict[str, Any] = {"since": asked.since, "live": self.since}
        return parameters | (
            {"low": str(first_id(self.since)), "high": str(first_id(asked.until))}
            if self.is_counted
            else {}
        )


async def _live(connection: AsyncConnection, asked: HourSpan) -> _Live:
    """Find what has to be counted from the record, and whether it can be."""
    last = await connection.scalar(text("SELECT max(hour) FROM usage_hours"))
    since = min(asked.until, asked.since if last is None else max(asked.since, last + HOUR))
    parameters = _Live(since, True).values(asked) | {"most": MAX_LIVE_CALLS}
    first, first_end, calls = (await connection.execute(text(_NEWER), parameters)).one()
    begun = [
        at
        for call_id in (first, first_end)
        if call_id is not None and (at := created_at(UUID(call_id))) is not None
    ]
    # days without calls have no rows either
    since = max(since, _hour_of(min(begun))) if begun else asked.until
    return _Live(since, calls < MAX_LIVE_CALLS and asked.until - since <= MAX_LIVE_HOURS * HOUR)


def _statement(
    asked: HourSpan, live: _Live, by: Sequence[UsageGroup], only: Mapping[UsageGroup, str]
) -> tuple[str, dict[str, Any]]:
    parameters = (
        live.values(asked)
        | {"most": MAX_ROWS + 1}
        | {f"only_{group}": to_column(value) for group, value in only.items()}
    )
    chosen, columns = (
        "".join(f" AND {group} = :only_{group}" for group in only),
        ", ".join((*GROUPS, *SUMS)),
    )
    source = (
        f"SELECT hour, {columns} FROM usage_hours WHERE hour >= :since AND hour < :live{chosen}"
    )
    if live.is_counted:
        hours = (
            _by_hour(live.since, asked.until)
            if UsageGroup.HOUR in by or UsageGroup.DAY in by
            else [(live.since, asked.until)]
        )
        for place, (low, high) in enumerate(hours):
            parameters |= {
                f"hour_{place}": low,
                f"low_{place}": str(first_id(low)),
                f"high_{place}": str(first_id(high)),
            }
            counted = f"sluice_usage(CAST(:low_{place} AS uuid), CAST(:high_{place} AS uuid))"
            source += (
                f" UNION ALL SELECT CAST(:hour_{place} AS timestamptz), {columns} FROM {counted}"
                f" WHERE true{chosen}"
            )
    named = ", ".join(
        [*(_SHOWN.get(group, str(group)) for group in by), *(f"sum({name})" for name in SUMS)]
    )
    places = [str(n) for n in range(1, len(by) + 1)]
    times = [f"{n} DESC" for n, group in enumerate(by, 1) if group in _SHOWN]
    grouped = (
        f"GROUP BY {', '.join(places)} ORDER BY"
        f" {', '.join([*times, f'{len(by) + 1} DESC', *places])}"
        if by
        else ""
    )
    return f"SELECT {named} FROM ({source}) h {grouped} LIMIT :most", parameters


def _by_hour(since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    return [(since + n * HOUR, since + (n + 1) * HOUR) for n in range((until - since) // HOUR)]


_IN = "call_id >= CAST(:low AS uuid) AND call_id < CAST(:high AS uuid) ORDER BY call_id"
_NEWER = f"""
SELECT min(call_id::text), (SELECT call_id::text FROM ends WHERE {_IN} LIMIT 1), count(*)
FROM (SELECT call_id FROM calls WHERE {_IN} LIMIT :most) c
"""
_SHOWN = {UsageGroup.DAY: "CAST(hour AT TIME ZONE 'UTC' AS date)", UsageGroup.HOUR: "hour"}


def _hour_of(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _shown(value: Any) -> str | None:
    return (
        time(value)
        if isinstance(value, datetime)
        else from_column(value)
        if isinstance(value, str)
        else str(value)
    )
