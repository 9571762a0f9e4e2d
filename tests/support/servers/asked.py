"""Views asked without HTTP: the page as a reader gets it, and what it was made of."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from starlette.routing import Match
from starlette.routing import Route as HttpRoute

from db.debug_switches import DebugSwitches
from db.labels import Labels
from db.read.queries import AuditReader
from pages.http.views import read_params
from pages.page import Answer, Download, Page, PageRequest, Route, Services, Who
from pages.render import render
from pages.routes import ROUTES
from protocol.errors import NotFound
from settings.config import Config
from settings.runtime import Runtime
from tests.support.json_values import Json

Made = TypeVar("Made")
WHO = Who("dev", "0123456789abcdef", frozenset(("auditor",)), "login-1")


@dataclass(frozen=True, slots=True)
class Shown:
    """A page: what it was made of, and its HTML."""

    page: Page
    html: str

    @property
    def values(self) -> Any:
        """What the template saw."""
        return self.page.values


def find(path: str, routes: Sequence[Route] = ROUTES) -> tuple[Route, dict[str, str]]:
    """Return the route of a page, and its parameters. Raises NotFound."""
    for route in routes:
        http_route = HttpRoute(route.path, route.view, methods=[route.method])
        match, found = http_route.matches({"type": "http", "method": "GET", "path": path})
        if match is Match.FULL:
            return route, read_params(found["path_params"])
    raise NotFound("there is no such page")


class Pages:
    """Asks views by their paths, as somebody who is logged in."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def answer(self, url: str, **given: Any) -> tuple[Answer, PageRequest]:
        """Return what a view answers."""
        path, query = urlsplit(url).path, urlsplit(url).query
        route, params = find(path)
        asked = PageRequest(
            path=path,
            params=params,
            query=parse_qsl(query, keep_blank_values=True),
            who=WHO,
            services=self._services,
            **given,
        )
        return await route.view(asked), asked

    async def page(self, url: str) -> Shown:
        """Return a page."""
        answer, asked = await self.answer(url)
        assert isinstance(answer, Page), answer
        return Shown(answer, render(answer, asked).decode())

    async def file(self, url: str) -> bytes:
        """Return a download whole."""
        answer, _ = await self.answer(url)
        assert isinstance(answer, Download), answer
        return b"".join([piece async for piece in answer.pieces])


@asynccontextmanager
async def pages_of(
    database_url: str, config: Json, redis_url: str = "redis://127.0.0.1:1"
) -> AsyncIterator[Pages]:
    """Lend the pages of a record, as a process with this configuration serves them."""
    reader = AuditReader.open(database_url)
    settings = Runtime(
        config=Config.model_validate(config), redis_url=redis_url, database_url=database_url
    )
    try:
        yield Pages(Services(settings, reader, Labels(reader.engine), DebugSwitches(reader.engine)))
    finally:
        await reader.close()


def ask(
    database_url: str,
    config: Json,
    work: Callable[[Pages], Awaitable[Made]],
    redis_url: str = "redis://127.0.0.1:1",
) -> Made:
    """Ask the pages of a record."""

    async def run() -> Made:
        async with pages_of(database_url, config, redis_url) as pages:
            return await work(pages)

    return asyncio.run(run())
