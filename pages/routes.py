"""Which view answers which path."""

from pages.page import Route
from pages.views import (
    call,
    chunk_table,
    diff,
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

ROUTES: tuple[Route, ...] = (
    *call.ROUTES,
    *diff.ROUTES,
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
"""The routes of all views, each named in the module of its view."""
