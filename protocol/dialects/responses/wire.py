"""The shape of Responses events: typed, refusing unknown fields, with a slow way for what the fast
one refuses.

A field that nobody listed here may hold model output in another shape, so it is named, withheld and
recorded, never dropped in silence. Which item an event is of, its `output_index` says; ids of items
may change from event to event.
"""

from typing import Any

import msgspec

from protocol.bytes.json_strict import loads_foreign, loads_written
from protocol.bytes.unknown import Unknown, WireStruct, take_unknown
from protocol.events import Count

TEXT_DELTA = "response.output_text.delta"


class TextEvent(WireStruct, tag=TEXT_DELTA, tag_field="type"):
    """A piece of text: nearly every event of a stream."""

    delta: str
    output_index: int
    content_index: int
    item_id: Any = None
    sequence_number: Any = None
    logprobs: Any = None
    obfuscation: Any = None


class Frame(WireStruct):
    """Any event. `code` is of an error, or what code_interpreter runs."""

    type: str
    sequence_number: Any = None
    output_index: int = -1
    content_index: int = -1
    summary_index: int = -1
    annotation_index: Any = None
    command_index: Any = None
    item_id: Any = None
    call_id: Any = None
    name: Any = None
    item: dict[str, Any] | None = None
    part: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    annotation: Any = None
    delta: Any = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None
    code: Any = None
    diff: str | None = None
    command: Any = None
    logprobs: Any = None
    obfuscation: Any = None
    error: Any = None
    message: Any = None
    param: Any = None
    copilot_usage: Any = None


class InputDetails(msgspec.Struct, gc=False):
    """What the prompt's tokens were."""

    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class OutputDetails(msgspec.Struct, gc=False):
    """What the answer's tokens were."""

    reasoning_tokens: Count | None = None


class ResponseUsage(msgspec.Struct, gc=False):
    """Token counts; vendors add their own beside them."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    total_tokens: Count | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


_text = msgspec.json.Decoder(TextEvent)
_frame = msgspec.json.Decoder(Frame)
_object = msgspec.json.Decoder(dict[str, Any])
_UNREAD = (msgspec.MsgspecError, ValueError, RecursionError)


def read_text(data: bytes) -> TextEvent | None:
    """Return the event if it is a piece of text and nothing else."""
    try:
        return _text.decode(data)
    except _UNREAD:
        return None


def read_frame(data: bytes) -> tuple[Frame, Unknown]:
    """Return the event and what of it is not modelled. Raises ValueError."""
    try:
        return _frame.decode(data), {}
    except _UNREAD:
        value = read_object(data)
    unknown_fields = take_unknown(value, Frame)
    try:
        return msgspec.convert(value, Frame), {
            "event field": unknown_fields
        } if unknown_fields else {}
    except msgspec.MsgspecError as error:
        raise ValueError("not an event of Responses") from error


def read_object(data: bytes) -> dict[str, Any]:
    """Return a JSON object: an event, or a whole answer. Raises ValueError."""
    try:
        value = _object.decode(data)
    except _UNREAD:
        try:
            value = loads_foreign(data)
        except RecursionError as error:
            raise ValueError("nested too deep") from error
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def read_written(data: bytes) -> dict[str, Any]:
    """Return an object with all numbers as they are written, {} where that cannot be read in one
    way."""
    try:
        value = loads_written(data.decode())
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def read_usage(value: Any) -> ResponseUsage:
    """Return the counts of a usage object. Raises ValueError."""
    try:
        return msgspec.convert(value, ResponseUsage)
    except msgspec.ValidationError as error:
        raise ValueError("not the usage of Responses") from error
