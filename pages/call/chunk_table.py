"""Chunks and releases in parallel: what came when, what was held, and what went out because of it.
Must not know: the database."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from db.read.call.chunk_pages import ChunkPageRow
from db.read.call.story import Overview
from db.read.json_rows import JsonObject
from db.read.json_rows import time as iso
from protocol.bytes import eventstream

MOST = 600
"""Bytes of a chunk or a release that a row shows."""


def rows(
    overview: Overview, chunks: Sequence[ChunkPageRow], first_at: datetime | None
) -> list[dict[str, Any]]:
    """Return the rows of a page; times count from the call's first byte."""
    return [
        {
            "seq": chunk.seq,
            "at": iso(chunk.at),
            "since_ms": _since(chunk.at, first_at),
            "verdict": chunk.verdict,
            "held": chunk.held,
            "held_ms": _held(overview, chunk),
            "block": chunk.block,
            "size": chunk.size,
            "text": beginning(chunk.start, chunk.size),
            "cut": chunk.size > len(chunk.start),
            "written": [piece(release, first_at) for release in chunk.written],
        }
        for chunk in chunks
    ]


def piece(written: JsonObject, first_at: datetime | None) -> dict[str, Any]:
    """Return a piece that the client got."""
    shown = len(written["payload"].encode(errors="surrogatepass"))
    return {
        "kind": written["kind"],
        "number": written["number"],
        "at": written["at"],
        "since_ms": _since(_time(written["at"]), first_at),
        "blocks": written["blocks"],
        "relayed": written["relayed"],
        "size": written["bytes"],
        "text": written["payload"],
        "cut": written["bytes"] > shown,
    }


def beginning(start: bytes, size: int) -> str:
    """Return the beginning of a chunk as text; half a character at a cut is left out, and a binary
    message is taken apart."""
    if start.startswith(b"\0") and (message := eventstream.readable(start)):
        return message
    return start.decode(
        errors="ignore" if size > len(start) and _is_text(start) else "backslashreplace"
    )


def _is_text(start: bytes) -> bool:
    try:
        start[:-3].decode()
    except UnicodeDecodeError as error:
        return error.end >= len(start) - 3
    return True


def _held(overview: Overview, chunk: ChunkPageRow) -> int | None:
    """How long a held chunk waited for its release; None where it was never released, or is not
    known."""
    if not chunk.held:
        return None
    tool, block = overview.tools.get(chunk.block), overview.blocks.get(chunk.block)
    until = tool.released_at if tool is not None else block.at if block is not None else None
    return None if until is None else _since(until, chunk.at)


def _time(at: str | None) -> datetime | None:
    return None if at is None else datetime.fromisoformat(at)


def _since(at: datetime | None, first_at: datetime | None) -> int | None:
    return None if at is None or first_at is None else round((at - first_at).total_seconds() * 1000)
