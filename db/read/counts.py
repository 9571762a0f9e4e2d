"""How many tool calls there were, by day, key, verdict and the like: one statement over the tool
calls of some days.

There is no index that counts, so it reads all tool calls between two times: a week where none is
given, and whatever is asked for up to the statement timeout. Must not know: SQL, connections.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from db.filters import Filters, created_at, first_id, parse_filters
from db.read.json_rows import JsonObject, time
from db.text import from_column
from protocol.bounds import MAX_PAGE
from protocol.errors import InvalidRequest
from settings.config_faults import did_you_mean

D = TypeVar("D", bound=StrEnum)
MAX_COUNTS = MAX_PAGE
"""So many rows of an answer; it says when there are more."""
DAYS = 7


class Dimension(StrEnum):
    """What tool calls can be counted by."""

    DAY = "day"
    """Day on which the call began, in UTC where no other time zone is asked for."""
    KEY = "key"
    """Name of the API key."""
    KEY_ID = "key_id"
    """Id of the API key."""
    SESSION = "session"
    """Session of the call."""
    MODEL = "model"
    """Model asked for."""
    NAME = "name"
    """Name of the tool."""
    VERDICT = "verdict"
    """Verdict on the tool call."""
    POLICY = "policy"
    """Policy that decided."""
    REASON = "reason"
    """Reason of the verdict."""


DEFAULT_BY = (Dimension.DAY, Dimension.KEY, Dimension.VERDICT)


class UsageGroup(StrEnum):
    """What figures can be grouped by."""

    HOUR = "hour"
    """Hour in which the calls began, in UTC."""
    DAY = "day"
    """Day, in UTC."""
    KEY = "key"
    """Name of the API key."""
    TEAM = "team"
    """Team of the key."""
    MODEL = "model"
    """Model asked for."""
    POLICY = "policy"
    """Series of policies."""
    REVISION = "revision"
    """Revision of the series."""


USAGE_BY = (UsageGroup.DAY, UsageGroup.KEY)


def parse_counts(parameters: Iterable[tuple[str, str]]) -> tuple[Filters, tuple[Dimension, ...]]:
    """Check query parameters: filters, and `by` as names with commas between. Raises InvalidRequest
    with the parameter's name."""
    by, remaining = parse_by(parameters, Dimension, DEFAULT_BY)
    return parse_filters(remaining, of="counts"), by


def parse_by(
    parameters: Iterable[tuple[str, str]], of: type[D], default: tuple[D, ...]
) -> tuple[tuple[D, ...], list[tuple[str, str]]]:
    """Return what `by` names, and the other parameters. Raises InvalidRequest."""
    pairs = list(parameters)
    requested = [value for name, value in pairs if name == "by" and value]
    if len(requested) > 1:
        raise InvalidRequest("given twice", param="by")
    names = (
        [name.strip().lower() for name in requested[0].split(",")]
        if requested
        else list(map(str, default))
    )
    known = [str(member) for member in of]
    if len(set(names)) < len(names) or not set(names) <= set(known):
        near = next((did_you_mean(name, known) for name in names if name not in known), "")
        raise InvalidRequest(
            f"must be some of {', '.join(known)}, each once, with commas between{near}", param="by"
        )
    return tuple(map(of, names)), [(name, value) for name, value in pairs if name != "by"]


def week_before(high: UUID | None, zone: str = "UTC") -> UUID:
    """Return the first call id of the day, in that time zone, that is six days before the end of a
    count."""
    end = ((created_at(high) if high is not None else None) or datetime.now(UTC)).astimezone(
        ZoneInfo(zone)
    )
    first = (end - timedelta(days=DAYS - 1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return first_id(max(first, datetime(1970, 1, 1, tzinfo=UTC)))


def counted(filters: Filters, by: Sequence[Dimension], rows: Sequence[Any]) -> JsonObject:
    """Return what users see of the rows: `items`, the times that were looked at, and whether there
    are more."""
    items = [
        {name: _shown(value) for name, value in zip(by, row, strict=False)}
        | {"tool_calls": row.tool_calls, "calls": row.calls}
        for row in rows[:MAX_COUNTS]
    ]
    since, until = (
        created_at(bound) if bound is not None else None for bound in (filters.low, filters.high)
    )
    return {
        "since": time(since),
        "until": time(until),
        "by": list(by),
        "items": items,
        "truncated": len(rows) > MAX_COUNTS,
    }


def _shown(value: date | str | None) -> str | None:
    return (
        None
        if value is None
        else from_column(value)
        if isinstance(value, str)
        else value.isoformat()
    )
