"""The search box: a name or id leads to its page, all else is searched in tool calls."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from db.engine import reading
from db.filters import created_at, ids_with
from db.read.call.texts import requests_with
from db.read.json_rows import time
from db.text import words
from pages import links, listing
from pages.page import Answer, Page, PageRequest, Route, SeeOther, ShownContent
from pages.views.lists import page_of
from protocol.errors import InvalidRequest, NotFound

_TEXTS = "texts"
_PLACES = (("Tool calls", ""), ("Texts of users and models", _TEXTS))
_LEAST, _MOST = 4, 100
"""Letters of a text that is looked for, and requests that are listed."""


async def search(asked: PageRequest) -> Answer:
    """What was typed into the box of the head."""
    text = asked.one("q").strip()
    place = asked.one("in")
    to = await _named(asked, text) if text and not place and not asked.one("cursor") else None
    if to is not None:
        return SeeOther(to)
    if (span := listing.moment(text)) is not None and not place and not asked.one("cursor"):
        since, until = span
        return SeeOther(links.with_query(links.TOOL_CALLS, {"since": since, "until": until}))
    tabs = [
        (
            name,
            links.with_query(links.SEARCH, {"q": text, "in": place_name}),
            place_name == place,
            None,
            None,
        )
        for name, place_name in _PLACES
    ]
    if place:
        return await _texts(asked, text, tabs)
    if not words(text):
        return Page(
            template="search.html",
            title="Search",
            values={"asked_for": text, "items": [], "texts": None, "tabs": []},
        )
    list_query = listing.read(asked, "tool-calls")
    if isinstance(list_query, SeeOther):
        return list_query
    loaded = await listing.load(asked.services.reader, list_query)
    if isinstance(loaded, SeeOther):
        return loaded
    page = page_of(asked, "search.html", "Search", list_query, *loaded)
    return replace(page, values={**page.values, "asked_for": text, "texts": None, "tabs": tabs})


async def _texts(asked: PageRequest, text: str, tabs: list[Any]) -> Page:
    """The newest requests that have this text: what users wrote, and what models answered
    before."""
    if asked.one("in") != _TEXTS:
        raise InvalidRequest(f"must be {_TEXTS}", param="in")
    if len(text) < _LEAST:
        raise InvalidRequest(
            f"must have {_LEAST} letters or more to be looked for in texts", param="q"
        )
    async with reading(asked.services.reader.engine) as connection:
        matches = await requests_with(connection, text)
    items = matches.items[:_MOST]
    texts = {**matches._asdict(), "items": items, "all": len(matches.items)}
    values = {"asked_for": text, "items": [], "texts": texts, "tabs": tabs}
    return Page(
        template="search.html",
        title="Search",
        values=values,
        shown=ShownContent([UUID(item["call_id"]) for item in items], len(items)),
    )


async def _named(asked: PageRequest, text: str) -> str | None:
    """The page of what has this name: a call, a tool call, a session, a key."""
    reader = asked.services.reader
    try:
        call_id = await reader.find_call(text)
        if await reader.has_call(call_id):
            return links.call(call_id)
    except NotFound:
        pass
    except InvalidRequest as error:
        if error.error_code == "ambiguous_call_id":
            first, last = map(created_at, ids_with(text.partition("…")[0].lower().replace("-", "")))
            return links.with_query(
                links.CALLS,
                {"since": time(first), "until": time(last and last + timedelta(milliseconds=1))},
            )
    if (location := await reader.find_tool_call(text)) is not None:
        return links.place(location[0], location[1])
    match await reader.find_session(text):
        case [key]:
            return links.session(key, text)
        case [_, _]:
            # each of the keys has a session of this name
            return links.with_query(links.SESSIONS, {"session": text})
        case _:
            pass
    if text in {key.name for key in asked.services.settings.config.keys} or await reader.has_key(
        text
    ):
        return links.key(text)
    return None


ROUTES = (Route(links.SEARCH, search),)
