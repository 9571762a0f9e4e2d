"""Notices of tool calls that wait for people, as far as they are due: taken, and marked as sent.

Taking one makes it due again later, so that a writer which is killed while it sends loses none.
Must not know: who is notified, and how."""

from datetime import datetime
from typing import Any, Literal, LiteralString, NamedTuple

from db.text import from_column
from db.write.connection import AuditConnection
from protocol.records import to_text

_STATE = "coalesce(a.outcome, CASE WHEN now() < a.expires_at THEN 'open' ELSE 'expired' END)"
_TAKE: LiteralString = f"""
SELECT n.approval_id, n.about, n.tries, n.sent, {_STATE}, a.arguments, a.expires_at, a.tool, a.key,
    a.session, a.rule, a.why, a.decided_by
FROM sluice_take_notices(%s) n JOIN approvals a ON a.approval_id = n.approval_id"""
_MARK: LiteralString = "SELECT sluice_mark_notice(%s, %s, %s, %s, %s)"


class DueNotice(NamedTuple):
    """That people are asked, or that a request ended; `sent`: the names of those who have it."""

    approval_id: str
    about: Literal["asked", "ended"]
    tries: int
    sent: list[str]
    state: str
    arguments: str
    expires_at: datetime
    tool: str
    key: str
    session: str
    rule: str
    why: str
    decided_by: str


class DueNotices(AuditConnection):
    """Takes them, one writer each. Not for concurrent use."""

    async def take(self, most: int) -> list[DueNotice]:
        """Return some that are due. Raises AuditUnavailable."""
        return [_notice(row) for row in await self._rows(_TAKE, (most,))]

    async def mark(self, notice: DueNotice, sent: list[str], *, is_done: bool) -> None:
        """Keep who has it now; `is_done`: all who should. Raises AuditUnavailable."""
        named = (notice.approval_id, notice.about, notice.tries)
        await self._rows(_MARK, (*named, sent, is_done))


def _notice(row: Any) -> DueNotice:
    values = [*row[:5], to_text(row[5]), row[6], *map(from_column, row[7:])]
    return DueNotice._make(values)
