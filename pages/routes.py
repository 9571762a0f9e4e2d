"""Which view answers which path."""

from pages.page import Route
from pages.views import call, lists, overview, search, sessions

ROUTES: tuple[Route, ...] = (
    *call.ROUTES,
    *lists.ROUTES,
    *overview.ROUTES,
    *search.ROUTES,
    *sessions.ROUTES,
)
"""The routes of all views, each named in the module of its view."""
