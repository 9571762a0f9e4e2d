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
from protocol.bytes import waiting
from streams import layout
from workers.policy.recorded_turns import field_of, tell

_judgement = msgspec.json.Decoder(Judgement)
_COMMIT_FAULTS = {layout.COMMITTED: "", layout.USED: "approval_used"}
"""What the fact of a commit means for the call; any other says that it came too late."""


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
        "since",
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
        self.since = 0.0
        """When the first of the `open_asks` was asked, on the monotonic clock."""
        self.is_looking = False
        """A lookup of recorded turns is under way."""
        self.last_checked = time.monotonic()
        """When the open fields were last read again."""

    def __bool__(self) -> bool:
        """Is a judgement or a commit still to come?"""
        return bool(self.open_asks or self.open_commits)

    @property
    def open_fields(self) -> list[str]:
        """The fields of all facts that are still to come."""
        fields = [*self.open_asks, *map(layout.commit_field, self.open_commits)]
        if self.lookup and self.segment is None:
            fields.append(field_of(self.lookup))
        return fields

    @property
    def blocks(self) -> set[int]:
        """The blocks that wait for a judgement or a commit."""
        return {*(ask.block for ask in self.open_asks.values()), *self.open_commits}

    @property
    def segment(self) -> WantedSegment | None:
        """The part of the call itself that its session waits for: no fact, as all have the same."""
        return self.lookup if isinstance(self.lookup, WantedSegment) else None

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

    def said(self, session: Session) -> str:
        """Return what a keepalive may say that the client waits for. Where notices are not full it
        must not learn that there are judges, and where the series may defer, when they are asked
        again."""
        form, asks = session.out.notices.form, self.open_asks.values()
        if any(ask.is_for_people for ask in asks) and form != "silent":
            return waiting.said("a person", time.monotonic() - self.since)
        if asks and form == "full" and not session.may_defer:
            return waiting.said("a judge", time.monotonic() - self.since)
        return ""

    # --- of the session ---

    def add(self, effects: SessionEffects, session: Session, at: int) -> None:
        """Wait for what the session wants, and give it at once what is known. `at` is the time of
        facts that were there before they were asked for, in Unix milliseconds."""
        if wanted := effects.lookup:
            if value := self.facts.get(field := field_of(wanted)):
                tell(session, self.facts, field, value)
            else:
                self.lookup = self.new_lookup = wanted
                self.has_new = True
        for block in effects.waits:
            if value := self.facts.get(layout.commit_field(block)):
                session.committed(block, _COMMIT_FAULTS.get(value, "audit_unavailable"), at)
            else:
                self.open_commits.add(block)
                self.new_commits.append(block)
                self.has_new = True
        for ask in effects.asks:
            field = layout.judgement_field(ask.block, ask.step)
            if value := self.facts.get(field):
                _judge(session, ask, value, at)
            else:
                if not self.open_asks:
                    self.since = time.monotonic()
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
            session.committed(block, _COMMIT_FAULTS.get(value, "audit_unavailable"), at)
        elif self.lookup and field == field_of(self.lookup):
            self.lookup = None
            tell(session, self.facts, field, value)


def _judge(session: Session, ask: JudgeRequest, value: bytes, at: int) -> None:
    try:
        judgement = _judgement.decode(value)
    except msgspec.MsgspecError:
        judgement = Judgement(error="invalid")
    session.judgement(ask.block, ask.step, judgement, at)
