"""A call as its gateway sees it: what was appended, what was relayed, and where its numbers stand.

No IO here: the append and reply loops and the HTTP handler move bytes in and out. A call has four
parts: `ReplyOrder` (which replies count), `Outgoing` (bytes for the client), `Appender` (entries
for its stream) and `FlowControl` (when upstream has to wait).
"""

import asyncio
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Protocol

import msgspec

from gateway.call.appender import Appender
from gateway.call.flow import FlowControl
from gateway.call.observer import TrafficObserver
from gateway.call.outgoing import Outgoing
from gateway.call.reply_order import ReplyOrder
from protocol.bounds import FIRST_KEEPALIVE_S
from protocol.bytes import waiting
from protocol.dialects.base import ClientDialect
from protocol.errors import PipelineError, StreamConnectionLost, StreamProtocolError
from protocol.records import STREAM_LOST
from streams import layout
from streams.layout import Dispatch, Entry, Reply, is_other

CHANNEL_MAX = 64 * 1024
"""Entries above this are only announced on the channel; workers read them from the stream."""


class Reserving(Protocol):
    """The budget of a call."""

    headers: tuple[tuple[bytes, bytes], ...]
    """Of its answer: what is left."""

    async def takes(self, call: "OpenCall", dispatch: Dispatch) -> bool:
        """Reserve for a request that is about to go upstream; False: the call has failed, for its
        budget does not allow it."""
        raise NotImplementedError

    def begins(self) -> None:
        """Take that the answer to the latest request begins."""
        raise NotImplementedError


class OpenCall:
    """One client request between HTTP and Redis."""

    def __init__(
        self,
        call_id: str,
        dialect: ClientDialect,
        body: bytes,
        *,
        activity_s: float,
        deadline: float,
        key: str = "",
        observer: "TrafficObserver[OpenCall] | None" = None,
    ) -> None:
        self.id, self.dialect, self.body, self.key = call_id, dialect, body, key
        self.shard = layout.shard_of(call_id)
        self.repeats = False
        """May its request be sent again if a kept-alive connection closed before any byte of an
        answer came? Not if tools act at the provider."""
        self.budget: Reserving | None = None
        """What limits it; None: nothing."""
        self.when_begun: Callable[[], None] | None = None
        """Called once, when the first request goes upstream."""
        self.activity_s, self.deadline = activity_s, deadline
        self.started = self.last_reply = time.monotonic()
        self.is_begun = False
        """Redis has said that the call is on its streams."""
        self.order = ReplyOrder()
        self.outgoing = Outgoing(dialect.keepalive)
        self.appender = Appender(call_id, observer)
        self.flow = FlowControl(self.outgoing, self.appender)
        self._keepalive: Reply | None = None
        """The worker's last keepalive, if it came too early to be written and nothing has come
        since."""
        self._wake: asyncio.Future[None] | None = None
        self._observer = observer
        if observer is not None:
            observer.begun(self)

    # --- replies ---

    def on_reply(self, reply: Reply, *, is_watched: bool = False) -> None:
        """Take a reply from the stream; `relay` afterwards sends what came."""
        if self._observer is not None and not is_watched:
            self._watch_reply(self._observer, reply)
            return
        order = self.order
        self.last_reply = time.monotonic()
        self.appender.note_processed(reply.processed)
        if self.flow.is_awaited:
            self.flow.make_room()
        if reply.failed:
            why = "the policy workers could not finish this call"
            self.fail(StreamProtocolError(why, code=reply.failed))
            return
        if reply.number < order.expected or order.end or order.error is not None:
            return
        if reply.number > order.expected:
            why = "a part of the answer was lost between the policy worker and the gateway"
            self.fail(StreamProtocolError(why))
            return
        if reply.keepalive:
            # without bytes it only says how far the worker is, or, where the client gets one body,
            # that it lives
            if reply.data:
                self._keepalive = reply
                self.show_life(self.last_reply)
            return
        data, digest = reply.data, b""
        if data:
            digest = sha256(data).digest()
            if digest != reply.sha256:
                self._fail_damaged("the answer")
                return
        is_late = bool(reply.late) and order.head_sent
        if is_late and is_other(reply.late, reply.late_sha256):
            self._fail_damaged("the end of the answer")
            return
        if reply.dispatch is not None:
            self._take_dispatch(reply.dispatch)
        order.take(reply)
        if is_late:
            self._keepalive = None
            self.outgoing.add_late(reply, digest)
        elif data:
            self._keepalive = None
            self.outgoing.add(data, digest)

    def _watch_reply(self, observer: "TrafficObserver[OpenCall]", reply: Reply) -> None:
        expected, was_over = self.order.expected, self.order.is_over
        self.on_reply(reply, is_watched=True)
        observer.replied(self, reply, expected, was_over)

    def _fail_damaged(self, what: str) -> None:
        why = f"{what} was changed between the policy worker and the gateway"
        self.fail(StreamProtocolError(why))

    def _take_dispatch(self, dispatch: Dispatch) -> None:
        # a continued turn brings a body of its own: the client's request is sent, and paid for,
        # once
        is_first = not self.order.has_dispatched
        if dispatch.body is None and not is_first:
            self.fail(StreamProtocolError("the request would be sent upstream twice"))
        elif dispatch.body is not None and is_other(dispatch.body, dispatch.sha256):
            self._fail_damaged("the request")
        else:
            if is_first and self.when_begun is not None:
                self.when_begun()
            if dispatch.body is not None:
                self.body = dispatch.body
            self.order.dispatch(msgspec.structs.replace(dispatch, body=None))
        if self._observer is not None:
            self._observer.dispatched(self, dispatch)

    def take_body(self) -> bytes:
        """Return the body to send for the dispatch. It is not kept after that: agents send
        megabytes."""
        body, self.body = self.body, b""
        return body

    def show_life(self, now: float) -> None:
        """Write the worker's keepalive as soon as one may be written; `relay` afterwards sends it.
        `now` is on the monotonic clock."""
        reply = self._keepalive
        if reply is not None and (self.order.head_sent or now - self.started >= FIRST_KEEPALIVE_S):
            self._keepalive = None
            self.order.take_keepalive(reply)
            words = waiting.checked(reply.headers.get(waiting.HEADER, ""))
            self.outgoing.add_keepalive(self.order.expected, words)

    def begin_answer(self) -> None:
        """Take note that the head of the answer is being written."""
        if self._observer is not None and not self.order.head_sent:
            self._observer.answering(self)
        self.order.send_head(time.monotonic())

    def fail(self, error: PipelineError) -> None:
        """End the call from the gateway's side: the client gets `error`."""
        if not self.order.is_over:
            if self._observer is not None:
                self._observer.failed(self, error)
            self.order.fail(error)
            self.wake()

    def relay(self) -> None:
        """Send what came towards the client: at once where only bytes of a begun answer came, else
        by its handler."""
        order = self.order
        if order.end or order.next_dispatch is not None:
            self.wake()
        elif size := self.outgoing.size:
            if order.error is None and self.outgoing.try_write(order.expected):
                self._after_write(size)
            else:
                self.wake()

    def take_out(self) -> bytes:
        """Return the bytes to relay now."""
        data = self.outgoing.take(self.order.expected)
        self._after_write(len(data))
        return data

    def _after_write(self, size: int) -> None:
        if self._observer is not None:
            self._observer.relayed(self, size)
        if self.flow.is_awaited:
            self.flow.make_room()

    def wake(self) -> None:
        """Wake the HTTP handler."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def wait(self) -> None:
        """Wait until there is something to relay, an end or an error."""
        if self.outgoing.size or self.order.is_over or self.order.next_dispatch is not None:
            return
        self._wake = asyncio.get_running_loop().create_future()
        await self._wake

    # --- appends ---

    def close(self, reason: str) -> None:
        """Queue the end: why, and all that was relayed."""
        report = self.outgoing.report()
        self.appender.close(reason, report, self.outgoing.relayed)

    @property
    def last(self) -> Entry | None:
        """The end, once it is queued; its number is not known where Redis has lost the call."""
        return self.appender.last(self.outgoing.relayed)

    def lose(self) -> None:
        """End the call because Redis no longer has its stream: nothing more can be recorded, so
        nothing more may reach the client."""
        self.appender.lose()
        self.fail(StreamConnectionLost("Redis lost the state of this call", code=STREAM_LOST))

    # --- flow ---

    def when_room(self, mark: int, then: Callable[[], None]) -> None:
        """Call `then` as soon as at most `mark` bytes wait."""
        if self._observer is not None:
            self._observer.stalled(self.flow.backlog_bytes())
        self.flow.when_room(mark, then)
