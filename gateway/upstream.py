"""Sends approved requests upstream and puts what comes back onto the call's stream. Holds the
provider credentials.

Where a request goes, with which headers and key, comes from the configuration alone. Never retried,
but where a kept connection had ended before it was used; redirects are not followed; the answer is
split into SSE events by bytes and otherwise untouched.
"""

import asyncio
import contextlib
import logging
import math
import re
import time
from collections.abc import Mapping
from functools import partial
from typing import NoReturn
from urllib.parse import urlsplit

from demo.server import DemoServer
from gateway import call_figures
from gateway.admission import Shares
from gateway.bus import Bus
from gateway.call.calls import OpenCall
from gateway.call.compressed_answer import CompressedAnswer
from protocol.bounds import DEMO_BODY_BYTES, MAX_KEPT_HEADS, SCRIPT_BODY_BYTES
from protocol.bytes import eventstream
from protocol.bytes.compressed import CODINGS
from protocol.bytes.sse import EventSplitter
from protocol.dialects.base import Dialect
from protocol.dialects.table import DIALECTS
from protocol.errors import (
    NotFound,
    Overloaded,
    PipelineError,
    RateLimited,
    RemoteProtocolError,
    RequestError,
    TooLarge,
    UpstreamUnreachable,
)
from providers.breaker import OUTCOMES, Breakers, Permit
from providers.doors.plain import Door, Splitter
from providers.doors.table import open_door
from providers.endpoints import provider_key
from providers.http1 import Pool, UpstreamConnection
from providers.origin import Origin
from settings.config import DEMO, SCRIPTS, Config
from streams.layout import Dispatch, EntryKind
from streams.metrics import Total

log = logging.getLogger(__name__)
SENT_AGAIN = "upstream_repeated"
"""The kind of the event in a call's record that says that its request was sent twice."""
_STREAM = b"text/event-stream"
_FRAMES = b"dei:r"
"""What an SSE stream begins with, and no JSON does: servers call streams all kinds of types."""
_BLANK = b"\xef\xbb\xbf \t\r\n"
_RETRY = re.compile(rb"x-should-retry (?:true|false)|retry-after-ms [0-9.]{1,12}")
_LIMIT = re.compile(rb"(?:anthropic-|x-)ratelimit-[a-z0-9-]{1,60} [!-~][ -~]{0,99}")
_MOST_WHY = 300
_KIND = re.compile(rb"[A-Za-z0-9_.]{1,80}")
"""What may be the name of an error."""


class _TooLarge(PipelineError):
    """The answer is past `limits.output_bytes`."""

    code = "upstream_too_large"


class Upstreams:
    """The configured providers and the built-in models, with one connection pool. `scripts_dir`:
    where the scripted model's files are."""

    def __init__(self, config: Config, bus: Bus, scripts_dir: str = "") -> None:
        self._config, self._limits, self._bus = config, config.limits, bus
        self._doors = {name: open_door(u) for name, u in config.upstreams.items()}
        for door in self._doors.values():
            if door.upstream.compress:
                door.headers["accept-encoding"] = "gzip"
        self._shares = {
            name: Shares(u.calls) for name, u in config.upstreams.items() if u.calls is not None
        }
        self._places = {DEMO: "the demo model"} | dict.fromkeys(SCRIPTS, "the scripted model")
        self._places |= {name: _place_of(door.base()) for name, door in self._doors.items()}
        self._demo, self._scripts_dir = DemoServer(), scripts_dir
        self._scripts = DemoServer("the scripted model", scripts_dir)
        self._heads = dict[tuple[str, ...], tuple[Origin, bytes]]()
        self._breakers = Breakers(bus.gateway)
        bus.figures.reads.append(lambda: call_figures.states(self.states))
        self._pool = Pool(
            connect_s=self._limits.connect_s,
            first_byte_s=self._limits.first_byte_s,
            idle_s=self._limits.idle_s,
        )

    @property
    def connections(self) -> int:
        """How many are open."""
        return self._pool.size

    @property
    def states(self) -> dict[str, int]:
        """Whether each upstream that was asked may be asked: as `providers.breaker` has it."""
        return self._breakers.states(time.monotonic())

    async def close(self) -> None:
        """Close the pool and what is open in it."""
        await self._pool.close()
        for door in self._doors.values():
            await door.close()
        await self._demo.close()
        await self._scripts.close()

    async def send(self, call: OpenCall, dispatch: Dispatch) -> None:
        """Send one approved request and append its answer; every ending is appended, none raises
        but cancellation."""
        try:
            await self._send(call, dispatch)
            return
        except RequestError as error:
            # as if the provider had answered so: the worker tells the client, and the record has it
            body = DIALECTS[dispatch.dialect].error_body(error)
            self._append(
                call,
                "status",
                [body],
                number=error.http_status,
                text=str(error.retry_after_s or ""),
            )
            return
        except PipelineError as error:
            code, why = error.error_code, f"{self._place(dispatch)}: {_why(error)}"
            call_figures.failed(self._bus.figures, error)
            log.warning(
                "upstream failed",
                extra={
                    "call_id": call.id,
                    "upstream": dispatch.upstream,
                    "error": code,
                    "why": why,
                },
            )
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the top of a call: whatever broke, its stream must show it
            log.error(
                "upstream failed",
                extra={
                    "call_id": call.id,
                    "upstream": dispatch.upstream,
                    "error": type(error).__name__,
                },
            )
            code, why = UpstreamUnreachable.code, f"{self._place(dispatch)}: {type(error).__name__}"
        self._append(call, "failed", [why.encode(errors="replace")], text=code)

    def _append(
        self,
        call: OpenCall,
        kind: EntryKind,
        chunks: list[bytes] | None = None,
        *,
        number: int = 0,
        text: str = "",
    ) -> None:
        call.appender.append(kind, chunks, number=number, text=text)
        self._bus.append(call)

    async def _send(self, call: OpenCall, dispatch: Dispatch) -> None:
        name = dispatch.upstream
        shares = self._shares.get(name)
        if shares is not None and shares.take(call.key) is not None:
            most = (
                f"{shares.of(call.key)} of the {shares.total} requests that the upstream {name!r}"
                " gets at once"
            )
            raise RateLimited(
                f"this key has used its share, {most}; try again in 1 second", retry_after_s=1
            )
        door = self._doors.get(name)
        answer = _Answer(call, self._bus, door, DIALECTS[dispatch.dialect])
        try:
            if door is not None and door.upstream.breaker:
                permit = self._breakers.ask(name, call.key, time.monotonic())
                answer.permit = permit if isinstance(permit, Permit) else self._refuse(name, permit)
            answer.upstream = name
            if door is not None and not door.is_fixed:
                await self._send_through(door, call, dispatch, answer)
                return
            origin, head = (
                await self._built_in_head(call, dispatch)
                if name == DEMO or name in SCRIPTS
                else self._head(dispatch)
            )
            await self._pool.post(
                origin,
                head,
                call.take_body(),
                answer,
                when_again=answer.on_again if call.repeats else None,
            )
            if answer.compressed is not None:
                await answer.finish()
            if answer.status == 401:
                self._log_refusal(call, name)
        except PipelineError as error:
            answer.came_to(error.error_code)
            raise
        except asyncio.CancelledError:
            answer.came_to("cancelled")
            raise
        finally:
            answer.leave()
            if shares is not None:
                shares.give_back(call.key)

    def _refuse(self, name: str, rest_s: float) -> NoReturn:
        """Raises Overloaded: this upstream has failed too often to be asked now."""
        after_s = math.ceil(rest_s)
        self._bus.figures.add(Total.UPSTREAM_FAILURES, name, "left_alone")
        raise Overloaded(
            f"the upstream {name!r} failed too often and is left alone for a while; try again in"
            f" {after_s} second{'s' if after_s != 1 else ''}",
            code="upstream_unavailable",
            retry_after_s=after_s,
        )

    async def _send_through(
        self, door: Door, call: OpenCall, dispatch: Dispatch, answer: "_Answer"
    ) -> None:
        """Send a request whose head is made for it alone; once more where the provider says that
        what let it in has expired, and there is something newer."""
        # only until the answer begins: agents send megabytes
        answer.asked = call.take_body()
        for may_renew in (True, False):
            sent = await door.request(dispatch.endpoint, answer.asked, dispatch.betas)
            answer.let_in = sent.let_in if may_renew else None
            when_again = answer.on_again if call.repeats else None
            posting = self._pool.post(
                sent.origin, sent.head, sent.body, answer, when_again=when_again
            )
            del sent
            await posting
            if not answer.is_stale:
                break
            answer.begin_again()
        if answer.compressed is not None:
            await answer.finish()
        if answer.status in (401, 403):
            self._log_refusal(call, dispatch.upstream)

    def _place(self, dispatch: Dispatch) -> str:
        return self._places.get(dispatch.upstream, "not an upstream of this gateway")

    def _log_refusal(self, call: OpenCall, name: str) -> None:
        """Say whose key was refused, and whether there is one: only here is it known."""
        if (upstream := self._config.upstreams.get(name)) is not None:
            details: dict[str, object] = {"key_from": upstream.key_place}
            if self._doors[name].is_fixed:
                details["key_is_set"] = bool(provider_key(upstream))
            log.warning(
                "upstream refused the key", extra={"call_id": call.id, "upstream": name, **details}
            )

    async def _built_in_head(self, call: OpenCall, dispatch: Dispatch) -> tuple[Origin, bytes]:
        is_demo = dispatch.upstream == DEMO
        if len(call.body) > (most := DEMO_BODY_BYTES if is_demo else SCRIPT_BODY_BYTES):
            raise TooLarge(
                f"{self._places[dispatch.upstream]} takes request bodies up to {most} bytes"
            )
        if not is_demo and not self._scripts_dir:
            raise NotFound(
                "there are no scripts here: SLUICE_SCRIPTS_DIR of this gateway is not set",
                code="model_not_found",
                param="model",
            )
        origin = Origin(await (self._demo if is_demo else self._scripts).url())
        return origin, origin.head(
            f"/{dispatch.dialect}/{dispatch.endpoint.partition(' ')[0]}",
            {"content-type": "application/json"},
        )

    def _head(self, dispatch: Dispatch) -> tuple[Origin, bytes]:
        """Where the request goes, and its head; made once for each provider, path (with its model)
        and set of betas."""
        door = self._doors[dispatch.upstream]
        extra = door.betas(dispatch.betas)
        known = (dispatch.upstream, dispatch.endpoint, *extra.values())
        if known not in self._heads:
            if len(self._heads) >= MAX_KEPT_HEADS:
                self._heads.clear()
            self._heads[known] = door.head(dispatch.endpoint, extra)
        return self._heads[known]


class _Answer:
    """Puts one answer onto its call's stream as it comes: events of a stream, else the whole body
    at its end."""

    def __init__(self, call: OpenCall, bus: Bus, door: Door | None, dialect: Dialect) -> None:
        self._call, self._bus, self._door, self._dialect = call, bus, door, dialect
        self._most, self._mark = bus.limits.output_bytes, bus.limits.unsent_bytes
        self.status, self._retry_after, self._note = 0, "", ""
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
            self._bus.figures.add(Total.UPSTREAM_FAILURES, self.upstream, meaning)

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
        permit = self.permit
        if status != 200 or (permit is not None and not permit.is_calm()):
            self.came_to(str(status))
        self._retry_after = headers.get(b"retry-after", b"").decode("latin-1")
        self._call.upstream_headers = _passed_headers(
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
        most = 6 * self._bus.limits.event_bytes
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
            self.compressed = CompressedAnswer(coding, take, self._call.flow, self._mark)
        elif self.status == 200 and coding not in ("", "identity"):
            raise RemoteProtocolError(
                "the upstream compressed its answer in a way that Sluice did not ask for",
                code="upstream_encoding",
            )

    def on_data(
        self, data: bytes, line: UpstreamConnection | None = None, *, is_opened: bool = False
    ) -> None:
        """Take some of the body; `is_opened`: it came compressed and is plain now. Raises
        _TooLarge, RemoteProtocolError."""
        if self.compressed is not None and not is_opened:
            self.compressed.feed(data, line)
            if self.compressed.came > self._most:
                # it may open to nothing
                raise _TooLarge("the upstream's answer is larger than the limit")
            return
        call = self._call
        if call.flow.receive(len(data)) > self._most:
            raise _TooLarge("the upstream's answer is larger than the limit")
        if self._may_stream and (data := data.lstrip(_BLANK)):
            self._may_stream = False
            if data[0] in _FRAMES:
                self._splitter = EventSplitter(6 * self._bus.limits.event_bytes)
        if self._splitter is None:
            self._body.append(data)
        elif events := self._splitter.feed(data):
            call.received += len(events)
            call.appender.append("chunks", events)
            self._bus.append(call)
            if line is not None and call.flow.backlog_bytes() > self._mark:
                line.pause()
                call.when_room(self._mark, line.resume)

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
                call.received += len(remainder)
                call.appender.append("chunks", remainder)
            call.appender.append("eof", text=self._note)
        elif self.status == 200:
            call.received += 1
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
                text=self._retry_after,
            )
        self._bus.append(call)

    def leave(self) -> None:
        """Nothing of this answer follows; its connection may be another call's by now."""
        if self.compressed is not None:
            self.compressed.leave()
        self._call.flow.forget_room()

    async def finish(self) -> None:
        """Take the rest of a compressed answer, of which all came. Raises _TooLarge,
        RemoteProtocolError."""
        if self.compressed is not None and not self.is_stale:
            await self.compressed.finish()
            self.compressed = None
            self.on_end()


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


def _place_of(base_url: str) -> str:
    """Where an upstream is, as the record and the log may show it: without a login that the address
    may hold."""
    with contextlib.suppress(ValueError):
        url = urlsplit(base_url)
        if url.hostname:
            return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
    return "its base_url"


def _why(error: PipelineError) -> str:
    """Return the network's error for the audit log and the log: addresses and certificates are not
    secret, and it contains no key."""
    return (str(error.__cause__ or "") or error.message)[:_MOST_WHY]
