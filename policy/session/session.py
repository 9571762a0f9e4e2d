"""The state machine of one call: takes decoded events, judgements and commits; returns effects.
Pure and replayable.

Theory. An answer is one message of one or more segments: if the provider pauses a turn and the
client's dialect cannot express that, the session asks the provider to continue
(docs/change/protocol.md 1.6). The output depends only on the order of chunks and on judgements,
commits and recorded turns, which are written once. So a second owner that replays the stream gets
the same outputs, and a running hash over them proves it. Must not know: Redis, time, how bytes
reach the client."""

from collections.abc import Sequence
from typing import Any

import msgspec

from policy.base import Judgement
from policy.session import opening
from policy.session.answer import metadata
from policy.session.answer.slots import WITHHELD, Continue, Mark
from policy.session.effects import Respond
from policy.session.exchange import Continuation, Exchange
from policy.session.phases import DEAF, RESTING
from policy.session.routes import failures
from policy.session.routes.gate import GatedOutbox
from policy.session.routes.routed import RoutedSide
from protocol.dialects.table import CLIENTS
from protocol.errors import PipelineError, RemoteProtocolError
from protocol.events import (
    BY_CONTENT,
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    RawDelta,
    SignatureDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from protocol.records import VerdictName

_OF_BLOCKS = (
    ArgumentsDelta,
    BlockStart,
    BlockStop,
    TextDelta,
    SignatureDelta,
    AttachmentDelta,
    RawDelta,
)
_RANK: dict[VerdictName, int] = {"allow": 0, "replace": 1, "hold": 2, "block": 3, "withheld": 4}


class Session(RoutedSide):
    """One call. Feed it, then `drain` what it wants done."""

    def anew(self) -> "Session":
        """Return a session of the same call that has taken nothing yet: one that broke off in the
        middle of a step must not be used again."""
        made = type(self)(self.call, self._policies, self._config)
        made.out.hash.follow_as(self.out.hash)
        return made

    def chunks(self, seq: int, raw: Sequence[bytes]) -> list[Mark]:
        """Take chunks `seq`, `seq + 1`, ...; returns what is known of each."""
        exchange = self._exchange
        if exchange is None:
            return [WITHHELD] * len(raw)
        marks: list[Mark] = []
        decoder = exchange.decoder
        if decoder is None:
            decoder = exchange.begin_stream(self._config.unknown)
        for offset, chunk in enumerate(raw):
            if self._phase != "answering":
                marks.append(WITHHELD)
                continue
            if exchange.continuation is not None:
                exchange.continuation.feed(chunk)
            try:
                events = decoder.feed(chunk)
                if (
                    len(events) == 1
                    and type(event := events[0]) is TextDelta
                    and (feed_text := exchange.feed_text) is not None
                ):
                    # nearly every chunk
                    self._streamed += len(event.text)
                    marks.append(feed_text(event))
                    continue
            except RemoteProtocolError as error:
                marks.append(self._fail(error.message, seq + offset))
                continue
            marks.append(self._events(exchange, events, seq + offset))
        return marks

    def body(self, seq: int, raw: bytes) -> Mark:
        """Take a whole answer (status 200, no stream). While its verdict is `hold`, `whole_verdict`
        says what became of it."""
        exchange = self._exchange
        if exchange is None:
            # refused; another owner had begun it, and asked upstream
            return WITHHELD
        if self._outlasts(seq):
            return WITHHELD
        if self.call.endpoint == "count_tokens":
            return self._count(exchange, raw)
        self._at_eof = True
        try:
            events = exchange.decode_whole(raw, self._config.unknown)
        except RemoteProtocolError as error:
            return self._fail(error.message, seq)
        exchange.blocks.begin_whole(exchange.offset)
        verdict, _ = self._events(exchange, events, seq)
        return self.whole_verdict if verdict == "hold" else verdict, -1

    @property
    def whole_verdict(self) -> VerdictName:
        """The verdict on the last whole answer, which holds tool calls: the worst on one of its
        blocks; `hold` while one is not decided."""
        return self._exchange.blocks.worst() if self._exchange is not None else "withheld"

    def eof(self, seq: int = -1) -> None:
        """Upstream is done; its answer came up to the number `seq`."""
        if self._outlasts(seq):
            return
        self._at_eof = True
        if self._phase == "stopped":
            return
        if self._phase in RESTING:
            self._pump()
            return
        exchange = self._exchange
        try:
            if exchange is not None:
                self._events(exchange, exchange.decode_rest(), -1)
        except RemoteProtocolError as error:
            self._fail(error.message, seq)
        if self._phase not in RESTING and self._exchange is exchange:
            self._fail("upstream ended its answer without finishing it", seq)

    def judgement(self, block: int, step: int, judgement: Judgement, at: int) -> None:
        """Take the answer to an ask. Late or repeated answers change nothing."""
        if self._exchange is not None:
            self._exchange.blocks.judgement(block, step, judgement, at)
            self._pump()
            self._send(self._exchange, self._container)

    def committed(self, block: int, fault: str, at: int) -> None:
        """Take the commit of a tool call's record; `fault` is the reason for which the call is not
        released all the same, if there is one."""
        if self._exchange is not None:
            self._exchange.blocks.committed(block, fault, at)
            self._pump()

    def segment(self, body: bytes | None, chunks: Sequence[bytes]) -> None:
        """Take the part of the call that was asked for: its request (None: it is lost) and chunks
        of an answer to it."""

    @property
    def usage(self) -> Usage:
        """The usage of the answer that the client gets."""
        return self._exchange.usage.total if self._exchange is not None else Usage()

    @property
    def held_bytes(self) -> int:
        """Size of the held content that a single step may decide on (calls, a whole answer),
        weighted by how long policies take over it."""
        exchange = self._exchange
        again = len(self.out.body or b"") if isinstance(self.out, GatedOutbox) else 0
        return again + (exchange.blocks.calls.held * exchange.chain.weight if exchange else 0)

    @property
    def unasked(self) -> list[int]:
        """The blocks whose tool call waits for its turn to be asked about."""
        return self._exchange.blocks.unasked if self._exchange is not None else []

    def _count(self, exchange: Exchange, raw: bytes) -> Mark:
        client = CLIENTS[self.call.dialect].token_counts
        assert client is not None
        try:
            tokens = exchange.decode_count(raw)
        except RemoteProtocolError as error:
            return self._failed(UpstreamFailed("api_error", error.message))
        self._take("stop")
        body = client.encode_count(tokens, estimated=False)
        self.out.put(Respond(200, {"content-type": "application/json"}, body, b"", "complete"))
        return "allow", -1

    # --- events ---

    def _events(self, exchange: Exchange, events: list[Event], seq: int) -> Mark:
        verdict: VerdictName = "allow"
        block = -1
        if exchange.restorer is not None:
            events = exchange.restorer.feed(events)
        for event in events:
            try:
                own_verdict, at_block = self._event(exchange, event, seq)
            except RemoteProtocolError as error:
                return self._fail(error.message, seq)
            if _RANK[own_verdict] > _RANK[verdict]:
                verdict = own_verdict
            if at_block >= 0:
                block = at_block
        return verdict, block

    def _event(self, exchange: Exchange, event: Event, seq: int) -> Mark:
        if self._phase in DEAF:
            return WITHHELD
        if type(event) is TextDelta or type(event) is ArgumentsDelta:
            self._streamed += len(event.text)
        if type(event) is TextDelta and not exchange.offset:
            return exchange.blocks.feed(event, seq)
        if isinstance(event, _OF_BLOCKS):
            if exchange.offset and event.index >= 0:
                event = msgspec.structs.replace(event, index=event.index + exchange.offset)
            mark = exchange.blocks.feed(event, seq)
            self._pump()
            return mark
        match event:
            case MessageStart():
                exchange.usage.begin(event.usage)
                if not exchange.segment:
                    self._start(exchange, event, seq)
            case MessageStop():
                exchange.usage.end(event.usage)
                self._finish(exchange, event, seq)
            case UpstreamFailed():
                return self._failed(metadata.read_failure(event, exchange.chain), seq)
            case Opaque():
                self.out.withhold(event.what, seq)
                return WITHHELD
        self._pump()
        return "allow", -1

    # --- the end ---

    def _start(self, exchange: Exchange, event: MessageStart, seq: int) -> None:
        event, withheld = metadata.read_start(event, exchange.chain)
        self.out.note_withheld(withheld, seq)
        self.out.emit(event)

    def _finish(self, exchange: Exchange, event: MessageStop, seq: int) -> None:
        if self._goes_on(exchange, event.stop_reason):
            self._take("pause")
            exchange.blocks.finish(Continue())
            return
        event, withheld = metadata.read_stop(event, exchange.chain)
        if withheld:
            self.out.note_withheld(withheld, seq)
        exchange.blocks.finish(event)
        self._take("stop")

    def _goes_on(self, exchange: Exchange, reason: StopReason) -> bool:
        return (
            exchange.continuation is not None
            and exchange.segment + 1 < self._config.limits.dispatches
            and exchange.continuation.is_due(reason)
        )

    def _continue(self, exchange: Exchange, continuation: Continuation | None) -> None:
        """Send the turn back as it is: every segment is a request of its own, under the policy."""
        if self.request is None:
            return
        model = exchange.request.model
        exchange.go_on()
        self._take("go_on")
        self._streamed, self._at_eof = 0, False
        try:
            # the client's request, not what the hooks made of it: they would do it twice
            request = self.request if continuation is None else continuation.request(self.request)
            approved = self._approve(exchange.chain, request)
            exchange.ask(approved)
            opening.check_model(approved, model)
            upstream = exchange.upstream
            if self._stored or self.call.dialect != upstream.dialect:
                exchange.put_turns(self._stored)
        except PipelineError as error:
            self.out.note("blocked", 0, error.message)
            self._say(exchange, self.out.notices.ended(error.message))
            self._end_turn(exchange)
            return
        self._dispatch(exchange, "" if continuation is None else continuation.container)

    def _answer(self, exchange: Exchange, text: str) -> None:
        self._take("send")
        self._start(exchange, MessageStart("", ""), -1)
        self._say(exchange, text)
        self._end_turn(exchange)

    def _end_turn(self, exchange: Exchange) -> None:
        """End the message with what has gone out, which is whole."""
        self._take("stop")
        exchange.blocks.finish(MessageStop(StopReason.END_TURN))
        self._pump()

    def _fail(self, message: str, seq: int) -> Mark:
        # no status of upstream's: it answered, and the answer is paid for
        event = UpstreamFailed("api_error", message)
        self._ended_with(failures.Failure("cut", event, 200))
        self._failed(event, seq)
        self.out.note("protocol_error", seq, message)
        return WITHHELD

    def _begin_attempt(self, seq: int) -> None:
        super()._begin_attempt(seq)
        self._streamed = 0

    def _failed(self, event: UpstreamFailed, seq: int = -1) -> Mark:
        if self._fails_over(event, seq):
            return WITHHELD
        if self._phase != "stopped":
            self._take("stop")
            if self._exchange is None:
                self._abort(event)
            else:
                self._exchange.blocks.fail(event)
                self._pump()
        return WITHHELD

    def _pump(self) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        blocks = exchange.blocks
        while (end := blocks.slots.pump()) is not None:
            if isinstance(end, MessageStop):
                self._complete(exchange, end)
            elif isinstance(end, UpstreamFailed):
                self._abort(end)
            else:
                self._take("drain")
        if blocks.phase == "cut":
            self._take("stop")
        if self._phase == "drained" and self._at_eof and exchange.continuation is not None:
            self._continue(exchange, exchange.continuation)

    def _complete(self, exchange: Exchange, event: MessageStop) -> None:
        reason, blocks = event.stop_reason, exchange.blocks
        if reason in BY_CONTENT and blocks.calls.survivors:
            # agents go by this word, and some providers say that the turn is over although it has a
            # call
            reason, event = StopReason.TOOL_USE, msgspec.structs.replace(event, stop_sequence=None)
        elif reason is StopReason.TOOL_USE:
            reason = StopReason.END_TURN
        # a refusal is empty by itself
        if not self.out.emitted_block and self.out.withheld and reason is not StopReason.REFUSAL:
            self._say(exchange, self.out.notices.whole_answer())
        self.stop_reason, self.state = str(reason), "ENDED"
        self.out.finish("complete")
        # a verdict that cuts comes early in one run and late in another: how much was counted by
        # then is chance
        usage = exchange.usage.at_start if blocks.is_cut else exchange.usage.total
        self.out.emit(
            msgspec.structs.replace(
                event, stop_reason=reason, usage=usage, extra=self._end_extra(exchange, event)
            )
        )

    def _end_extra(self, exchange: Exchange, event: MessageStop) -> dict[str, Any]:
        """What goes with the end; upstream's own object counts the last segment alone."""
        return (
            {k: v for k, v in event.extra.items() if k not in ("usage", "total_tokens")}
            if exchange.segment
            else event.extra
        )

    def _say(self, exchange: Exchange, text: str) -> None:
        gap, index = "\n\n" if self.out.emitted_block else "", exchange.blocks.slots.next_index
        least = self.out.notices.least(of_call=False)
        text = gap + metadata.read_notice(text, exchange.chain, least)
        for notice in BlockStart(index, BlockKind.TEXT), TextDelta(index, text), BlockStop(index):
            self.out.emit(notice)

    def _abort(self, event: UpstreamFailed) -> None:
        self.state = "FAILED"
        self.out.finish(event.kind)
        if self.out.visible:
            self.out.emit(event)
            return
        client = CLIENTS[self.call.dialect]
        self.status, headers, body = client.failed_response(event)
        if self._plan is not None:
            headers |= self._plan.ending(headers)
        frame = client.error_frame(event.kind, event.message, None)
        self.out.put(Respond(self.status, headers, body, frame, event.kind))
