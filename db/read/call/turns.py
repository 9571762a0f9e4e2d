"""Recorded assistant turns by the tool call ids in them: read back whole from the chunks, for calls
of the same API key.

A lookup never raises and takes at most `FIND_S` once it has a place: whatever was lost by then is
named in its result. The end of an answer may still be on its way to the record when its client asks
again, so a turn whose chunks are not all there is waited for.
"""

import asyncio
import contextlib
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

import msgspec
from sqlalchemy import ColumnElement, and_, exists, func, or_, select, true
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.orm import aliased

from db.engine import open_engine, reading
from db.models import BlockRow, CallRow, ChunkRow, End, ToolCallRow
from db.read.call.places import FIND_S, Stay, Turn, any_turn
from db.text import INDEXED, from_column, to_column, to_short
from protocol.bounds import LOOKUPS_AT_ONCE, MAX_LOOKUPS
from protocol.dialects.table import DIALECTS
from protocol.dialects.turns import BaseTurnBuilder, Lost, RecordedTurns, StoredTurn
from protocol.errors import AuditUnavailable
from protocol.records import PASSED
from protocol.request import DialectName

MISSING_S = 0.5
"""How long ids without a record are waited for where tool calls are released before they are on
record."""
MAX_CALL_BYTES = 8 * 2**20
MAX_BYTES = 32 * 2**20
_PAGE = 1000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.2
_MOST_CALLS = 1000
_SETTLED = timedelta(seconds=10)
"""After its end a call's chunks are on record, or never will be."""
_WITHHELD = ("block", "withheld")
_OWN_WORDS = ("text", "thinking", "tool_use")
_log = logging.getLogger(__name__)


class _Found(msgspec.Struct):
    """A call whose client has some of the ids."""

    upstream: str
    model: str
    ids: list[str]
    blocks: list[int]


class _Turn(msgspec.Struct, frozen=True):
    """A turn read back; `content` None: there is none that could be sent back, and never will
    be."""

    content: list[dict[str, object]] | None
    size: int = 0
    container: str = ""
    container_expires_at: str = ""


class _Reading:
    """How far a call's chunks were read."""

    def __init__(self, builder: BaseTurnBuilder) -> None:
        self.builder = builder
        self.next = 1
        self.size = 0
        self._was_event = False

    def take(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """Take rows in order as far as none is missing. The end of a stream that another answer
        goes on with has a number and no chunk; what else comes behind an end is no part of it."""
        builder = self.builder
        for seq, raw in rows:
            if builder.complete and seq == self.next + self._was_event:
                builder.go_on()
            elif seq != self.next or builder.is_broken:
                return
            if not builder.complete or builder.is_paused or builder.goes_on:
                builder.take(raw)
            self.next, self.size = seq + 1, self.size + len(raw)
            self._was_event = not raw.lstrip().startswith(b"{")

    def turn(self, *, is_settled: bool) -> _Turn | None:
        """The turn; None while more may come."""
        builder = self.builder
        if is_settled:
            builder.finish()
        if builder.complete and (is_settled or not builder.is_paused):
            return _Turn(
                builder.content(), self.size, builder.container, builder.container_expires_at
            )
        return _Turn(None) if builder.is_broken or is_settled else None


class TurnReader:
    """Finds turns of one dialect; keeps those it built, which never change. Share one per process;
    close it at the end.

    `durable`: tool calls are on record before their client has them, so an id without a record is
    nobody's.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        dialect: DialectName,
        *,
        durable: bool = True,
        turn: Turn = any_turn,
    ) -> None:
        if (turns := DIALECTS[dialect].turns) is None:
            raise ValueError(f"turns of {dialect} are never looked up")
        self._engine, self._durable, self._turn = engine, durable, turn
        self._make_builder = turns.TurnBuilder
        self._built: OrderedDict[UUID, _Turn] = OrderedDict()
        self._built_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def open(
        cls, database_url: str, dialect: DialectName, *, durable: bool = True, turn: Turn = any_turn
    ) -> Self:
        """Return a reader with a read-only engine of its own; nothing connects yet."""
        engine = open_engine(
            database_url, read_only=True, answer_s=FIND_S, pool_size=LOOKUPS_AT_ONCE
        )
        return cls(engine, dialect, durable=durable, turn=turn)

    async def close(self) -> None:
        """End lookups and close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._engine.dispose()

    @contextlib.asynccontextmanager
    async def finding(
        self, key_id: str, ids: Sequence[str], *, answers: Sequence[str] = ()
    ) -> AsyncIterator[RecordedTurns]:
        """Lend the turns of calls of the API key with this id whose client received these tool
        calls, or that have these ids: until they are given back, the key has one place less. An id
        that two calls share finds neither. Left out are turns that are cut or of another dialect,
        and turns in which a policy withheld what the provider's own tools did or found.
        """
        turns: dict[UUID, StoredTurn] = {}
        lost: list[Lost] = []
        async with Stay(self._turn, key_id) as stay:
            await stay.take()
            task = asyncio.create_task(
                self._find(stay, ids[-MAX_LOOKUPS:], answers[-MAX_LOOKUPS:], turns)
            )
            self._tasks.add(task)
            task.add_done_callback(self._done)
            # not awaited after the time is up: a driver that cancels waits for a server that may
            # not answer
            if not (await asyncio.wait({task}, timeout=FIND_S))[0]:
                task.cancel()
                lost.append("read too late")
            elif task.cancelled() or task.exception() is not None:
                lost.append("unreadable")
            if stay.leaves_out:
                lost.append("too large")
            yield RecordedTurns([turns[call] for call in sorted(turns)], lost)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        if isinstance(error := task.exception(), AuditUnavailable):
            _log.warning("recorded turns cannot be read", extra={"error": error.error_code})
        elif error is not None:
            _log.error("lookup of recorded turns failed", exc_info=error)

    async def _find(
        self, stay: Stay, ids: Sequence[str], answers: Sequence[str], turns: dict[UUID, StoredTurn]
    ) -> None:
        loop = asyncio.get_running_loop()
        began, pause = loop.time(), _FIRST_PAUSE_S
        readings: dict[UUID, _Reading] = {}
        while ids or answers:
            async with reading(self._engine) as connection:
                calls = await _answers(connection, stay.key_id, answers) if answers else {}
                calls |= await _calls(connection, stay.key_id, ids) if ids else {}
                waiting = await self._read(connection, calls, readings)
            now = datetime.now(UTC)
            turns.clear()
            for call, of in calls.items():
                if (turn := self._built.get(call)) is not None and turn.content is not None:
                    container = (
                        turn.container if not _is_over(turn.container_expires_at, now) else ""
                    )
                    turns[call] = StoredTurn(
                        str(call),
                        turn.content,
                        container,
                        tuple(of.ids),
                        of.upstream,
                        of.model,
                        tuple(of.blocks),
                    )
            is_missing = (
                not self._durable
                and loop.time() - began < MISSING_S
                and sum(len(c.ids) for c in calls.values()) < len(set(ids))
            )
            if not waiting and not is_missing:
                stay.leaves_out = not calls.keys() <= self._built.keys()
                return
            stay.held = sum(turn_reading.size for turn_reading in readings.values()) + sum(
                self._built[call].size for call in turns
            )
            await stay.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _read(
        self, connection: AsyncConnection, calls: dict[UUID, _Found], readings: dict[UUID, _Reading]
    ) -> bool:
        """Read what is not built yet, the newest first, within the bounds; says whether there is
        something to wait for."""
        unread = [call for call in sorted(calls, reverse=True) if call not in self._built]
        for call in calls.keys() & self._built.keys():
            self._built.move_to_end(call)
        if not unread:
            return False
        settled = await _settled(connection, unread)
        sizes = await _sizes(connection, unread)
        room = MAX_BYTES - sum(self._built[c].size for c in calls if c in self._built)
        waiting = False
        for call in unread:
            if sizes.get(call, 0) > MAX_CALL_BYTES:
                continue
            room -= sizes.get(call, 0)
            if room < 0:
                break
            progress = readings.setdefault(call, _Reading(self._make_builder()))
            await _read_chunks(connection, call, progress)
            turn = progress.turn(is_settled=call in settled)
            if turn is None:
                waiting = True
            else:
                self._keep(call, turn)
        return waiting

    def _keep(self, call: UUID, turn: _Turn) -> None:
        self._built[call] = turn
        self._built_bytes += turn.size
        while len(self._built) > 10_000 or self._built_bytes > 2 * MAX_BYTES:
            _, old = self._built.popitem(last=False)
            self._built_bytes -= old.size


async def _calls(
    connection: AsyncConnection, key_id: str, ids: Sequence[str]
) -> dict[UUID, _Found]:
    """The calls of this key that released tool calls with these ids, with the ids that are of one
    call alone."""
    wanted = ToolCallRow.tool_call_id.in_([to_column(to_short(i, INDEXED)) for i in ids])
    call_ids = (
        await connection.scalars(
            select(ToolCallRow.call_id).where(wanted).distinct().limit(_MOST_CALLS + 1)
        )
    ).all()
    if not call_ids:
        return {}

    def within(call_id: Any) -> ColumnElement[bool]:
        # a condition on every table, so that all days but those of the calls are left out: planning
        # for all takes ten times as long, at each of an agent's steps
        return call_id.in_(call_ids) if len(call_ids) <= _MOST_CALLS else true()

    statement = (
        select(
            ToolCallRow.call_id,
            ToolCallRow.tool_call_id,
            ToolCallRow.block,
            CallRow.upstream,
            CallRow.model,
            _has_withheld(within),
        )
        .join(CallRow, CallRow.call_id == ToolCallRow.call_id)
        .outerjoin(
            BlockRow,
            and_(
                BlockRow.call_id == ToolCallRow.call_id,
                within(BlockRow.call_id),
                BlockRow.block == ToolCallRow.block,
            ),
        )
        .where(
            wanted,
            within(ToolCallRow.call_id),
            within(CallRow.call_id),
            CallRow.key_id == key_id,
            ToolCallRow.executor == "client",
            func.coalesce(BlockRow.verdict, ToolCallRow.verdict).in_(PASSED),
            ToolCallRow.released_arguments.is_not(None),
        )
    )
    rows = (await connection.execute(statement)).all()
    seen = Counter(row.tool_call_id for row in rows)
    calls: dict[UUID, _Found] = {}
    for call, identity, block, upstream, model, is_withheld in rows:
        if seen[identity] == 1 and not is_withheld:
            released_call = calls.setdefault(
                call, _Found(from_column(upstream), from_column(model), [], [])
            )
            released_call.ids.append(from_column(identity))
            released_call.blocks.append(block)
    return calls


def _has_withheld(within: Callable[[Any], ColumnElement[bool]]) -> ColumnElement[bool]:
    """Is there something in the call of a tool call that the turn would carry past the policy?"""
    later, theirs = aliased(BlockRow), aliased(ToolCallRow)
    # what the provider did or found, and the client did not get
    of_later = (later.call_id == ToolCallRow.call_id, within(later.call_id))
    kept_back = exists().where(
        *of_later, later.verdict.in_(_WITHHELD), later.kind.not_in(_OWN_WORDS)
    )
    of_theirs = (theirs.call_id == ToolCallRow.call_id, within(theirs.call_id))
    # and what was to be the turn before another model answered: its chunks are before that model's
    is_other = or_(
        and_(theirs.executor != "client", theirs.verdict.in_(_WITHHELD)),
        theirs.verdict == "discarded",
    )
    return or_(kept_back, exists().where(*of_theirs, is_other))


async def _answers(
    connection: AsyncConnection, key_id: str, wanted: Sequence[str]
) -> dict[UUID, _Found]:
    """Those of these calls that are of this key, and of whose answers nothing that the provider did
    was kept back."""
    ids = [UUID(answer_id) for answer_id in wanted]
    kept_back = exists().where(
        BlockRow.call_id == CallRow.call_id,
        BlockRow.call_id.in_(ids),
        BlockRow.verdict.in_(_WITHHELD),
        BlockRow.kind.not_in(_OWN_WORDS),
    )
    denied = exists().where(
        ToolCallRow.call_id == CallRow.call_id,
        ToolCallRow.call_id.in_(ids),
        ToolCallRow.verdict.in_((*_WITHHELD, "discarded")),
    )
    statement = select(CallRow.call_id, CallRow.upstream, CallRow.model).where(
        CallRow.call_id.in_(ids), CallRow.key_id == key_id, ~kept_back, ~denied
    )
    rows = await connection.execute(statement)
    return {
        call: _Found(from_column(upstream), from_column(model), [], [])
        for call, upstream, model in rows
    }


async def _settled(connection: AsyncConnection, calls: Sequence[UUID]) -> set[UUID]:
    """Those whose end is on record for a while."""
    return set(
        (
            await connection.scalars(
                select(End.call_id).where(End.call_id.in_(calls), End.at < func.now() - _SETTLED)
            )
        ).all()
    )


async def _sizes(connection: AsyncConnection, calls: Sequence[UUID]) -> dict[UUID, int]:
    total = func.sum(func.octet_length(ChunkRow.raw))
    rows = await connection.execute(
        select(ChunkRow.call_id, total)
        .where(ChunkRow.call_id.in_(calls))
        .group_by(ChunkRow.call_id)
    )
    return {call: int(size) for call, size in rows}


async def _read_chunks(connection: AsyncConnection, call: UUID, progress: _Reading) -> None:
    while not progress.builder.is_broken:
        before = progress.next
        wanted = (
            select(ChunkRow.seq, ChunkRow.raw)
            .where(ChunkRow.call_id == call, ChunkRow.seq >= before)
            .order_by(ChunkRow.seq)
            .limit(_PAGE)
        )
        rows = [(seq, raw) for seq, raw in await connection.execute(wanted)]
        # parsing megabytes must not hold up the other calls of this process
        await asyncio.to_thread(progress.take, rows)
        if len(rows) < _PAGE or progress.next == before:
            return


def _is_over(expires_at: str, now: datetime) -> bool:
    """Has a container expired? Without a time that can be read it has not."""
    try:
        expires = datetime.fromisoformat(expires_at)
    except ValueError:
        return False
    return (expires if expires.tzinfo else expires.replace(tzinfo=UTC)) <= now
