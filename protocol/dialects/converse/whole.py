"""A whole Converse answer to events."""

from typing import Any

from protocol.bounds import MAX_BLOCKS
from protocol.bytes.json_strict import dumps
from protocol.dialects.converse.parts import (
    call_start,
    citation,
    read_reason,
    redacted_start,
    result_start,
    says_something,
)
from protocol.dialects.converse.usage import read_usage
from protocol.dialects.converse.wire import WholeAnswer, WholeBlock, convert, read, refuse_several
from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    SignatureDelta,
    TextDelta,
    UpstreamFailed,
)


def decode_whole(body: bytes, unknown: frozenset[str] = frozenset()) -> list[Event]:
    """Decode a whole answer. Raises RemoteProtocolError."""
    try:
        answer, names = read(body, WholeAnswer, "answer")
        message = answer.output.message
        if message.role != "assistant":
            raise RemoteProtocolError("upstream's message is not the assistant's")
        if len(message.content) > MAX_BLOCKS:
            raise RemoteProtocolError(f"upstream began more than {MAX_BLOCKS} blocks")
        events: list[Event] = [MessageStart("", "", extra={"dialect": "converse"})]
        text_at = -1
        for index, block in enumerate(message.content):
            block_events = _block(index, block, text_at)
            begins = bool(block_events) and isinstance(block_events[0], BlockStart)
            if begins or (block_events and "citationsContent" not in block):
                events += _end(text_at)
                text_at = index if BlockStart(index, BlockKind.TEXT) in block_events[:1] else -1
            events += block_events
        events += _end(text_at)
    except ValueError as error:
        raise RemoteProtocolError("upstream's answer is not one of its dialect") from error
    usage, native, withheld = read_usage(answer.usage)
    names += withheld
    names += ["answer trace"] if answer.trace is not None else []
    names += (
        ["answer additionalModelResponseFields"]
        if says_something(answer.additionalModelResponseFields)
        else []
    )
    events += map(Opaque, names)
    reason = read_reason(answer.stopReason)
    if isinstance(reason, UpstreamFailed):
        return [*events, reason]
    return [*events, MessageStop(reason, usage, extra={"usage": native} if native else {})]


def _end(text_at: int) -> list[Event]:
    return [BlockStop(text_at)] if text_at >= 0 else []


def _block(index: int, value: dict[str, Any], text_at: int) -> list[Event]:
    """The events of a block; a text's end is left out. `text_at` is the text just before it, which
    citations alone are about; or -1."""
    kinds = [name[:60] for name in value]
    block, unknown = convert(value, WholeBlock, "block")
    refuse_several(block)
    events: list[Event] = []
    if block.text is not None:
        events = (
            [BlockStart(index, BlockKind.TEXT), TextDelta(index, block.text)] if block.text else []
        )
    elif block.citationsContent is not None:
        text = "".join(piece.text for piece in block.citationsContent.content)
        cited = [
            citation(index if text else text_at, source)
            for source in block.citationsContent.citations
        ]
        if text:
            events = [BlockStart(index, BlockKind.TEXT), TextDelta(index, text), *cited]
        else:
            events = cited if text_at >= 0 else [Opaque("citation of no text") for _ in cited]
    elif block.toolUse is not None:
        first = call_start(index, block.toolUse)
        arguments = block.toolUse.input
        events = [first]
        if isinstance(first, BlockStart) and arguments is not None and arguments != {}:
            events.append(ArgumentsDelta(index, dumps(arguments).decode()))
    elif block.toolResult is not None:
        events = [result_start(index, block.toolResult, block.toolResult.content)]
    elif block.reasoningContent is not None:
        sealed, open_ = block.reasoningContent.redactedContent, block.reasoningContent.reasoningText
        if sealed:
            events = [redacted_start(index, [sealed])]
        elif open_ is not None and (open_.text or open_.signature):
            events = [BlockStart(index, BlockKind.THINKING)]
            events += [TextDelta(index, open_.text)] if open_.text else []
            events += [SignatureDelta(index, open_.signature)] if open_.signature else []
    elif not unknown:
        events = [Opaque(f"block {next(iter(kinds), '')}".rstrip())]
    ends = (
        [BlockStop(index)]
        if events and isinstance(events[0], BlockStart) and events[0].kind is not BlockKind.TEXT
        else []
    )
    return [*events, *ends, *map(Opaque, unknown)]
