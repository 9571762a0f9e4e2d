"""Sums at a call's end: how much of everything a whole record holds, what metrics count of it, what
the client got in addition to releases."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from protocol.bytes import waiting
from protocol.records import (
    AttemptRecord,
    BlockRecord,
    CallRecord,
    DecisionRecord,
    EventRecord,
    JudgementRecord,
    Record,
    ScoreRecord,
    ToolCallRecord,
    ToolReleaseRecord,
    VerdictName,
    to_text,
)
from streams.layout import Relayed
from streams.metrics import Count

_DECISIONS = frozenset(
    (
        BlockRecord,
        ToolCallRecord,
        ToolReleaseRecord,
        JudgementRecord,
        ScoreRecord,
        DecisionRecord,
        AttemptRecord,
    )
)


class LastWord(NamedTuple):
    """What was last decided on a block: not its record, which may hold arguments of megabytes."""

    kind: str
    policy: str
    verdict: VerdictName


class DecisionCounts:
    """What the session of a call decided so far."""

    __slots__ = (
        "_begun",
        "_blocks",
        "_calls",
        "_sealed",
        "_unread",
        "attempts",
        "call",
        "judged",
        "last",
        "rows",
    )

    def __init__(self, begun: Callable[[CallRecord | None], None] | None = None) -> None:
        self._begun = begun
        """Called once, when the call's own record is known; None: it was before."""
        self.call: CallRecord | None = None
        """The call's own record, once there is one."""
        self.last: dict[int, LastWord] = {}
        """The last word on each block of any kind."""
        self.rows = 0
        """How many decisions there are, each a row of its own."""
        self.attempts: list[AttemptRecord] = []
        """The answers to its requests, where there were several."""
        self.judged: list[JudgementRecord] = []
        """What judges answered."""
        self._calls: dict[int, VerdictName] = {}
        """The last word on each tool call, by block."""
        self._blocks: dict[int, VerdictName] = {}
        """The same of every other block."""
        self._sealed = 0
        self._unread = set[int]()
        """Tool calls with arguments that no rule could look at, by block."""

    def anew(self) -> "DecisionCounts":
        """Return counts of the same call with nothing decided."""
        return DecisionCounts(self._begun)

    def begin(self, record: CallRecord | None) -> None:
        """Take the call's own record; None where there is none and never will be."""
        self.call = record or self.call
        begun, self._begun = self._begun, None
        if begun is not None:
            begun(self.call)

    def add(self, records: Sequence[Record]) -> None:
        """Take what the session wants recorded, in its order."""
        for record in records:
            if type(record) in _DECISIONS:
                self.rows += 1
                if isinstance(record, ToolCallRecord | BlockRecord):
                    # of a block that nobody knows the kind is a word of the upstream's
                    kind = record.kind if isinstance(record, BlockRecord) else "tool_use"
                    self.last[record.block] = LastWord(kind, record.policy, record.verdict)
                if isinstance(record, ToolCallRecord):
                    self._calls[record.block] = record.verdict
                    if record.reason == "unread":
                        self._unread.add(record.block)
                elif isinstance(record, BlockRecord):
                    (self._calls if record.block in self._calls else self._blocks)[record.block] = (
                        record.verdict
                    )
                elif isinstance(record, JudgementRecord):
                    self.judged.append(record)
                elif isinstance(record, AttemptRecord):
                    self.attempts.append(record)
            elif isinstance(record, CallRecord):
                self.begin(record)
            elif isinstance(record, EventRecord) and record.kind == "sealed":
                self._sealed += 1

    def counts(self) -> dict[Count, int]:
        """Return what metrics count of it."""
        blocked = sum(verdict == "block" for verdict in self._calls.values())
        return {
            Count.TOOL_CALLS_BLOCKED: blocked,
            Count.TOOL_CALLS_UNREAD: len(self._unread),
            Count.SEALED_ANSWERS: self._sealed,
        }


def undecided_record(call_id: str, block: int, now_ms: int) -> BlockRecord:
    """The record of a tool call that nobody had decided when its call ended."""
    return BlockRecord(
        call_id=call_id,
        block=block,
        at=now_ms,
        kind="tool_use",
        verdict="withheld",
        reason="undecided",
        policy="",
    )


def relayed_events(call_id: str, sums: Relayed, relayed: int, now_ms: int) -> list[Record]:
    """What the client got beside releases; `relayed` is the number that its gateway had come to.

    keepalive: `number` is the session's output before which `detail` of them were written, which
    may say what each said (`protocol.bytes.waiting`). frame:
    `detail` is what the gateway wrote itself at the end. late: `detail` was written in place of the
    payload of release `number`.
    """
    records: list[Record] = [
        EventRecord(
            call_id=call_id,
            kind="keepalive",
            number=number,
            at=now_ms,
            detail=waiting.detail(times, sums.words.get(number, ())),
        )
        for number, times in sums.keepalives
    ]
    if sums.own:
        kind, number = ("late", sums.late) if sums.late >= 0 else ("frame", relayed)
        records.append(
            EventRecord(
                call_id=call_id, kind=kind, number=number, at=now_ms, detail=to_text(sums.own)
            )
        )
    return records
