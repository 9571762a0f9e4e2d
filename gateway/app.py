"""The HTTP side: routes, authentication, the relay of each call. A plain ASGI application (a framework's routing costs 0.2 ms a request).

A response is: bytes that workers released, in the order of their numbers; or an error in the caller's dialect.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from typing import Any

import msgspec

from gateway import descriptors, door, front, listing
from gateway.admission import Admission, Place
from gateway.betas import client_betas
from gateway.bus import Bus
from gateway.calls import OpenCall
from gateway.heads import LINK, Link, Write
from gateway.keyring import KeyRing, refusal
from gateway.sets import PolicySets
from gateway.status import Status
from gateway.upstream import Upstreams
from protocol.bounds import MAX_POLICY_CHARS, MAX_SESSION_CHARS, MAX_TARGET_BYTES, MAX_TIMEOUT_S
from protocol.config import Config, Key, Role
from protocol.dialect import Dialect
from protocol.dialects import client_paths, of_client
from protocol.errors import (
    AuditUnavailable,
    Forbidden,
    InvalidRequest,
    OtherDatabase,
    Overloaded,
    PipelineError,
    StreamConnectionLost,
    StreamTimeout,
    TooLarge,
    TooSlow,
)
from protocol.request import Endpoint
from streams import layout
from streams.identity import Identity
from streams.layout import Start

log = logging.getLogger(__name__)
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]

_JSON = b"application/json"
_NO_SNIFF = (b"x-content-type-options", b"nosniff")


class Gateway:
    """The application. `audit` is mounted for /audit and /debug and does its own authentication."""

    def __init__(
        self, config: Config, bus: Bus, keys: KeyRing, upstreams: Upstreams, status: Status, audit: ASGI, identity: Identity,
        sets: PolicySets,
    ) -> None:  # fmt: skip
        self.config, self.limits, self.bus, self.keys = config, config.limits, bus, keys
        self._identity, self._sets = identity, sets
        self.upstreams, self.status, self._audit = upstreams, status, audit
        self.draining = False
        self._served = client_paths()
        self._admission = Admission(self.limits, most_calls=descriptors.most_calls(config))
        self._most_connections = descriptors.limit() - descriptors.own(config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        path, method = scope["path"], scope["method"]
        if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_TARGET_BYTES:
            error = InvalidRequest(f"the path and query are past {MAX_TARGET_BYTES} bytes", code="target_too_long")
            await _respond_error(send, of_client(path, []), error)
            return
        if path.startswith(("/audit/", "/debug")):
            await self._audit(scope, receive, send)
            return
        headers = scope["headers"]
        try:
            if (served := self._served.get(path)) is not None:
                if method != "POST":
                    raise door.wrong_method(method, path, "POST")
                link: Link | None = scope.get("extensions", {}).get(LINK, {}).get("link")
                await self._serve_call(*served, headers, receive, send, link)
            elif method == "GET" and (path == listing.MODELS or path.startswith(f"{listing.MODELS}/")):
                await self._caller(headers, "client")
                await _respond(send, 200, listing.models(self.config, path))
            elif method == "GET" and path == "/":
                content_type, body, more = front.page(headers)
                await _respond(send, 200, body, content_type=content_type, headers=more)
            elif method == "GET" and path in ("/health", "/ready", "/metrics"):
                await self._serve_status(path, headers, send)
            else:
                raise door.unknown_path(method, path, headers)
        except PipelineError as error:
            await _respond_error(send, of_client(path, headers), error)
        except MemoryError:
            log.error("out of memory", extra={"path": path})
            spent = Overloaded("the gateway is out of memory; try again", code="gateway_memory", retry_after_s=1)
            await _respond_error(send, of_client(path, headers), spent)

    def is_crowded(self, connections: int) -> bool:
        """Would `connections` of clients leave no descriptor for an upstream, or for the next client?"""
        return connections + self.upstreams.connections > self._most_connections

    # --- small routes ---

    async def _caller(self, headers: list[tuple[bytes, bytes]], *roles: Role) -> Key:
        key = self.keys.authenticate(headers) or await self.keys.find(headers)
        if key is None:
            raise refusal(headers)
        if not set(roles) & set(key.roles):
            raise Forbidden(f"this key does not have the role {' or '.join(map(repr, roles))}", code="wrong_role")
        return key

    async def _serve_status(self, path: str, headers: list[tuple[bytes, bytes]], send: Send) -> None:
        if path == "/health":
            await _respond(send, 200, b'{"status":"ok"}')
        elif path == "/ready":
            ready, why = await self.status.ready(draining=self.draining)
            said = {"ready": ready, "why": why, "warnings": self.status.warnings}
            await _respond(send, 200 if ready else 503, msgspec.json.encode(said))
        else:
            await self._caller(headers, "monitor", "auditor")
            await _respond(send, 200, await self.status.metrics(), content_type=b"text/plain; version=0.0.4; charset=utf-8")

    # --- calls ---

    async def _serve_call(
        self, dialect: Dialect, endpoint: Endpoint, headers: list[tuple[bytes, bytes]], receive: Receive, send: Send,
        link: Link | None,
    ) -> None:  # fmt: skip
        key = await self._caller(headers, "client")
        named = _once(headers)
        activity_s = _timeout(named.get(b"x-sluice-timeout-s"), self.limits.activity_s)
        if self.draining:
            raise Overloaded("this gateway takes no more calls now; try again", retry_after_s=1)
        if self._identity.fault:
            raise OtherDatabase("this gateway has lost its streams to another one; try again", retry_after_s=5)
        if link is not None and link.is_crowded():
            raise Overloaded("this gateway has no connections left; try again", code="gateway_descriptors", retry_after_s=1)
        place = self._admission.take(key)
        try:
            body, digest = await self._body(named, receive, link, place)
            await place.begin()
            start = self._start(key, dialect, endpoint, named, client_betas(headers), digest)
            deadline = time.monotonic() + self.limits.call_s
            call = OpenCall(start.call_id, dialect, endpoint, body, activity_s=activity_s, deadline=deadline, key=key.name)
            call.when_begun = place.begun
            # without a family of server tools its request has none, nor an MCP server: workers refuse it, and routes add none
            call.repeats = not key.server_tools
            del body  # the call gives it up when it goes upstream
            await self._serve_begun(start, call, receive, send, link)
        finally:
            place.close()

    async def _serve_begun(self, start: Start, call: OpenCall, receive: Receive, send: Send, link: Link | None) -> None:
        self.bus.calls[call.id] = call
        self.status.calls[call.dialect.name].inc()
        try:
            await self.bus.start(start, call.body)
        except BaseException as error:
            del self.bus.calls[call.id]
            if not isinstance(error, Overloaded):
                # it may have begun all the same, and its dispatch have come: nobody must wait for what will not follow
                said = Overloaded("the streams are away; try again", retry_after_s=1)
                call.own = call.dialect.error_body(said) if isinstance(error, StreamConnectionLost) else b""
                self.bus.end(call, Overloaded.code)
                if isinstance(error, StreamConnectionLost):
                    raise said from error
            raise
        call.is_begun = True
        watcher = None
        if link is not None:
            # instead of a task that waits for it
            link.when_lost(lambda: call.fail(ClientGone("the client went away")))
        else:
            watcher = asyncio.get_running_loop().create_task(self._watch(call, receive), name="client watch")
        relay = _Relay(call, self.upstreams, send, link.write if link is not None else None)
        try:
            await relay.run()
        finally:
            if watcher is not None:
                watcher.cancel()
            try:
                await relay.stop_upstream()
            finally:
                # also where a stopping server cancels this a second time: nobody else would end the call
                reason = "complete" if relay.complete else (call.error.error_code if call.error is not None else "client_gone")
                self.bus.end(call, reason)
                del self.bus.calls[call.id]

    async def _body(self, named: dict[bytes, bytes], receive: Receive, link: Link | None, place: Place) -> tuple[bytes, bytes]:
        """Returns the request body and its hash: what policies read, what is recorded and what is sent is held to it."""
        limit = self.limits.body_bytes
        too_large = TooLarge(f"the request body is past {limit} bytes")
        if b"content-encoding" in named and named[b"content-encoding"] != b"identity":
            raise InvalidRequest("compressed request bodies are not taken", code="unsupported_encoding", param="content-encoding")
        with contextlib.suppress(ValueError):
            if int(named.get(b"content-length", b"0")) > limit:
                raise too_large
        parts, size, digest, until = [], 0, sha256(), time.monotonic() + self.limits.body_s
        while True:
            if link is not None and link.has_body():
                # nothing is waited for, and a timer costs 8 us
                message = await receive()
            else:
                message = await self._next_of_body(receive, until)
            if message["type"] == "http.disconnect":
                raise InvalidRequest("the client went away")
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise too_large
            place.take_body(len(part))
            parts.append(part)
            digest.update(part)
            if not message.get("more_body"):
                return b"".join(parts), digest.digest()

    async def _next_of_body(self, receive: Receive, until: float) -> MutableMapping[str, Any]:
        try:
            async with asyncio.timeout(min(self.limits.client_stall_s, until - time.monotonic())):
                return await receive()
        except TimeoutError:
            raise TooSlow("the request body did not come in time", retry_after_s=1) from None

    def _start(
        self, key: Key, dialect: Dialect, endpoint: Endpoint, named: dict[bytes, bytes], betas: tuple[str, ...], digest: bytes
    ) -> Start:
        at = time.time_ns() // 1_000_000
        return Start(
            call_id=layout.new_call_id(self.bus.shards), at=at, gateway=self.bus.gateway, dialect=dialect.name,
            endpoint=endpoint, key=key.name,
            policies=key.policies, policy=_text(named, b"x-sluice-policy", MAX_POLICY_CHARS),
            session=_text(named, b"x-sluice-session", MAX_SESSION_CHARS),
            nonce=secrets.token_hex(16), deadline=at + int(self.limits.call_s * 1000), betas=betas, server_tools=key.server_tools,
            key_id=key.id, policy_sets=self._sets.named, body_sha256=digest,
        )  # fmt: skip

    async def _watch(self, call: OpenCall, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        call.fail(ClientGone("the client went away"))

    # --- timers of all calls, in one place ---

    async def watch_timers(self) -> None:
        """Twice a second: unclaimed, silent and overdue calls, and keepalives that waited. Runs until cancelled."""
        limits = self.limits
        while True:
            await asyncio.sleep(0.5)
            now = time.monotonic()
            for call in list(self.bus.calls.values()):
                call.add_up()
                call.show_life(now)
                call.relay()
                if call.expected == 0 and now - call.started > limits.claim_s + 0.5 and now - call.last_reply > limits.claim_s + 0.5:
                    self.bus.untaken += call.error is None
                    why = self._sets.fault or "no worker took the call"
                    call.fail(Overloaded(f"{why}; try again", code="no_worker", retry_after_s=1))
                elif now - call.last_reply > call.activity_s and self.bus.is_refused:
                    call.fail(StreamConnectionLost("the streams cannot be written now", code="streams_unavailable", retry_after_s=2))
                elif now - call.last_reply > call.activity_s and self.bus.gate is not None and self.bus.gate.is_waiting:
                    call.fail(AuditUnavailable("the record cannot be written now"))
                elif now - call.last_reply > call.activity_s:
                    call.fail(StreamTimeout(f"no sign of life from the policy workers for {call.activity_s:g} s"))
                elif now > call.deadline:
                    if now > call.deadline + 5:
                        call.fail(StreamTimeout("the call's deadline has passed", code="call_deadline"))
                    if not call.is_overdue:
                        call.is_overdue = True
                        call.append("failed", text="call_deadline")
                        self.bus.append(call)

    async def drain(self, grace_s: float) -> None:
        """Take no new calls; give open ones `grace_s`, then end them with an error of their dialect."""
        self.draining = True
        until = time.monotonic() + grace_s
        while self.bus.calls and time.monotonic() < until:
            await asyncio.sleep(0.05)
        for call in list(self.bus.calls.values()):
            call.fail(StreamConnectionLost("the gateway is shutting down", code="gateway_shutdown"))
        while self.bus.calls and time.monotonic() < until + 2:
            await asyncio.sleep(0.02)


class ClientGone(PipelineError):
    """Nobody to answer any more; `code` is the record's reason."""

    code = "client_gone"


class _Relay:
    """Moves one call's released bytes to its client and its approved requests to the upstream."""

    def __init__(self, call: OpenCall, upstreams: Upstreams, send: Send, write: Write | None = None) -> None:
        self._call, self._upstreams, self._send, self._write = call, upstreams, send, write
        self._upstream: asyncio.Task[None] | None = None
        self.complete = False

    async def run(self) -> None:
        call = self._call
        while True:
            await self._wait()
            if call.error is not None:
                await self._fail(call.error)
                return
            if call.dispatch is not None:
                dispatch, call.dispatch = call.dispatch, None
                # a continued turn: its session has all of the answer before, so only that request's clean-up can be under way
                await self.stop_upstream()
                self._upstream = asyncio.get_running_loop().create_task(self._upstreams.send(call, dispatch), name="upstream")
            end = call.end
            if call.has_out or end:
                data = call.take_out() if call.has_out else b""
                await self._put(data, last=bool(end))
            if end:
                self.complete = True
                return

    async def _wait(self) -> None:
        call = self._call
        # only while nothing else of this answer is being written
        if call.head_sent:
            call.write = self._write
        try:
            await call.wait()
        finally:
            call.write = None

    async def _put(self, data: bytes, *, last: bool) -> None:
        call = self._call
        if not call.head_sent:
            call.head_sent = True
            head = [
                (b"x-sluice-call-id", call.id.encode()),
                _NO_SNIFF,
                (b"cache-control", b"no-cache, no-transform"),
                (b"x-accel-buffering", b"no"),
            ]
            head += [(k.encode(), v.encode("latin-1", "replace")) for k, v in call.headers.items()]
            if last:
                head.append((b"content-length", str(len(data)).encode()))
            await self._send({"type": "http.response.start", "status": call.status or 200, "headers": head})
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    async def _fail(self, error: PipelineError) -> None:
        call = self._call
        if isinstance(error, ClientGone):
            return
        if not call.head_sent:
            call.head_sent = True
            call.own = call.dialect.error_body(error)
            await _respond_error(self._send, call.dialect, error, call_id=call.id)
            return
        if call.headers.get("content-type", "").startswith("text/event-stream"):
            call.own = call.dialect.error_frame("api_error", error.message, error.error_code)
            await self._send({"type": "http.response.body", "body": call.own, "more_body": False})

    async def stop_upstream(self) -> None:
        if self._upstream is not None and not self._upstream.done():
            self._upstream.cancel()
            await asyncio.wait({self._upstream})


def _once(headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers that say how a call is served. Raises InvalidRequest for one that is there twice: two readers may differ."""
    named: dict[bytes, bytes] = {}
    for name, value in headers:
        if name.startswith(b"x-sluice-") or name in (b"content-length", b"content-encoding"):
            if name in named:
                said = name.decode("latin-1")[:64]
                raise InvalidRequest(f"{said} is there more than once", code="repeated_header", param=said)
            named[name] = value
    return named


def _timeout(value: bytes | None, default: float) -> float:
    if value is None:
        return default
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise InvalidRequest(f"x-sluice-timeout-s must be a number of seconds up to {MAX_TIMEOUT_S:g}", param="x-sluice-timeout-s")
    return seconds


def _text(named: dict[bytes, bytes], header: bytes, most: int) -> str:
    value = named.get(header, b"")
    if len(value) > most:
        # two that differ behind the bound would be one in the record
        raise InvalidRequest(f"{header.decode()} has {len(value):,} characters, and may have {most}", param=header.decode())
    return value.decode("latin-1")


async def _respond(
    send: Send, status: int, body: bytes, *, content_type: bytes = _JSON, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    head = [(b"content-type", content_type), (b"content-length", str(len(body)).encode()), _NO_SNIFF, *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def _respond_error(send: Send, dialect: Dialect, error: PipelineError, *, call_id: str = "") -> None:
    headers: list[tuple[bytes, bytes]] = []
    if call_id:
        headers.append((b"x-sluice-call-id", call_id.encode()))
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    status = 405 if error.error_code == "method_not_allowed" else error.http_status
    await _respond(send, status, dialect.error_body(error), headers=tuple(headers))
