"""Views as endpoints of the application: how many work at once, for how long, and what becomes of
what they return.

Must not know: the record, hosts.
"""

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from db.access_log import PageRead
from pages import links
from pages.http.logged_in import add_cookie, check_token
from pages.http.login import Logins
from pages.http.recorded_access import record_read
from pages.http.replies import (
    PieceResponse,
    download_headers,
    first_and_others,
    html,
    read_form,
    see_other,
)
from pages.http.request_checks import Head, read_cookie
from pages.http.visit import Visit, visit_of
from pages.page import (
    MAY,
    Answer,
    Download,
    Page,
    PageRequest,
    Route,
    SeeOther,
    Services,
    Zone,
    close_pieces,
)
from pages.render import render
from protocol.errors import AuditUnavailable, Forbidden, InvalidRequest, NotFound, RateLimited

MOST_AT_ONCE = 8
"""Views at work at once; others wait. Each may hold a page of the record in memory."""
MOST_OF_ONE, MOST_ASKED_BY_ONE = 3, 16
"""Those of one key, which must not keep out others; and how many of them may be asked for at
once."""
MOST_STREAMS_OF_ONE, MOST_DOWNLOADS_OF_ONE = 10, 6
"""Answers of one key that may be open at once: each lasts as long as its reader takes."""
VIEW_S = 20.0
"""How much longer than one question to the record a whole page may take."""
RECHECK_S = 4.0
"""How often a long answer looks whether its login still holds."""
ZONE_COOKIE = "sluice_tz"
_YEAR_S = 365 * 86400
_STREAM = "text/event-stream"


class Views:
    """Calls the views of one process."""

    def __init__(self, services: Services, logins: Logins) -> None:
        self._services = services
        self._view_s = services.settings.config.limits.audit_read_s + VIEW_S
        self._turns, self._open_answers = PageTurns(), OpenAnswers(logins)
        # one: two threads of one interpreter would only take turns
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="render")

    def close(self) -> None:
        """Render nothing more."""
        self._renderer.shutdown(wait=False, cancel_futures=True)

    async def answer(self, route: Route, request: Request) -> Response:
        """Answer a request for this route."""
        visit = visit_of(request.scope)
        head, session = visit.head, visit.reader
        if MAY[route.role].isdisjoint(session.who.roles):
            if route.path == links.ROOT:
                return see_other(links.APPROVALS)
            raise Forbidden(
                f"this page is for keys with the role {' or '.join(sorted(MAY[route.role]))}",
                code="wrong_role",
            )
        params, form = read_params(request.path_params), dict[str, str]()
        if head.method == "POST":
            form = await read_form(request.receive)
            check_token(form, session)
        zone = _zone(head)
        asked = PageRequest(
            path=head.path,
            params=params,
            query=head.own_query,
            form=form,
            who=session.who,
            services=self._services,
            zone=zone,
            token=session.token,
            last_event_id=head.headers.get("last-event-id", "")[:200],
        )
        try:
            async with asyncio.timeout(self._view_s), self._turns.turn(session.who.key_id):
                response = await self._respond(await route.view(asked), asked, visit, request)
        except TimeoutError:
            raise AuditUnavailable(
                "the record took too long; narrow it with since, until or call_id"
            ) from None
        if head.query_value("tz"):
            add_cookie(response, visit.site, ZONE_COOKIE, zone, _YEAR_S, is_hidden=False)
        return response

    async def _respond(
        self, answer: Answer, asked: PageRequest, visit: Visit, request: Request
    ) -> Response:
        if isinstance(answer, SeeOther):
            return see_other(answer.to)
        if isinstance(answer, Download):
            pieces = await self._open_answers.begin(answer, visit.cookie, asked.who.key_id)
            response: Response = PieceResponse(pieces, answer.pieces, download_headers(answer))
        else:
            body = await asyncio.get_running_loop().run_in_executor(
                self._renderer, render, answer, asked
            )
            response = html(body, answer.status)
        if answer.shown is not None:
            record_read(request.scope, _read(answer, asked))
        return response


class PageTurns:
    """Views at work, of all keys and of each."""

    def __init__(self) -> None:
        self._working = asyncio.Semaphore(MOST_AT_ONCE)
        self._of = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(MOST_OF_ONE))
        self._asked = Counter[str]()

    @contextlib.asynccontextmanager
    async def turn(self, key_id: str) -> AsyncIterator[None]:
        """Wait until this key may have one more view at work. Raises RateLimited where too many of
        its own wait already."""
        if self._asked[key_id] >= MOST_ASKED_BY_ONE:
            raise RateLimited(
                f"{MOST_ASKED_BY_ONE} pages are loading for this key already; try again in a"
                " second",
                retry_after_s=1,
            )
        self._asked[key_id] += 1
        try:
            async with self._of[key_id], self._working:
                yield
        finally:
            self._asked[key_id] -= 1


class OpenAnswers:
    """Answers that last as long as their readers take. They end with the login of their
    readers."""

    def __init__(self, logins: Logins) -> None:
        self._logins = logins
        self.streams, self.downloads = Counter[str](), Counter[str]()
        """By the id of the key."""

    async def begin(self, download: Download, cookie: str, key_id: str) -> AsyncGenerator[bytes]:
        """Return the pieces of a download, whose first is made. Raises RateLimited where this key
        has too many."""
        if download.media_type == _STREAM:
            is_open, most = self.streams, MOST_STREAMS_OF_ONE
            too_many = f"this key has {most} live pages open already; close one"
        else:
            is_open, most = self.downloads, MOST_DOWNLOADS_OF_ONE
            too_many = f"this key has {most} downloads under way already; let one end"
        if is_open[key_id] >= most:
            raise RateLimited(too_many, retry_after_s=5)
        pieces = await first_and_others(download.pieces)
        return self._while_logged_in(pieces, cookie, is_open, key_id)

    async def _while_logged_in(
        self, pieces: AsyncIterator[bytes], cookie: str, is_open: Counter[str], key_id: str
    ) -> AsyncGenerator[bytes]:
        """Hand on the pieces until the login ends, and count them as one of this key. None waits
        for the look at the login: a stream of events would be late by it."""
        over = asyncio.create_task(self._until_logged_out(cookie), name="login of a stream")
        waiting: asyncio.Task[bytes | None] | None = None
        is_open[key_id] += 1
        try:
            while True:
                waiting = waiting or asyncio.create_task(_next(pieces), name="next piece")
                await asyncio.wait({waiting, over}, return_when=asyncio.FIRST_COMPLETED)
                if over.done():
                    over.result()
                    return
                piece, waiting = waiting.result(), None
                if piece is None:
                    return
                if piece:
                    yield piece
        finally:
            is_open[key_id] -= 1
            left = {task for task in (waiting, over) if task is not None}
            for task in left:
                task.cancel()
            await asyncio.wait(left)
            await close_pieces(pieces)

    async def _until_logged_out(self, cookie: str) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            # an open page is no request: a login that nobody uses becomes idle all the same
            if await self._logins.find(cookie, "", is_seen=False) is None:
                return


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


def read_params(parts: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a path, whose parts are as they came. Raises NotFound."""
    try:
        params = {name: links.read_part(part) for name, part in parts.items()}
    except ValueError:
        raise NotFound("there is no such page") from None
    if any(not value or "\x00" in value for value in params.values()):
        raise NotFound("there is no such page")
    return params


def _read(answer: Page | Download, asked: PageRequest) -> PageRead:
    who, shown = asked.who, answer.shown
    assert shown is not None
    return PageRead(
        who.key,
        who.key_id,
        asked.path,
        urlencode(asked.query),
        who.login,
        shown.call_ids,
        shown.rows,
    )


def _zone(head: Head) -> Zone:
    wanted = head.query_value("tz")
    if wanted not in ("", "utc", "local"):
        raise InvalidRequest("must be utc or local", param="tz")
    zone = wanted or read_cookie(head.headers.get("cookie", ""), ZONE_COOKIE)
    return "local" if zone == "local" else "utc"
