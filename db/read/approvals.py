"""Tool calls that wait for people, and what became of them. Must not know: HTTP."""

from typing import Any, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from db.engine import reading
from db.filters import ApprovalState
from db.read.json_rows import JsonObject, number, time
from db.text import from_column, to_column
from protocol.records import to_text

MOST_LISTED = 100
_BEGINNING = 2_000
"""Bytes of arguments that a list shows."""
_WHOLE = 2**30
_NEAR = 20
"""Calls, and earlier requests, that are listed with one."""
_TEXTS = ("key", "session", "policy", "tool", "server", "rule", "why", "decided_by", "note")
_IS: dict[ApprovalState, str] = {
    "open": "a.outcome IS NULL AND now() < a.expires_at",
    "expired": "a.outcome IS NULL AND now() >= a.expires_at",
    **{word: f"a.outcome = '{word}'" for word in ("approved", "denied", "superseded")},
}
STATE = f"coalesce(a.outcome, CASE WHEN {_IS['open']} THEN 'open' ELSE 'expired' END)"
"""What a request is now: an expression of SQL."""
_COLUMNS = (
    *_TEXTS,
    *("approval_id", "call_id", "block", "at", "expires_at", "key_id", "revision", "executor"),
    *("need", "approvers", "decided_at", "used_by_call"),
)
_ROWS = f"""
SELECT {", ".join(f"a.{name}" for name in _COLUMNS)}, a.edited IS NOT NULL AS is_edited,
    substring(a.arguments, 1, :most) AS begun, length(a.arguments) AS arguments_bytes,
    {STATE} AS state, a.decided_at + a.use_within AS use_until,
    extract(epoch FROM a.expires_at - now())::float AS left_s,
    ARRAY(SELECT v.voter FROM approval_votes v
        WHERE v.approval_id = a.approval_id AND v.vote = 'approve' ORDER BY v.at) AS approved_by
FROM approvals a
WHERE (cast(:approver AS text) IS NULL OR a.approvers = '{{}}' OR :approver = ANY (a.approvers))"""
_PAGE = (
    " AND (:after = '' OR (a.at, a.approval_id) < (SELECT b.at, b.approval_id FROM approvals b"
    " WHERE b.approval_id = :after)) ORDER BY a.at DESC, a.approval_id DESC LIMIT :limit"
)
_ALIKE = (
    " AND a.binding_without_policy = (SELECT b.binding_without_policy FROM approvals b"
    " WHERE b.approval_id = :id) AND a.approval_id <> :id ORDER BY a.at DESC LIMIT :limit"
)
_VOTES = "SELECT * FROM approval_votes WHERE approval_id = :id ORDER BY at"
_EDITED = "SELECT edited FROM approvals WHERE approval_id = :id"
_CALLS = (
    "SELECT call_id, block FROM approval_asks WHERE approval_id = :id ORDER BY at DESC LIMIT :limit"
)
_JUDGED = (
    "SELECT j.model, j.policy, j.probability, j.threshold, j.explanation FROM judgements j"
    " JOIN approvals a USING (call_id, block) WHERE a.approval_id = :id AND j.model <> 'people'"
    " ORDER BY j.step LIMIT :limit"
)
_OPEN = (
    f"FROM approvals a WHERE {_IS['open']}"
    " AND (cast(:approver AS text) IS NULL OR a.approvers = '{}' OR :approver = ANY (a.approvers))"
)
_COUNT = f"SELECT count(*) {_OPEN}"
_CHANGES = (
    "SELECT coalesce(md5(string_agg(a.approval_id || (SELECT count(*) FROM approval_votes v"
    f" WHERE v.approval_id = a.approval_id), ' ' ORDER BY a.approval_id)), 'none') {_OPEN}"
)


class ApprovalReader(NamedTuple):
    """Reads them; for an approver who reads nothing else, without those that are for others."""

    engine: AsyncEngine
    approver: str | None = None

    async def page(
        self, state: ApprovalState | None, *, after: str = "", limit: int = MOST_LISTED
    ) -> JsonObject:
        """Return a page of them, the newest first, of each the beginning of its arguments. `after`
        is the last of the page before."""
        condition = f" AND {_IS[state]}" if state is not None else ""
        values = {"after": after, "limit": limit + 1, "most": _BEGINNING}
        rows = await self._rows(_ROWS + condition + _PAGE, values)
        items = [_item(row) for row in rows[:limit]]
        return {
            "items": items,
            "next_cursor": items[-1]["approval_id"] if len(rows) > limit else None,
        }

    async def one(self, approval_id: str) -> JsonObject | None:
        """Return one with all about it; None where there is none, or it is for others."""
        values = {"id": to_column(approval_id), "limit": _NEAR, "most": _WHOLE}
        rows = await self._rows(f"{_ROWS} AND a.approval_id = :id", values)
        if not rows:
            return None
        votes, calls, judged, changed = [
            await self._rows(statement, values) for statement in (_VOTES, _CALLS, _JUDGED, _EDITED)
        ]
        alike = await self._rows(_ROWS + _ALIKE, values | {"most": _BEGINNING})
        return {
            **_item(rows[0]),
            "edited": None if changed[0].edited is None else to_text(changed[0].edited),
            "votes": [
                {
                    "voter": from_column(vote.voter),
                    "vote": vote.vote,
                    "note": from_column(vote.note),
                    "edited": None if vote.edited is None else to_text(vote.edited),
                    "at": time(vote.at),
                }
                for vote in votes
            ],
            "calls": [{"call_id": str(call.call_id), "block": call.block} for call in calls],
            "judgements": [
                {
                    "model": from_column(row.model),
                    "policy": row.policy,
                    "probability": number(row.probability),
                    "threshold": number(row.threshold),
                    "explanation": from_column(row.explanation),
                }
                for row in judged
            ],
            "earlier": [_item(row) for row in alike],
        }

    async def count_open(self) -> int:
        """Return how many wait."""
        return int((await self._rows(_COUNT, {}))[0][0])

    async def changes(self) -> str:
        """Return a text that changes as soon as one is asked, decided or expires, or has a vote."""
        return str((await self._rows(_CHANGES, {}))[0][0])

    async def _rows(self, statement: str, values: dict[str, Any]) -> list[Any]:
        named = None if self.approver is None else to_column(self.approver)
        async with reading(self.engine) as connection:
            return list(await connection.execute(text(statement), {"approver": named, **values}))


def _item(row: Any) -> JsonObject:
    texts = {name: from_column(getattr(row, name)) for name in _TEXTS}
    return {
        "approval_id": row.approval_id,
        "state": row.state,
        "call_id": str(row.call_id),
        "block": row.block,
        "at": time(row.at),
        "expires_at": time(row.expires_at),
        "left_s": max(0.0, row.left_s) if row.state == "open" else 0.0,
        **{name: texts[name] for name in ("key", "session", "policy", "tool", "server")},
        "key_id": row.key_id,
        "revision": row.revision,
        "executor": row.executor,
        "arguments": to_text(row.begun),
        "arguments_bytes": row.arguments_bytes,
        **{name: texts[name] for name in ("rule", "why")},
        "need": row.need,
        "approvers": [from_column(name) for name in row.approvers],
        "approved_by": [from_column(name) for name in row.approved_by],
        "decided_at": time(row.decided_at),
        **{name: texts[name] for name in ("decided_by", "note")},
        "is_edited": row.is_edited,
        "use_until": time(row.use_until) if row.state == "approved" else None,
        "used_by_call": None if row.used_by_call is None else str(row.used_by_call),
    }
