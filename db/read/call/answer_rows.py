"""Single kept answers as they lie in the database: read with their requests, and waited for while
they may still be on their way to the record. Must not know: conversations, what items refer to.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Select, exists, func, literal, select, true
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from db.engine import reading
from db.models import CallRow, End, ReleaseRow, RequestBody
from db.read.call.places import FIND_S, Stay
from protocol.stored_answers import (
    StoredAnswerRules,
    StoredRequest,
)

MAX_ANSWER_BYTES = 48 * 2**20
"""Of an answer and its request as they are on record."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.2
_RECENT = timedelta(hours=1)
"""A call that began longer ago is on record, or never will be."""
_SETTLED = timedelta(seconds=10)
"""After its end a call's request is on record, or never will be: a large one is written later than
the end."""
_LAST_MS = 2**42
"""In the year 2109: what nobody made may name a time that no date has."""


class StoredAnswer(msgspec.Struct, frozen=True):
    """One kept answer with its request."""

    call_id: str
    asked: StoredRequest
    answer: dict[str, Any]
    size: int


class AnswerRows:
    """Reads answers of one dialect. `max_bytes` bounds what is read of several calls."""

    def __init__(
        self, engine: AsyncEngine, dialect: str, keeper: StoredAnswerRules, *, max_bytes: int
    ) -> None:
        self._engine, self._dialect, self._max_bytes = engine, dialect, max_bytes
        self._keeper = keeper
        self._waiting = Counter[str]()
        """How many lookups of each key wait for what is not on record yet."""

    async def several(
        self, stay: Stay, call_ids: Sequence[str], *, alone: bool = False
    ) -> dict[str, StoredAnswer]:
        """Return those of these calls' answers that are on record now, as many as a conversation
        may hold."""
        async with reading(self._engine) as connection:
            calls = [UUID(call_id) for call_id in call_ids if call_id]
            answers, _ = await self.read(
                connection, stay, calls, alone=alone, most_bytes=self._max_bytes
            )
        return {answer.call_id: answer for answer in answers.values()}

    async def wait_for(
        self, stay: Stay, call_id: str, *, alone: bool = False
    ) -> StoredAnswer | None:
        """Return the answer of a call, once it is on record; None where it never will be."""
        if not call_id:
            return None
        call, loop = UUID(call_id), asyncio.get_running_loop()
        until, pause = loop.time() + FIND_S, _FIRST_PAUSE_S
        key = stay.key_id
        self._waiting[key] += 1
        try:
            while True:
                async with reading(self._engine) as connection:
                    answers, may_come = await self.read(connection, stay, [call], alone=alone)
                # the more wait for the same key, the less often each asks
                wait_s = pause * self._waiting[key]
                if answers or call not in may_come or loop.time() >= until:
                    return answers.get(call)
                await stay.wait(min(wait_s, max(0.0, until - loop.time())))
                pause = min(2 * pause, _LONGEST_PAUSE_S)
        finally:
            self._waiting[key] -= 1
            self._waiting += Counter()

    async def read(
        self,
        connection: AsyncConnection,
        stay: Stay,
        calls: Sequence[UUID],
        *,
        alone: bool = False,
        most_bytes: int = MAX_ANSWER_BYTES,
    ) -> tuple[dict[UUID, StoredAnswer], set[UUID]]:
        """Return the answers of calls, the first ones that have `most_bytes` together, and which of
        the calls may still get theirs. `alone`: without their requests, whether they are kept or
        not."""
        if not calls:
            return {}, set()
        sizes = (
            literal(0) if alone else func.octet_length(RequestBody.body),
            func.octet_length(ReleaseRow.payload),
        )
        ended = exists().where(End.call_id == CallRow.call_id, End.call_id.in_(calls))
        statement = _last_of(calls, *sizes, ended, ended.where(End.at < func.now() - _SETTLED))
        of_key = statement.where(
            CallRow.dialect.in_([self._dialect]), CallRow.key_id == stay.key_id
        )
        rows = {row[0]: row[1:] for row in await connection.execute(of_key)}
        wanted: list[UUID] = []
        may_come = {
            call
            for call in calls
            if call not in rows and abs(datetime.now(UTC) - _began(call)) < _RECENT
        }
        for call in calls:
            asked, released_bytes, has_ended, is_settled = rows.get(call, (None, None, True, True))
            if asked is None or released_bytes is None:
                if call in rows and not (has_ended if asked is not None else is_settled):
                    may_come.add(call)
                continue
            most_bytes -= asked + released_bytes
            if asked + released_bytes > MAX_ANSWER_BYTES or (most_bytes < 0 and wanted):
                break
            wanted.append(call)
        if not wanted:
            return {}, may_come
        contents = await connection.execute(
            _last_of(wanted, literal(b"") if alone else RequestBody.body, ReleaseRow.payload)
        )
        payloads = [
            (call, bytes(body or b""), bytes(payload or b"")) for call, body, payload in contents
        ]
        # parsing megabytes must not hold up the other calls of this process
        answers = await asyncio.to_thread(self._parse_all, payloads, alone=alone)
        stay.held += sum(answer.size for answer in answers.values())
        may_come |= {call for call in wanted if call not in answers and not rows[call][2]}
        return answers, may_come

    def _parse_all(
        self, payloads: Sequence[tuple[UUID, bytes, bytes]], *, alone: bool
    ) -> dict[UUID, StoredAnswer]:
        parsed = {
            call: self._parse(str(call), body, payload)
            for call, body, payload in payloads
            if payload and (body or alone)
        }
        return {call: answer for call, answer in parsed.items() if answer is not None}

    def _parse(self, call_id: str, body: bytes, payload: bytes) -> StoredAnswer | None:
        answer = self._keeper.answer(payload)
        if (
            answer is None
            or answer.get("id") is None
            or self._keeper.call_of_answer(str(answer["id"])) != call_id
        ):
            return None
        try:
            asked = self._keeper.asked(body) if body else StoredRequest("", [], True)
        except ValueError:
            return None
        return (
            StoredAnswer(call_id, asked, answer, len(body) + len(payload))
            if asked.is_kept
            else None
        )


def _last_of(calls: Sequence[UUID], body: Any, payload: Any, *more: Any) -> Select[Any]:
    """Of each call something of its request and of its last release, by one look into the index: it
    may have had 20,000. A condition on every table leaves out all days but those of the calls."""
    last = (
        select(payload.label("payload"))
        .where(ReleaseRow.call_id == CallRow.call_id)
        .where(ReleaseRow.call_id.between(min(calls), max(calls)))
        .order_by(ReleaseRow.number.desc())
        .limit(1)
        .lateral("last")
    )
    is_body = (RequestBody.call_id == CallRow.call_id) & RequestBody.call_id.in_(calls)
    return (
        select(CallRow.call_id, body, last.c.payload, *more)
        .outerjoin(RequestBody, is_body)
        .outerjoin(last, true())
        .where(CallRow.call_id.in_(calls))
    )


def _began(call: UUID) -> datetime:
    return datetime.fromtimestamp(min(call.int >> 80, _LAST_MS) / 1000, UTC)
