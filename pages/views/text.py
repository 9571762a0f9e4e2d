"""A whole call as plain text, streamed: for Ctrl+F, curl and programs that compare."""

import asyncio
import base64
import codecs
from collections.abc import AsyncIterator, Sequence

from db.engine import reading
from db.read.call.chunk_pages import MOST_PIECE, read_all, read_all_written, read_slices
from db.read.call.story import Overview
from db.read.json_rows import JsonObject
from db.read.shed import read_shed
from pages import links
from pages.call import whole_text
from pages.call.head import shed_sentences
from pages.call.sides import Listener, in_order
from pages.page import Download, PageRequest, Route, ShownContent, joined, sliced
from pages.views.call import call_of, check_query, overview_of
from pages.views.call_sides import upstream_dialect
from protocol.dialects.table import CLIENTS, DEFAULT
from protocol.errors import InvalidRequest
from protocol.records import to_bytes

SPELLED_BYTES, SMALL_BYTES = 64 * 1024, 2048
"""Of what came, so much is spelled out at once, and so much on the loop: 3 ms at worst."""
MOST_DECODED = 2**20
"""Bytes of a request that is shown turn by turn; what is larger is shown as it came, so that little
is held for each reader."""


async def show_text(asked: PageRequest) -> Download:
    """The whole call, without a limit."""
    call_id = await call_of(asked)
    check_query(asked)
    overview = await overview_of(asked, call_id)
    return Download(
        pieces=_pieces(asked, overview), shown=ShownContent((call_id,), len(overview.numbers))
    )


async def _pieces(asked: PageRequest, overview: Overview) -> AsyncIterator[bytes]:
    reader, call_id = asked.services.reader, overview.call_id
    yield _encoded(f"{whole_text.ABOUT}{whole_text.top(overview)}")
    async for text in _request(asked, overview):
        yield _encoded(text)
    answer = whole_text.AnswerText(
        overview,
        Listener(in_order(upstream_dialect(asked, overview.call["upstream"])), keep_text=False),
    )
    async for chunks in read_all(reader, call_id):
        yield _encoded(
            await asyncio.to_thread(
                answer.take, [(seq, block, raw) for seq, block, raw in chunks if raw is not None]
            )
        )
        for seq in [seq for seq, _, raw in chunks if raw is None]:
            yield _encoded(whole_text.mark(f"chunk {seq} is large, so here it is as it came"))
            async for piece in _spelled(read_slices(reader, call_id, "chunk", seq)):
                yield piece
            yield b"\n"
    yield _encoded(await asyncio.to_thread(answer.end))
    async for pieces in read_all_written(reader, call_id):
        for row in pieces:
            yield _encoded(whole_text.written(row))
            is_cut = row["kind"] == "release" and row["bytes"] > MOST_PIECE
            first = bytes_of(row)
            whole = (
                joined(
                    first, read_slices(reader, call_id, "release", row["number"], start=MOST_PIECE)
                )
                if is_cut
                else sliced(first)
            )
            async for piece in _spelled(whole):
                yield piece
            yield b"\n"
    async with reading(reader.engine) as connection:
        # asked last: rows may have gone while this was read
        gone = shed_sentences(await read_shed(connection, call_id))
    yield await asyncio.to_thread(_last, overview, gone)


async def _request(asked: PageRequest, overview: Overview) -> AsyncIterator[str | bytes]:
    slices = read_slices(asked.services.reader, overview.call_id, "request")
    if (overview.counts.body_size or 0) > MOST_DECODED:
        yield whole_text.mark("request, as it came, because it is large")
        async for piece in _spelled(slices):
            yield piece
        yield "\n"
        return
    body = b"".join([piece async for piece in slices])
    if not body:
        return
    try:
        texts = await asyncio.to_thread(_decoded, overview.call["dialect"], body)
    except (InvalidRequest, RecursionError):
        texts = [whole_text.undecoded(body)]
    for text in texts:
        yield text


def _decoded(dialect: str | None, body: bytes) -> list[str]:
    return list(whole_text.request(CLIENTS.get(dialect or "", DEFAULT).decode_request(body)))


def _last(overview: Overview, gone: Sequence[str]) -> bytes:
    return _encoded(
        "".join(
            [
                *map(whole_text.event, overview.events),
                *map(whole_text.mark, gone),
                whole_text.mark("end"),
            ]
        )
    )


async def _spelled(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Bytes as text, also where a character lies in two pieces."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")

    def spell(part: bytes, *, final: bool = False) -> bytes:
        return _encoded(whole_text.spell(decoder.decode(part, final=final)))

    async for piece in pieces:
        for at in range(0, len(piece), SPELLED_BYTES):
            part = piece[at : at + SPELLED_BYTES]
            if len(part) <= SMALL_BYTES:
                # a call has thousands of such pieces, and a thread for each takes longer than they
                # do
                yield spell(part)
                await asyncio.sleep(0)
            else:
                # beside the loop: of what nobody would see, each character is a step of Python and
                # becomes eight bytes
                yield await asyncio.to_thread(spell, part)
    yield spell(b"", final=True)


def bytes_of(piece: JsonObject) -> bytes:
    """Return the bytes of a piece that the client got."""
    exact = piece["payload_base64"]
    return base64.b64decode(exact) if exact is not None else to_bytes(piece["payload"])


def _encoded(text: str | bytes) -> bytes:
    # lone surrogates are spelled out before
    return text if isinstance(text, bytes) else text.encode(errors="backslashreplace")


ROUTES = (Route(f"{links.CALLS}/{{call_id}}/text", show_text),)
