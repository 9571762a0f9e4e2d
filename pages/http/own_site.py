"""Lets through requests that are for us and from one of our own pages, and reads their heads.

Must not know: the record, logins.
"""

from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from pages import links
from pages.http.request_checks import COMMON, Head, check_source, read_headers, site_of
from pages.http.visit import visit_of
from protocol.errors import InvalidRequest, MethodNotAllowed, NotFound
from settings.pages import Pages

MAX_PARAMETERS = 64
_METHODS = ("GET", "HEAD", "POST")


class OwnSite:
    """A layer of the application. `bound` is the address that is listened on for browsers. Raises
    RequestError for what is for another host, or what another site makes a browser ask for."""

    def __init__(self, app: ASGIApp, pages: Pages, bound: str) -> None:
        self._app, self._pages, self._bound = app, pages, bound

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        visit = visit_of(scope)
        headers = read_headers(scope["headers"])
        visit.head = Head(scope["method"], "", (), headers, "")
        visit.site = site_of(headers.get("host", ""), self._pages, self._bound)
        visit.head = head = self._head(scope, headers)
        if head.method not in _METHODS:
            raise MethodNotAllowed(
                f"this is asked for with {', '.join(_METHODS)}", param=", ".join(_METHODS)
            )
        if head.path != links.ROOT and not head.path.startswith(f"{links.ROOT}/"):
            raise NotFound(f"the pages are below {links.ROOT}")
        # the provider is no browser, and signs what it sends
        if not head.is_asset and head.path != links.OIDC_LOGOUT:
            check_source(head, visit.site)
        # as it came: a part may hold an escaped slash, which does not end the part
        await self._app({**scope, "path": head.path}, receive, send)

    def _head(self, scope: Scope, headers: dict[str, str]) -> Head:
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
                raise InvalidRequest(
                    "holds the character U+0000", param=name.replace("\x00", "")[:64]
                )
            if name in COMMON and name in seen:
                raise InvalidRequest("given twice", param=name)
            seen.add(name)
        # the gateway's word counts only where nobody else can say it
        pages = self._pages
        forwarded_address = headers.get("x-sluice-client-address", "") if pages.on_gateway else ""
        address = forwarded_address or pages.address_of(
            str((scope.get("client") or ("",))[0]), headers.get("x-forwarded-for", "")
        )
        return Head(scope["method"], path, query, headers, address[:64])
