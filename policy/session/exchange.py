"""What there is of a call once its request is approved: where it goes, and what its answer has come
to. Must not know: effects, the phases of a session."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from policy.session.answer.blocks import CallBlocks
from policy.session.answer.slots import Mark
from policy.session.chain import Chain
from policy.session.opening import Destination
from protocol import codecs
from protocol.dialects.table import DIALECTS
from protocol.dialects.turns import BaseTurnBuilder, StoredTurn
from protocol.events import PAUSES, Event, MessageStop, StopReason, TextDelta, Usage
from protocol.request import ChatRequest, OtherPart, Turn
from protocol.restore import Restorer
from protocol.target import Restore, Translated
from protocol.usage.estimates import BYTES_PER_TOKEN, estimate_tokens

if TYPE_CHECKING:
    from protocol.dialects.modules import Decoder


class UsageCount:
    """What an upstream counts of its answer: what a segment reports overwrites, segments add up.
    `total` is what the client is shown, `at_start` what that had come to when the last message
    began."""

    def __init__(self, asked: int | None = None) -> None:
        self.total = self.at_start = Usage()
        self.reported = Usage()
        """Of the segment alone."""
        self._before: Usage | None = None
        self._spent_before = Usage()
        self.asked = asked
        """The estimate of the request, where its size is not reported with the first chunk."""
        self._is_open = False
        """Has a message begun whose counts are still to come?"""

    def ask(self, request: ChatRequest) -> None:
        """Estimate a request."""
        self.asked = estimate_tokens(request)

    def begin(self, usage: Usage) -> None:
        """Take what the beginning of a message reports."""
        self._report(usage, is_open=True)
        self.at_start = self.total

    def end(self, usage: Usage) -> None:
        """Take what its end reports."""
        self._report(usage, is_open=False)

    def _report(self, usage: Usage, *, is_open: bool) -> None:
        self._is_open = is_open
        total = self.reported = self.reported.updated(usage)
        self.total = total if self._before is None else self._before.plus(total)

    def go_on(self, *, shows_last: bool) -> None:
        """Begin the next segment. `shows_last`: what the client sees of the input is what the last
        segment takes of it, by which agents know how full their window is."""
        self._spent_before, before = self.spent, self.total
        if shows_last:
            before = Usage(
                output_tokens=before.output_tokens, thinking_tokens=before.thinking_tokens
            )
        self._before, self.reported = before, Usage()

    @property
    def spent(self) -> Usage:
        """All that was counted."""
        return self._spent_before.plus(self.reported)

    @property
    def is_continued(self) -> bool:
        """Had earlier segments any usage?"""
        return self._before is not None and self._before != Usage()

    def show(self, usage: Usage) -> None:
        """Take what the client is shown instead."""
        self.total = usage

    def missing(self, characters: int) -> Usage | None:
        """An estimate of what upstream did not get to count of an answer of so many characters;
        None where it counted it."""
        if not self._is_open:
            return None
        output = round(characters / BYTES_PER_TOKEN) - (self.reported.output_tokens or 0)
        asked = self.asked if self.reported.input_tokens is None else None
        return Usage(asked, max(0, output) or None)


class Continuation:
    """A turn that its upstream may pause: what is sent back so that it goes on."""

    def __init__(self, builder: BaseTurnBuilder, upstream: Destination) -> None:
        self._builder, self._dialect = builder, upstream.dialect
        self.feed, self.body = builder.feed, builder.body

    def is_due(self, reason: StopReason) -> bool:
        """Is the turn paused, and can it be sent back whole?"""
        return reason in PAUSES and self._builder.complete

    def request(self, request: ChatRequest) -> ChatRequest:
        """The request with the turn as it is behind it."""
        parts = tuple(
            OtherPart(str(block.get("type")), block, self._dialect)
            for block in self._builder.content()
        )
        turn = Turn("assistant", parts)
        return msgspec.structs.replace(request, turns=(*request.turns, turn))

    @property
    def container(self) -> str:
        """The container to go on in."""
        return self._builder.container


class Exchange:
    """An approved request and the answer to it, in one or more segments. `request` is as it goes
    upstream; `offset` is what a segment's block indices are raised by."""

    def __init__(
        self,
        chain: Chain,
        upstream: Destination,
        request: ChatRequest,
        blocks: CallBlocks,
        *,
        segment: int = 0,
        offset: int = 0,
        asked: int | None = None,
    ) -> None:
        self.chain, self.upstream, self.request, self.blocks = chain, upstream, request, blocks
        self.segment, self.offset = segment, offset
        self.usage = UsageCount(asked)
        self.restorer: Restorer | None = None
        self._restore = Restore()
        self.continuation: Continuation | None = None
        self._dialect = DIALECTS[upstream.dialect]
        self.decoder: Decoder | None = None
        self.feed_text: Callable[[TextDelta], Mark] | None = None
        """Takes text to which nothing is to be done before."""

    @property
    def model(self) -> str:
        """The model as its upstream calls it."""
        return self.upstream.model or self.request.model

    def put_turns(self, stored: Sequence[StoredTurn]) -> tuple[str, tuple[str, ...]]:
        """Put recorded turns into the request; returns the container to go on with, and what was
        dropped."""
        turns = self._dialect.turns
        if turns is None:
            return "", ()
        self.request, container, dropped = turns.with_turns(
            self.request, stored, upstream=self.upstream.name
        )
        return container, tuple(dropped)

    def sent(self, translated: Translated | None) -> None:
        """Take that the request went upstream, so translated."""
        upstream = self.upstream
        if self.request.stream and self._dialect.token_counts is None:
            # others say with the first chunk what was asked
            self.usage.ask(self.request)
        self._restore = Restore() if translated is None else translated.restore
        self.restorer = self._new_restorer()
        is_direct = self.restorer is None and not self.offset
        self.feed_text = self.blocks.feed_text if is_direct else None
        self.blocks.look_at(
            self.request,
            upstream.dialect,
            upstream.target.ids,
            passes_sealed=upstream.passes_sealed,
        )

    def _new_restorer(self) -> Restorer | None:
        if self._restore == Restore():
            return None
        return Restorer(self._restore, fits=self.blocks.fits)

    def decode_again(self, chunks: Sequence[bytes], unknown: Sequence[str]) -> list[Event]:
        """The events of the segment's answer, in the client's terms, out of its chunks. Raises
        RemoteProtocolError."""
        if not self.request.stream:
            events = self.decode_whole(chunks[0], unknown)
        else:
            decoder, events = self._dialect.decoder(frozenset(unknown)), []
            for chunk in chunks:
                events += decoder.feed(chunk)
                if events and isinstance(events[-1], MessageStop):
                    # a session takes nothing behind it, either
                    break
            else:
                events += decoder.finish()
        restorer = self._new_restorer()
        return events if restorer is None else restorer.feed(events)

    def collect_turn(self, builder: BaseTurnBuilder | None) -> None:
        """Collect the turn as it comes, where upstream may pause it: then it has a builder."""
        if builder is not None:
            self.continuation = Continuation(builder, self.upstream)

    def forget_continuation(self) -> None:
        """Take that the turn is not as its upstream left it: a pause ends it."""
        self.continuation = None

    def forget_history(self) -> None:
        """Keep no history of a request that is not sent again."""
        self.request = self.request.without_history()
        self.chain.forget_history()

    def go_on(self) -> None:
        """Begin the next segment."""
        self.segment += 1
        self.offset = self.blocks.go_on()
        self.usage.go_on(shows_last=self.continuation is None)
        self.decoder = None

    def ask(self, request: ChatRequest) -> None:
        """Take the request of the next segment."""
        self.request = request

    def begin_stream(self, unknown: Sequence[str]) -> "Decoder":
        """The decoder of a segment that streams."""
        self.decoder = self._dialect.decoder(frozenset(unknown))
        return self.decoder

    def decode_count(self, raw: bytes) -> int:
        """The tokens that upstream counted. Raises RemoteProtocolError."""
        counts = self._dialect.token_counts
        assert counts is not None
        return counts.decode_count(raw)

    def decode_rest(self) -> list[Event]:
        """The events that the end of a stream completes. Raises RemoteProtocolError."""
        return self.decoder.finish() if self.decoder is not None else []

    def decode_whole(self, raw: bytes, unknown: Sequence[str]) -> list[Event]:
        """The events of a whole answer. Raises RemoteProtocolError."""
        if self.continuation is not None:
            self.continuation.body(raw)
        return codecs.decode_whole(self.upstream.dialect, raw, frozenset(unknown))
