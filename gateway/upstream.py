"""Sends approved requests upstream and puts what comes back onto the call's stream. Holds the provider credentials.

Where a request goes, with which headers and key, comes from the configuration alone. Never retried; redirects are
not followed; the answer is split into SSE events by bytes and otherwise untouched.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from gateway import betas, demo
from gateway.bus import Bus
from gateway.calls import OpenCall
from gateway.demo_wire import CLOCK
from protocol.config import DEMO, Config, Upstream
from protocol.errors import RemoteProtocolError
from protocol.sse import EventSplitter
from streams.layout import Dispatch

log = logging.getLogger(__name__)
_PATHS = {"chat": "/chat/completions", "messages": "/v1/messages", "count_tokens": "/v1/messages/count_tokens"}
_STREAM = "text/event-stream"


class _TooLarge(Exception):
    """The answer is past `limits.output_bytes`."""


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
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Open the pool."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect_s, sock_read=self._limits.idle_s)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        self._session = aiohttp.ClientSession(
            timeout=timeout, connector=connector, auto_decompress=False, trust_env=False, read_bufsize=256 * 1024,
            cookie_jar=aiohttp.DummyCookieJar(), skip_auto_headers=["user-agent"],
        )  # fmt: skip

    async def close(self) -> None:
        """Close the pool and what is open in it."""
        if self._session is not None:
            await self._session.close()

    async def send(self, call: OpenCall, dispatch: Dispatch) -> None:
        """Send one approved request and append its answer; every ending is appended, none raises but cancellation."""
        code = ""
        try:
            if dispatch.upstream == DEMO:
                await self._send_demo(call, dispatch)
            else:
                await self._send_http(call, dispatch)
            return
        except TimeoutError:
            code = "upstream_timeout"
        except _TooLarge:
            code = "upstream_too_large"
        except RemoteProtocolError:
            code = "upstream_protocol_error"
        except (aiohttp.ClientError, OSError) as error:
            log.warning("upstream failed", extra={"call_id": call.id, "upstream": dispatch.upstream, "error": type(error).__name__})
            code = "upstream_unreachable"
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the top of a call: whatever broke, its stream must be told
            log.error("upstream failed", extra={"call_id": call.id, "upstream": dispatch.upstream, "error": type(error).__name__})
            code = "upstream_unreachable"
        self._append(call, "failed", text=code)

    def _append(self, call: OpenCall, kind: str, chunks: list[bytes] | None = None, *, number: int = 0, text: str = "") -> None:
        call.append(kind, chunks, number=number, text=text)  # type: ignore[arg-type]
        self._bus.append(call)

    async def _send_http(self, call: OpenCall, dispatch: Dispatch) -> None:
        upstream = self._config.upstreams[dispatch.upstream]
        assert self._session is not None
        url = upstream.base_url.rstrip("/") + _PATHS[dispatch.endpoint]
        if upstream.dialect == "anthropic" and upstream.base_url.rstrip("/").endswith("/v1"):
            url = upstream.base_url.rstrip("/")[:-3] + _PATHS[dispatch.endpoint]
        headers = self._headers[dispatch.upstream]
        if upstream.dialect == "anthropic" and dispatch.betas:
            headers = headers | {"anthropic-beta": betas.joined(headers.get("anthropic-beta", ""), dispatch.betas)}
        async with asyncio.timeout(self._limits.first_byte_s):
            response = await self._session.post(url, data=call.take_body(dispatch), headers=headers, allow_redirects=False)
        async with response:
            head = response.headers
            await self._take(
                call,
                response.status,
                head.get("content-type", ""),
                head.get("retry-after", ""),
                _parts(response),
                self._keys[dispatch.upstream],
            )

    async def _send_demo(self, call: OpenCall, dispatch: Dispatch) -> None:
        script = demo.script(dispatch.dialect, dispatch.endpoint, call.take_body(dispatch))

        async def parts() -> AsyncIterator[bytes]:
            for delay_s, data in script.steps:
                if delay_s:
                    await asyncio.sleep(delay_s)
                yield data.replace(CLOCK, b"@%d;" % time.monotonic_ns()) if CLOCK in data else data

        await self._take(call, script.status, script.content_type, script.retry_after or "", parts())

    async def _take(
        self, call: OpenCall, status: int, content_type: str, retry_after: str, parts: AsyncIterator[bytes], key: bytes = b""
    ) -> None:
        if status == 200 and content_type.startswith(_STREAM):
            await self._take_stream(call, parts)
            return
        body = []
        async for data in parts:
            self._count(call, data)
            body.append(data)
        if status == 200:
            self._append(call, "body", [b"".join(body)])
        else:
            said = b"".join(body)
            # providers repeat the key that they refuse, in the error that a client is told and the record keeps
            self._append(call, "status", [said.replace(key, b"[key]") if key else said], number=status, text=retry_after)

    def _count(self, call: OpenCall, data: bytes) -> None:
        call.received_bytes += len(data)
        if call.received_bytes > self._limits.output_bytes:
            raise _TooLarge

    async def _take_stream(self, call: OpenCall, parts: AsyncIterator[bytes]) -> None:
        splitter = EventSplitter(limits_bytes(self._limits.event_bytes))
        append, mark = self._bus.append, self._limits.unsent_bytes
        async for data in parts:
            self._count(call, data)
            if events := splitter.feed(data):
                call.append("chunks", events)
                append(call)
                if call.backlog_bytes() > mark:
                    await call.room(mark)
        if rest := splitter.finish():
            call.append("chunks", rest)
        self._append(call, "eof")


def limits_bytes(event_bytes: int) -> int:
    """Bytes one SSE event may have: its JSON escapes can take six times what they mean."""
    return event_bytes * 6


async def _parts(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    content = response.content
    while data := await content.readany():
        yield data
