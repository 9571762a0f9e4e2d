"""Sends approved requests upstream and puts what comes back onto the call's stream. Holds the provider credentials.

Where a request goes, with which headers and key, comes from the configuration alone. Never retried; redirects are
not followed; the answer is split into SSE events by bytes and otherwise untouched.
"""

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

from gateway import betas, demo
from gateway.bus import Bus
from gateway.calls import OpenCall
from gateway.demo_wire import CLOCK
from protocol.config import DEMO, Config, Upstream
from protocol.errors import PipelineError
from protocol.sse import EventSplitter
from providers.http1 import Line, Origin, Pool
from streams.layout import Dispatch, EntryKind

log = logging.getLogger(__name__)
_PATHS = {"chat": "/chat/completions", "messages": "/v1/messages", "count_tokens": "/v1/messages/count_tokens"}
_STREAM = b"text/event-stream"
_MAX_HEADS = 1000
"""How many ready request heads are kept: clients name betas, so there is no end to them."""


class _TooLarge(PipelineError):
    """The answer is past `limits.output_bytes`."""

    code = "upstream_too_large"


def provider_key(upstream: Upstream) -> str:
    """Return the provider's key from where the configuration says it is, or an empty string."""
    if upstream.api_key_file:
        return Path(upstream.api_key_file).read_text(encoding="utf-8").strip()
    return os.environ.get(upstream.api_key_env or "", "")


def _headers(upstream: Upstream) -> dict[str, str]:
    configured = {name.lower(): value for name, value in upstream.headers.items()}
    headers = {"content-type": "application/json", "accept-encoding": "identity", **configured}
    if key := provider_key(upstream):
        if upstream.dialect == "anthropic":
            headers["x-api-key"] = key
        else:
            headers["authorization"] = f"Bearer {key}"
    if upstream.dialect == "anthropic":
        headers.setdefault("anthropic-version", "2023-06-01")
    return headers


class Upstreams:
    """The configured providers and the built-in `demo`, with one connection pool."""

    def __init__(self, config: Config, bus: Bus) -> None:
        self._config, self._limits, self._bus = config, config.limits, bus
        self._headers = {name: _headers(u) for name, u in config.upstreams.items()}
        self._keys = {name: provider_key(u).encode() for name, u in config.upstreams.items()}
        self._heads = dict[tuple[str, str, str], tuple[Origin, bytes]]()
        self._pool = Pool(connect_s=self._limits.connect_s, first_byte_s=self._limits.first_byte_s, idle_s=self._limits.idle_s)

    async def close(self) -> None:
        """Close the pool and what is open in it."""
        await self._pool.close()

    async def send(self, call: OpenCall, dispatch: Dispatch) -> None:
        """Send one approved request and append its answer; every ending is appended, none raises but cancellation."""
        code = ""
        try:
            if dispatch.upstream == DEMO:
                await self._send_demo(call, dispatch)
            else:
                await self._send_http(call, dispatch)
            return
        except PipelineError as error:
            log.warning("upstream failed", extra={"call_id": call.id, "upstream": dispatch.upstream, "error": type(error).__name__})
            code = error.error_code
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the top of a call: whatever broke, its stream must be told
            log.error("upstream failed", extra={"call_id": call.id, "upstream": dispatch.upstream, "error": type(error).__name__})
            code = "upstream_unreachable"
        self._append(call, "failed", text=code)

    def _append(self, call: OpenCall, kind: EntryKind, chunks: list[bytes] | None = None, *, number: int = 0, text: str = "") -> None:
        call.append(kind, chunks, number=number, text=text)
        self._bus.append(call)

    async def _send_http(self, call: OpenCall, dispatch: Dispatch) -> None:
        origin, head = self._head(dispatch)
        answer = _Answer(call, self._bus, self._keys[dispatch.upstream])
        try:
            await self._pool.post(origin, head, call.take_body(dispatch), answer)
        finally:
            answer.leave()

    def _head(self, dispatch: Dispatch) -> tuple[Origin, bytes]:
        """Where the request goes, and its head; made once for each provider, path and set of betas."""
        upstream = self._config.upstreams[dispatch.upstream]
        headers, extra = self._headers[dispatch.upstream], ""
        if upstream.dialect == "anthropic" and dispatch.betas:
            extra = betas.joined(headers.get("anthropic-beta", ""), dispatch.betas)
        known = (dispatch.upstream, dispatch.endpoint, extra)
        if known not in self._heads:
            base = upstream.base_url.rstrip("/")
            origin = Origin(base.removesuffix("/v1") if upstream.dialect == "anthropic" else base)
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[known] = origin, origin.head(_PATHS[dispatch.endpoint], headers | {"anthropic-beta": extra} if extra else headers)
        return self._heads[known]

    async def _send_demo(self, call: OpenCall, dispatch: Dispatch) -> None:
        script = demo.script(dispatch.dialect, dispatch.endpoint, call.take_body(dispatch))
        answer = _Answer(call, self._bus, b"")
        answer.on_head(script.status, {b"content-type": script.content_type.encode(), b"retry-after": (script.retry_after or "").encode()})
        for delay_s, data in script.steps:
            if delay_s:
                await asyncio.sleep(delay_s)
            answer.on_data(data.replace(CLOCK, b"@%d;" % time.monotonic_ns()) if CLOCK in data else data)
            await call.room(self._limits.unsent_bytes)
        answer.on_end()


class _Answer:
    """Puts one answer onto its call's stream as it comes: events of a stream, else the whole body at its end."""

    def __init__(self, call: OpenCall, bus: Bus, key: bytes) -> None:
        self._call, self._bus, self._key = call, bus, key
        self._most, self._mark = bus.limits.output_bytes, bus.limits.unsent_bytes
        self._status, self._retry_after = 0, ""
        self._splitter: EventSplitter | None = None
        self._body: list[bytes] = []

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Decide by status and content type what this answer is."""
        self._status = status
        self._retry_after = headers.get(b"retry-after", b"").decode("latin-1")
        if status == 200 and headers.get(b"content-type", b"").startswith(_STREAM):
            self._splitter = EventSplitter(limits_bytes(self._bus.limits.event_bytes))

    def on_data(self, data: bytes, line: Line | None = None) -> None:
        """Take some of the body. Raises _TooLarge, RemoteProtocolError."""
        call = self._call
        call.received_bytes += len(data)
        if call.received_bytes > self._most:
            raise _TooLarge("the upstream's answer is past the limit")
        if self._splitter is None:
            self._body.append(data)
        elif events := self._splitter.feed(data):
            call.append("chunks", events)
            self._bus.append(call)
            if line is not None and call.backlog_bytes() > self._mark:
                line.pause()
                call.when_room(self._mark, line.resume)

    def on_end(self) -> None:
        """The answer is complete."""
        call = self._call
        call.forget_room()
        if self._splitter is not None:
            if rest := self._splitter.finish():
                call.append("chunks", rest)
            call.append("eof")
        elif self._status == 200:
            call.append("body", [b"".join(self._body)])
        else:
            said = b"".join(self._body)
            # providers repeat the key that they refuse, in the error that a client is told and the record keeps
            said = said.replace(self._key, b"[key]") if self._key else said
            call.append("status", [said], number=self._status, text=self._retry_after)
        self._bus.append(call)

    def leave(self) -> None:
        """Nothing of this answer follows; its connection may be another call's by now."""
        self._call.forget_room()


def limits_bytes(event_bytes: int) -> int:
    """Bytes one SSE event may have: its JSON escapes can take six times what they mean."""
    return event_bytes * 6
