"""What arrives of one call: how far its stream was read, what was missed, and its end.

Workers are sent each small entry as it is appended, and read the stream itself where they missed
one, where an entry is large, and where the call is replayed. Entries are numbered by the chunks in
them, so a repeated one is recognised and a missing one is noticed.
"""

import logging
import time

import msgspec

from protocol.errors import StreamProtocolError
from streams import layout
from streams.layout import Entry, Relayed

log = logging.getLogger(__name__)
WITHOUT_CHUNKS = frozenset(("eof", "failed", "closed", "see"))


class Inbox:
    """The entries of one call as they come in."""

    __slots__ = (
        "_call_id",
        "chunkless",
        "closed",
        "expected",
        "from_stream",
        "heard_of",
        "is_heavy",
        "last_heard",
        "missed",
        "relayed",
    )

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id
        self.expected = 1
        """The number that comes next."""
        self.heard_of = 1
        """The same, but after what is not taken yet: more comes while the stream is read."""
        self.chunkless = 0
        """Entries without chunks, which the end record counts."""
        self.last_heard = time.monotonic()
        self.closed: Entry | None = None
        """The entry with which the gateway ended the call."""
        self.relayed: Relayed | None = None
        """What the gateway reports with it."""
        self.from_stream = False
        """Pushed entries are ignored and read from the stream instead: the call is replayed, has
        not begun, or its steps are large."""
        self.missed = False
        """Something was pushed since the stream was read, and ignored."""
        self.is_heavy = False
        """The call holds so much that its next step may be large."""

    # --- entries ---

    def note_gap(self, entry: Entry) -> None:
        """Note that `entry` is there while one before it is missing."""
        self.heard_of = entry.next_seq

    def take(self, entry: Entry) -> None:
        """Take the entry that comes next."""
        self.expected = entry.next_seq
        self.last_heard = time.monotonic()
        if entry.kind in WITHOUT_CHUNKS:
            self.chunkless += 1
            if entry.kind == "closed":
                self._close(entry)

    def _close(self, entry: Entry) -> None:
        if self.closed is not None:
            # a gateway that hears of a call after its end ends it again, without knowing how far it
            # came
            return
        self.closed = entry
        if not entry.chunks:
            return
        try:
            self.relayed = layout.unpack_relayed(entry.chunks[0])
        except StreamProtocolError as error:
            log.error(
                "unreadable report of what the gateway relayed", extra={"call_id": self._call_id}
            )
            self.closed = msgspec.structs.replace(entry, text=error.code)

    def pass_over(self, entry: Entry) -> None:
        """Go on behind an entry at which the session broke."""
        self.expected = max(self.expected, entry.next_seq)

    def is_heard(self, now: float) -> None:
        """Begin the time without entries again."""
        self.last_heard = now

    # --- where entries come from ---

    def read_stream(self, *, only: bool) -> None:
        """Ignore what is pushed and read the stream, or take what is pushed again."""
        self.from_stream = only

    def become_heavy(self) -> None:
        """Note that the next step may be large: it is then read from the stream."""
        self.is_heavy = self.from_stream = True

    def note_missed(self) -> None:
        """Note that something was pushed and ignored."""
        self.missed = True

    def begin_reading(self) -> None:
        """Note that the stream is about to be read."""
        self.missed = False

    @property
    def has_more(self) -> bool:
        """Is there more on the stream, as far as was heard?"""
        return self.expected < self.heard_of or self.missed
