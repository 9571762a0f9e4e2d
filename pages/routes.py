"""Which view answers which path."""

from pages.page import Route
from pages.views import call

ROUTES: tuple[Route, ...] = (*call.ROUTES,)
from pages.views import lists, search

ROUTES: tuple[Route, ...] = (
    *lists.ROUTES,
    *search.ROUTES,
)
"""The routes of all views, each named in the module of its view."""
