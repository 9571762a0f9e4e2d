"""Kept answers on record: what a request goes on with, and what its client is shown again, for
calls of the same API key.

An answer is kept once its end was released to its client, unless its request asked otherwise. For
another key's answer a client gets what it gets for an id that never existed. A client goes on
within milliseconds, so what may still be on its way to the record is waited for.

A conversation is read in three queries, however long it is: PostgreSQL follows the ids that it
finds in the requests on record, which is only a guess (a nested field may have the same name), then
come the sizes of all, then their contents. What each really goes on with is read of the request
itself. Places are shared by API key. A lookup that has read much keeps its own until its caller is
done with it.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

import msgspec
from sqlalchemy import ColumnElement, Select, exists, func, literal, select, text, true
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from db.engine import open_engine
from db.models import CallRow, End, ReleaseRow, RequestBody
from db.read.call.turns import FIND_S, Stay, Turn, any_turn
from db.read.queries import reading
from protocol.bounds import LOOKUPS_AT_ONCE, MAX_CHAINED, MAX_LOOKUPS
from protocol.bytes.json_strict import dumps
from protocol.dialects.table import CLIENTS
from protocol.errors import AuditUnavailable
from protocol.stored_answers import (
    Missing,
    StoredAnswerRules,
    StoredAnswers,
    StoredRequest,
    WantedAnswers,
)

WALK_S = 4.0
"""How long reading a whole conversation may take: less than `limits.claim_s`, after which the
gateway refuses its client's call."""
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
_PREVIOUS = """
substring(encode(substring(body from position(cast(:name AS bytea) in body) for 100), 'escape')
    from '^"[a-z_]+"[ ]?:[ ]?"[a-z]+_([0-9a-f]{32})"')::uuid
"""
# LIMIT: one row is looked up at each step, whatever the tables' statistics say
_CHAIN = text(f"""
WITH RECURSIVE chain AS (
    SELECT call_id, {_PREVIOUS} AS previous, octet_length(body) AS size, 1 AS n FROM request_bodies
        WHERE call_id = :first
    UNION ALL
    SELECT one.call_id, one.previous, chain.size + one.size, chain.n + 1 FROM chain CROSS
        JOIN LATERAL (
        SELECT call_id, {_PREVIOUS} AS previous, octet_length(body) AS size FROM request_bodies
            WHERE call_id = chain.previous LIMIT 1
    ) one
    WHERE chain.n < :most AND chain.size < :bytes AND chain.previous < chain.call_id
)
SELECT call_id FROM chain ORDER BY n
""")


class StoredAnswer(msgspec.Struct, frozen=True):
    """One kept answer with its request."""

    call_id: str
    asked: StoredRequest
    answer: dict[str, Any]
    size: int


class _Gone(Exception):
    """There is nothing to go on with, for this reason."""

    def __init__(self, missing: Missing, item: str = "") -> None:
        super().__init__(missing)
        self.missing: Missing = missing
        self.item = item


class AnswerReader:
    """Reads kept answers of one dialect. Share one per process; close it at the end. `max_bytes`
    bounds a conversation."""

    def __init__(
        self, engine: AsyncEngine, dialect: str, *, max_bytes: int, turn: Turn = any_turn
    ) -> None:
        self._engine, self._dialect, self._max_bytes = engine, dialect, max_bytes
        if (keeper := CLIENTS[dialect].keeper()) is None:
            raise ValueError(f"clients of {dialect} do not continue stored answers")
        self._keeper, self._turn = keeper, turn
        self._waiting = Counter[str]()
        """How many lookups of each key wait for what is not on record yet."""

    @classmethod
    def open(
        cls, database_url: str, dialect: str, *, max_bytes: int, turn: Turn = any_turn
    ) -> Self:
        """Return a reader with a read-only engine of its own; nothing connects yet."""
        engine = open_engine(
            database_url, read_only=True, answer_s=FIND_S, pool_size=LOOKUPS_AT_ONCE
        )
        return cls(engine, dialect, max_bytes=max_bytes, turn=turn)

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()

    async def find(self, key_id: str, wanted: WantedAnswers) -> StoredAnswers:
        """Return what there is of these answers for the API key with this id. Never raises:
        `missing` says why there is nothing."""
        async with self.finding(key_id, wanted) as answers:
            return answers

    @contextlib.asynccontextmanager
    async def finding(self, key_id: str, wanted: WantedAnswers) -> AsyncIterator[StoredAnswers]:
        """Lend what `find` returns: until it is given back, its key has one place less."""
        async with Stay(self._turn, key_id) as stay:
            yield await self._found(stay, wanted)

    async def _found(self, stay: Stay, wanted: WantedAnswers) -> StoredAnswers:
        try:
            async with asyncio.timeout(WALK_S):
                await stay.take()
                return await self._find(stay, wanted)
        except _Gone as gone:
            return StoredAnswers(gone.missing, gone.item)
        except (AuditUnavailable, TimeoutError):
            return StoredAnswers("away")

    async def find_by_id(self, key_id: str, identity: str) -> StoredAnswer | None:
        """Return a kept answer; None where this key has none of that id. Raises
        AuditUnavailable."""
        async with Stay(self._turn, key_id) as stay:
            await stay.take()
            return await self._wait_for(stay, self._keeper.call_of_answer(identity))

    async def input_of(self, key_id: str, answer: StoredAnswer) -> StoredAnswers:
        """Return what the answer was made for: `before` is all of its input. Likewise never
        raises."""
        refers = tuple(self._keeper.references(answer.asked.items))
        history = await self.find(
            key_id, WantedAnswers(self._dialect, answer.asked.previous, refers)
        )
        return msgspec.structs.replace(
            history, before=[*history.before, *self._filled(answer.asked.items, history.items)]
        )

    # --- conversations ---

    async def _find(self, stay: Stay, wanted: WantedAnswers) -> StoredAnswers:
        calls: list[str] = []
        steps = await self._walk(stay, wanted.previous)
        refers = [
            *wanted.items,
            *(name for step in steps for name in self._keeper.references(step.asked.items)),
        ]
        items = await self._items(stay, refers, steps)
        asked = [
            *wanted.questions,
            *(name for step in steps for name in self._keeper.questions(step.asked.items)),
        ]
        questions = await self._questions(stay, asked, steps)
        size = sum(step.size for step in steps)
        if (
            size + await asyncio.to_thread(_expansion, self._keeper, items, [*wanted.items], steps)
            > self._max_bytes
        ):
            raise _Gone("bytes")
        before: list[Any] = []
        for step in reversed(steps):
            before += self._filled(step.asked.items, items)
            before += self._keeper.output(step.answer)
            calls += self._keeper.calls(step.answer["output"])
        calls += self._keeper.calls([items[name] for name in wanted.items])
        wanted_items = {name: items[name] for name in wanted.items}
        return StoredAnswers(
            before=before, items=wanted_items, calls=calls, answers=len(steps), questions=questions
        )

    def _filled(self, request_items: Sequence[Any], items: dict[str, Any]) -> list[Any]:
        """A request's own items, with those to which it refers in the place of its references. An
        item that has such an id itself is none: it stays as it was, and a thousand of them would
        make a small request large."""
        return [
            items.get(next(iter(self._keeper.references([item])), ""), item)
            for item in request_items
        ]

    async def _walk(self, stay: Stay, identity: str) -> list[StoredAnswer]:
        """The answers of a conversation, the newest first. Raises _Gone."""
        steps: list[StoredAnswer] = []
        read: Mapping[UUID, StoredAnswer] = {}
        size = 0
        while identity:
            if len(steps) >= MAX_CHAINED:
                raise _Gone("answers")
            call_id = self._keeper.call_of_answer(identity)
            if len(steps) == 1 and call_id:
                # once: in each request of a conversation a field of that name could lead the guess
                # away, to megabytes
                read = await self._guess(stay, UUID(call_id), self._max_bytes - size)
            step = (read.get(UUID(call_id)) if call_id else None) or await self._wait_for(
                stay, call_id
            )
            # each goes on with one that began before it
            if step is None or (steps and step.call_id >= steps[-1].call_id):
                raise _Gone("previous")
            size += step.size
            if size > self._max_bytes:
                raise _Gone("bytes")
            steps.append(step)
            identity = step.asked.previous
        return steps

    async def _guess(self, stay: Stay, call: UUID, most_bytes: int) -> Mapping[UUID, StoredAnswer]:
        """The answer of a call and those before it, as far as their requests seem to name them, and
        as many bytes as that."""
        name = f'"{self._keeper.previous}"'.encode()
        async with reading(self._engine) as connection:
            call_ids = await connection.scalars(
                _CHAIN, {"first": call, "name": name, "most": MAX_CHAINED - 1, "bytes": most_bytes}
            )
            return (await self._read(connection, stay, list(call_ids), most_bytes=most_bytes))[0]

    async def _several(
        self, stay: Stay, call_ids: Sequence[str], *, alone: bool = False
    ) -> dict[str, StoredAnswer]:
        """Those of these calls' answers that are on record now, as many as a conversation may
        hold."""
        async with reading(self._engine) as connection:
            calls = [UUID(call_id) for call_id in call_ids if call_id]
            answers, _ = await self._read(
                connection, stay, calls, alone=alone, most_bytes=self._max_bytes
            )
        return {answer.call_id: answer for answer in answers.values()}

    async def _items(
        self, stay: Stay, refers: Sequence[str], known: Sequence[StoredAnswer]
    ) -> dict[str, Any]:
        """The items of those ids. Raises _Gone."""
        answers: dict[str, StoredAnswer | None] = {step.call_id: step for step in known}
        resolved: dict[str, Any] = {}
        size = sum(step.size for step in known)
        others = [reference for reference in self._calls_of(refers) if reference not in answers]
        read = await self._several(stay, others[:MAX_LOOKUPS]) if others else {}
        for name in dict.fromkeys(refers):
            call_id = self._keeper.call_of_item(name)
            if call_id not in answers:
                if len(answers) - len(known) >= MAX_LOOKUPS:
                    raise _Gone("item", name)
                answers[call_id] = answer = read.get(call_id) or await self._wait_for(stay, call_id)
                size += answer.size if answer is not None else 0
                if size > self._max_bytes:
                    raise _Gone("bytes")
            if (item := _item(answers[call_id], name)) is None:
                raise _Gone("item", name)
            resolved[name] = item
        return resolved

    async def _questions(
        self, stay: Stay, names: Sequence[str], known: Sequence[StoredAnswer]
    ) -> dict[str, Any]:
        """The questions of those ids, as they were released to this key: also of answers that are
        not kept. Ends at one that was not."""
        answers: dict[str, StoredAnswer | None] = {step.call_id: step for step in known}
        questions: dict[str, Any] = {}
        others = [reference for reference in self._calls_of(names) if reference not in answers]
        read = await self._several(stay, others[:MAX_LOOKUPS], alone=True) if others else {}
        for name in dict.fromkeys(names):
            call_id = self._keeper.call_of_item(name)
            if call_id not in answers:
                if len(answers) - len(known) >= MAX_LOOKUPS:
                    break
                answers[call_id] = read.get(call_id) or await self._wait_for(
                    stay, call_id, alone=True
                )
            if (item := _item(answers[call_id], name)) is None:
                break
            questions[name] = item
        return questions

    def _calls_of(self, names: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(map(self._keeper.call_of_item, names)))

    # --- answers ---

    async def _wait_for(
        self, stay: Stay, call_id: str, *, alone: bool = False
    ) -> StoredAnswer | None:
        if not call_id:
            return None
        call, loop = UUID(call_id), asyncio.get_running_loop()
        until, pause = loop.time() + FIND_S, _FIRST_PAUSE_S
        key = stay.key_id
        self._waiting[key] += 1
        try:
            while True:
                async with reading(self._engine) as connection:
                    answers, may_come = await self._read(connection, stay, [call], alone=alone)
                # the more wait for the same key, the less often each asks
                wait_s = pause * self._waiting[key]
                if answers or call not in may_come or loop.time() >= until:
                    return answers.get(call)
                await stay.wait(min(wait_s, max(0.0, until - loop.time())))
                pause = min(2 * pause, _LONGEST_PAUSE_S)
        finally:
            self._waiting[key] -= 1
            self._waiting += Counter()

    async def _read(
        self,
        connection: AsyncConnection,
        stay: Stay,
        calls: Sequence[UUID],
        *,
        alone: bool = False,
        most_bytes: int = MAX_ANSWER_BYTES,
    ) -> tuple[dict[UUID, StoredAnswer], set[UUID]]:
        """The answers of calls, the first ones that have `most_bytes` together, and which of the
        calls may still get theirs. `alone`: without their requests, whether they are kept or
        not."""

        # a condition on every table, so that all days but those of the calls are left out
        def among(call_id: Any) -> ColumnElement[bool]:
            among_them: ColumnElement[bool] = call_id.in_(calls)
            return among_them

        def last_of(some: Sequence[UUID], body: Any, payload: Any, *more: Any) -> Select[Any]:
            """Of each call something of its request and of its last release, by one look into the
            index: it may have had 20,000."""
            released = select(payload.label("payload")).where(ReleaseRow.call_id == CallRow.call_id)
            of_days = released.where(ReleaseRow.call_id.between(min(some), max(some)))
            last = of_days.order_by(ReleaseRow.number.desc()).limit(1).lateral("last")
            releases = select(CallRow.call_id, body, last.c.payload, *more)
            with_bodies = releases.outerjoin(
                RequestBody, (RequestBody.call_id == CallRow.call_id) & among(RequestBody.call_id)
            )
            return with_bodies.outerjoin(last, true()).where(CallRow.call_id.in_(some))

        if not calls:
            return {}, set()
        sizes = (
            literal(0) if alone else func.octet_length(RequestBody.body),
            func.octet_length(ReleaseRow.payload),
        )
        ended = exists().where(End.call_id == CallRow.call_id, among(End.call_id))
        statement = last_of(calls, *sizes, ended, ended.where(End.at < func.now() - _SETTLED))
        of_key = statement.where(
            CallRow.dialect.in_([self._dialect]), CallRow.key_id == stay.key_id
        )
        rows = {row[0]: row[1:] for row in await connection.execute(of_key)}
        may_come = {
            call
            for call in calls
            if call not in rows and abs(datetime.now(UTC) - _began(call)) < _RECENT
        }
        wanted: list[UUID] = []
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
            last_of(wanted, literal(b"") if alone else RequestBody.body, ReleaseRow.payload)
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


def _item(of: StoredAnswer | None, name: str) -> Any:
    """The item of that id in an answer; None where there is none."""
    return (
        next((i for i in of.answer["output"] if isinstance(i, dict) and i.get("id") == name), None)
        if of is not None
        else None
    )


def _expansion(
    keeper: StoredAnswerRules,
    items: dict[str, Any],
    item_names: list[str],
    steps: Sequence[StoredAnswer],
) -> int:
    """How many bytes stand for references: the requests of a conversation may all refer to one
    large item."""
    sizes = {name: len(dumps(item)) for name, item in items.items()}
    return sum(
        sizes[name]
        for names in (item_names, *(keeper.references(step.asked.items) for step in steps))
        for name in names
    )


def _began(call: UUID) -> datetime:
    return datetime.fromtimestamp(min(call.int >> 80, _LAST_MS) / 1000, UTC)
