"""The state machine of one call: takes decoded events, judgements and commits; returns effects.
Pure and replayable.

Theory. An answer is one message of one or more segments: if the provider pauses a turn and the
client's dialect cannot express that, the session asks the provider to continue (docs/protocol.md
1.6). The output depends only on the order of chunks and on judgements, commits and recorded turns,
which are written once. So a second owner that replays the stream gets the same outputs, and a
running hash over them proves it. Must not know: Redis, time, how bytes reach the client.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from policy.base import Context, Judgement, Policy
from policy.session import metadata, nonces, opening
from policy.session.awaiting import Awaiting
from policy.session.blocks import CallBlocks
from policy.session.chain import Chain
from policy.session.effects import CallInfo, Respond, State
from policy.session.outbox import Outbox
from policy.session.slots import Continue, Mark
from protocol import codecs, errors_wire
from protocol.config import Config
from protocol.dialects import CLIENTS, DIALECTS
from protocol.errors import InvalidRequest, PipelineError, RemoteProtocolError, key_memory
from protocol.estimates import BYTES_PER_TOKEN, estimate_tokens
from protocol.events import (
    BY_CONTENT,
    PAUSES,
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    Ping,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from protocol.records import VerdictName
from protocol.request import ChatRequest, OtherPart, Turn
from protocol.restore import Restorer
from protocol.stored_answers import StoredAnswers
from protocol.target import Restore
from protocol.turns import BaseTurnBuilder, Lost, StoredTurn

if TYPE_CHECKING:
    from protocol.dialect_modules import Decoder

WITHHELD: Mark = ("withheld", -1)
_RANK: dict[VerdictName, int] = {"allow": 0, "replace": 1, "hold": 2, "block": 3, "withheld": 4}


class Session(Awaiting):
    """One call. Feed it, then `drain` what it wants done."""

    may_defer = False
    """May it send its request to another model, too?"""

    def __init__(self, call: CallInfo, policies: Sequence[Policy], config: Config) -> None:
        super().__init__(call, Outbox(call, config.notices))
        self._policies, self._config = policies, config
        self.state: State = "ACTIVE"
        self.usage, self.stop_reason, self.status = Usage(), "", 200
        self.request: ChatRequest | None = None
        """As the client sent it; without its history once that is not needed any more."""
        self.dropped: tuple[str, ...] = ()
        """Parameters of the request that were left out on its way to another dialect."""
        self._chain: Chain | None = None
        self._blocks: CallBlocks | None = None
        self._upstream: opening.Destination | None = None
        self._approved: ChatRequest | None = None
        self._decoder: Decoder | None = None
        self._restorer: Restorer | None = None
        self._unknown = frozenset(config.unknown)
        # a turn that goes on: segments from 0, what their block indices are raised by, what those
        # before used
        self._segment, self._offset = 0, 0
        self._turn: BaseTurnBuilder | None = None
        self._stored: Sequence[StoredTurn] = ()
        self._used, self._segment_usage, self._start_usage = Usage(), Usage(), Usage()
        self._asked: int | None = None
        self._streamed, self._is_uncounted = 0, False
        """Characters of the upstream's last answer, and whether that began and its counts are still
        to come."""
        self._sent = self._stopped = self._at_eof = self._is_paused = self._is_drained = False

    # --- what the worker calls ---

    def _begin(self, body: bytes | None, stored_answers: StoredAnswers | None) -> None:
        call, model = self.call, ""
        try:
            if body is None:
                raise InvalidRequest(
                    "the request body was lost before a worker could read it", code="body_lost"
                )
            if stored_answers is not None:
                body = opening.continued(call, body, stored_answers, self._config, self.out)
            self._take_body(body)
            request = CLIENTS[call.dialect].decode_request(body, endpoint=call.endpoint)
            request = self.request = opening.begun(request, stored_answers)
            self.out.streams, model = request.stream, request.model
            call = self.call = opening.identified(call, request)
            self._upstream = opening.route(call, self._config, request)
            self._chain = self._make_chain(request)
            self._approved = self._approve(request)
            if self._approved.model != model:
                self._upstream = opening.route(call, self._config, self._approved)
            self._blocks = self._make_blocks(request.without_history())
        except PipelineError as error:
            self.out.records += opening.records(
                call, self.request, model, self._upstream.name if self._upstream else ""
            )
            self.out.put(self._refusal(error))
            return
        self.out.records += opening.records(call, request, model, self._upstream.name)
        self.out.lookup = opening.lookup(call, self._upstream, self._approved)
        if self.out.lookup is None:
            self._dispatch("")

    def _take_body(self, body: bytes) -> None:
        """Take the request as it is read."""

    def _make_chain(self, request: ChatRequest) -> Chain:
        call = self.call
        context = Context(
            call.call_id,
            nonces.derived(call.nonce, nonces.POLICIES),
            call.key,
            call.session,
            request,
        )
        return opening.chain_of(call, self._policies, context, self._config)

    def _approve(self, request: ChatRequest) -> ChatRequest:
        """The request as it goes upstream. Raises Forbidden where a policy blocks it."""
        assert self._chain is not None
        return opening.approve(self._chain, request, self.out)

    def _make_blocks(self, request: ChatRequest) -> CallBlocks:
        assert self._chain is not None
        return CallBlocks(self.out, self._chain, request)

    def turns(self, stored: Sequence[StoredTurn], *, lost: Sequence[Lost] = ()) -> None:
        """Take the recorded turns that were asked for, and send the request. `lost`: why others are
        missing."""
        if self._approved is None or self._upstream is None or self._stopped or self._sent:
            return
        if "memory" in lost:
            self.out.put(self._refusal(key_memory()))
            return
        if lost:
            self.out.note(
                "turns_lost",
                0,
                f"earlier turns may be missing from the request: {', '.join(dict.fromkeys(lost))}",
            )
        self._stored = stored
        self._dispatch(self._with_turns())

    def _with_turns(self) -> str:
        """Put recorded turns into the approved request; returns the container to go on with."""
        assert self._approved is not None and self._upstream is not None
        turns = DIALECTS[self._upstream.dialect].turns
        if turns is None:
            return ""
        self._approved, container, dropped = turns.with_turns(
            self._approved, self._stored, upstream=self._upstream.name
        )
        if not self._segment:
            self.dropped = tuple(dropped)
        return container

    def refuse(self, error: PipelineError) -> None:
        """Answer with an error instead of beginning (unknown policy, a revision that cannot be
        loaded)."""
        if self.awaits_answers:
            self._awaiting = None
        self.out.records += opening.records(self.call, None, "", "")
        self.out.put(self._refusal(error))

    def chunks(self, seq: int, raw: Sequence[bytes]) -> list[Mark]:
        """Take chunks `seq`, `seq + 1`, ...; returns what is known of each."""
        marks: list[Mark] = []
        for offset, chunk in enumerate(raw):
            if self._stopped or self._is_paused or self._upstream is None:
                marks.append(WITHHELD)
                continue
            if self._decoder is None:
                self._decoder = DIALECTS[self._upstream.dialect].decoder(self._unknown)
            if self._turn is not None:
                self._turn.feed(chunk)
            try:
                events = self._decoder.feed(chunk)
                if (
                    len(events) == 1
                    and type(event := events[0]) is TextDelta
                    and self._restorer is None
                    and not self._offset
                ):
                    # nearly every chunk
                    assert self._blocks is not None
                    self._streamed += len(event.text)
                    marks.append(self._blocks.feed_text(event))
                    continue
            except RemoteProtocolError as error:
                marks.append(self._fail(error.message, seq + offset))
                continue
            marks.append(self._events(events, seq + offset))
        return marks

    def body(self, seq: int, raw: bytes) -> Mark:
        """Take a whole answer (status 200, no stream). While its verdict is `hold`, `whole_verdict`
        says what became of it."""
        if self._upstream is None or self._blocks is None:
            # refused; another owner had begun it, and asked upstream
            return WITHHELD
        if self.call.endpoint == "count_tokens":
            return self._count(raw)
        if self._turn is not None:
            self._turn.body(raw)
        try:
            events = codecs.decode_whole(self._upstream.dialect, raw, self._unknown)
        except RemoteProtocolError as error:
            return self._fail(error.message, seq)
        self._at_eof, self._blocks.first_of_whole = True, self._offset
        return (
            self.whole_verdict if (verdict := self._events(events, seq)[0]) == "hold" else verdict
        ), -1

    @property
    def whole_verdict(self) -> VerdictName:
        """The verdict on the last whole answer, which holds tool calls: the worst on one of its
        blocks; `hold` while one is not decided."""
        return self._blocks.worst() if self._blocks is not None else "withheld"

    @property
    def _rests(self) -> bool:
        """Is nothing more expected of this upstream answer?"""
        return self._stopped or self._is_paused

    def error_status(self, status: int, raw: bytes, retry_after: str, *, seq: int = -1) -> Mark:
        """Take an error answer; its meaning is kept, its payload is not forwarded."""
        if self._upstream is None or self._chain is None:
            return WITHHELD
        failed = metadata.read_failure(
            DIALECTS[self._upstream.dialect].decode_error(status, raw, retry_after or None),
            self._chain,
        )
        opening.note_account(self.out, failed, self._config, self._upstream.name)
        # in a later segment the answer was already paid for
        return self._failed(msgspec.structs.replace(failed, status=0) if self._segment else failed)

    def eof(self, seq: int = -1) -> None:
        """Upstream is done; its answer came up to the number `seq`."""
        self._at_eof = True
        if self._stopped:
            return
        if self._is_paused:
            self._pump()
            return
        try:
            events = self._decoder.finish() if self._decoder is not None else []
        except RemoteProtocolError as error:
            self._fail(error.message, -1)
            return
        self._events(events, -1)
        if not self._rests:
            self._fail("upstream ended its answer without finishing it", -1)

    def failed(self, code: str, *, seq: int = -1) -> None:
        """Upstream could not be reached, was silent too long, or sent too much."""
        self._failed(errors_wire.gateway_failure(code))

    def judgement(self, block: int, step: int, judgement: Judgement, at: int) -> None:
        """Take the answer to an ask. Late or repeated answers change nothing."""
        if self._blocks is not None:
            self._blocks.judgement(block, step, judgement, at)
            self._pump()

    def committed(self, block: int, ok: bool, at: int) -> None:
        """Take the commit of a tool call's record; not `ok` means that it was not waited for any
        longer."""
        if self._blocks is not None:
            self._blocks.committed(block, ok, at)
            self._pump()

    @property
    def spent(self) -> Usage:
        """The usage that upstream counted, whether or not the client saw it."""
        return self.usage

    @property
    def estimated(self) -> Usage | None:
        """What the call came to as far as can be known, where its upstream did not get to count its
        last answer; None where it did."""
        if not self._is_uncounted:
            return None
        reported, output = self._segment_usage, round(self._streamed / BYTES_PER_TOKEN)
        more = Usage(
            self._asked if reported.input_tokens is None else None,
            max(0, output - (reported.output_tokens or 0)) or None,
        )
        return self.spent.plus(more)

    def anew(self) -> "Session":
        """The session of the same call that has taken nothing; what broke off in the middle of a
        step is not to be used again."""
        made = type(self)(self.call, self._policies, self._config)
        made.out.checkpoint, made.out.pings = self.out.checkpoint, self.out.pings
        return made

    @property
    def held_bytes(self) -> int:
        """How large what is held is that one step may decide on (calls, a whole answer), by the
        time that policies take for it."""
        blocks, chain = self._blocks, self._chain
        return blocks.held * chain.weight if blocks is not None and chain is not None else 0

    def at(self, at: int) -> None:
        """Set the time of what is taken in next (Unix ms); only records carry it."""
        self.out.at = at

    def follow(self, released: int, digest: str) -> None:
        """Keep the digest at this number of outputs, and put keepalives where those of `digest`,
        the last owner's, were."""
        self.out.checkpoint = released
        self.out.pings = [int(number) for number in digest.split()[1:] if number.isdecimal()]

    def ping(self) -> None:
        """Add a keepalive."""
        self.out.ping()

    @property
    def checkpoint_digest(self) -> str:
        """The running hash there."""
        return self.out.checkpoint_digest

    @property
    def unasked(self) -> list[int]:
        """The blocks whose tool call waits for its turn to be asked about."""
        return self._blocks.unasked if self._blocks is not None else []

    def has_verdict(self, block: int) -> bool:
        """Is the verdict on this block on record?"""
        return block in self.out.recorded

    # --- the request ---

    def _refusal(self, error: PipelineError) -> Respond:
        self.state, self._stopped, self.status = "FAILED", True, error.http_status
        return opening.refusal(self.call.dialect, error)

    def _dispatch(self, container: str) -> None:
        assert (
            self._approved is not None and self._upstream is not None and self._blocks is not None
        )
        try:
            sent, translated = opening.dispatch(
                self.call,
                self._upstream,
                self._approved,
                container,
                changed=self._approved is not self.request or not self._approved.is_as_written,
            )
        except PipelineError as error:
            if self._segment:
                self._failed(UpstreamFailed("api_error", error.message))
            else:
                self.out.put(self._refusal(error))
            return
        if isinstance(sent, Respond):
            self._stopped = True
        self._sent = True
        if self._approved.stream and DIALECTS[self._upstream.dialect].token_counts is None:
            # others say with the first chunk what was asked
            self._asked = estimate_tokens(self._approved)
        self._restorer = None
        if translated is not None and translated.restore != Restore():
            self._restorer = Restorer(translated.restore, fits=self._blocks.fits)
        if not self._segment:
            if translated is not None and translated.dropped:
                self.dropped += tuple(n for n in translated.dropped if n not in self.dropped)
            if self.dropped:
                self.out.note("dropped", 0, ", ".join(self.dropped))
            self._turn = opening.turn_builder(self.call, self._upstream)
        upstream = self._upstream
        self._blocks.look_at(
            self._approved,
            upstream.dialect,
            upstream.target.ids,
            passes_sealed=upstream.passes_sealed,
        )
        self.out.put(sent)
        if self._turn is None:
            self._forget_history()

    def _forget_history(self) -> None:
        """Keep no history of a request that is not sent again."""
        assert self.request is not None and self._chain is not None
        self._approved, self.request = None, self.request.without_history()
        self._chain.forget_history()

    def _count(self, raw: bytes) -> Mark:
        assert self._upstream is not None
        upstream = DIALECTS[self._upstream.dialect].token_counts
        client = CLIENTS[self.call.dialect].token_counts
        assert upstream is not None and client is not None
        try:
            tokens = upstream.decode_count(raw)
        except RemoteProtocolError as error:
            return self._failed(UpstreamFailed("api_error", error.message))
        self._stopped = True
        body = client.encode_count(tokens, estimated=False)
        self.out.put(Respond(200, {"content-type": "application/json"}, body, b"", "complete"))
        return "allow", -1

    # --- events ---

    def _events(self, events: list[Event], seq: int) -> Mark:
        verdict: VerdictName = "allow"
        block = -1
        if self._restorer is not None:
            events = self._restorer.feed(events)
        for event in events:
            try:
                own_verdict, at_block = self._event(event, seq)
            except RemoteProtocolError as error:
                return self._fail(error.message, seq)
            if _RANK[own_verdict] > _RANK[verdict]:
                verdict = own_verdict
            if at_block >= 0:
                block = at_block
        return verdict, block

    def _event(self, event: Event, seq: int) -> Mark:
        blocks = self._blocks
        assert blocks is not None
        if self._stopped:
            return WITHHELD
        if type(event) is TextDelta or type(event) is ArgumentsDelta:
            self._streamed += len(event.text)
        if type(event) is TextDelta and not self._offset:
            return blocks.feed(event, seq)
        match event:
            case MessageStart():
                self._is_uncounted = True
                self._count_usage(event.usage)
                self._start_usage = self.usage
                if not self._segment:
                    self._start(event, seq)
            case MessageStop():
                self._is_uncounted = False
                self._count_usage(event.usage)
                self._finish(event, seq)
            case UpstreamFailed():
                assert self._chain is not None
                return self._failed(metadata.read_failure(event, self._chain))
            case Opaque():
                self.out.withhold(event.what, seq)
                return WITHHELD
            case Ping():
                pass
            case _:
                if self._offset and event.index >= 0:
                    event = msgspec.structs.replace(event, index=event.index + self._offset)
                mark = blocks.feed(event, seq)
                self._pump()
                return mark
        self._pump()
        return "allow", -1

    def _count_usage(self, usage: Usage) -> None:
        """What a segment says of itself overwrites; segments add up."""
        self._segment_usage = self._segment_usage.updated(usage)
        self.usage = self._used.plus(self._segment_usage) if self._segment else self._segment_usage

    # --- the end ---

    def _start(self, event: MessageStart, seq: int) -> None:
        assert self._chain is not None
        event, withheld = metadata.read_start(event, self._chain)
        self.out.note_withheld(withheld, seq)
        self.out.emit(event)

    def _finish(self, event: MessageStop, seq: int) -> None:
        assert self._blocks is not None and self._chain is not None
        if self._goes_on(event.stop_reason):
            self._is_paused = True
            self._blocks.finish(Continue())
            return
        event, withheld = metadata.read_stop(event, self._chain)
        if withheld:
            self.out.note_withheld(withheld, seq)
        self._blocks.finish(event)
        self._stopped = True

    def _goes_on(self, reason: StopReason) -> bool:
        return (
            reason in PAUSES
            and self._turn is not None
            and self._segment + 1 < self._config.limits.dispatches
            and self._turn.complete
        )

    def _continue(self) -> None:
        """Send the turn back as it is: every segment is a request of its own, under the policy."""
        assert (
            self._chain
            and self.request
            and self._turn
            and self._blocks
            and self._approved
            and self._upstream
        )
        parts = tuple(
            OtherPart(str(b.get("type")), b, self._upstream.dialect) for b in self._turn.content()
        )
        model = self._approved.model
        # the client's request, not what the hooks made of it: they would do it twice
        request = msgspec.structs.replace(
            self.request, turns=(*self.request.turns, Turn("assistant", parts))
        )
        self._segment += 1
        self._offset = self._blocks.go_on()
        self._used, self._segment_usage, self._streamed = self.usage, Usage(), 0
        self._decoder, self._at_eof, self._is_paused, self._is_drained = None, False, False, False
        try:
            self._approved = self._approve(request)
            opening.check_model(self._approved, model)
            self._with_turns()
        except PipelineError as error:
            self.out.note("blocked", 0, error.message)
            self._say(self.out.notices.ended(error.message))
            self._stopped = True
            self._blocks.finish(MessageStop(StopReason.END_TURN))
            self._pump()
            return
        self._dispatch(self._turn.container)

    def _fail(self, message: str, seq: int) -> Mark:
        # no status of upstream's: it answered, and the answer is paid for
        self._failed(UpstreamFailed("api_error", message))
        self.out.note("protocol_error", seq, message)
        return WITHHELD

    def _failed(self, event: UpstreamFailed) -> Mark:
        if not self._stopped:
            self._stopped = True
            if self._blocks is None:
                self._abort(event)
            else:
                self._blocks.fail(event)
                self._pump()
        return WITHHELD

    def _pump(self) -> None:
        if self._blocks is None:
            return
        for end in self._blocks.pump():
            if isinstance(end, MessageStop):
                self._complete(end)
            elif isinstance(end, UpstreamFailed):
                self._abort(end)
            else:
                self._is_drained = True
        if self._blocks.is_cut:
            self._stopped = True
        if self._is_drained and self._at_eof and not self._stopped:
            self._continue()

    def _complete(self, event: MessageStop) -> None:
        assert self._blocks is not None
        reason = event.stop_reason
        if reason in BY_CONTENT and self._blocks.survivors:
            # agents go by this word: some providers say that the turn is over beside a call
            reason, event = StopReason.TOOL_USE, msgspec.structs.replace(event, stop_sequence=None)
        elif reason is StopReason.TOOL_USE:
            reason = StopReason.END_TURN
        # a refusal is empty by itself
        if not self.out.emitted_block and self.out.withheld and reason is not StopReason.REFUSAL:
            self._say(self.out.notices.whole_answer())
        self.stop_reason, self.out.end, self.state = str(reason), "complete", "ENDED"
        # a verdict that cuts comes early in one run and late in another: what was counted until
        # then is chance
        usage = self._start_usage if self._blocks.is_cut else self.usage
        self.out.emit(
            msgspec.structs.replace(
                event, stop_reason=reason, usage=usage, extra=self._end_extra(event)
            )
        )

    def _end_extra(self, event: MessageStop) -> dict[str, Any]:
        """What goes with the end; upstream's own object counts the last segment alone."""
        return (
            {k: v for k, v in event.extra.items() if k not in ("usage", "total_tokens")}
            if self._segment
            else event.extra
        )

    def _say(self, text: str) -> None:
        assert self._blocks is not None and self._chain is not None
        gap, index = "\n\n" if self.out.emitted_block else "", self._blocks.slots.next_index
        text = gap + metadata.read_notice(text, self._chain, self.out.notices.least(of_call=False))
        for notice in BlockStart(index, BlockKind.TEXT), TextDelta(index, text), BlockStop(index):
            self.out.emit(notice)

    def _abort(self, event: UpstreamFailed) -> None:
        self.state, self.out.end = "FAILED", event.kind
        if self.out.visible:
            self.out.emit(event)
            return
        client = CLIENTS[self.call.dialect]
        self.status, headers, body = client.failed_response(event)
        frame = client.error_frame(event.kind, event.message, None)
        self.out.put(Respond(self.status, headers, body, frame, event.kind))
