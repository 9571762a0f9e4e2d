"""The request of a call: its turns, its options, and the files in it."""

import asyncio
import re
from typing import Any
from uuid import UUID

from db.engine import reading
from db.read.call.chunk_pages import read_slices
from db.read.call.story import Overview, read_parent
from pages import links
from pages.call import request
from pages.page import Download, Page, PageRequest, Route, ShownContent, sliced
from pages.render import short
from pages.views.call import call_of, check_query, frame, overview_of
from pages.views.one_at_a_time import decoding
from protocol.dialects.table import CLIENTS, DEFAULT
from protocol.errors import InvalidRequest, NotFound
from protocol.records import to_text
from protocol.request import ChatRequest

_UNREAD = 64 * 1024
"""Bytes that are shown of a body that is no request."""
_SHA256 = re.compile("[0-9a-f]{64}")


async def show_request(asked: PageRequest) -> Page:
    """The newest turns, open; the others, the instructions and the tools folded."""
    call_id = await call_of(asked)
    check_query(asked, "from")
    overview = await overview_of(asked, call_id)
    async with reading(asked.services.reader.engine) as connection:
        parent = await read_parent(connection, overview)
    new = None if parent is None else parent[2] - parent[1]
    values: dict[str, Any] = {
        **await frame(asked, overview, "request"),
        **await read_turns(asked, overview, new=new),
        "parent": parent[0] if parent else None,
    }
    rows = values["request"]["turns"] if values["request"] else 1
    return Page(
        template="call_request.html",
        title=f"request · {short(str(call_id))}",
        values=values,
        shown=ShownContent((call_id,), rows),
    )


async def read_turns(
    asked: PageRequest, overview: Overview, *, new: int | None = None
) -> dict[str, Any]:
    """Return what the client sent, as `pages.call.request` has it; of a body that is no request how
    it began, and why it is none."""
    values: dict[str, Any] = {"request": None, "unread": None, "why": ""}
    async with decoding(overview.counts.body_size or 0):
        body = await _body(asked, overview.call_id)
        if body:
            try:
                values["request"] = await asyncio.to_thread(
                    lambda: request.shown(_decode(overview, body), new=new)
                )
            except (InvalidRequest, RecursionError) as error:
                values["unread"] = to_text(body[:_UNREAD])
                values["why"] = (
                    error.message
                    if isinstance(error, InvalidRequest)
                    else "it is nested too deeply"
                )
    return values


async def show_file(asked: PageRequest) -> Download:
    """An image or a file of the request, as a download: it is never shown in a page of ours."""
    call_id = await call_of(asked)
    check_query(asked)
    wanted = asked.params["sha256"]
    if not _SHA256.fullmatch(wanted):
        raise InvalidRequest("must be a SHA-256 in hexadecimal digits", param="sha256")
    overview = await overview_of(asked, call_id)
    async with decoding(overview.counts.body_size or 0):
        body = await _body(asked, call_id)
        data = await asyncio.to_thread(_file, overview, body, wanted) if body else None
    if data is None:
        raise NotFound(f"no file {wanted[:12]} is in the request of call {call_id}")
    return Download(
        pieces=sliced(data),
        media_type="application/octet-stream",
        filename=f"file-{wanted[:12]}",
        shown=ShownContent((call_id,), 1),
    )


def _file(overview: Overview, body: bytes, wanted: str) -> bytes | None:
    try:
        return next(
            (file.data for file in request.files(_decode(overview, body)) if file.sha256 == wanted),
            None,
        )
    except (InvalidRequest, RecursionError):
        return None


def _decode(overview: Overview, body: bytes) -> ChatRequest:
    return CLIENTS.get(overview.call["dialect"] or "", DEFAULT).decode_request(body)


async def _body(asked: PageRequest, call_id: UUID) -> bytes:
    return b"".join(
        [piece async for piece in read_slices(asked.services.reader, call_id, "request")]
    )


ROUTES = (
    Route(f"{links.CALLS}/{{call_id}}/request", show_request),
    Route(f"{links.CALLS}/{{call_id}}/request/files/{{sha256}}", show_file),
)
