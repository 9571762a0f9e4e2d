"""The two answers of a call that another model answers again: what is known of each, which of them
the client gets, and how the second is made to look as the first. Must not know: how an answer
waits."""

from typing import Any, Final, Literal, NamedTuple

import msgspec

from policy.session.answer import likeness
from policy.session.answer.outbox import Outbox
from policy.session.answer.slots import CallSlot
from policy.session.exchange import Exchange
from policy.session.opening import Destination
from protocol.dialects.table import DIALECTS
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    TextDelta,
    Usage,
)
from protocol.records import AttemptRecord

_PLAIN = (BlockStart, BlockStop, TextDelta, ArgumentsDelta)
"""What every dialect can say."""
_KINDS = ("first", "defer")

Stage = Literal["first", "kept", "discarded", "second", "replaced", "given_up"]
Choice = Literal["keep", "discard", "ask", "give_up"]

# The call's own model answers first. Its answer is kept, which is final, or discarded: then it is on
# its way to the record, and nothing is asked before it is there. Then the second answer comes. It
# replaces the first, or is given up, as the first is where the second request cannot be made or the
# record is too late. Whatever goes out after that is made of the call's own model's answer.
STAGES: Final[dict[tuple[Stage, Choice], Stage]] = {
    ("first", "keep"): "kept",
    ("first", "discard"): "discarded",
    ("discarded", "ask"): "second",
    ("discarded", "give_up"): "given_up",
    ("second", "keep"): "replaced",
    ("second", "give_up"): "given_up",
}


class Discarded(NamedTuple):
    """The first answer, of which a policy deferred `call`. `end` is how it ended, if it is no part
    of a turn."""

    call: CallSlot
    upstream: Destination
    usage: Usage
    end: MessageStop | None

    def start_alike(self, start: MessageStart, usage: Usage) -> MessageStart:
        """The beginning of its message, with the usage of the second answer."""
        extra = start.extra
        if "usage" in extra:
            counts = self._write_usage(usage)
            extra = extra | {"usage": likeness.in_shape(extra["usage"], counts)}
        return msgspec.structs.replace(
            start, usage=likeness.usage_alike(start.usage, usage), extra=extra
        )

    def end_extra(
        self, second: MessageStop, second_extra: dict[str, Any], usage: Usage
    ) -> dict[str, Any]:
        """What goes with the end of a message that the second answer makes, whose own is
        `second_extra`."""
        if self.end is None:
            return {}
        counts = self._write_usage(usage) if "usage" in self.end.extra else {}
        return likeness.end_extra(
            self.end, second, second_extra, counts | second_extra.get("usage", {})
        )

    def _write_usage(self, usage: Usage) -> dict[str, Any]:
        return DIALECTS[self.upstream.dialect].write_usage(usage)


class AttemptLog:
    """Which chunks were of which answer, for the record."""

    def __init__(self) -> None:
        self._sent_to = ("", "")
        self._next_seq, self._seq = 1, 0
        self._ended: list[tuple[int, int, int, Usage]] = []
        """Upstream answers that have ended: the segment, its first and last chunk, its usage."""

    def send(self, exchange: Exchange) -> None:
        """Take where the request goes."""
        self._sent_to = exchange.upstream.name, exchange.model

    def begin_behind(self, seq: int) -> None:
        """Take that what came up to `seq` was another's."""
        self._next_seq = seq + 1

    def feed(self, seq: int) -> None:
        """Take that chunks came up to `seq`."""
        self._seq = seq

    def end(self, exchange: Exchange) -> None:
        """Take that a segment has ended."""
        span = exchange.segment, self._next_seq, self._seq, exchange.usage.reported
        self._ended.append(span)
        self._next_seq = self._seq + 1

    def records(self, outbox: Outbox, attempt: int, *, is_chosen: bool, behind: int = 0) -> None:
        """Record the answer, whose last segment has ended; `behind` so many failed attempts."""
        upstream, model = self._sent_to
        for segment, first, last, usage in self._ended:
            outbox.records.append(
                AttemptRecord(
                    call_id=outbox.call.call_id,
                    segment=segment,
                    attempt=behind + attempt,
                    at=outbox.at,
                    kind="retry" if behind and not attempt else _KINDS[attempt],
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


class SecondAnswer:
    """The second answer as the client gets it. `is_foreign`: it is of another dialect than the
    first."""

    def __init__(self, *, is_foreign: bool) -> None:
        self.is_foreign = is_foreign
        self._gone: set[int] = set()
        """Indices of blocks that are left out."""

    def leave_out(self, gone: set[int]) -> None:
        """Leave out these blocks."""
        self._gone = gone

    def shown(self, event: Event) -> Event | None:
        """An event as the client gets it, None where it does not."""
        index = getattr(event, "index", -1)
        if index in self._gone:
            return None
        if not self.is_foreign:
            return event
        if not isinstance(event, _PLAIN):
            return None
        if not isinstance(event, BlockStart):
            return event
        if event.kind not in (BlockKind.TEXT, BlockKind.TOOL_USE):
            self._gone.add(index)
            return None
        return msgspec.structs.replace(event, body=None) if event.body else event
