"""A call under a series that may defer: a tool call that another model must make again ends the
answer of the call's own model.

Theory. The call's own model answers first (attempt 0). From its first tool call on, or from the
beginning where the series says so or the client does not stream, the answer waits behind a gate
(`policy.session.held`). If a policy defers a call in it, all that waits is discarded once the
answer is complete and every call in it has a verdict; that goes on record, and where commits are
waited for, it is committed. Then the client's own request goes to the other model (attempt 1),
whose answer is held whole, passes the same series afresh, and takes the place of what was
discarded. If it fails, refuses or is cut off, the client gets what it would get had the call been
blocked. The client must not learn of any of this: the message keeps its id and its model, and the
usage is that of the answer that it got.

A session of its own, so that calls under all other series pay nothing for it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import proxy

import msgspec

from policy.base import Policy
from policy.session import likeness, metadata, opening, trusted
from policy.session.answer_log import AnswerLog
from policy.session.effects import CallInfo
from policy.session.held import HeldBlocks
from policy.session.session import Session
from policy.session.slots import Continue, Mark, Slot
from protocol.config import Config
from protocol.dialects import CLIENTS, DIALECTS
from protocol.errors import PipelineError
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from protocol.records import PASSED, AttemptRecord, BlockRecord, VerdictName
from protocol.request import ChatRequest

_CUT_OFF = frozenset((StopReason.MAX_TOKENS, StopReason.REFUSAL, StopReason.CONTEXT_WINDOW))
"""Ends of an answer that cannot take another's place."""
_PLAIN = (BlockStart, BlockStop, TextDelta, ArgumentsDelta)
"""What every dialect can say."""
_KINDS = ("first", "defer")
_END = MessageStop(StopReason.END_TURN)


def session_of(call: CallInfo, policies: Sequence[Policy], config: Config) -> Session:
    """Return the session for a call under this series."""
    for policy in policies:
        if policy.defers_to and call.endpoint != "count_tokens":
            return DeferringSession(call, policies, config)
    return Session(call, policies, config)


class DeferringSession(Session):
    """A call whose answer is decided by turns. `_attempt` counts its answers, `_sent_events` is
    what went out of the first."""

    may_defer = True
    _blocks: HeldBlocks | None

    def __init__(self, call: CallInfo, policies: Sequence[Policy], config: Config) -> None:
        super().__init__(call, policies, config)
        self._is_whole = any(policy.release == "whole" for policy in policies if policy.defers_to)
        self._body: bytes | None = None
        self._attempt = 0
        self._sent_events = AnswerLog()
        self._denied: Slot | None = None
        """The call that was deferred."""
        self._held_start: MessageStart | None = None
        self._first_end: MessageStop | None = None
        """How the first answer ended, if it was discarded and is no part of a turn."""
        self._first_dialect = ""
        self._committing = -1
        """The discarded call whose commit is waited for."""
        self._fate: VerdictName | None = None
        """What became of the last whole answer, where that is known."""
        self._before = self._first_usage = Usage()
        self._ended: list[tuple[int, int, int, Usage]] = []
        """Upstream answers of this attempt that have ended: the segment, its first and last chunk,
        its usage."""
        self._next_seq, self._seq = 1, 0
        self._sent_to = ("", "")
        self._gone: set[int] = set()
        """Indices of blocks that are left out of the second answer."""
        self._is_foreign = self._is_inside = self._is_kept = False
        # is_foreign: the second answer is of another dialect than the first
        # is_inside: what upstream sent is being taken, and nothing is decided before all of it is

    # --- the request ---

    def _take_body(self, body: bytes) -> None:
        """The body may be sent again: as bytes it takes the least memory."""
        self._body = body

    def _approve(self, request: ChatRequest) -> ChatRequest:
        approved = super()._approve(request)
        decided = self._denied.decided if self._denied is not None else None
        return (
            trusted.settled(approved)
            if decided is None
            else trusted.for_model(approved, decided.defer)
        )

    def _make_blocks(self, request: ChatRequest) -> HeldBlocks:
        assert self._chain is not None
        # not a bound method: in a cycle all that a call holds would wait for the garbage collector
        weak = proxy(self)
        blocks = HeldBlocks(self.out, self._chain, request, lambda event: weak._emit(event))
        if self._denied is None and (self._is_whole or not request.stream):
            blocks.close()
        return blocks

    def _dispatch(self, container: str) -> None:
        assert self._upstream is not None and self._approved is not None
        self._sent_to = (self._upstream.name, self._approved.model)
        super()._dispatch(container)

    # --- chunks ---

    def chunks(self, seq: int, raw: Sequence[bytes]) -> list[Mark]:
        """As every session; behind a closed gate the verdict on a chunk is that of its block."""
        with self._inside(seq + len(raw) - 1):
            marks = super().chunks(seq, raw)
        if self._blocks is not None and self._blocks.is_held:
            return [
                ("hold", block) if block >= 0 and verdict in PASSED else (verdict, block)
                for verdict, block in marks
            ]
        return marks

    def body(self, seq: int, raw: bytes) -> Mark:
        """As every session."""
        self._fate = None
        with self._inside(seq):
            mark = super().body(seq, raw)
        # a verdict may have come at the end
        return (self.whole_verdict, -1) if mark[0] == "hold" or self._fate is not None else mark

    @property
    def whole_verdict(self) -> VerdictName:
        """As every session."""
        return self._fate or super().whole_verdict

    def error_status(self, status: int, raw: bytes, retry_after: str, *, seq: int = -1) -> Mark:
        """As every session."""
        with self._inside(seq):
            return super().error_status(status, raw, retry_after, seq=seq)

    def eof(self, seq: int = -1) -> None:
        """As every session; a turn that is to be discarded has waited for this."""
        with self._inside(seq):
            super().eof(seq)

    def failed(self, code: str, *, seq: int = -1) -> None:
        """As every session."""
        with self._inside(seq):
            super().failed(code, seq=seq)
            # of an answer that was complete before nothing more comes, either
            self._at_eof = True

    @contextmanager
    def _inside(self, seq: int) -> Iterator[None]:
        """Take what came up to `seq`; decide about the turn behind it."""
        self._seq, self._is_inside = seq, True
        yield
        self._is_inside = False
        self._pump()

    @property
    def held_bytes(self) -> int:
        """As every session; behind a closed gate each step may be the one that writes the request
        again."""
        is_due = self._denied is not None or (self._blocks is not None and self._blocks.is_held)
        return super().held_bytes + (len(self._body or b"") if is_due else 0)

    @property
    def spent(self) -> Usage:
        """All that upstream counted, of answers that were discarded too."""
        return self._before.plus(self.usage)

    # --- what goes out ---

    def _start(self, event: MessageStart, seq: int) -> None:
        assert self._blocks is not None and self._chain is not None
        self._held_start, withheld = metadata.read_start(event, self._chain)
        self.out.note_withheld(withheld, seq)
        if not self._blocks.is_held:
            self._tell_start()

    def _tell_start(self) -> None:
        """Let the message begin, unless it has: with the first answer's id and model, and the usage
        of the one that goes out."""
        if (start := self._held_start) is None:
            return
        self._held_start = None
        if self._is_kept and self._attempt:
            extra = start.extra
            if "usage" in extra:
                extra = extra | {
                    "usage": likeness.in_shape(extra["usage"], self._counted(self._start_usage))
                }
            start = msgspec.structs.replace(
                start, usage=likeness.usage_alike(start.usage, self._start_usage), extra=extra
            )
        self.out.emit(start)

    def _counted(self, usage: Usage) -> dict[str, Any]:
        return DIALECTS[self._first_dialect].write_usage(usage)

    def _emit(self, event: Event) -> None:
        if not self._attempt:
            if not self._is_kept:
                self._sent_events.add(event)
            self.out.emit(event)
        elif (shown := self._shown(event)) is not None:
            self.out.emit(shown)

    def _shown(self, event: Event) -> Event | None:
        """An event of the second answer as the client gets it, None where it does not."""
        index = getattr(event, "index", -1)
        if index in self._gone:
            return None
        if not self._is_foreign:
            return event
        if not isinstance(event, _PLAIN):
            return None
        if not isinstance(event, BlockStart):
            return event
        if event.kind not in (BlockKind.TEXT, BlockKind.TOOL_USE):
            self._gone.add(index)
            return None
        return msgspec.structs.replace(event, body=None) if event.body else event

    def _complete(self, event: MessageStop) -> None:
        if self._attempt and self._is_kept:
            self.usage = likeness.usage_alike(self._first_usage, self.usage)
        super()._complete(event)
        self._forget()

    def _end_extra(self, event: MessageStop) -> dict[str, Any]:
        assert self._blocks is not None
        if not self._attempt or self._blocks.is_cut:
            return super()._end_extra(event)
        first = self._first_end
        if first is None or not self._is_kept:
            return first.extra if first is not None else {}
        second_extra = (
            {}
            if self._is_foreign
            else event.extra
            if self._used == Usage()
            else super()._end_extra(event)
        )
        counts = self._counted(self.usage) if "usage" in first.extra else {}
        return likeness.end_extra(
            first, event, second_extra, counts | second_extra.get("usage", {})
        )

    # --- the turn ---

    def _pump(self) -> None:
        blocks = self._blocks
        if (
            blocks is not None
            and not self._is_inside
            and self._committing < 0
            and blocks.is_held
            and blocks.is_decided
        ):
            self._decide(blocks)
        super()._pump()

    def _decide(self, blocks: HeldBlocks) -> None:
        """The turn has ended, and every call in it is decided: keep it, or let another answer take
        its place."""
        end, wanted = blocks.end, blocks.wanted
        is_whole = not isinstance(end, UpstreamFailed) and not blocks.is_cut
        if self._attempt:
            self._decide_second(blocks)
        elif wanted is not None and is_whole and self._segment + 1 < self._config.limits.dispatches:
            if self._at_eof:
                self._discard_first(blocks, wanted)
        elif isinstance(end, Continue):
            self._is_drained = True
        else:
            self._keep(blocks)

    def _decide_second(self, blocks: HeldBlocks) -> None:
        end = blocks.end
        if isinstance(end, Continue):
            self._is_drained = True
        elif blocks.is_cut:
            self._keep(blocks)
        elif isinstance(end, UpstreamFailed):
            # only now, and not when it failed: what of its calls is decided by then is chance
            self._give_up(end.message)
        elif isinstance(end, MessageStop) and end.stop_reason in _CUT_OFF:
            self._give_up(f"its answer ended with {end.stop_reason}")
        elif blocks.is_refused:
            self._give_up("it refuses")
        else:
            self._keep(blocks)

    def _keep(self, blocks: HeldBlocks) -> None:
        if self._attempt:
            self._record_attempt(is_chosen=True)
            self._gone = blocks.leave_out(
                has_text=self._sent_events.has_text, is_foreign=self._is_foreign
            )
        self._forget()
        self._tell_start()
        blocks.open()

    def _forget(self) -> None:
        """Nothing can take the place of this answer any more."""
        self._sent_events, self._body, self._is_kept = AnswerLog(), None, True

    def _discard_first(self, blocks: HeldBlocks, wanted: Slot) -> None:
        """Give up what waits, and ask the other model once that is on record."""
        blocks.slots.pump()
        for index in self._sent_events.unended:
            self._emit(BlockStop(index))
        self._denied, self._fate, self._is_paused = wanted, "discarded", True
        self._record_attempt(is_chosen=False)
        release = "whole" if self._is_whole or not self.out.streams else "early"
        self.out.note("deferred", -1, f"block {wanted.key}, release {release}")
        self._first_usage = self.usage
        if isinstance(blocks.end, MessageStop):
            self._first_end = msgspec.structs.replace(
                blocks.end, extra=super()._end_extra(blocks.end)
            )
        notified_key = blocks.discard(notify=self.call.durable)
        if notified_key >= 0:
            self._committing = notified_key
            self.out.waits.append(notified_key)
        else:
            self._ask_again()

    def committed(self, block: int, ok: bool, at: int) -> None:
        """As every session; the other model is asked once it is on record why."""
        if block != self._committing or block < 0:
            super().committed(block, ok, at)
            return
        self._committing = -1
        if ok:
            self._ask_again()
        else:
            self._give_up("what it was to take the place of could not be recorded in time")

    # --- the second answer ---

    def _ask_again(self) -> None:
        """Send the client's request to the other model, under the same policies afresh: they know
        only what the client has."""
        call, before, body = self.call, self._blocks, self._body
        assert before is not None and body is not None and self._denied is not None
        first, self._body = self._upstream, None
        assert first is not None
        self._first_dialect = first.dialect
        try:
            request = self.request = opening.rebuilt(
                CLIENTS[call.dialect].decode_request(body, endpoint=call.endpoint)
            )
            self._chain = self._make_chain(request)
            self._chain.is_deferred = True
            self._approved = self._approve(request)
            self._upstream = opening.route(call, self._config, self._approved)
        except PipelineError as error:
            self._give_up(error.message)
            return
        self._attempt, self._before, self.usage = 1, self.usage, Usage()
        blocks = self._blocks = self._make_blocks(request.without_history())
        blocks.slots.go_on_from(before.slots)
        blocks.attempt = 1
        blocks.take_earlier(self._sent_events)
        blocks.close()
        self._segment += 1
        self._offset = blocks.slots.next_index
        self._used = self._segment_usage = self._start_usage = Usage()
        self._streamed, self._is_uncounted = 0, False
        self._decoder, self._stored = None, ()
        self._stopped = self._at_eof = self._is_paused = self._is_drained = False
        if first.name != self._upstream.name:
            blocks.example = self._denied.shown_id
            self._is_foreign = DIALECTS[first.dialect] is not DIALECTS[self._upstream.dialect]
        self._turn = opening.turn_builder(call, self._upstream)
        self._dispatch("")

    def _continue(self) -> None:
        self._ended.append(self._span())
        super()._continue()

    def _give_up(self, why: str) -> None:
        """The other model's answer cannot be used: the client gets what it would get had the call
        been blocked."""
        blocks, denied = self._blocks, self._denied
        assert blocks is not None and denied is not None and denied.decided is not None
        self._fate = "discarded"
        if self._attempt:
            self._record_attempt(is_chosen=False)
            blocks.discard()
            self._before = self.usage
        else:
            self._before = Usage()
        self.out.note("not_deferred", -1, why)
        decided = msgspec.structs.replace(denied.decided, verdict="block")
        self.out.records.append(
            BlockRecord(
                call_id=self.call.call_id,
                block=denied.key,
                at=self.out.at,
                kind="tool_use",
                verdict="block",
                reason="not_deferred",
                policy=decided.policy,
                rule=decided.rule or None,
            )
        )
        self.usage = self._start_usage = self._first_usage
        self._tell_start()
        self._say(self.out.notices.call(denied.name, "client", decided))
        self._stopped, self._is_drained = True, False
        blocks.finish_empty(
            msgspec.structs.replace(self._first_end or _END, stop_reason=StopReason.END_TURN)
        )
        super()._pump()

    # --- the record ---

    def _span(self) -> tuple[int, int, int, Usage]:
        first, self._next_seq = self._next_seq, self._seq + 1
        return self._segment, first, self._seq, self._segment_usage

    def _record_attempt(self, *, is_chosen: bool) -> None:
        upstream, model = self._sent_to
        for segment, first, last, usage in [*self._ended, self._span()]:
            self.out.records.append(
                AttemptRecord(
                    call_id=self.call.call_id,
                    segment=segment,
                    attempt=self._attempt,
                    at=self.out.at,
                    kind=_KINDS[self._attempt],
                    upstream=upstream,
                    model=model,
                    first_seq=first,
                    end_seq=last,
                    chosen=is_chosen,
                    input_tokens=usage.input_tokens,
                    output_tokens=usage.output_tokens,
                )
            )
        self._ended = []
