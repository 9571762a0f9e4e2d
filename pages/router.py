"""Finds the route of a path. A path is taken as it came: a part may hold an escaped slash, which
does not end the part.

Pure. Must not know: HTTP except methods and paths.
"""

from collections.abc import Iterable

from pages import links
from pages.page import Route
from protocol.errors import MethodNotAllowed, NotFound


class Router:
    """The routes; of two that match a path, the one that names its earlier part wins."""

    def __init__(self, routes: Iterable[Route]) -> None:
        listed = [(route, route.path.split("/")) for route in routes]
        self._routes = sorted(
            listed, key=lambda candidate: [part.startswith("{") for part in candidate[1]]
        )

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Return the route and its parameters. Raises NotFound, and InvalidRequest where only
        another method is taken."""
        parts, others = path.split("/"), set[str]()
        for route, expected in self._routes:
            params = _params(expected, parts)
            if params is None:
                continue
            if route.method == method:
                return route, params
            others.add(route.method)
        if others:
            allowed = ", ".join(sorted(others | ({"HEAD"} if "GET" in others else set())))
            raise MethodNotAllowed(f"this is asked for with {allowed}", param=allowed)
        raise NotFound("there is no such page")


def _params(expected: list[str], parts: list[str]) -> dict[str, str] | None:
    if len(expected) != len(parts):
        return None
    params = {}
    for name, part in zip(expected, parts, strict=True):
        if name.startswith("{"):
            try:
                value = links.read_part(part)
            except ValueError:
                return None
            if not value or "\x00" in value:
                return None
            params[name.strip("{}")] = value
        elif name != part:
            return None
    return params
