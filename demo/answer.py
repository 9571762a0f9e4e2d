"""The demo model's answers: events, written by the dialects' own encoders as a provider would send
them, arguments in fragments."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any

from protocol import events as e
from protocol.bounds import MAX_BODY_BYTES
from protocol.bytes.sse import EventSplitter
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.errors import PipelineError
from protocol.request import ChatRequest, DialectName

_CREATED = 1_767_225_600
_FRAGMENT = 8
CLOCK = b"@clock;"
"""In a frame: the moment it is sent takes this place, as `@` nanoseconds of the monotonic clock `;`
(`sluice bench` reads it)."""
Steps = Iterator[tuple[float, bytes]]


@dataclass(frozen=True, slots=True)
class DemoCall:
    """A tool call."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RepeatedWords:
    """A number of words, each made when it is sent: `word1 `, `word2 ` and so on, or `same` again
    and again."""

    count: int
    same: str = ""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[str]:
        return (
            repeat(self.same, self.count)
            if self.same
            else (f"word{n} " for n in range(1, self.count + 1))
        )


@dataclass(slots=True)
class DemoAnswer:
    """One answer: thoughts, then text, then calls. `ending` is "", "error" or "cut"."""

    pieces: list[str] | RepeatedWords
    thoughts: list[str] = field(default_factory=list)
    calls: list[DemoCall] = field(default_factory=list)
    stop: e.StopReason = e.StopReason.END_TURN
    ending: str = ""
    wait_s: float = 0.0
    gap_s: float = 0.0
    id: str = ""
    model: str = ""
    input_tokens: int = 1

    @property
    def output_tokens(self) -> int:
        """One token a piece, and one for every four characters of arguments."""
        return (
            len(self.pieces)
            + len(self.thoughts)
            + sum(1 + len(json.dumps(c.arguments)) // 4 for c in self.calls)
        )


def error_body(dialect: DialectName, status: int, message: str) -> bytes:
    """An error answer."""
    # a status is a class's, and this is one of our errors in form only
    error: PipelineError = type("_AsAsked", (PipelineError,), {"code": "", "http_status": status})(
        message
    )
    return DIALECTS[dialect].error_body(error)


def steps(dialect: DialectName, answer: DemoAnswer, *, stream: bool, include_usage: bool) -> Steps:
    """The body in pieces with their delays, each made when it is asked for. What fails in the
    middle ends a body that is not streamed."""
    request = ChatRequest(
        dialect=dialect, model=answer.model, stream=stream, include_usage=include_usage
    )
    pace = DemoPace(answer.wait_s, answer.gap_s, answer.ending, "the demo model fails as asked")
    return paced(request, lambda: _events(answer), pace, call_id=answer.id)


@dataclass(frozen=True, slots=True)
class DemoPace:
    """When an answer comes, and how it ends: "" whole, "error" half-way with an error of the words
    `failure`, "cut" half-way without."""

    wait_s: float = 0.0
    gap_s: float = 0.0
    ending: str = ""
    failure: str = ""


def paced(
    request: ChatRequest, events: Callable[[], Iterator[e.Event]], pace: DemoPace, *, call_id: str
) -> Steps:
    """Write events for a client of the request's dialect, in pieces with their delays. `events`
    gives the same ones each time."""
    encoder = CLIENTS[request.dialect].encoder(request, call_id=call_id, created=_CREATED)
    if not request.stream:
        data = encoder.encode(list(events()))
        yield pace.wait_s, data[: len(data) // 2] if pace.ending else data
        return
    delay_s, splitter = pace.wait_s, EventSplitter(MAX_BODY_BYTES)
    for event in _ended(events, pace):
        for frame in splitter.feed(encoder.encode([event])):
            yield delay_s, frame
            delay_s = pace.gap_s


def _ended(events: Callable[[], Iterator[e.Event]], pace: DemoPace) -> Iterator[e.Event]:
    """The events, as far as they come."""
    if not pace.ending:
        yield from events()
        return
    yield from islice(events(), 1 + sum(1 for _ in events()) // 2)
    if pace.ending == "error":
        yield e.UpstreamFailed("overloaded_error", pace.failure)


def _events(answer: DemoAnswer) -> Iterator[e.Event]:
    yield e.MessageStart("", answer.model, e.Usage(answer.input_tokens, 1))
    index = 0
    if answer.thoughts:
        yield e.BlockStart(index, e.BlockKind.THINKING)
        yield from (e.TextDelta(index, piece) for piece in answer.thoughts)
        yield e.SignatureDelta(index, f"demo-signature-{answer.id}")
        yield e.BlockStop(index)
        index += 1
    yield e.BlockStart(index, e.BlockKind.TEXT)
    for piece in answer.pieces:
        yield e.TextDelta(index, piece)
    yield e.BlockStop(index)
    for number, call in enumerate(answer.calls):
        index += 1
        yield e.BlockStart(
            index, e.BlockKind.TOOL_USE, id=f"call_{answer.id[:8]}{number}", name=call.name
        )
        text = json.dumps(call.arguments) if call.arguments else ""
        yield from (
            e.ArgumentsDelta(index, text[n : n + _FRAGMENT]) for n in range(0, len(text), _FRAGMENT)
        )
        yield e.BlockStop(index)
    yield e.MessageStop(answer.stop, e.Usage(answer.input_tokens, answer.output_tokens))
