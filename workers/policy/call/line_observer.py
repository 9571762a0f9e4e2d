"""Writes the debug lines of one call: its hooks, its input, its decisions and its releases."""

import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import msgspec

from policy.base import Block, OtherBlock, Replace, TextBlock, ToolCall
from policy.session.effects import JudgeRequest
from protocol.debug import ENDPOINT, TRANSPORT
from protocol.errors import PipelineError
from protocol.records import Record
from streams import layout
from streams.debug_lines import CallLineWriter
from streams.layout import Entry, Reply
from workers.policy.call.owned import OwnedCall
from workers.policy.call.phases import Phase

_json = msgspec.json.Encoder(enc_hook=repr).encode


class CallTracer:
    """Writes a line for each hook. Its arguments and its result share the room of a line."""

    def __init__(self, lines: CallLineWriter) -> None:
        self._lines, self._most = lines, lines.most // 2
        self._held: dict[tuple[str, int], int] = {}
        """Characters that a policy was given of a block and has not passed on."""
        self.clock_ns = time.perf_counter_ns

    def hook(
        self, policy: str, hook: str, args: tuple[Any, ...], returned: object, took_ns: int
    ) -> None:
        """Write it down. What goes wrong with that is nothing that the policy should notice."""
        try:
            self._tell(policy, hook, args, returned, took_ns)
        except Exception as error:  # noqa: BLE001 - no line is worth a call, and what policies return may be anything
            self._lines.write(
                "policy", "trace_failed", type(error).__name__.encode(), policy=policy, hook=hook
            )

    def _tell(
        self, policy: str, hook: str, args: tuple[Any, ...], returned: object, took_ns: int
    ) -> None:
        block, event, words = -1, "called", ""
        first = args[0] if args else None
        if isinstance(first, str):
            text: TextBlock = args[1]
            block = text.index
            words = f"in {len(first)}"
            if isinstance(returned, str):
                self._held[policy, block] = held = (
                    self._held.get((policy, block), 0) + len(first) - len(returned)
                )
                words += f", out {len(returned)}, held {held}"
        elif isinstance(first, TextBlock | OtherBlock):
            block = first.index
            if isinstance(returned, str):
                words = f"out {len(returned)}, held before {self._held.pop((policy, block), 0)}"
        elif isinstance(first, ToolCall):
            block, words = first.block, first.name
        if isinstance(returned, BaseException):
            # its text may quote the request
            event, words = "raised", f"{type(returned).__name__} {words}"
        elif isinstance(returned, Block | Replace):
            words = f"{type(returned).__name__.lower()} {returned.reason} {words}"
        elif returned is not None and not isinstance(returned, str):
            words = f"{type(returned).__name__.lower()} {words}"
        detail = words.strip().encode(errors="replace")
        if self._most:
            detail += b"\nin: " + _shown(first, self._most)
            if not isinstance(returned, BaseException):
                detail += b"\nout: " + _shown(returned, self._most)
        self._lines.write(
            "policy",
            event,
            detail,
            block=block,
            policy=policy,
            hook=hook,
            duration_us=took_ns // 1000,
        )


def _shown(value: object, most: int) -> bytes:
    if isinstance(value, str):
        # no more of it is encoded than can be shown
        cut = value[:most].encode(errors="replace")
        return (
            cut
            if len(value) <= most and len(cut) <= most
            else b"%b... (%d characters)" % (cut[:most], len(value))
        )
    if isinstance(value, ToolCall):
        return _shown(value.arguments, most)
    if value is None:
        return b"-"
    try:
        packed = _json(value)
    except Exception as error:  # noqa: BLE001 - of somebody's own policy: whatever it returned is shown or not
        return type(error).__name__.encode()
    return packed if len(packed) <= most else b"%b... (%d bytes)" % (packed[:most], len(packed))


P = ParamSpec("P")


def _harmless(
    write: "Callable[Concatenate[LineObserver, P], None]",
) -> "Callable[Concatenate[LineObserver, P], None]":
    """What goes wrong while a line is made is nothing that the call should notice: not even its
    session may be as it was."""

    @wraps(write)
    def wrapper(self: "LineObserver", /, *args: P.args, **options: P.kwargs) -> None:
        try:
            write(self, *args, **options)
        except Exception as error:  # noqa: BLE001 - no line is worth a call
            self.lines.write("endpoint", "trace_failed", type(error).__name__.encode())

    return wrapper


class LineObserver:
    """Writes a line for each step of a call."""

    def __init__(self, lines: CallLineWriter) -> None:
        self.lines = lines
        self._transport, self._endpoint = bool(lines.mask & TRANSPORT), bool(lines.mask & ENDPOINT)

    @_harmless
    def moved(self, call: OwnedCall) -> None:
        """As `CallObserver` says."""
        self.lines.before = b"replayed; " if call.is_replayed else b""
        if self._endpoint and call.phase is Phase.CLAIMED:
            claim = f"token {call.token[:8]}, policy {call.writer.policy_header}"
            self.lines.write("endpoint", "claim", claim.encode(), number=call.queue.released)

    # --- in ---

    @_harmless
    def began(self, call: OwnedCall, size: int, took_ns: int) -> None:
        """As `CallObserver` says."""
        if not self._endpoint:
            return
        request = call.session.request
        asked = "not read"
        if request is not None:
            asked = f"{request.model}, {'stream' if request.stream else 'whole'}"
        detail = f"{asked}, {call.session.state}".encode(errors="replace")
        self.lines.write("endpoint", "request", detail, size=size, duration_us=took_ns // 1000)

    def refused(self, error: PipelineError) -> None:
        """As `CallObserver` says."""
        if self._endpoint:
            self.lines.write("endpoint", "refused", error.error_code.encode())

    @_harmless
    def fed(self, call: OwnedCall, entry: Entry, expected: int, taken: bool, took_ns: int) -> None:
        """As `CallObserver` says."""
        size = sum(map(len, entry.chunks))
        if self._transport:
            order = "in order" if taken else f"gap, expected {expected}"
            if entry.seq < expected:
                order = "again"
            detail = f"{entry.kind} {order}".encode()
            self.lines.write(
                "transport", "read", detail, seq=entry.seq, number=entry.next_seq, size=size
            )
        if self._endpoint and taken and entry.seq >= expected:
            waiting = (
                f"{call.queue.output_count} outputs wait, {call.session.held_bytes} bytes held"
            )
            detail = f"{waiting} {entry.text}".rstrip().encode(errors="replace")
            if self.lines.most:
                chunks = entry.chunks
                detail += b"\n" + self.lines.cut(
                    chunks[0] if len(chunks) == 1 else b"".join(chunks)
                )
            self.lines.write(
                "endpoint",
                entry.kind,
                detail,
                seq=entry.seq,
                number=entry.next_seq,
                size=size,
                duration_us=took_ns // 1000,
            )

    def learned(self, field: str, size: int) -> None:
        """As `CallObserver` says."""
        if self._endpoint:
            self.lines.write("endpoint", "fact", field.encode(), size=size)

    def asked(self, asks: Sequence[JudgeRequest], commits: Sequence[int]) -> None:
        """As `CallObserver` says."""
        if not self._endpoint:
            return
        for ask in asks:
            detail = f"step {ask.step}, {ask.question.model}".encode(errors="replace")
            self.lines.write("endpoint", "ask", detail, block=ask.block)
        for block in commits:
            self.lines.write("endpoint", "commit", b"waits for its record", block=block)

    # --- out ---

    @_harmless
    def released(self, call: OwnedCall) -> None:
        """As `CallObserver` says."""
        release = call.queue.sending
        assert release is not None
        if self._endpoint and release.reply:
            self._write_reply(layout.unpack_reply(release.reply))
        if self._transport:
            detail = b"reply %d bytes, records %d bytes" % (len(release.reply), len(release.audit))
            self.lines.write(
                "transport",
                "release",
                detail,
                seq=release.seq,
                number=release.next,
                size=len(release.reply),
            )

    def _write_reply(self, reply: Reply) -> None:
        payload = b"" if reply.keepalive else reply.data
        parts = ["no outputs"]
        if reply.next > reply.number:
            parts = [f"outputs {reply.number} to {reply.next - 1}"]
        parts += ["keepalive"] if reply.keepalive else []
        parts += [f"dispatch to {reply.dispatch.upstream}"] if reply.dispatch is not None else []
        parts += [f"status {reply.status}"] if reply.status else []
        parts += [f"end {reply.end}"] if reply.end else []
        detail = ", ".join(parts).encode()
        if self.lines.most and payload:
            detail += b"\n" + self.lines.cut(payload)
        self.lines.write(
            "endpoint",
            "release",
            detail,
            seq=reply.processed,
            number=reply.next,
            size=len(payload),
        )

    def answered(self, call: OwnedCall) -> None:
        """As `CallObserver` says."""
        if self._transport:
            queue = call.queue
            self.lines.write("transport", "answered", seq=queue.recorded, number=queue.released)

    # --- what is noted, the end ---

    def noted(self, kind: str, detail: str) -> None:
        """As `CallObserver` says."""
        if self._endpoint:
            self.lines.write("endpoint", "event", f"{kind}: {detail}".encode(errors="replace"))

    def ended(self, call: OwnedCall, reason: str, relayed: int, records: Sequence[Record]) -> None:
        """As `CallObserver` says."""
        if not self._endpoint:
            return
        inbox, released = call.inbox, call.queue.released
        totals = (
            f"{reason}: {inbox.expected - 1 - inbox.chunkless} chunks in, {released} outputs"
            f" released, {relayed} relayed, {len(records)} records with the end"
        )
        self.lines.write(
            "endpoint", "end", totals.encode(), seq=inbox.expected - 1, number=released
        )

    def lost(self, call: OwnedCall, outcome: bytes) -> None:
        """As `CallObserver` says."""
        if self._endpoint:
            self.lines.write("endpoint", "lost", outcome, number=call.queue.released)
