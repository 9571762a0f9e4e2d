"""The pages as one Starlette application, and the layers that a request passes before its view.

From outside in: `PageAnswers` gives every answer its headers and makes pages of errors; `OwnSite`
lets through what is for us and from one of our pages; `LoggedIn`, who may read; `RecordedReads`
sends nothing of the record before a row says who is shown it."""

from collections.abc import Sequence
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute
from starlette.types import Receive, Scope, Send

from db.access_log import note
from db.debug_switches import DebugSwitches
from db.engine import open_engine
from db.labels import Labels
from db.page_sessions import PageSessions
from db.read.queries import AuditReader
from pages import assets, links
from pages.http.answers import PageAnswers
from pages.http.logged_in import LoggedIn, LoginPages
from pages.http.login import Logins
from pages.http.own_site import OwnSite
from pages.http.recorded_access import RecordedReads
from pages.http.request_checks import ASSETS
from pages.http.views import Views
from pages.http.visit import visit_of
from pages.page import Route, Services
from protocol.errors import MethodNotAllowed, NotFound
from settings.runtime import Runtime

_FOR_EVER = {"cache-control": "public, max-age=31536000, immutable"}


class App:
    """The pages of one process, with its own connections."""

    def __init__(self, settings: Runtime, routes: Sequence[Route]) -> None:
        config = settings.config
        bound = settings.host if config.pages.on_gateway else config.pages.host
        answer_s = config.limits.audit_read_s
        self._writer = open_engine(
            settings.database_url, read_only=False, answer_s=answer_s, pool_size=3
        )
        self.services = Services(
            settings,
            AuditReader.open(settings.database_url, answer_s=answer_s),
            Labels(self._writer),
            DebugSwitches(self._writer),
        )
        oidc, url, ways = config.login.oidc, config.pages.url, list[HttpRoute]()
        sessions = PageSessions(self._writer, oidc.issuer if oidc else "")
        self.logins = logins = Logins(config.keys, sessions)
        self._views = Views(self.services, logins)
        login_pages = LoginPages(logins, url + links.OIDC if oidc else "")
        if oidc:
            # only here: its library of signatures is for those who use it
            from pages.http.oidc.endpoints import OidcPages

            people = OidcPages(oidc, url, logins, sessions)
            ways = [
                HttpRoute(links.OIDC, people.begin),
                HttpRoute(links.OIDC_DONE, people.finish),
                HttpRoute(links.OIDC_LOGOUT, people.end, methods=["POST"]),
            ]
        self._app = Starlette(
            routes=[
                *ways,
                HttpRoute(f"{ASSETS}/{{file:path}}", _asset, methods=["GET", "POST"]),
                HttpRoute(links.LOGIN, login_pages.log_in, methods=["GET", "POST"]),
                HttpRoute(links.LOGOUT, login_pages.log_out, methods=["POST"]),
                *(
                    HttpRoute(
                        route.path, partial(self._views.answer, route), methods=[route.method]
                    )
                    for route in routes
                ),
            ],
            middleware=[
                Middleware(PageAnswers, self.services, config.limits.client_stall_s),
                Middleware(OwnSite, config.pages, bound),
                Middleware(LoggedIn, logins),
                Middleware(RecordedReads, partial(note, self._writer)),
            ],
            exception_handlers={HTTPException: _not_served},
        )
        self._app.router.redirect_slashes = False

    async def close(self) -> None:
        """Close all connections."""
        self._views.close()
        await self.services.reader.close()
        await self._writer.dispose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._app(scope, receive, send)


async def _asset(request: Request) -> Response:
    head = visit_of(request.scope).head
    asset = assets.assets().get(head.path)
    if asset is None or head.method == "POST":
        raise NotFound("no such file")
    return Response(asset.body, headers={**_FOR_EVER, "content-type": asset.media_type})


async def _not_served(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "GET").split(", ")))
        raise MethodNotAllowed(f"this is asked for with {allowed}", param=allowed)
    raise NotFound("there is no such page")
