"""The queue of decisions for a person to review, and the reviews of them.

A page is found by the queue's own indexes; what a row shows of its tool call and its call is looked
up by their keys. Must not know: HTTP.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, func, literal, select, true, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import Filters, Queued, created_at
from db.models import AuditReview, AuditRow
from db.read.json_rows import JsonObject, number, text_or_none, time
from db.read.lists import RowKey, whole_rows
from db.read.views import TOOL_CALL_LOG
from db.text import from_column, to_column
from db.waiting_reviews import MANY

_OF_TOOL_CALL = ("policy_revision", "session", "model", "tool_call_id", "name", "verdict", "reason")
Said = Mapping[tuple[UUID, int], Sequence[Any]]


async def read_page(
    connection: AsyncConnection, filters: Filters, most_bytes: int
) -> tuple[list[Any], list[JsonObject], bool]:
    """Return a page's rows, their items, and whether there are more; none behind `most_bytes` of
    arguments."""
    is_up = filters.order == "asc"
    key, statement = (
        tuple_(AuditRow.call_id, AuditRow.block),
        select(*AuditRow.__table__.columns).where(*_chosen(filters)),
    )
    if filters.queued is not None:
        statement = statement.where(AuditRow.state == str(filters.queued))
    if (after := filters.after) is not None:
        last = tuple_(literal(after.call_id), literal(after.number))
        statement = statement.where(key > last if is_up else key < last)
    ordered = statement.order_by(
        *(column.asc() if is_up else column.desc() for column in (AuditRow.call_id, AuditRow.block))
    )
    fetched = list(await connection.execute(ordered.limit(filters.limit + 1)))
    rows, more = fetched[: filters.limit], len(fetched) > filters.limit
    keys = [RowKey(row.call_id, row.block, TOOL_CALL_LOG.name) for row in rows]
    calls = {
        (call.call_id, call.block): call
        for call in await whole_rows(connection, keys, filters.order, most_bytes)
    }
    if sum(len(call.arguments) for call in calls.values()) > most_bytes:
        # the last of them filled the page
        end = 1 + max(place for place, row in enumerate(rows) if (row.call_id, row.block) in calls)
        rows, more = rows[:end], more or end < len(rows)
    reviews = await _reviews_of(connection, rows)
    return (
        rows,
        [
            review_item(row, calls.get((row.call_id, row.block)), reviews[row.call_id, row.block])
            for row in rows
        ],
        more,
    )


async def counts_of(connection: AsyncConnection, filters: Filters) -> JsonObject:
    """Return how many there are in each state, as far as `MANY`; whatever state was asked for."""
    counts = {}
    for state in Queued:
        some = (
            select(literal(1))
            .select_from(AuditRow)
            .where(AuditRow.state == str(state), *_chosen(filters))
            .limit(MANY)
        )
        counts[str(state)] = int(
            await connection.scalar(select(func.count()).select_from(some.subquery())) or 0
        )
    return counts


async def _reviews_of(connection: AsyncConnection, rows: Sequence[Any]) -> Said:
    """Return the reviews of these decisions, the oldest first."""
    reviews: dict[tuple[UUID, int], list[Any]] = {(row.call_id, row.block): [] for row in rows}
    if not reviews:
        return reviews
    columns = (AuditReview.call_id, AuditReview.block, AuditReview.number)
    chosen = tuple_(*columns[:2]).in_(list(reviews))
    for review in await connection.execute(
        select(*AuditReview.__table__.columns).where(chosen).order_by(*columns)
    ):
        reviews[review.call_id, review.block].append(review)
    return reviews


def review_item(row: Any, call: Any, reviews: Sequence[Any]) -> JsonObject:
    """A decision to review, its tool call if it is about one, and its reviews.

    `label` is that on which all auditors agree, by the newest of each.
    """
    newest = {review.auditor_id: review.label for review in reviews}
    labels = list(dict.fromkeys(newest.values()))
    agreed = len(labels) == 1
    return {
        "call_id": str(row.call_id),
        "block": row.block,
        "state": row.state,
        "why": row.why,
        "score": number(row.score),
        "u": number(row.u),
        "day": row.day.isoformat(),
        "budget": row.budget,
        "policy": from_column(row.policy),
        "key": from_column(row.key),
        "key_id": row.key_id,
        **{name: getattr(call, name, None) for name in _OF_TOOL_CALL},
        "arguments": text_or_none(call.arguments) if call else None,
        "created_at": time(created_at(row.call_id)),
        "decided_at": time(row.at),
        "label": labels[0] if agreed else None,
        "agreed": agreed if len(newest) > 1 else None,
        "reviews": [
            {
                "auditor": from_column(review.auditor),
                "label": review.label,
                "note": from_column(review.note),
                "at": time(review.at),
            }
            for review in reviews
        ],
    }


def _chosen(filters: Filters) -> list[ColumnElement[bool]]:
    compared = {
        AuditRow.policy: filters.policy,
        AuditRow.key: filters.key,
        AuditRow.key_id: filters.key_id,
        AuditRow.why: filters.why,
    }
    conditions: list[ColumnElement[bool]] = [
        column == to_column(value) for column, value in compared.items() if value is not None
    ]
    conditions += [AuditRow.call_id == filters.call_id] if filters.call_id is not None else []
    conditions += [AuditRow.call_id >= filters.low] if filters.low is not None else []
    conditions += [AuditRow.call_id < filters.high] if filters.high is not None else []
    return conditions or [true()]
