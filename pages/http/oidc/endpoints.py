"""The way to the OpenID Connect provider and back, as endpoints; and the provider's own word that
somebody is logged out.

A login in progress is held by the browser alone: a cookie of ten minutes with a random text, from
which state, nonce and PKCE verifier are made. So an answer counts in the browser that asked, once,
and strangers cannot fill anything here. Must not know: the record, keys.
"""

import hmac
import logging
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from pages import links
from pages.http import plain_pages, request_checks
from pages.http.logged_in import add_cookie
from pages.http.login import Logins
from pages.http.oidc.fetch import ProviderAway
from pages.http.oidc.provider import Provider
from pages.http.oidc.tokens import LoginRefused
from pages.http.replies import html, read_form, see_other
from pages.http.request_checks import Head, Site
from pages.http.visit import Visit, visit_of
from protocol.errors import Forbidden, InvalidRequest, RateLimited

log = logging.getLogger(__name__)
FLOW_S = 600
"""How long somebody may take to log in at the provider."""
_OF_NONE = "this is no answer to a login that began in this browser within ten minutes: begin again"
MAX_NEXT = 1_500
"""Characters of the address, quoted, to which a login leads; a longer one is forgotten."""


class OidcPages:
    """Where people go to log in, and where they come back. `url` is the address of the pages for
    browsers."""

    def __init__(self, provider: Provider, logins: Logins, url: str) -> None:
        self._provider, self._logins, self._url = provider, logins, url

    async def begin(self, request: Request) -> Response:
        """Send a browser to the provider."""
        visit = visit_of(request.scope)
        next_ = request_checks.safe_next(visit.head.query_value("next"))
        if visit.site.origin != request_checks.origin_of(self._url):
            # it comes back there, and its cookie must be there
            return see_other(self._url + links.with_query(links.OIDC, {"next": next_}))
        flow = secrets.token_urlsafe(32)
        try:
            response = see_other(
                await self._provider.login_url(
                    {
                        "redirect_uri": self._url + links.OIDC_DONE,
                        "state": _derived("state", flow),
                        "nonce": _derived("nonce", flow),
                        "code_challenge": _hashed(_derived("verifier", flow)),
                        "code_challenge_method": "S256",
                    }
                )
            )
        except ProviderAway as error:
            return _refused(visit, next_, error)
        quoted = quote(next_, safe="")
        _add_flow(response, visit.site, f"{flow}.{quoted if len(quoted) <= MAX_NEXT else ''}")
        return response

    async def finish(self, request: Request) -> Response:
        """Take the provider's answer out of a browser, and log in whom it names."""
        visit = visit_of(request.scope)
        answer, (flow, next_) = dict(visit.head.query), _flow(visit)
        state, wanted = answer.get("state", ""), _derived("state", flow)
        is_ours = bool(flow) and hmac.compare_digest(state.encode(), wanted.encode())
        if not is_ours or len(answer) != len(visit.head.query):
            # a login that is under way here goes on: another site may have sent this
            return _refused(visit, next_, LoginRefused(_OF_NONE))
        try:
            cookie = await self._finish(visit.head, answer, flow)
        except (ProviderAway, Forbidden, RateLimited) as error:
            response = _refused(visit, next_, error)
        else:
            visit.login = self._logins.key_of(cookie)
            # by a request of our own: a browser that comes from elsewhere keeps the cookie back
            response = html(plain_pages.onward(next_))
            seconds = self._provider.oidc.login_s
            add_cookie(response, visit.site, visit.site.cookie, cookie, seconds, is_hidden=True)
        _add_flow(response, visit.site, "")
        return response

    async def end(self, request: Request) -> Response:
        """End the logins of whom the provider logged out (OpenID Connect Back-Channel Logout)."""
        token = (await read_form(request.receive)).get("logout_token", "")
        try:
            logout = await self._provider.logout(token)
        except LoginRefused as error:
            log.warning("a logout of no provider of ours", extra={"action": "logout"})
            raise InvalidRequest(error.message, param="logout_token") from error
        await self._logins.end_of_person(logout.person, logout.sid, logout.issued_s)
        log.info("logged out by the provider", extra={"action": "logout"})
        return Response()

    async def _finish(self, head: Head, answer: Mapping[str, str], flow: str) -> str:
        await self._provider.check_issuer(answer.get("iss"))
        if "code" not in answer or "error" in answer:
            raise LoginRefused("the provider did not log you in")
        with self._logins.attempt(head.address):
            person = await self._provider.person(
                answer["code"],
                _derived("verifier", flow),
                _derived("nonce", flow),
                self._url + links.OIDC_DONE,
            )
        agent = head.headers.get("user-agent", "")
        return await self._logins.begin_person(person, agent, self._provider.oidc.login_s)


def _refused(visit: Visit, next_: str, error: ProviderAway | Forbidden | RateLimited) -> Response:
    log.warning("no login by the provider", extra={"action": "login", "code": error.error_code})
    fault = f"{error.message[:1].upper()}{error.message[1:]}."
    page = plain_pages.login(next_, fault=fault, has_people=True)
    again = {"retry-after": str(error.retry_after_s or 5)} if error.http_status != 403 else None
    return html(page, error.http_status, again)


def _flow(visit: Visit) -> tuple[str, str]:
    """The random text of a login in progress, empty for none, and where it leads."""
    name, _ = _cookie(visit.site)
    cookie = request_checks.read_cookie(visit.head.headers.get("cookie", ""), name)
    flow, _, quoted = cookie.partition(".")
    return flow, request_checks.safe_next(unquote(quoted, errors="replace"))


def _add_flow(response: Response, site: Site, value: str) -> None:
    name, path = _cookie(site)
    # lax: the provider's redirect brings it back
    add_cookie(
        response,
        site,
        name,
        value,
        FLOW_S if value else 0,
        is_hidden=True,
        path=path,
        same_site="Lax",
    )


def _cookie(site: Site) -> tuple[str, str]:
    """The name and path of the cookie. No other host of the domain can set one with `__Host-`, and
    so put its own login into this browser."""
    return ("__Host-sluice_login", "/") if site.is_secure else ("sluice_login", links.LOGIN)


def _derived(purpose: str, flow: str) -> str:
    return _hashed(f"{purpose} of {flow}")


def _hashed(text: str) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()
