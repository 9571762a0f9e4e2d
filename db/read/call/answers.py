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
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self
from uuid import UUID

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from db.engine import open_engine, reading
from db.read.call.answer_rows import AnswerRows, StoredAnswer
from db.read.call.places import FIND_S, Stay, Turn, any_turn
from protocol.bounds import LOOKUPS_AT_ONCE, MAX_CHAINED, MAX_LOOKUPS
from protocol.bytes.json_strict import dumps
from protocol.dialects.table import CLIENTS
from protocol.errors import AuditUnavailable
from protocol.stored_answers import (
    Missing,
    StoredAnswerRules,
    StoredAnswers,
    WantedAnswers,
)

WALK_S = 4.0
"""How long reading a whole conversation may take: less than `limits.claim_s`, after which the
gateway refuses its client's call."""
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
        self._rows = AnswerRows(engine, dialect, keeper, max_bytes=max_bytes)

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
            return await self._rows.wait_for(stay, self._keeper.call_of_answer(identity))

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
        if lost := [name for name in refers if name not in items]:
            raise _Gone("item", lost[0])
        asked = [
            *wanted.questions,
            *(name for step in steps for name in self._keeper.questions(step.asked.items)),
        ]
        # as they were released to this key, also of answers that are not kept
        questions = await self._items(stay, asked, steps, alone=True)
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
            step = (read.get(UUID(call_id)) if call_id else None) or await self._rows.wait_for(
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
            return (await self._rows.read(connection, stay, list(call_ids), most_bytes=most_bytes))[
                0
            ]

    async def _items(
        self,
        stay: Stay,
        names: Sequence[str],
        known: Sequence[StoredAnswer],
        *,
        alone: bool = False,
    ) -> dict[str, Any]:
        """The items of those ids, up to one that is not there. Raises _Gone."""
        answers: dict[str, StoredAnswer | None] = {step.call_id: step for step in known}
        resolved: dict[str, Any] = {}
        size = sum(step.size for step in known)
        calls = dict.fromkeys(map(self._keeper.call_of_item, names))
        others = [call_id for call_id in calls if call_id not in answers]
        read = await self._rows.several(stay, others[:MAX_LOOKUPS], alone=alone) if others else {}
        for name in dict.fromkeys(names):
            call_id = self._keeper.call_of_item(name)
            if call_id not in answers:
                if len(answers) - len(known) >= MAX_LOOKUPS:
                    break
                answer = read.get(call_id) or await self._rows.wait_for(stay, call_id, alone=alone)
                answers[call_id] = answer
                size += answer.size if answer is not None else 0
                if size > self._max_bytes and not alone:
                    raise _Gone("bytes")
            if (item := _item(answers[call_id], name)) is None:
                break
            resolved[name] = item
        return resolved


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
