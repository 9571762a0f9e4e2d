"""Sums in a call's end record: how much of everything a whole record holds, and what the client got beside releases."""

from collections.abc import Sequence

from protocol.records import BlockRecord, EventRecord, JudgementRecord, Record, ToolCallRecord, ToolReleaseRecord, to_text
from streams.layout import Relayed

_DECISIONS = frozenset((BlockRecord, ToolCallRecord, ToolReleaseRecord, JudgementRecord))


def count_decisions(records: Sequence[Record]) -> int:
    """How many of these are decisions of the session, each a row of its own."""
    return sum([type(record) in _DECISIONS for record in records])


def undecided_record(call_id: str, block: int, now_ms: int) -> BlockRecord:
    """The record of a tool call that nobody had decided when its call ended."""
    return BlockRecord(call_id=call_id, block=block, at=now_ms, kind="tool_use", verdict="withheld", reason="undecided", policy="")


def relayed_events(call_id: str, sums: Relayed, relayed: int, now_ms: int) -> list[Record]:
    """What the client got beside releases; `relayed` is the number that its gateway had come to.

    keepalive: `number` is the session's output before which `detail` of them were written. frame: `detail` is what the gateway wrote
    itself at the end. late: `detail` was written in place of the payload of release `number`.
    """
    records: list[Record] = [
        EventRecord(call_id=call_id, kind="keepalive", number=number, at=now_ms, detail=str(times)) for number, times in sums.keepalives
    ]
    if sums.own:
        kind, number = ("late", sums.late) if sums.late >= 0 else ("frame", relayed)
        records.append(EventRecord(call_id=call_id, kind=kind, number=number, at=now_ms, detail=to_text(sums.own)))
    return records
