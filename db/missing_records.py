"""Finds holes in the records of a call: compares what its end and its own hashes say with the rows
that exist.

The sealing process compares a call first and writes each kind of hole as an event `incomplete`, so
that the seal covers it. Verification compares again. Facts that the writer of the end did not know
are not reported. A redacted call is not checked again: the rows to compare are gone. Must not know:
Redis.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

import psycopg

from db.canonical import FORMS
from db.connections import conninfo
from protocol.bytes.token_removal import NOTE
from protocol.records import STREAM_LOST, UNCLAIMED

KIND = "incomplete"
"""The kind of the events; `number` is a `Hole`, `detail` one sentence with figures."""
MANY = 10_000
"""What is counted is counted up to here."""


class Hole(IntEnum):
    """What is missing, altered or contradicted; the numbers are stored in the record and never
    change."""

    BEGINNING = 1
    """The call's own row."""
    END = 2
    """The end: Redis says that it was written, or nobody will write one."""
    LOST = 3
    """Redis lost the call's stream while it ran: what was on it and not recorded yet nobody
    knows."""
    SUMS = 4
    """The end does not say what the record should hold, though the call began with a version that
    does."""
    CHUNKS = 5
    RELEASES = 6
    DECISIONS = 7
    """Rows of `blocks`, `tool_calls`, `tool_releases`, `judgements`, `scores`, `decisions` and
    `attempts`."""
    RELAYED = 8
    """The releases are not those that the gateway relayed."""
    PAYLOAD = 9
    """A release's bytes are not those that the policy worker hashed."""
    BODY = 10
    """The request body is not there, or not what the gateway took."""
    CONFLICT = 11
    """A row came that differs from the one on record, and is an event of the call
    (`db.write.conflicts`)."""


class CallHole(NamedTuple):
    """A hole of a call."""

    call_id: UUID
    hole: Hole
    detail: str


_WITHIN: LiteralString = "BETWEEN %(low)s AND %(high)s"
SUMS: LiteralString = f"""
SELECT g.call_id, e.call_id IS NOT NULL, coalesce(e.reason, ''), e.chunks, e.releases, e.decisions,
    e.relayed_sha256,
    coalesce(r.chain, sha256(''::bytea)), coalesce(r.altered, 0), coalesce(r.relayed, 0), c.call_id
        IS NOT NULL, c.body_sha256 IS NOT NULL,
    b.call_id IS NOT NULL, coalesce(sha256(b.body) <> c.body_sha256
        AND position(%(token)s::bytea IN b.body) = 0, false)
FROM unnest(%(calls)s::uuid[]) AS g (call_id)
LEFT JOIN ends e ON e.call_id = g.call_id AND e.call_id {_WITHIN}
LEFT JOIN calls c ON c.call_id = g.call_id AND c.call_id {_WITHIN}
LEFT JOIN request_bodies b ON b.call_id = g.call_id AND b.call_id {_WITHIN}
LEFT JOIN LATERAL (
    SELECT sha256(string_agg(t.sha256, ''::bytea ORDER BY t.number)
        FILTER (WHERE t.number_next <= e.relayed)) AS chain,
        count(*) FILTER (WHERE t.number_next <= e.relayed) AS relayed, count(*)
            FILTER (WHERE t.sha256 <> sha256(t.payload)) AS altered
    FROM releases t WHERE t.call_id = g.call_id AND t.call_id {_WITHIN}
) r ON true
"""
"""What is compared of each of `calls`, beside the numbers of its rows; `values_of` gives the
parameters. One statement for a batch."""
MARK: LiteralString = """
INSERT INTO events (call_id, kind, number, at, detail)
SELECT call_id, %s, number, now(), detail FROM unnest(%s::uuid[], %s::bigint[], %s::text[]) AS n
    (call_id, number, detail)
ON CONFLICT DO NOTHING RETURNING call_id
"""
"""`mark_values` gives the parameters. The first event for a kind of hole stays."""
_INCOMPLETE: LiteralString = f"""
SELECT call_id, number, detail FROM events
WHERE kind = '{KIND}' AND call_id >= %s AND call_id < %s ORDER BY call_id, number LIMIT {MANY}
"""
_NEWEST: LiteralString = (
    f"SELECT DISTINCT call_id FROM events WHERE kind = '{KIND}' ORDER BY call_id DESC LIMIT {MANY}"
)
COUNT: LiteralString = (
    f"SELECT count(*) AS count FROM (SELECT DISTINCT call_id FROM events WHERE kind = '{KIND}'"
    f" LIMIT {MANY}) i"
)
_DECISIONS = (
    "blocks",
    "tool_calls",
    "tool_releases",
    "judgements",
    "scores",
    "decisions",
    "attempts",
)
_LOST = "Redis lost the call while it ran: what was not recorded by then is not known"
_NO_SUMS = "the call's end does not say what the record should hold: whether all of it is here is not known"
_NOT_RELAYED = "the {:,} releases on record up to its end are not those that the gateway relayed"
_NOT_HASHED = "{:,} of {:,} releases are not the bytes that the policy worker hashed"
_PLACES = {form.table: place for place, form in enumerate(FORMS)}


def mark_values(holes: Sequence[CallHole]) -> tuple[object, ...]:
    """Return the parameters of `MARK`."""
    return KIND, [f.call_id for f in holes], [int(f.hole) for f in holes], [f.detail for f in holes]


def values_of(calls: Sequence[UUID]) -> dict[str, Any]:
    """Return the parameters of `SUMS`."""
    return {"calls": list(calls), "low": min(calls), "high": max(calls), "token": NOTE}


def find_holes(row: Sequence[Any], counts: Sequence[int]) -> list[CallHole]:
    """Return the holes of a call: `row` is its row of `SUMS`, `counts` how many rows of it each
    table of `FORMS` holds."""
    call, ended, reason, *expected, relayed_sha256, chain, altered, relayed = row[:10]
    begun, hashed, with_body, other_body = row[10:]
    there = {table: counts[place] for table, place in _PLACES.items()}
    holes: list[tuple[Hole, str]] = []
    if not begun and reason != UNCLAIMED:
        holes.append((Hole.BEGINNING, "the call's beginning is not on record"))
    if not ended:
        holes.append((Hole.END, "the call's end is not on record"))
    elif reason == STREAM_LOST:
        holes.append((Hole.LOST, _LOST))
    elif hashed and all(fact is None for fact in (*expected, relayed_sha256)):
        holes.append((Hole.SUMS, _NO_SUMS))
    holes += _missing_rows(expected, there)
    if relayed_sha256 and relayed_sha256 != chain:
        holes.append((Hole.RELAYED, _NOT_RELAYED.format(relayed)))
    if altered:
        holes.append((Hole.PAYLOAD, _NOT_HASHED.format(altered, there["releases"])))
    if hashed and (other_body or not with_body):
        what = "the one that the gateway took" if with_body else "on record"
        holes.append((Hole.BODY, f"the request body is not {what}"))
    return [CallHole(call, hole, detail) for hole, detail in holes]


def _missing_rows(
    expected: Sequence[int | None], there: Mapping[str, int]
) -> Iterator[tuple[Hole, str]]:
    """Compare how many chunks, releases and decisions the end says that there are."""
    decisions = sum(there[name] for name in _DECISIONS)
    kinds = (
        (Hole.CHUNKS, "chunks", there["chunks"]),
        (Hole.RELEASES, "releases", there["releases"]),
        (Hole.DECISIONS, "rows of decisions", decisions),
    )
    for count, (hole, table, is_there) in zip(expected, kinds, strict=True):
        # more than it says there may be: a worker that lost the call, or a Redis that lost its last
        # second, had recorded more by then
        if count is not None and count > is_there:
            yield hole, f"{is_there:,} {table} are on record, the call's end says {count:,}"


def mark(connection: psycopg.Connection, holes: Sequence[CallHole]) -> set[UUID]:
    """Write holes as events; returns the calls that did not have them all. The first event for a
    kind of hole stays."""
    return (
        {row[0] for row in connection.execute(MARK, mark_values(holes), binary=True)}
        if holes
        else set()
    )


def read_marks(connection: psycopg.Connection, low: UUID, high: UUID) -> list[CallHole]:
    """Return what is on record of holes, of the calls from `low` to before `high`, up to `MANY`."""
    return [
        CallHole(call, number, detail)
        for call, number, detail in connection.execute(_INCOMPLETE, (low, high), binary=True)
    ]


def incomplete_at(url: str) -> list[str]:
    """Return the incomplete calls, the newest first, up to `MANY`, over a connection of its own."""
    with psycopg.connect(conninfo(url)) as connection:
        return [str(row[0]) for row in connection.execute(_NEWEST)]


def say_incomplete(count: int, calls: Sequence[str], most: int = 3) -> str:
    """Return the sentence for people."""
    more = f" and {count - most:,} more" if count > most else ""
    what = "1 call is" if count == 1 else f"{count:,} calls are"
    return (
        f"{what} incomplete on record: {', '.join(calls[:most])}{more}: see its events (`sluice"
        " audit show`) and docs/run/audit.md"
    )
