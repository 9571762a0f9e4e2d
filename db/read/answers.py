"""Kept answers on record: what a request goes on with, and what its client is shown again, for calls of the same API key.

An answer is kept once its end was released to its client, unless its request said otherwise. Who asks for another key's gets what an id
gets that never was. A client goes on within milliseconds, so what may still be on its way to the record is waited for.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

import msgspec
from sqlalchemy import exists, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from db.engine import open_engine
from db.models import Call, End, Release, RequestBody
from db.read.queries import reading
from db.read.turns import FIND_S, Holder, made_with
from protocol.bounds import MAX_CHAINED, MAX_LOOKUPS
from protocol.dialects import DIALECTS
from protocol.errors import AuditUnavailable
from protocol.json_strict import dumps
from protocol.kept import Asked, Keeper, KeptAnswers, Missing, WantedAnswers

WALK_S = 4.0
"""How long a whole conversation may take to be read: less than `limits.claim_s`, after which its client is told that nobody took it."""
MAX_ANSWER_BYTES = 48 * 2**20
"""Of an answer and its request as they are on record."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.2
_RECENT = timedelta(hours=1)
"""A call that began longer ago is on record, or never will be."""
_SETTLED = timedelta(seconds=10)
"""After its end a call's request is on record, or never will be: a large one is written later than the end."""
_LAST_MS = 2**42
"""In the year 2109: what nobody made may name a time that no date has."""


class KeptAnswer(msgspec.Struct, frozen=True):
    """One kept answer with its request."""

    call_id: str
    asked: Asked
    answer: dict[str, Any]
    size: int


class _Gone(Exception):
    """There is nothing to go on with, for this reason."""

    def __init__(self, missing: Missing, item: str = "") -> None:
        super().__init__(missing)
        self.missing: Missing = missing
        self.item = item


class AnswerReader:
    """Reads kept answers of one dialect. Share one per process; close it at the end. `max_bytes` bounds a conversation."""

    def __init__(self, engine: AsyncEngine, dialect: str, *, max_bytes: int) -> None:
        self._engine, self._dialect, self._max_bytes = engine, dialect, max_bytes
        self._keeper = DIALECTS[dialect].keeper()

    @classmethod
    def open(cls, database_url: str, dialect: str, *, max_bytes: int) -> Self:
        """Return a reader with a read-only engine of its own; nothing connects yet."""
        return cls(open_engine(database_url, read_only=True, answer_s=FIND_S, pool_size=4), dialect, max_bytes=max_bytes)

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()

    async def find(self, key: str, wanted: WantedAnswers, *, key_id: str = "") -> KeptAnswers:
        """Return what there is of these answers for the API key named `key`. Never raises: `missing` says why there is nothing."""
        try:
            async with asyncio.timeout(WALK_S):
                return await self._find(Holder(key, key_id), wanted)
        except _Gone as gone:
            return KeptAnswers(gone.missing, gone.item)
        except (AuditUnavailable, TimeoutError):
            return KeptAnswers("away")

    async def one(self, key: str, identity: str, *, key_id: str = "") -> KeptAnswer | None:
        """Return a kept answer; None where this key has none of that id. Raises AuditUnavailable."""
        return await self._wait_for(Holder(key, key_id), self._keeper.call_of_answer(identity))

    async def input_of(self, key: str, kept: KeptAnswer, *, key_id: str = "") -> KeptAnswers:
        """Return what the answer was made for: `before` is all of its input. Likewise never raises."""
        refers = tuple(self._keeper.references(kept.asked.items))
        found = await self.find(key, WantedAnswers(self._dialect, kept.asked.previous, refers), key_id=key_id)
        return msgspec.structs.replace(found, before=[*found.before, *self._filled(kept.asked.items, found.items)])

    # --- conversations ---

    async def _find(self, key: Holder, wanted: WantedAnswers) -> KeptAnswers:
        calls: list[str] = []
        steps = await self._walk(key, wanted.previous)
        refers = [*wanted.items, *(name for step in steps for name in self._keeper.references(step.asked.items))]
        items = await self._items(key, refers, steps)
        asked = [*wanted.questions, *(name for step in steps for name in self._keeper.questions(step.asked.items))]
        questions = await self._questions(key, asked, steps)
        size = sum(step.size for step in steps)
        if size + await asyncio.to_thread(_expansion, self._keeper, items, [*wanted.items], steps) > self._max_bytes:
            raise _Gone("bytes")
        before: list[Any] = []
        for step in reversed(steps):
            before += self._filled(step.asked.items, items)
            before += self._keeper.output(step.answer)
            calls += self._keeper.calls(step.answer["output"])
        calls += self._keeper.calls([items[name] for name in wanted.items])
        own = {name: items[name] for name in wanted.items}
        return KeptAnswers(before=before, items=own, calls=calls, answers=len(steps), questions=questions)

    def _filled(self, own: Sequence[Any], items: dict[str, Any]) -> list[Any]:
        """A request's own items, with those to which it refers in the place of its references. An item that has such an id itself is none:
        it stays as it was, and a thousand of them would make a small request large."""
        return [items.get(next(iter(self._keeper.references([item])), ""), item) for item in own]

    async def _walk(self, key: Holder, identity: str) -> list[KeptAnswer]:
        """The answers of a conversation, the newest first. Raises _Gone."""
        steps: list[KeptAnswer] = []
        size = 0
        while identity:
            if len(steps) >= MAX_CHAINED:
                raise _Gone("answers")
            step = await self._wait_for(key, self._keeper.call_of_answer(identity))
            # each goes on with one that began before it
            if step is None or (steps and step.call_id >= steps[-1].call_id):
                raise _Gone("previous")
            size += step.size
            if size > self._max_bytes:
                raise _Gone("bytes")
            steps.append(step)
            identity = step.asked.previous
        return steps

    async def _items(self, key: Holder, refers: Sequence[str], known: Sequence[KeptAnswer]) -> dict[str, Any]:
        """The items of those ids. Raises _Gone."""
        answers: dict[str, KeptAnswer | None] = {step.call_id: step for step in known}
        found: dict[str, Any] = {}
        size = sum(step.size for step in known)
        for name in dict.fromkeys(refers):
            call_id = self._keeper.call_of_item(name)
            if call_id not in answers:
                if len(answers) - len(known) >= MAX_LOOKUPS:
                    raise _Gone("item", name)
                answers[call_id] = answer = await self._wait_for(key, call_id)
                size += answer.size if answer is not None else 0
                if size > self._max_bytes:
                    raise _Gone("bytes")
            if (item := _item(answers[call_id], name)) is None:
                raise _Gone("item", name)
            found[name] = item
        return found

    async def _questions(self, key: Holder, names: Sequence[str], known: Sequence[KeptAnswer]) -> dict[str, Any]:
        """The questions of those ids, as they were released to this key: also of answers that are not kept. Ends at one that was not."""
        answers: dict[str, KeptAnswer | None] = {step.call_id: step for step in known}
        found: dict[str, Any] = {}
        for name in dict.fromkeys(names):
            call_id = self._keeper.call_of_item(name)
            if call_id not in answers:
                if len(answers) - len(known) >= MAX_LOOKUPS:
                    break
                answers[call_id] = await self._wait_for(key, call_id, alone=True)
            if (item := _item(answers[call_id], name)) is None:
                break
            found[name] = item
        return found

    # --- answers ---

    async def _wait_for(self, key: Holder, call_id: str, *, alone: bool = False) -> KeptAnswer | None:
        if not call_id:
            return None
        call, loop = UUID(call_id), asyncio.get_running_loop()
        until, pause = loop.time() + FIND_S, _FIRST_PAUSE_S
        while True:
            # not held while it waits: ids that never were must not keep others from theirs
            async with reading(self._engine) as connection:
                found, may_come = await self._read(connection, key, call, alone=alone)
            if found is not None or not may_come or loop.time() + pause > until:
                return found
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _read(self, connection: AsyncConnection, key: Holder, call: UUID, *, alone: bool) -> tuple[KeptAnswer | None, bool]:
        """The answer, and whether one may still come that is not there yet. `alone`: without its request, whether it is kept or not."""
        last = select(Release.number).where(Release.call_id == call).order_by(Release.number.desc()).limit(1).scalar_subquery()
        statement = (
            select(
                literal(0) if alone else func.octet_length(RequestBody.body),
                func.octet_length(Release.payload),
                Release.number,
                exists().where(End.call_id == call),
                exists().where(End.call_id == call, End.at < func.now() - _SETTLED),
            )
            .select_from(Call)
            .outerjoin(RequestBody, RequestBody.call_id == literal(call))
            .outerjoin(Release, (Release.call_id == literal(call)) & (Release.number == last))
            .where(Call.call_id == call, Call.dialect.in_([self._dialect]), made_with(key))
        )
        row = (await connection.execute(statement)).one_or_none()
        if row is None:
            return None, abs(datetime.now(UTC) - _began(call)) < _RECENT
        asked, said, number, has_ended, is_settled = row
        if asked is None or said is None:
            return None, not (has_ended if asked is not None else is_settled)
        if asked + said > MAX_ANSWER_BYTES:
            return None, False
        body = b"" if alone else await connection.scalar(select(RequestBody.body).where(RequestBody.call_id == call))
        payload = await connection.scalar(select(Release.payload).where(Release.call_id == call, Release.number == number))
        if not payload or not (body or alone):
            return None, False
        # parsing megabytes must not hold up the other calls of this process
        found = await asyncio.to_thread(self._parse, str(call), bytes(body or b""), bytes(payload))
        return found, found is None and not has_ended

    def _parse(self, call_id: str, body: bytes, payload: bytes) -> KeptAnswer | None:
        answer = self._keeper.answer(payload)
        if answer is None or answer.get("id") is None or self._keeper.call_of_answer(str(answer["id"])) != call_id:
            return None
        try:
            asked = self._keeper.asked(body) if body else Asked("", [], True)
        except ValueError:
            return None
        return KeptAnswer(call_id, asked, answer, len(body) + len(payload)) if asked.is_kept else None


def _item(of: KeptAnswer | None, name: str) -> Any:
    """The item of that id in an answer; None where there is none."""
    return next((i for i in of.answer["output"] if isinstance(i, dict) and i.get("id") == name), None) if of is not None else None


def _expansion(keeper: Keeper, items: dict[str, Any], own: list[str], steps: Sequence[KeptAnswer]) -> int:
    """How many bytes stand for references: the requests of a conversation may all refer to one large item."""
    sizes = {name: len(dumps(item)) for name, item in items.items()}
    return sum(sizes[name] for names in (own, *(keeper.references(step.asked.items) for step in steps)) for name in names)


def _began(call: UUID) -> datetime:
    return datetime.fromtimestamp(min(call.int >> 80, _LAST_MS) / 1000, UTC)
