"""What one call waits for: judgements, commits of its tool calls, recorded turns and stored
answers.

Each is a fact of the call: a value in Redis that is written once, so that whoever owns the call
decides by the same values. A fact that is known is given to the session at once.
"""

import time

import msgspec

from policy.base import Judgement
from policy.session.effects import JudgeRequest, SessionEffects, Wanted, WantedSegment
from policy.session.session import Session
from protocol.bounds import LARGE_STEP_BYTES
from streams import layout
from streams.layout import Entry
from workers.policy.recorded_turns import field_of, tell

_judgement = msgspec.json.Decoder(Judgement)


class Replayed:
    """The request of a call that is replayed, and the chunks of the answer that it is in: its
    session goes on at once where it did so in the first run."""

    __slots__ = ("_chunks", "_size", "body")

    def __init__(self, body: bytes | None) -> None:
        self.body = body
        self._chunks: list[tuple[int, bytes]] = []
        self._size = len(body or b"")

    @property
    def is_large(self) -> bool:
        """May the step that reads it again be large?"""
        return self._size > LARGE_STEP_BYTES

    def add(self, entry: Entry) -> None:
        """Take an entry of the call's stream."""
        if entry.kind in ("chunks", "body"):
            self._chunks += enumerate(entry.chunks, entry.seq)
            self._size += sum(map(len, entry.chunks))

    def take(self, wanted: WantedSegment) -> list[bytes]:
        """Return these chunks; none of what came before is asked for again."""
        taken = [raw for seq, raw in self._chunks if wanted.first_seq <= seq <= wanted.last_seq]
        self._chunks = [(seq, raw) for seq, raw in self._chunks if seq > wanted.last_seq]
        return taken


class Waits:
    """The facts of one call, those that it waits for, and of these the ones that its worker has
    not begun to wait for (`new_`)."""

    __slots__ = (
        "facts",
        "has_new",
        "is_looking",
        "last_checked",
        "lookup",
        "new_asks",
        "new_commits",
        "new_lookup",
        "open_asks",
        "open_commits",
        "replayed",
    )

    def __init__(self) -> None:
        self.facts: dict[str, bytes] = {}
        self.open_asks: dict[str, JudgeRequest] = {}
        """By the field of the judgement."""
        self.open_commits: set[int] = set()
        """Blocks whose tool call waits until its record is stored."""
        self.lookup: Wanted | None = None
        self.new_asks: list[JudgeRequest] = []
        self.new_commits: list[int] = []
        self.new_lookup: Wanted | None = None
        self.has_new = False
        """There is something that the worker has not begun to wait for."""
        self.is_looking = False
        """A lookup of recorded turns is under way."""
        self.last_checked = time.monotonic()
        """When the open fields were last read again."""
        self.replayed: Replayed | None = None
        """While the call is replayed, and its session may ask for it."""

    def __bool__(self) -> bool:
        """Is a judgement or a commit still to come?"""
        return bool(self.open_asks or self.open_commits)

    @property
    def open_fields(self) -> list[str]:
        """The fields of all facts that are still to come."""
        fields = [*self.open_asks, *map(layout.commit_field, self.open_commits)]
        if self.lookup and not isinstance(self.lookup, WantedSegment):
            fields.append(field_of(self.lookup))
        return fields

    @property
    def blocks(self) -> set[int]:
        """The blocks that wait for a judgement or a commit."""
        return {*(ask.block for ask in self.open_asks.values()), *self.open_commits}

    # --- of the worker ---

    def take_new(self) -> tuple[list[JudgeRequest], list[int], bool]:
        """Return the judges to ask, the commits to wait for, and whether there is a lookup to do;
        each is returned once."""
        new = self.new_asks, self.new_commits, self.new_lookup is not None
        self.new_asks, self.new_commits, self.new_lookup = [], [], None
        self.has_new = False
        return new

    def begin_lookup(self) -> Wanted | None:
        """Return what is to be looked up, unless it is already being looked up."""
        if self.is_looking or self.lookup is None:
            return None
        self.is_looking = True
        return self.lookup

    def end_lookup(self) -> None:
        """Let the next lookup begin."""
        self.is_looking = False

    def forget_lookup(self) -> None:
        """Do not wait for a lookup any more."""
        self.lookup = self.new_lookup = None

    def is_checked(self, now: float) -> None:
        """Note that the open fields are read again."""
        self.last_checked = now

    def replay(self, body: bytes | None) -> Replayed:
        """Keep what the session may ask for while the call is replayed."""
        self.replayed = Replayed(body)
        return self.replayed

    def end_replay(self) -> None:
        """Keep it no longer."""
        self.replayed = None

    # --- of the session ---

    def add(self, effects: SessionEffects, session: Session, at: int) -> None:
        """Wait for what the session wants, and give it at once what is known. `at` is the time of
        facts that were there before they were asked for, in Unix milliseconds."""
        wanted = effects.lookup
        if isinstance(wanted, WantedSegment) and self.replayed is not None:
            session.segment(self.replayed.body, self.replayed.take(wanted))
        elif isinstance(wanted, WantedSegment):
            self.lookup = self.new_lookup = wanted
            self.has_new = True
        elif wanted:
            if value := self.facts.get(field := field_of(wanted)):
                tell(session, self.facts, field, value)
            else:
                self.lookup = self.new_lookup = wanted
                self.has_new = True
        for block in effects.waits:
            if value := self.facts.get(layout.commit_field(block)):
                session.committed(block, value == b"1", at)
            else:
                self.open_commits.add(block)
                self.new_commits.append(block)
                self.has_new = True
        for ask in effects.asks:
            field = layout.judgement_field(ask.block, ask.step)
            if value := self.facts.get(field):
                _judge(session, ask, value, at)
            else:
                self.open_asks[field] = ask
                self.new_asks.append(ask)
                self.has_new = True

    def learn(self, field: str, value: bytes) -> bool:
        """Keep a fact; False where it is known, because the first value of a field counts."""
        if field in self.facts:
            return False
        self.facts[field] = value
        return True

    def feed(self, session: Session, field: str, value: bytes, at: int) -> None:
        """Give the session a fact, if it waits for that."""
        if field in self.open_asks:
            _judge(session, self.open_asks.pop(field), value, at)
            return
        commits = (b for b in self.open_commits if layout.commit_field(b) == field)
        if (block := next(commits, None)) is not None:
            self.open_commits.discard(block)
            session.committed(block, value == b"1", at)
        elif (
            self.lookup
            and not isinstance(self.lookup, WantedSegment)
            and field == field_of(self.lookup)
        ):
            self.lookup = None
            tell(session, self.facts, field, value)


def _judge(session: Session, ask: JudgeRequest, value: bytes, at: int) -> None:
    try:
        judgement = _judgement.decode(value)
    except msgspec.MsgspecError:
        judgement = Judgement(error="invalid")
    session.judgement(ask.block, ask.step, judgement, at)
