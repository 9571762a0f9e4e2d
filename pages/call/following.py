"""One open call as a viewer follows it: what upstream sent, how much of it the client got, what is
held and what it waits for.

Takes entries of the call's stream and records of the audit stream, each in order; yields frames,
each with what is new since the last. The client's text is found again in upstream's, block by
block; what is not found there is shown separately. Must not know: Redis, the database, HTTP, the
clock.
"""

import json
from bisect import bisect
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pages.call.sides import MOST_EVENT, Listener, SideBlock, in_order
from pages.escape import spelled
from pages.verdicts import SIGNS, loud
from protocol.bytes.sse import EventSplitter
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

HELD_MS = 300
"""Text that the client has not got for so long is held. Decisions take some milliseconds, and
nobody wants to see each."""
FIRST_CHARS = 64 * 1024
"""Of a block, so much is in one frame; what was before it is on the call's page."""
_ARGUMENTS = 64 * 1024
"""Arguments longer than this are not looked at for their end."""
_REFUSED = ("block", "withheld", "discarded")


class _Remainder:
    """Text that is added behind and taken from the front. In pieces: neither copies what else is
    there, which may be megabytes."""

    __slots__ = ("_at", "_pieces")

    def __init__(self) -> None:
        self._pieces: deque[str] = deque()
        self._at = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, text: str) -> None:
        """Put text behind it."""
        if text:
            self._pieces.append(text)

    def first(self, size: int) -> str:
        """Return its first characters, up to so many."""
        pieces, at = list[str](), self._at
        for piece in self._pieces:
            if size <= 0:
                break
            pieces.append(piece[at : at + size])
            size, at = size - len(pieces[-1]), 0
        return "".join(pieces)

    def drop(self, size: int) -> None:
        """Take so many characters from its front."""
        self._at += size
        while self._pieces and self._at >= len(self._pieces[0]):
            self._at -= len(self._pieces.popleft())

    def clear(self) -> None:
        """Take all of it."""
        self._pieces.clear()
        self._at = 0


@dataclass(slots=True)
class _Block:
    """One content block of upstream."""

    number: int
    kind: str
    name: str
    is_call: bool
    since: int
    """When its first chunk came, in Unix ms."""
    unsent: list[str] = field(default_factory=list)
    remainder: _Remainder = field(default_factory=_Remainder)
    """What of it the client has not got."""
    waits: int = 0
    """Since when there is such a rest, in Unix ms."""
    sent: int = 0
    out: int = 0
    cut: int = 0
    got: list[str] = field(default_factory=list)
    """What the client got in its place, as far as no frame had it."""
    is_changed: bool = False
    verdict: str = ""
    reason: str = ""
    is_out: bool = False
    is_given: bool = False
    """Does a tool call of the client's stand for it?"""
    arguments: list[str] = field(default_factory=list)
    length: int = 0
    """Of the arguments."""
    last_state: tuple[Any, ...] = ()
    """Its state in the last frame."""

    @property
    def kind_word(self) -> str:
        """What people call it."""
        return "tool" if self.is_call else self.kind

    @property
    def is_awaited(self) -> bool:
        """Is it a tool call that is neither out nor refused?"""
        return self.is_call and not self.is_out and self.verdict not in _REFUSED

    @property
    def is_settled(self) -> bool:
        """Is there nothing that would change by time alone?"""
        if self.is_call or self.verdict in _REFUSED:
            return not self.is_awaited
        return self.is_changed or not self.remainder


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
        self._client = Listener(in_order(facts.dialect), keep_text=False)
        self._splitter: EventSplitter | None = None
        self._whole: list[bytes] | None = None
        self._blocks: dict[int, _Block] = {}
        self._order: list[int] = []
        self._active: set[int] = set()
        """The blocks of which the next frame may tell something: those that were touched, and those
        that are held."""
        self._at = self._call_at = self._heard = 0
        self._calls: dict[int, int] = {}
        self._later: dict[int, list[Record]] = {}
        self._waiting: dict[int, tuple[EntryId, ReleaseRecord]] = {}
        self._approved: deque[tuple[EntryId, ReleaseRecord]] = deque()
        self._loose: list[str] = []
        self.expected = 1
        """The number of the next chunk."""
        self.number = 0
        """The number of the next release."""
        self.chunks = self.releases = 0
        self.kept_bytes = 0
        """Of releases that wait for their chunks or their commit: an entry may let go all of
        them."""
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
        self._let_go()
        return True

    def _chunk(self, seq: int, raw: bytes, at: int) -> None:
        self.chunks += 1
        self._upstream.take(raw)
        for number, upstream_block in islice(
            self._upstream.blocks.items(), len(self._blocks), None
        ):
            self._begin(number, upstream_block, at)
        had = seq < self._seq_had
        for number, text in self._upstream.last:
            block = self._blocks[number]
            self._active.add(number)
            if not block.is_changed:
                block.waits = block.waits if block.remainder else at
                block.remainder.add(text)
            if block.is_call and block.length <= _ARGUMENTS:
                block.arguments.append(text)
                block.length += len(text)
            shown = spelled(text)
            block.sent += _units(shown)
            if not had:
                block.unsent.append(shown)

    def _begin(self, number: int, upstream_block: SideBlock, at: int) -> None:
        self._blocks[number] = _Block(
            number, upstream_block.kind, upstream_block.name, upstream_block.is_call, at
        )
        place = bisect(self._order, number)
        self._order.insert(place, number)
        self._call_at = min(self._call_at, place)
        self._active.add(number)
        for record in self._later.pop(number, ()):
            self.record(record)

    def record(self, record: Record, entry: EntryId = NO_ENTRY) -> None:
        """Take a record of the call; one that was taken is none. `entry` holds it in the audit
        stream; none: it is committed."""
        match record:
            case ReleaseRecord():
                if record.number >= self.number:
                    self._keep(entry, record)
                    self._let_go()
            case ToolCallRecord() | BlockRecord() | ToolReleaseRecord() | JudgementRecord():
                block = self._blocks.get(record.block)
                if block is None:
                    self._later.setdefault(record.block, []).append(record)
                else:
                    self._active.add(record.block)
                    _decide(block, record)
            case EndRecord():
                self.end = record
            case _:
                pass

    def _keep(self, entry: EntryId, record: ReleaseRecord) -> None:
        before = self._waiting.get(record.number)
        self.kept_bytes += len(record.payload) - (
            len(before[1].payload) if before is not None else 0
        )
        self._waiting[record.number] = (entry, record)

    def committed(self, below: EntryId) -> None:
        """Every audit entry below this one is in the database."""
        while self._approved and self._approved[0][0] < below:
            self._release(self._approved.popleft()[1])

    @property
    def waits_for_commits(self) -> bool:
        """Is something approved that may not go out yet?"""
        return bool(self._approved)

    def _let_go(self) -> None:
        """Take the releases whose chunks are there, in order: what upstream sent must be known
        before it can be found again."""
        while self._waiting:
            number = min(self._waiting)
            entry, record = self._waiting[number]
            if number > max(self.number, 1) or (record.seq >= self.expected and self.end is None):
                # 0 is for what is sent upstream, which is no release
                return
            del self._waiting[number]
            self.number = max(self.number, record.number_next)
            if self._facts.strict and entry != NO_ENTRY:
                self._approved.append((entry, record))
            else:
                self._release(record)

    @property
    def has_gap(self) -> bool:
        """Is there a release before which one is missing?"""
        return bool(self._waiting) and min(self._waiting) > max(self.number, 1)

    @property
    def is_complete(self) -> bool:
        """Is the end there, and all that was released before it?"""
        end = self.end
        return (
            end is not None
            and not self._approved
            and (end.releases is None or self.releases >= end.releases)
        )

    @property
    def needs_record(self) -> bool:
        """Is something to be expected that an audit writer may have taken out of the stream before
        it was seen there?"""
        if self.has_gap or (self.is_closed and not self.is_complete):
            return True
        return any(self._blocks[number].is_awaited for number in self._active)

    @property
    def decided_below(self) -> int:
        """All blocks before this one are decided, and out if they are tool calls."""
        open_ = (
            number
            for number in self._order
            if not self._blocks[number].verdict or self._blocks[number].is_awaited
        )
        return next(open_, len(self._order))

    def skip_gap(self) -> None:
        """What is missing is on record neither: it was no release. Go on with what is there."""
        if self.has_gap:
            self.number = min(self._waiting)
            self._let_go()

    # --- what the client got, found again ---

    def _release(self, record: ReleaseRecord) -> None:
        self.releases += 1
        payload = record.payload
        self.kept_bytes -= len(payload)
        if self._splitter is None and self._whole is None:
            if payload.lstrip()[:1] == b"{":
                self._whole = []
            else:
                self._splitter = EventSplitter(MOST_EVENT)
        had = record.number < self._number_had
        if self._whole is not None:
            self._whole.append(payload)
            if payload.rstrip().endswith(b"}"):
                self._take(b"".join(self._whole), had=had)
        elif self._splitter is not None:
            for event in self._splitter.feed(payload):
                self._take(event, had=had)

    def _take(self, event: bytes, *, had: bool) -> None:
        self._client.take(event)
        for number, client_block in islice(self._client.blocks.items(), self._heard, None):
            self._heard += 1
            if client_block.is_call:
                self._calls[number] = self._next_call()
        for number, text in self._client.last:
            if number in self._calls:
                self._found(self._blocks.get(self._calls[number]), text, had=had)
            else:
                self._find(text, had=had)

    def _next_call(self) -> int:
        """The block of upstream that a tool call of the client's stands for: the next that was not
        refused."""
        for at in range(self._call_at, len(self._order)):
            block = self._blocks[self._order[at]]
            if block.is_call and not block.is_given and block.verdict not in _REFUSED:
                block.is_given = True
                self._at, self._call_at = max(self._at, at), at + 1
                return block.number
        return -1

    def _found(self, block: _Block | None, text: str, *, had: bool) -> None:
        if block is None:
            self._loose += [] if had else [spelled(text)]
            return
        self._active.add(block.number)
        if not block.is_changed and block.remainder.first(len(text)) == text:
            block.remainder.drop(len(text))
            block.out += _units(spelled(text))
        else:
            _change(block)
            if not had:
                block.got.append(spelled(text))

    def _find(self, text: str, *, had: bool) -> None:
        """A client's text joins what several blocks left: its parts go to the blocks in their
        order."""
        place: _Block | None = None
        for at in range(self._at, len(self._order)):
            block = self._blocks[self._order[at]]
            if block.is_call:
                # one notice for each that was refused, in their order
                if block.verdict in _REFUSED and (
                    place is None or (place.is_changed and not block.is_changed)
                ):
                    place = block
            elif (
                not block.is_changed
                and block.remainder
                and text.startswith(part := block.remainder.first(len(text)))
            ):
                self._at = at
                self._found(block, part, had=had)
                text = text[len(part) :]
                if not text:
                    return
            elif place is None and (block.remainder or block.is_changed):
                place = block
        if place is None and self._order:
            place = self._blocks[self._order[min(self._at, len(self._order) - 1)]]
        if place is not None:
            _change(place)
        self._found(place, text, had=had)

    # --- frames ---

    @property
    def place(self) -> str:
        """Up to where a browser has it: for `after`."""
        return f"{self.expected}.{self.number}"

    def frame(self, now: int) -> dict[str, Any] | None:
        """Return what is new since the last frame; None where nothing is. `now` in Unix ms."""
        active = [self._blocks[number] for number in sorted(self._active)]
        blocks = [shown for block in active if (shown := self._tell(block, now)) is not None]
        self._active = {block.number for block in active if not block.is_settled}
        loose, self._loose = "".join(self._loose), []
        if not blocks and not loose:
            return None
        return {**self.figures(now), "blocks": blocks, **({"loose": loose} if loose else {})}

    def figures(self, now: int) -> dict[str, Any]:
        """Return the numbers of the head, and the line that shows them."""
        held = [
            block
            for number in sorted(self._active)
            if self._is_held(block := self._blocks[number], now)
        ]
        if self.expected != self._shown:
            self._shown, self._behind = self.expected, max(0, now - self.last_at)
        line = f"{self._behind:,} ms behind | chunks {self.chunks:,} | releases {self.releases:,}"
        if held:
            named = " ".join(word for word in (held[0].kind_word, spelled(held[0].name)) if word)
            line += f" | held {len(held)} ({named}, {self._why_since(held[0], now)})"
        return {
            "behind": self._behind,
            "chunks": self.chunks,
            "releases": self.releases,
            "held": len(held),
            "line": line,
        }

    def _why_since(self, block: _Block, now: int) -> str:
        """For how long it is held, and what it waits for."""
        return (
            f"{max(0, now - (block.since if block.is_call else block.waits)) / 1000:.1f} s,"
            f" {self._why(block)}"
        )

    @staticmethod
    def _is_held(block: _Block, now: int) -> bool:
        if block.verdict in _REFUSED or block.is_changed:
            return False
        return (
            not block.is_out
            if block.is_call
            else bool(block.remainder) and now - block.waits >= HELD_MS
        )

    def _why(self, block: _Block) -> str:
        """What a held block waits for."""
        if self._approved:
            return "approved, waits for its commit"
        if block.verdict in ("allow", "replace"):
            return "approved, waits for its commit" if block.is_call else "approved, goes out"
        if block.is_call and not self._is_last_complete(block):
            return "waits for the rest of its arguments"
        return (
            "waits for a judge or its policies" if self._facts.judge else "waits for its policies"
        )

    def _is_last_complete(self, block: _Block) -> bool:
        if block.number != self._order[-1] or self.is_closed or block.length > _ARGUMENTS:
            return True
        try:
            json.loads("".join(block.arguments))
        except (ValueError, RecursionError):
            return False
        return True

    def _word(self, block: _Block, now: int) -> tuple[str, str]:
        """The verdict that a block is shown with, and the word for it."""
        match block.verdict:
            case "block" | "withheld" | "discarded" | "replace":
                return block.verdict, loud(block.verdict)
            case _ if self._is_held(block, now):
                return "hold", loud("hold")
            case _:
                return "allow", (
                    "changed" if block.is_changed else "released" if block.out else "coming"
                )

    def _tell(self, block: _Block, now: int) -> dict[str, Any] | None:
        verdict, word = self._word(block, now)
        why = self._why_since(block, now) if verdict == "hold" else block.reason
        state = (verdict, word, why, block.out)
        if state == block.last_state and not block.unsent and not block.got:
            return None
        is_first, block.last_state = not block.last_state, state
        add, block.unsent = "".join(block.unsent), []
        if len(add) > FIRST_CHARS:
            add = add[-FIRST_CHARS:]
            block.cut = block.sent - _units(add)
        got, block.got = "".join(block.got)[-FIRST_CHARS:], []
        values: dict[str, Any] = {
            "b": block.number,
            "verdict": verdict,
            "word": f"{SIGNS[verdict]} {word}",
            "why": spelled(why),
            "out": max(0, block.out - block.cut),
        }
        if is_first:
            values |= {"kind": block.kind_word, "name": spelled(block.name)}
        if block.cut:
            values["cut"] = f"{block.cut:,} characters before this are on the call's page"
        return values | ({"add": add} if add else {}) | ({"got": got} if got else {})


def _decide(
    block: _Block, record: ToolCallRecord | BlockRecord | ToolReleaseRecord | JudgementRecord
) -> None:
    match record:
        case ToolReleaseRecord():
            block.is_out = True
        case ToolCallRecord() | BlockRecord() if record.verdict != "hold":
            block.verdict, block.reason = record.verdict, record.reason
            if isinstance(record, ToolCallRecord) and record.verdict == "replace":
                _change(block)
        case _:
            pass


def _change(block: _Block) -> None:
    """What goes out is not what upstream sent: no more of that is searched for."""
    block.is_changed = True
    block.remainder.clear()


def _units(text: str) -> int:
    """How long a browser takes it to be: in units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def parse_place(text: str) -> tuple[int, int]:
    """Read `Following.place`; what cannot be read is the beginning."""
    seq, _, number = text.partition(".")
    if (
        seq.isascii()
        and seq.isdecimal()
        and number.isascii()
        and number.isdecimal()
        and len(text) < 24
    ):
        return int(seq), int(number)
    return 0, 0


def may_judge(uses: Sequence[str]) -> bool:
    """May a series of policies ask a judge, by what it uses?"""
    return any(use in ("tool_judge", "control", "preset") for use in uses)
