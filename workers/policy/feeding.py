"""Feeds calls with their bodies, stream entries and facts. Small steps run on the loop, large ones
on the lane.

Pushed entries go to the worker directly, one step for each. This module handles the slower cases: a
call with a large beginning, and a stream that must be read because an entry was missed or is large,
or because the call was taken over.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

from policy.session.effects import WantedSegment
from protocol.bounds import LARGE_STEP_BYTES
from protocol.errors import PolicyFailed, StreamConnectionLost, StreamProtocolError
from protocol.records import STREAM_LOST
from streams import layout, scripts
from streams.connection import Connection, RedisError
from streams.layout import Entry
from streams.round_robin import RoundRobin
from streams.scripts import Claimed
from workers.cpu_lane import Lane
from workers.policy.call.owned import OwnedCall, now_ms
from workers.policy.calls import Calls
from workers.policy.fair import TURN_S, FairQueue
from workers.policy.release import Releaser

log = logging.getLogger(__name__)
READ_BATCH = 64
RETRY_S = 0.1
REPLAYS = 4
"""Calls that are replayed at once, of as many keys."""
TOGETHER = 64
"""Entries that a heavy call takes in one step: each on its own would wait for the thread."""
WAITED_S = 1.0
"""Behind a turn that took so long to come its gateway may have given the call up."""


def moment() -> int:
    """A number for events of this worker's own, which have no place in the session: Unix
    milliseconds, two events being two records."""
    return now_ms()


class Feeder:
    """Feeds the calls of one worker.

    Bodies come on a connection of their own. Beside the releases, the answer to a call's first
    release came behind the bodies of all calls claimed with it, and its first token waited for
    that.
    """

    def __init__(
        self,
        redis: Connection,
        bodies: Connection,
        lane: Lane,
        releaser: Releaser,
        calls: Calls,
        fair: FairQueue,
    ) -> None:
        self._redis, self._bodies, self.lane, self._releaser, self._calls, self._fair = (
            redis,
            bodies,
            lane,
            releaser,
            calls,
            fair,
        )
        self._reading: set[str] = set()
        self._replays = RoundRobin(REPLAYS, most=1)

    # --- beginnings ---

    async def begin_large(self, call: OwnedCall) -> None:
        """Begin a call with a large body, when the turn is its key's; not if its gateway gave it up
        meanwhile."""
        async with self._lane_turn(call):
            await self._fetch_and_begin(call)
        if self._calls.owns(call):
            call.inbox.read_stream(only=call.inbox.is_heavy)
            self._calls.after(call)
            await self._read_all(call)

    async def _fetch_and_begin(self, call: OwnedCall) -> None:
        while not self._calls.is_over(call):
            with contextlib.suppress(StreamConnectionLost, RedisError):
                if time.monotonic() - call.last_owned > WAITED_S and await self._is_given_up(call):
                    call.refuse(
                        PolicyFailed("the gateway gave this call up before a worker began it")
                    )
                    return
                body = await self._bodies.call("GET", layout.body_key(call.id))
                await self._apart(call, partial(call.begin, body))
                call.weigh()
                return
            await asyncio.sleep(RETRY_S)

    async def _is_given_up(self, call: OwnedCall) -> bool:
        last = await self._redis.call("XREVRANGE", call.call_key, "+", "-", "COUNT", 1)
        with contextlib.suppress(StreamProtocolError):
            return bool(last) and layout.unpack_entry(last[0][1][1]).kind == "closed"
        return False

    async def replay(self, call: OwnedCall, claimed: Claimed) -> None:
        """Begin a call taken over, read its stream, and check that the session came out where the
        last owner stood.

        One call of a key after the other, so that no key's replays wait for all of another's.
        Should this worker die of one, the next owner knows which.
        """
        async with self._replays.place(call.start.key):
            if not call.has_begun:
                await self._begin_again(call, claimed)
            await self._read_all(call)
        if claimed.policy:
            call.queue.forget_call_record()
        if self._calls.is_over(call):
            return
        if call.inbox.expected <= claimed.recorded and not call.is_broken:
            # another worker ended the call while this one was stopped, or Redis has lost its stream
            self._calls.close(call, STREAM_LOST)
            return
        if (
            call.queue.released
            and not call.is_broken
            and call.session.checkpoint_digest != claimed.digest
        ):
            log.error("a replay gave other outputs than the first run", extra={"call_id": call.id})
            call.note(
                "replay_mismatch", moment(), "the replayed session gave other outputs", now_ms()
            )
            self._calls.close(call, "stream_protocol_error")
            return
        call.catch_up()
        call.inbox.read_stream(only=call.inbox.is_heavy)
        self._redis.quiet(scripts.replayed(self._redis, call.id, call.token))
        self._calls.after(call)
        await self.read(call)

    async def _begin_again(self, call: OwnedCall, claimed: Claimed) -> None:
        if (
            claimed.is_large
            or len(call.waits.facts.get(layout.ANSWERS_FIELD, b"")) > LARGE_STEP_BYTES
        ):
            async with self._lane_turn(call):
                await self._fetch_and_begin(call)
        elif self._calls.owns(call):
            with self._inside(call):
                call.begin(claimed.body)

    # --- streams ---

    async def _read_all(self, call: OwnedCall) -> None:
        while self._calls.owns(call) and not await self.read(call):
            await asyncio.sleep(RETRY_S)

    async def read(self, call: OwnedCall) -> bool:
        """Read what is missing from the stream; a gap that is still there after one read ends the
        call. False: not read."""
        if call.id in self._reading or not call.has_begun:
            return False
        self._reading.add(call.id)
        try:
            while self._calls.owns(call):
                await call.until_free()
                call.inbox.begin_reading()
                entries = await self._redis.call(
                    "XRANGE", call.call_key, f"{call.inbox.expected}-0", "+", "COUNT", READ_BATCH
                )
                if not await self._feed_all(call, entries):
                    self._calls.close(call, StreamProtocolError.code)
                    return True
                is_read = len(entries) < READ_BATCH and not call.inbox.has_more
                if call.is_broken or not entries or is_read:
                    break
            if self._calls.owns(call):
                self._calls.after(call)
            return True
        except StreamConnectionLost:
            return False
        except RedisError as error:
            if error.is_spoilt_key:
                self._calls.close(call, STREAM_LOST)
            return error.is_spoilt_key
        finally:
            self._reading.discard(call.id)

    async def sweep(self, call: OwnedCall) -> None:
        """Read what may have been missed; a call whose stream is lost is ended: its gateway can
        report nothing of it any more."""
        await self.read(call)
        with contextlib.suppress(StreamConnectionLost, RedisError):
            if not self._calls.is_over(call) and not await self._redis.call(
                "EXISTS", call.call_key
            ):
                log.error("Redis has lost the stream of a call", extra={"call_id": call.id})
                self._calls.close(call, STREAM_LOST)

    async def _feed_all(self, call: OwnedCall, entries: list[Any]) -> bool:
        """Feed entries of the stream; False where one before is missing, or where one cannot be
        read.

        In turns: a call taken over may have 32 MiB of them, and other calls, leases and the
        watchdog must not wait for it.
        """
        left = deque(fields[1] for _, fields in entries)
        while (left or call.waits.segment) and not self._calls.is_over(call):
            # a fact may be on the lane since this was read, or since the last turn
            await call.until_free()
            try:
                if (wanted := call.waits.segment) is not None:
                    # what follows came after this was looked up, and what a replay is held to, too
                    await self.feed_segment(call, wanted)
                    continue
                apart = await self._fair.run(call.start.key, partial(self._feed_some, call, left))
            except StreamProtocolError:
                return False
            if apart is None:
                continue
            async with self._lane_turn(call):
                if self._calls.is_over(call):
                    return True
                more = (
                    [left.popleft() for _ in range(min(TOGETHER, len(left)))]
                    if call.inbox.is_heavy and not (call.is_replayed and call.session.may_continue)
                    else []
                )
                await self._apart(call, partial(_feed_together, call, apart, more), apart)
            if call.is_broken:
                return True
        return True

    def _feed_some(self, call: OwnedCall, left: deque[bytes]) -> Entry | None:
        """Feed entries for a turn of time; returns one that is to be taken apart. Raises
        StreamProtocolError."""
        if call.busy is not None or self._calls.is_over(call):
            return None
        with self._inside(call) if call.is_replayed else contextlib.nullcontext():
            until = time.monotonic() + TURN_S
            while left and call.waits.segment is None and time.monotonic() < until:
                blob = left.popleft()
                try:
                    entry = layout.unpack_entry(blob)
                except StreamProtocolError:
                    log.error(
                        "undecodable entry of a call",
                        extra={"call_id": call.id, "seq": call.inbox.expected},
                    )
                    raise
                is_large = call.inbox.is_heavy or len(blob) > LARGE_STEP_BYTES
                if is_large and entry.seq == call.inbox.expected:
                    return entry
                if not _feed(call, entry):
                    raise StreamProtocolError("an entry of the stream is missing")
        return None

    # --- facts ---

    async def feed(self, call: OwnedCall, field: str, value: bytes) -> None:
        """Give a call a fact that it waits for."""
        await call.until_free()
        call.weigh()
        step = partial(call.feed_fact, field, value, now_ms())
        await self._take_step(call, step, len(value) + call.session.awaiting_bytes)

    async def feed_segment(self, call: OwnedCall, wanted: WantedSegment) -> None:
        """Give a call the part of itself that its session asked for. Raises StreamConnectionLost,
        RedisError."""
        body = await self._bodies.call("GET", layout.body_key(call.id))
        # at once: all of a call is bounded as a body is
        found = await self._bodies.call(
            "XRANGE", call.call_key, f"{wanted.first_seq}-0", f"{wanted.last_seq}-0"
        )
        entries = (layout.unpack_entry(fields[1]) for _, fields in found)
        chunks = [
            chunk for entry in entries if entry.kind in ("chunks", "body") for chunk in entry.chunks
        ]
        size = len(body or b"") + sum(map(len, chunks))
        await call.until_free()
        await self._take_step(call, partial(call.feed_segment, wanted, body, chunks), size)

    async def _take_step(self, call: OwnedCall, step: Callable[[], object], size: int) -> None:
        """Take a step about so many bytes: on the loop, or beside it where they are many."""
        while not call.inbox.is_heavy and size <= LARGE_STEP_BYTES:
            if await self._fair.run(call.start.key, partial(self._step, call, step)):
                return
            await call.until_free()
        async with self._lane_turn(call):
            if not self._calls.is_over(call):
                await self._apart(call, step)

    def _step(self, call: OwnedCall, step: Callable[[], object]) -> bool:
        """Take a step of a call, unless one began on the lane since this waits."""
        if call.busy is not None:
            return False
        if not self._calls.is_over(call):
            step()
        return True

    # --- steps that may be the worker's end ---

    @contextlib.asynccontextmanager
    async def _lane_turn(self, call: OwnedCall) -> AsyncIterator[None]:
        """A turn on the lane for the call's key, which gets none while it is held."""
        await self._fair.run(call.start.key, lambda: None)
        async with self.lane.turn(call.start.key):
            yield

    async def _apart(
        self, call: OwnedCall, step: Callable[[], object], entry: Entry | None = None
    ) -> None:
        """Take a step of a call on the lane, with what it gives to be released. One that takes too
        long ends the call."""
        await call.until_free()
        if self._calls.is_over(call):
            # its end is written meanwhile, or another has it
            return
        with call.occupied(), call.contained(), self._inside(call):
            if not await self.lane.run(partial(_whole, call, step)) and not call.is_broken:
                call.give_up(entry)
        if call.queue.sending is not None:
            self._releaser.repeat(call)

    @contextlib.contextmanager
    def _inside(self, call: OwnedCall) -> Iterator[None]:
        """Mark in Redis that this worker is in a step of the call, before that begins: should it be
        the last, the next owner knows."""
        self._mark_inside(call, is_inside=True)
        self._redis.flush()
        try:
            yield
        finally:
            self._mark_inside(call, is_inside=False)

    def _mark_inside(self, call: OwnedCall, *, is_inside: bool) -> None:
        marked = scripts.mark_inside(self._redis, call.id, call.token, is_inside=is_inside)
        self._redis.quiet(marked)


def _feed(call: OwnedCall, entry: Entry) -> bool:
    taken = call.feed_entry(entry)
    if call.is_replayed:
        # by and by: all of it at once would take long
        call.skip_released()
    return taken


def _feed_together(call: OwnedCall, entry: Entry, more: list[bytes]) -> None:
    """Take an entry and those behind it; what does not follow is read again."""
    taken = _feed(call, entry)
    for blob in more:
        if not taken or call.is_broken:
            return
        taken = _feed(call, layout.unpack_entry(blob))


def _whole(call: OwnedCall, step: Callable[[], object]) -> None:
    step()
    call.prepare_release()
