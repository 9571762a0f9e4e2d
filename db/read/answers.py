"""Kept answers on record: what a request goes on with, and what its client is shown again, for calls of the same API key.

An answer is kept once its end was released to its client, unless its request said otherwise. Who asks for another key's gets what an id
gets that never was. A client goes on within milliseconds, so what may still be on its way to the record is waited for.

A conversation is read in three queries, however long it is: PostgreSQL follows the ids that it finds in the requests on record, which is
only a guess (a nested field may have the same name), then come the sizes of all, then their contents. What each really goes on with
is read of the request itself. Connections are shared by API key, and are not held while something is waited for.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

import msgspec
from sqlalchemy import ColumnElement, exists, func, literal, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from db.engine import open_engine
from db.models import Call, End, Release, RequestBody
from db.read.queries import reading
from db.read.turns import FIND_S, Holder, made_with
from protocol.bounds import LOOKUPS_AT_ONCE, MAX_CHAINED, MAX_LOOKUPS
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
_PREVIOUS = """
substring(encode(substring(body from position(cast(:name AS bytea) in body) for 100), 'escape')
    from '^"[a-z_]+"[ ]?:[ ]?"[a-z]+_([0-9a-f]{32})"')::uuid
"""
# LIMIT: one row is looked up at each step, whatever the tables' statistics say
_CHAIN = text(f"""
WITH RECURSIVE chain AS (
    SELECT call_id, {_PREVIOUS} AS previous, octet_length(body) AS size, 1 AS n FROM request_bodies WHERE call_id = :first
    UNION ALL
    SELECT one.call_id, one.previous, chain.size + one.size, chain.n + 1 FROM chain CROSS JOIN LATERAL (
        SELECT call_id, {_PREVIOUS} AS previous, octet_length(body) AS size FROM request_bodies WHERE call_id = chain.previous LIMIT 1
    ) one
    WHERE chain.n < :most AND chain.size < :bytes AND chain.previous < chain.call_id
)
SELECT call_id FROM chain ORDER BY n
""")
Turn = Callable[[str], AbstractAsyncContextManager[None]]
"""Lends a key one of the places of its process."""


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

    def __init__(self, engine: AsyncEngine, dialect: str, *, max_bytes: int, turn: Turn | None = None) -> None:
        self._engine, self._dialect, self._max_bytes = engine, dialect, max_bytes
        self._keeper = DIALECTS[dialect].keeper()
        self._turn = turn or (lambda _: contextlib.nullcontext())
        self._waiting = Counter[str]()
        """How many lookups of each key wait for what is not on record yet."""

    @classmethod
    def open(cls, database_url: str, dialect: str, *, max_bytes: int, turn: Turn | None = None) -> Self:
        """Return a reader with a read-only engine of its own; nothing connects yet."""
        engine = open_engine(database_url, read_only=True, answer_s=FIND_S, pool_size=LOOKUPS_AT_ONCE)
        return cls(engine, dialect, max_bytes=max_bytes, turn=turn)

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
        read: Mapping[UUID, KeptAnswer] = {}
        size = 0
        while identity:
            if len(steps) >= MAX_CHAINED:
                raise _Gone("answers")
            call_id = self._keeper.call_of_answer(identity)
            if steps and call_id and UUID(call_id) not in read:
                read = await self._guess(key, UUID(call_id), MAX_CHAINED - len(steps), self._max_bytes - size)
            step = (read.get(UUID(call_id)) if call_id else None) or await self._wait_for(key, call_id)
            # each goes on with one that began before it
            if step is None or (steps and step.call_id >= steps[-1].call_id):
                raise _Gone("previous")
            size += step.size
            if size > self._max_bytes:
                raise _Gone("bytes")
            steps.append(step)
            identity = step.asked.previous
        return steps

    async def _guess(self, key: Holder, call: UUID, most: int, most_bytes: int) -> Mapping[UUID, KeptAnswer]:
        """The answer of a call and those before it, as far as their requests seem to name them, and as many bytes as that."""
        name = f'"{self._keeper.previous}"'.encode()
        async with self._reading(key) as connection:
            found = await connection.scalars(_CHAIN, {"first": call, "name": name, "most": most, "bytes": most_bytes})
            return (await self._read(connection, key, list(found), most_bytes=most_bytes))[0]

    async def _several(self, key: Holder, call_ids: Sequence[str], *, alone: bool = False) -> dict[str, KeptAnswer]:
        """Those of these calls' answers that are on record now, as many as a conversation may hold."""
        async with self._reading(key) as connection:
            calls = [UUID(call_id) for call_id in call_ids if call_id]
            found, _ = await self._read(connection, key, calls, alone=alone, most_bytes=self._max_bytes)
        return {answer.call_id: answer for answer in found.values()}

    async def _items(self, key: Holder, refers: Sequence[str], known: Sequence[KeptAnswer]) -> dict[str, Any]:
        """The items of those ids. Raises _Gone."""
        answers: dict[str, KeptAnswer | None] = {step.call_id: step for step in known}
        found: dict[str, Any] = {}
        size = sum(step.size for step in known)
        others = [one for one in self._calls_of(refers) if one not in answers]
        read = await self._several(key, others[:MAX_LOOKUPS]) if others else {}
        for name in dict.fromkeys(refers):
            call_id = self._keeper.call_of_item(name)
            if call_id not in answers:
                if len(answers) - len(known) >= MAX_LOOKUPS:
                    raise _Gone("item", name)
                answers[call_id] = answer = read.get(call_id) or await self._wait_for(key, call_id)
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
        others = [one for one in self._calls_of(names) if one not in answers]
        read = await self._several(key, others[:MAX_LOOKUPS], alone=True) if others else {}
        for name in dict.fromkeys(names):
            call_id = self._keeper.call_of_item(name)
            if call_id not in answers:
                if len(answers) - len(known) >= MAX_LOOKUPS:
                    break
                answers[call_id] = read.get(call_id) or await self._wait_for(key, call_id, alone=True)
            if (item := _item(answers[call_id], name)) is None:
                break
            found[name] = item
        return found

    def _calls_of(self, names: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(map(self._keeper.call_of_item, names)))

    # --- answers ---

    @contextlib.asynccontextmanager
    async def _reading(self, key: Holder) -> AsyncIterator[AsyncConnection]:
        async with self._turn(key.id or key.name), reading(self._engine) as connection:
            yield connection

    async def _wait_for(self, key: Holder, call_id: str, *, alone: bool = False) -> KeptAnswer | None:
        if not call_id:
            return None
        call, loop = UUID(call_id), asyncio.get_running_loop()
        until, pause = loop.time() + FIND_S, _FIRST_PAUSE_S
        self._waiting[key.name] += 1
        try:
            while True:
                # not held while it waits: ids that never were must not keep others from theirs
                async with self._reading(key) as connection:
                    found, may_come = await self._read(connection, key, [call], alone=alone)
                # the more wait for the same key, the less often each asks
                wait_s = pause * self._waiting[key.name]
                if found or call not in may_come or loop.time() >= until:
                    return found.get(call)
                await asyncio.sleep(min(wait_s, max(0.0, until - loop.time())))
                pause = min(2 * pause, _LONGEST_PAUSE_S)
        finally:
            self._waiting[key.name] -= 1
            self._waiting += Counter()

    async def _read(
        self, connection: AsyncConnection, key: Holder, calls: Sequence[UUID], *, alone: bool = False, most_bytes: int = MAX_ANSWER_BYTES
    ) -> tuple[dict[UUID, KeptAnswer], set[UUID]]:
        """The answers of calls, the first ones that have `most_bytes` together, and which of the calls may still get theirs. `alone`:
        without their requests, whether they are kept or not."""

        # said of every table, the calls leave out all days but theirs
        def among(call_id: Any) -> ColumnElement[bool]:
            among_them: ColumnElement[bool] = call_id.in_(calls)
            return among_them

        if not calls:
            return {}, set()
        newest = func.max(Release.number).over(partition_by=Release.call_id)
        last = select(Release.call_id, Release.number, func.octet_length(Release.payload).label("size"), newest.label("newest"))
        released = last.where(among(Release.call_id)).subquery()
        statement = (
            select(
                Call.call_id,
                literal(0) if alone else func.octet_length(RequestBody.body),
                released.c.size,
                released.c.number,
                exists().where(End.call_id == Call.call_id, among(End.call_id)),
                exists().where(End.call_id == Call.call_id, among(End.call_id), End.at < func.now() - _SETTLED),
            )
            .outerjoin(RequestBody, (RequestBody.call_id == Call.call_id) & among(RequestBody.call_id))
            .outerjoin(released, (released.c.call_id == Call.call_id) & (released.c.number == released.c.newest))
            .where(among(Call.call_id), Call.dialect.in_([self._dialect]), made_with(key))
        )
        rows = {row[0]: row[1:] for row in await connection.execute(statement)}
        may_come = {call for call in calls if call not in rows and abs(datetime.now(UTC) - _began(call)) < _RECENT}
        numbers: dict[UUID, int] = {}
        for call in calls:
            asked, said, number, has_ended, is_settled = rows.get(call, (None, None, None, True, True))
            if asked is None or said is None:
                if call in rows and not (has_ended if asked is not None else is_settled):
                    may_come.add(call)
                continue
            most_bytes -= asked + said
            if asked + said > MAX_ANSWER_BYTES or (most_bytes < 0 and numbers):
                break
            numbers[call] = number
        if not numbers:
            return {}, may_come
        contents = select(Release.call_id, literal(b"") if alone else RequestBody.body, Release.payload).where(
            among(Release.call_id), tuple_(Release.call_id, Release.number).in_(list(numbers.items()))
        )
        if not alone:
            contents = contents.join(RequestBody, (RequestBody.call_id == Release.call_id) & among(RequestBody.call_id))
        payloads = [(call, bytes(body), bytes(payload)) for call, body, payload in await connection.execute(contents)]
        # parsing megabytes must not hold up the other calls of this process
        found = await asyncio.to_thread(self._parse_all, payloads, alone=alone)
        may_come |= {call for call in numbers.keys() - found.keys() if not rows[call][3]}
        return found, may_come

    def _parse_all(self, payloads: Sequence[tuple[UUID, bytes, bytes]], *, alone: bool) -> dict[UUID, KeptAnswer]:
        parsed = {call: self._parse(str(call), body, payload) for call, body, payload in payloads if payload and (body or alone)}
        return {call: one for call, one in parsed.items() if one is not None}

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
