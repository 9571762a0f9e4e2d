"""Which view answers which path."""

from pages.page import Route
from pages.views import (
    approvals,
    call,
    chunk_table,
    diff,
    downloads,
    evidence,
    integrity,
    keys,
    lists,
    live,
    logs,
    overview,
    policies,
    reads,
    request,
    search,
    sessions,
    text,
)

_LISTED: tuple[Route, ...] = (
    *approvals.ROUTES,
    *call.ROUTES,
    *diff.ROUTES,
    *downloads.ROUTES,
    *evidence.ROUTES,
    *integrity.ROUTES,
    *keys.ROUTES,
    *lists.ROUTES,
    *live.ROUTES,
    *logs.ROUTES,
    *overview.ROUTES,
    *policies.ROUTES,
    *reads.ROUTES,
    *request.ROUTES,
    *search.ROUTES,
    *sessions.ROUTES,
    *text.ROUTES,
    *chunk_table.ROUTES,
)
ROUTES = tuple(
    sorted(_LISTED, key=lambda route: [part.startswith("{") for part in route.path.split("/")])
)
"""The routes of all views, each named in the module of its view. Of two that match a path, the
first counts: the one that names its earlier part."""
