"""Ends calls: the terminal record is written in the script that releases the call, so there is
exactly one.

Calls of one shard and gateway that end in the same turn of the loop share one script call and one
entry of the audit stream.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

import msgspec

from protocol.errors import PolicyFailed, StreamConnectionLost
from protocol.records import UNCLAIMED, EndRecord, encode_records
from streams import budget_scripts, layout, metrics, scripts
from streams.connection import Connection, RedisError
from streams.layout import Reply
from streams.script_outcomes import Outcome
from streams.scripts import FencedEnd
from streams.tick_batches import Tick
from workers.policy.call.owned import OwnedCall, now_ms
from workers.policy.call_figures import CallFigures
from workers.policy.calls import Calls
from workers.policy.release import BATCH_BYTES, MAX_BATCH, REPLY_TTL_MS
from workers.policy.unrecorded_share import Unrecorded

log = logging.getLogger(__name__)
RETRY_S = 0.1
Place = tuple[int, str]


class _End(msgspec.Struct, frozen=True):
    call: OwnedCall | None
    """None where nothing could be read of the call but its lease."""
    place: Place
    row: FencedEnd
    record: EndRecord | None = None


def _prepare(end: _End, _: int) -> tuple[Place, int, _End]:
    return end.place, len(end.row.audit), end


class Finisher:
    """Writes the ends of one worker's calls, and drops each once Redis has its end, or another has
    the call."""

    def __init__(
        self,
        redis: Connection,
        calls: Calls,
        unrecorded: Unrecorded,
        figures: CallFigures,
        *,
        ended_ttl_ms: int,
    ) -> None:
        self._redis, self._calls, self._unrecorded = redis, calls, unrecorded
        self._figures, self._ended_ttl_ms = figures, ended_ttl_ms
        self._tick = Tick(_prepare, self._send, redis.flush, most=MAX_BATCH, most_bytes=BATCH_BYTES)

    def end(self, call: OwnedCall, reason: str, relayed: int, *, gone: bool = False) -> None:
        """Write the end of `call` until Redis has it or the call is another's. `gone`: though Redis
        has lost it.

        `relayed` is the last number the gateway relayed, below 0 where the worker gives the call
        up: then the gateway gets an error.
        """
        # behind the releases of this turn, which take the records that belong to them
        asyncio.get_running_loop().call_soon(self._prepare, call, reason, relayed, gone)

    def _prepare(self, call: OwnedCall, reason: str, relayed: int, gone: bool) -> None:
        if not self._calls.owns(call):
            return
        end: EndRecord | None = None
        try:
            records = call.end_records(reason, relayed, now_ms())
            audit = encode_records(records)
            end = records[-1] if isinstance(records[-1], EndRecord) else None
        except Exception as error:
            # without its end a call would be kept for ever
            log.error(
                "the records of a call cannot be written",
                extra={"call_id": call.id, "error": type(error).__name__},
                exc_info=error,
            )
            end = EndRecord(
                call_id=call.id,
                at=now_ms(),
                state="FAILED",
                reason=PolicyFailed.code,
                status=0,
                settles=layout.BUDGETED in call.start.numbers,
            )
            audit = encode_records([end])
        # the gateway knows when it closed the call itself, and when nobody claimed it
        given_up = relayed < 0 and reason != UNCLAIMED
        released = call.queue.released
        reply = layout.pack(Reply(call.id, released, released, failed=reason)) if given_up else b""
        counts = metrics.pack(call.decided.counts())
        uncounted = call.queue.take_uncounted()
        self._unrecorded.add(call.shard, call.start.key, uncounted + len(audit))
        row = FencedEnd(call.id, call.token, audit, reply, gone, counts)
        self._tick.add(call.id, _End(call, (call.shard, call.gateway), row, end))

    def end_lost(self, call_id: str, token: str, reason: str, *, gateway: str = "") -> None:
        """End a claimed call of which at most its `gateway` can be read, which gets an error. The
        next takeover repeats what got lost."""
        # whether budgets limit it is not known here
        end = EndRecord(
            call_id=call_id,
            at=now_ms(),
            state="FAILED",
            reason=reason,
            status=0,
            relayed=-1,
            settles=True,
        )
        reply = layout.pack(Reply(call_id, 0, 0, failed=reason)) if gateway else b""
        row = FencedEnd(call_id, token, encode_records([end]), reply, is_gone=True)
        self._tick.add(call_id, _End(None, (layout.shard_of(call_id), gateway), row))

    def _send(self, place: Place, batch: Sequence[_End], size: int = 0) -> None:
        answer = scripts.finish(
            self._redis,
            *place,
            [end.row for end in batch],
            ended_ttl_ms=self._ended_ttl_ms,
            reply_ttl_ms=REPLY_TTL_MS,
        )
        answer.add_done_callback(lambda done: self._answered(place, batch, done))

    def _answered(
        self, place: Place, batch: Sequence[_End], done: "asyncio.Future[list[bytes]]"
    ) -> None:
        if done.cancelled():
            return
        if (error := done.exception()) is None:
            for end, outcome in zip(batch, done.result(), strict=True):
                if end.call is None:
                    continue
                if (
                    outcome == Outcome.GONE
                    and time.monotonic() - end.call.last_owned < self._ended_ttl_ms / 1000
                ):
                    # had another ended it since, that would still be there: Redis has lost its
                    # lease, and only this worker can end it
                    row = msgspec.structs.replace(end.row, is_gone=True)
                    self._send(place, [msgspec.structs.replace(end, row=row)])
                else:
                    if outcome == Outcome.OK and end.record is not None:
                        self._figures.ended(end.call, end.record)
                        if end.record.settles:
                            self._settle(end.record)
                    self._calls.drop(end.call)
            return
        # what Redis refuses of one call (its keys are spoilt) must not keep the others from their
        # ends
        apart = isinstance(error, RedisError) and len(batch) > 1
        if not isinstance(error, StreamConnectionLost | RedisError):
            log.error("a call could not be closed", extra={"error": type(error).__name__})
        for again in [[end] for end in batch] if apart else [batch]:
            asyncio.get_running_loop().call_later(RETRY_S, self._repeat, place, again)

    def _settle(self, end: EndRecord) -> None:
        """Give back what a call reserved and did not take. Should Redis not get it, an audit writer
        does it once more."""
        budget_scripts.settle(self._redis, end, is_stored=False).add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )

    def _repeat(self, place: Place, batch: Sequence[_End]) -> None:
        if owned := [end for end in batch if end.call is not None and self._calls.owns(end.call)]:
            self._send(place, owned)
