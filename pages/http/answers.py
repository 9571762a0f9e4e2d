"""The outermost layer of the pages: every answer has their headers and a reader that takes it; what
went wrong becomes a page that says so, with a mark that is in the log. The log has no content.
"""

import asyncio
import contextlib
import logging
import secrets
import traceback

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from db.read.json_rows import dump_json
from pages.figures import figures_of
from pages.http import plain_pages
from pages.http.replies import html
from pages.http.visit import Visit, begin_visit
from pages.page import PageRequest, Services
from protocol.errors import AuditUnavailable, PipelineError
from streams.logins import LOGIN_HEADER

log = logging.getLogger(__name__)


class PageAnswers:
    """A layer of the application. `stall_s`: how long a client may take nothing."""

    def __init__(self, app: ASGIApp, services: Services, stall_s: float) -> None:
        self._app, self._services, self._stall_s = app, services, stall_s
        self._on_gateway = services.settings.config.pages.on_gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        visit, has_begun = begin_visit(scope), False

        async def send_on(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                message["headers"] = self._headers(visit, message["headers"])
            async with asyncio.timeout(self._stall_s):
                await send(message)

        try:
            await self._app(scope, receive, send_on)
        except Exception as error:
            # the top of a request: whatever it was becomes a page
            if not has_begun:
                response = failed(error, visit, self._services)
                with contextlib.suppress(ConnectionError, TimeoutError):
                    await response(scope, receive, send_on)
            elif isinstance(error, PipelineError):
                # not completed: the connection ends, so that nobody takes the beginning for the
                # whole
                log.warning("a page was cut off", extra={"code": error.error_code})
            elif not isinstance(error, ConnectionError | TimeoutError):
                raise

    def _headers(
        self, visit: Visit, headers: list[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        names = {name for name, _ in headers}
        common = [header for header in visit.site.headers() if header[0] not in names]
        if self._on_gateway and visit.login is not None:
            common.append((LOGIN_HEADER, visit.login.encode()))
        return [*common, *headers]


def failed(error: Exception, visit: Visit, services: Services) -> Response:
    """Return the page of an error, for who is logged in with the links of all pages. The log names
    what failed and where, never what was asked: that may be content."""
    mark, head = secrets.token_hex(4), visit.head
    failure = (
        error
        if isinstance(error, PipelineError)
        else PipelineError("an error of ours, not of what you asked; the log has it")
    )
    status = failure.http_status
    _log(error, failure, mark)
    headers = dict[str, str]()
    if status in (429, 503):
        headers["retry-after"] = str(failure.retry_after_s or 5)
    if status == 405:
        headers["allow"] = failure.param or "GET"
    if head.wants_json:
        item = {
            "message": failure.message,
            "code": failure.error_code,
            "param": failure.param,
            "id": mark,
        }
        return Response(dump_json({"error": item}), status, headers, "application/json")
    sentence = (
        f"{failure.param}: {failure.message}"
        if failure.param and status == 400
        else failure.message
    )
    is_page = bool(head.path) and head.method == "GET"
    again = head.without() if is_page and status >= 500 else ""
    without = (
        head.without(failure.param)
        if is_page and status == 400 and failure.param and head.query_value(failure.param)
        else ""
    )
    asked = None
    if visit.session is not None and error is failure:
        asked = PageRequest(
            path=head.path,
            params={},
            query=(),
            who=visit.session.who,
            services=services,
            token=visit.session.token,
        )
    # the last result of the doctor is only for those who are logged in
    has_doctor = asked is not None and isinstance(error, AuditUnavailable)
    doctor = figures_of(services).groups["doctor"].values.get("found", ()) if has_doctor else ()
    body = plain_pages.failed(
        status,
        sentence,
        mark,
        asked=asked,
        doctor=doctor,
        again=again,
        without=without,
        param=failure.param or "",
    )
    return html(body, status, headers)


def _log(error: Exception, failure: PipelineError, mark: str) -> None:
    status = failure.http_status
    fields: dict[str, object] = {"id": mark, "status": status, "code": failure.error_code}
    if error is failure:
        log.log(
            logging.WARNING if status >= 500 else logging.INFO, "a page was refused", extra=fields
        )
        return
    frames = [
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    log.error(
        "a page failed",
        extra={**fields, "error": type(error).__name__, "where": " > ".join(frames[-8:])},
    )
