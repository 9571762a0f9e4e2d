"""The bytes of a case: the client's request and the model's answer, in any dialect and split as a
disguise requires.

Cases are in the form of the default dialect. For others, requests are translated and answers
written by the dialects' own codecs: what an encoder writes for clients is what a provider sends.
Must not know: sessions, policies.
"""

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from protocol import codecs, events
from protocol.bounds import MAX_BODY_BYTES
from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.bytes.sse import EventSplitter
from protocol.dialects.table import CLIENTS, DEFAULT, DIALECTS
from protocol.errors import PipelineError
from protocol.request import ChatRequest, DialectName
from protocol.target import Target
from sluice.eval.dataset import Case, CaseCall, DatasetError

WHOLE, STREAM = "whole", "stream"
WIRES = (WHOLE, STREAM, "bytes", "escapes", "text")
"""whole: not streamed. stream: arguments in one piece. bytes: a piece for each character. escapes:
pieces end inside of escapes. text: the call stands in the text of the answer, as models without
tools of their own write it."""
USER = "(a case of an evaluation)"
"""The user's message where a case has none."""
_MOST_PIECES = 20_000
_MODEL = "eval"
_encode = msgspec.json.Encoder().encode


class Bytes(NamedTuple):
    """A case on the wire: one body where `is_streamed` is false, else one event per chunk."""

    request: bytes
    answer: list[bytes]
    is_streamed: bool


def call_id(number: int) -> str:
    """The id of a call in an answer."""
    return f"call_eval_{number}"


def made(case: Case, client: DialectName, upstream: DialectName, model: str, *, wire: str) -> Bytes:
    """Return the bytes of a case. What a dialect can say only in a stream is streamed. Raises
    DatasetError where its messages are none."""
    answer = _whole(case, upstream) if wire == WHOLE else None
    is_streamed = answer is None
    if answer is None:
        answer = list(_streamed(case, upstream, wire))
    return Bytes(request(case, client, model, is_streamed=is_streamed), answer, is_streamed)


# --- requests ---


def request(case: Case, dialect: DialectName, model: str, *, is_streamed: bool) -> bytes:
    """Return the body of the client's request. Tools that a case does not declare are offered
    without a schema. Raises DatasetError."""
    names = tuple(call.tool for call in case.calls)
    try:
        if not case.messages and not case.tools:
            return _plain(dialect, model, names, is_streamed)
        return _request(dialect, model, case.messages, case.tools, names, is_streamed)
    except PipelineError as error:
        raise DatasetError(
            f"{case.place}: a gateway refuses the request of the case {case.id!r}: {error.message}"
        ) from None


@functools.lru_cache(maxsize=1024)
def _plain(dialect: DialectName, model: str, names: tuple[str, ...], is_streamed: bool) -> bytes:
    return _request(dialect, model, (), (), names, is_streamed)


def _request(
    dialect: DialectName,
    model: str,
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]],
    names: Sequence[str],
    is_streamed: bool,
) -> bytes:
    # a schema would be compiled for each case, and what it says decides nothing
    offered = list(tools) or [
        {"type": "function", "function": {"name": name}} for name in dict.fromkeys(names)
    ]
    conversation = list(messages) or [{"role": "user", "content": USER}]
    body: dict[str, Any] = {"model": model, "messages": conversation, "tools": offered}
    if is_streamed:
        body["stream"] = True
    written = _encode(body)
    if dialect == DEFAULT.name:
        return written
    read = DEFAULT.decode_request(written, DEFAULT.answers)
    translated = codecs.encode_request(read, Target(dialect=dialect, ids=DIALECTS[dialect].ids))
    assert translated.body is not None
    return translated.body


# --- answers ---


def as_text(case: Case) -> str:
    """The answer with its calls as models without tools of their own write them."""
    calls = (
        f'<tool_call>\n{{"name": {_encode(call.tool).decode()}, "arguments":'
        f" {call.arguments}}}\n</tool_call>"
        for call in case.calls
    )
    return "".join((case.said[0], *calls, case.said[1]))


def _whole(case: Case, dialect: DialectName) -> list[bytes] | None:
    """The answer in one body; None where that cannot hold the arguments as they are written."""
    if len(case.calls) == 1 and case.said == ("", ""):
        template = _template(dialect, case.calls[0].tool)
        if template is not None:
            return template.filled(case.calls[0].arguments)
    try:
        return [_encoder(dialect, is_streamed=False).encode(list(_events(case, WHOLE)))]
    except PipelineError:
        return None


class _Template(NamedTuple):
    """An answer with one call, in which arguments take the place between two parts: as JSON, or as
    text that is JSON."""

    before: bytes
    behind: bytes
    is_text: bool

    def filled(self, arguments: str) -> list[bytes] | None:
        if self.is_text:
            return [self.before + _encode(arguments)[1:-1] + self.behind]
        try:
            loads_arguments(arguments)
        except AmbiguousJson:
            return None
        return [self.before + arguments.encode("utf-8", "surrogatepass") + self.behind]


_PLACE = '{"sluice_eval_place":0}'


@functools.lru_cache(maxsize=1024)
def _template(dialect: DialectName, tool: str) -> _Template | None:
    """The answer with one call of a tool: to encode each anew took a fifth of a run."""
    call = Case(id="", label="benign", calls=(CaseCall(tool, _PLACE),))
    try:
        whole = _encoder(dialect, is_streamed=False).encode(list(_events(call, WHOLE)))
    except PipelineError:
        return None
    for place, is_text in ((json.dumps(_PLACE)[1:-1].encode(), True), (_PLACE.encode(), False)):
        before, separator, behind = whole.partition(place)
        if separator and place not in behind:
            return _Template(before, behind, is_text)
    return None


def _streamed(case: Case, dialect: DialectName, wire: str) -> Iterator[bytes]:
    if wire == "text":
        case = msgspec.structs.replace(case, calls=(), said=(as_text(case), ""))
    encoder, splitter = _encoder(dialect, is_streamed=True), EventSplitter(MAX_BODY_BYTES)
    for event in _events(case, wire):
        yield from splitter.feed(encoder.encode([event]))


def _encoder(dialect: DialectName, *, is_streamed: bool) -> Any:
    return CLIENTS[dialect].encoder(
        ChatRequest(dialect=dialect, model=_MODEL, stream=is_streamed), call_id=_MODEL, created=0
    )


def _events(case: Case, wire: str) -> Iterator[events.Event]:
    usage = events.Usage(1, 1)
    yield events.MessageStart("", _MODEL, usage)
    index = 0
    if case.said[0] or not case.calls:
        yield from _text(index, case.said[0], wire)
        index += 1
    for number, call in enumerate(case.calls):
        yield events.BlockStart(
            index, events.BlockKind.TOOL_USE, id=call_id(number), name=call.tool
        )
        yield from (events.ArgumentsDelta(index, piece) for piece in pieces(call.arguments, wire))
        yield events.BlockStop(index)
        index += 1
    if case.said[1]:
        yield from _text(index, case.said[1], wire)
    yield events.MessageStop(
        events.StopReason.TOOL_USE if case.calls else events.StopReason.END_TURN, usage
    )


def _text(index: int, text: str, wire: str) -> Iterator[events.Event]:
    yield events.BlockStart(index, events.BlockKind.TEXT)
    yield from (events.TextDelta(index, piece) for piece in pieces(text, wire))
    yield events.BlockStop(index)


def pieces(text: str, wire: str) -> Sequence[str]:
    """Cut a text into deltas. None is empty, and there are never more than so many that a session
    takes them in no time."""
    if not text:
        return ()
    if wire == "escapes" and "\\" in text:
        # each backslash ends a piece, so that no piece holds an escape whole
        first, *parts = text.split("\\")
        return [
            piece
            for piece in (f"{first}\\", *(f"{part}\\" for part in parts[:-1]), parts[-1])
            if piece
        ]
    if wire in ("bytes", "escapes"):
        size = 1 + len(text) // _MOST_PIECES
        return [text[at : at + size] for at in range(0, len(text), size)]
    return (text,)
