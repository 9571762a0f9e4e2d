"""The pages of a call's chunks, and the client's bytes put together from them."""

import base64
from uuid import UUID

from db.filters import parse_filters
from db.read.queries import AuditReader
from tests.support.json_values import Json

Page = Json


async def all_pages(url: str, call: str, **given: object) -> list[Page]:
    """Read all pages of a call's chunks by their cursors, in ascending order whatever was asked
    for."""
    reader = AuditReader.open(url)
    try:
        return await pages_of(reader, call, **given)
    finally:
        await reader.close()


async def pages_of(reader: AuditReader, call: str, **given: object) -> list[Page]:
    """The same over a reader that is open."""
    pages: list[Page] = []
    cursor = ""
    while cursor or not pages:
        values = [(name, str(value)) for name, value in given.items()] + [("cursor", cursor)]
        page = await reader.chunks(UUID(call), parse_filters(values, of="chunks"))
        assert page is not None
        pages.append(page)
        cursor = page["next_cursor"] or ""
    if given.get("order") == "desc":
        pages.reverse()
        for page in pages:
            page["items"].reverse()
    return pages


def written_of(pages: list[Page]) -> list[Json]:
    """What was written to the client, in order, each with the number of its chunk under `chunk`
    (None: before the first)."""
    found = []
    for page in pages:
        found += [{**piece, "chunk": None} for piece in page["released"]]
        for item in page["items"]:
            found += [{**piece, "chunk": item["seq"]} for piece in item["released"]]
    return found


def bytes_of(written: list[Json]) -> bytes:
    """The bytes that the client got."""
    return b"".join(exact_bytes(piece) for piece in written if piece["relayed"])


def exact_bytes(piece: Json) -> bytes:
    """The bytes of one piece."""
    exact = piece["payload_base64"]
    return piece["payload"].encode() if exact is None else base64.b64decode(exact)
