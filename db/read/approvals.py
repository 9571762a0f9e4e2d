"""Tool calls that wait for people, and what became of them. Must not know: HTTP."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple, Self
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from db.engine import reading
from db.filters import ApprovalState
from db.read.json_rows import JsonObject, number, time
from db.text import from_column, to_column
from protocol.records import to_text

MOST_LISTED = 100
_BEGINNING, _WHOLE = 2_000, 2**30
"""Bytes of arguments that a list shows, and one by itself."""
_NEAR = 20
"""Calls, and earlier requests, that are listed with one."""
_IS: dict[ApprovalState, str] = {
    "open": "a.outcome IS NULL AND now() < a.expires_at",
    "expired": "a.outcome IS NULL AND now() >= a.expires_at",
    **{word: f"a.outcome = '{word}'" for word in ("approved", "denied", "superseded")},
}
_MAY_SEE = (
    "(cast(:approver AS text) IS NULL OR a.approvers = '{}' OR :approver = ANY (a.approvers))"
)
_ROWS = f"""
SELECT a.approval_id, a.call_id, a.block,
    coalesce(a.outcome, CASE WHEN {_IS["open"]} THEN 'open' ELSE 'expired' END) AS state,
    a.at, a.expires_at, CASE WHEN {_IS["open"]}
        THEN extract(epoch FROM a.expires_at - now())::float ELSE 0 END AS left_s,
    a.key, a.key_id, a.session, a.policy, a.revision, a.rule, a.why, a.tool, a.server, a.executor,
    substring(a.arguments, 1, :most) AS arguments, length(a.arguments) AS arguments_bytes,
    a.need, a.approvers, ARRAY(SELECT v.voter FROM approval_votes v
        WHERE v.approval_id = a.approval_id AND v.vote = 'approve' ORDER BY v.at) AS approved_by,
    a.decided_at, a.decided_by, a.note, a.edited IS NOT NULL AS is_edited,
    CASE a.outcome WHEN 'approved' THEN a.decided_at + a.use_within END AS use_until, a.used_by_call
FROM approvals a WHERE {_MAY_SEE}"""
_PAGE = (
    " AND (:after = '' OR (a.at, a.approval_id) < (SELECT b.at, b.approval_id FROM approvals b"
    " WHERE b.approval_id = :after)) ORDER BY a.at DESC, a.approval_id DESC LIMIT :limit"
)
_ALIKE = (
    " AND a.binding_without_policy = (SELECT b.binding_without_policy FROM approvals b"
    " WHERE b.approval_id = :id) AND a.approval_id <> :id ORDER BY a.at DESC LIMIT :limit"
)
_MORE = {
    "votes": (
        "SELECT voter, vote, note, edited, at FROM approval_votes WHERE approval_id = :id"
        " ORDER BY at"
    ),
    "calls": (
        "SELECT call_id, block FROM approval_asks WHERE approval_id = :id ORDER BY at DESC"
        " LIMIT :limit"
    ),
    "judgements": (
        "SELECT j.model, j.policy, j.probability, j.threshold, j.explanation FROM judgements j"
        " JOIN approvals a USING (call_id, block) WHERE a.approval_id = :id"
        " AND j.model <> 'people' ORDER BY j.step LIMIT :limit"
    ),
    "earlier": _ROWS + _ALIKE,
}
_EDITED = "SELECT edited FROM approvals WHERE approval_id = :id"
_OPEN = f"FROM approvals a WHERE {_IS['open']} AND {_MAY_SEE}"
_CHANGES = (
    "SELECT count(*), coalesce(md5(string_agg(a.approval_id || (SELECT count(*) FROM"
    " approval_votes v WHERE v.approval_id = a.approval_id), ' ' ORDER BY a.approval_id)), 'none')"
    f" {_OPEN}"
)


class ApprovalReader(NamedTuple):
    """Reads them; for an approver who reads nothing else, without those that are for others."""

    engine: AsyncEngine
    approver: str | None = None

    @classmethod
    def of(cls, engine: AsyncEngine, key: str, roles: Iterable[str]) -> Self:
        """Return what a key with these roles reads by."""
        return cls(engine, None if {"auditor", "admin"} & {*roles} else key)

    async def page(
        self, state: ApprovalState | None, *, after: str = "", limit: int = MOST_LISTED
    ) -> JsonObject:
        """Return a page of them, the newest first, of each the beginning of its arguments. `after`
        is the last of the page before."""
        condition = f" AND {_IS[state]}" if state is not None else ""
        items = await self._items(
            _ROWS + condition + _PAGE, after=to_column(after), limit=limit + 1
        )
        shown = items[:limit]
        more = shown[-1]["approval_id"] if len(items) > limit else None
        return {"items": shown, "next_cursor": more}

    async def one(self, approval_id: str) -> JsonObject | None:
        """Return one with all about it; None where there is none, or it is for others."""
        name = to_column(approval_id)
        items = await self._items(f"{_ROWS} AND a.approval_id = :id", id=name, most=_WHOLE)
        if not items:
            return None
        more = {what: await self._items(query, id=name) for what, query in _MORE.items()}
        return items[0] | (await self._items(_EDITED, id=name))[0] | more

    async def changes(self) -> tuple[int, str]:
        """Return how many wait, and a text that changes as soon as one is asked, decided or
        expires, or has a vote."""
        [(count, state)] = [tuple(row.values()) for row in await self._items(_CHANGES)]
        return count, state

    async def _items(self, statement: str, **values: Any) -> list[JsonObject]:
        approver = None if self.approver is None else to_column(self.approver)
        bound = {"approver": approver, "most": _BEGINNING, "limit": _NEAR, **values}
        async with reading(self.engine) as connection:
            rows = await connection.execute(text(statement), bound)
            return [{name: _plain(value) for name, value in row._mapping.items()} for row in rows]


def _plain(value: Any) -> Any:
    """A value of a column as JSON has it."""
    match value:
        case str():
            return from_column(value)
        case bytes():
            return to_text(value)
        case datetime():
            return time(value)
        case UUID():
            return str(value)
        case float():
            return number(value)
        case list():
            return [_plain(entry) for entry in value]
        case _:
            return value
