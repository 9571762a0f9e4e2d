"""One call whole, as `GET /audit/calls/{id}` has it: its request, and all rows about it but the
chunks. Must not know: lists, pages.
"""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sqlalchemy import Select, exists, func, inspect, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from db.dead_letters import OF_CALL
from db.filters import created_at
from db.missing_records import KIND as HOLE
from db.models import (
    Attempt,
    BlockRow,
    CallRow,
    ChunkRow,
    DeadLetter,
    DecisionRow,
    End,
    Event,
    JudgementRow,
    ReleaseRow,
    RequestBody,
    ScoreRow,
    ToolCallRow,
)
from db.read.json_rows import (
    JsonObject,
    attempt_item,
    block_item,
    call_item,
    decision_item,
    event_item,
    facts,
    judgement_item,
    only_attempt,
    payload,
    score_item,
    tool_call_item,
)
from db.read.shed import read_shed
from db.read.views import CALL_LOG, TOOL_CALL_LOG
from db.read.whys import add_whys

_PARTS = (
    ("tool_calls", tool_call_item, TOOL_CALL_LOG, (TOOL_CALL_LOG.c.block,)),
    ("blocks", block_item, BlockRow, (BlockRow.block,)),
    ("judgements", judgement_item, JudgementRow, (JudgementRow.block, JudgementRow.step)),
    ("scores", score_item, ScoreRow, (ScoreRow.block, ScoreRow.step)),
    ("decisions", decision_item, DecisionRow, (DecisionRow.block, DecisionRow.step)),
    ("attempts", attempt_item, Attempt, (Attempt.segment, Attempt.attempt)),
    ("events", event_item, Event, (Event.at, Event.kind, Event.number)),
)
"""Lists of a call: the name, what makes an item of a row, its table, and in which order."""


async def read_call(connection: AsyncConnection, call_id: UUID) -> JsonObject | None:
    """Return one call with its request, tool calls, blocks, judgements and events; None when there
    is no such call."""
    row: Any = (
        await connection.execute(select(CALL_LOG).where(CALL_LOG.c.call_id == call_id))
    ).one_or_none()
    if row is None and (row := await without_beginning(connection, call_id)) is None:
        return None
    begun = (await connection.execute(_of_call(CallRow, call_id))).one_or_none()
    parts = {
        name: [
            item(record) for record in await connection.execute(_of_call(table, call_id, *order))
        ]
        for name, item, table, order in _PARTS
    }
    await add_whys(connection, parts["tool_calls"])
    sums = await _sums(connection, call_id)
    parts["attempts"] = parts["attempts"] or only_attempt(row, sums["chunks"])
    return {**call_item(row), **facts(begun, "calls"), **sums, **parts}


async def _sums(connection: AsyncConnection, call_id: UUID) -> JsonObject:
    """The request, and how much there is of what is not read here."""
    body = await connection.scalar(select(RequestBody.body).where(RequestBody.call_id == call_id))
    chunks = await connection.scalar(
        select(func.count()).select_from(ChunkRow).where(ChunkRow.call_id == call_id)
    )
    size = func.coalesce(func.sum(func.octet_length(ReleaseRow.payload)), 0)
    releases, released_bytes = (
        await connection.execute(select(func.count(), size).where(ReleaseRow.call_id == call_id))
    ).one()
    set_aside = (
        select(func.count())
        .select_from(DeadLetter)
        .where(text(f"{OF_CALL} = :call"))
        .params(call=str(call_id))
    )
    return {
        **({"request": None, "request_base64": None} if body is None else payload("request", body)),
        "chunks": chunks,
        "releases": releases,
        "released_bytes": int(released_bytes),
        "dead_letters": await connection.scalar(set_aside),
        "shed": await read_shed(connection, call_id),
    }


def _of_call(table: Any, call_id: UUID, *order: Any) -> Select[Any]:
    rows = inspect(table).selectable
    return select(*rows.c).where(rows.c.call_id == call_id).order_by(*order)


async def is_known(connection: AsyncConnection, call_id: UUID) -> bool:
    """Is anything of this call on record?"""
    # of one that no worker began its end is on record, of one whose beginning was lost at least a
    # mark that says so, or a tool call
    known = [
        exists().where(table.call_id == call_id) for table in (CallRow, End, Event, ToolCallRow)
    ]
    return bool(await connection.scalar(select(or_(*known))))


async def without_beginning(connection: AsyncConnection, call_id: UUID) -> Any:
    """Return what `call_log` would show of a call whose START is not stored: its end, if stored;
    None for an unknown call."""
    if not await is_known(connection, call_id):
        return None
    end: Any = (await connection.execute(_of_call(End, call_id))).mappings().one_or_none()
    marked = exists().where(Event.call_id == call_id, Event.kind == HOLE)
    known = {
        "call_id": call_id,
        "created_at": created_at(call_id),
        "ended_at": end and end["at"],
        "incomplete": await connection.scalar(select(marked)),
    }
    return SimpleNamespace(**dict.fromkeys(CALL_LOG.c.keys()) | dict(end or {}) | known)
