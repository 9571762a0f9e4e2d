"""People decide about a tool call: what is asked on the record, how a decision reads, and what the
agent is told.

A decision is bound to the key, the session, the tool, who runs it, the arguments and the revision
of the policies; an identical call may use it, once. Must not know: who asks people, and how.
"""

import hashlib
import json
from typing import Literal

import msgspec

from policy.base import Approval, Ask, Judgement, JudgeQuestion, ToolCall
from policy.protocols import figure
from policy.session.effects import CallInfo
from protocol.bounds import MAX_HELD_BYTES
from protocol.reasons import SENTENCES
from protocol.records import ApprovalRecord, to_bytes

PEOPLE = "people"
"""The judge's name in the record, where people answered."""
PAGE = "/debug/approvals/"
"""Where they decide, on the address of the gateway."""
Outcome = Literal[
    "approved", "denied", "superseded", "expired", "pending", "unavailable", "full", "used"
]


class PeoplesAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What people decided, or why they did not: the reply of a judgement. `by` names them, `edited`
    are arguments in place of the call's own."""

    outcome: Outcome
    approval_id: str = ""
    by: str = ""
    note: str = ""
    edited: str | None = None
    is_policy_changed: bool = False
    """An earlier approval of this call is void, as the policy changed since."""


_REASONS: dict[Outcome, str] = {
    "approved": "approved",
    "denied": "approval_denied",
    "superseded": "approval_superseded",
    "expired": "approval_expired",
    "pending": "approval_pending",
    "full": "approvals_full",
}
_decode = msgspec.json.Decoder(PeoplesAnswer).decode


def judgement_of(answer: PeoplesAnswer, waited_s: float = 0.0) -> Judgement:
    """Return an answer as the fact that it is. It has no error, whatever people did: no judge
    failed."""
    is_decided = answer.outcome in ("approved", "denied")
    return Judgement(
        probability=float(answer.outcome != "approved") if is_decided else None,
        explanation=answer.note,
        reply=msgspec.json.encode(answer).decode(),
        latency_ms=round(waited_s * 1000),
    )


def read_answer(judgement: Judgement) -> PeoplesAnswer:
    """Return the answer of such a fact; one that cannot be read is none."""
    try:
        return _decode(judgement.reply)
    except msgspec.MsgspecError:
        return PeoplesAnswer("unavailable")


def why_not(call: ToolCall) -> str:
    """Return why people cannot be asked about a call: it may run already, or they could not see all
    of it. Empty where they can."""
    if call.executor != "client":
        return SENTENCES["cannot_hold"]
    if len(to_bytes(call.arguments)) > MAX_HELD_BYTES:
        return f"people cannot be asked about arguments of more than {MAX_HELD_BYTES:,} bytes"
    return ""


def of_both(first: Approval | None, second: Approval | None) -> Approval | None:
    """Return how people decide where two rules ask, so that it does for both: with the approvers
    that both name, as many as either needs. None where one of them asks nobody, or nobody could."""
    if first is None or second is None:
        return None
    named = tuple(
        name
        for name in first.approvers or second.approvers
        if not second.approvers or name in second.approvers
    )
    need = max(first.need, second.need)
    if (first.approvers or second.approvers) and len(named) < need:
        return None
    return msgspec.structs.replace(first, need=need, approvers=named)


def _why(ask: Ask) -> str:
    """Why people are asked. A score is for them alone: by it a model would learn how far it can
    go."""
    choice = ask.choice
    if ask.why or choice is None or choice.score is None or choice.threshold is None:
        return ask.why
    return f"scored {figure(choice.score)}, and the limit is {figure(choice.threshold)}"


def question_of(call: ToolCall, ask: Ask, approval: Approval) -> JudgeQuestion:
    """Return what people are asked, in the form of a question to a judge."""
    why = _why(ask)
    prompt = f"{ask.rule or ask.reason}: {why}" if why else ask.rule or ask.reason
    shown = {"name": call.name, "arguments": call.arguments}
    return JudgeQuestion(PEOPLE, "", prompt, "", 0.5, float(approval.hold_s), shown)


def record_of(info: CallInfo, call: ToolCall, ask: Ask, approval: Approval) -> ApprovalRecord:
    """Return the request as it goes on record."""
    # exactly as they are written: some programs read more digits of them than others
    fractions = list[str]()
    json.loads(call.arguments, parse_float=fractions.append)
    value = "\n".join((json.dumps(call.value, sort_keys=True), *fractions))
    # without a name each call has a session of its own, and nothing could be asked again
    session = info.session if info.source else ""
    bound = (info.key_id, session, call.name, call.server, call.executor, value)
    return ApprovalRecord(
        approval_id=f"apr_{_digest(info.call_id, str(call.block)).hex()[:24]}",
        call_id=info.call_id,
        block=call.block,
        expires_s=approval.expires_s,
        use_within_s=approval.use_within_s,
        deny_for_s=approval.deny_for_s,
        binding=_digest(*bound, info.revision),
        binding_without_policy=_digest(*bound),
        key=info.key,
        key_id=info.key_id,
        session=info.session,
        policy=info.policy,
        revision=info.revision,
        tool=call.name,
        server=call.server,
        executor=call.executor,
        arguments=to_bytes(call.arguments),
        rule=ask.rule or ask.reason,
        why=_why(ask),
        need=approval.need,
        approvers="\n".join(approval.approvers),
    )


def refusal(answer: PeoplesAnswer) -> tuple[str, str]:
    """Return the reason of a call that was not approved, and what its notice says of it."""
    reason, name = _REASONS.get(answer.outcome, "approval_unavailable"), answer.approval_id
    match answer.outcome:
        case "denied":
            cause = f"{answer.by} denied it"
            message = f"{cause}: {answer.note}" if answer.note else cause
        case "pending":
            before = "an earlier approval is void, because the policy changed since. " * (
                answer.is_policy_changed
            )
            message = f"{before}nobody has decided about approval {name} yet ({PAGE}{name})"
        case "expired":
            message = f"nobody decided about approval {name} in time, and it expired"
        case "superseded":
            message = f"the policy changed while approval {name} waited, so it is void"
        case _:
            message = SENTENCES[reason]
    return reason, message


def _digest(*parts: str) -> bytes:
    return hashlib.sha256(json.dumps(parts).encode()).digest()
