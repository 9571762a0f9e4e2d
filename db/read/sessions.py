"""The calls of a client's session, with what identifies its conversation
(`protocol.conversations.prefix_tree`). A session is an API key's name and an id. Must not know: the
content of turns.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from db.engine import reading
from db.filters import created_at
from db.read.json_rows import JsonObject
from db.read.json_rows import time as iso
from db.text import INDEXED, from_column, to_column, to_short
from protocol.conversations import sessions
from protocol.conversations.prefix_tree import Marked

MOST_CALLS = 2_000
"""Calls of a session that are put together as one conversation."""
MARK_BYTES = 16 * 2**20
"""Marks of a session's turns that are put together: of 1,000 calls that grow by two turns each. The
offsets are half as many bytes."""
TURN_BYTES, ARGUMENT_BYTES, RELEASED_BYTES = 256 * 1024, 256 * 1024, 2 * 2**20
"""What is read of a call's new turns, of its tool calls' arguments, and of what its client got;
more is on the call's own pages. What the client got is counted as it was sent: of a streamed answer
2 MiB are some 8,000 tokens."""
TOOL_CALLS, TOOL_BYTES = 200, 500
"""Tool calls that are read of a call, what was refused before all else, and what is read of each
where all are too large together."""

_TOOLS = text("""
SELECT t.call_id, count(*) AS tool_calls, count(*) FILTER (WHERE coalesce(b.verdict, t.verdict) =
    'replace') AS replaced,
    count(*) FILTER (WHERE coalesce(b.verdict, t.verdict) = 'block') AS refused
FROM tool_calls t LEFT JOIN blocks b ON b.call_id = t.call_id AND b.block = t.block
    AND b.call_id = ANY(:ids)
WHERE t.call_id = ANY(:ids) GROUP BY 1
""")
_TEXTS = text("""
SELECT b.call_id, count(*) FILTER (WHERE b.verdict = 'replace') AS replaced, count(*)
    FILTER (WHERE b.verdict = 'block') AS refused
FROM blocks b WHERE b.call_id = ANY(:ids) AND b.verdict NOT IN ('allow', 'hold')
    AND NOT EXISTS (SELECT FROM tool_calls t WHERE t.call_id = b.call_id AND t.block = b.block
        AND t.call_id = ANY(:ids)) GROUP BY 1
""")
_ENDS = text("""
SELECT call_id, at, state, reason, status, stop_reason, input_tokens, output_tokens,
    coalesce(cost_nanousd, 0) + coalesce(judge_nanousd, 0) AS nanousd FROM ends
    WHERE call_id = ANY(:ids)
""")
_IDENTIFIED = text(
    "SELECT call_id, detail FROM events WHERE call_id = ANY(:ids) AND kind = 'identified'"
)
_OF_SESSION = text("""
SELECT call_id, model, upstream, dialect, endpoint, policy, policy_revision, stream, user_agent
    FROM calls
WHERE session = :session AND key = :key ORDER BY session, call_id LIMIT :most
""")
_HISTORIES = text("""
SELECT call_id, turns, CASE WHEN upto <= :most THEN marks END AS marks, CASE
    WHEN upto <= :most THEN offsets END AS offsets, is_side FROM (
    SELECT call_id, turns, marks, offsets, is_side, sum(octet_length(marks)) OVER (ORDER BY call_id)
        AS upto
    FROM histories WHERE call_id = ANY(:ids)
) h
""")
_SPANS = text("""
SELECT v.call_id, substring(b.body FROM v.begins + 1 FOR v.size) AS piece
FROM unnest(CAST(:calls AS uuid[]), CAST(:begins AS int[]), CAST(:sizes AS int[])) v (call_id,
    begins, size)
JOIN request_bodies b ON b.call_id = v.call_id AND b.call_id = ANY(:ids)
""")
_RELEASES = text("""
SELECT call_id, number, total, CASE WHEN upto <= :most THEN payload END AS payload FROM (
    SELECT call_id, number, payload, sum(octet_length(payload)) OVER (PARTITION BY call_id
        ORDER BY number) AS upto,
        sum(octet_length(payload)) OVER (PARTITION BY call_id) AS total
    FROM releases WHERE call_id = ANY(:ids)
) r WHERE upto - octet_length(payload) <= :most ORDER BY call_id, number
""")
_CALLS_OF = text("""
SELECT call_id, block, tool_call_id, name, size, verdict, reason, policy, substring(arguments FOR
    part) AS arguments,
    CASE WHEN released <> arguments THEN substring(released FOR part) END AS released
FROM (
    SELECT c.*, octet_length(arguments) AS size,
        CASE WHEN sum(greatest(octet_length(arguments), octet_length(released))) OVER nth <=
            CAST(:most AS bigint)
            THEN CAST(:most AS integer) ELSE CAST(:least AS integer) END AS part,
        row_number() OVER nth AS number
    FROM (
        SELECT t.call_id, t.block, t.tool_call_id, t.name, t.arguments,
            CASE WHEN b.call_id IS NULL THEN t.released_arguments END AS released,
            coalesce(b.verdict, t.verdict) AS verdict, coalesce(b.reason, t.reason) AS reason,
                coalesce(b.policy, t.policy) AS policy
        FROM tool_calls t LEFT JOIN blocks b ON b.call_id = t.call_id AND b.block = t.block
            AND b.call_id = ANY(:ids)
        WHERE t.call_id = ANY(:ids)
    ) c WINDOW nth AS (PARTITION BY call_id ORDER BY verdict = 'allow', block)
) n WHERE number <= :calls ORDER BY call_id, block
""")
_BLOCKS_OF = text("""
SELECT b.call_id, b.block, b.kind, b.verdict, b.reason, b.policy FROM blocks b
WHERE b.call_id = ANY(:ids) AND b.verdict NOT IN ('allow', 'hold')
    AND NOT EXISTS (SELECT FROM tool_calls t WHERE t.call_id = b.call_id AND t.block = b.block
        AND t.call_id = ANY(:ids))
ORDER BY b.call_id, b.block
""")


class SessionCall(NamedTuple):
    """A call of a session, with what places it in its conversation."""

    call_id: UUID
    item: JsonObject
    marked: Marked
    turns: int
    offsets: bytes


class SessionCalls(NamedTuple):
    """The calls of a session, the oldest first; `more`: there are others behind them."""

    calls: list[SessionCall]
    more: bool
    program: str
    source: str
    parent: str


class RecordedCalls(NamedTuple):
    """What is on record of some calls: pieces of their bodies, what their clients got, and the
    verdicts."""

    pieces: dict[UUID, tuple[int, bytes]]
    """With where in the body each begins."""
    releases: dict[UUID, list[bytes]]
    cut: dict[UUID, int]
    """Calls whose releases are not all here, with the bytes of all."""
    tool_calls: dict[UUID, list[JsonObject]]
    blocks: dict[UUID, list[JsonObject]]


class SessionReader:
    """Reads sessions by the engine of an `AuditReader`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def calls(self, key: str, session: str) -> SessionCalls:
        """Return the calls of one session, up to `MOST_CALLS`: none where nobody knows it. Raises
        AuditUnavailable."""
        asked = {
            "key": to_column(key),
            "session": to_column(to_short(session, INDEXED)),
            "most": MOST_CALLS + 1,
        }
        async with reading(self._engine) as connection:
            rows = list(await connection.execute(_OF_SESSION, asked))
            ids = [row.call_id for row in rows[:MOST_CALLS]]
            if not ids:
                return SessionCalls([], False, "", "", "")
            histories = {
                row.call_id: row
                for row in await connection.execute(_HISTORIES, {"ids": ids, "most": MARK_BYTES})
            }
            # past the bound marks are null
            ids = list(
                takewhile(
                    lambda call: call not in histories or histories[call].marks is not None, ids
                )
            )
            ends, tools, texts = await read_outcomes(connection, ids)
            identities = await read_identities(connection, ids)
        calls = []
        for row in rows[: len(ids)]:
            call, known, who = row.call_id, histories.get(row.call_id), identities.get(row.call_id)
            item = _session_item(row, ends.get(call), tools.get(call), texts.get(call))
            marks, is_side = (bytes(known.marks), known.is_side) if known else (b"", False)
            if item["endpoint"] == "count_tokens":
                # it has the history of the call that it counts for, which goes on from what was
                # before
                marks, is_side = b"", True
            marked = Marked(marks, is_side, who.agent if who else "")
            calls.append(
                SessionCall(
                    call,
                    item,
                    marked,
                    known.turns if known else 0,
                    bytes(known.offsets) if known else b"",
                )
            )
        first = next(iter(identities.values()), sessions.Identified(""))
        program = sessions.program(first.source, from_column(rows[0].user_agent or ""))
        return SessionCalls(
            calls, len(rows) > len(ids), program, first.source, "" if first.agent else first.parent
        )

    async def read_contents(
        self, spans: Mapping[UUID, tuple[int, int]], ids: Sequence[UUID]
    ) -> RecordedCalls:
        """Return what is on record of calls: of each in `spans` that piece of its body, and of
        `ids` what came of them."""
        real = {call: (begin, end) for call, (begin, end) in spans.items() if end > begin}
        parameters = {
            "calls": list(real),
            "begins": [begin for begin, _ in real.values()],
            "sizes": [end - begin for begin, end in real.values()],
        }
        async with reading(self._engine) as connection:
            rows = await connection.execute(_SPANS, {**parameters, "ids": parameters["calls"]})
            pieces = {row.call_id: (spans[row.call_id][0], bytes(row.piece)) for row in rows}
            releases: dict[UUID, list[bytes]] = {}
            cut: dict[UUID, int] = {}
            for row in await connection.execute(
                _RELEASES, {"ids": list(ids), "most": RELEASED_BYTES}
            ):
                if row.payload is None:
                    cut[row.call_id] = int(row.total)
                else:
                    releases.setdefault(row.call_id, []).append(bytes(row.payload))
            tools: dict[UUID, list[JsonObject]] = {}
            bounds = {"most": ARGUMENT_BYTES, "least": TOOL_BYTES, "calls": TOOL_CALLS}
            for row in await connection.execute(_CALLS_OF, {"ids": list(ids), **bounds}):
                tools.setdefault(row.call_id, []).append(_tool_item(row))
            blocks: dict[UUID, list[JsonObject]] = {}
            for row in await connection.execute(_BLOCKS_OF, {"ids": list(ids)}):
                blocks.setdefault(row.call_id, []).append(_block_item(row))
        return RecordedCalls(pieces, releases, cut, tools, blocks)


def _session_item(row: Any, end: Any, tools: Any, texts: Any) -> JsonObject:
    named = ("model", "upstream", "dialect", "endpoint", "policy", "policy_revision")
    return {
        "call_id": str(row.call_id),
        "at": iso(created_at(row.call_id)),
        "ended_at": iso(end.at) if end else None,
        **{name: from_column(getattr(row, name)) for name in named},
        "stream": row.stream,
        "state": end.state if end else "ACTIVE",
        "reason": end.reason if end else "",
        "status": end.status if end else None,
        "stop_reason": end.stop_reason if end else "",
        "input_tokens": end.input_tokens if end else None,
        "output_tokens": end.output_tokens if end else None,
        "nanousd": end.nanousd if end else None,
        "tool_calls": tools.tool_calls if tools else 0,
        "refused": (tools.refused if tools else 0) + (texts.refused if texts else 0),
        "replaced": (tools.replaced if tools else 0) + (texts.replaced if texts else 0),
    }


def _tool_item(row: Any) -> JsonObject:
    return {
        "block": row.block,
        "tool_call_id": from_column(row.tool_call_id),
        "name": from_column(row.name),
        "arguments": bytes(row.arguments),
        "size": row.size,
        "released": None if row.released is None else bytes(row.released),
        "verdict": row.verdict,
        "reason": from_column(row.reason),
        "policy": from_column(row.policy),
    }


def _block_item(row: Any) -> JsonObject:
    return {
        "block": row.block,
        "kind": row.kind,
        "verdict": row.verdict,
        "reason": from_column(row.reason),
        "policy": from_column(row.policy),
    }


async def read_outcomes(connection: AsyncConnection, ids: Sequence[UUID]) -> list[dict[UUID, Any]]:
    """Return, by call, how each ended, and the counts of its tool calls and of its refused
    texts."""
    return [await by_call(connection, query, ids) for query in (_ENDS, _TOOLS, _TEXTS)]


async def read_identities(
    connection: AsyncConnection, ids: Sequence[UUID]
) -> dict[UUID, sessions.Identified]:
    """Return, by call, what its request says of who sent it."""
    return {
        call: sessions.identified(from_column(row.detail))
        for call, row in (await by_call(connection, _IDENTIFIED, ids)).items()
    }


async def by_call(
    connection: AsyncConnection, statement: TextClause, ids: Sequence[UUID]
) -> dict[UUID, Any]:
    """Return the rows of a statement by their calls."""
    return {row.call_id: row for row in await connection.execute(statement, {"ids": list(ids)})}
