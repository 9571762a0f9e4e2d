"""The pages over HTTP, as a plain ASGI application: who may ask, which view answers, and a record
of shown content before it is sent.

In this order: is it for us, from one of our pages, by somebody who is logged in and allowed? Only
then is a view called; what it shows is written down (`db.reads`), then sent. Whatever goes wrong is
a page that says so, with a mark that is in the log; the log has no content.
"""

import asyncio
import contextlib
import logging
import secrets
import traceback
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qsl, urlencode

from db.engine import open_engine
from db.labels import Labels
from db.page_sessions import LASTS_S, PageSessions
from db.read.items import dump_json
from db.read.queries import AuditReader
from db.reads import PageRead, note
from db.switches import DebugSwitches
from pages import assets, links, plain, request_checks
from pages.figures import figures_of
from pages.http import PageReply, Receive, Scope, Send, read_form, send_reply, to_json
from pages.login import Logins, LoginSession, form_is_ours
from pages.page import (
    Answer,
    Download,
    Page,
    PageRequest,
    Route,
    SeeOther,
    Services,
    ShownContent,
    Zone,
)
from pages.render import render
from pages.request_checks import Head, Site
from pages.router import Router
from protocol.errors import (
    AuditUnavailable,
    Forbidden,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    PipelineError,
    RateLimited,
)
from protocol.pages import Pages
from protocol.runtime import Runtime
from streams.logins import LOGIN_HEADER

log = logging.getLogger(__name__)
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
MAX_PARAMETERS = 64
ZONE_COOKIE = "sluice_tz"
_YEAR_S = 365 * 86400
_STREAM = b"text/event-stream"
_METHODS = ("GET", "HEAD", "POST")


class App:
    """The pages of one process, with its own connections."""

    def __init__(self, settings: Runtime, routes: Sequence[Route]) -> None:
        self._pages = pages = settings.config.pages
        self._bound = settings.host if pages.on_gateway else pages.host
        limits = settings.config.limits
        self._view_s, self._stall_s = limits.audit_read_s + VIEW_S, limits.client_stall_s
        self._writer = open_engine(
            settings.database_url, read_only=False, answer_s=limits.audit_read_s, pool_size=3
        )
        reader = AuditReader.open(settings.database_url, answer_s=limits.audit_read_s)
        self._services = Services(
            settings, reader, Labels(self._writer), DebugSwitches(self._writer)
        )
        self._logins = Logins(settings.config.keys, PageSessions(self._writer))
        self._router = Router(routes)
        self._working = asyncio.Semaphore(MOST_AT_ONCE)
        self._turns = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(MOST_OF_ONE))
        self._asked, self._streams, self._downloads = Counter[str](), Counter[str](), Counter[str]()
        # one: two threads of one interpreter would only take turns
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="render")

    async def close(self) -> None:
        """Close all connections."""
        self._renderer.shutdown(wait=False, cancel_futures=True)
        await self._services.reader.close()
        await self._writer.dispose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        site, head, headers = request_checks.NOWHERE, None, dict[str, str]()
        try:
            headers = request_checks.read_headers(scope["headers"])
            site = request_checks.site_of(headers.get("host", ""), self._pages, self._bound)
            head = _head(scope, headers, self._pages)
            reply = await self._answer(head, site, receive)
        except Exception as error:  # noqa: BLE001 - the top of a request: whatever it was becomes a page
            reply = _failed(error, head or Head(scope["method"], "", (), headers, ""))
        try:
            with contextlib.suppress(ConnectionError, TimeoutError):
                await send_reply(
                    reply,
                    site,
                    receive,
                    send,
                    has_body=scope["method"] != "HEAD",
                    stall_s=self._stall_s,
                )
        except PipelineError as error:
            # not completed: the connection ends, so that nobody takes the beginning for the whole
            log.warning("a page was cut off", extra={"code": error.error_code})

    async def _answer(self, head: Head, site: Site, receive: Receive) -> PageReply:
        if head.method not in _METHODS:
            raise _wrong_method("GET, HEAD, POST")
        parts = head.path.split("/")
        if parts[1:2] != ["debug"]:
            raise NotFound("the pages are below /debug")
        if parts[2:3] == ["static"]:
            return _asset(head)
        request_checks.check_source(head, site)
        cookie = request_checks.read_cookie(head.headers.get("cookie", ""), site.cookie)
        session = await self._logins.find(cookie, head.address) if cookie else None
        if head.path == links.LOGIN:
            return await self._log_in(head, site, session, receive)
        if session is None:
            return self._marked(_to_login(head), cookie)
        if head.path == links.LOGOUT:
            return await self._log_out(head, site, session, receive)
        if (
            head.method == "GET"
            and not head.wants_json
            and (head.query_value("again") or head.query_value("at"))
        ):
            return PageReply.redirect(
                head.without("again", "at") + request_checks.place(head.query_value("at"))
            )
        try:
            return self._marked(await self._show(head, site, session, cookie, receive), cookie)
        except PipelineError as error:
            # the last result of the doctor is only for those who are logged in
            doctor = (
                figures_of(self._services).groups["doctor"].values.get("found", ())
                if isinstance(error, AuditUnavailable)
                else ()
            )
            asked = PageRequest(
                path=head.path,
                params={},
                query=(),
                who=session.who,
                services=self._services,
                token=session.token,
            )
            return self._marked(_failed(error, head, doctor, asked), cookie)

    def _marked(self, reply: PageReply, cookie: str) -> PageReply:
        """Tell the gateway whose login this is: strangers do not wait in the same line there."""
        if self._pages.on_gateway:
            reply.headers.append((LOGIN_HEADER, self._logins.key_of(cookie).encode()))
        return reply

    # --- logins ---

    async def _log_in(
        self, head: Head, site: Site, session: LoginSession | None, receive: Receive
    ) -> PageReply:
        if head.method != "POST":
            next_ = request_checks.safe_next(head.query_value("next"))
            if session is not None:
                return PageReply.redirect(next_)
            return PageReply(body=plain.login(next_, has_readers=await self._logins.has_readers()))
        form = await read_form(receive)
        next_ = request_checks.safe_next(form.get("next", ""))
        try:
            cookie = await self._logins.begin(
                form.get("key", ""), head.address, head.headers.get("user-agent", "")
            )
        except RateLimited as error:
            return PageReply(
                429,
                plain.login(next_, fault=error.message),
                headers=[(b"retry-after", str(error.retry_after_s).encode())],
            )
        if cookie is None:
            log.warning("wrong key at the login of the pages", extra={"action": "login"})
            return PageReply(
                403,
                plain.login(
                    next_,
                    fault=(
                        "This is no key that may read the record: it needs the role auditor or"
                        " admin."
                    ),
                ),
            )
        return self._marked(
            PageReply.redirect(next_, _cookie(site, site.cookie, cookie, LASTS_S, is_hidden=True)),
            cookie,
        )

    async def _log_out(
        self, head: Head, site: Site, session: LoginSession, receive: Receive
    ) -> PageReply:
        if head.method != "POST":
            raise _wrong_method("POST")
        _check_token(await read_form(receive), session)
        await self._logins.end(session)
        return PageReply.redirect(links.LOGIN, _cookie(site, site.cookie, "", 0, is_hidden=True))

    # --- pages ---

    async def _show(
        self, head: Head, site: Site, session: LoginSession, cookie: str, receive: Receive
    ) -> PageReply:
        method = "GET" if head.method == "HEAD" else head.method
        route, params = self._router.find(method, head.path)
        if route.role == "admin" and not session.who.is_admin:
            raise Forbidden("this page is for keys with the role admin", code="wrong_role")
        form: dict[str, str] = {}
        if method == "POST":
            form = await read_form(receive)
            _check_token(form, session)
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
            async with asyncio.timeout(self._view_s), self._turn(session.who.key_id):
                reply = await self._shown(await route.view(asked), head, asked)
        except TimeoutError:
            raise AuditUnavailable(
                "the record took too long; narrow it with since, until or call_id"
            ) from None
        if reply.pieces is not None:
            is_open = self._streams if reply.media_type == _STREAM else self._downloads
            reply.pieces = self._while_logged_in(reply.pieces, cookie, is_open, session.who.key_id)
        if head.query_value("tz"):
            reply.headers.append(_cookie(site, ZONE_COOKIE, zone, _YEAR_S, is_hidden=False))
        return reply

    async def _shown(self, answer: Answer, head: Head, asked: PageRequest) -> PageReply:
        """Return the answer to send, its content on record."""
        match answer:
            case SeeOther():
                return PageReply.redirect(_kept(answer.to, head))
            case Download():
                self._check_open(answer, asked.who.key_id)
                await self._note(answer.shown, asked)
                return await PageReply.of_pieces(answer)
            case Page():
                make: Callable[[], bytes] = (
                    (lambda: to_json(answer))
                    if head.wants_json
                    else (lambda: render(answer, asked))
                )
                body = await asyncio.get_running_loop().run_in_executor(self._renderer, make)
                await self._note(answer.shown, asked)
                return PageReply(
                    answer.status,
                    body,
                    b"application/json" if head.wants_json else b"text/html; charset=utf-8",
                )

    def _check_open(self, answer: Download, key_id: str) -> None:
        if answer.media_type.encode() == _STREAM:
            if self._streams[key_id] >= MOST_STREAMS_OF_ONE:
                raise RateLimited(
                    f"this key has {MOST_STREAMS_OF_ONE} live pages open already; close one",
                    retry_after_s=5,
                )
        elif self._downloads[key_id] >= MOST_DOWNLOADS_OF_ONE:
            raise RateLimited(
                f"this key has {MOST_DOWNLOADS_OF_ONE} downloads under way already; let one end",
                retry_after_s=5,
            )

    async def _note(self, shown: ShownContent | None, asked: PageRequest) -> None:
        if shown is None:
            return
        who = asked.who
        await note(
            self._writer,
            PageRead(
                who.key,
                who.key_id,
                asked.path,
                urlencode(asked.query),
                who.login,
                shown.call_ids,
                shown.rows,
            ),
        )

    @contextlib.asynccontextmanager
    async def _turn(self, key_id: str) -> AsyncIterator[None]:
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
            async with self._turns[key_id], self._working:
                yield
        finally:
            self._asked[key_id] -= 1

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
                yield piece
        finally:
            is_open[key_id] -= 1
            left = {task for task in (waiting, over) if task is not None}
            for task in left:
                task.cancel()
            await asyncio.wait(left)
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    async def _until_logged_out(self, cookie: str) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            # an open page is no request: a login that nobody uses becomes idle all the same
            if await self._logins.find(cookie, "", is_seen=False) is None:
                return


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


def _head(scope: Scope, headers: dict[str, str], pages: Pages) -> Head:
    try:
        path = scope["raw_path"].decode("ascii")
        query = parse_qsl(
            scope["query_string"].decode("ascii"),
            keep_blank_values=True,
            max_num_fields=MAX_PARAMETERS,
            errors="replace",
        )
    except UnicodeDecodeError:
        raise InvalidRequest(
            "the path and query must be ASCII, with % before other bytes"
        ) from None
    except ValueError:
        raise InvalidRequest(f"more than {MAX_PARAMETERS} parameters") from None
    seen = set[str]()
    for name, value in query:
        if "\x00" in name or "\x00" in value:
            raise InvalidRequest("holds the character U+0000", param=name.replace("\x00", "")[:64])
        if name in request_checks.COMMON and name in seen:
            raise InvalidRequest("given twice", param=name)
        seen.add(name)
    # the gateway's word counts only where nobody else can say it
    forwarded_address = headers.get("x-sluice-client-address", "") if pages.on_gateway else ""
    address = forwarded_address or pages.address_of(
        str((scope.get("client") or ("",))[0]), headers.get("x-forwarded-for", "")
    )
    return Head(scope["method"], path, query, headers, address[:64])


def _zone(head: Head) -> Zone:
    zone = head.query_value("tz") or request_checks.read_cookie(
        head.headers.get("cookie", ""), ZONE_COOKIE
    )
    if head.query_value("tz") not in ("", "utc", "local"):
        raise InvalidRequest("must be utc or local", param="tz")
    return "local" if zone == "local" else "utc"


def _to_login(head: Head) -> PageReply:
    if head.method == "POST":
        raise Forbidden("log in first: this login has ended", code="not_logged_in")
    if request_checks.is_followed_link(head):
        again = head.without("again")
        return PageReply(body=plain.onward(f"{again}{'&' if '?' in again else '?'}again=1"))
    next_ = request_checks.safe_next(head.without("again"))
    return PageReply.redirect(
        links.with_query(links.LOGIN, {"next": next_ if next_ != links.ROOT else ""})
    )


def _kept(to: str, head: Head) -> str:
    """A redirect answers in the format that was asked for."""
    if (form := head.query_value("format")) not in ("json", "html"):
        return to
    path, mark, place = to.partition("#")
    return f"{path}{'&' if '?' in path else '?'}format={form}{mark}{place}"


def _asset(head: Head) -> PageReply:
    asset = assets.assets().get(head.path)
    if asset is None or head.method == "POST":
        raise NotFound("no such file")
    return PageReply(body=asset.body, media_type=asset.media_type.encode(), is_asset=True)


def _check_token(form: dict[str, str], session: LoginSession) -> None:
    if not form_is_ours(form, session):
        raise Forbidden(
            "this form is of another login: load its page again", code="wrong_form_token"
        )
    form.pop("token")


def _cookie(
    site: Site, name: str, value: str, seconds: int, *, is_hidden: bool
) -> tuple[bytes, bytes]:
    more = f"{'; HttpOnly' if is_hidden else ''}{'; Secure' if site.is_secure else ''}"
    return (
        b"set-cookie",
        f"{name}={value}; Path={links.ROOT}; Max-Age={seconds}; SameSite=Strict{more}".encode(),
    )


def _wrong_method(allowed: str) -> MethodNotAllowed:
    return MethodNotAllowed(f"this is asked for with {allowed}", param=allowed)


def _failed(
    error: Exception,
    head: Head,
    doctor: Sequence[Mapping[str, str]] = (),
    asked: PageRequest | None = None,
) -> PageReply:
    """Return the page of an error, for who is logged in with the links of all pages. The log names
    what failed and where, never what was asked: that may be content."""
    mark = secrets.token_hex(4)
    failure = (
        error
        if isinstance(error, PipelineError)
        else PipelineError("an error of ours, not of what you asked; the log has it")
    )
    status = failure.http_status
    fields: dict[str, object] = {"id": mark, "status": status, "code": failure.error_code}
    if isinstance(error, PipelineError):
        log.log(
            logging.WARNING if status >= 500 else logging.INFO, "a page was refused", extra=fields
        )
    else:
        frames = [
            f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)
        ]
        log.error(
            "a page failed",
            extra={**fields, "error": type(error).__name__, "where": " > ".join(frames[-8:])},
        )
    headers: list[tuple[bytes, bytes]] = []
    if status in (429, 503):
        headers.append((b"retry-after", str(failure.retry_after_s or 5).encode()))
    if status == 405:
        headers.append((b"allow", (failure.param or "GET").encode()))
    if head.wants_json:
        item = {
            "message": failure.message,
            "code": failure.error_code,
            "param": failure.param,
            "id": mark,
        }
        return PageReply(status, dump_json({"error": item}), b"application/json", headers)
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
    body = plain.failed(
        status,
        sentence,
        mark,
        asked=asked,
        doctor=doctor,
        again=again,
        without=without,
        param=failure.param or "",
    )
    return PageReply(status, body, headers=headers)
