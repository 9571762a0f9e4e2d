"""The shape of Messages answers: typed, refusing unknown fields, with a slow way for what the fast one refuses.

A field that nobody listed here may hold model output in another shape, so it is named, withheld and recorded, never
dropped in silence.
"""

from typing import Any

import msgspec

from protocol.json_strict import loads_foreign
from protocol.unknown import strip_unknown


class Delta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The increment in a content_block_delta or a message_delta."""

    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None
    container: Any = None
    citation: Any = None
    content: Any = None
    estimated_tokens: Any = None


class Details(msgspec.Struct, gc=False):
    """What output tokens were."""

    thinking_tokens: int | None = None


class FrameUsage(msgspec.Struct, gc=False):
    """Token counts; vendors add their own beside them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: Details | None = None


class Message(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A message: whole, or as far as message_start has it."""

    id: str = ""
    type: str = ""
    role: str = ""
    model: str = ""
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Any = None
    container: Any = None
    context_management: Any = None
    diagnostics: Any = None
    usage: FrameUsage | None = None
    error: Any = None
    request_id: Any = None


class Frame(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One event of a stream."""

    type: str
    index: int = -1
    delta: Delta | None = None
    content_block: dict[str, Any] | None = None
    message: Message | None = None
    usage: FrameUsage | None = None
    error: Any = None
    request_id: Any = None
    context_management: Any = None


_frames = msgspec.json.Decoder(Frame)
_messages = msgspec.json.Decoder(Message)
_BAD = (msgspec.MsgspecError, ValueError, RecursionError)
KNOWN_BLOCK_FIELDS = {
    "text": frozenset(("type", "text", "citations")),
    "thinking": frozenset(("type", "thinking", "signature")),
    "tool_use": frozenset(("type", "id", "name", "input", "caller")),
}
"""The fields of the blocks that become events of their own; other blocks are carried or withheld whole."""


def read_frame(data: bytes) -> tuple[Frame, list[str]]:
    """Return the frame and the names of its unknown fields. Raises ValueError."""
    try:
        return _frames.decode(data), []
    except _BAD:
        pass
    try:
        value = loads_foreign(data)
        if isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] not in _EVENTS:
            return Frame(value["type"]), []
        found = strip_unknown(value, Frame, "field")
        if isinstance(value, dict):
            found += strip_unknown(value.get("delta"), Delta, "delta field") + strip_unknown(value.get("message"), Message, "message field")
        return msgspec.convert(value, Frame), found
    except _BAD as error:
        raise ValueError("not a frame of Messages") from error


_EVENTS = frozenset(
    ("message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta", "content_block_stop", "ping", "error")
)


def read_message(data: bytes) -> tuple[Message, list[str]]:
    """Return the whole message and the names of its unknown fields. Raises ValueError."""
    try:
        return _messages.decode(data), []
    except _BAD:
        pass
    try:
        value = loads_foreign(data)
        found = strip_unknown(value, Message, "message field")
        return msgspec.convert(value, Message), found
    except _BAD as error:
        raise ValueError("not a message of Messages") from error
