"""What the page of one call shows: sums by content block, the decisions on some blocks, and the
bytes of small calls.

A call may have 10,000 chunks, thousands of tool calls and bodies of megabytes. So chunks are
counted here and not read, and of long texts only the beginning and the end are read. Must not know:
words, templates.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any, LiteralString
from uuid import UUID

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import created_at
from db.models import CallRow, End
from db.read.json_rows import (
    JsonObject,
    attempt_item,
    call_item,
    decision_item,
    event_item,
    facts,
    score_item,
)
from db.read.one_call import without_beginning
from db.read.shed import read_shed
from db.read.whys import read_whys
from db.text import from_column, to_column
from protocol.conversations.histories import MARK_BYTES
from protocol.conversations.prefix_tree import common_bytes
from protocol.records import to_bytes

Connection = AsyncConnection
"""What the functions here read through (`db.engine.reading`)."""
MOST_EVENTS = 200
MOST_BYTES = 12 * 2**20
"""Bytes on record up to which both sides of a call are decoded for its page, in however many pieces
they came: 12 MiB are some 50,000 of streamed text and take 0.7 s. Of a larger call as much is
decoded, shared by the blocks of the page."""
MOST_BLOCKS = 100
"""Content blocks of such a call, at most: both sides are aligned block by block, which of thousands
takes seconds."""
EARLIER = 50
"""Calls of a session before one, among which the one that it goes on from is looked for."""
MOST_COUNTED = 1_000
"""Debug lines that are counted."""
_SPANS: LiteralString = """
SELECT block, count(*) AS chunks, min(seq) AS first_seq, max(seq) AS last_seq, min(at) AS first_at,
    max(at) AS last_at,
    sum(octet_length(raw)) AS size FROM chunks WHERE call_id = :call GROUP BY block
"""
_TOOLS: LiteralString = """
SELECT t.block, t.index, t.at, t.tool_call_id, t.name, t.executor, t.form, t.verdict, t.reason,
    t.policy, t.rule, t.schema_valid,
    octet_length(t.arguments) AS size, octet_length(t.released_arguments) AS released_size,
        t.released_arguments = t.arguments AS is_same,
    r.at AS released_at
FROM tool_calls t LEFT JOIN tool_releases r ON r.call_id = :call AND r.block = t.block
    WHERE t.call_id = :call ORDER BY t.block
"""
_BLOCKS: LiteralString = (
    "SELECT block, at, kind, verdict, reason, policy, rule FROM blocks WHERE call_id = :call ORDER"
    " BY block"
)
_RELEASES: LiteralString = """
SELECT count(*) AS n, coalesce(sum(octet_length(payload)), 0) AS size, min(at) AS first_at, max(at)
    AS last_at,
    array_agg(seq ORDER BY number) AS seqs FROM releases WHERE call_id = :call
"""
_JUDGED: LiteralString = """
SELECT block, step, at, model, policy, probability, threshold, latency_ms, attempts, error
    FROM judgements WHERE call_id = :call
ORDER BY block, step
"""
_EVENTS: LiteralString = (
    "SELECT kind, number, at, detail FROM events WHERE call_id = :call ORDER BY at, kind, number"
    " LIMIT :most"
)
_INCOMPLETE: LiteralString = (
    "SELECT EXISTS (SELECT FROM events WHERE call_id = :call AND kind = 'incomplete')"
)
_ATTEMPTS: LiteralString = "SELECT * FROM attempts WHERE call_id = :call ORDER BY segment, attempt"
_REST: LiteralString = """
SELECT (SELECT octet_length(body) FROM request_bodies WHERE call_id = :call) AS body_size,
    (SELECT count(*) FROM events WHERE call_id = :call) AS events,
    (SELECT count(*) FROM dead_letters WHERE "left"(call_id, 36) = :name) AS dead_letters,
    (SELECT chunks FROM ends WHERE call_id = :call) AS chunks_said,
    (SELECT count(*) FROM (SELECT FROM debug_logs WHERE call_id = :call
        LIMIT :counted) d) AS debug_lines
"""
_SEAL: LiteralString = """
SELECT s.position, s.part, s.at, s.form, (SELECT min(k.size) FROM checkpoints k
    WHERE k.size > s.position) AS checkpoint
FROM seals s WHERE s.call_id = :call AND s.part >= 0 ORDER BY s.part
"""
_BESIDE: LiteralString = """
SELECT (SELECT max(call_id::text) FROM (SELECT call_id FROM calls WHERE session = :session
    AND key = :key AND call_id < :call
        ORDER BY call_id DESC LIMIT 1) b) AS before,
    (SELECT min(call_id::text) FROM (SELECT call_id FROM calls WHERE session = :session
        AND key = :key AND call_id > :call
        ORDER BY call_id LIMIT 1) n) AS next
"""
_ARGUMENTS: LiteralString = """
SELECT block, substring(arguments FROM 1 FOR :most) AS start, substring(released_arguments
    FROM 1 FOR :most) AS released,
    CASE WHEN octet_length(arguments) > :most THEN substring(arguments
        FROM octet_length(arguments) - :tail + 1) END AS tail,
    CASE WHEN octet_length(released_arguments) > :most
        THEN substring(released_arguments FROM octet_length(released_arguments) - :tail + 1)
            END AS released_tail
FROM tool_calls WHERE call_id = :call AND block = ANY (CAST(:blocks AS integer[]))
"""
_JUDGEMENTS: LiteralString = """
SELECT block, step, octet_length(prompt) AS prompt_size, octet_length(reply) AS reply_size,
    substring(prompt FROM 1 FOR :most) AS prompt,
    substring(reply FROM 1 FOR :most) AS reply, explanation, input_tokens, output_tokens
FROM judgements WHERE call_id = :call AND block = ANY (CAST(:blocks AS integer[]))
    ORDER BY block, step
"""
_BEGINNINGS: LiteralString = """
SELECT w.block, k.seq, k.raw FROM unnest(CAST(:blocks AS integer[]), CAST(:firsts AS integer[]),
    CAST(:lasts AS integer[]))
    AS w(block, first, last)
CROSS JOIN LATERAL (
    SELECT seq, raw, sum(octet_length(raw)) OVER (ORDER BY seq) AS size FROM chunks
    WHERE call_id = :call AND seq >= w.first AND seq <= w.last AND block = w.block
) k WHERE k.size <= :most ORDER BY k.seq
"""
_OPENING: LiteralString = (
    "SELECT block, substring(raw FROM 1 FOR 65536) AS raw FROM chunks WHERE call_id = :call ORDER"
    " BY seq LIMIT 1"
)
_EARLIER: LiteralString = """
SELECT c.call_id, h.marks FROM calls c JOIN histories h ON h.call_id = c.call_id
    AND h.call_id < :call
WHERE c.session = :session AND c.key = :key AND c.call_id < :call ORDER BY c.call_id DESC
    LIMIT :most
"""
_SENT: LiteralString = """
SELECT CASE WHEN e.relayed < 0 THEN (SELECT max(v.number) FROM events v WHERE v.call_id = :call
    AND v.kind = 'relayed')
    ELSE e.relayed END AS relayed FROM (SELECT) one LEFT JOIN ends e ON e.call_id = :call
"""
_OWN: LiteralString = (
    "SELECT kind, number, detail FROM events WHERE call_id = :call AND kind IN ('late', 'frame')"
    " ORDER BY number"
)


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """The chunks of a block, counted."""

    chunks: int
    first_seq: int
    last_seq: int
    first_at: datetime
    last_at: datetime
    size: int


@dataclass(frozen=True, slots=True)
class BlockDetails:
    """What is read of some blocks in addition to the sums, by block."""

    arguments: dict[int, Any]
    judgements: dict[int, list[Any]]
    scores: dict[int, list[JsonObject]]
    decisions: dict[int, list[JsonObject]]


@dataclass(slots=True)
class Overview:
    """A call without its content: what there is of each block, and what happened around them."""

    call_id: UUID
    call: JsonObject
    spans: dict[int, ChunkSpan]
    tools: dict[int, Any]
    blocks: dict[int, Any]
    judged: list[Any]
    releases: Any
    events: list[JsonObject]
    attempts: list[JsonObject]
    counts: Any
    seals: list[Any]
    shed: list[JsonObject] = field(default_factory=list)
    """Tables of which its rows went, if it had any."""
    before: str | None = None
    next: str | None = None
    whys: dict[int, str] = field(default_factory=dict)
    """Why its tool calls were decided as they were, by block."""
    numbers: list[int] = field(default_factory=list)
    """The blocks, in the order of the answer."""

    @property
    def chunks(self) -> int:
        """How many chunks are on record."""
        return sum(span.chunks for span in self.spans.values())

    @property
    def is_shed(self) -> bool:
        """Are its chunks gone, though it had some?"""
        return not self.spans and bool(self.counts.chunks_said)

    @property
    def chunk_bytes(self) -> int:
        """How much they are."""
        return sum(span.size for span in self.spans.values())

    @property
    def size(self) -> int:
        """Bytes of both sides: the chunks, and what was released."""
        return self.chunk_bytes + int(self.releases.size)


async def read_overview(connection: AsyncConnection, call_id: UUID) -> Overview | None:
    """Return what is known of a call; None where no call has that id."""

    async def rows_of(statement: str, **more: object) -> list[Any]:
        return list(await connection.execute(text(statement), {"call": call_id, **more}))

    begun: Any = (
        await connection.execute(
            select(*CallRow.__table__.columns).where(CallRow.call_id == call_id)
        )
    ).one_or_none()
    row = (
        await without_beginning(connection, call_id)
        if begun is None
        else await _row(connection, begun)
    )
    if row is None:
        return None
    spans = {record.block: _span(record) for record in await rows_of(_SPANS)}
    tools = {record.block: record for record in await rows_of(_TOOLS)}
    blocks = {record.block: record for record in await rows_of(_BLOCKS)}
    last = [(blocks.get(block) or tool).verdict for block, tool in tools.items()]
    row.tool_calls, row.tool_calls_blocked = len(last), sum(verdict == "block" for verdict in last)
    judged, [releases] = await rows_of(_JUDGED), await rows_of(_RELEASES)
    overview = Overview(
        call_id,
        {**call_item(row), **facts(begun, "calls")},
        spans,
        tools,
        blocks,
        judged,
        releases,
        [event_item(record) for record in await rows_of(_EVENTS, most=MOST_EVENTS)],
        [attempt_item(record) for record in await rows_of(_ATTEMPTS)],
        (await rows_of(_REST, name=str(call_id), counted=MOST_COUNTED + 1))[0],
        await rows_of(_SEAL),
    )
    if begun is not None and begun.session:
        [adjacent] = await rows_of(_BESIDE, session=begun.session, key=begun.key)
        overview.before, overview.next = adjacent
    overview.shed = await read_shed(connection, call_id)
    whys = await read_whys(connection, [call_id])
    overview.whys = {block: why for (_, block), why in whys.items()}
    overview.numbers = _in_order(overview)
    return overview


def _span(record: Any) -> ChunkSpan:
    return ChunkSpan(
        record.chunks,
        record.first_seq,
        record.last_seq,
        record.first_at,
        record.last_at,
        int(record.size),
    )


async def _row(connection: AsyncConnection, begun: Any) -> SimpleNamespace:
    """What `call_log` shows of a call, but for the sums of its tool calls: those are of rows that
    are read anyway."""
    call = {
        name: from_column(value) if isinstance(value, str) else value
        for name, value in begun._mapping.items()
    }
    end: Any = (
        (
            await connection.execute(
                select(*End.__table__.columns).where(End.call_id == begun.call_id)
            )
        )
        .mappings()
        .one_or_none()
    )
    known: dict[str, Any] = (
        dict(end) if end is not None else dict.fromkeys(End.__table__.columns.keys())
    )
    marked = await connection.scalar(text(_INCOMPLETE), {"call": begun.call_id})
    times = {
        "created_at": created_at(begun.call_id),
        "claimed_at": begun.at,
        "ended_at": known["at"],
    }
    return SimpleNamespace(
        **(known | call | times | {"state": known["state"] or "ACTIVE", "incomplete": marked})
    )


def _in_order(overview: Overview) -> list[int]:
    """The blocks by their first chunks. One that has none of its own, a call found in text, stands
    behind the text it was found in."""
    numbers = (
        {number for number in overview.spans if number >= 0}
        | overview.tools.keys()
        | overview.blocks.keys()
        | {j.block for j in overview.judged}
    )
    firsts = sorted(
        (span.first_seq, number) for number, span in overview.spans.items() if number >= 0
    )

    def place(number: int) -> tuple[float, int]:
        if (span := overview.spans.get(number)) is not None:
            return span.first_seq, number
        row = overview.tools.get(number) or overview.blocks.get(number)
        if row is None or not firsts:
            return float("inf"), number
        begun = [seq for seq, block in firsts if overview.spans[block].first_at <= row.at]
        return (begun[-1] + 0.5 if begun else -1.0), number

    return sorted(numbers, key=place)


async def read_details(
    connection: AsyncConnection, call_id: UUID, blocks: Sequence[int], *, most: int, tail: int
) -> BlockDetails:
    """Return arguments, judgements, scores and decisions of these blocks: of each text the first
    `most` bytes, of longer arguments also the last `tail`."""
    parameters = {"call": call_id, "blocks": list(blocks)}
    judgements: dict[int, list[Any]] = {}
    for row in await connection.execute(text(_JUDGEMENTS), parameters | {"most": most}):
        judgements.setdefault(row.block, []).append(row)
    scores: dict[int, list[JsonObject]] = {}
    decisions: dict[int, list[JsonObject]] = {}
    for name, item, into in (
        ("scores", score_item, scores),
        ("decisions", decision_item, decisions),
    ):
        query = (
            f"SELECT * FROM {name} WHERE call_id = :call AND block = ANY (CAST(:blocks AS"
            " integer[])) ORDER BY block, step"
        )
        for row in await connection.execute(text(query), parameters):
            into.setdefault(row.block, []).append(item(row))
    cuts = parameters | {"most": most, "tail": tail}
    arguments = {row.block: row for row in await connection.execute(text(_ARGUMENTS), cuts)}
    return BlockDetails(arguments, judgements, scores, decisions)


async def read_chunks(
    connection: AsyncConnection, call_id: UUID
) -> AsyncIterator[tuple[int, int, bytes]]:
    """Yield number, block and bytes of each chunk, in order."""
    rows = await connection.stream(
        text("SELECT seq, block, raw FROM chunks WHERE call_id = :call ORDER BY seq"),
        {"call": call_id},
        execution_options={"yield_per": 1000},
    )
    async for seq, block, raw in rows:
        yield seq, block, raw


async def read_beginnings(
    connection: AsyncConnection, call_id: UUID, blocks: dict[int, ChunkSpan]
) -> tuple[bytes, list[tuple[int, bytes]]]:
    """Return the call's first chunk where it is of no block, and block and bytes of the first
    chunks of some blocks."""
    opening = await connection.execute(text(_OPENING), {"call": call_id})
    first = next((bytes(raw) for block, raw in opening if block < 0 and len(raw) < 65536), b"")
    firsts = [span.first_seq for span in blocks.values()]
    lasts = [span.last_seq for span in blocks.values()]
    share = MOST_BYTES // max(1, len(blocks))
    parameters = {
        "call": call_id,
        "blocks": list(blocks),
        "firsts": firsts,
        "lasts": lasts,
        "most": share,
    }
    return first, [
        (block, raw) for block, _, raw in await connection.execute(text(_BEGINNINGS), parameters)
    ]


async def read_sent(connection: AsyncConnection, call_id: UUID) -> AsyncIterator[bytes]:
    """Yield what the client got, without keepalives: what was relayed of the releases and, where
    that is not known, all of them; and what the gateway wrote itself."""
    relayed = await connection.scalar(text(_SENT), {"call": call_id})
    pieces = [
        (kind, number, to_bytes(from_column(detail)))
        for kind, number, detail in await connection.execute(text(_OWN), {"call": call_id})
    ]
    late = {number: data for kind, number, data in pieces if kind == "late"}
    rows = await connection.stream(
        text(
            "SELECT number, number_next, payload FROM releases WHERE call_id = :call ORDER BY"
            " number"
        ),
        {"call": call_id},
        execution_options={"yield_per": 1000},
    )
    async for number, number_next, payload in rows:
        instead = next((at for at in late if number <= at < number_next), None)
        if instead is not None:
            yield late.pop(instead)
        elif relayed is None or number_next <= relayed:
            yield payload
    for kind, _, data in pieces:
        if kind == "frame":
            yield data


async def read_parent(
    connection: AsyncConnection, overview: Overview
) -> tuple[str, int, int] | None:
    """Return the earlier call of the session that this call's request goes on from, how many turns
    they have in common, and how many this one has; None where that is not known."""
    parameters = {
        "call": overview.call_id,
        "key": to_column(overview.call["key"] or ""),
        "session": to_column(overview.call["session"] or ""),
    }
    marks = await connection.scalar(
        text("SELECT marks FROM histories WHERE call_id = :call"), parameters
    )
    if not marks or not overview.call["session"]:
        return None
    best: tuple[str, int] | None = None
    for row in await connection.execute(text(_EARLIER), parameters | {"most": EARLIER}):
        common = common_bytes(bytes(marks), bytes(row.marks)) // MARK_BYTES
        if common and (best is None or common > best[1]):
            best = str(row.call_id), common
    return None if best is None else (*best, len(marks) // MARK_BYTES)


async def read_gone(connection: AsyncConnection, call_id: UUID) -> tuple[datetime, str] | None:
    """Return when and why the rows of a call were dropped; None where no such day was dropped."""
    query = (
        "SELECT at, note FROM seals WHERE part = -1 AND call_id > :call ORDER BY position LIMIT 1"
    )
    row = (await connection.execute(text(query), {"call": call_id})).one_or_none()
    sealed = await connection.scalar(
        text("SELECT count(*) FROM seals WHERE call_id = :call AND part >= 0"), {"call": call_id}
    )
    return (row.at, row.note) if row is not None and sealed else None
