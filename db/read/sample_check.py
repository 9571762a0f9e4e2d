"""Draws the sample for audits again from the record and compares: it shows that nobody chose
afterwards which decisions are reviewed.

Each decision of a policy with `audit` is on record, also those that were not chosen, with the rule
by which they are. The draw is made of the call's nonce, which is there from its beginning. Reads
page by page in constant memory. Must not know: who asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import Filters
from db.models import AuditRow, CallRow, DecisionRow, Seal
from db.read.json_rows import JsonObject
from db.text import from_column
from protocol.records import CallStart
from protocol.sampling import draw, why

PAGE = 2_000
MOST_NAMED = 100
"""So many are named of what is wrong."""
_LOWEST, _HIGHEST = UUID(int=0), UUID(int=2**128 - 1)
_DRAWN = ("call_id", "block", "step", "score", "u", "audit", "audit_rate", "audit_at")


@dataclass(slots=True)
class DrawCheck:
    """The result of the check."""

    decisions: int = 0
    """Looked at: those that had a rule for audits."""
    sampled: int = 0
    suspicion: int = 0
    unknown: int = 0
    """Those that cannot be drawn again: the call's nonce is not on record (redacted, or its
    beginning was lost), or the block's number."""
    wrong: int = 0
    named: list[JsonObject] = field(default_factory=list)

    def add(self, row: Any, what: str) -> None:
        """Note something wrong."""
        self.wrong += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(
                {
                    "call_id": str(row.call_id),
                    "block": row.block,
                    "step": getattr(row, "step", None),
                    "what": what,
                }
            )

    def item(self) -> JsonObject:
        """As JSON has it."""
        counted = {
            name: getattr(self, name) for name in ("decisions", "sampled", "suspicion", "unknown")
        }
        return {"ok": not self.wrong, **counted, "wrong": self.wrong, "items": self.named}


async def check_draws(connection: AsyncConnection, filters: Filters) -> DrawCheck:
    """Compare the decisions that a filter by time or call chooses; one that is not sealed yet need
    not be in the queue yet."""
    low, high = filters.low or _LOWEST, filters.high or _HIGHEST
    if filters.call_id is not None:
        low, high = filters.call_id, UUID(int=min(filters.call_id.int + 1, _HIGHEST.int))
    report, last = DrawCheck(), (low, -(2**31), -1)
    key = tuple_(DecisionRow.call_id, DecisionRow.block, DecisionRow.step)
    while True:
        page = (
            select(*(getattr(DecisionRow, name) for name in _DRAWN))
            .where(
                DecisionRow.call_id >= last[0],
                DecisionRow.call_id < high,
                DecisionRow.audit_rate.is_not(None),
                key > tuple_(*last),
            )
            .order_by(DecisionRow.call_id, DecisionRow.block, DecisionRow.step)
            .limit(PAGE)
        )
        rows = list(await connection.execute(page))
        await _check_page(connection, rows, report)
        if len(rows) < PAGE:
            break
        last = (rows[-1].call_id, rows[-1].block, rows[-1].step)
    await _check_queue(connection, low, high, report)
    return report


async def _check_page(connection: AsyncConnection, rows: Sequence[Any], report: DrawCheck) -> None:
    ids = sorted({row.call_id for row in rows})
    if not ids:
        return
    within = (CallRow.call_id >= ids[0], CallRow.call_id <= ids[-1])
    calls = select(CallRow.call_id, CallRow.start, CallRow.policy_revision).where(
        *within, CallRow.call_id.in_(ids)
    )
    begun = {row.call_id: row for row in await connection.execute(calls)}
    queued = {
        tuple(row)
        for row in await connection.execute(
            select(AuditRow.call_id, AuditRow.block).where(AuditRow.call_id.in_(ids))
        )
    }
    sealed = set(
        await connection.scalars(select(Seal.call_id).where(Seal.call_id.in_(ids), Seal.part >= 0))
    )
    for row in rows:
        report.decisions += 1
        report.sampled += row.audit == "sampled"
        report.suspicion += row.audit == "suspicion"
        right = why(
            row.u if row.u is not None else 1.0,
            rate=row.audit_rate,
            score=row.score,
            at=row.audit_at,
        )
        if right != row.audit:
            report.add(
                row, f"it is {_sentence(row.audit)}, and by its draw and score {_sentence(right)}"
            )
        # a block's number is the upstream's; one that fits no column has another here
        # (`db.write.fit_columns`), which is below -1
        nonce = _nonce(begun.get(row.call_id)) if row.block >= -1 else ""
        if not nonce:
            report.unknown += 1
        elif row.u != draw(nonce, begun[row.call_id].policy_revision, row.block):
            report.add(row, f"its draw {row.u} is not that of the call's nonce")
        if row.audit and row.call_id in sealed and (row.call_id, row.block) not in queued:
            report.add(row, "it is to be looked at, and not in the queue")


async def _check_queue(
    connection: AsyncConnection, low: UUID, high: UUID, report: DrawCheck
) -> None:
    """Nothing is in the queue that no decision put there."""
    last: tuple[UUID, int] = (low, -(2**31) - 1)
    key = tuple_(AuditRow.call_id, AuditRow.block)
    while True:
        page = select(AuditRow.call_id, AuditRow.block).where(
            AuditRow.call_id >= last[0], AuditRow.call_id < high, key > tuple_(*last)
        )
        rows = list(
            await connection.execute(page.order_by(AuditRow.call_id, AuditRow.block).limit(PAGE))
        )
        ids = sorted({row.call_id for row in rows})
        if ids:
            made = select(DecisionRow.call_id, DecisionRow.block).where(
                DecisionRow.call_id >= ids[0],
                DecisionRow.call_id <= ids[-1],
                DecisionRow.call_id.in_(ids),
                DecisionRow.audit != "",
            )
            known = {tuple(row) for row in await connection.execute(made)}
            for row in rows:
                if tuple(row) not in known:
                    report.add(row, "it is in the queue, and no decision put it there")
        if len(rows) < PAGE:
            return
        last = (rows[-1].call_id, rows[-1].block)


def _nonce(begun: Any) -> str:
    """A call's nonce, or nothing where it is not on record."""
    try:
        return (
            msgspec.json.decode(from_column(begun.start), type=CallStart).nonce
            if begun is not None and begun.start
            else ""
        )
    except msgspec.MsgspecError:
        return ""


def _sentence(audit: str) -> str:
    return audit or "not to be looked at"
