"""The search box: the name of a thing leads to its page, all else is words in tool calls."""

from dataclasses import replace
from datetime import timedelta

from db.filters import created_at, ids_with
from db.read.items import time
from db.text import words
from pages import links, listing
from pages.page import Answer, Asked, Page, Redirect, Route
from pages.views.lists import page_of
from protocol.errors import InvalidRequest, NotFound


async def search(asked: Asked) -> Answer:
    """What was typed into the box of the head."""
    text = asked.one("q").strip()
    to = await _named(asked, text) if text and not asked.one("cursor") else None
    if to is not None:
        return Redirect(to)
    if (span := listing.moment(text)) is not None and not asked.one("cursor"):
        since, until = span
        return Redirect(links.with_query(links.TOOL_CALLS, {"since": since, "until": until}))
    if not words(text):
        return Page(template="search.html", title="Search", values={"asked_for": text, "items": []})
    found = listing.read(asked, "tool-calls")
    if isinstance(found, Redirect):
        return found
    loaded = await listing.load(asked.services.reader, found)
    if isinstance(loaded, Redirect):
        return loaded
    page = page_of(asked, "search.html", "Search", found, *loaded)
    return replace(page, values={**page.values, "asked_for": text})


async def _named(asked: Asked, text: str) -> str | None:
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
            first, last = map(created_at, ids_with(text.lower().replace("-", "")))
            return links.with_query(links.CALLS, {"since": time(first), "until": time(last and last + timedelta(milliseconds=1))})
    if (found := await reader.find_tool_call(text)) is not None:
        return links.place(found[0], found[1])
    match await reader.find_session(text):
        case [key]:
            return links.session(key, text)
        case [_, _]:
            # each of the keys has a session of this name
            return links.with_query(links.SESSIONS, {"session": text})
        case _:
            pass
    if text in {key.name for key in asked.services.settings.config.keys} or await reader.has_key(text):
        return links.key(text)
    return None


ROUTES = (Route(links.SEARCH, search),)
