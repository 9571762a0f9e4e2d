"""The last records of a call: what is not stored yet, what stays undecided, and the end itself."""

from typing import Any

import msgspec

from policy.session.session import Session
from protocol.events import Usage
from protocol.records import EndRecord, EventRecord, Record
from protocol.usage.prices import total
from workers.call_totals import DecisionCounts, relayed_events, undecided_record
from workers.policy.call.inbox import Inbox
from workers.policy.call.release_queue import ReleaseQueue
from workers.policy.call.waits import Waits

SENT = ("client_gone", "gateway_lost")
"""Reasons of calls that may have been sent upstream though nothing came back."""


def last_records(
    call_id: str,
    session: Session,
    inbox: Inbox,
    queue: ReleaseQueue,
    waits: Waits,
    decided: DecisionCounts,
    *,
    reason: str,
    relayed: int,
    decisions: int | None,
    now_ms: int,
    settles: bool,
) -> list[Record]:
    """Return them in their order. `relayed` is the last number that the gateway relayed, below 0
    where that is not known; `decisions` how many are on record or queued, None where that is not
    known."""
    records = [*session.unbegun(), *queue.take_records()]
    undecided = [
        undecided_record(call_id, block, now_ms)
        for block in waits.blocks.union(session.unasked)
        if not session.has_verdict(block)
    ]
    records += undecided
    report = inbox.relayed
    if report is not None and inbox.closed is not None and (report.keepalives or report.own):
        records += relayed_events(call_id, report, inbox.closed.number, now_ms)
    if reason == "complete":
        reason = queue.end or "unfinished"
    attempts = session.last_attempt(now_ms, inbox.expected - 1)
    records += attempts
    usage = session.spent
    if (estimated := session.estimated) is not None:
        records.append(_estimated(call_id, usage.input_tokens, usage.output_tokens, now_ms))
        usage = estimated
    # not known where this worker did not read the stream as far as the owner before
    is_read = inbox.expected > queue.recorded
    records.append(
        EndRecord(
            call_id=call_id,
            at=now_ms,
            state="ENDED" if reason == "complete" else "FAILED",
            reason=reason,
            status=session.status,
            stop_reason=session.stop_reason,
            relayed=relayed,
            chunks=inbox.expected - 1 - inbox.chunkless if is_read else None,
            releases=queue.releases,
            decisions=None if decisions is None else decisions + len(undecided) + len(attempts),
            relayed_sha256=report.sha256 if report is not None and relayed >= 0 else None,
            settles=settles,
            **msgspec.structs.asdict(usage),
            **_costs(
                session,
                usage,
                decided,
                is_estimated=estimated is not None,
                was_sent=inbox.expected > 1 + inbox.chunkless or reason in SENT,
            ),
        )
    )
    return records


def _costs(
    session: Session, usage: Usage, decided: DecisionCounts, *, is_estimated: bool, was_sent: bool
) -> dict[str, Any]:
    """What an answer took, of all its models, and what judges took for it."""
    if was_sent and not total(usage):
        usage = session.uncounted()
        is_estimated = bool(total(usage))
    tokens, rest = total(usage), usage
    costs = list[int | None]()
    for attempt in decided.attempts:
        # of an attempt by another model; what a cache had of it goes at the price of the first
        its = Usage(input_tokens=attempt.input_tokens, output_tokens=attempt.output_tokens)
        price = session.cost_of(attempt.model)
        if total(its) and price != session.price:
            costs.append(None if price is None else price.cost(its))
            rest = Usage(
                (rest.input_tokens or 0) - (its.input_tokens or 0),
                (rest.output_tokens or 0) - (its.output_tokens or 0),
                rest.cache_read_tokens,
                rest.cache_write_tokens,
            )
    if tokens:
        costs.append(None if session.price is None else session.price.cost(rest))
    judged = None
    for record in decided.judged:
        its = Usage(
            input_tokens=record.facts.input_tokens, output_tokens=record.facts.output_tokens
        )
        tokens += total(its)
        if total(its) and (price := session.cost_of_judge(record.model)) is not None:
            judged = (judged or 0) + price.cost(its)
    known = [cost for cost in costs if cost is not None]
    return {
        "charged_tokens": tokens or None,
        "cost_nanousd": sum(known) if known and len(known) == len(costs) else None,
        "judge_nanousd": judged,
        "is_estimated": is_estimated or None,
    }


def _estimated(
    call_id: str, input_tokens: int | None, output_tokens: int | None, now_ms: int
) -> EventRecord:
    counted = f"{input_tokens or 'no'} tokens in and {output_tokens or 'none'} out"
    detail = (
        f"the upstream had counted {counted} when its answer ended: the counts of this call are"
        " estimated by what was sent and streamed"
    )
    return EventRecord(call_id=call_id, kind="usage_estimated", number=0, at=now_ms, detail=detail)
