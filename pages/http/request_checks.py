"""Checks a request for a page before its content is read: for this host, from this site, each
header at most once.

Pure. Must not know: the record, logins.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlencode

from pages import links
from protocol.errors import Forbidden, InvalidRequest, RequestError
from settings.pages import PAGE_HEADERS, Pages

FORM = "application/x-www-form-urlencoded"
COMMON = ("tz", "again", "at")
"""Parameters that mean the same on all pages."""
MAX_TEXT = 2_000
ASSETS = f"{links.ROOT}/static"
_HOST = re.compile(
    r"(?P<name>[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:(?P<port>[0-9]{1,5}))?"
)
_LOOPBACK = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|\[::1\]")
_PLACE = re.compile(r"[a-z][a-z0-9-]{0,63}")
_SINGLE = (
    "host",
    "origin",
    "content-type",
    "sec-fetch-site",
    "sec-fetch-mode",
    "sec-fetch-dest",
    "last-event-id",
    "accept",
)


class Misdirected(RequestError):
    """The request names a host that is not ours."""

    code = "unknown_host"
    http_status = 421


@dataclass(frozen=True, slots=True)
class Site:
    """Our origin as the reader's browser sees it."""

    origin: str
    is_secure: bool
    """TLS ends at us, or at a proxy before us."""
    is_loopback: bool

    @property
    def cookie(self) -> str:
        """The name of the cookie."""
        return "__Secure-sluice_pages" if self.is_secure else "sluice_pages"

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of every answer, except for those that it has itself."""
        # without a referrer a browser does not send the origin of a form either: it is left out
        # only where Sec-Fetch-Site has it too
        referrer = b"no-referrer" if self.is_secure or self.is_loopback else b"same-origin"
        return [*PAGE_HEADERS, (b"referrer-policy", referrer), (b"cache-control", b"no-store")]


NOWHERE = Site("", is_secure=False, is_loopback=True)
"""Of answers to requests that name no host of ours."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request: the path as it came, the query, headers by lower-case name."""

    method: str
    path: str
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, str]
    address: str

    def query_value(self, name: str) -> str:
        """The first value of a parameter, empty where it is not given."""
        return next((value for parameter, value in self.query if parameter == name), "")

    @property
    def wants_json(self) -> bool:
        """Are errors to be JSON, as for our own script?"""
        accept = self.headers.get("accept", "").lower()
        return "application/json" in accept and "text/html" not in accept

    @property
    def is_asset(self) -> bool:
        """Is this for a file that pages use, which anybody may have?"""
        return self.path == ASSETS or self.path.startswith(f"{ASSETS}/")

    @property
    def own_query(self) -> list[tuple[str, str]]:
        """The parameters that are the page's own."""
        return [(name, value) for name, value in self.query if name not in COMMON]

    def without(self, *names: str) -> str:
        """The path and query without these parameters."""
        remaining = [(name, value) for name, value in self.query if name not in names]
        return f"{self.path}?{urlencode(remaining)}" if remaining else self.path


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by name. Raises InvalidRequest where one that decides is there twice: two
    readers may differ."""
    headers: dict[str, str] = {}
    for raw_name, value in raw:
        name = raw_name.decode("latin-1").lower()
        if name in headers and name in _SINGLE:
            raise InvalidRequest(
                f"the header {name} is sent more than once", code="repeated_header", param=name
            )
        headers[name] = (
            f"{headers[name]}; {value.decode('latin-1')}"
            if name in headers
            else value.decode("latin-1")
        )
    return headers


def site_of(host: str, pages: Pages, bound: str) -> Site:
    """Return where a browser is that names this host; `bound` is the address that is listened on
    for browsers. Raises Misdirected for a host that is neither this machine, nor that address, nor
    that of `pages.url`: somebody else's name may point here (DNS rebinding).
    """
    named_host = host.lower()
    if pages.url:
        scheme, _, named = pages.url.lower().partition("://")
        standard = ":443" if scheme == "https" else ":80"
        if named_host.removesuffix(standard) == named.removesuffix(standard):
            return Site(
                f"{scheme}://{named.removesuffix(standard)}",
                is_secure=scheme == "https",
                is_loopback=False,
            )
    match = _HOST.fullmatch(named_host)
    if match is not None:
        is_loopback = _LOOPBACK.fullmatch(match["name"]) is not None
        if is_loopback or (
            bound not in ("0.0.0.0", "::", "") and match["name"].strip("[]") == bound.lower()
        ):
            return Site(
                f"http://{named_host.removesuffix(':80')}", is_secure=False, is_loopback=is_loopback
            )
    raise Misdirected(
        "this host name is not one of the pages': open them by this machine's own address, or set"
        " pages.url to theirs"
    )


def check_source(head: Head, site: Site) -> None:
    """Raise Forbidden for what another site makes a browser ask for: frames, images, scripts and
    its forms."""
    from_site = head.headers.get("sec-fetch-site", "none")
    if head.method == "POST":
        origin = head.headers.get("origin", "")
        # "null" is what a browser says of a page that says no-referrer, and of a sandboxed frame
        # elsewhere: the other header tells
        is_ours = origin == site.origin or (
            origin == "null" and head.headers.get("sec-fetch-site") == "same-origin"
        )
        if not is_ours or from_site not in ("same-origin", "none"):
            raise Forbidden("this form was not sent from one of our own pages", code="foreign_form")
        if head.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            raise InvalidRequest(
                f"the content type of a form is {FORM}", code="not_a_form", param="content-type"
            )
    elif from_site in ("cross-site", "same-site") and not is_navigation(head):
        raise Forbidden(
            "other sites may link to these pages, and nothing else", code="foreign_request"
        )


def is_navigation(head: Head) -> bool:
    """Does somebody open this as a page of its own?"""
    return (
        head.headers.get("sec-fetch-mode") == "navigate"
        and head.headers.get("sec-fetch-dest") == "document"
    )


def is_followed_link(head: Head) -> bool:
    """Did somebody follow a link of another site here? Their browser keeps our cookie back then,
    the first time."""
    return (
        head.method == "GET"
        and head.headers.get("sec-fetch-site") == "cross-site"
        and is_navigation(head)
        and not head.query_value("again")
    )


def safe_next(target: str) -> str:
    """Return where to go after a login: a path of pages, or their first one if `target` is anything
    else."""
    path, _, query = target.partition("?")
    decoded = unquote(path, errors="replace")
    fits = (
        len(target) <= MAX_TEXT
        and target.isascii()
        and target.isprintable()
        and " " not in target
        and "#" not in target
    )
    is_ours = decoded == links.ROOT or decoded.startswith(f"{links.ROOT}/")
    is_odd = (
        any(sign in text for text in (path, decoded) for sign in ("//", "\\", ";", "\ufffd"))
        or "\\" in query
    )
    moves = (
        any(part.strip() in (".", "..") for part in decoded.split("/")) or not decoded.isprintable()
    )
    is_own = decoded.startswith((links.LOGIN, links.LOGOUT))
    return target if fits and is_ours and not is_odd and not moves and not is_own else links.ROOT


def place(at: str) -> str:
    """Return the fragment for a place on a page, empty for what is none."""
    return f"#{at}" if _PLACE.fullmatch(at) else ""


def read_cookie(header: str, name: str) -> str:
    """Return the value of a cookie; empty where there is none, or there are two: one of them may be
    somebody else's."""
    values = {
        value.strip()
        for cookie_name, _, value in (cookie.partition("=") for cookie in header.split(";"))
        if cookie_name.strip() == name
    }
    return values.pop() if len(values) == 1 else ""
