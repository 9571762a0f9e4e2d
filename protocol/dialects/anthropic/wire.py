"""The shape of Messages answers: typed, refusing unknown fields, with a slow path for what the fast
one refuses.

A field that nobody listed here may hold model output in another shape, so it is named, withheld and
recorded, never dropped in silence.
"""

from typing import Any

import msgspec
from msgspec import UNSET

from protocol.bytes.json_strict import loads_foreign
from protocol.bytes.unknown import Unknown, WireStruct, take_unknown
from protocol.events import Count

UNSIGNED = "unsigned-by-sluice"
"""The signature of thinking from another dialect: clients want one, and it goes to no provider."""


class Delta(WireStruct):
    """The increment in a content_block_delta or a message_delta."""

    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None
    container: Any = UNSET
    citation: Any = None
    content: Any = None
    encrypted_content: Any = UNSET
    estimated_tokens: Any = None


class Details(msgspec.Struct, gc=False):
    """What output tokens were."""

    thinking_tokens: Count | None = None


class FrameUsage(msgspec.Struct, gc=False):
    """The token counts that are modelled; vendors add their own."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    output_tokens_details: Details | None = None


class Message(WireStruct):
    """A message: whole, or as far as message_start has it. UNSET: the upstream sent no such field;
    None: it sent null."""

    id: str = ""
    type: str = ""
    role: str = ""
    model: str = ""
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None
    container: Any = UNSET
    context_management: Any = UNSET
    input_transformations: Any = UNSET
    diagnostics: Any = UNSET
    usage: dict[str, Any] | None = None
    error: Any = None
    request_id: Any = None


class Frame(WireStruct):
    """One event of a stream."""

    type: str
    index: int = -1
    delta: Delta | None = None
    content_block: dict[str, Any] | None = None
    message: Message | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    request_id: Any = None
    context_management: Any = UNSET
    input_transformations: Any = UNSET


DELTAS = frozenset(
    (
        "text_delta",
        "input_json_delta",
        "thinking_delta",
        "signature_delta",
        "citations_delta",
        "compaction_delta",
    )
)
"""The kinds of content deltas that are modelled."""
_EVENTS = frozenset(
    "message_start message_delta message_stop content_block_start content_block_delta"
    " content_block_stop ping error".split()
)
_frames = msgspec.json.Decoder(Frame)
_messages = msgspec.json.Decoder(Message)
_BAD = (msgspec.MsgspecError, ValueError, RecursionError)
_NOTHING: Unknown = {}


def read_frame(data: bytes) -> tuple[Frame, Unknown]:
    """Return the frame and its unknown fields. Of an event or delta that is not modelled: only the
    type. Raises ValueError."""
    try:
        return _frames.decode(data), _NOTHING
    except _BAD:
        pass
    try:
        value = loads_foreign(data)
        if not isinstance(value, dict):
            raise ValueError("not an object")
        if isinstance(value.get("type"), str) and value["type"] not in _EVENTS:
            return Frame(value["type"]), _NOTHING
        match value:
            case {
                "type": "content_block_delta",
                "delta": {"type": str(kind)},
            } if kind not in DELTAS:
                value["delta"] = {"type": kind}
        unknown_fields = {
            "field": take_unknown(value, Frame),
            "delta field": take_unknown(value.get("delta"), Delta),
            "message field": take_unknown(value.get("message"), Message),
        }
        return msgspec.convert(value, Frame), unknown_fields
    except _BAD as error:
        raise ValueError("not a frame of Messages") from error


def read_message(data: bytes) -> tuple[Message, Unknown]:
    """Return the whole message and its unknown fields. Raises ValueError."""
    try:
        return _messages.decode(data), _NOTHING
    except _BAD:
        pass
    try:
        value = loads_foreign(data)
        unknown_fields = {"message field": take_unknown(value, Message)}
        return msgspec.convert(value, Message), unknown_fields
    except _BAD as error:
        raise ValueError("not a message of Messages") from error
