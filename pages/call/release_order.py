"""Releases of an open call in the order in which its client gets them: each waits for the chunks
that it was made of and, where the record comes first, for its commit. Must not know: what they
hold."""

from collections import deque
from collections.abc import Iterator

from protocol.records import ReleaseRecord
from streams.audit_stream import NO_ENTRY, EntryId


class ReleaseOrder:
    """Takes releases as they come, and yields those that are out. `number` is the next one's;
    `kept_bytes` are of those that wait: an entry may let go all of them."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._waiting: dict[int, tuple[EntryId, ReleaseRecord]] = {}
        self._approved: deque[tuple[EntryId, ReleaseRecord]] = deque()
        self.number = 0
        self.kept_bytes = 0

    def add(self, entry: EntryId, record: ReleaseRecord) -> None:
        """Take a release; one that was taken is none."""
        if record.number < self.number:
            return
        if record.number in self._waiting:
            self.kept_bytes -= len(self._waiting[record.number][1].payload)
        self.kept_bytes += len(record.payload)
        self._waiting[record.number] = (entry, record)

    def ready(self, expected: int, *, is_over: bool) -> Iterator[ReleaseRecord]:
        """Yield those that are out, where the chunks before `expected` are there, or all of them:
        what upstream sent must be known before it can be found again."""
        while self._waiting and not self.has_gap:
            number = min(self._waiting)
            entry, record = self._waiting[number]
            if record.seq >= expected and not is_over:
                return
            del self._waiting[number]
            self.number = max(self.number, record.number_next)
            if self._strict and entry != NO_ENTRY:
                self._approved.append((entry, record))
            else:
                yield self._out(record)

    def committed(self, below: EntryId) -> Iterator[ReleaseRecord]:
        """Yield those that are out, where every audit entry below this one is in the database."""
        while self._approved and self._approved[0][0] < below:
            yield self._out(self._approved.popleft()[1])

    def _out(self, record: ReleaseRecord) -> ReleaseRecord:
        self.kept_bytes -= len(record.payload)
        return record

    @property
    def waits_for_commits(self) -> bool:
        """Is something approved that may not go out yet?"""
        return bool(self._approved)

    @property
    def has_gap(self) -> bool:
        """Is there a release before which one is missing? 0 is what is sent upstream, which is no
        release."""
        return bool(self._waiting) and min(self._waiting) > max(self.number, 1)

    def skip_gap(self) -> None:
        """Go on with what is there."""
        if self.has_gap:
            self.number = min(self._waiting)
