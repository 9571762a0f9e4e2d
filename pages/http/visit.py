"""What is known of one request for a page: each layer of the application adds what it found out.

Must not know: the record, templates.
"""

from dataclasses import dataclass

from starlette.types import Scope

from pages.http.login import LoginSession
from pages.http.request_checks import NOWHERE, Head, Site

_VISIT = "sluice.visit"


@dataclass(slots=True)
class Visit:
    """One request. Until its head was checked it names no path and no host of ours."""

    head: Head
    site: Site = NOWHERE
    cookie: str = ""
    session: LoginSession | None = None
    login: str | None = None
    """The id of the key that is logged in, empty for nobody's; None where nobody looked. Gateways
    let strangers wait in a line of their own."""

    @property
    def reader(self) -> LoginSession:
        """Who is logged in, where nobody else comes."""
        assert self.session is not None
        return self.session


def begin_visit(scope: Scope) -> Visit:
    """Return what is known of a request that nobody looked at yet."""
    visit: Visit = Visit(Head(scope["method"], "", (), {}, ""))
    scope[_VISIT] = visit
    return visit


def visit_of(scope: Scope) -> Visit:
    """Return what the layers before this one know of a request."""
    visit: Visit = scope[_VISIT]
    return visit
