"""Lists what a client got, in order: the releases of a call, and what its gateway wrote itself.
Works on one page of the call's chunks.

Each piece stands with the newest chunk that the policy worker had when it released the piece;
pieces before the first chunk stand before all. What a gateway writes itself is in events of the
call: keepalives (`keepalive`), its own error (`frame`), and the text that replaces a last release
whose status could no longer be sent (`late`). Must not know: filters, cursors.
"""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, LiteralString
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from db.read.json_rows import JsonObject, payload, release_item, time
from db.text import from_column
from protocol.bytes import waiting
from protocol.dialects.table import CLIENTS, DEFAULT
from protocol.records import to_bytes

END = 2**31
# of the tables and not of the view: their indexes find it
_CHUNK: LiteralString = """(SELECT greatest(
    (SELECT max(k.seq) FROM chunk_rows k WHERE k.call_id = :call AND k.seq <= {seq}),
    (SELECT least(k.last, {seq}) FROM chunk_runs k WHERE k.call_id = :call AND k.seq <= {seq}
        ORDER BY k.seq DESC LIMIT 1)))"""
_PLACE: LiteralString = "WHERE w.chunk = ANY (CAST(:seqs AS integer[])) OR (CAST(:first AS boolean) AND w.chunk IS NULL)"
_RELEASES: LiteralString = f"""
SELECT * FROM (
    SELECT 'release' AS kind, r.number, r.number_next, r.seq, r.at, substring(r.payload
        FROM 1 FOR CAST(:most AS integer)) AS payload,
        octet_length(r.payload) AS size, r.sha256, {_CHUNK.format(seq="r.seq")} AS chunk,
        p.since
    FROM releases r JOIN (SELECT number, lag(at) OVER (ORDER BY number) AS since FROM releases
        WHERE call_id = :call) p USING (number) WHERE r.call_id = :call AND r.seq >= CAST(:low AS integer) AND r.seq < coalesce(
        (SELECT min(k.seq) FROM chunks k WHERE k.call_id = :call
            AND k.seq > CAST(:last AS integer)), CAST({END} AS bigint))
) w {_PLACE} ORDER BY w.number
"""
_BESIDE: LiteralString = f"""
SELECT * FROM (
    SELECT e.kind, e.number, e.at, e.detail, n.number AS before,
        {_CHUNK.format(seq="coalesce(n.seq, l.seq, 2147483647)")} AS chunk
    FROM events e
    LEFT JOIN LATERAL (
        SELECT r.number, r.seq FROM releases r WHERE r.call_id = :call AND r.number >= e.number
            ORDER BY r.number LIMIT 1
    ) n ON e.kind <> 'late'
    LEFT JOIN LATERAL (
        SELECT r.seq FROM releases r WHERE r.call_id = :call AND r.number <= e.number
            ORDER BY r.number DESC LIMIT 1
    ) l ON e.kind = 'late'
    WHERE e.call_id = :call AND e.kind IN ('keepalive', 'frame', 'late')
) w {_PLACE} ORDER BY w.number, w.kind DESC
"""
"""What is written before a session output stands before the release with it, and behind all where
none has it."""
_CALL: LiteralString = """
SELECT c.dialect, ARRAY(SELECT v.number FROM events v WHERE v.call_id = :call
    AND v.kind = 'late') AS late, CASE WHEN e.relayed < 0
    THEN (SELECT max(v.number) FROM events v WHERE v.call_id = :call AND v.kind = 'relayed')
        ELSE e.relayed END AS relayed
FROM (SELECT) one LEFT JOIN calls c ON c.call_id = :call LEFT JOIN ends e ON e.call_id = :call
"""
_DECIDED: LiteralString = """
SELECT block, at FROM blocks WHERE call_id = :call UNION SELECT block, at FROM tool_releases
    WHERE call_id = :call ORDER BY block
"""


async def read_written(
    connection: AsyncConnection,
    call_id: UUID,
    seqs: Sequence[int],
    *,
    first: bool,
    most: int | None = None,
) -> dict[int | None, list[JsonObject]]:
    """Return what was written up to each of these chunks; under None, if it is the `first` page,
    what was written before any.

    seqs: of a page's chunks, ascending or descending. With `most`, only so many bytes of each
    piece, and `bytes` says how many it has.
    """
    if not seqs and not first:
        return {}
    low, last = (-1 if first else min(seqs)), max(seqs, default=-1)
    parameters = {"call": call_id, "seqs": list(seqs), "first": first, "low": low, "last": last}
    parameters["most"] = END - 1 if most is None else most
    [call] = await connection.execute(text(_CALL), {"call": call_id})
    decided = [
        (block, at) for block, at in await connection.execute(text(_DECIDED), {"call": call_id})
    ]
    pieces: list[tuple[tuple[int, int], int | None, JsonObject]] = []
    for row in await connection.execute(text(_RELEASES), parameters):
        item = _release_item(row, call, _blocks(decided, row.since, row.at))
        pieces.append(
            ((row.number, 2), row.chunk, item if most is None else {**item, "bytes": row.size})
        )
    for row in await connection.execute(text(_BESIDE), parameters):
        place = (
            (row.number, 3)
            if row.kind == "late"
            else (END if row.before is None else row.before, int(row.kind == "frame"))
        )
        item = _beside_item(row, call.dialect)
        pieces.append(
            (
                place,
                row.chunk,
                (
                    item
                    if most is None
                    else {**item, "bytes": len(item["payload"].encode(errors="surrogatepass"))}
                ),
            )
        )
    by_chunk: dict[int | None, list[JsonObject]] = {}
    for _, chunk, item in sorted(pieces, key=lambda piece: piece[0]):
        by_chunk.setdefault(chunk, []).append(item)
    return by_chunk


def _blocks(
    decided: Sequence[tuple[int, datetime]], since: datetime | None, until: datetime
) -> list[int]:
    """The content blocks whose verdict or release was recorded between two releases."""
    return sorted(
        {block for block, at in decided if (since is None or at >= since) and at <= until}
    )


def _release_item(row: Any, call: Any, blocks: list[int]) -> JsonObject:
    relayed = None
    if call.relayed is not None:
        relayed = row.number_next <= call.relayed and not any(
            row.number <= number < row.number_next for number in call.late
        )
    return {**release_item(row), "kind": "release", "relayed": relayed, "blocks": blocks}


def _beside_item(row: Any, dialect: str | None) -> JsonObject:
    detail = from_column(row.detail)
    if row.kind == "keepalive":
        data = waiting.written(CLIENTS.get(dialect or "", DEFAULT).keepalive, detail)
    else:
        data = to_bytes(detail)
    return {
        "number": row.number,
        "number_next": row.number,
        "seq": row.chunk,
        "at": time(row.at),
        **payload("payload", data),
        "sha256": sha256(data).hexdigest(),
        "kind": row.kind,
        "relayed": True,
        "blocks": [],
    }
