"""Lets through who is logged in; the pages to log in and out.

Must not know: the record, what a page shows.
"""

import logging

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from db.page_sessions import LASTS_S
from pages import links
from pages.http import plain_pages, request_checks
from pages.http.login import Logins, LoginSession, form_is_ours
from pages.http.replies import html, read_form, see_other
from pages.http.request_checks import Head, Site
from pages.http.visit import visit_of
from protocol.errors import Forbidden, RateLimited

log = logging.getLogger(__name__)


class LoggedIn:
    """A layer of the application: everybody else is led to the login, except for files that pages
    use."""

    def __init__(self, app: ASGIApp, logins: Logins) -> None:
        self._app, self._logins = app, logins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        visit = visit_of(scope)
        app, head = self._app, visit.head
        if not head.is_asset:
            visit.cookie = request_checks.read_cookie(
                head.headers.get("cookie", ""), visit.site.cookie
            )
            if visit.cookie:
                visit.session = await self._logins.find(visit.cookie, head.address)
            visit.login = self._logins.key_of(visit.cookie)
            if not head.path.startswith(links.LOGIN):
                if visit.session is None:
                    app = _to_login(head)
                elif head.method == "GET" and (head.query_value("again") or head.query_value("at")):
                    place = request_checks.place(head.query_value("at"))
                    app = see_other(head.without("again", "at") + place)
        await app(scope, receive, send)


class LoginPages:
    """The login and its end, as endpoints. `people_at`: where people log in at their provider,
    empty for nowhere."""

    def __init__(self, logins: Logins, people_at: str) -> None:
        self._logins, self._people_at = logins, people_at

    async def log_in(self, request: Request) -> Response:
        """Ask for a key, or exchange one for a cookie."""
        visit = visit_of(request.scope)
        head, site = visit.head, visit.site
        if head.method != "POST":
            next_ = request_checks.safe_next(head.query_value("next"))
            if visit.session is not None:
                return see_other(next_)
            has_readers = bool(self._people_at) or await self._logins.has_readers()
            return html(plain_pages.login(next_, self._people_at, has_readers=has_readers))
        form = await read_form(request.receive)
        next_ = request_checks.safe_next(form.get("next", ""))
        try:
            cookie = await self._logins.begin(
                form.get("key", ""), head.address, head.headers.get("user-agent", "")
            )
        except RateLimited as error:
            return html(
                plain_pages.login(next_, self._people_at, fault=error.message),
                429,
                {"retry-after": str(error.retry_after_s)},
            )
        if cookie is None:
            log.warning("wrong key at the login of the pages", extra={"action": "login"})
            fault = (
                "This is no key that may read the record: it needs the role auditor, admin or"
                " approver."
            )
            return html(plain_pages.login(next_, self._people_at, fault=fault), 403)
        visit.login = self._logins.key_of(cookie)
        response = see_other(next_)
        add_cookie(response, site, site.cookie, cookie, LASTS_S, is_hidden=True)
        return response

    async def log_out(self, request: Request) -> Response:
        """End the login that asks."""
        visit = visit_of(request.scope)
        site, session = visit.site, visit.reader
        check_token(await read_form(request.receive), session)
        await self._logins.end(session)
        response = see_other(links.LOGIN)
        add_cookie(response, site, site.cookie, "", 0, is_hidden=True)
        return response


def check_token(form: dict[str, str], session: LoginSession) -> None:
    """Take the token of this login out of a form. Raises Forbidden where it is none of this
    login's."""
    if not form_is_ours(form, session):
        raise Forbidden(
            "this form is of another login: load its page again", code="wrong_form_token"
        )
    form.pop("token")


def add_cookie(
    response: Response,
    site: Site,
    name: str,
    value: str,
    seconds: int,
    *,
    is_hidden: bool,
    same_site: str = "Strict",
) -> None:
    """Give an answer a cookie that our pages alone get back; `is_hidden`: also from their
    script."""
    more = f"{'; HttpOnly' if is_hidden else ''}{'; Secure' if site.is_secure else ''}"
    place = f"Path={links.ROOT}; Max-Age={seconds}; SameSite={same_site}"
    cookie = f"{name}={value}; {place}{more}"
    response.raw_headers.append((b"set-cookie", cookie.encode()))


def _to_login(head: Head) -> Response:
    if head.method == "POST":
        raise Forbidden("log in first: this login has ended", code="not_logged_in")
    if request_checks.is_followed_link(head):
        again = head.without("again")
        return html(plain_pages.onward(f"{again}{'&' if '?' in again else '?'}again=1"))
    next_ = request_checks.safe_next(head.without("again"))
    return see_other(links.with_query(links.LOGIN, {"next": next_ if next_ != links.ROOT else ""}))
