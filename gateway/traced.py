"""A call that has debug lines, as its gateway sees it: the same as any other, and what comes and
goes is written down.

Calls without lines are of the class that this derives from.
"""

import time
from typing import Any

from gateway.calls import OpenCall
from protocol.debug import CALLBACK, TRANSPORT
from protocol.errors import PipelineError
from streams.debug_lines import CallLineWriter
from streams.layout import Dispatch, Entry, EntryKind, Reply


class TracedOpenCall(OpenCall):
    """A client request whose traffic is written down."""

    def __init__(self, lines: CallLineWriter, *args: Any, **options: Any) -> None:
        self._lines, self._is_head_sent, self._asked = lines, False, 0
        self._transport, self._callback = bool(lines.mask & TRANSPORT), bool(lines.mask & CALLBACK)
        self._chunks = self._sent_bytes = self._noted = 0
        """Chunks that came from upstream, bytes for the client, and the number of what was written
        down as appended."""
        super().__init__(*args, **options)
        if self._callback:
            lines.write(
                "callback",
                "begun",
                f"{self.dialect.name}, key {self.key}".encode(),
                size=len(self.body),
            )

    # --- towards the client ---

    @property
    def head_sent(self) -> bool:
        """Did the answer to the client begin?"""
        return self._is_head_sent

    @head_sent.setter
    def head_sent(self, value: bool) -> None:
        if value and not self._is_head_sent and self._callback:
            self._lines.write(
                "callback",
                "head",
                f"status {self.status or 200}".encode(),
                duration_us=_us(time.monotonic() - self.started),
            )
        self._is_head_sent = value

    def on_reply(self, reply: Reply) -> None:
        """As without lines."""
        expected, ended = self.expected, bool(self.end or self.error)
        super().on_reply(reply)
        size = len(reply.data)
        if self._transport:
            kind = (
                "keepalive"
                if reply.keepalive
                else "dispatch"
                if reply.dispatch is not None
                else "reply"
            )
            detail = (
                f"{kind}, outputs {reply.number} to {reply.next - 1}, worker is at chunk"
                f" {reply.processed}"
            )
            self._lines.write(
                "transport",
                "reply",
                detail.encode(),
                seq=reply.processed,
                number=reply.next,
                size=size,
            )
        if self._callback:
            if reply.keepalive and reply.number == expected and not ended:
                outcome = "accepted, a keepalive"
            elif self.expected > expected:
                outcome = "accepted"
            else:
                outcome = (
                    "refused"
                    if self.error is not None and not ended
                    else "dropped, the call is over"
                    if ended
                    else "dropped, came before"
                )
            detail = f"{outcome}: expected {expected}, got {reply.number}"
            self._lines.write(
                "callback", outcome.partition(",")[0], detail.encode(), number=reply.next, size=size
            )

    def _taken(self) -> None:
        waiting = self._out_bytes
        super()._taken()
        if self._callback:
            self._sent_bytes += waiting
            self._lines.write(
                "callback",
                "relayed",
                b"%d bytes in all" % self._sent_bytes,
                number=self.relayed,
                size=waiting,
            )

    def fail(self, error: PipelineError) -> None:
        """As without lines."""
        if self._callback and not self.end and self.error is None:
            self._lines.write(
                "callback",
                "failed",
                f"{error.error_code}, {self._out_bytes} bytes unsent".encode(),
                number=self.relayed,
            )
        super().fail(error)

    # --- towards upstream ---

    def _take_dispatch(self, dispatch: Dispatch) -> None:
        super()._take_dispatch(dispatch)
        self._asked = time.perf_counter_ns()
        if self._callback:
            detail = f"{dispatch.upstream}, {dispatch.dialect} {dispatch.endpoint}"
            self._lines.write(
                "callback", "dispatch", detail.encode(errors="replace"), size=len(self.body)
            )

    def append(
        self, kind: EntryKind, chunks: list[bytes] | None = None, *, number: int = 0, text: str = ""
    ) -> None:
        """As without lines."""
        if self._callback and not self.closed:
            size = sum(map(len, chunks or ()))
            since = _us((time.perf_counter_ns() - self._asked) / 1e9) if self._asked else -1
            if kind == "chunks":
                self._chunks += len(chunks or ())
                self._lines.write(
                    "callback",
                    "chunks",
                    b"from upstream, %d in all" % self._chunks,
                    size=size,
                    duration_us=since,
                )
            else:
                detail = f"{kind} {number or ''} {text}".strip().encode(errors="replace")
                if kind == "closed":
                    detail = (
                        f"{text}: {self._chunks} chunks from upstream, {number} outputs relayed,"
                        f" {self._sent_bytes} bytes".encode()
                    )
                self._lines.write(
                    "callback",
                    "closed" if kind == "closed" else "upstream",
                    detail,
                    size=size,
                    duration_us=since,
                )
        super().append(kind, chunks, number=number, text=text)

    def next_entries(self, at: int) -> list[Entry]:
        """As without lines."""
        entries = super().next_entries(at)
        if self._transport:
            for entry in entries:
                again = b" again" if entry.seq < self._noted else b""
                size = sum(map(len, entry.chunks))
                self._lines.write(
                    "transport",
                    "append",
                    entry.kind.encode() + again,
                    seq=entry.seq,
                    number=entry.next_seq,
                    size=size,
                )
                self._noted = max(self._noted, entry.next_seq)
        return entries

    def lose(self) -> None:
        """As without lines."""
        if self._transport:
            self._lines.write("transport", "lost", b"Redis has this call's stream no longer")
        super().lose()

    def when_room(self, mark: int, then: Any) -> None:
        """As without lines."""
        if self._callback:
            self._lines.write(
                "callback",
                "stall",
                b"upstream is not read: %d bytes wait" % self.backlog_bytes(),
                size=self.backlog_bytes(),
            )
        super().when_room(mark, then)


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)
