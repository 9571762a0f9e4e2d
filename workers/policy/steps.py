"""What becomes of a call after each step: what it asks and waits for, its releases, its end."""

import asyncio
import logging
import time

from db.state.polling import Watch
from protocol.records import STREAM_LOST, EventRecord, encode_records
from settings.runtime import Runtime
from streams import layout
from streams.connection import Connection
from streams.metrics import Now, ProcessFigures, Total
from streams.script_outcomes import Outcome
from workers.cpu_lane import Lane
from workers.judge_queue import JudgeQueue
from workers.policy.call.owned import OwnedCall, now_ms
from workers.policy.call.phases import Phase
from workers.policy.call_facts import FactWatcher
from workers.policy.call_figures import CallFigures
from workers.policy.calls import Calls
from workers.policy.fair import FairQueue
from workers.policy.feeding import Feeder, moment
from workers.policy.finish import Finisher
from workers.policy.recorded_turns import TurnLookup
from workers.policy.release import Releaser
from workers.policy.subscriptions import Subscriptions
from workers.policy.unrecorded_share import Unrecorded

log = logging.getLogger(__name__)
RETRY_S = 0.1
_RUNNING = Phase.RUNNING


class Steps(Calls):
    """The calls of one worker, with the parts that feed, release and end them. Its owner opens and
    closes the connections."""

    def __init__(
        self,
        settings: Runtime,
        name: str,
        redis: Connection,
        bodies: Connection,
        hears: Subscriptions,
    ) -> None:
        config, limits = settings.config, settings.config.limits
        super().__init__(hears, limits.max_calls)
        self._name, self._redis, self._limits = name, redis, limits
        self.fair = FairQueue()
        unrecorded = Unrecorded(redis, config.shards, self.fair.hold, self.spawn)
        self.releaser = Releaser(
            redis,
            self,
            unrecorded,
            max_reply=limits.reply_entries,
            strict=config.durability == "strict",
        )
        self.figures = CallFigures(config, ProcessFigures())
        self.figures.figures.reads.append(lambda: [(Now.HELD_CALLS, (), len(self.values()))])
        self.finisher = Finisher(
            redis, self, unrecorded, self.figures, ended_ttl_ms=int(limits.ended_ttl_s * 1000)
        )
        self.feeder = Feeder(
            redis, bodies, Lane(blocked_s=2 * limits.lease_s), self.releaser, self, self.fair
        )
        judges = JudgeQueue(settings.redis_url, redis, silent_s=limits.redis_silent_s)
        turns = TurnLookup(
            settings.database_url,
            durable=config.durability != "relaxed",
            max_bytes=limits.body_bytes,
        )
        people = Watch(settings.database_url)
        self.facts = FactWatcher(redis, bodies, judges, turns, people, limits, self, self.feeder)

    def after(self, call: OwnedCall) -> None:
        """Do what the call wants after it was fed; nothing while it is replayed, whose outputs went
        out before."""
        if call.phase is not _RUNNING or call.busy is not None:
            return
        if not call.is_broken and call.waits.has_new:
            self.hears.hear_facts(call)
            with call.contained():
                self.facts.wait_for(call)
        if call.is_broken:
            self.close(call, "policy_failed")
            return
        self.releaser.add(call)
        # not while a release of it is under way: the end record counts them
        if (
            call.inbox.closed is not None
            and call.queue.sending is None
            and not call.queue.is_waiting
        ):
            self.end_as_closed(call)

    def lose(self, call: OwnedCall, outcome: bytes) -> None:
        """Redis refused a renewal or a release: end the call if Redis has lost it, else let go of
        it."""
        if not self.owns(call):
            # a renewal and a release were both under way: it was let go of at the first answer
            return
        call.is_refused(outcome)
        if (
            outcome == Outcome.GONE
            and time.monotonic() - call.last_owned < self._limits.ended_ttl_s
        ):
            # had another ended it since, that would still be there: Redis has lost it, and only
            # this worker can end it
            self.finish(call, STREAM_LOST, -1, gone=True)
            return
        # another owns the call, or it is over; nothing of ours may go out any more
        name = outcome.decode()
        self.figures.figures.add(Total.FENCED, name)
        log.warning("call lost", extra={"call_id": call.id, "action": name})
        record = EventRecord(
            call_id=call.id,
            kind="fenced",
            number=moment(),
            at=now_ms(),
            detail=f"{name} worker {self._name}",
        )
        self._redis.send_quiet(
            "XADD", layout.audit_key(call.shard), "*", layout.BLOB, encode_records([record])
        )
        self.drop(call)

    # --- ends ---

    def close(self, call: OwnedCall, reason: str) -> None:
        """End a call for a reason of this worker's own."""
        # one that has its gateway's end knows how far that came
        closed = call.inbox.closed
        self.finish(call, reason, closed.number if closed is not None else -1)

    def end_as_closed(self, call: OwnedCall) -> None:
        """End a call as its gateway closed it, if it did."""
        if (closed := call.inbox.closed) is not None:
            self.finish(call, closed.text, closed.number)

    def finish(self, call: OwnedCall, reason: str, relayed: int, *, gone: bool = False) -> None:
        """Write the end of a call, once; see `Finisher.end`."""
        if not self.owns(call) or not call.end():
            return
        if call.busy is not None:
            # its records are in the hands of a step; the end is theirs to come before
            call.busy.add_done_callback(
                lambda _: self.finisher.end(call, reason, relayed, gone=gone)
            )
        else:
            self.finisher.end(call, reason, relayed, gone=gone)

    async def end_with_all_that_came(self, call: OwnedCall, reason: str) -> None:
        """End a call for `reason`, with all that is on its stream on record; a gateway that stopped
        in order closed the call there."""
        while self.owns(call) and not await self.feeder.read(call):
            await asyncio.sleep(RETRY_S)
        self.end_as_closed(call)
        self.close(call, reason)
