"""One open call as a viewer follows it: what upstream sent, how much of it the client got, what is
held and what it waits for.

Takes entries of the call's stream and records of the audit stream, each in order; yields frames,
each with what is new since the last. Must not know: Redis, the database, HTTP, the clock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pages.call.client_text import ClientText
from pages.call.followed_blocks import Decision, FollowedBlock, FollowedBlocks
from pages.call.release_order import ReleaseOrder
from pages.call.sides import Listener, SideBlock, in_order
from pages.escape import spelled
from protocol.records import (
    BlockRecord,
    EndRecord,
    JudgementRecord,
    Record,
    ReleaseRecord,
    ToolCallRecord,
    ToolReleaseRecord,
)
from streams.audit_stream import NO_ENTRY, EntryId
from streams.layout import Entry


@dataclass(frozen=True, slots=True)
class StartFacts:
    """What is known of a call from its START. `judge`: its policies may ask a judge."""

    dialect: str
    upstream: str | None = None
    judge: bool = False
    strict: bool = False


class Following:
    """What a viewer has seen of a call. `after`: the chunk and release up to which the browser
    already has it."""

    def __init__(self, facts: StartFacts, after: tuple[int, int] = (0, 0)) -> None:
        self._facts, (self._seq_had, self._number_had) = facts, after
        self._upstream = Listener(in_order(facts.upstream), keep_text=False)
        self._blocks = FollowedBlocks()
        self._client = ClientText(facts.dialect, self._blocks)
        self._later: dict[int, list[Decision]] = {}
        """What was decided on blocks that have not come yet."""
        self.order = ReleaseOrder(strict=facts.strict)
        self.expected = 1
        """The number of the next chunk."""
        self.chunks = self.releases = 0
        self.last_at = self._behind = 0
        self._shown = 1
        self.is_closed = False
        self.end: EndRecord | None = None

    # --- what comes ---

    def entry(self, entry: Entry) -> bool:
        """Take the next entry of the call's stream; False where one before it is missing."""
        if entry.seq > self.expected:
            return False
        if entry.seq < self.expected:
            return True
        self.expected, self.last_at = entry.next_seq, entry.at
        if entry.kind in ("chunks", "body"):
            for at, raw in enumerate(entry.chunks):
                self._chunk(entry.seq + at, raw, entry.at)
        self.is_closed = self.is_closed or entry.kind == "closed"
        self._release_ready()
        return True

    def _chunk(self, seq: int, raw: bytes, at: int) -> None:
        self.chunks += 1
        self._upstream.take(raw)
        known = len(self._blocks.order)
        for number, upstream_block in islice(self._upstream.blocks.items(), known, None):
            self._begin(number, upstream_block, at)
        for number, text in self._upstream.last:
            self._blocks.touch(number).take(text, spelled(text), at, had=seq < self._seq_had)

    def _begin(self, number: int, upstream_block: SideBlock, at: int) -> None:
        block = FollowedBlock(
            number, upstream_block.kind, upstream_block.name, upstream_block.is_call, at
        )
        self._client.block_began(self._blocks.add(block))
        for record in self._later.pop(number, ()):
            block.decide(record)

    def record(self, record: Record, entry: EntryId = NO_ENTRY) -> None:
        """Take a record of the call; one that was taken is none. `entry` holds it in the audit
        stream; none: it is committed."""
        match record:
            case ReleaseRecord():
                self.order.add(entry, record)
                self._release_ready()
            case ToolCallRecord() | BlockRecord() | ToolReleaseRecord() | JudgementRecord():
                if record.block in self._blocks.by_number:
                    self._blocks.touch(record.block).decide(record)
                else:
                    self._later.setdefault(record.block, []).append(record)
            case EndRecord():
                self.end = record
            case _:
                pass

    def committed(self, below: EntryId) -> None:
        """Every audit entry below this one is in the database."""
        self._release(self.order.committed(below))

    def skip_gap(self) -> None:
        """What is missing is on record neither: it was no release. Go on with what is there."""
        self.order.skip_gap()
        self._release_ready()

    def _release_ready(self) -> None:
        self._release(self.order.ready(self.expected, is_over=self.end is not None))

    def _release(self, records: Iterable[ReleaseRecord]) -> None:
        for record in records:
            self.releases += 1
            self._client.take(record.payload, had=record.number < self._number_had)

    @property
    def is_complete(self) -> bool:
        """Is the end there, and all that was released before it?"""
        end = self.end
        return (
            end is not None
            and not self.order.waits_for_commits
            and (end.releases is None or self.releases >= end.releases)
        )

    @property
    def needs_record(self) -> bool:
        """Is something to be expected that an audit writer may have taken out of the stream before
        it was seen there?"""
        if self.order.has_gap or (self.is_closed and not self.is_complete):
            return True
        return any(block.is_awaited for block in self._blocks.touched())

    @property
    def decided_below(self) -> int:
        """All blocks before this one are decided, and out if they are tool calls."""
        blocks = map(self._blocks.by_number.__getitem__, self._blocks.order)
        open_ = (block.number for block in blocks if not block.verdict or block.is_awaited)
        return next(open_, len(self._blocks.order))

    # --- frames ---

    @property
    def place(self) -> str:
        """Up to where a browser has it: for `after`."""
        return f"{self.expected}.{self.order.number}"

    def frame(self, now: int) -> dict[str, Any] | None:
        """Return what is new since the last frame; None where nothing is. `now` in Unix ms."""
        frames = [self._shown_block(block, now) for block in self._blocks.touched()]
        blocks = [shown for shown in frames if shown is not None]
        self._blocks.settle()
        loose = self._client.take_loose()
        if not blocks and not loose:
            return None
        return {**self.figures(now), "blocks": blocks, **({"loose": loose} if loose else {})}

    def _shown_block(self, block: FollowedBlock, now: int) -> dict[str, Any] | None:
        return block.frame(self._held_for(block, now) if block.is_held(now) else "", now)

    def figures(self, now: int) -> dict[str, Any]:
        """Return the numbers of the head, and the line that shows them."""
        held = [block for block in self._blocks.touched() if block.is_held(now)]
        if self.expected != self._shown:
            self._shown, self._behind = self.expected, max(0, now - self.last_at)
        line = f"{self._behind:,} ms behind | chunks {self.chunks:,} | releases {self.releases:,}"
        if held:
            named = " ".join(word for word in (held[0].kind_word, spelled(held[0].name)) if word)
            line += f" | held {len(held)} ({named}, {self._held_for(held[0], now)})"
        return {
            "behind": self._behind,
            "chunks": self.chunks,
            "releases": self.releases,
            "held": len(held),
            "line": line,
        }

    def _held_for(self, block: FollowedBlock, now: int) -> str:
        """For how long it is held, and what it waits for."""
        return f"{block.held_s(now):.1f} s, {self._awaited_by(block)}"

    def _awaited_by(self, block: FollowedBlock) -> str:
        if self.order.waits_for_commits:
            return "approved, waits for its commit"
        if block.verdict in ("allow", "replace"):
            return "approved, waits for its commit" if block.is_call else "approved, goes out"
        is_coming = block.number == self._blocks.order[-1] and not self.is_closed
        if block.is_call and is_coming and not block.has_whole_arguments:
            return "waits for the rest of its arguments"
        return (
            "waits for a judge or its policies" if self._facts.judge else "waits for its policies"
        )


def parse_place(text: str) -> tuple[int, int]:
    """Read `Following.place`; what cannot be read is the beginning."""
    seq, _, number = text.partition(".")
    is_number = text.isascii() and seq.isdecimal() and number.isdecimal()
    if is_number and len(text) < 24:
        return int(seq), int(number)
    return 0, 0


def may_judge(uses: Sequence[str]) -> bool:
    """May a series of policies ask a judge, by what it uses?"""
    return any(use in ("tool_judge", "text_judge", "control", "preset") for use in uses)
