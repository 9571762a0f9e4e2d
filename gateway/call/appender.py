"""What one call appends to its stream: entries with numbers, and at last its end."""

import time
from collections import deque
from typing import Any

from gateway.call.observer import TrafficObserver
from streams import layout
from streams.connection import Append
from streams.layout import Entry, EntryKind, Relayed

ENTRY_CHUNKS = 64
"""A worker decides on an entry in one go: of a fast upstream, thousands of chunks that wait for
Redis would look like a hook that hangs."""


class Appender:
    """Queues, numbers and remembers entries until Redis has them."""

    __slots__ = (
        "_observer",
        "_reason",
        "_report",
        "_unprocessed",
        "channel",
        "closed",
        "commands",
        "is_answering",
        "is_lost",
        "pending",
        "seq",
        "stored",
        "stream_key",
        "unanswered",
        "unprocessed_bytes",
    )

    def __init__(self, call_id: str, observer: "TrafficObserver[Any] | None" = None) -> None:
        self._observer = observer
        self.stream_key, self.channel = layout.call_key(call_id), layout.chunk_channel(call_id)
        self.commands = Append(self.stream_key, self.channel, layout.BLOB)
        self.seq = 1
        self.pending: list[tuple[EntryKind, list[bytes], int, str]] = []
        """What is queued and Redis was not asked to take."""
        self._unprocessed: deque[tuple[int, int]] = deque()
        """The last chunk and the bytes of each entry that no worker has taken in."""
        self.unprocessed_bytes = 0
        """Also of what is only queued: a Redis that is slow to answer must stop upstream too."""
        self.unanswered: list[Entry] = []
        """Entries that Redis was asked to take, and has not said that it did."""
        self.stored = 0
        """Entries of which Redis has said that they are there."""
        self.is_answering = False
        """Is a request under way whose end is not queued?"""
        self.closed = False
        """The end is queued: nothing follows it."""
        self.is_lost = False
        """Redis has the stream no longer."""
        self._report, self._reason = b"", ""
        """What goes with the end, packed, and why it came."""

    def go_on_behind(self, seq: int) -> None:
        """Number what comes behind the chunk `seq`, of a stream that another has written."""
        self.seq = seq + 1

    def append(
        self, kind: EntryKind, chunks: list[bytes] | None = None, *, number: int = 0, text: str = ""
    ) -> None:
        """Queue something; neighbouring chunks become one entry. Nothing follows `closed`."""
        if self.closed:
            return
        chunks = chunks or []
        if self._observer is not None:
            self._observer.queued(kind, chunks, number, text)
        if kind != "chunks":
            self.is_answering = False
        self.closed = kind == "closed"
        self.unprocessed_bytes += sum(map(len, chunks))
        pending = self.pending
        if pending and kind == "chunks" == pending[-1][0]:
            pending[-1][1].extend(chunks)
        else:
            pending.append((kind, chunks, number, text))

    def close(self, reason: str, report: Relayed, relayed: int) -> None:
        """Queue the end: why, and all that was relayed."""
        self._report, self._reason = layout.pack(report), reason
        self.append("closed", [self._report], number=relayed, text=reason)

    def last(self, relayed: int) -> Entry | None:
        """The end, once it is queued; its number is not known where Redis has lost the call."""
        if not self._report:
            return None
        at = time.time_ns() // 1_000_000
        return Entry(self.seq, at, "closed", [self._report], relayed, self._reason)

    @property
    def is_idle(self) -> bool:
        """Has Redis everything, and may more come?"""
        return not (self.closed or self.unanswered or self.pending)

    def next_entries(self, at: int) -> list[Entry]:
        """Number what is queued. The result stays `unanswered` until Redis has said that it is
        there."""
        seq, unanswered = self.seq, self.unanswered
        for kind, chunks, number, text in self.pending:
            for part in [chunks] if len(chunks) <= ENTRY_CHUNKS else _parts(chunks):
                unanswered.append(Entry(seq, at, kind, part, number, text))
                seq += len(part) or 1
                if size := sum(map(len, part)):
                    self._unprocessed.append((seq - 1, size))
        self.seq, self.pending = seq, []
        if self._observer is not None:
            self._observer.numbered(unanswered)
        return unanswered

    def note_processed(self, processed: int) -> None:
        """Forget the bytes of entries that a worker has taken in."""
        unprocessed = self._unprocessed
        while unprocessed and unprocessed[0][0] <= processed:
            self.unprocessed_bytes -= unprocessed.popleft()[1]

    def is_stored(self) -> None:
        """Take note that Redis has what it was asked to take."""
        self.stored += len(self.unanswered)
        self.unanswered = []

    def lose(self) -> None:
        """Append nothing more: the stream is lost."""
        if self._observer is not None:
            self._observer.lost()
        self.closed = self.is_lost = True
        self.unanswered, self.pending = [], []


def _parts(chunks: list[bytes]) -> list[list[bytes]]:
    return [chunks[at : at + ENTRY_CHUNKS] for at in range(0, len(chunks), ENTRY_CHUNKS)]
