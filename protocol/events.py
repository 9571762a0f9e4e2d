"""Decoded protocol steps: what a decoder makes of upstream bytes and an encoder turns into client
bytes.

One vocabulary for all dialects, addressed by content-block index (never "the latest"): the Messages
dialect maps onto it one to one, chat/completions through its decoder, which numbers blocks in the
order in which they first appear. Events are msgspec Structs rather than dataclasses because
building one is on the path of every chunk.

Must not know: Redis, HTTP, policies.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec


class BlockKind(StrEnum):
    """What a content block holds."""

    TEXT = "text"
    """Text for the reader."""
    THINKING = "thinking"
    """Reasoning; may carry a signature."""
    TOOL_USE = "tool_use"
    """A tool call that the client executes."""
    SERVER_TOOL_USE = "server_tool_use"
    """A tool call that the provider or an MCP server executes, whatever anybody here decides."""
    OTHER = "other"
    """Modelled but carried whole (redacted thinking, server tool results): `BlockStart.body` has
    the JSON object."""
    OPAQUE = "opaque"
    """Anything upstream sent that we do not model; withheld."""


class StopReason(StrEnum):
    """Why a message ended, in the Messages dialect's words; encoders map it
    (docs/change/protocol.md 1.3)."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    REFUSAL = "refusal"
    PAUSE_TURN = "pause_turn"
    CONTEXT_WINDOW = "model_context_window_exceeded"
    COMPACTION = "compaction"


PAUSES = frozenset((StopReason.PAUSE_TURN, StopReason.COMPACTION))
"""After these another answer may go on with the turn."""
BY_CONTENT = frozenset((StopReason.END_TURN, StopReason.STOP_SEQUENCE, StopReason.TOOL_USE))
"""Which of these a client gets follows from whether the answer has calls for it, whatever word the
provider used."""

Count = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""A token count that an upstream may say: one that records, databases and JavaScript can hold."""


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts, in the Messages dialect's split; `None` means upstream did not say. Cumulative:
    later values overwrite."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    thinking_tokens: int | None = None

    def updated(self, later: "Usage") -> "Usage":
        """Return these counts overwritten by those that `later` has."""
        if later == _UNSAID or self == _UNSAID:
            # one of the two, of most messages
            return self if later == _UNSAID else later
        return Usage(
            *(
                b if b is not None else a
                for a, b in zip(
                    msgspec.structs.astuple(self), msgspec.structs.astuple(later), strict=True
                )
            )
        )

    def plus(self, more: "Usage") -> "Usage":
        """Return these counts and those of `more` together: of another answer, not of a later word
        about this one."""
        return Usage(
            *(
                a if b is None else b if a is None else a + b
                for a, b in zip(*map(msgspec.structs.astuple, (self, more)), strict=True)
            )
        )


_UNSAID = Usage()


def uncached(prompt: int | None, *cached: int | None) -> int | None:
    """Return the tokens of a prompt without those of the cache. Where these are more, the prompt
    was counted without them."""
    if prompt is None:
        return None
    fresh = prompt - sum(count or 0 for count in cached)
    return fresh if fresh >= 0 else prompt


Form = Literal["native", "legacy", "prompt"]
"""How a tool call was written: as the dialect's tool call, as a legacy function call, or as text of
the model's."""


class MessageStart(msgspec.Struct, frozen=True, tag=True):
    """The assistant message begins. `id` and `model` are upstream's.

    `extra` holds what only the source dialect has: `dialect`, `usage` (its own object, numbers and
    words only), `container`, `fields` (unmodelled ones that the setting `unknown` names), and for
    chat/completions `created`, `system_fingerprint`, ...
    """

    id: str
    model: str
    usage: Usage = Usage()
    extra: dict[str, Any] = {}


class BlockStart(msgspec.Struct, frozen=True, tag=True):
    """A content block begins at `index` (0, 1, ... in order of first appearance).

    Tool calls have `id` and `name`. A text block that is a refusal has the name `refusal`, a
    thinking block of chat/completions the name of its field, an OTHER block its type. `body` is
    what the source dialect has beside that: the whole object of an OTHER block; of a
    SERVER_TOOL_USE block all but id, name and input; else extra fields (`caller`, ...). Of
    Responses, `item` numbers the item that a block is of: neighbouring thinking blocks of one item
    are its parts; `phase` and `namespace` are its own. `executor` mcp_pending: the provider asks
    before it runs the call, so it can still be prevented.
    """

    index: int
    kind: BlockKind
    id: str = ""
    name: str = ""
    body: dict[str, Any] | None = None
    form: Form = "native"


class TextDelta(msgspec.Struct, frozen=True, tag=True, gc=False):
    """More text (or more reasoning, when the block is a thinking block) for the block at
    `index`."""

    index: int
    text: str


class SignatureDelta(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What seals the block at `index`, complete: a signature or encrypted content, which its
    provider wants back. Thinking has it in most dialects; Gemini seals calls and texts, also an
    empty text. Encoders of other dialects write nothing for it; the record keeps it.
    """

    index: int
    signature: str


class AttachmentDelta(msgspec.Struct, frozen=True, tag=True):
    """Something that goes with the text of the block at `index` and is withheld when that text is
    changed or blocked.

    `field` citation: one `protocol.citations.Citation`; logprobs of chat/completions: that
    dialect's object, for exactly the text deltas of the same chunk; reasoning_details: OpenRouter's
    list; thinking_blocks: LiteLLM's.
    """

    index: int
    field: Literal["citation", "logprobs", "reasoning_details", "thinking_blocks"]
    value: Any


SEALED = frozenset(
    ("extra_content", "thought_signature", "provider_specific_fields", "reasoning_opaque")
)
"""Fields of chat/completions that only the provider can read: what Google, LiteLLM and Copilot seal
a call or an answer with."""


class RawDelta(msgspec.Struct, frozen=True, tag=True):
    """A frame of the source dialect that we do not model and the setting `unknown` names; `index`
    is its block, -1 for none.

    Only an encoder of the same dialect writes it, with its index renumbered; `what` is the name in
    the setting. A `SEALED` field comes without the setting where it holds no prose.
    """

    what: str
    index: int
    body: dict[str, Any]
    dialect: str

    def is_for(self, dialect: str) -> bool:
        """Can a client of this dialect read it?"""
        return dialect == self.dialect

    @property
    def is_sealed(self) -> bool:
        """Is it a field of `SEALED`?"""
        return self.what.rpartition(" ")[2] in SEALED


class ArgumentsDelta(msgspec.Struct, frozen=True, tag=True, gc=False):
    """More of the JSON text of the arguments of the tool call at `index`, exactly as upstream wrote
    it."""

    index: int
    text: str


class BlockStop(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The block at `index` is complete."""

    index: int


class MessageStop(msgspec.Struct, frozen=True, tag=True):
    """The message is complete. Carries what came at its end: upstreams may correct usage until
    then.

    `extra` holds what only the source dialect has: `usage` (its own object), `container`,
    `stop_details` (words only; `explanation` apart, because it is text that policies read),
    `context_management`, `fields`, `total_tokens`.
    """

    stop_reason: StopReason
    usage: Usage = Usage()
    stop_sequence: str | None = None
    extra: dict[str, Any] = {}
    explanation: str = ""


class Ping(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A keepalive: an upstream's, which is dropped, or one for a client that counts events, which
    its encoder writes."""


class UpstreamFailed(msgspec.Struct, frozen=True, tag=True):
    """Upstream reported an error instead of (`status` set) or within (`status` 0) its answer.

    `kind` is a Messages error type (`overloaded_error`, ...). `message` is upstream's own sentence;
    the payload is never forwarded: it can carry a rejected tool call (Groq's `failed_generation`).
    `code` and `param` are names that a chat/completions upstream gave, for clients of that dialect.
    """

    kind: str
    message: str
    status: int = 0
    retry_after: str | None = None
    code: str = ""
    param: str = ""


class Opaque(msgspec.Struct, frozen=True, tag=True):
    """Something upstream sent that we do not model (`what` names it: an event, block, delta or
    field). Withheld and recorded."""

    what: str


Event = (
    MessageStart
    | BlockStart
    | TextDelta
    | SignatureDelta
    | AttachmentDelta
    | RawDelta
    | ArgumentsDelta
    | BlockStop
    | MessageStop
    | Ping
    | UpstreamFailed
    | Opaque
)
