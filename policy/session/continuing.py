"""A call under a series that says `on_block: continue`: where an answer leaves its client nothing to
run because its calls were blocked, the session goes on with the model itself.

Theory. An answer with a call of the client's may be given back; whether it is depends on the
verdicts, which are all known once everything before its end is out. If a call survived, or none was
blocked, or something stands in the way, the message ends as under any other series. Else the blocked
calls go back to the model as failed results, and its next answer is the next segment of the same
message. What is sent back is not kept meanwhile: the session asks for its request and for the
chunks of the answer, which both stay in Redis as long as the call, so text costs nothing more. All
of this follows from the request, the chunks and the facts, so another owner comes to the same.

Bounded by answers in a row, by blocked calls since the user's last words, by size and by the age of
the call: a model that insists costs at most three requests for one of its client's.

A session of its own, so that calls under all other series pay nothing for it.
"""

from collections.abc import Sequence

import msgspec

from policy.base import Policy
from policy.session.answer import metadata
from policy.session.answer.slots import CallSlot, Continue, Mark
from policy.session.blocked_answer import (
    blocked_answer,
    count_notices,
    is_repeatable,
    is_returnable,
)
from policy.session.chain import Chain
from policy.session.effects import CallInfo, WantedSegment
from policy.session.exchange import Exchange
from policy.session.session import Session
from protocol.bounds import (
    MAX_BLOCKED_IN_A_ROW,
    MAX_BLOCKED_IN_TURN,
    MAX_CONTINUED_AGE_S,
    MAX_CONTINUED_BYTES,
)
from protocol.dialects.table import CLIENTS
from protocol.errors import PipelineError, RemoteProtocolError
from protocol.events import BY_CONTENT, MessageStop, UpstreamFailed, Usage
from protocol.records import AttemptRecord
from protocol.request import ChatRequest, Turn
from protocol.stored_answers import StoredAnswers
from settings.config import Config

CONTINUED = "block_continued"
"""The event of an answer that was given back."""
STOPPED = "block_stopped"
"""The event of one that was not, for a reason that is not in the answer."""


class ContinuingSession(Session):
    """A call whose blocked tool calls are given back to their model."""

    may_continue = True

    def __init__(self, call: CallInfo, policies: Sequence[Policy], config: Config) -> None:
        super().__init__(call, policies, config)
        self._end: MessageStop | None = None
        """The end of an answer that may be given back, until that is decided."""
        self._first_seq = self._next_seq = self._end_seq = 1
        """The first chunk of this answer, what comes behind its last entry, and the chunk that
        ended it."""
        self._ended_at = 0
        self._wanted: WantedSegment | None = None
        self._rounds = 0
        """Answers that were given back."""
        self._blocked_before = -1
        """Blocked calls in the client's history; -1: not counted yet."""
        self._turns: list[Turn] = []
        self._is_chained = False
        """Does the request go on with kept answers? It is not the body alone then."""

    # --- the request ---

    def answers(self, stored_answers: StoredAnswers) -> None:
        """As every session."""
        self._is_chained = True
        super().answers(stored_answers)

    def _approve(self, chain: Chain, request: ChatRequest) -> ChatRequest:
        if self._blocked_before < 0:
            self._blocked_before = count_notices(request)
        return super()._approve(chain, request)

    # --- the end of an answer ---

    def body(self, seq: int, raw: bytes) -> Mark:
        """As every session."""
        self._next_seq, self._ended_at = seq + 1, self.out.at
        return super().body(seq, raw)

    def eof(self, seq: int = -1) -> None:
        """As every session."""
        self._next_seq, self._ended_at = seq + 1, self.out.at
        super().eof(seq)

    def failed(self, code: str, *, seq: int = -1) -> None:
        """As every session; an answer that was complete before is none the less."""
        if self._end is None:
            super().failed(code, seq=seq)
        else:
            self.eof(seq)

    def _calls(self, exchange: Exchange) -> list[CallSlot]:
        """The calls of this answer, in their order."""
        return [
            slot
            for slot in exchange.blocks.slots.by_key.values()
            if type(slot) is CallSlot and slot.index >= exchange.offset
        ]

    def _finish(self, exchange: Exchange, event: MessageStop, seq: int) -> None:
        calls = self._calls(exchange)
        # not where it is over: a verdict that ends the message comes before that in one run, and
        # behind it in another
        self._end_seq = seq if seq >= 0 else self._next_seq - 1
        if (
            not calls
            or event.stop_reason not in BY_CONTENT
            or self._is_chained
            or exchange.segment > self._rounds
            or not all(is_returnable(exchange.request, slot) for slot in calls)
        ):
            super()._finish(exchange, event, seq)
            return
        # a pause would have gone on with the turn as its upstream left it
        exchange.forget_continuation()
        self._end, withheld = metadata.read_stop(event, exchange.chain)
        self.out.note_withheld(withheld, seq)
        self._take("pause")
        exchange.blocks.finish(Continue())

    def _pump(self) -> None:
        super()._pump()
        exchange, end = self._exchange, self._end
        if exchange is None or end is None or self._phase != "drained" or self._wanted is not None:
            return
        calls = self._calls(exchange)
        if not exchange.blocks.calls.survivors and all(map(is_repeatable, calls)):
            self._decide(exchange, end, calls)
        else:
            self._end_here(exchange, end)

    def _decide(self, exchange: Exchange, end: MessageStop, calls: Sequence[CallSlot]) -> None:
        """Go on with the model, whose calls were all blocked, once its answer is over; or say why
        not."""
        rounds, blocked, why = self._rounds + 1, self._blocked_before + len(calls), ""
        if rounds >= MAX_BLOCKED_IN_A_ROW:
            why = f"{rounds} answers in a row had only blocked tool calls"
        elif blocked >= MAX_BLOCKED_IN_TURN:
            why = f"{blocked} calls were blocked since the user's last words"
        elif exchange.segment + 1 >= self._config.limits.dispatches:
            why = "the call has sent all requests that it may send"
        elif self._at_eof and self._ended_at - self.call.at > MAX_CONTINUED_AGE_S * 1000:
            why = "the call is too old"
        elif self._at_eof:
            self._wanted = WantedSegment(self._first_seq, self._next_seq - 1)
            self.out.look_up(self._wanted)
        if why:
            if notice := self.out.notices.too_many(why):
                self._say(exchange, notice)
            self._end_here(exchange, end, why)

    def _end_here(self, exchange: Exchange, end: MessageStop, why: str = "") -> None:
        """End the message with this answer, as under any other series."""
        if why:
            self.out.note(STOPPED, -1, why)
        self._end = self._wanted = None
        self._take("stop")
        self._complete(exchange, end)

    # --- the next answer ---

    def segment(self, body: bytes | None, chunks: Sequence[bytes]) -> None:
        """As every session: give the blocked calls back."""
        exchange, end = self._exchange, self._end
        if exchange is None or end is None or self._wanted is None:
            return
        calls = self._calls(exchange)
        try:
            if body is None or len(body) + sum(map(len, chunks)) > MAX_CONTINUED_BYTES:
                raise RemoteProtocolError("it is too large, or Redis does not have it any more")
            request = CLIENTS[self.call.dialect].decode_request(body, endpoint=self.call.endpoint)
            turns, stored = blocked_answer(
                self.call, exchange, calls, chunks, self._config.unknown, self.out.notices
            )
        except (PipelineError, ValueError) as error:
            self._end_here(exchange, end, f"it cannot be sent back: {error}")
            return
        self._record_segment(exchange, self._next_seq - 1)
        blocks = ", ".join(str(slot.key) for slot in calls)
        self.out.note(CONTINUED, -1, f"blocks {blocks} given back")
        self._end = self._wanted = None
        self._first_seq = self._end_seq = self._next_seq
        self._rounds += 1
        self._blocked_before += len(calls)
        self._turns += turns
        self._stored = [*self._stored, *stored]
        self.request = msgspec.structs.replace(
            request, turns=(*request.turns, *self._turns), is_as_written=False
        )
        exchange.blocks.answer_again()
        self._continue(exchange, None)

    def _begin_attempt(self, seq: int) -> None:
        super()._begin_attempt(seq)
        self._first_seq = self._next_seq = self._end_seq = seq + 1

    def _failed(self, event: UpstreamFailed, seq: int = -1) -> Mark:
        exchange = self._exchange
        is_unbegun = (
            exchange is not None
            and self._rounds > 0
            and self._phase in ("approved", "answering")
            and exchange.blocks.slots.next_index == exchange.offset
        )
        if exchange is None or not is_unbegun:
            return super()._failed(event, seq)
        # what the client has is a whole answer
        self.out.note(STOPPED, -1, f"the upstream did not go on: {event.message}")
        self._end_turn(exchange)
        return "withheld", -1

    # --- the record ---

    def _complete(self, exchange: Exchange, event: MessageStop) -> None:
        if self._rounds:
            self._record_segment(exchange, self._end_seq)
        super()._complete(exchange, event)

    def _abort(self, event: UpstreamFailed) -> None:
        if self._exchange is not None and self._rounds:
            self._record_segment(self._exchange, self._first_seq)
        super()._abort(event)

    def _record_segment(self, exchange: Exchange, end_seq: int) -> None:
        """Record this answer: of a call with several, each is one. How far one came that is cut
        off is chance."""
        is_cut, segment = exchange.blocks.is_cut, exchange.segment
        usage = Usage() if is_cut else exchange.usage.reported
        if self._plan is not None:
            self._plan.is_shown()
        self.out.records.append(
            AttemptRecord(
                call_id=self.call.call_id,
                segment=segment,
                attempt=0 if segment else self.retries,
                at=self.out.at,
                kind="continue" if segment else "retry" if self.retries else "first",
                upstream=exchange.upstream.name,
                model=exchange.model,
                first_seq=self._first_seq,
                end_seq=self._first_seq if is_cut else end_seq,
                chosen=True,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
            )
        )
