"""Who read what, for admins."""

from db.filters import parse_call_id
from db.read.access_log import PAGE, newest_reads
from pages import links
from pages.page import Answer, Page, PageRequest, Route, ShownContent
from protocol.errors import InvalidRequest

_KNOWN = ("key", "call_id", "cursor")


async def reads(asked: PageRequest) -> Answer:
    """The readings, newest first, of a key or of a call."""
    for name, _ in asked.query:
        if name not in _KNOWN:
            raise InvalidRequest(f"unknown filter; known are {', '.join(_KNOWN)}", param=name[:64])
    key, call, cursor = (asked.one(name)[:1000] for name in _KNOWN)
    reader = asked.services.reader
    # a call that is gone may have been read all the same
    named = parse_call_id(call) if call else None
    call_id = await reader.find_call(call) if isinstance(named, str) else named
    items, older = await newest_reads(
        reader.engine, key=key, call_id=call_id, cursor=cursor, limit=PAGE
    )
    parameters = {"key": key, "call_id": call}
    values = {
        "items": items,
        "key": key,
        "call_id": call,
        "older": links.with_query(links.READS, {**parameters, "cursor": older}) if older else None,
        "newest": links.with_query(links.READS, parameters) if cursor else None,
    }
    return Page(
        template="reads.html",
        title="Who read what",
        values=values,
        shown=ShownContent(rows=len(items)),
    )


ROUTES = (Route(links.READS, reads, role="admin"),)
