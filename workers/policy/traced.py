"""A call that has debug lines: the same as any other, and its input, decisions and releases are
written down.

Calls without lines are of the class that this derives from.
"""

import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import msgspec

from policy.base import Block, OtherBlock, Replace, TextBlock, ToolCall
from protocol.debug import ENDPOINT, TRANSPORT
from protocol.errors import PipelineError
from protocol.records import Record
from streams.debug_lines import CallLineWriter
from streams.layout import Entry, Reply
from workers.policy.call import OwnedCall
from workers.policy.rendered import Release

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


Told = TypeVar("Told", bound=Callable[..., None])


def _harmless(tell: Told) -> Told:
    """What goes wrong while a line is made is nothing that the call should notice: not even its
    session may be as it was."""

    @wraps(tell)
    def wrapper(self: "TracedCall", *args: Any) -> None:
        try:
            tell(self, *args)
        except Exception as error:  # noqa: BLE001 - no line is worth a call
            self.lines.write("endpoint", "trace_failed", type(error).__name__.encode())

    return cast("Told", wrapper)


class TracedCall(OwnedCall):
    """A claimed call whose steps are written down."""

    def __init__(self, lines: CallLineWriter, *args: Any, **options: Any) -> None:
        self.lines, self._is_replayed = lines, False
        self._transport, self._endpoint = bool(lines.mask & TRANSPORT), bool(lines.mask & ENDPOINT)
        super().__init__(*args, **options)
        if self._endpoint:
            self.lines.write(
                "endpoint",
                "claim",
                f"token {self.token[:8]}, policy {self.policy_header}".encode(),
                number=self.released,
            )

    @property
    def replaying(self) -> bool:
        """Is it replayed after a takeover? Its lines say so."""
        return self._is_replayed

    @replaying.setter
    def replaying(self, value: bool) -> None:
        self._is_replayed = value
        self.lines.before = b"replayed; " if value else b""

    # --- in ---

    def begin(self, body: bytes | None) -> None:
        """As without lines."""
        began = time.perf_counter_ns()
        super().begin(body)
        if self._endpoint:
            self._tell_request(len(body or b""), _since(began))

    @_harmless
    def _tell_request(self, size: int, took_us: int) -> None:
        request = self.session.request
        asked = (
            f"{request.model}, {'stream' if request.stream else 'whole'}"
            if request is not None
            else "not read"
        )
        self.lines.write(
            "endpoint",
            "request",
            f"{asked}, {self.session.state}".encode(errors="replace"),
            size=size,
            duration_us=took_us,
        )

    def refuse(self, error: PipelineError) -> None:
        """As without lines."""
        if self._endpoint:
            self.lines.write("endpoint", "refused", error.error_code.encode())
        super().refuse(error)

    def feed_entry(self, entry: Entry) -> bool:
        """As without lines."""
        expected, began = self.expected, time.perf_counter_ns()
        taken = super().feed_entry(entry)
        self._tell_entry(entry, expected, taken, _since(began))
        return taken

    @_harmless
    def _tell_entry(self, entry: Entry, expected: int, taken: bool, took_us: int) -> None:
        size = sum(map(len, entry.chunks))
        if self._transport:
            how = (
                "again"
                if entry.seq < expected
                else "in order"
                if taken
                else f"gap, expected {expected}"
            )
            self.lines.write(
                "transport",
                "read",
                f"{entry.kind} {how}".encode(),
                seq=entry.seq,
                number=entry.next_seq,
                size=size,
            )
        if self._endpoint and taken and entry.seq >= expected:
            waiting = f"{len(self._outputs)} outputs wait, {self.session.held_bytes} bytes held {entry.text}".rstrip().encode(
                errors="replace"
            )
            if self.lines.most:
                waiting += b"\n" + self.lines.cut(
                    b"".join(entry.chunks) if len(entry.chunks) != 1 else entry.chunks[0]
                )
            self.lines.write(
                "endpoint",
                entry.kind,
                waiting,
                seq=entry.seq,
                number=entry.next_seq,
                size=size,
                duration_us=took_us,
            )

    def feed_fact(self, field: str, value: bytes, at: int) -> None:
        """As without lines."""
        if self._endpoint:
            self.lines.write("endpoint", "fact", field.encode(), size=len(value))
        super().feed_fact(field, value, at)

    def collect(self) -> None:
        """As without lines."""
        asks, waits = len(self.new_asks), len(self.new_waits)
        super().collect()
        if self._endpoint:
            for ask in self.new_asks[asks:]:
                self.lines.write(
                    "endpoint",
                    "ask",
                    f"step {ask.step}, {ask.question.model}".encode(errors="replace"),
                    block=ask.block,
                )
            for block in self.new_waits[waits:]:
                self.lines.write("endpoint", "commit", b"waits for its record", block=block)

    # --- out ---

    def _reply(self, number: int, following: int) -> tuple[Reply | None, bytes]:
        reply, payload = super()._reply(number, following)
        if self._endpoint and reply is not None:
            self._tell_reply(reply, payload, number, following)
        return reply, payload

    @_harmless
    def _tell_reply(self, reply: Reply, payload: bytes, number: int, following: int) -> None:
        parts = [f"outputs {number} to {following - 1}" if following > number else "no outputs"]
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
            seq=self.expected - 1,
            number=following,
            size=len(payload),
        )

    def _build_release(self, now_ms: int) -> Release:
        release = super()._build_release(now_ms)
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
        return release

    def answered(self) -> None:
        """As without lines."""
        super().answered()
        if self._transport:
            self.lines.write("transport", "answered", seq=self.recorded, number=self.released)

    def refused(self, outcome: bytes) -> None:
        """Redis refused a release or a renewal for good."""
        if self._endpoint:
            self.lines.write("endpoint", "lost", outcome, number=self.released)

    # --- what is noted, the end ---

    def note(self, kind: str, number: int, detail: str, now_ms: int) -> None:
        """As without lines."""
        super().note(kind, number, detail, now_ms)
        if self._endpoint:
            self.lines.write("endpoint", "event", f"{kind}: {detail}".encode(errors="replace"))

    def end_records(self, reason: str, relayed: int, now_ms: int) -> list[Record]:
        """As without lines."""
        records: Sequence[Record] = super().end_records(reason, relayed, now_ms)
        if self._endpoint:
            came = self.expected - 1 - self._chunkless
            totals = (
                f"{reason}: {came} chunks in, {self.released} outputs released, {relayed} relayed,"
                f" {len(records)} records with the end"
            )
            self.lines.write(
                "endpoint", "end", totals.encode(), seq=self.expected - 1, number=self.released
            )
        return [*records]


def _since(began: int) -> int:
    return (time.perf_counter_ns() - began) // 1000
