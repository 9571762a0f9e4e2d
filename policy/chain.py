"""Policies of one call in series: what one allows goes to the next; all must allow.

A hook that raises or returns what it may not is a fault: the content is blocked with reason `fault`. Must not
know: codecs, sessions, Redis.
"""

import logging
import sys
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from policy.base import (
    ALLOW,
    Allow,
    AskJudge,
    Block,
    Context,
    Judgement,
    JudgeQuestion,
    OtherBlock,
    Policy,
    Replace,
    TextBlock,
    ToolCall,
    Verdict,
)
from protocol.json_strict import AmbiguousJson, loads_call
from protocol.records import VerdictName
from protocol.request import ChatRequest

log = logging.getLogger(__name__)


class Decided(msgspec.Struct, frozen=True):
    """The final verdict on a tool call. `arguments` is what is released (None: withheld); `policy` names who decided."""

    verdict: VerdictName
    reason: str
    policy: str
    message: str
    arguments: str | None


def policy_name(policy: Policy) -> str:
    """The policy's stable name."""
    return policy.name or type(policy).__name__


def _error_name() -> str:
    kind = sys.exc_info()[0]
    return kind.__name__ if kind else "returned what the hook may not"


def _fault(policy: Policy, hook: str, call_id: str) -> Block:
    # without the traceback: an error's text can hold prompts
    log.error("policy fault", extra={"policy": policy_name(policy), "hook": hook, "call_id": call_id, "error": _error_name()})
    return Block("fault")


class _Decides(NamedTuple):
    text: bool
    calls: bool
    other: bool
    past: bool
    """Perhaps by what the request said before: it may look at it at any time."""


_decides: dict[type[Policy], _Decides] = {}


def _decides_about(kind: type[Policy]) -> _Decides:
    """What a kind of policy overrides. Looked at once for each: all policies of a process stay loaded."""
    if kind not in _decides:
        _decides[kind] = _Decides(
            kind.on_text is not Policy.on_text or kind.on_text_end is not Policy.on_text_end,
            kind.on_tool_call is not Policy.on_tool_call,
            kind.on_other is not Policy.on_other,
            # a subclass of a policy that does not look may do so itself
            vars(kind).get("keeps_request", True) is not False,
        )
    return _decides[kind]


class Chain:
    """The series for one call. `reads_text` is False when no policy looks at text, so that text can pass without a detour;
    `reads_other` likewise for blocks carried whole. `searches`: text is searched for calls, if a policy decides about calls.
    `exact`: the tools that read keys, and those that read integers, exactly (see `Config`)."""

    def __init__(
        self,
        policies: Sequence[Policy],
        context: Context,
        *,
        searches: bool = True,
        exact: tuple[Collection[str], Collection[str]] = ((), ()),
    ) -> None:
        self._exact_keys, self._exact_integers = exact
        self.policies = [p.for_call(context) for p in policies]
        self.context = context
        decides = [_decides_about(type(p)) for p in self.policies]
        self._text = [p for p, about in zip(self.policies, decides, strict=True) if about.text]
        self.reads_text = bool(self._text)
        self.searches = searches and any(about.calls for about in decides)
        self.reads_other = any(about.other for about in decides)
        self._looks_back = any(about.past for about in decides)

    def loads_call(self, name: str, text: str) -> dict[str, Any]:
        """Return what a call of the tool `name` asks for. Raises AmbiguousJson."""
        return loads_call(text, exact_keys=name in self._exact_keys, exact_integers=name in self._exact_integers)

    def on_request(self, request: ChatRequest) -> tuple[ChatRequest | Block, str]:
        """Run the request hooks; returns the request or the block, and who decided."""
        for policy in self.policies:
            try:
                said: object = policy.on_request(request)
            except Exception:  # noqa: BLE001 - foreign code: whatever it raised, the request is blocked
                said = _fault(policy, "on_request", self.context.call_id)
            if isinstance(said, Block):
                return said, policy_name(policy)
            if said is not None:
                if not isinstance(said, ChatRequest):
                    return _fault(policy, "on_request", self.context.call_id), policy_name(policy)
                request = said
        return request, ""

    def forget_history(self) -> None:
        """The request is sent: let go of its history, unless a policy may still look at it."""
        if not self._looks_back:
            self.context = msgspec.structs.replace(self.context, request=self.context.request.without_history())
            for policy in self.policies:
                policy.context = self.context

    def on_text(self, text: str, block: TextBlock) -> tuple[str | Block, str]:
        """Pass a piece of text through the series; returns what may be released, or the block, and who blocked."""
        return self._pass(text, block, self._text)

    def _pass(self, text: str, block: TextBlock, policies: Sequence[Policy]) -> tuple[str | Block, str]:
        for policy in policies:
            if not text:
                return "", ""
            try:
                said: object = policy.on_text(text, block)
            except Exception:  # noqa: BLE001 - foreign code: whatever it raised, the text is blocked
                said = _fault(policy, "on_text", self.context.call_id)
            if not isinstance(said, str):
                return self._blocked(policy, "on_text", said), policy_name(policy)
            text = said
        return text, ""

    def _blocked(self, policy: Policy, hook: str, said: object) -> Block:
        return said if isinstance(said, Block) else _fault(policy, hook, self.context.call_id)

    def on_text_end(self, block: TextBlock) -> tuple[str | Block, str]:
        """Flush what the policies held back, each through those behind it."""
        released = ""
        for position, policy in enumerate(self._text):
            try:
                said: object = policy.on_text_end(block)
            except Exception:  # noqa: BLE001 - foreign code: whatever it raised, the text is blocked
                said = _fault(policy, "on_text_end", self.context.call_id)
            if not isinstance(said, str):
                return self._blocked(policy, "on_text_end", said), policy_name(policy)
            passed, who = self._pass(said, block, self._text[position + 1 :])
            if isinstance(passed, Block):
                return passed, who
            released += passed
        return released, ""

    def on_other(self, block: OtherBlock) -> tuple[Allow | Block, str]:
        """Ask every policy about a block carried whole."""
        for policy in self.policies:
            try:
                said: Verdict = policy.on_other(block)
            except Exception:  # noqa: BLE001 - foreign code: whatever it raised, the block is blocked
                said = _fault(policy, "on_other", self.context.call_id)
            if not isinstance(said, Allow):
                return (said if isinstance(said, Block) else _fault(policy, "on_other", self.context.call_id)), policy_name(policy)
        return ALLOW, ""


class Decision:
    """One tool call on its way through a chain. `question` is set while a judge must be asked; `decided` at the end.

    `step` counts the asks on this call from 0, so that each has its own judgement.
    """

    def __init__(self, chain: Chain, call: ToolCall) -> None:
        self._chain, self._call, self._at = chain, call, 0
        self._original = call.arguments
        self._replaced_by = ("", "")
        self.step = -1
        self.question: JudgeQuestion | None = None
        self.asker = ""
        self.decided: Decided | None = None

    def advance(self, judgement: Judgement | None = None) -> None:
        """Go on until something is decided or must be asked; `judgement` answers the question that is open."""
        policies = self._chain.policies
        while self.decided is None:
            if self._at == len(policies):
                changed = self._call.arguments != self._original
                self.decided = Decided(
                    "replace" if changed else "allow", self._replaced_by[1], self._replaced_by[0], "", self._call.arguments
                )
                return
            policy = policies[self._at]
            verdict = self._ask(policy, judgement)
            judgement = None
            match verdict:
                case Allow():
                    self._at += 1
                case Block():
                    self.decided = Decided("block", verdict.reason, policy_name(policy), verdict.message, None)
                case Replace():
                    self._replace(policy, verdict)
                case AskJudge():
                    self.step += 1
                    self.question, self.asker = verdict.question, policy_name(policy)
                    return

    def _ask(self, policy: Policy, judgement: Judgement | None) -> Verdict:
        self.question = None
        hook = "on_tool_call" if judgement is None else "on_judgement"
        try:
            verdict: object = policy.on_tool_call(self._call) if judgement is None else policy.on_judgement(self._call, judgement)
        except Exception:  # noqa: BLE001 - foreign code: whatever it raised, the call is blocked
            return _fault(policy, hook, self._chain.context.call_id)
        if isinstance(verdict, AskJudge) and not policy.asks:
            return _fault(policy, hook, self._chain.context.call_id)
        return verdict if isinstance(verdict, Allow | Block | Replace | AskJudge) else _fault(policy, hook, self._chain.context.call_id)

    def _replace(self, policy: Policy, verdict: Replace) -> None:
        try:
            value = self._chain.loads_call(self._call.name, verdict.arguments)
        except AmbiguousJson:
            self.decided = Decided("block", "fault", policy_name(policy), "", None)
            return
        self._call = msgspec.structs.replace(self._call, arguments=verdict.arguments, value=value)
        self._replaced_by = (policy_name(policy), verdict.reason)
        self._at += 1

    @property
    def call(self) -> ToolCall:
        """The call as it stands, replaced arguments included."""
        return self._call
