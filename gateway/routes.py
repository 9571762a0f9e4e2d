"""The HTTP side: routes, authentication, the beginning and end of each call. A plain ASGI
application (a framework's routing costs 0.2 ms a request).
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Mapping
from functools import partial

import msgspec

from db.keyring import KeyRing, refusal
from gateway import descriptors, index_page, listing, timers
from gateway.admission import Admission
from gateway.asgi import Message, Receive, Scope, Send
from gateway.bus import Bus
from gateway.call.allowed_calls import AllowedCalls
from gateway.call.calls import OpenCall
from gateway.call.compressed_sending import GzipSend
from gateway.call.figures import NotedCalls
from gateway.call.request import (
    BETAS,
    client_betas,
    name_headers,
    read_body,
    read_text,
    read_timeout,
)
from gateway.call.traffic_lines import TrafficLines
from gateway.debug_choice import Switches
from gateway.http_limits import LINK, Link
from gateway.policy_sets import PolicySets
from gateway.quotas.budgets import Quotas
from gateway.quotas.requests import with_headers
from gateway.ready_and_metrics import Status
from gateway.record.audit_proxy import AuditDoor, auditor_of, is_audit
from gateway.record.pages_proxy import LOGIN, PagesRelay, is_page
from gateway.refusal_counts import Refusals
from gateway.relay import ClientGone, Relay, respond, respond_error
from gateway.upstream import Upstreams
from protocol import unknown_paths
from protocol.bounds import (
    MAX_POLICY_CHARS,
    MAX_PROJECT_CHARS,
    MAX_SESSION_CHARS,
    MAX_TARGET_BYTES,
)
from protocol.bytes.compressed import takes_gzip
from protocol.conversations import sessions
from protocol.debug import ANY, HEADER
from protocol.dialects.base import ClientDialect
from protocol.dialects.table import client_paths, kept_of, of_client
from protocol.errors import (
    Forbidden,
    InvalidRequest,
    OtherDatabase,
    Overloaded,
    PipelineError,
    RateLimited,
    StreamConnectionLost,
    Unauthenticated,
)
from protocol.records import MAX_USER_AGENT_CHARS, CallFacts
from protocol.request import Endpoint
from settings.config import Config, Key, Role
from settings.defaults import VERSION
from streams import layout
from streams.identity import Identity
from streams.layout import Start
from streams.metrics import Total

log = logging.getLogger(__name__)
_AT_AUDIT: Mapping[int, PipelineError] = {
    401: Unauthenticated("no key of ours"),
    403: Forbidden("not an auditor", code="wrong_role"),
}
_AT_LOGIN: Mapping[int, PipelineError] = {
    403: Forbidden("not logged in", code="login_refused"),
    429: RateLimited("too many wrong keys", code="too_many_logins"),
}
"""What answers of applications behind this one count as."""


class Gateway:
    """The application. `audit` leads to the record under /audit, `door` to the pages under /debug:
    their process says who may ask."""

    def __init__(
        self,
        config: Config,
        bus: Bus,
        keys: KeyRing,
        upstreams: Upstreams,
        status: Status,
        audit: AuditDoor,
        identity: Identity,
        sets: PolicySets,
        door: PagesRelay,
        switches: Switches,
        allowed: AllowedCalls,
    ) -> None:
        self.config, self.limits, self.bus, self.keys = config, config.limits, bus, keys
        self._identity, self._sets, self._switches = identity, sets, switches
        self._allowed = allowed
        self.upstreams, self.status, self._audit = upstreams, status, audit
        self._door = door
        self.draining, self.refusals = False, Refusals(bus.figures)
        self._ended = NotedCalls(bus.figures)
        self._served, self._retries = client_paths(), config.tries_again
        self._admission = Admission(self.limits, most_calls=descriptors.most_calls(config))
        self._quotas = Quotas(bus.redis, config.budgets, self.limits.call_s)
        self._most_connections = descriptors.limit() - descriptors.reserved(config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        path, headers = scope["path"], scope["headers"]
        if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_TARGET_BYTES:
            error = InvalidRequest(
                f"the path and query are longer than {MAX_TARGET_BYTES} bytes",
                code="target_too_long",
            )
            self.refusals.refused("", error)
            await respond_error(send, of_client(path, []), error)
            return
        if is_audit(path):
            auditor = await auditor_of(self.keys, headers)
            await self._audit(scope, receive, self._counting(_AT_AUDIT, headers, send), auditor)
            return
        if self._door.is_open and is_page(path):
            is_login = path == LOGIN and scope["method"] == "POST"
            await self._door(
                scope, receive, self._counting(_AT_LOGIN, [], send) if is_login else send
            )
            return
        try:
            await self._serve(scope, receive, send)
        except PipelineError as error:
            await self._refuse(path, headers, send, error)
        except MemoryError:
            log.error("out of memory", extra={"path": path})
            spent = Overloaded(
                "this gateway is out of memory; try again in 1 second",
                code="gateway_memory",
                retry_after_s=1,
            )
            await self._refuse(path, headers, send, spent)

    async def _refuse(
        self, path: str, headers: list[tuple[bytes, bytes]], send: Send, error: PipelineError
    ) -> None:
        self.refusals.refused(self._known(headers), error)
        await respond_error(send, of_client(path, headers), error)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve what this process answers itself. Raises PipelineError."""
        # the server sends no body after HEAD
        path, method = scope["path"], "GET" if scope["method"] == "HEAD" else scope["method"]
        headers = scope["headers"]
        if (served := self._served.get(path)) is not None:
            if method != "POST" and any(name == b"upgrade" for name, _ in headers):
                # agents that try a WebSocket first go on with POST after a 404
                raise unknown_paths.unknown_path(method, path, headers)
            if method != "POST":
                raise unknown_paths.wrong_method(method, path, "POST")
            link: Link | None = scope.get("extensions", {}).get(LINK, {}).get("link")
            await self._serve_call(*served, headers, receive, send, link)
        elif method in ("GET", "DELETE") and kept_of(path) is not None:
            if method != "GET":
                raise unknown_paths.wrong_method(method, path, "GET")
            key = await self._caller(headers, "client")
            await self._audit.serve_answers(scope, receive, send, key.id or key.name)
        elif method == "GET" and (path == listing.MODELS or path.startswith(f"{listing.MODELS}/")):
            await self._caller(headers, "client")
            await respond(send, 200, listing.models(self.config, path))
        elif method == "GET" and path == "/":
            content_type, body, more = index_page.page(headers)
            await respond(send, 200, body, content_type=content_type, headers=more)
        elif method == "GET" and path in ("/health", "/ready", "/metrics"):
            await self._serve_status(path, headers, send)
        else:
            raise unknown_paths.unknown_path(method, path, headers)

    def is_crowded(self, connections: int) -> bool:
        """Would `connections` of clients leave no descriptor for an upstream, or for the next
        client?"""
        return (
            connections + self.upstreams.connections + self._audit.open + self._door.open
            > self._most_connections
        )

    # --- small routes ---

    def _counting(
        self, refused: Mapping[int, PipelineError], headers: list[tuple[bytes, bytes]], send: Send
    ) -> Send:
        """Return `send` that counts an answer of one of these statuses as refused."""

        async def counting(message: Message) -> None:
            if (
                message["type"] == "http.response.start"
                and (error := refused.get(message["status"])) is not None
            ):
                self.refusals.refused(self._known(headers), error)
            await send(message)

        return counting

    def _known(self, headers: list[tuple[bytes, bytes]]) -> str:
        """Return the name of the key that a refused request carries, if it is one."""
        with contextlib.suppress(InvalidRequest, Unauthenticated):
            key = self.keys.authenticate(headers)
            return key.name if key is not None else ""
        return ""

    async def _caller(self, headers: list[tuple[bytes, bytes]], *roles: Role) -> Key:
        key = self.keys.authenticate(headers) or await self.keys.find(headers)
        if key is None:
            raise refusal(headers)
        if set(roles).isdisjoint(key.roles):
            raise Forbidden(
                f"this key does not have the role {' or '.join(map(repr, roles))}",
                code="wrong_role",
            )
        return key

    async def _serve_status(
        self, path: str, headers: list[tuple[bytes, bytes]], send: Send
    ) -> None:
        if path == "/health":
            await respond(send, 200, b'{"status":"ok"}')
        elif path == "/ready":
            ready, why = await self.status.ready(draining=self.draining)
            state = {
                "ready": ready,
                "why": why,
                "warnings": self.status.warnings,
                "version": VERSION,
            }
            await respond(send, 200 if ready else 503, msgspec.json.encode(state))
        else:
            await self._caller(headers, "monitor", "auditor")
            await respond(
                send,
                200,
                await self.status.metrics(),
                content_type=b"text/plain; version=0.0.4; charset=utf-8",
            )

    # --- calls ---

    async def _serve_call(
        self,
        dialect: ClientDialect,
        endpoint: Endpoint,
        headers: list[tuple[bytes, bytes]],
        receive: Receive,
        send: Send,
        link: Link | None,
    ) -> None:
        key = await self._caller(headers, "client")
        named = name_headers(headers)
        activity_s = read_timeout(named, self.limits.activity_s)
        if self.draining:
            raise Overloaded(
                "this gateway is shutting down; try again in 1 second", retry_after_s=1
            )
        if self._identity.fault:
            raise OtherDatabase(
                "this gateway's Redis does not hold the calls of this Sluice; try again in 5"
                " seconds",
                retry_after_s=5,
            )
        if link is not None and link.is_crowded():
            few = "this gateway is at its limit for connections; try again in 1 second"
            raise Overloaded(few, code="gateway_descriptors", retry_after_s=1)
        place = self._admission.take(key)
        try:
            body, digest = await read_body(
                named,
                receive,
                link,
                self.limits,
                expect=partial(self.bus.starts.expect, place.key),
                take=place.take_body,
            )
            await place.begin()
            facts = CallFacts(
                named.get(b"user-agent", b"")[:MAX_USER_AGENT_CHARS].decode("latin-1"), key.team
            )
            betas = client_betas(headers) if BETAS in named else ()
            start = self._start(key, dialect, endpoint, named, betas, digest, facts)
            deadline = time.monotonic() + self.limits.call_s
            call = OpenCall(
                start.call_id,
                dialect,
                body,
                activity_s=activity_s,
                deadline=deadline,
                key=key.name,
                observer=self._observer(start),
            )
            call.when_begun = place.begun
            # without a family of server tools its request has none, nor an MCP server: workers
            # refuse it, and routes add none
            call.repeats = not key.server_tools
            del body  # the call gives it up when it goes upstream
            is_gzip = key.compress is not None and takes_gzip(headers)
            if not key.is_limited:
                send = GzipSend(send) if is_gzip else send
                await self._serve_begun(start, call, receive, send, link)
                return
            call.budget = self._quotas.budgets.of(key, start)
            if call.budget is not None:
                numbers = {**start.numbers, layout.BUDGETED: 1}
                start = msgspec.structs.replace(start, numbers=numbers)
            async with self._quotas.requests.counting(key, call) as left:
                send = with_headers(send, left, call)
                send = GzipSend(send) if is_gzip else send
                await self._serve_begun(start, call, receive, send, link)
        finally:
            place.close()

    async def _serve_begun(
        self, start: Start, call: OpenCall, receive: Receive, send: Send, link: Link | None
    ) -> None:
        self.bus.calls[call.id] = call
        self.bus.figures.add(Total.CALLS, call.dialect.name)
        try:
            await self.bus.start(start, call.body)
        except BaseException as error:
            del self.bus.calls[call.id]
            if not isinstance(error, Overloaded | RateLimited):
                # it may have begun all the same, and its dispatch have come: nobody must wait for
                # what will not follow
                unreachable = Overloaded(
                    "Sluice cannot reach Redis; try again in 1 second", retry_after_s=1
                )
                if isinstance(error, StreamConnectionLost):
                    call.outgoing.write_error(call.dialect.error_body(unreachable))
                self.bus.end(call, Overloaded.code)
                if isinstance(error, StreamConnectionLost):
                    raise unreachable from error
            raise
        call.is_begun = True
        watcher = None
        if link is not None:
            # instead of a task that waits for it
            link.when_lost(lambda: call.fail(ClientGone("the client closed the connection")))
        else:
            watcher = asyncio.get_running_loop().create_task(
                self._watch(call, receive), name="client watch"
            )
        # of a compressed answer nothing can be written past its handler
        may_write = link is not None and type(send) is not GzipSend
        relay = Relay(call, self.upstreams, send, link.write if link and may_write else None)
        try:
            await relay.run()
        finally:
            if watcher is not None:
                watcher.cancel()
            try:
                await relay.stop_upstream()
            finally:
                # also where a stopping server cancels this a second time: nobody else would end the
                # call
                reason = (
                    "complete"
                    if relay.complete
                    else (
                        call.order.error.error_code
                        if call.order.error is not None
                        else "client_gone"
                    )
                )
                self._ended.note(call)
                self.bus.end(call, reason)
                del self.bus.calls[call.id]

    def _start(
        self,
        key: Key,
        dialect: ClientDialect,
        endpoint: Endpoint,
        named: dict[bytes, bytes],
        betas: tuple[str, ...],
        digest: bytes,
        facts: CallFacts,
    ) -> Start:
        at, switches = time.time_ns() // 1_000_000, self._switches
        client_session = sessions.NOTHING
        if not sessions.NAMED.isdisjoint(named):
            client_session = sessions.read_headers(
                named, read_text(named, b"x-sluice-session", MAX_SESSION_CHARS)
            )
        return Start(
            call_id=layout.new_call_id(self.bus.shards),
            at=at,
            gateway=self.bus.gateway,
            dialect=dialect.name,
            endpoint=endpoint,
            key=key.name,
            policies=key.policies,
            policy=read_text(named, b"x-sluice-policy", MAX_POLICY_CHARS),
            session=client_session.session,
            nonce=secrets.token_hex(16),
            deadline=at + int(self.limits.call_s * 1000),
            betas=betas,
            server_tools=key.server_tools,
            key_id=key.id,
            policy_sets=self._sets.named,
            body_sha256=digest,
            facts=facts,
            numbers={**key.for_workers, layout.RETRIES: 1} if self._retries else key.for_workers,
            source=client_session.source,
            agent=client_session.agent,
            parent=client_session.parent,
            project=_project(key, named),
            allowed=self._allowed.of(key.id),
            debug=switches.mask(key, named) if switches.is_on or HEADER in named else 0,
        )

    def _observer(self, start: Start) -> TrafficLines | None:
        """Return what writes debug lines of this gateway, as far as START says so."""
        if not start.debug & ANY:
            return None
        return TrafficLines(self.bus.lines.of(start.call_id, start.debug))

    async def _watch(self, call: OpenCall, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        call.fail(ClientGone("the client closed the connection"))

    async def drain(self, grace_s: float) -> None:
        """Take no new calls; give open ones `grace_s`, then end them with an error of their
        dialect."""
        self.draining = True
        await timers.drain(self.bus, grace_s)


def _project(key: Key, named: dict[bytes, bytes]) -> tuple[str, ...]:
    """What a key and the headers name as the project. Raises InvalidRequest."""
    header = read_text(named, b"x-sluice-project", MAX_PROJECT_CHARS)
    return (key.project or "", header) if key.project or header else ()
