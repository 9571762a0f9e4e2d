"""Requests to views and their answers: values between `pages.http.application`, which knows HTTP,
and the views, which do not.

A view reads through `Asked.services` and returns a `Page`, a `Download` or a `Redirect`. It names
the content that it shows, because that is recorded before anybody sees it. Errors are those of
`protocol.errors`. Must not know: HTTP, cookies, templates.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from db.debug_switches import DebugSwitches
from db.labels import Labels
from db.read.queries import AuditReader
from protocol.errors import InvalidRequest
from settings.runtime import Runtime

Zone = Literal["utc", "local"]
PageRole = Literal["auditor", "admin", "approver", "any"]
READERS = frozenset(("auditor", "admin"))
"""Who may read all of the record."""
MAY: Mapping[PageRole, frozenset[str]] = {
    "auditor": READERS,
    "admin": frozenset(("admin",)),
    "approver": frozenset(("approver",)),
    "any": READERS | {"approver"},
}
"""The roles that may see a page."""
PIECE_BYTES = 2**18


@dataclass(frozen=True, slots=True)
class Services:
    """What views read through. One per process."""

    settings: Runtime
    reader: AuditReader
    labels: Labels
    switches: DebugSwitches


@dataclass(frozen=True, slots=True)
class Who:
    """Who is logged in: the name and id of the key, its roles, and a name for this login that is
    not secret."""

    key: str
    key_id: str
    roles: frozenset[str]
    login: str

    @property
    def is_admin(self) -> bool:
        """May this reader switch debug logs, and see who read what?"""
        return "admin" in self.roles

    @property
    def is_reader(self) -> bool:
        """May this reader see all of the record, and not only what waits for approval?"""
        return not READERS.isdisjoint(self.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """One request, as views see it. `params` are the parts of the path, as text that came from
    outside."""

    path: str
    params: Mapping[str, str]
    query: Sequence[tuple[str, str]]
    """Without what is the same for all pages: `tz`, `again`, `at`."""
    form: Mapping[str, str] = field(default_factory=dict)
    """Of a POST whose token was right."""
    who: Who
    services: Services
    zone: Zone = "utc"
    token: str = ""
    """For the forms of this login."""
    last_event_id: str = ""
    """Where a stream of events is to go on."""

    def one(self, name: str, default: str = "") -> str:
        """Return a query parameter. Raises InvalidRequest where it is given twice."""
        values = [value for parameter, value in self.query if parameter == name]
        if len(values) > 1:
            raise InvalidRequest("given twice", param=name)
        return values[0] if values else default


@dataclass(frozen=True, slots=True)
class ShownContent:
    """The content that an answer shows, for its row in `reads`."""

    call_ids: Sequence[UUID] = ()
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An HTML page. `values` is what the template sees."""

    template: str
    title: str
    values: Mapping[str, Any]
    status: int = 200
    shown: ShownContent | None = None
    """None: it shows figures and names only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """An answer in pieces that is not HTML: text, a file, or a stream of events. It is sent with
    back pressure and never held whole."""

    pieces: AsyncIterator[bytes]
    media_type: str = "text/plain; charset=utf-8"
    filename: str = ""
    """Of an attachment; empty: shown in the browser."""
    shown: ShownContent | None = None


async def sliced(data: bytes) -> AsyncIterator[bytes]:
    """Hand on bytes in pieces that a client takes one by one; at least one."""
    for at in range(0, max(1, len(data)), PIECE_BYTES):
        yield data[at : at + PIECE_BYTES]


async def joined(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Hand on a piece that was taken already, and those behind it."""
    try:
        yield first
        async for piece in pieces:
            yield piece
    finally:
        await close_pieces(pieces)


async def close_pieces(pieces: AsyncIterator[bytes]) -> None:
    """Close what makes pieces, where that can be closed."""
    close = getattr(pieces, "aclose", None)
    if close is not None:
        await close()


@dataclass(frozen=True, slots=True)
class SeeOther:
    """A redirect (303). `to` is a path of ours, made by `pages.links`."""

    to: str


Answer = Page | Download | SeeOther
View = Callable[[PageRequest], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """A path and its handler: `/debug/calls/{call_id}` matches one part of a path for each name in
    braces."""

    path: str
    view: View
    method: Literal["GET", "POST"] = "GET"
    role: PageRole = "auditor"
    """Who may see it (`MAY`)."""
