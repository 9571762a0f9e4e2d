"""Facts, the write-once values of a call in Redis: judgements, commits and recorded turns that it
waits for.

A deadline that passed is written the same way, so a second owner cannot reach another answer: the
session acts on facts alone.
"""

import asyncio
import contextlib
import logging
from functools import partial
from weakref import ref

import msgspec

from db.state.polling import Watch
from policy.base import Judgement
from policy.session.effects import JudgeRequest, WantedSegment
from protocol.bounds import LARGE_STEP_BYTES
from protocol.conversations.earlier_turns import WantedCalls
from protocol.errors import JudgeUnavailable, StreamConnectionLost, StreamProtocolError
from protocol.records import STREAM_LOST
from protocol.stored_answers import WantedAnswers
from settings.limits import Limits
from streams import key_memory_scripts, layout, scripts
from streams.connection import Connection, RedisError, pack_large
from streams.connection import pack as command
from streams.script_outcomes import Outcome
from workers.judge_queue import JudgeQueue
from workers.policy.call.owned import OwnedCall
from workers.policy.calls import Calls
from workers.policy.feeding import Feeder
from workers.policy.people import People
from workers.policy.recorded_turns import TurnLookup, field_of

log = logging.getLogger(__name__)
RETRY_S = 0.1
_pack_judgement = msgspec.json.Encoder().encode


class FactWatcher:
    """Asks judges, watches deadlines, fetches facts for the calls of one worker."""

    def __init__(
        self,
        redis: Connection,
        bodies: Connection,
        judges: JudgeQueue,
        turns: TurnLookup,
        people: Watch,
        limits: Limits,
        calls: Calls,
        feeder: Feeder,
    ) -> None:
        self._redis, self._bodies, self._judges, self._turns = redis, bodies, judges, turns
        self._limits, self._calls, self._feeder = limits, calls, feeder
        self._looked_after = set[str]()
        self._people = People(people, limits, calls, self._set)

    def _failed(self, call: OwnedCall, error: StreamConnectionLost | RedisError) -> None:
        """Retry failed requests to Redis later, and end a call whose facts are unreadable, because
        nobody could decide it."""
        if isinstance(error, RedisError) and error.is_spoilt_key:
            log.error("the facts of a call cannot be read", extra={"call_id": call.id})
            self._calls.close(call, STREAM_LOST)

    def wait_for(self, call: OwnedCall) -> None:
        """Begin to wait for everything the call newly waits for."""
        asks, commits, has_lookup = call.waits.take_new()
        # deadlines hold no call: one that has ended has megabytes of arguments, and theirs are half
        # a minute away
        loop, of_call = asyncio.get_running_loop(), ref(call)
        for ask in asks:
            if ask.is_for_people:
                self._people.wait_for(call, ask)
                continue
            loop.call_later(
                self._deadline_s(ask),
                self._judge_late,
                of_call,
                layout.judgement_field(ask.block, ask.step),
            )
            self._calls.spawn(self._ask(call, ask), "ask")
        for block in commits:
            loop.call_later(self._limits.commit_s, self._commit_late, of_call, block)
        if has_lookup:
            self._calls.spawn(self._look_up(call), "lookup")

    def _deadline_s(self, ask: JudgeRequest) -> float:
        return self._limits.judge_s if ask.question.deadline_s is None else ask.question.deadline_s

    async def _ask(self, call: OwnedCall, ask: JudgeRequest) -> None:
        try:
            await self._judges.ask(ask, self._deadline_s(ask), key=call.start.key)
        except JudgeUnavailable as error:
            judgement = Judgement(
                model=ask.question.model, error="unavailable", explanation=error.message
            )
            await self._set(
                call, layout.judgement_field(ask.block, ask.step), _pack_judgement(judgement)
            )

    def _judge_late(self, of_call: "ref[OwnedCall]", field: str) -> None:
        call = of_call()
        if (
            call is not None
            and self._calls.owns(call)
            and (ask := call.waits.open_asks.get(field)) is not None
        ):
            judgement = Judgement(model=ask.question.model, error="deadline")
            self._calls.spawn(self._set(call, field, _pack_judgement(judgement)), "judge late")

    def _commit_late(self, of_call: "ref[OwnedCall]", block: int) -> None:
        call = of_call()
        if call is not None and self._calls.owns(call) and block in call.waits.open_commits:
            self._calls.spawn(
                self._set(call, layout.commit_field(block), layout.LATE), "commit late"
            )

    async def _look_up(self, call: OwnedCall) -> None:
        """Look up the turns that a call wants; what comes of it is a fact, so that nobody looks a
        second time."""
        wanted = call.waits.begin_lookup()
        if wanted is None:
            return
        try:
            if isinstance(wanted, WantedSegment):
                await self._look_back(call, wanted)
                return
            key_id = call.start.key_id
            charge = partial(self._is_charged, call)
            if isinstance(wanted, WantedCalls):
                value = await self._turns.find_calls(key_id, call.id, wanted, charge)
            elif isinstance(wanted, WantedAnswers):
                value = await self._turns.find_answers(key_id, wanted, charge)
            else:
                value = await self._turns.find(key_id, wanted, charge)
            await self._set(call, field_of(wanted), value)
        finally:
            call.waits.end_lookup()
        if (
            self._calls.owns(call)
            and not call.is_replayed
            and call.waits.lookup not in (None, wanted)
        ):
            # what was found led to another lookup, which found this one under way
            self._calls.spawn(self._look_up(call), "lookup")

    async def _look_back(self, call: OwnedCall, wanted: WantedSegment) -> None:
        """Read a part of the call itself: no fact, as nobody can read another one."""
        while not self._calls.is_over(call) and call.waits.segment is wanted:
            try:
                await self._feeder.feed_segment(call, wanted)
                if not call.is_replayed:
                    self._calls.after(call)
                return
            except StreamProtocolError as error:
                self._calls.close(call, error.code)
                return
            except (StreamConnectionLost, RedisError) as error:
                self._failed(call, error)
            await asyncio.sleep(RETRY_S)

    async def _is_charged(self, call: OwnedCall, value: bytes) -> bool:
        """Charge what the record puts into a request to its key, as if it had come with it. False
        where the key has its share."""
        with contextlib.suppress(StreamConnectionLost, RedisError):
            outcome = await key_memory_scripts.charge(
                self._redis, call.id, call.start.payer, len(value)
            )
            return outcome != Outcome.KEY
        # storing it fails likewise, and is tried again
        return True

    async def _set(self, call: OwnedCall, field: str, value: bytes) -> None:
        """Set a fact once; whoever was first is what the session gets."""
        while not self._calls.is_over(call) and field not in call.waits.facts:
            try:
                if len(value) > LARGE_STEP_BYTES:
                    await self._set_large(call, field, value)
                    return
                await scripts.set_fact(self._redis, call.id, field, value)
                # once more where it is not there: in a failover Redis may lose what it has just
                # confirmed
                await self.fetch(call, field)
                if field in call.waits.facts:
                    return
            except (StreamConnectionLost, RedisError) as error:
                self._failed(call, error)
            await asyncio.sleep(RETRY_S)

    async def _set_large(self, call: OwnedCall, field: str, value: bytes) -> None:
        """Set a large fact by plain commands: a script would copy it several times. Who set it need
        not read it, and nobody else waits."""
        key = layout.facts_key(call.id)
        stored = [
            *pack_large("HSETNX", key, field, value),
            command("PEXPIRE", key, int(self._limits.call_ttl_s * 1000)),
        ]
        # not in front of the releases of all calls
        answer = (await self._bodies.transaction(stored, 2))[0]
        if isinstance(answer, RedisError):
            raise answer
        if not answer:
            await self.fetch(call, field)
        elif self._calls.owns(call):
            await self._feed(call, field, value)

    async def _feed(self, call: OwnedCall, field: str, value: bytes) -> None:
        await self._feeder.feed(call, field, value)
        if not call.is_replayed:
            self._calls.after(call)

    async def fetch(self, call: OwnedCall, field: str) -> None:
        """Read one fact, however often it takes, and feed it to its call."""
        while not self._calls.is_over(call) and field not in call.waits.facts:
            try:
                value = await self._redis.call("HGET", layout.facts_key(call.id), field)
                if value is not None and self._calls.owns(call):
                    await self._feed(call, field, value)
                return
            except (StreamConnectionLost, RedisError) as error:
                self._failed(call, error)
            await asyncio.sleep(RETRY_S)

    async def look_after(self, call: OwnedCall) -> None:
        """Read the facts that a call waits for, as a notification may be lost, and ask again where
        a judge died or a lookup got lost."""
        if call.waits.segment is not None:
            await self._look_up(call)
        fields = call.waits.open_fields
        if not fields or call.id in self._looked_after:
            return
        self._looked_after.add(call.id)
        try:
            values = await self._redis.call("HMGET", layout.facts_key(call.id), *fields)
            for field, value in zip(fields, values, strict=True):
                if value is not None and field not in call.waits.facts:
                    await self._feeder.feed(call, field, value)
            self._calls.after(call)
            for ask in list(call.waits.open_asks.values()):
                if ask.is_for_people:
                    self._people.wait_for(call, ask)
                    continue
                attempt = await self._judges.died(call.id, ask.block, ask.step)
                if attempt is not None:
                    await self._ask(call, msgspec.structs.replace(ask, attempt=attempt))
            if call.waits.lookup:
                await self._look_up(call)
        except (StreamConnectionLost, RedisError) as error:
            self._failed(call, error)
        finally:
            self._looked_after.discard(call.id)

    async def close(self) -> None:
        """Close the connections to the judge queue and the record."""
        await asyncio.gather(self._judges.close(), self._turns.close(), self._people.close())
