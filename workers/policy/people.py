"""Calls of one worker that wait for people: looks at the record for their decisions, and sets each
as a fact.

A call waits only for what is on record, so nobody is asked about what was lost. How long it has
waited goes by PostgreSQL's clock: a takeover does not begin anew.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from weakref import ref

import msgspec

from db.state.polling import Watch
from db.text import from_column
from policy.session.approvals import PeoplesAnswer, judgement_of
from policy.session.effects import JudgeRequest
from protocol.bounds import MAX_HELD_CALLS, MAX_HELD_CALLS_OF_KEY
from protocol.errors import AuditUnavailable
from protocol.records import to_text
from settings.limits import Limits
from streams import layout
from workers.policy.call.owned import OwnedCall
from workers.policy.calls import Calls

SOON_S, EVERY_S = 0.05, 0.5
"""Between two looks: just after a call came, and then."""
_encode = msgspec.json.Encoder().encode


class _Waiting(msgspec.Struct):
    """A call that waits. `call` is weak: one that has ended is let go of."""

    call: Any
    key: str
    ask: JudgeRequest
    hold_s: float
    begun: float
    found_id: str = ""
    """The approval that it waits for, once that is on record."""


class People:
    """The calls of one worker that wait for people."""

    def __init__(
        self,
        record: Watch,
        limits: Limits,
        calls: Calls,
        set_fact: Callable[[OwnedCall, str, bytes], Coroutine[Any, Any, None]],
    ) -> None:
        self._record, self._limits, self._calls, self._set = record, limits, calls, set_fact
        self._waiting: dict[tuple[str, int], _Waiting] = {}
        self._looks: asyncio.Task[None] | None = None
        self._came = asyncio.Event()

    def wait_for(self, call: OwnedCall, ask: JudgeRequest) -> None:
        """Wait for what people say, unless that is waited for already."""
        if (call.id, ask.block) in self._waiting:
            return
        hold_s = float(call.start.numbers.get("hold_s", ask.question.deadline_s or 0))
        key, of_all = call.start.key, self._waiting.values()
        of_key = sum(waiting.key == key for waiting in of_all)
        if len(of_all) >= MAX_HELD_CALLS or of_key >= MAX_HELD_CALLS_OF_KEY:
            hold_s = 0.0
        self._waiting[call.id, ask.block] = _Waiting(ref(call), key, ask, hold_s, time.monotonic())
        self._came.set()
        if self._looks is None or self._looks.done():
            self._looks = asyncio.create_task(self._look_on(), name="approvals")

    async def _look_on(self) -> None:
        pause_s = SOON_S
        while self._waiting:
            if self._came.is_set():
                self._came.clear()
                pause_s = SOON_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, EVERY_S)
            await self._look()

    async def _look(self) -> None:
        rows: Mapping[tuple[str, int], dict[str, Any]] = {}
        try:
            found = await self._record.approvals(list(self._waiting))
            rows = {(row["call_id"], row["block"]): row for row in found}
        except AuditUnavailable:
            pass
        for place, waiting in list(self._waiting.items()):
            call = waiting.call()
            if call is None or self._calls.is_over(call):
                del self._waiting[place]
            elif (answer := self._answer(waiting, rows.get(place))) is not None:
                del self._waiting[place]
                field = layout.judgement_field(waiting.ask.block, waiting.ask.step)
                fact = _encode(judgement_of(answer, time.monotonic() - waiting.begun))
                self._calls.spawn(self._set(call, field, fact), "people's answer")

    def _answer(self, waiting: _Waiting, row: Mapping[str, Any] | None) -> PeoplesAnswer | None:
        """Return what becomes of a call, None while it waits."""
        waited_s = time.monotonic() - waiting.begun
        if row is None:
            if waiting.found_id and waited_s >= waiting.hold_s:
                return PeoplesAnswer("pending", waiting.found_id)
            is_lost = not waiting.found_id and waited_s >= self._limits.commit_s
            return PeoplesAnswer("unavailable") if is_lost else None
        if row["approval_id"] is None:
            return PeoplesAnswer("full")
        waiting.found_id = row["approval_id"]
        if row["outcome"] is not None:
            edited = row["edited"]
            return PeoplesAnswer(
                row["outcome"],
                waiting.found_id,
                from_column(row["decided_by"]),
                from_column(row["note"]),
                None if edited is None else to_text(edited),
            )
        if row["is_expired"]:
            return PeoplesAnswer("expired", waiting.found_id)
        if row["waits_s"] >= waiting.hold_s:
            return PeoplesAnswer(
                "pending", waiting.found_id, is_policy_changed=row["is_policy_changed"]
            )
        return None

    async def close(self) -> None:
        """Look no more, and disconnect from PostgreSQL."""
        if self._looks is not None:
            self._looks.cancel()
        await self._record.close()
