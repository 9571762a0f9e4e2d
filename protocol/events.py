"""Decoded protocol steps: what a decoder makes of upstream bytes and an encoder turns into client bytes.

One vocabulary for both dialects, addressed by content-block index (never "the latest"): the Messages
dialect maps onto it one to one, chat/completions through its decoder, which numbers blocks in the order
in which they first appear. Events are msgspec Structs rather than dataclasses because building one is
on the path of every chunk.

Must not know: Redis, HTTP, policies.
"""

from enum import StrEnum
from typing import Any

import msgspec


class BlockKind(StrEnum):
    """What a content block holds."""

    TEXT = "text"
    """Text for the reader."""
    THINKING = "thinking"
    """Reasoning; may carry a signature."""
    TOOL_USE = "tool_use"
    """A tool call that the client executes."""
    OTHER = "other"
    """Modelled but carried whole (redacted thinking, server tool blocks): `BlockStart.body` has the JSON object."""
    OPAQUE = "opaque"
    """Anything upstream sent that we do not model; withheld."""


class StopReason(StrEnum):
    """Why a message ended, in the Messages dialect's words; encoders map it (protocol.md table 1.3)."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    REFUSAL = "refusal"
    PAUSE_TURN = "pause_turn"
    CONTEXT_WINDOW = "model_context_window_exceeded"
    COMPACTION = "compaction"


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts, in the Messages dialect's split; `None` means upstream did not say. Cumulative: later values overwrite."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    thinking_tokens: int | None = None

    def updated(self, later: "Usage") -> "Usage":
        """Return these counts overwritten by those that `later` has."""
        return Usage(
            *(b if b is not None else a for a, b in zip(msgspec.structs.astuple(self), msgspec.structs.astuple(later), strict=True))
        )


class MessageStart(msgspec.Struct, frozen=True, tag=True):
    """The assistant message begins. `id` and `model` are upstream's; `extra` holds modelled fields of the source dialect only."""

    id: str
    model: str
    usage: Usage = Usage()
    extra: dict[str, Any] = {}


class BlockStart(msgspec.Struct, frozen=True, tag=True):
    """A content block begins at `index` (0, 1, ... in order of first appearance). `id` and `name` are set for tool calls."""

    index: int
    kind: BlockKind
    id: str = ""
    name: str = ""
    body: dict[str, Any] | None = None


class TextDelta(msgspec.Struct, frozen=True, tag=True, gc=False):
    """More text (or more reasoning, when the block is a thinking block) for the block at `index`."""

    index: int
    text: str


class SignatureDelta(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The signature of the thinking block at `index`, complete."""

    index: int
    signature: str


class ArgumentsDelta(msgspec.Struct, frozen=True, tag=True, gc=False):
    """More of the JSON text of the arguments of the tool call at `index`, exactly as upstream wrote it."""

    index: int
    text: str


class BlockStop(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The block at `index` is complete."""

    index: int


class MessageStop(msgspec.Struct, frozen=True, tag=True):
    """The message is complete. Carries what came at its end: both dialects may correct usage until then."""

    stop_reason: StopReason
    usage: Usage = Usage()
    stop_sequence: str | None = None
    extra: dict[str, Any] = {}


class Ping(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Upstream's keepalive."""


class UpstreamFailed(msgspec.Struct, frozen=True, tag=True):
    """Upstream reported an error instead of (`status` set) or within (`status` 0) its answer.

    `kind` is a Messages error type (`overloaded_error`, ...). `message` is upstream's own sentence; the
    payload is never forwarded: it can carry a rejected tool call (Groq's `failed_generation`).
    """

    kind: str
    message: str
    status: int = 0
    retry_after: str | None = None


class Opaque(msgspec.Struct, frozen=True, tag=True):
    """Something upstream sent that we do not model (`what` names it: an event, block, delta or field). Withheld and recorded."""

    what: str


Event = MessageStart | BlockStart | TextDelta | SignatureDelta | ArgumentsDelta | BlockStop | MessageStop | Ping | UpstreamFailed | Opaque
