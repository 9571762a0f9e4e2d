"""Which view answers which path."""

from pages.page import Route

ROUTES: tuple[Route, ...] = ()
"""The routes of all views, each named in the module of its view."""
