"""The decision on one tool call: from policy to policy of a series, with the judges that they ask,
to the verdict. Must not know: codecs, sessions, Redis.
"""

from collections.abc import Sequence

import msgspec

from policy.base import (
    ALLOW,
    Allow,
    Approval,
    Ask,
    AskJudge,
    Block,
    Defer,
    Feedback,
    Judgement,
    JudgeQuestion,
    Policy,
    Replace,
    ToolCall,
    Verdict,
    is_built_in,
)
from policy.scores import ProtocolChoice
from policy.session import approvals, hook_checks, nonces
from policy.session.chain import Chain
from policy.session.effects import CallInfo, JudgeRequest
from policy.session.faults import fault, policy_name
from protocol.bounds import MAX_ASKS
from protocol.bytes.json_strict import AmbiguousJson
from protocol.errors import TookTooLong
from protocol.records import ApprovalRecord, VerdictName
from protocol.requests.copies import copied_json

_VERDICTS = Allow, Block, Replace, Defer, Ask, AskJudge
_UNANSWERED = "may be allowed by a judge, and this policy has none for it"
"""Why a call is blocked about which a rule asks, without its subject."""
_FOR_OTHERS = "another policy asks other people about the arguments that an approver gave it"


class Decided(msgspec.Struct, frozen=True):
    """The final verdict on a tool call. `arguments` is what is released (None: withheld); `policy`
    names who decided, `rule` by which rule.

    `message` is the cause as the notice says it, `detail` and `advice` what it says besides
    (`policy.session.notices`). `defer`: the model that is to answer instead, where that is still
    possible; else the call is blocked.
    """

    verdict: VerdictName
    reason: str = ""
    policy: str = ""
    message: str = ""
    arguments: str | None = None
    rule: str = ""
    detail: str = ""
    advice: str = ""
    feedback: Feedback = "message"
    defer: str = ""
    why: str = ""
    """`Block.why`."""
    mark: str = ""
    """`Ask.mark` of what nobody answered."""
    approval_id: str = ""
    """The approval that it is released by."""

    @classmethod
    def of(cls, block: Block, policy: str) -> "Decided":
        """Withhold what a policy blocks."""
        return cls(
            "block",
            block.reason,
            policy,
            block.message,
            None,
            block.rule,
            block.detail,
            why=block.why,
        )

    @classmethod
    def deny(
        cls,
        reason: str,
        *,
        policy: str = "",
        message: str = "",
        rule: str = "",
        advice: str = "",
    ) -> "Decided":
        """Withhold the call."""
        return cls("block", reason, policy, message, None, rule, "", advice)


class Decision:
    """One tool call on its way through a chain, or a text on its way through `policies` of it.
    `questions` are there while judges must be asked; `decided` at the end.

    `step` counts the asks on this call from 0, so that each has its own judgement. What one policy
    makes of the call is shown again to those before it: rules that allowed other arguments. They
    may only block then, and no judge is asked again.
    """

    def __init__(
        self, chain: Chain, call: ToolCall, policies: Sequence[Policy] | None = None
    ) -> None:
        self._chain, self._call, self._at = chain, call, 0
        self._policies = chain.deciders if policies is None else policies
        self._original = call.arguments
        self._replaced_by = self._noted = ("", "", "")
        self._asked = set[int]()
        """Places of the policies that asked a judge."""
        self._open: tuple[Policy, Ask] | None = None
        """What a rule asks and nobody has answered yet."""
        self._why = ""
        """Why a rule asked, for the record."""
        self.step = -1
        self.may_ask_next = False
        """Rules are through, and the policies that may ask a judge come next."""
        self.asked_people: tuple[Policy, Ask, Approval] | None = None
        """What people are asked about it, who asks, and how they decide."""
        self._approval_id = ""
        self.questions: dict[int, JudgeQuestion] = {}
        """Those that are open, by their steps."""
        self._answers: dict[int, Judgement] = {}
        self.asker = self.way = ""
        """Who asks, and what goes with a block (`Policy.on_block`)."""
        self.decided: Decided | None = None
        self.choices: tuple[tuple[str, ProtocolChoice], ...] = ()
        """What protocols decided on the way, each with the name of its policy."""

    def advance(self, judgement: Judgement | None = None, *, may_ask: bool = True) -> None:
        """Go on until something is decided or must be asked; `judgement` answers the question that
        is open.

        Not `may_ask`: no further than the rules.
        """
        policies = self._policies
        if self.asked_people is not None and judgement is not None:
            self._hear_people(*self.asked_people, judgement)
            return
        while self.decided is None:
            if self._at == len(policies):
                if self._open is None:
                    self._pass()
                else:
                    self._leave_to_people(*self._open)
                return
            policy = policies[self._at]
            if policy.asks and not may_ask:
                self.may_ask_next = True
                return
            verdict, is_answer = self._ask(policy, judgement), judgement is not None
            judgement = None
            match verdict:
                case Allow():
                    if verdict.reason:
                        self._noted = (policy_name(policy), verdict.reason, verdict.rule)
                    self._at += 1
                    if is_answer and policy.answers:
                        self._open = None
                case Ask():
                    self._note(policy, verdict)
                    self._at += 1
                case Block():
                    self._block(policy, verdict)
                case Replace():
                    self._replace(policy, verdict)
                case Defer():
                    model = (
                        verdict.model
                        if verdict.model in policy.defers_to and not self._chain.is_deferred
                        else ""
                    )
                    self._block(
                        policy,
                        Block(verdict.reason, verdict.message, verdict.rule, feedback="silent"),
                        model,
                    )
                case AskJudge():
                    questions = verdict.question, *verdict.others
                    self.step += len(questions)
                    if self.step >= MAX_ASKS:
                        self._block(policy, Block("too_many_asks"))
                        return
                    self.questions = dict(enumerate(questions, self.step + 1 - len(questions)))
                    self.asker = policy_name(policy)
                    self._asked.add(self._at)
                    return

    def _pass(self) -> None:
        """Let the call go out: every policy has let it pass."""
        who, reason, rule = self._replaced_by if any(self._replaced_by) else self._noted
        arguments = self._call.arguments
        outcome: VerdictName = "allow" if arguments == self._original else "replace"
        self.decided = Decided(
            outcome,
            reason,
            who,
            arguments=arguments,
            rule=rule,
            why=self._why,
            approval_id=self._approval_id,
        )

    def _leave_to_people(self, policy: Policy, ask: Ask) -> None:
        """Ask people, where the rule that asks names any, or block what nobody answered."""
        if ask.approval is None:
            self._deny_unanswered(policy, ask)
        elif problem := approvals.why_not(self._call):
            self._block(policy, Block("cannot_hold", problem, ask.rule, why=ask.why))
        else:
            self.step += 1
            self.asked_people = (policy, ask, ask.approval)
            self.questions = {self.step: approvals.question_of(self._call, ask, ask.approval)}
            self.asker = policy_name(policy)

    def _hear_people(
        self, policy: Policy, ask: Ask, approval: Approval, judgement: Judgement
    ) -> None:
        answer = approvals.read_answer(judgement)
        if answer.outcome != "approved":
            reason, message = approvals.refusal(answer)
            self._block(policy, Block(reason, message, ask.rule, why=ask.why))
            return
        self._open, self._approval_id = None, answer.approval_id
        self._noted = (policy_name(policy), "approved", ask.rule)
        if answer.edited is not None:
            self._replace(policy, Replace(answer.edited, "approved", ask.rule))
        if self.decided is None and self._is_for_others(approval):
            self._block(policy, Block("conflict", _FOR_OTHERS, ask.rule))
        if self.decided is None:
            self._pass()

    def _is_for_others(self, approval: Approval) -> bool:
        """Do rules ask about edited arguments? Whoever edited them has answered that, but not for
        people whom only those rules would ask."""
        also = self._open
        return also is not None and approvals.of_both(approval, also[1].approval) != approval

    def answer(self, step: int, judgement: Judgement) -> bool:
        """Take the answer to an open question, and go on where it is the last: which of them came
        first is chance. False: others are to come."""
        del self.questions[step]
        self._answers[step] = judgement
        if self.questions:
            return False
        first, *others = (self._answers[step] for step in sorted(self._answers))
        self._answers = {}
        self.advance(msgspec.structs.replace(first, others=tuple(others)) if others else first)
        return True

    def _ask(self, policy: Policy, judgement: Judgement | None) -> Verdict:
        self.questions = {}
        hook, call_id = (
            ("on_tool_call" if judgement is None else "on_judgement"),
            self._chain.context.call_id,
        )
        call = self._given(policy, is_asked=judgement is None)
        try:  # here, and not by `hook_result`: that costs a call with tools 0.4 %
            verdict: object = (
                policy.on_tool_call(call)
                if judgement is None
                else policy.on_judgement(call, judgement)
            )
        except TookTooLong:
            raise
        except BaseException:  # noqa: BLE001 - foreign code: whatever it raised, the call is blocked
            return fault(policy, hook, call_id)
        if verdict is ALLOW:
            return ALLOW
        if not isinstance(verdict, _VERDICTS):
            return fault(policy, hook, call_id)
        if isinstance(verdict, AskJudge) and not policy.asks:
            return fault(policy, hook, call_id, "asked a judge without `asks = True`")
        if isinstance(verdict, AskJudge) and is_built_in(type(policy)) and call.name.isascii():
            # nearly always: what ours ask is sound, but that the provider chooses the name
            return verdict
        if wrong := hook_checks.problem(verdict):
            return fault(policy, hook, call_id, wrong)
        if not isinstance(verdict, AskJudge) and verdict.choice is not None:
            self.choices = (*self.choices, (policy_name(policy), verdict.choice))
        return verdict

    def _given(self, policy: Policy, *, is_asked: bool) -> ToolCall:
        """The call as a policy gets it. A rule behind one that changes `value` must read what is
        released, so each has its own."""
        call = self._call
        is_foreign = not is_built_in(type(policy))
        if policy.asks and (is_foreign or is_asked or policy.asks_again):
            nonce = nonces.for_question(self._chain.context.nonce, call.block, self.step + 1)
            call = msgspec.structs.replace(call, nonce=nonce)
        if self._open is not None and policy.answers:
            call = msgspec.structs.replace(call, is_asked=True)
        if not is_foreign:
            return call
        return msgspec.structs.replace(
            call, value=copied_json(call.value), tool=self._chain.tool_for(policy, call.tool)
        )

    def _block(self, policy: Policy, block: Block, defer: str = "", mark: str = "") -> None:
        self.way = policy.on_block
        self.decided = msgspec.structs.replace(
            Decided.of(block, policy_name(policy)),
            feedback=block.feedback,
            defer=defer,
            why=block.why or self._why,
            mark=mark,
        )

    def _note(self, policy: Policy, ask: Ask) -> None:
        """Go on with a question of a rule: one that is open already stays the one that is asked, in
        a way that does for both."""
        first, question = self._open or (policy, ask)
        if question.approval != ask.approval:
            both = approvals.of_both(question.approval, ask.approval)
            question = msgspec.structs.replace(question, approval=both)
        self._open = first, question
        self._why = question.why

    def _deny_unanswered(self, policy: Policy, ask: Ask) -> None:
        why = f"{ask.why}. It {_UNANSWERED}" if ask.why else _UNANSWERED
        self._block(policy, Block(ask.reason, ask.message, ask.rule, why=why), mark=ask.mark)

    def _replace(self, policy: Policy, verdict: Replace) -> None:
        try:
            value = self._chain.loads_call(self._call.name, verdict.arguments)
        except AmbiguousJson:
            self._block(policy, fault(policy, "on_tool_call", self._chain.context.call_id))
            return
        self._call = msgspec.structs.replace(self._call, arguments=verdict.arguments, value=value)
        self._replaced_by = (policy_name(policy), verdict.reason, verdict.rule)
        for place, earlier in enumerate(self._policies[: self._at]):
            new_verdict = self._ask(earlier, None)
            if isinstance(new_verdict, AskJudge) and place in self._asked:
                # its rules let it pass, and its judge has answered: asking in turn would have no
                # end
                continue
            if isinstance(new_verdict, Defer):
                new_verdict = Block(
                    new_verdict.reason, new_verdict.message, new_verdict.rule, feedback="silent"
                )
            if isinstance(new_verdict, Ask):
                # about other arguments than those for which somebody may have answered
                self._note(earlier, new_verdict)
                continue
            if isinstance(new_verdict, Block):
                self._block(earlier, new_verdict)
                return
            if isinstance(new_verdict, AskJudge) or (
                isinstance(new_verdict, Replace) and new_verdict.arguments != verdict.arguments
            ):
                # it does not let these pass either, or only if a judge does, which nobody asked
                self._block(earlier, Block("conflict"))
                return
        self._at += 1

    def requests(self, info: CallInfo) -> tuple[list[JudgeRequest], ApprovalRecord | None]:
        """Return the questions that are open, and where people answer what goes on record first."""
        asked = self.asked_people
        block = self._call.block
        requests = [
            JudgeRequest(info.call_id, block, step, question, 0, asked is not None, info.key_id)
            for step, question in self.questions.items()
        ]
        if asked is None:
            return requests, None
        return requests, approvals.record_of(info, self._call, *asked[1:])

    @property
    def call(self) -> ToolCall:
        """The call as it stands, replaced arguments included."""
        return self._call
