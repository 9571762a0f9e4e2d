"""The audit API under /audit: lists, one call, its chunks, export, verification and reviews, for
keys with the role `auditor`; approvals, for those with the role `approver`. It records who is shown
content before it is sent, and what auditors and approvers say.

Authentication is a dependency of the application, so that no route can forget it, and never depends
on the path. No documentation pages; the OpenAPI document is a route like any other. Must not know:
Redis, SQL.
"""

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from db.access_log import PageRead, note, of_item
from db.engine import open_engine
from db.filters import (
    MAX_TEXT,
    NOT_A_CALL_ID,
    Asked,
    Filters,
    ListName,
    approval_state,
    parse_filters,
)
from db.keyring import refusal
from db.read.approvals import ApprovalReader
from db.read.counts import parse_counts
from db.read.export import export_lines
from db.read.json_rows import JsonObject, dump_json
from db.read.queries import AuditReader
from db.read.session_list import list_sessions
from db.read.usage import parse_usage, usage
from db.write.approvals import NO_APPROVAL, decide
from db.write.reviews import add_review
from pages.audit.debug import debug_lines, door
from pages.audit.openapi import AUDITORS, DECISION, REVIEW, Offer, document
from pages.audit.reviews import auditor_of, read_decision_body, read_review
from pages.http.recorded_access import RecordedReads, record_read
from pages.http.replies import PieceResponse, first_and_others
from protocol import unknown_paths
from protocol.audit_errors import SAFE, error_body, error_headers
from protocol.errors import AuditUnavailable, Forbidden, InvalidRequest, NotFound, PipelineError
from settings.config import Key, Role
from settings.runtime import Runtime
from streams.round_robin import RoundRobin

Authenticate = Callable[[Iterable[tuple[bytes, bytes]]], Awaitable[Key | None] | Key | None]
"""Says whose key the raw headers carry."""
_MAY_READ_APPROVALS: tuple[Role, ...] = ("approver", "auditor", "admin")
EXPORT_FETCH_S = 60.0
"""How long an export waits for the next rows; one that chooses few calls out of millions is for the
command line."""
MOST_EXPORTING, MOST_EXPORTING_OF_ONE = 3, 2
"""Exports read at once, and of one key; others wait for `limits.audit_read_s`, key by key."""
MOST_REVIEWING = 4
"""Reviews kept at once, each over a connection of its own; of one key half of them."""
_LISTED: dict[ListName, str] = {
    "calls": "A page of calls.",
    "tool-calls": "A page of tool calls.",
    "judge-blocks": "A page of what a judge blocked.",
}
_PARAMETER = re.compile(r"\{(\w+)\}")


class AuditApi:
    """The audit API with its own read-only pools, which pages do not use, and one connection to
    record who reads. Without `authenticate` every request is refused."""

    def __init__(
        self,
        reader: AuditReader,
        authenticate: Authenticate | None = None,
        *,
        within_s: float = 10.0,
    ) -> None:
        self.reader, self.within_s = reader, within_s
        # whoever reads one slowly keeps its connection for as long
        self.exporting = open_engine(
            reader.url, read_only=True, answer_s=within_s, pool_size=MOST_EXPORTING
        )
        self.authenticate: Authenticate = authenticate or (lambda _: None)
        self.exports = RoundRobin(MOST_EXPORTING, most=MOST_EXPORTING_OF_ONE)
        # one at a time: it is computed beside the pages that this process makes
        self.verifying = RoundRobin(1)
        self.reviewing = RoundRobin(MOST_REVIEWING)
        self.noting = open_engine(reader.url, read_only=False, answer_s=within_s, pool_size=1)
        self.app = _make_app(self)

    async def close(self) -> None:
        """Close all connections."""
        await self.reader.close()
        await self.exporting.dispose()
        await self.noting.dispose()


def make_audit(settings: Runtime, authenticate: Authenticate) -> AuditApi:
    """Return the audit API of this process; nothing connects yet."""
    within_s = settings.config.limits.audit_read_s
    return AuditApi(
        AuditReader.open(settings.database_url, answer_s=within_s), authenticate, within_s=within_s
    )


async def require_role(request: Request) -> Key:
    """Return the caller's key. Raises Unauthenticated without a valid one, Forbidden without a role
    that the endpoint is for: `auditor`, where it says nothing else (`Offer.roles`)."""
    audit: AuditApi = request.app.state.audit
    pending_key = audit.authenticate(request.headers.raw)
    key = await pending_key if inspect.isawaitable(pending_key) else pending_key
    if key is None:
        raise refusal(request.headers.raw)
    roles = _roles_by_endpoint().get(request.scope["endpoint"], AUDITORS)
    if not {*roles} & {*key.roles}:
        named = " or ".join(map(repr, roles))
        raise Forbidden(f"this key does not have the role {named}", code="wrong_role")
    request.state.key = key
    return key


Caller = Annotated[Key, Depends(require_role)]


def _reader(request: Request) -> AuditReader:
    audit: AuditApi = request.app.state.audit
    return audit.reader


Reader = Annotated[AuditReader, Depends(_reader)]


async def _call_id(call_id: str, reader: Reader) -> UUID:
    try:
        return await reader.find_call(call_id)
    except InvalidRequest as error:
        if error.error_code == NOT_A_CALL_ID:
            raise NotFound("no such call") from None
        raise


CallId = Annotated[UUID, Depends(_call_id)]


def _make_app(audit: AuditApi) -> FastAPI:
    guards = [Depends(require_role)]
    app = FastAPI(
        title="Sluice audit",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        dependencies=guards,
        middleware=[Middleware(_Errors), Middleware(RecordedReads, partial(note, audit.noting))],
    )
    app.state.audit = audit
    app.include_router(_make_router())
    app.add_exception_handler(HTTPException, _on_http_error)
    return app


def _offers() -> list[Offer]:
    one_call = "One call with everything that was decided about it."
    return [
        *(Offer(f"/{of}", _list(of), of, about, "page") for of, about in _LISTED.items()),
        Offer("/sessions", _sessions, "calls", "A page of sessions, by their last call.", "page"),
        Offer("/calls/{call_id}", _call, "call", one_call),
        Offer(
            "/calls/{call_id}/chunks",
            _chunks,
            "chunks",
            "A page of what the upstream sent and what the client got.",
            "page",
        ),
        Offer(
            "/reviews",
            _reviews,
            "reviews",
            "A page of decisions that a person is to look at.",
            "page",
        ),
        Offer("/reviews/{call_id}/{block}", _review, None, "Label one of them.", body=REVIEW),
        Offer(
            "/approvals",
            _approvals,
            None,
            "A page of tool calls that wait for people, or did; `state` and `cursor` choose.",
            "page",
            roles=_MAY_READ_APPROVALS,
        ),
        Offer(
            "/approvals/{approval_id}",
            _approval,
            None,
            "One of them, with all that was said of it.",
            roles=_MAY_READ_APPROVALS,
        ),
        Offer(
            "/approvals/{approval_id}",
            _decide,
            None,
            "Decide about it.",
            body=DECISION,
            roles=("approver",),
        ),
        Offer(
            "/counts",
            _counts,
            "counts",
            "How many tool calls and calls; of the last 7 days where no time is given.",
        ),
        Offer(
            "/usage",
            _usage,
            "usage",
            "Calls, failures, blocks, tokens and judges; of the last 7 days where no time is"
            " given.",
        ),
        Offer("/debug-logs", _debug_logs, "debug-logs", "A page of lines of debug logs.", "page"),
        Offer(
            "/door",
            _door,
            "door",
            "How many requests were refused before a call began; in the last hour where no time is"
            " given.",
        ),
        Offer(
            "/export",
            _export,
            "export",
            "Calls with everything about them, as lines of JSON.",
            "lines",
        ),
        Offer(
            "/verify",
            _verify,
            "verify",
            "Whether some calls are as they were written: one, or those between two times.",
        ),
        Offer("/openapi.json", _openapi, None, "This document."),
    ]


def _make_router() -> APIRouter:
    router = APIRouter(prefix="/audit")
    for route in _offers():
        router.add_api_route(route.path, route.endpoint, **route.options)
    return router


@cache
def _roles_by_endpoint() -> dict[Callable[..., object], Sequence[Role]]:
    return {route.endpoint: route.roles for route in _offers()}


@cache
def _document() -> bytes:
    return dump_json(document(_make_router().routes))


async def _openapi(request: Request) -> Response:
    if request.query_params:
        raise InvalidRequest("takes no parameters", param=next(iter(request.query_params))[:64])
    return Response(_document(), media_type="application/json", headers=SAFE)


def served() -> list[str]:
    """The methods and paths of this API, as errors and docs/use/api.md name them."""
    routes = [route for route in _make_router().routes if isinstance(route, APIRoute)]
    return [f"{min(route.methods or ())} {_PARAMETER.sub(_named, route.path)}" for route in routes]


def _named(match: re.Match[str]) -> str:
    return match[1].removeprefix("call_").removeprefix("approval_").upper()


def _list(of: ListName) -> Callable[..., Awaitable[Response]]:
    async def page(request: Request, reader: Reader) -> Response:
        return _content(request, await reader.page(of, _filters(request, of)))

    return page


def _filters(request: Request, of: Asked) -> Filters:
    return parse_filters(request.query_params.multi_items(), of=of)


async def _sessions(request: Request, reader: Reader) -> Response:
    filters = _filters(request, "calls")
    if filters.order != "desc":
        raise InvalidRequest("sessions are listed by their last call", param="order")
    return _content(request, await list_sessions(reader.engine, await reader.named(filters)))


async def _reviews(request: Request, reader: Reader) -> Response:
    return _content(request, await reader.reviews(_filters(request, "reviews")))


async def _review(
    request: Request, call_id: CallId, block: str, caller: Caller, reader: Reader
) -> Response:
    """Keep what the auditor says, and answer with the decision as it is listed."""
    audit: AuditApi = request.app.state.audit
    review = await read_review(request, call_id, block, audit.within_s)
    async with _place(request, audit.reviewing, "reviews are being kept"):
        is_new = await add_review(reader.url, auditor_of(caller), review, answer_s=audit.within_s)
    review_row = await reader.review(call_id, review.block)
    if review_row is None:
        raise NotFound("the decision was dropped meanwhile", code="not_audited")
    return _content(request, review_row, 201 if is_new else 200)


async def _approvals(request: Request, caller: Caller, reader: Reader) -> Response:
    chosen = dict(request.query_params)
    if wrong := chosen.keys() - {"state", "cursor"}:
        raise InvalidRequest("unknown filter; known are state, cursor", param=min(wrong)[:64])
    state, cursor = approval_state(chosen.get("state", "all")), chosen.get("cursor", "")[:MAX_TEXT]
    approvals = ApprovalReader.of(reader.engine, caller.name, caller.roles)
    return _content(request, await approvals.page(state, after=cursor))


async def _approval(request: Request, approval_id: str, caller: Caller, reader: Reader) -> Response:
    item = await ApprovalReader.of(reader.engine, caller.name, caller.roles).one(approval_id)
    if item is None:
        raise NotFound(NO_APPROVAL)
    return _content(request, item)


async def _decide(request: Request, approval_id: str, caller: Caller, reader: Reader) -> Response:
    """Keep what an approver decides, and answer with the request as it is then."""
    audit: AuditApi = request.app.state.audit
    decision = await read_decision_body(request, audit.within_s)
    async with _place(request, audit.reviewing, "decisions are being stored"):
        await decide(reader.url, auditor_of(caller), approval_id, decision, answer_s=audit.within_s)
    return await _approval(request, approval_id, caller, reader)


async def _counts(request: Request, reader: Reader) -> Response:
    return _json(await reader.counts(*parse_counts(request.query_params.multi_items())))


async def _debug_logs(request: Request, reader: Reader) -> Response:
    return _content(request, await debug_lines(reader, _filters(request, "debug-logs")))


async def _door(request: Request, reader: Reader) -> Response:
    return _json(await door(reader, _filters(request, "door")))


async def _usage(request: Request, reader: Reader) -> Response:
    return _json(
        await usage(
            reader.engine, *parse_usage(request.query_params.multi_items(), datetime.now(UTC))
        )
    )


async def _call(request: Request, call_id: CallId, reader: Reader) -> Response:
    _filters(request, "call")
    return _found(request, await reader.call(call_id), call_id)


async def _chunks(request: Request, call_id: CallId, reader: Reader) -> Response:
    return _found(request, await reader.chunks(call_id, _filters(request, "chunks")), call_id)


async def _export(request: Request, reader: Reader) -> Response:
    filters = await reader.named(_filters(request, "export"))
    _note(request, PageRead("", "", "", call_ids=[filters.call_id] if filters.call_id else []))
    lines = _lines(request, filters)
    headers = {
        **SAFE,
        "content-disposition": 'attachment; filename="sluice-export.jsonl"',
        "content-type": "application/x-ndjson",
    }
    return PieceResponse(await first_and_others(lines), lines, headers)


async def _verify(request: Request, reader: Reader) -> Response:
    """Some calls against their seals, and the checkpoints around those; the whole record is for the
    command line."""
    from db.seals.verify import verify_part

    chosen = await reader.named(_filters(request, "verify"))
    if chosen.call_id is None and chosen.low is None:
        raise InvalidRequest("give a call_id, or since and until", param="call_id")
    audit: AuditApi = request.app.state.audit
    async with _place(request, audit.verifying, "another verification is running"):
        report = await asyncio.to_thread(
            verify_part,
            reader.url,
            call_id=chosen.call_id,
            low=chosen.low,
            high=chosen.high,
            within_s=audit.within_s,
        )
    return _json(report.item())


@asynccontextmanager
async def _place(request: Request, places: RoundRobin, problem: str) -> AsyncIterator[None]:
    """Hold one of these places for the key that asks, once there is one in time. Raises
    AuditUnavailable."""
    audit: AuditApi = request.app.state.audit
    key: Key = request.state.key
    who = key.id or key.name
    try:
        async with asyncio.timeout(audit.within_s):
            await places.enter(who)
    except TimeoutError:
        raise AuditUnavailable(f"{problem}; try again later") from None
    try:
        yield
    finally:
        places.leave(who)


async def _lines(request: Request, filters: Filters) -> AsyncGenerator[bytes]:
    audit: AuditApi = request.app.state.audit
    async with (
        _place(
            request,
            audit.exports,
            f"{MOST_EXPORTING} exports are read already, or {MOST_EXPORTING_OF_ONE} by this key",
        ),
        aclosing(export_lines(audit.exporting, filters, fetch_s=EXPORT_FETCH_S)) as lines,
    ):
        async for piece in lines:
            yield piece


def _found(request: Request, item: JsonObject | None, call_id: UUID) -> Response:
    if item is None:
        raise NotFound("no such call")
    return _content(request, item, call_id=call_id)


def _content(
    request: Request, item: JsonObject, status: int = 200, *, call_id: UUID | None = None
) -> Response:
    """Answer with content of the record: who reads it is on record first."""
    call_ids, rows = of_item(item)
    _note(request, PageRead("", "", "", call_ids=[call_id] if call_id else call_ids, rows=rows))
    return _json(item, status)


def _note(request: Request, read: PageRead) -> None:
    key: Key = request.state.key
    path, filters = request.scope["raw_path"].decode("latin-1"), request.url.query
    record_read(
        request.scope, replace(read, key=key.name, key_id=key.id, path=path, filters=filters)
    )


def _json(value: object, status: int = 200) -> Response:
    return Response(
        dump_json(value), status_code=status, media_type="application/json", headers=SAFE
    )


def _error(error: PipelineError, status: int) -> Response:
    return Response(
        error_body(error),
        status_code=status,
        media_type="application/json",
        headers=error_headers(status),
    )


class _Errors:
    """The outermost layer: what was refused is answered in the form of the API, unless the answer
    has begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def send_on(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except PipelineError as error:
            if has_begun:
                raise
            await _error(error, error.http_status)(scope, receive, send)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    method, path = request.method, request.url.path
    match error.status_code:
        case 404:
            failure: PipelineError = unknown_paths.unknown_path(
                method, path, request.headers.raw, served() if path.startswith("/audit") else ()
            )
        case 405:
            failure = unknown_paths.wrong_method(
                method, path, (error.headers or {}).get("Allow", "GET")
            )
        case _:
            failure = InvalidRequest(str(error.detail), code="http_error")
    return _error(failure, error.status_code)
