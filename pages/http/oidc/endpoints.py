"""The way to the OpenID Connect provider and back, as endpoints; and the provider's own word that
somebody is logged out.

A login in progress is held by the browser alone: a cookie of ten minutes with a random text, which
is the PKCE verifier, and from which state and nonce are made. So an answer counts in the browser
that asked, once, and strangers cannot fill anything here. Must not know: the record, keys.
"""

import logging
import secrets
from base64 import urlsafe_b64encode
from functools import partial
from hashlib import sha256
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from db.page_sessions import PageSessions
from pages import links
from pages.http import plain_pages
from pages.http.logged_in import add_cookie
from pages.http.login import Logins
from pages.http.oidc.fetch import ProviderAway
from pages.http.oidc.provider import Provider
from pages.http.oidc.tokens import LoginRefused
from pages.http.replies import html, read_form, see_other
from pages.http.request_checks import read_cookie, safe_next
from pages.http.visit import visit_of
from protocol.errors import PipelineError
from settings.login import Oidc

log = logging.getLogger(__name__)
FLOW_S = 600
"""How long somebody may take to log in at the provider."""


class OidcPages:
    """Where people go to log in, and where they come back. `url` is the address of the pages for
    browsers."""

    def __init__(self, oidc: Oidc, url: str, logins: Logins, sessions: PageSessions) -> None:
        self._provider, self._logins, self._sessions = Provider(oidc), logins, sessions
        self._oidc, self._url = oidc, url

    async def begin(self, request: Request) -> Response:
        """Send a browser to the provider."""
        visit, flow = visit_of(request.scope), secrets.token_urlsafe(32)
        next_ = safe_next(visit.head.query_value("next"))
        asked = {
            "redirect_uri": self._url + links.OIDC_DONE,
            "state": _hashed(f"state {flow}"),
            "nonce": _hashed(f"nonce {flow}"),
            "code_challenge": _hashed(flow),
            "code_challenge_method": "S256",
        }
        try:
            url = await self._provider.login_url(asked)
        except ProviderAway as error:
            return self._refused(next_, error)
        response = see_other(url)
        site, value = visit.site, f"{flow}.{quote(next_, safe='/?&=')}"
        name = f"{site.cookie}_login"
        # lax: the provider's redirect brings it back
        add_cookie(response, site, name, value, FLOW_S, is_hidden=True, same_site="Lax")
        return response

    async def finish(self, request: Request) -> Response:
        """Take the provider's answer out of a browser, and log in whom it names."""
        visit = visit_of(request.scope)
        head, site, answer = visit.head, visit.site, dict(visit.head.query)
        name = f"{site.cookie}_login"
        flow, _, quoted = read_cookie(head.headers.get("cookie", ""), name).partition(".")
        next_ = safe_next(unquote(quoted, errors="replace"))
        issuer = self._oidc.issuer
        if not flow or answer.get("state") != _hashed(f"state {flow}"):
            # one that is under way goes on: another site may have sent this
            message = "this is no answer to a login that began in this browser within ten minutes"
            return self._refused(next_, LoginRefused(message))
        try:
            if answer.get("iss", issuer) != issuer:
                raise LoginRefused("this is the answer of another provider")
            if "code" not in answer:
                reason = answer.get("error", "it sent no code")[:64]
                raise LoginRefused(f"the provider did not log you in ({reason})")
            asked = {"code": answer["code"], "redirect_uri": self._url + links.OIDC_DONE}
            asked["code_verifier"] = flow
            ask = partial(self._provider.person, asked, _hashed(f"nonce {flow}"))
            agent = head.headers.get("user-agent", "")
            login = await self._logins.begin_person(ask, head.address, agent)
            visit.login = self._logins.key_of(login)
            # by a request of our own: a browser that comes from elsewhere keeps the cookie back
            response = html(plain_pages.onward(next_))
            add_cookie(response, site, site.cookie, login, self._oidc.login_s, is_hidden=True)
        except PipelineError as error:
            response = self._refused(next_, error)
        add_cookie(response, site, name, "", 0, is_hidden=True)
        return response

    async def end(self, request: Request) -> Response:
        """End the logins of whom the provider logged out (OpenID Connect Back-Channel Logout)."""
        form = await read_form(request.receive)
        logout = await self._provider.logout(form.get("logout_token", ""))
        await self._sessions.end_of_person(logout)
        return Response()

    def _refused(self, next_: str, error: PipelineError) -> Response:
        # of the provider's answer only names of claims, and of errors in one word
        fields = {"code": error.error_code, "reason": error.message}
        log.warning("no login by OpenID Connect", extra=fields)
        page = plain_pages.login(next_, self._url + links.OIDC, fault=error.message)
        return html(page, error.http_status)


def _hashed(text: str) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()
