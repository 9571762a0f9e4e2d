"""A complete tool call: parsed strictly, decided by the chain, recorded, and what the client gets
for it."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from policy.base import AnswerSoFar, EarlierCall, Executor, Judgement, TextPiece, ToolCall
from policy.schemas.schemas import ToolSchemas, TooMuchWork
from policy.scores import AuditRule, ProtocolChoice
from policy.session.answer.slots import CallSlot
from policy.session.chain import Chain
from policy.session.decision import Decided, Decision
from policy.session.effects import CallInfo
from protocol import sampling
from protocol.bytes.json_strict import AmbiguousJson, dumps, is_cut, normal_arguments
from protocol.events import ArgumentsDelta, BlockKind, BlockStart, BlockStop, Event, TextDelta
from protocol.records import (
    ASKED,
    WHY,
    DecisionRecord,
    EventRecord,
    JudgementRecord,
    Record,
    ScoreRecord,
    ToolCallRecord,
    to_bytes,
)
from protocol.request import ChatRequest, OtherPart, Tool

_REPLACED = "a policy replaced its arguments with ones that do not fit the tool's schema"
_UNCHANGEABLE = "a policy wants to replace its arguments, which is not possible for this call"
UNANSWERABLE = Decided.deny(
    "cannot_answer",
    message="the provider asks for approval of this call, and clients of this API cannot give it",
)
"""The block of a call that nobody could let run."""
_NOT_ITS_FAULT = "This is a fault in the setup, not in the call: tell the user"


def start_decision(
    slot: CallSlot, chain: Chain, tool: Tool | None, max_bytes: int, before: AnswerSoFar
) -> None:
    """Begin the decision on a complete call: by rules, not yet by judges.

    Arguments that two parsers could read differently are blocked under every policy.
    """
    if slot.size > max_bytes:
        slot.decide(Decided.deny("too_large"))
        return
    text = normal_arguments(slot.join())
    try:
        value = chain.loads_call(slot.name, text)
    except AmbiguousJson as error:
        if is_cut(text):
            why = "its arguments end in the middle: the answer was cut, as a token limit does"
            slot.decide(Decided.deny("unfinished", message=why))
            return
        why = f"its arguments can be read in more than one way: {error}"
        slot.decide(Decided.deny("ambiguous_json", message=why))
        return
    written = slot.result[0] if chain.text_judges and slot.result else None
    piece = TextPiece(written.text, number=slot.ordinal) if type(written) is TextDelta else None
    call = ToolCall(
        slot.key,
        slot.ordinal,
        slot.id,
        slot.name,
        text,
        value,
        tool,
        slot.executor,
        slot.server,
        before=before,
        text=piece,
    )
    if chain.is_deferred:
        call = msgspec.structs.replace(call, is_deferred=True)
    decision = Decision(chain, call)
    slot.ask(decision)
    decision.advance(may_ask=False)


def earlier_call(slot: CallSlot) -> EarlierCall:
    """A complete call as the judges of later ones see it; what is too large is not shown."""
    decided = slot.so_far
    blocked = decided is not None and decided.arguments is None
    text = (
        slot.decision.call.arguments
        if slot.decision is not None
        else slot.arguments[0]
        if len(slot.arguments) == 1
        else ""
    )
    return EarlierCall(slot.name, text, slot.executor, blocked)


def close_decision(slot: CallSlot, schemas: ToolSchemas) -> bool | None:
    """Take the decision's result into the slot; a replacement must still fit the schema. Returns
    whether the arguments fit.

    None: there is no schema, or it would take too long to say; then no replacement counts as
    fitting.
    """
    decision = slot.decision
    if decision is None or decision.decided is None:
        return None
    try:
        valid, fits = schemas.is_valid(decision.call.tool, decision.call.value), True
    except TooMuchWork:
        valid, fits = None, False
    decided = decision.decided
    if decided.verdict == "replace":
        if slot.executor != "client" or slot.result:
            # it runs, or stands in the text, with the arguments it has
            decided = Decided.deny(
                "cannot_replace", policy=decided.policy, message=_UNCHANGEABLE, rule=decided.rule
            )
        elif valid is False or not fits:
            decided = Decided.deny(
                "schema",
                policy=decided.policy,
                message=_REPLACED,
                rule=decided.rule,
                advice=_NOT_ITS_FAULT,
            )
    slot.decide(decided)
    return valid


def records(
    call: CallInfo, slot: CallSlot, at: int, *, schema_valid: bool | None, notify: bool
) -> list[Record]:
    """The record of a decided call, and before it what is to be known of the reason."""
    made: list[Record] = [_record(call, slot, at, schema_valid=schema_valid, notify=notify)]
    for kind, detail in ((WHY, slot.final.why), (ASKED, slot.final.mark)):
        if detail:
            made.insert(
                0,
                EventRecord(call_id=call.call_id, kind=kind, number=slot.key, at=at, detail=detail),
            )
    return made


def _record(
    call: CallInfo, slot: CallSlot, at: int, *, schema_valid: bool | None, notify: bool
) -> ToolCallRecord:
    decided = slot.final
    text = "".join(slot.arguments)
    arguments = to_bytes(text)
    released = (
        None
        if decided.arguments is None
        else arguments
        if decided.arguments == text
        else to_bytes(decided.arguments)
    )
    made = ToolCallRecord(
        call_id=call.call_id,
        block=slot.key,
        index=slot.ordinal,
        at=at,
        tool_call_id=slot.id,
        name=slot.name,
        arguments=arguments,
        released_arguments=released,
        executor=slot.executor,
        form=slot.start.form,
        verdict=decided.verdict,
        reason=decided.reason,
        policy=decided.policy,
        schema_valid=schema_valid,
        notify=notify,
    )
    # by itself: for one name more than those above Python builds a dict at each call
    return msgspec.structs.replace(made, rule=decided.rule) if decided.rule else made


def chosen(
    call: CallInfo,
    slot: CallSlot,
    choices: Iterable[tuple[str, ProtocolChoice]],
    at: int,
    *,
    attempt: int = 0,
) -> list[Record]:
    """The records of what protocols decided about a call, and of the scores by which they did."""
    made: list[Record] = []
    scores = 0
    for step, (policy, choice) in enumerate(choices):
        for score in choice.scores:
            made.append(
                ScoreRecord(
                    call_id=call.call_id,
                    block=slot.key,
                    step=scores,
                    at=at,
                    monitor=score.monitor,
                    policy=policy,
                    value=score.value,
                    dims=dumps(score.dims).decode() if score.dims else "",
                    why=score.why,
                    error=score.error,
                    latency_ms=score.latency_ms,
                    input_tokens=score.input_tokens,
                    output_tokens=score.output_tokens,
                )
            )
            scores += 1
        decision = DecisionRecord(
            call_id=call.call_id,
            block=slot.key,
            step=step,
            at=at,
            unit=choice.unit,
            attempt=attempt,
            policy=policy,
            protocol=choice.protocol,
            action=choice.action,
            score=choice.score,
            threshold=choice.threshold,
            reason=choice.reason,
        )
        made.append(_drawn(call, decision, choice.audit) if choice.audit is not None else decision)
    return made


def _drawn(call: CallInfo, decision: DecisionRecord, rule: AuditRule) -> DecisionRecord:
    """The decision, with whether a person should look at it."""
    u = sampling.draw(call.nonce, call.revision, decision.block)
    why = sampling.why(u, rate=rule.rate, score=decision.score, at=rule.at)
    return msgspec.structs.replace(
        decision, audit=why, audit_rate=rule.rate, audit_at=rule.at, audit_budget=rule.budget, u=u
    )


def denied(slot: CallSlot, notice: str) -> list[Event]:
    """What the client gets in place of a denied call: text that says what happened."""
    if slot.key != slot.index:
        return [TextDelta(slot.index, notice)]
    # clients join texts: without a gap the notice would stick to what stands before it
    gap = "\n\n" if slot.follows_text else ""
    return [
        BlockStart(slot.index, BlockKind.TEXT),
        TextDelta(slot.index, gap + notice),
        BlockStop(slot.index),
    ]


def released(slot: CallSlot, arguments: str) -> list[Event]:
    """What the client gets of an allowed call: the call with these arguments, or the result, or the
    text that is a call."""
    if slot.result:
        return [*slot.result[:-1], *slot.raw, slot.result[-1]]
    body, form = slot.start.body, slot.start.form
    start = BlockStart(slot.index, slot.start.kind, slot.shown_id, slot.name, body, form)
    return [start, ArgumentsDelta(slot.index, arguments), *slot.raw, BlockStop(slot.index)]


def executor_of(start: BlockStart) -> Executor:
    """Who runs a call: the client (also where code of the provider asked for it), the provider, an
    MCP server (or will, once the client lets it), the provider's code."""
    if start.kind is BlockKind.TOOL_USE:
        return (
            "mcp_pending"
            if start.body and start.body.get("executor") == "mcp_pending"
            else "client"
        )
    body = start.body or {}
    if body.get("type") in ("mcp_tool_use", "mcp_call"):
        return "mcp"
    caller = body.get("caller")
    return (
        "provider"
        if caller is None or (isinstance(caller, dict) and caller.get("type") == "direct")
        else "nested"
    )


def server_of(body: dict[str, Any] | None) -> str:
    """The MCP server that a call or result names, or an empty string."""
    if not body:
        return ""
    name = body.get("server_name") or body.get("server_label")
    return name if isinstance(name, str) else ""


class ProviderCall(NamedTuple):
    """A provider-run call of an earlier answer."""

    name: str
    arguments: str
    executor: Executor
    server: str


def provider_calls(request: ChatRequest) -> dict[str, ProviderCall]:
    """The provider-run calls in a request's history, by id."""
    calls: dict[str, ProviderCall] = {}
    for turn in request.turns:
        for part in turn.parts:
            if isinstance(part, OtherPart) and part.kind in ("server_tool_use", "mcp_tool_use"):
                body = part.body
                start = BlockStart(0, BlockKind.SERVER_TOOL_USE, body=body)
                arguments = dumps(body.get("input") or {}).decode()
                calls[str(body.get("id"))] = ProviderCall(
                    str(body.get("name")), arguments, executor_of(start), server_of(body)
                )
    return calls


def name_of_result(kind: str) -> str:
    """The tool's name as far as the type of its result tells it."""
    return kind.removesuffix("_tool_result") or kind


def judged(
    call: CallInfo, decision: Decision, step: int, judgement: Judgement, at: int
) -> JudgementRecord:
    """The record of the judgement on a question that is open."""
    question = decision.questions[step]
    return JudgementRecord(
        call_id=call.call_id,
        block=decision.call.block,
        step=step,
        at=at,
        model=question.model,
        policy=decision.asker,
        probability=judgement.probability,
        threshold=question.threshold,
        explanation=judgement.explanation,
        prompt=to_bytes(judgement.prompt or question.prompt),
        reply=to_bytes(judgement.reply),
        latency_ms=judgement.latency_ms,
        attempts=judgement.attempts,
        error=judgement.error,
        facts=judgement.facts,
    )
