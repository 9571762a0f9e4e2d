"""One answer of an upstream: put onto its call's stream as it comes, split into events by bytes and
otherwise untouched.

Must not know: where requests go.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping
from functools import partial

from gateway.call.calls import OpenCall
from gateway.call.compressed_answer import CompressedAnswer
from protocol.bytes import eventstream
from protocol.bytes.compressed import CODINGS
from protocol.bytes.sse import EventSplitter
from protocol.dialects.base import Dialect
from protocol.errors import PipelineError, RemoteProtocolError
from providers.breaker import OUTCOMES, Permit
from providers.doors.plain import Door, Splitter
from providers.http1 import UpstreamConnection
from settings.limits import Limits
from streams.metrics import ProcessFigures, Total

log = logging.getLogger(__name__)
SENT_AGAIN = "upstream_repeated"
"""The kind of the event in a call's record that says that its request was sent twice."""
_STREAM = b"text/event-stream"
_FRAMES = b"dei:r"
"""What an SSE stream begins with, and no JSON does: servers call streams all kinds of types."""
_BLANK = b"\xef\xbb\xbf \t\r\n"
_RETRY = re.compile(rb"x-should-retry (?:true|false)|retry-after-ms [0-9.]{1,12}")
_MS = re.compile(rb"([0-9]{1,9})(?:\.[0-9]*)?")
_LIMIT = re.compile(rb"(?:anthropic-|x-)ratelimit-[a-z0-9-]{1,60} [!-~][ -~]{0,99}")
_KIND = re.compile(rb"[A-Za-z0-9_.]{1,80}")
"""What may be the name of an error."""


class UpstreamTooLarge(PipelineError):
    """The answer is past `limits.output_bytes`."""

    code = "upstream_too_large"


class UpstreamAnswer:
    """Puts one answer onto its call's stream as it comes: events of a stream, else the whole body
    at its end."""

    def __init__(
        self,
        call: OpenCall,
        push: Callable[[OpenCall], None],
        limits: Limits,
        figures: ProcessFigures,
        door: Door | None,
        dialect: Dialect,
    ) -> None:
        self._call, self._push, self._door, self._dialect = call, push, door, dialect
        self._limits, self._figures = limits, figures
        self.when_begun: Callable[[], None] | None = None
        """Called when an answer of status 200 begins."""
        self.status, self._note = 0, ""
        self.compressed: CompressedAnswer | None = None
        self._error_kind = b""
        self._splitter: Splitter | None = None
        self._may_stream = False
        """May it be a stream though its content type does not say so?"""
        self._body: list[bytes] = []
        self.asked = b""
        """The request's body, until it is known that it need not be sent once more."""
        self.let_in: object = None
        """What the request was let in with, where it may be sent once more with something newer."""
        self.is_stale = False
        self._head: Mapping[bytes, bytes] = {}
        self.permit: Permit | None = None
        self.upstream = ""

    def came_to(self, outcome: str) -> None:
        """Count a code of a failure, or a status, and tell the upstream's breaker."""
        if self.permit is not None:
            self.permit.done(outcome, time.monotonic())
        if outcome != "200" and self.upstream:
            meaning = OUTCOMES.get(outcome, "neutral")
            self._figures.add(Total.UPSTREAM_FAILURES, self.upstream, meaning)

    def on_again(self) -> None:
        """The request is sent once more: the provider had closed the kept connection."""
        log.info(
            "request sent again on a new connection, as the kept one had ended",
            extra={"call_id": self._call.id},
        )
        self._note = SENT_AGAIN

    def begin_again(self) -> None:
        """What let the request in had expired; another answer follows."""
        log.info(
            "request sent again, as what let it in had expired", extra={"call_id": self._call.id}
        )
        self._note, self.is_stale, self._body = SENT_AGAIN, False, []

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Decide by status and content type what this answer is."""
        self.status, self._head = status, headers if status != 200 else {}
        self.is_stale = (
            self._door is not None
            and self.let_in is not None
            and self._door.is_stale(status, headers, self.let_in)
        )
        if not self.is_stale:
            self.asked = b""
        if status == 200:
            if self.when_begun is not None:
                self.when_begun()
            if self._call.budget is not None:
                self._call.budget.begins()
        permit = self.permit
        if status != 200 or (permit is not None and not permit.is_calm()):
            self.came_to(str(status))
        self._call.order.upstream_headers = _passed_headers(
            status,
            headers,
            with_limits=self._door is not None and self._door.upstream.limit_headers,
        )
        if (coding := headers.get(b"content-encoding")) is not None:
            self._open(coding.strip().lower().decode("latin-1"))
        if self._dialect.error_kind_header:
            self._error_kind = headers.get(self._dialect.error_kind_header.encode(), b"").partition(
                b":"
            )[0]
        if status != 200:
            return
        wraps = self._door.splitter if self._door is not None else None
        framing, content_type = self._dialect.framing, headers.get(b"content-type", b"").lower()
        # arguments of `event_bytes`, of which each byte can be an escape of six
        most = 6 * self._limits.event_bytes
        is_eventstream = content_type.startswith(eventstream.CONTENT_TYPE)
        if wraps is not None and is_eventstream:
            self._splitter = wraps(most)
        elif framing == "sse" and content_type.startswith(_STREAM):
            self._splitter = EventSplitter(most)
        elif framing == "eventstream" and is_eventstream:
            self._splitter = eventstream.EventStreamSplitter(most)
        else:
            self._may_stream = framing == "sse" and wraps is None

    def _open(self, coding: str) -> None:
        """Take an answer of this coding. Raises RemoteProtocolError for an unknown one."""
        if coding in CODINGS:
            take = partial(self.on_data, is_opened=True)
            self.compressed = CompressedAnswer(
                coding, take, self._call.flow, self._limits.unsent_bytes
            )
        elif self.status == 200 and coding not in ("", "identity"):
            raise RemoteProtocolError(
                "the upstream compressed its answer in a way that Sluice did not ask for",
                code="upstream_encoding",
            )

    def on_data(
        self, data: bytes, line: UpstreamConnection | None = None, *, is_opened: bool = False
    ) -> None:
        """Take some of the body; `is_opened`: it came compressed and is plain now. Raises
        UpstreamTooLarge, RemoteProtocolError."""
        if self.compressed is not None and not is_opened:
            self.compressed.feed(data, line)
            if self.compressed.came > self._limits.output_bytes:
                # it may open to nothing
                raise UpstreamTooLarge("the upstream's answer is larger than the limit")
            return
        call = self._call
        if call.flow.receive(len(data)) > self._limits.output_bytes:
            raise UpstreamTooLarge("the upstream's answer is larger than the limit")
        if self._may_stream and (data := data.lstrip(_BLANK)):
            self._may_stream = False
            if data[0] in _FRAMES:
                self._splitter = EventSplitter(6 * self._limits.event_bytes)
        if self._splitter is None:
            self._body.append(data)
        elif events := self._splitter.feed(data):
            call.flow.chunks += len(events)
            call.appender.append("chunks", events)
            self._push(call)
            if line is not None and call.flow.backlog_bytes() > self._limits.unsent_bytes:
                line.pause()
                call.when_room(self._limits.unsent_bytes, line.resume)

    def on_end(self) -> None:
        """The answer is complete."""
        call = self._call
        call.flow.forget_room()
        if self.compressed is not None:
            # the rest of it is opened first
            self.compressed.leave()
            return
        if self.is_stale:
            return
        if self._splitter is not None:
            if remainder := self._splitter.finish():
                call.flow.chunks += len(remainder)
                call.appender.append("chunks", remainder)
            call.appender.append("eof", text=self._note)
        elif self.status == 200:
            call.flow.chunks += 1
            call.appender.append("body", [b"".join(self._body)], text=self._note)
        else:
            answer = b"".join(self._body)
            if self._door is not None:
                # providers repeat the key that they refuse, in the error that a client gets and the
                # record keeps
                for secret in self._door.secrets:
                    answer = answer.replace(secret, b"[key]")
                answer = self._door.error(self.status, self._head, answer)
            call.appender.append(
                "status",
                [_with_kind(answer, self._error_kind)],
                number=self.status,
                text=_asked_wait(self._head),
            )
        self._push(call)

    def leave(self) -> None:
        """Nothing of this answer follows; its connection may be another call's by now."""
        if self.compressed is not None:
            self.compressed.leave()
        self._call.flow.forget_room()

    async def finish(self) -> None:
        """Take the rest of a compressed answer, of which all came. Raises UpstreamTooLarge,
        RemoteProtocolError."""
        if self.compressed is not None and not self.is_stale:
            await self.compressed.finish()
            self.compressed = None
            self.on_end()


def _asked_wait(headers: Mapping[bytes, bytes]) -> str:
    """Return the provider's Retry-After, in its own form; whole seconds, rounded up, if it says
    milliseconds."""
    exact = _MS.fullmatch(headers.get(b"retry-after-ms", b""))
    if exact is not None:
        return str(-(-int(exact[1]) // 1000))
    return headers.get(b"retry-after", b"").decode("latin-1")


def _passed_headers(
    status: int, headers: Mapping[bytes, bytes], *, with_limits: bool
) -> dict[str, str]:
    """Return those headers of an upstream's answer that its client is sent, each held to a form
    that says nothing else."""
    if status == 200 and not with_limits:
        return {}
    forms = [_RETRY] * (status != 200) + [_LIMIT] * with_limits
    lines = [
        (name, value)
        for name, value in headers.items()
        if any(form.fullmatch(b"%b %b" % (name, value)) for form in forms)
    ]
    return {name.decode(): value.decode() for name, value in lines}


def _with_kind(answer: bytes, kind: bytes) -> bytes:
    """Return an error answer with its kind, which came in a header alone: a worker sees the body,
    and the record keeps it."""
    remainder = answer.lstrip()[1:].lstrip()
    if not _KIND.fullmatch(kind) or not answer.lstrip().startswith(b"{") or b'"__type"' in answer:
        return answer
    return b'{"__type":"' + kind + (b'"' if remainder.startswith(b"}") else b'",') + remainder
