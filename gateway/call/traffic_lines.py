"""Writes the debug lines of one open call: what comes from its client, its upstream and Redis, and
what goes there."""

import time

from gateway.call.calls import OpenCall
from protocol.debug import CALLBACK, TRANSPORT
from protocol.errors import PipelineError
from streams.debug_lines import CallLineWriter
from streams.layout import Dispatch, Entry, EntryKind, Reply


class TrafficLines:
    """Writes a line for each step of a call."""

    def __init__(self, lines: CallLineWriter) -> None:
        self._lines = lines
        self._transport, self._callback = bool(lines.mask & TRANSPORT), bool(lines.mask & CALLBACK)
        self._dispatched_ns = 0
        self._chunks = self._sent_bytes = self._noted = 0
        """Chunks that came from upstream, bytes for the client, and the number of what was written
        down as appended."""

    # --- towards the client ---

    def begun(self, call: OpenCall) -> None:
        """As `TrafficObserver` says."""
        if self._callback:
            detail = f"{call.dialect.name}, key {call.key}".encode()
            self._lines.write("callback", "begun", detail, size=len(call.body))

    def answering(self, call: OpenCall) -> None:
        """As `TrafficObserver` says."""
        if self._callback:
            detail = f"status {call.order.status or 200}".encode()
            took_us = _us(time.monotonic() - call.started)
            self._lines.write("callback", "head", detail, duration_us=took_us)

    def replied(self, call: OpenCall, reply: Reply, expected: int, was_over: bool) -> None:
        """As `TrafficObserver` says."""
        size = len(reply.data)
        if self._transport:
            kind = "reply" if reply.dispatch is None else "dispatch"
            if reply.keepalive:
                kind = "keepalive"
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
            outcome = _outcome(call, reply, expected, was_over)
            detail = f"{outcome}: expected {expected}, got {reply.number}"
            self._lines.write(
                "callback", outcome.partition(",")[0], detail.encode(), number=reply.next, size=size
            )

    def relayed(self, call: OpenCall, size: int) -> None:
        """As `TrafficObserver` says."""
        if self._callback:
            self._sent_bytes += size
            detail = b"%d bytes in all" % self._sent_bytes
            self._lines.write(
                "callback", "relayed", detail, number=call.outgoing.relayed, size=size
            )

    def failed(self, call: OpenCall, error: PipelineError) -> None:
        """As `TrafficObserver` says."""
        if self._callback:
            detail = f"{error.error_code}, {call.outgoing.size} bytes unsent".encode()
            self._lines.write("callback", "failed", detail, number=call.outgoing.relayed)

    # --- towards upstream ---

    def dispatched(self, call: OpenCall, dispatch: Dispatch) -> None:
        """As `TrafficObserver` says."""
        self._dispatched_ns = time.perf_counter_ns()
        if self._callback:
            detail = f"{dispatch.upstream}, {dispatch.dialect} {dispatch.endpoint}"
            self._lines.write(
                "callback", "dispatch", detail.encode(errors="replace"), size=len(call.body)
            )

    def queued(self, kind: EntryKind, chunks: list[bytes], number: int, text: str) -> None:
        """As `TrafficObserver` says."""
        if not self._callback:
            return
        event = "closed" if kind == "closed" else "upstream"
        if kind == "chunks":
            self._chunks += len(chunks)
            event, detail = "chunks", f"from upstream, {self._chunks} in all"
        elif kind == "closed":
            detail = (
                f"{text}: {self._chunks} chunks from upstream, {number} outputs relayed,"
                f" {self._sent_bytes} bytes"
            )
        else:
            detail = f"{kind} {number or ''} {text}".strip()
        since_us = -1
        if self._dispatched_ns:
            since_us = (time.perf_counter_ns() - self._dispatched_ns) // 1000
        self._lines.write(
            "callback",
            event,
            detail.encode(errors="replace"),
            size=sum(map(len, chunks)),
            duration_us=since_us,
        )

    def numbered(self, entries: list[Entry]) -> None:
        """As `TrafficObserver` says."""
        if not self._transport:
            return
        for entry in entries:
            again = b" again" if entry.seq < self._noted else b""
            self._lines.write(
                "transport",
                "append",
                entry.kind.encode() + again,
                seq=entry.seq,
                number=entry.next_seq,
                size=sum(map(len, entry.chunks)),
            )
            self._noted = max(self._noted, entry.next_seq)

    def stalled(self, size: int) -> None:
        """As `TrafficObserver` says."""
        if self._callback:
            detail = b"upstream is not read: %d bytes wait" % size
            self._lines.write("callback", "stall", detail, size=size)

    def lost(self) -> None:
        """As `TrafficObserver` says."""
        if self._transport:
            self._lines.write("transport", "lost", b"Redis has this call's stream no longer")


def _outcome(call: OpenCall, reply: Reply, expected: int, was_over: bool) -> str:
    if reply.keepalive and reply.number == expected and not was_over:
        return "accepted, a keepalive"
    if call.order.expected > expected:
        return "accepted"
    if was_over:
        return "dropped, the call is over"
    return "refused" if call.order.error is not None else "dropped, came before"


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)
