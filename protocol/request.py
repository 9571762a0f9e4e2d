"""A chat request, decoded from any client dialect: what policies and judges see, and what
requests of other dialects are written from.

Must not know: Redis, HTTP, policies. Bounded by the gateway's body limit before it comes here.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

import msgspec

DialectName = str
"""The name of a dialect of `protocol.dialects.table`, which is checked where it comes in."""
Endpoint = str
"""What a path of a dialect serves: an answer (`Dialect.answers`) or a count of tokens."""


class _Nothing(dict[str, Any]):
    """No fields, for good: so the many parts of a history that have none can be given to policies
    without a copy."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this part has no `extra`: make another part with msgspec.structs.replace")

    __setitem__ = __ior__ = update = setdefault = _refuse


NOTHING: dict[str, Any] = _Nothing()
"""The `extra` of what has none."""


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """Text of a turn. `extra`, here and below, keeps fields that are not modelled, for the same
    dialect only."""

    text: str
    extra: dict[str, Any] = NOTHING


CallForm = Literal["function", "custom", "legacy", "typed"]
"""How a call or its result was written: as a function's, as a custom tool's, as the older
function_call, or as an item of its own type (Responses: `shell_call`, `apply_patch_call`, ...),
whose name the call has and whose action object its arguments are."""


class ToolUsePart(msgspec.Struct, frozen=True, tag="tool_use"):
    """A tool call of an earlier assistant turn. `arguments` is JSON text; of a custom tool,
    `{"input": text}`.

    The older function_call has no id: it gets one that no other call of the request has.
    """

    id: str
    name: str
    arguments: str
    extra: dict[str, Any] = NOTHING
    form: CallForm = "function"


class ToolResultPart(msgspec.Struct, frozen=True, tag="tool_result"):
    """The client's result for the tool call `tool_call_id`, flattened to text; `extra["content"]`
    has it as parts where it came so."""

    tool_call_id: str
    text: str
    is_error: bool = False
    extra: dict[str, Any] = NOTHING
    form: CallForm = "function"


class OtherPart(msgspec.Struct, frozen=True, tag="other"):
    """A part only its own dialect understands (image, document, thinking, ...): its type there, its
    JSON object and that dialect.

    `call_id`: the client's id of the tool call that it is, where the record has more of the call
    than the client.
    """

    kind: str
    body: dict[str, Any]
    dialect: DialectName
    call_id: str = ""


Part = TextPart | ToolUsePart | ToolResultPart | OtherPart


class Turn(msgspec.Struct, frozen=True):
    """One turn. System and developer messages before the first user turn are in
    `ChatRequest.system`; later ones stay here."""

    role: Literal["user", "assistant", "system"]
    parts: tuple[Part, ...]
    extra: dict[str, Any] = NOTHING
    answer: str = ""
    """The id of the call whose answer it was, where the ids of its items say so."""


def loop_start(turns: Sequence[Turn]) -> int:
    """Where the tool loop begins that the request goes on with: after the last turn in which the
    user says something new."""
    for position in range(len(turns) - 1, -1, -1):
        turn = turns[position]
        if turn.role == "user" and not any(isinstance(p, ToolResultPart) for p in turn.parts):
            return position + 1
    return 0


ToolKind = Literal["function", "custom", "client", "server"]


class Tool(msgspec.Struct, frozen=True):
    """A tool the client offers. `schema` is the client's original JSON Schema of the arguments:
    what arguments are validated against.

    `kind` function; custom: chat/completions' free-form tool, whose arguments are here always
    `{"input": text}`; client: a type of the Messages dialect that the client executes (bash,
    text_editor, memory, computer); server: one that the provider executes. For the last two,
    `extra` is the JSON object as it came.
    """

    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    kind: ToolKind = "function"
    outer: dict[str, Any] = {}
    """chat/completions: what is beside `function` or `custom` in the tool's object."""


class ToolChoice(msgspec.Struct, frozen=True):
    """`mode` auto, none, any (a call is forced) or tool (`name` is forced). `allowed`: only these
    tools may be called (empty: all)."""

    mode: Literal["auto", "none", "any", "tool"]
    name: str = ""
    allowed: tuple[str, ...] = ()


class ResponseFormat(msgspec.Struct, frozen=True):
    """The answer's form. `schema` is the client's original: what the answer is validated
    against."""

    mode: Literal["json_object", "json_schema"]
    name: str = ""
    schema: dict[str, Any] = {}
    strict: bool | None = None
    description: str = ""


class Reasoning(msgspec.Struct, frozen=True):
    """How much the model may think. `mode` off, budget (`budget_tokens`), adaptive (the model
    decides), or "" (only `effort` was set)."""

    mode: Literal["", "off", "budget", "adaptive"] = ""
    effort: str | None = None
    budget_tokens: int | None = None
    summary: str | None = None
    """How the client wants to see thinking: auto, concise or detailed."""


class ConversationState(msgspec.Struct, frozen=True):
    """A request's settings for stored answers: Responses' `previous_response_id` and `store`.
    Upstreams never see it."""

    previous: str = ""
    """The answer that the request goes on with; empty where it holds its whole conversation."""
    store: bool = True
    """May the client ask for the answer again?"""
    is_rebuilt: bool = False
    """Was the conversation before it put there from the record? `previous` is empty then."""
    keeps_seals: bool = True
    """Does the client ask for what seals an answer, and so brings it back itself?"""
    lets_run: bool = False
    """Does the client say that a call may run, about which a provider asked?"""


METADATA = "x-anthropic-billing-header"
_METADATA = re.compile(rf"{METADATA}:[^\n]*\n*")


def without_metadata(text: str) -> str:
    """Return a system text without what Claude Code says of itself there, to its vendor alone. It
    changes from call to call, and so spoils every prompt cache of what stands behind it."""
    return _METADATA.sub("", text, count=1) if text.startswith(METADATA) else text


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `extra` keeps the top-level fields that are not modelled here, for the same
    dialect only."""

    dialect: DialectName
    model: str
    system: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    stream: bool = False
    include_usage: bool = False
    """OpenAI `stream_options.include_usage`: the client wants the last chunk with usage."""
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    user: str | None = None
    response_format: ResponseFormat | None = None
    reasoning: Reasoning | None = None
    web_search: dict[str, Any] | None = None
    """OpenAI `web_search_options`."""
    legacy_functions: bool = False
    """The client speaks of `functions` and `function_call`: at most one call, answered in that
    shape."""
    extra: dict[str, Any] = {}
    state: ConversationState | None = None
    verbosity: str | None = None
    """How long the answer is to be: low, medium, high."""
    max_tool_calls: int | None = None
    """The most calls of the provider's own tools in one answer."""
    echo: dict[str, Any] = {}
    """What an answer repeats of the request, as it came, for dialects whose answers do. Policies
    get none of it, upstreams neither."""
    is_as_written: bool = True
    """False: the client's body is not what an upstream of its dialect takes, and is written
    anew."""
    system_messages: tuple[dict[str, Any], ...] = ()
    """chat/completions: the messages that `system` was read from, as they came; they may mark what
    to cache."""

    def without_history(self) -> "ChatRequest":
        """Return what an answer is decided and encoded by: the options and the tools, without what
        may be megabytes."""
        return msgspec.structs.replace(self, system=(), system_messages=(), turns=(), extra={})

    def tool(self, name: str) -> Tool | None:
        """Return the offered tool of that name."""
        return next((t for t in self.tools if t.name == name), None)
