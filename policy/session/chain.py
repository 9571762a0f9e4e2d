"""Policies of one call in series: what one allows goes to the next; all must allow.

A hook that raises or returns an invalid value is a fault: the content is blocked with reason
`fault`. Must not know: codecs, sessions, Redis.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from policy.base import (
    ALLOW,
    HOOKS,
    Allow,
    Block,
    Context,
    OtherBlock,
    Policy,
    TextBlock,
    WindowSize,
    is_built_in,
)
from policy.session import hook_checks
from policy.session.faults import fault, hook_result, policy_name
from protocol.bytes.json_strict import dumps, loads_call
from protocol.errors import PolicyFailed, TookTooLong
from protocol.events import BlockKind
from protocol.policy_changes import Unclear, reconciled
from protocol.request import ChatRequest, Tool
from protocol.requests.copies import anchored, copied, copied_json, copied_tool

log = logging.getLogger(__name__)


def _options(request: ChatRequest) -> bytes:
    """A request without its texts, as JSON: to Python, 1 and True are equal."""
    return dumps(msgspec.structs.replace(request, turns=(), system=(), system_messages=()))


def _calls_allowed(request: ChatRequest) -> tuple[object, ...]:
    return request.tools, request.tool_choice, request.parallel_tool_calls


class _Decides(NamedTuple):
    text: bool
    calls: bool
    other: bool
    past: bool
    """It may go by the earlier turns of the request, which it may read at any time."""
    requests: bool
    is_foreign: bool
    """Not built in: it gets copies, and what it returns is checked."""


_decides: dict[type[Policy], _Decides] = {}


def _decides_about(kind: type[Policy]) -> _Decides:
    """What a kind of policy overrides. Looked at once for each: all policies of a process stay
    loaded."""
    if kind not in _decides:
        _decides[kind] = _Decides(
            kind.on_text is not Policy.on_text or kind.on_text_end is not Policy.on_text_end,
            kind.on_tool_call is not Policy.on_tool_call,
            kind.on_other is not Policy.on_other,
            # a subclass of a policy that does not look may do so itself
            vars(kind).get("keeps_request", True) is not False,
            kind.on_request is not Policy.on_request,
            not is_built_in(kind),
        )
    return _decides[kind]


class Chain:
    """The series for one call. `reads_text` is False when no policy looks at text, so that text can
    pass without a detour; `reads_other` likewise for blocks carried whole, `asks` where one may ask
    judges. `searches`: text is searched for calls, if a policy decides about calls. `exact`: the
    tools that read keys, and those that read integers, exactly (see `Config`). `contexts`:
    each policy's context, where it has one.

    Raises PolicyFailed where a policy cannot be made ready for the call.
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        context: Context,
        *,
        searches: bool = True,
        exact: tuple[Collection[str], Collection[str]] = ((), ()),
        contexts: Sequence[Context] | None = None,
    ) -> None:
        self._series = policies
        self._exact_keys, self._exact_integers = exact
        self.context = context
        self.policies: list[Policy] = []
        self.deciders: list[Policy] = []
        self._decides: list[_Decides] = []
        self._text: list[Policy] = []
        self._other: list[tuple[Policy, bool]] = []
        self.text_judges: list[Policy] = []
        """Those that decide about texts, too."""
        self.window: WindowSize | None = None
        """How an answer's text is cut for them: as the first of them wants it."""
        self.asks = self._looks_back = False
        # in one loop: each comprehension would be one more function call, and this runs for every
        # call and notice
        for place, policy in enumerate(policies):
            about = _decides_about(type(policy))
            of = (
                contexts[place]
                if contexts is not None
                else self._given(policy)
                if about.is_foreign
                else context
            )
            clone = self._for_call(policy, of)
            self.policies.append(clone)
            self._decides.append(about)
            self.asks = self.asks or clone.asks
            self._looks_back = self._looks_back or about.past
            if about.text:
                self._text.append(clone)
            if about.calls:
                self.deciders.append(clone)
            if clone.judges_text:
                self.text_judges.append(clone)
                self.window = self.window or clone.window
            if about.other:
                self._other.append((clone, about.is_foreign))
        self.weight = 1
        for policy in self.deciders:
            self.weight = max(self.weight, policy.weight)
        self.reads_text = bool(self._text) or self.window is not None
        self.reads_other = bool(self._other)
        self.may_search = searches
        self.searches = searches and bool(self.deciders)
        self._tools: dict[tuple[int, str], tuple[Tool, Tool]] = {}
        """For each policy of somebody's own its copy of a tool: a schema may be a megabyte, and be
        called a hundred times."""
        self.is_deferred = False
        """Does it decide about another model's answer by now, which replaces the first?"""

    def defer(self) -> None:
        """Note that it decides about another model's answer from now on."""
        self.is_deferred = True

    def loads_call(self, name: str, text: str) -> dict[str, Any]:
        """Return what a call of the tool `name` asks for. Raises AmbiguousJson."""
        return loads_call(
            text, exact_keys=name in self._exact_keys, exact_integers=name in self._exact_integers
        )

    def _for_call(self, policy: Policy, context: Context) -> Policy:
        try:
            clone: object = policy.for_call(context)
        except TookTooLong:
            raise
        except BaseException:  # noqa: BLE001 - foreign code: whatever it raised, the call is refused
            fault(policy, "for_call", self.context.call_id)
            raise PolicyFailed(f"the policy {policy_name(policy)!r} failed") from None
        if (
            type(clone) is not type(policy)
            or clone is policy
            or clone.context is not context
            or not HOOKS.isdisjoint(vars(clone))
        ):
            fault(policy, "for_call", self.context.call_id, "returned no copy for the call")
            raise PolicyFailed(f"the policy {policy_name(policy)!r} failed")
        return clone

    def tool_for(self, policy: Policy, tool: Tool | None) -> Tool | None:
        """A tool as a policy of somebody's own gets it."""
        if tool is None:
            return None
        known = self._tools.get((id(policy), tool.name))
        if known is None or known[0] is not tool:
            known = self._tools[id(policy), tool.name] = (tool, copied_tool(tool))
        return known[1]

    def _given(self, policy: Policy) -> Context:
        """The context as a policy gets it: one of somebody's own may change what it holds."""
        context = self.context
        if not _decides_about(type(policy)).is_foreign:
            return context
        request = copied(context.request)
        approved = request if context.approved is context.request else copied(context.approved)
        return msgspec.structs.replace(context, request=request, approved=approved)

    def on_request(self, request: ChatRequest) -> tuple[ChatRequest | Block, str]:
        """Run the request hooks; returns the request or the block, and who decided. The same object
        means that nothing was changed."""
        for policy, about in zip(self.policies, self._decides, strict=True):
            if not about.requests:
                continue
            # ours change nothing
            argument = copied(request) if about.is_foreign else request
            returned = self._on_request(policy, argument, request)
            if returned is None:
                continue
            if isinstance(returned, Block):
                return returned, policy_name(policy)
            try:
                # a copy: what the policy keeps of it and changes later changes nothing here
                request = reconciled(
                    request, copied(returned, owned_ids=set(map(id, request.turns)))
                )
            except Unclear as error:
                log.error(
                    "policy fault",
                    extra={
                        "policy": policy_name(policy),
                        "hook": "on_request",
                        "call_id": self.context.call_id,
                        "error": str(error),
                    },
                )
                return Block(
                    "fault",
                    f"the policy {policy_name(policy)!r} changed the request in a way that cannot"
                    f" be sent: {error}",
                ), (policy_name(policy))
        return request, ""

    def _on_request(
        self, policy: Policy, argument: ChatRequest, request: ChatRequest
    ) -> ChatRequest | Block | None:
        """What a hook made of a request: what it returned, or the object that it was given, which
        it may have changed in place.

        None where that is the request as it was.
        """
        call_id = self.context.call_id
        returned = hook_result(policy, "on_request", call_id, argument)
        returned = argument if returned is None else returned
        if returned is request:
            return None
        if (
            type(returned) is ChatRequest
            and returned == request
            and _options(returned) == _options(request)
        ):
            return None
        if isinstance(returned, ChatRequest):
            returned = anchored(request, argument, returned)
            wrong = hook_checks.problem_of_change(request, returned)
        else:
            wrong = (
                hook_checks.problem(returned)
                if isinstance(returned, Block)
                else f"returned a {type(returned).__name__}"
            )
        if wrong or not isinstance(returned, ChatRequest | Block):
            return fault(policy, "on_request", self.context.call_id, wrong)
        return returned

    def approve(self, request: ChatRequest) -> None:
        """Tell the policies what was approved; text is searched for calls where a policy changed
        which of them may be made."""
        self.context = msgspec.structs.replace(self.context, approved=request)
        if request is not self.context.request:
            self.searches = self.searches or (
                self.may_search and _calls_allowed(request) != _calls_allowed(self.context.request)
            )
            self._tell()

    def _tell(self) -> None:
        approved = self.context.approved
        for policy, about in zip(self.policies, self._decides, strict=True):
            policy.context = (
                msgspec.structs.replace(policy.context, approved=copied(approved))
                if about.is_foreign
                else self.context
            )

    def forget_history(self) -> None:
        """The request is sent: let go of its history, unless a policy may still look at it."""
        if not self._looks_back:
            self.context = self.context.without_history()
            for policy, about in zip(self.policies, self._decides, strict=True):
                policy.context = (
                    policy.context.without_history() if about.is_foreign else self.context
                )

    def read(self, text: str) -> str | None:
        """Pass a text that is no block of the answer (a notice, an error's sentence) through the
        series; None where it is blocked.

        By copies of their own: what the policies keep of the answer must not depend on when a
        notice came. Only those that look at text, with the request that they have: an answer may
        have a hundred notices, and a request megabytes.
        """
        readers = {
            i: p
            for i, (p, about) in enumerate(zip(self.policies, self._decides, strict=True))
            if about.text
        }
        fresh = Chain(
            [self._series[i] for i in readers],
            self.context,
            contexts=[p.context for p in readers.values()],
        )
        block = TextBlock(-1, BlockKind.TEXT)
        released, _ = fresh.on_text(text, block)
        tail, _ = fresh.on_text_end(block)
        return None if isinstance(released, Block) or isinstance(tail, Block) else released + tail

    def on_text(self, text: str, block: TextBlock, behind: int = 0) -> tuple[str | Block, str]:
        """Pass a piece of text through the policies that look at text, without the first `behind`
        of them; returns what may be released, or the block and who decided it."""
        for policy in self._text[behind:] if behind else self._text:
            if not text:
                return "", ""
            try:
                returned: object = policy.on_text(text, block)
            except TookTooLong:
                raise
            except BaseException:  # noqa: BLE001 - foreign code: whatever it raised, the text is blocked
                returned = fault(policy, "on_text", self.context.call_id)
            if returned is text:
                # nearly always
                continue
            if not isinstance(returned, str):
                return self.blocked(policy, "on_text", returned), policy_name(policy)
            text = returned
        return text, ""

    def blocked(self, policy: Policy, hook: str, returned: object) -> Block:
        """Return a hook's return value if it is a valid block, else the block of a fault."""
        if not isinstance(returned, Block):
            return fault(policy, hook, self.context.call_id)
        wrong = hook_checks.problem(returned)
        return fault(policy, hook, self.context.call_id, wrong) if wrong else returned

    def on_text_end(self, block: TextBlock) -> tuple[str | Block, str]:
        """Flush what the policies held back, each through those behind it."""
        released = ""
        for position, policy in enumerate(self._text):
            call_id = self.context.call_id
            returned = hook_result(policy, "on_text_end", call_id, block)
            if not isinstance(returned, str):
                return self.blocked(policy, "on_text_end", returned), policy_name(policy)
            passed, who = self.on_text(returned, block, position + 1)
            if isinstance(passed, Block):
                return passed, who
            released += passed
        return released, ""

    def on_other(self, block: OtherBlock) -> tuple[Allow | Block, str]:
        """Ask every policy about a block carried whole."""
        for policy, is_foreign in self._other:
            argument = (
                msgspec.structs.replace(block, body=copied_json(block.body))
                if is_foreign
                else block
            )
            try:  # here, and not by `hook_result`: a call may have many such blocks
                returned: object = policy.on_other(argument)
            except TookTooLong:
                raise
            except BaseException:  # noqa: BLE001 - foreign code: whatever it raised, the block is blocked
                returned = fault(policy, "on_other", self.context.call_id)
            if not isinstance(returned, Allow):
                return self.blocked(policy, "on_other", returned), policy_name(policy)
        return ALLOW, ""
