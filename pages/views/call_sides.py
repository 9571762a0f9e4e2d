"""Both sides of a call, decoded as its pages need them. Must not know: words, templates."""

import asyncio
from collections.abc import Sequence
from typing import Any

from db.engine import reading
from db.read.call.story import (
    MOST_BLOCKS,
    MOST_BYTES,
    Overview,
    read_beginnings,
    read_chunks,
    read_sent,
)
from pages.call import story
from pages.call.sides import Listener, SideBlock, align, beginning, in_order, read_client
from pages.call.story import Sides
from pages.page import PageRequest
from pages.views.one_at_a_time import decoding


def upstream_dialect(asked: PageRequest, upstream: str | None) -> str | None:
    """Return the dialect that a provider speaks by the configuration; None for one that is not
    there any more."""
    settings = asked.services.settings.config.upstreams.get(upstream or "")
    return None if settings is None else settings.dialect


async def sides_of(asked: PageRequest, overview: Overview, numbers: Sequence[int]) -> Sides:
    """Decode both sides of a call, and of one past `MOST_BYTES` or `MOST_BLOCKS` the beginnings of
    its blocks."""
    dialects = in_order(upstream_dialect(asked, overview.call["upstream"]))
    # who waits for others to decode holds no connection meanwhile
    async with decoding(overview.size):
        if overview.size <= MOST_BYTES and len(overview.numbers) <= MOST_BLOCKS:
            chunks, sent = await read_sides(asked, overview)
            return await asyncio.to_thread(whole_sides, overview, dialects, chunks, sent)
        firsts = {
            number: overview.spans[number]
            for number in numbers
            if number in overview.spans and number not in overview.tools
        }
        async with reading(asked.services.reader.engine) as connection:
            opening, beginnings = await read_beginnings(connection, overview.call_id, firsts)
        return await asyncio.to_thread(_beginnings, dialects, opening, beginnings)


async def read_sides(
    asked: PageRequest, overview: Overview
) -> tuple[list[tuple[int, int, bytes]], list[bytes]]:
    """Return what the upstream sent, with number and block of each chunk, and what the client
    got."""
    async with reading(asked.services.reader.engine) as connection:
        chunks = [
            (seq, block, bytes(raw))
            async for seq, block, raw in read_chunks(connection, overview.call_id)
        ]
        return chunks, [bytes(piece) async for piece in read_sent(connection, overview.call_id)]


def whole_sides(
    overview: Overview,
    dialects: Sequence[Any],
    chunks: Sequence[tuple[int, int, bytes]],
    sent: Sequence[bytes],
) -> Sides:
    """Return both sides of a call, aligned by block."""
    upstream = listen(overview, dialects, chunks)
    client = read_client(sent, overview.call["dialect"], streams=bool(overview.call["stream"]))
    got, left = align(story.decided(overview, upstream.blocks), list(client.blocks.values()))
    left = left or client.failed
    if not client.blocks and not left and client.problem:
        left = b"".join(sent).decode(errors="backslashreplace")
    return Sides(upstream.blocks, got, left, True, upstream.failed, upstream.problem)


def listen(
    overview: Overview, dialects: Sequence[Any], chunks: Sequence[tuple[int, int, bytes]]
) -> Listener:
    """Decode chunks; each attempt of the call is an answer of its own."""
    starts = {attempt["first_seq"] for attempt in overview.attempts}
    upstream = Listener(dialects)
    for seq, block, raw in chunks:
        if seq in starts:
            upstream.restart()
        upstream.take(raw, block)
    upstream.finish()
    return upstream


def _beginnings(
    dialects: Sequence[Any], opening: bytes, chunks: Sequence[tuple[int, bytes]]
) -> Sides:
    """The beginning of each block, decoded by itself."""
    by_block: dict[int, list[bytes]] = {}
    for block, raw in chunks:
        by_block.setdefault(block, []).append(raw)
    blocks: dict[int, SideBlock] = {}
    for block, pieces in by_block.items():
        if (first_block := beginning(dialects, opening, pieces)) is not None:
            blocks[block] = first_block
    return Sides(blocks)
