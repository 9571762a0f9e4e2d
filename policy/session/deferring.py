"""A call under a series that may defer: a tool call that another model must make again ends the
answer of the call's own model.

Theory. The call's own model answers first (attempt 0). From its first tool call on, or from the
beginning where the series says so or the client does not stream, the answer waits behind a gate
(`policy.session.answer.held`). If a policy defers a call in it, all that waits is discarded once
the answer is complete and every call in it has a verdict; that goes on record, and where commits
are waited for, it is committed. Then the client's own request goes to the other model (attempt 1),
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
from policy.session import opening, trusted
from policy.session.answer import likeness, metadata
from policy.session.answer.held import HeldBlocks
from policy.session.answer.slots import CallSlot, Continue, Mark
from policy.session.answer_log import AnswerLog
from policy.session.attempts import STAGES, AttemptLog, Choice, Discarded, SecondAnswer, Stage
from policy.session.chain import Chain
from policy.session.effects import CallInfo
from policy.session.exchange import Continuation, Exchange
from policy.session.routes.plan import plan_of
from policy.session.session import Session
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.errors import PipelineError
from protocol.events import (
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    StopReason,
    UpstreamFailed,
    Usage,
)
from protocol.records import PASSED, BlockRecord, VerdictName
from protocol.request import ChatRequest
from settings.config import Config

_CUT_OFF = frozenset((StopReason.MAX_TOKENS, StopReason.REFUSAL, StopReason.CONTEXT_WINDOW))
"""Ends of an answer that cannot take another's place."""
_END = MessageStop(StopReason.END_TURN)


class DeferringSession(Session):
    """A call whose answer is decided by turns. `_sent_events` is what went out of the first
    answer."""

    may_defer = may_rewrite = True

    def __init__(self, call: CallInfo, policies: Sequence[Policy], config: Config) -> None:
        super().__init__(call, policies, config)
        self._is_whole = any(policy.release == "whole" for policy in policies if policy.defers_to)
        self._stage: Stage = "first"
        self._body: bytes | None = None
        self._held: HeldBlocks | None = None
        """The blocks of the answer that is decided about."""
        self._sent_events = AnswerLog()
        self._held_start: MessageStart | None = None
        self._attempts = AttemptLog()
        self._discarded: Discarded | None = None
        self._replacement: SecondAnswer | None = None
        self._committing = -1
        """The discarded call whose commit is waited for."""
        self._fate: VerdictName | None = None
        """What became of the last whole answer, where that is known."""
        self._before = Usage()
        """The usage of answers that the client does not get."""
        self._is_inside = False
        """What upstream sent is being taken: nothing is decided before all of it is."""

    def _choose(self, choice: Choice) -> None:
        self._stage = STAGES[self._stage, choice]

    # --- the request ---

    def _take_body(self, body: bytes) -> None:
        """The body may be sent again: as bytes it takes the least memory."""
        self._body = body

    def _approve(self, chain: Chain, request: ChatRequest) -> ChatRequest:
        approved = super()._approve(chain, request)
        if self._discarded is None:
            return trusted.settled(approved)
        return trusted.for_model(approved, self._discarded.call.final.defer)

    def _make_blocks(self, chain: Chain, request: ChatRequest) -> HeldBlocks:
        # not a bound method: in a cycle all that a call holds would wait for the garbage collector
        weak = proxy(self)
        blocks = HeldBlocks(self.out, chain, request, lambda event: weak._emit(event))
        if self._discarded is None and (self._is_whole or not request.stream):
            blocks.close()
        self._held = blocks
        return blocks

    def _dispatch(self, exchange: Exchange, container: str) -> None:
        self._attempts.send(exchange)
        super()._dispatch(exchange, container)

    # --- chunks ---

    @property
    def _is_held(self) -> bool:
        return self._held is not None and self._held.is_held

    def chunks(self, seq: int, raw: Sequence[bytes]) -> list[Mark]:
        """As every session; behind a closed gate the verdict on a chunk is that of its block."""
        with self._inside(seq + len(raw) - 1):
            marks = super().chunks(seq, raw)
        if self._is_held:
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
        self._attempts.feed(seq)
        self._is_inside = True
        yield
        self._is_inside = False
        self._pump()

    @property
    def held_bytes(self) -> int:
        """As every session; behind a closed gate each step may be the one that writes the request
        again."""
        is_due = self._discarded is not None or self._is_held
        return super().held_bytes + (len(self._body or b"") if is_due else 0)

    @property
    def spent(self) -> Usage:
        """All that upstream counted, of answers that were discarded too."""
        return self._lost_usage.plus(self._before).plus(self.usage)

    # --- what goes out ---

    def _start(self, exchange: Exchange, event: MessageStart, seq: int) -> None:
        self._held_start, withheld = metadata.read_start(event, exchange.chain)
        self.out.note_withheld(withheld, seq)
        if not self._is_held:
            self._emit_start()

    def _emit_start(self) -> None:
        """Let the message begin, unless it has."""
        if (start := self._held_start) is not None:
            self._held_start = None
            self.out.emit(start)

    def _emit(self, event: Event) -> None:
        if self._replacement is not None:
            shown = self._replacement.shown(event)
            if shown is not None:
                self.out.emit(shown)
            return
        if self._stage == "first":
            self._sent_events.add(event)
        self.out.emit(event)

    def _complete(self, exchange: Exchange, event: MessageStop) -> None:
        usage, first = exchange.usage, self._discarded
        if self._stage == "replaced" and first is not None:
            usage.show(likeness.usage_alike(first.usage, usage.total))
        super()._complete(exchange, event)
        if self._stage == "first":
            self._choose("keep")
        self._forget()

    def _end_extra(self, exchange: Exchange, event: MessageStop) -> dict[str, Any]:
        discarded, replacement = self._discarded, self._replacement
        if self._stage == "given_up":
            return event.extra
        if discarded is None or replacement is None or exchange.blocks.is_cut:
            return super()._end_extra(exchange, event)
        if replacement.is_foreign:
            extra: dict[str, Any] = {}
        elif exchange.usage.is_continued:
            extra = super()._end_extra(exchange, event)
        else:
            extra = event.extra
        return discarded.end_extra(event, extra, exchange.usage.total)

    # --- the turn ---

    def _pump(self) -> None:
        blocks, exchange = self._held, self._exchange
        if (
            blocks is not None
            and exchange is not None
            and not self._is_inside
            and self._committing < 0
            and blocks.is_held
            and blocks.is_decided
        ):
            self._decide(exchange, blocks)
        super()._pump()

    def _decide(self, exchange: Exchange, blocks: HeldBlocks) -> None:
        """The turn has ended, and every call in it is decided: keep it, or let another answer take
        its place."""
        end, wanted = blocks.end, blocks.wanted
        is_whole = not isinstance(end, UpstreamFailed) and not blocks.is_cut
        if self._discarded is not None:
            self._decide_second(exchange, blocks, self._discarded)
        elif (
            wanted is not None
            and is_whole
            and exchange.segment + 1 < self._config.limits.dispatches
        ):
            if self._at_eof:
                self._discard_first(exchange, blocks, wanted)
        elif isinstance(end, Continue):
            self._take("drain")
        else:
            self._choose("keep")
            self._open(blocks)

    def _decide_second(self, exchange: Exchange, blocks: HeldBlocks, first: Discarded) -> None:
        end = blocks.end
        if isinstance(end, Continue):
            self._take("drain")
        elif not blocks.is_cut and isinstance(end, UpstreamFailed):
            # only now, and not when it failed: what of its calls is decided by then is chance
            self._give_up(first, end.message)
        elif not blocks.is_cut and isinstance(end, MessageStop) and end.stop_reason in _CUT_OFF:
            self._give_up(first, f"its answer ended with {end.stop_reason}")
        elif not blocks.is_cut and blocks.is_refused:
            self._give_up(first, "it refuses")
        else:
            self._replace(exchange, blocks, first)

    def _replace(self, exchange: Exchange, blocks: HeldBlocks, first: Discarded) -> None:
        """Let the second answer take the place of the first."""
        self._choose("keep")
        self._record_attempt(exchange, is_chosen=True)
        if self._replacement is not None:
            self._replacement.leave_out(
                blocks.leave_out(
                    has_text=self._sent_events.has_text, is_foreign=self._replacement.is_foreign
                )
            )
        if self._held_start is not None:
            self._held_start = first.start_alike(self._held_start, exchange.usage.at_start)
        self._open(blocks)

    def _open(self, blocks: HeldBlocks) -> None:
        self._forget()
        self._emit_start()
        blocks.open()

    def _forget(self) -> None:
        """Nothing can take the place of this answer any more."""
        self._sent_events, self._body = AnswerLog(), None

    def _discard_first(self, exchange: Exchange, blocks: HeldBlocks, wanted: CallSlot) -> None:
        """Give up what waits, and ask the other model once that is on record."""
        blocks.slots.pump()
        for index in self._sent_events.unended:
            self._emit(BlockStop(index))
        self._choose("discard")
        self._fate = "discarded"
        self._record_attempt(exchange, is_chosen=False)
        release = "whole" if self._is_whole or not self.out.streams else "early"
        self.out.note("deferred", -1, f"block {wanted.key}, release {release}")
        end = None
        if isinstance(blocks.end, MessageStop):
            extra = super()._end_extra(exchange, blocks.end)
            end = msgspec.structs.replace(blocks.end, extra=extra)
        self._discarded = Discarded(wanted, exchange.upstream, exchange.usage.total, end)
        notified_key = blocks.discard(notify=self.call.durable)
        if notified_key >= 0:
            self._committing = notified_key
            self.out.waits.append(notified_key)
        else:
            self._ask_again(exchange, blocks, self._discarded)

    def committed(self, block: int, fault: str, at: int) -> None:
        """As every session; the other model is asked once it is on record why."""
        exchange, blocks, first = self._exchange, self._held, self._discarded
        if (
            block < 0
            or block != self._committing
            or exchange is None
            or blocks is None
            or first is None
        ):
            super().committed(block, fault, at)
            return
        self._committing = -1
        if not fault:
            self._ask_again(exchange, blocks, first)
        else:
            self._give_up(first, "what it was to take the place of could not be recorded in time")

    # --- the second answer ---

    def _ask_again(self, before: Exchange, held: HeldBlocks, first: Discarded) -> None:
        """Send the client's request to the other model, under the same policies afresh: they know
        only what the client has."""
        call, body = self.call, self._body or b""
        self._body = None
        try:
            request = self.request = opening.rebuilt(
                CLIENTS[call.dialect].decode_request(body, endpoint=call.endpoint)
            )
            chain = self._make_chain(request)
            chain.defer()
            approved = self._approve(chain, request)
            plan = plan_of(call, self._config, approved)
            upstream = opening.route(
                call, self._config, approved, plan.target if plan is not None else None
            )
        except PipelineError as error:
            self._give_up(first, error.message)
            return
        self._choose("ask")
        self._take("ask_again")
        self._before = first.usage
        blocks = self._make_blocks(chain, request.without_history())
        is_other = first.upstream.name != upstream.name
        example = first.call.shown_id if is_other else ""
        blocks.follow(held, self._sent_events, example=example)
        exchange = self._exchange = Exchange(
            chain,
            upstream,
            approved,
            blocks,
            segment=before.segment + 1,
            offset=blocks.slots.next_index,
            asked=before.usage.asked,
        )
        is_foreign = DIALECTS[first.upstream.dialect] is not DIALECTS[upstream.dialect]
        self._replacement = SecondAnswer(is_foreign=is_other and is_foreign)
        self._stored, self._streamed, self._at_eof = (), 0, False
        exchange.collect_turn(opening.turn_builder(call, upstream))
        self._dispatch(exchange, "")

    def _continue(self, exchange: Exchange, continuation: Continuation | None) -> None:
        self._attempts.end(exchange)
        super()._continue(exchange, continuation)

    def _give_up(self, first: Discarded, why: str) -> None:
        """The other model's answer cannot be used: the client gets what it would get had the call
        been blocked."""
        exchange, blocks, denied = self._exchange, self._held, first.call
        if exchange is None or blocks is None:
            return
        self._fate = "discarded"
        if self._stage == "second":
            self._record_attempt(exchange, is_chosen=False)
            blocks.discard()
            self._before = exchange.usage.total
        self._choose("give_up")
        self.out.note("not_deferred", -1, why)
        decided = msgspec.structs.replace(denied.final, verdict="block")
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
        exchange.usage.show(first.usage)
        self._emit_start()
        self._say(exchange, self.out.notices.call(denied.name, "client", decided))
        self._take("stop")
        blocks.finish_empty(
            msgspec.structs.replace(first.end or _END, stop_reason=StopReason.END_TURN)
        )
        super()._pump()

    def _record_attempt(self, exchange: Exchange, *, is_chosen: bool) -> None:
        self._attempts.end(exchange)
        attempt = exchange.blocks.attempt
        self._attempts.records(self.out, attempt, is_chosen=is_chosen, behind=self.retries)
        if self._plan is not None:
            self._plan.is_shown()

    def _is_bound(self, exchange: Exchange) -> bool:
        return self._stage != "first" or exchange.blocks.slots.next_index > exchange.offset

    def _begin_attempt(self, seq: int) -> None:
        super()._begin_attempt(seq)
        self._attempts.begin_behind(seq)
        self._sent_events, self._held_start = AnswerLog(), None
