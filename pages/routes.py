"""Which view answers which path."""

from pages.page import Route
from pages.views import call, diff, lists, overview, request, search, sessions, text, wire

ROUTES: tuple[Route, ...] = (
    *call.ROUTES,
    *diff.ROUTES,
    *request.ROUTES,
    *text.ROUTES,
    *wire.ROUTES,
    *lists.ROUTES,
    *overview.ROUTES,
    *search.ROUTES,
    *sessions.ROUTES,
)
"""The routes of all views, each named in the module of its view."""
