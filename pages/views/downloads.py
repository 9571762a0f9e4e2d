"""Bytes of a call as files: its export, its request, and pieces of its record as they are
stored."""

from collections.abc import AsyncIterator
from uuid import UUID

from db.filters import Filters
from db.read.call.chunk_pages import read_slices
from db.read.export import export_lines
from pages.page import Download, PageRequest, Route, ShownContent, joined
from pages.spooled_output import spooled
from pages.views.call import CALL, call_of, check_query, number_of
from protocol.errors import InvalidRequest, NotFound


async def export(asked: PageRequest) -> Download:
    """The call as lines of JSON, as `GET /audit/export` has it."""
    call_id = await call_of(asked)
    check_query(asked)
    lines = spooled(export_lines(asked.services.reader.engine, Filters(call_id=call_id)))
    name = f"call-{call_id}.jsonl"
    return Download(
        pieces=lines,
        media_type="application/x-ndjson",
        filename=name,
        shown=ShownContent((call_id,), 1),
    )


async def request_raw(asked: PageRequest) -> Download:
    """The request body as the client sent it."""
    call_id = await call_of(asked)
    check_query(asked)
    pieces = read_slices(asked.services.reader, call_id, "request")
    return Download(
        pieces=pieces,
        media_type="application/octet-stream",
        filename=f"request-{call_id}.json",
        shown=ShownContent((call_id,), 1),
    )


async def block_raw(asked: PageRequest) -> Download:
    """Arguments, prompt or reply of a block, whole, as stored."""
    call_id, number = await call_of(asked), number_of(asked.params["block"], "block")
    check_query(asked, "of", "step")
    part, step = asked.one("of", "arguments"), number_of(asked.one("step", "0"), "step")
    if part not in ("arguments", "released", "prompt", "reply"):
        raise InvalidRequest("is arguments, released, prompt or reply", param="of")
    numbers = (number, step) if part in ("prompt", "reply") else (number,)
    slices = read_slices(asked.services.reader, call_id, part, *numbers)
    return await _raw(slices, f"{part} of block {number}", call_id)


async def chunk_raw(asked: PageRequest) -> Download:
    """One chunk as the upstream sent it."""
    return await _numbered(asked, "chunk")


async def release_raw(asked: PageRequest) -> Download:
    """One release as it was handed to the gateway."""
    return await _numbered(asked, "release")


async def _numbered(asked: PageRequest, of: str) -> Download:
    call_id, number = await call_of(asked), number_of(asked.params["number"], "number")
    check_query(asked)
    return await _raw(
        read_slices(asked.services.reader, call_id, of, number), f"{of} {number}", call_id
    )


async def _raw(slices: AsyncIterator[bytes], what: str, call_id: UUID) -> Download:
    """Bytes of the record as plain text: nothing in them can be taken for a page. Raises NotFound
    where there are none."""
    first = await anext(slices, None)
    if first is None:
        raise NotFound(f"no {what} of call {call_id} is on record")
    return Download(pieces=joined(first, slices), shown=ShownContent((call_id,), 1))


ROUTES = (
    Route(f"{CALL}/export", export),
    Route(f"{CALL}/request/raw", request_raw),
    Route(f"{CALL}/blocks/{{block}}/raw", block_raw),
    Route(f"{CALL}/chunks/{{number}}/raw", chunk_raw),
    Route(f"{CALL}/releases/{{number}}/raw", release_raw),
)
