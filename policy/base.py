"""The base class of policies: pure hooks over decoded events.

A hook returns its decision. To wait for a judge it returns a value (`AskJudge`); it never awaits. A
policy object is made once from the configuration (`__init__` takes its options and may compile
things). `for_call` gives each call its own copy, with its own lists, dicts, sets and objects, in
which hooks may keep state. Hooks own their arguments too: changes to them reach others only
through the returned value. The session replays hooks after a takeover, so they must be
deterministic in their inputs: no clock, no randomness, no IO.
"""

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self, cast

import msgspec

from policy import call_state
from policy.claims.claims import NO_CLAIMS, ProjectClaims
from policy.scores import ProtocolChoice
from protocol.conversations.earlier_turns import EarlierTurns
from protocol.events import BlockKind
from protocol.records import JudgementFacts
from protocol.request import ChatRequest, Tool
from settings.config import OnBlock


class Context(msgspec.Struct, frozen=True):
    """What a policy may know about its call. `nonce` is an unguessable mark of the call that
    appears in none of our prompts.

    `request` is what the client sent, `approved` what the policies made of it: what goes upstream,
    and what the answer is checked against. Until all policies have seen it, `approved` is the
    client's. A question to a judge uses `ToolCall.nonce`, which belongs to that question only.
    """

    call_id: str
    nonce: str
    key: str
    session: str
    request: ChatRequest
    approved: ChatRequest = cast("ChatRequest", None)
    claims: ProjectClaims = NO_CLAIMS
    """What names the call's project, where a policy of its series goes by that."""
    earlier: EarlierTurns = cast("EarlierTurns", None)
    """The turns before the call, with what its session did that the request does not have, once a
    policy of its series `remembers`."""

    def __post_init__(self) -> None:
        """Take the client's request for approved, and its turns, where no others are given."""
        if cast("ChatRequest | None", self.approved) is None:
            msgspec.structs.force_setattr(self, "approved", self.request)
        if cast("EarlierTurns | None", self.earlier) is None:
            msgspec.structs.force_setattr(self, "earlier", EarlierTurns(self.request.turns))

    def without_history(self) -> "Context":
        """Return what may be known once the request is sent, where no policy looks back."""
        return msgspec.structs.replace(
            self,
            request=self.request.without_history(),
            approved=self.approved.without_history(),
            earlier=EarlierTurns(),
        )


Release = Literal["early", "whole"]


class TextBlock(msgspec.Struct, frozen=True):
    """The block a piece of text belongs to. `kind` is TEXT or THINKING.

    `field` names what clients join it to: all texts of one field (`content`, `refusal`,
    `reasoning`, `reasoning_content`) are one text for them, whatever comes between, such as a tool
    call. So a search for a phrase keeps its state by field. Empty: the text is separate.
    """

    index: int
    kind: BlockKind
    field: str = ""


_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")


def shown(name: str) -> str:
    """Return a tool's name as notices to the client have it: only where it is a name.

    The model writes it, and nobody approved it as text: a whole tool call can stand in it.
    """
    return repr(name) if _PLAIN_NAME.fullmatch(name) else "(name withheld)"


Executor = Literal["client", "provider", "mcp", "nested", "mcp_pending"]
"""Who runs a tool call: the client; the provider, while it answers; an MCP server that the provider
asks; code that the provider runs; an MCP server, once the client says yes: nothing has run yet."""


class EarlierText(msgspec.Struct, frozen=True):
    """Text (or thinking) between two calls of an answer: its beginning, how many characters are
    left out, and its end."""

    kind: BlockKind
    begins: str
    left_out: int
    ends: str


class EarlierCall(msgspec.Struct, frozen=True):
    """An earlier tool call of the same answer. `arguments` as released where a rule replaced them;
    `blocked`: by a rule.

    A judge's verdict on it is not known here: its timing is random.
    """

    name: str
    arguments: str
    executor: Executor
    blocked: bool


class AnswerSoFar(msgspec.Struct, frozen=True):
    """The content of an answer before a tool call, in order, as upstream sent it. `size`: bytes of
    names and arguments of its calls.

    `is_whole`: all its calls are among `parts`; of texts the middle may be missing.
    """

    parts: tuple[EarlierText | EarlierCall, ...]
    size: int
    is_whole: bool


NOTHING_BEFORE = AnswerSoFar((), 0, True)


TextSource = Literal["answer", "request", "tool_results"]
"""Where a text comes from: the model, the user's newest words, a tool that the client ran."""


class TextPiece(msgspec.Struct, frozen=True):
    """A text to decide about. `before` is what comes before it in its block and was decided about
    by itself; `number` counts the texts of this source in the call."""

    text: str
    source: TextSource = "answer"
    before: str = ""
    number: int = 0


class WindowSize(msgspec.Struct, frozen=True):
    """How an answer's text is cut for its judges, in characters: windows of `chars` (0: the whole
    block), the first of `first`, each shown with `overlap` characters before it."""

    chars: int
    first: int
    overlap: int


class ToolCall(msgspec.Struct, frozen=True):
    """A complete tool call, or for a policy that `judges_text` a text, which has no name.

    `arguments` is its exact JSON text, `value` the decoded object, `tool` the client's definition
    (None: undeclared). Only where `executor` is `client` can a block prevent the call: the others
    already run. Blocking one of those ends the turn, so that neither its result nor what builds on
    it reaches the client; replacing its arguments counts as a block.
    """

    block: int
    index: int
    id: str
    name: str
    arguments: str
    value: dict[str, Any]
    tool: Tool | None
    executor: Executor = "client"
    server: str = ""
    """The name of the MCP server that runs it."""
    nonce: str = ""
    """For a policy that asks: the mark of the question that it may ask now. Neither the model, the
    client nor another question has it."""
    before: AnswerSoFar = NOTHING_BEFORE
    """For a policy that asks: the earlier content of the same answer."""
    is_deferred: bool = False
    """Is it of the answer of a model that a `Defer` put in charge? It cannot be deferred again."""
    is_asked: bool = False
    """For a policy that answers: does an earlier one ask about it, and nobody has answered yet?"""
    text: TextPiece | None = None
    """The text that is decided about, or of a call that is written as text, how it is written."""


class OtherBlock(msgspec.Struct, frozen=True):
    """A block carried whole: its type and JSON object, with strings of any model or page in it.

    A block (redacted thinking, the result of a call that the provider ran, ...), or what goes with
    a piece of text: `citation`, which holds copies of text and addresses under that one key. What
    the setting `unknown` lets through comes here too, by its name there.
    """

    index: int
    type: str
    body: dict[str, Any]


class JudgeQuestion(msgspec.Struct, frozen=True):
    """What a judge model is asked: `system` and `prompt` verbatim; the reply must be the JSON that
    `policy.judging.prompt` describes.

    `nonce` must come back in the reply. `deadline_s` counts from the ask; None is `limits.judge_s`.
    `threshold` is kept with the judgement; comparing is the policy's work. `call` carries what
    rule-based judges need without parsing the prompt: {"name", "arguments"}.
    """

    model: str
    system: str
    prompt: str
    nonce: str
    threshold: float
    deadline_s: float | None
    call: dict[str, str]
    cache: str = ""
    """Stands for all that is asked but the model and the nonce, behind what stands for the key: with
    it judges find an answer that was given before. Empty: they ask."""
    fallback: str = ""
    """The model to ask where `model` cannot be asked."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's answer as stored, set once. `error` names why there is none: deadline, unavailable,
    invalid, fault."""

    probability: float | None = None
    explanation: str = ""
    model: str = ""
    prompt: str = ""
    reply: str = ""
    latency_ms: int = 0
    attempts: int = 0
    error: str = ""
    facts: JudgementFacts = JudgementFacts()
    """For the record."""
    others: "tuple[Judgement, ...]" = ()
    """The answers to `AskJudge.others`, in their order."""


class Allow(msgspec.Struct, frozen=True):
    """Release it unchanged. `choice`, here and below: what a protocol decided and by which
    scores, for the record. So is `reason`, where there is something to be known about what passes,
    and `rule`, that which has it."""

    choice: ProtocolChoice | None = None
    reason: str = ""
    rule: str = ""


Feedback = Literal["silent", "reason", "message"]
"""What a block tells the model at most: that the call was not executed; the cause as a general
sentence; all that the block says."""


class Block(msgspec.Struct, frozen=True):
    """Withhold it. `reason` is a stable word for the record; `message` what the client may read of
    the cause, inside the standard notice (default: a sentence for the reason). `rule` is the rule
    of the policy that decided, for the record and the notice; `detail`, such as a threshold, is
    added to the cause only where `notices` is `full`. `feedback` may reveal less than the setting,
    never more. `why` says of the call what is objected to and what would let it pass, as a sentence
    without its subject (`would delete ...`): for the record, and for the notice as `detail` is.
    """

    reason: str
    message: str = ""
    rule: str = ""
    detail: str = ""
    feedback: Feedback = "message"
    choice: ProtocolChoice | None = None
    why: str = ""


class Replace(msgspec.Struct, frozen=True):
    """Release `arguments` (JSON text of an object) instead. The session still validates them
    against the tool's schema.

    `rule` is the rule of the policy that decided.
    """

    arguments: str
    reason: str = ""
    rule: str = ""
    choice: ProtocolChoice | None = None


class Defer(msgspec.Struct, frozen=True):
    """Let another model make the rest of the turn, this call included: `model` is its name in the
    configuration's `models`.

    `reason` and `rule` are for the record; the client sees nothing of it. Where deferring is not
    possible the call is blocked.
    """

    model: str
    reason: str
    message: str = ""
    rule: str = ""
    choice: ProtocolChoice | None = None


class Approval(msgspec.Struct, frozen=True):
    """How people decide about a call. Times are in seconds.

    `need`: how many must approve. `approvers`: names of keys and people who may; none: whoever has
    the role. `hold_s`: how long the client's answer waits. The request stands for `expires_s`, an
    approval can be used within `use_within_s`, and an identical call is denied again for
    `deny_for_s` without a new question.
    """

    need: int = 1
    approvers: tuple[str, ...] = ()
    hold_s: int = 50
    expires_s: int = 86_400
    use_within_s: int = 900
    deny_for_s: int = 900


class Ask(msgspec.Struct, frozen=True):
    """Let a later policy of the series answer for the call that can (`Policy.answers`), such as a
    judge. The rules behind still decide. Where nobody answers, people do if there is an `approval`;
    else the call is blocked for this reason.

    Fields as of `Block`.
    """

    reason: str
    message: str = ""
    rule: str = ""
    why: str = ""
    choice: ProtocolChoice | None = None
    mark: str = ""
    """Stands for the call and its project. With it an admin may allow that call from then on
    (`ProjectClaims.allowed`); empty: nobody can."""
    approval: Approval | None = None


class AskJudge(msgspec.Struct, frozen=True):
    """Ask, and decide in `on_judgement`: once all have answered, where `others` are asked too."""

    question: JudgeQuestion
    others: tuple[JudgeQuestion, ...] = ()


Verdict = Allow | Block | Replace | Defer | Ask | AskJudge
ALLOW = Allow()
SEALED_FIELDS = frozenset(("encrypted_content", "encrypted_index", "encrypted_stdout", "signature"))
"""Fields of blocks carried whole that only the provider can read."""
SEALED_REASONING = SEALED_FIELDS | {"data", "redactedContent"}
"""Likewise of encrypted reasoning, whose `data` is no file."""


_DECIDING = ("on_request", "on_text", "on_text_end", "on_tool_call", "on_other")
"""Hooks without any of which nothing is decided: the others prepare, or go on with what these
began."""
HOOKS = frozenset(
    ("for_call", "on_request", "on_text", "on_text_end", "on_tool_call", "on_judgement", "on_other")
)
"""What a policy overrides as methods of its class."""


def is_built_in(kind: type) -> bool:
    """Is this one of ours, which change nothing of what they are given, and keep what a call
    changes apart themselves?"""
    return kind.__module__.startswith("policy.")


class Policy:
    """Base of every policy; allows everything. Override what you decide about."""

    name: ClassVar[str] = ""
    """Stable name for records; the class name where empty."""
    asks: bool = False
    """True where `on_tool_call` may return `AskJudge`: such policies run after those that do not,
    whatever their place in the series."""
    asks_again: bool = False
    """True where `on_judgement` may do so too: of ours the others get no mark for a further
    question."""
    answers: ClassVar[bool] = False
    """True where its yes to a call, after a judgement that it asked for, answers an earlier
    policy's `Ask`. It looks at `ToolCall.is_asked`."""
    keeps_request: ClassVar[bool] = True
    """False where nothing but options and tools of `context.request` is looked at once the request
    is sent: where all policies of a series say so, its history, which may be megabytes, is
    forgotten then. Not inherited: each class says it of itself."""

    reads_project: bool = False
    """Does it go by the project that the call's key, headers or request name?"""
    defers_to: tuple[str, ...] = ()
    """The models that a `Defer` of this policy may name. Where there are any, the series decides by
    turns."""
    release: Release = "early"
    """What of a turn may go out before it is decided: `early`, the text before its first call;
    `whole`, nothing."""
    remembers: bool = False
    """Does it go by the calls before a call (`Context.earlier`)?"""
    on_block: Literal["", OnBlock] = ""
    """What follows a tool call that is blocked: `continue` gives the model the reason and asks it
    again, where no policy of the series says `stop`. Or what goes with a window of text that is."""
    after_block: ClassVar[tuple[OnBlock, ...]] = ("stop", "continue")
    """What `on_block` may be."""
    judges_text: tuple[TextSource, ...] = ()
    """The texts that `on_tool_call` is given besides calls (`ToolCall.text`)."""
    window: WindowSize | None = None
    """How the text of answers is cut for it, if that is among them."""
    weight: int = 1
    """How many times longer than rules and patterns its hooks take for a byte of a tool call's
    arguments: so many times sooner calls are decided beside the worker's loop, where they cannot
    delay others."""

    is_noop: bool = False
    """True where it is meant to let everything pass. A series that can block nothing is an error
    unless one of its policies says so."""

    needs_key: bool = False
    """Does it make placeholders, for which it must be given `key`?"""
    key: bytes = b""
    findings: Sequence[str] = ()
    """What it has changed since these were last taken, in words for the record, without the
    text."""
    warnings: Sequence[str] = ()
    """What `sluice check` warns of."""

    context: Context

    def why_idle(self) -> str:
        """Return why it can neither refuse nor change anything, whatever a model says, and what to
        do about that; empty where it can."""
        if any(getattr(type(self), hook) is not getattr(Policy, hook) for hook in _DECIDING):
            return ""
        return f"its class has none of the hooks that decide: write one of {', '.join(_DECIDING)}"

    @property
    def passes_tool_calls(self) -> bool:
        """Does it let every tool call pass, as it has no hook for them?"""
        return type(self).on_tool_call is Policy.on_tool_call

    def for_call(self, context: Context) -> Self:
        """Return this policy's copy for one call: it shares nothing that can change. Override to
        look at the call; call super."""
        if is_built_in(kind := type(self)):
            clone = kind.__new__(kind)
            clone.__dict__.update(self.__dict__)
        else:
            clone = call_state.copy_for_call(self, last=Policy)
        clone.context = context
        return clone

    def on_request(self, request: ChatRequest) -> ChatRequest | Block | None:
        """Decide about a request before it is sent: None as it is, another request, or Block (the
        client gets 403)."""
        return None

    def on_text(self, text: str, block: TextBlock) -> str | Block:
        """Return what may be released now. Hold text back by returning less and the rest later;
        every piece of text passes here once."""
        return text

    def on_text_end(self, block: TextBlock) -> str | Block:
        """Return what was held back: the block is complete."""
        return ""

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Decide about a complete tool call."""
        return ALLOW

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        """Decide once the judge has answered. Everything unexpected must block."""
        return Block("judge_unavailable")

    def on_other(self, block: OtherBlock) -> Verdict:
        """Decide about what is carried whole. Replace, Defer and AskJudge are faults here."""
        return ALLOW
