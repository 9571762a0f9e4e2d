"""Recorded turns for calls whose client could not send them back whole, and kept answers: looked up
once, then a fact of the call.

Reads PostgreSQL and never writes it. The fact holds what went wrong: the session refuses the call,
or does without and reports it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING

from db.state.polling import Watch
from policy.session.effects import Wanted, WantedSegment
from policy.session.session import Session
from protocol.bounds import LOOKUPS_AT_ONCE
from protocol.conversations.earlier_turns import LOST, WantedCalls, pack_calls
from protocol.dialects.turns import RecordedTurns, WantedTurns, pack_turns, unpack_turns
from protocol.request import DialectName
from protocol.stored_answers import StoredAnswers, WantedAnswers, pack, unpack
from streams import layout
from streams.round_robin import RoundRobin

if TYPE_CHECKING:
    from db.read.call.answers import AnswerReader
    from db.read.call.turns import TurnReader

MAX_FACT_BYTES = 8 * 2**20
ANSWER_S = 2.0
"""For a session's calls."""
NONE = pack_turns([])
"""The fact that nothing is on record."""
log = logging.getLogger(__name__)


def pack_newest(found_turns: RecordedTurns, max_bytes: int = MAX_FACT_BYTES) -> bytes:
    """Pack turns as a fact, the oldest left out where all are too large."""
    packed: list[bytes] = []
    lost = list(found_turns.lost)
    size = len(NONE)
    for turn in reversed(found_turns.turns):
        packed_turn = pack_turns([turn])[1:-1]
        size += len(packed_turn) + 1
        if size > max_bytes:
            lost.append("too large")
            break
        packed.append(packed_turn)
    if lost:
        packed.append(pack_turns([], lost)[1:-1])
    return b"[" + b",".join(reversed(packed)) + b"]"


def unpack_fact(value: bytes) -> RecordedTurns:
    """Return the turns of a fact; one that cannot be read holds none, and says so."""
    try:
        return unpack_turns(value)
    except ValueError:
        return RecordedTurns(lost=["unreadable"])


def field_of(wanted: Wanted) -> str:
    """Return the field of the fact that answers a lookup; empty where none does."""
    if isinstance(wanted, WantedSegment):
        return ""
    if isinstance(wanted, WantedCalls):
        return layout.CALLS_FIELD
    return layout.ANSWERS_FIELD if isinstance(wanted, WantedAnswers) else layout.TURNS_FIELD


def tell(session: Session, facts: dict[str, bytes], field: str, value: bytes) -> None:
    """Give a session what was looked up for it. Kept answers may be as large as a request: of these
    it stays in `facts` that they came."""
    if field == layout.TURNS_FIELD:
        fact = unpack_fact(value)
        session.turns(fact.turns, lost=fact.lost)
    elif field == layout.CALLS_FIELD:
        session.calls(value)
    else:
        facts[field] = b"-"
        session.answers(unpack(value))


Charge = Callable[[bytes], Awaitable[bool]]
"""Charges a fact to the key of its call; False where the key has no room for it."""


class TurnLookup:
    """Looks up turns for one worker. A lookup has its key's place until its fact is charged, so
    that few conversations are in memory."""

    def __init__(self, database_url: str, *, durable: bool, max_bytes: int) -> None:
        self._database_url, self._durable, self._max_bytes = database_url, durable, max_bytes
        self._watch = Watch(database_url, answer_s=ANSWER_S)
        # it has one connection
        self._sessions = RoundRobin(1)
        self._readers: dict[DialectName, TurnReader] = {}
        self._of_answers: dict[DialectName, AnswerReader] = {}
        self._opening = asyncio.Lock()
        # a large conversation takes a second of every process on its way: two of one key at once
        # would be silence for all others
        self._places = RoundRobin(LOOKUPS_AT_ONCE, most=1)

    async def find(self, key_id: str, wanted: WantedTurns, charge: Charge) -> bytes:
        """Return the fact: the turns on record for calls of this API key, and why others are
        missing. Never raises."""
        try:
            reader = self._readers.get(wanted.dialect) or await self._open(wanted.dialect)
            async with reader.finding(key_id, wanted.ids, answers=wanted.answers) as found_turns:
                packed = await asyncio.to_thread(pack_newest, found_turns)
                return (
                    packed
                    if not found_turns.turns or await charge(packed)
                    else pack_turns([], ["memory"])
                )
        except Exception as error:
            log.error(
                "lookup of recorded turns failed",
                extra={"error": type(error).__name__},
                exc_info=error,
            )
            return pack_turns([], ["unreadable"])

    async def find_calls(
        self, key_id: str, call_id: str, wanted: WantedCalls, charge: Charge
    ) -> bytes:
        """Return the fact: the calls on record of this API key's session. Never raises."""
        try:
            # texts wait for it too, so no longer than this
            async with asyncio.timeout(ANSWER_S), self._sessions.place(key_id):
                packed = pack_calls(await self._watch.session_calls(key_id, call_id, wanted))
        except Exception as error:
            log.error(
                "lookup of a session's calls failed",
                extra={"error": type(error).__name__},
                exc_info=error,
            )
            return LOST
        return packed if len(packed) == len(NONE) or await charge(packed) else LOST

    async def find_answers(self, key_id: str, wanted: WantedAnswers, charge: Charge) -> bytes:
        """Return the fact: what is on record of these answers, or why the call cannot go on with
        them. Never raises."""
        try:
            reader = self._of_answers.get(wanted.dialect) or await self._open_answers(
                wanted.dialect
            )
            async with reader.finding(key_id, wanted) as answers:
                packed = await asyncio.to_thread(pack, answers)
                if len(packed) > self._max_bytes:
                    packed = pack(StoredAnswers("bytes"))
                return (
                    packed
                    if answers.missing or await charge(packed)
                    else pack(StoredAnswers("memory"))
                )
        except Exception as error:
            log.error(
                "lookup of kept answers failed",
                extra={"error": type(error).__name__},
                exc_info=error,
            )
            return pack(StoredAnswers("away"))

    async def _open_answers(self, dialect: DialectName) -> "AnswerReader":
        async with self._opening:
            if dialect not in self._of_answers:
                answers = await asyncio.to_thread(import_module, "db.read.call.answers")
                self._of_answers[dialect] = answers.AnswerReader.open(
                    self._database_url, dialect, max_bytes=self._max_bytes, turn=self._places.place
                )
            return self._of_answers[dialect]

    async def _open(self, dialect: DialectName) -> "TurnReader":
        async with self._opening:
            if dialect not in self._readers:
                # its libraries take half of a worker's start and a third of its memory, and most
                # never look a turn up
                turns = await asyncio.to_thread(import_module, "db.read.call.turns")
                self._readers[dialect] = turns.TurnReader.open(
                    self._database_url, dialect, durable=self._durable, turn=self._places.place
                )
            return self._readers[dialect]

    async def close(self) -> None:
        """Close the connections."""
        await self._watch.close()
        for reader in self._readers.values():
            await reader.close()
        for of_answers in self._of_answers.values():
            await of_answers.close()
