"""What there is of seals and checkpoints, for people to look at: of one call, and of the whole
record. Nothing is verified here."""

from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

from db.canonical import FORMS
from db.filters import created_at, first_id
from db.seals.tiles import WIDTH
from db.seals.verify import snapshot

MOST_WAITING = 1_000
"""Ended calls without a seal are counted up to here."""
MOST_GONE = 50
_WITHIN = timedelta(days=2)
"""So far back ended calls without a seal are looked for, as audit writers do."""
_SEALS: LiteralString = """
SELECT s.position, s.part, s.at, s.counts, s.sha256, s.note, s.form, (SELECT min(c.size)
    FROM checkpoints c WHERE c.size > s.position)
FROM seals s WHERE s.call_id = %s AND s.part >= 0 ORDER BY s.part
"""
_STATE: LiteralString = """
SELECT (SELECT coalesce(max(position) + 1, 0) FROM seals), (SELECT at FROM seals
    ORDER BY position DESC LIMIT 1),
    (SELECT count(*) FROM checkpoints), (SELECT text FROM checkpoints ORDER BY size DESC LIMIT 1),
    (SELECT coalesce(max(size), 0) FROM checkpoints), (SELECT coalesce(max(index) + 1, 0)
        FROM tree_tiles WHERE level = 0)
"""
_WAITING: LiteralString = """
SELECT count(*), min(at) FROM (
    SELECT e.at FROM ends e WHERE e.call_id >= %s AND NOT EXISTS (SELECT FROM seals s
        WHERE s.call_id = e.call_id) LIMIT %s
) w
"""
_GONE: LiteralString = (
    "SELECT position, call_id, part, at, counts, note FROM seals WHERE part < 0 ORDER BY position"
    " DESC LIMIT %s"
)


def seals_of(database_url: str, call_id: UUID, *, within_s: float = 15.0) -> list[dict[str, Any]]:
    """Return each part of a call's seal, with the first checkpoint over it. Raises
    AuditUnavailable."""
    with snapshot(
        database_url, statement_timeout_ms=int(within_s * 1000), within_s=within_s
    ) as connection:
        rows = connection.execute(_SEALS, (call_id,), binary=True).fetchall()
    return [
        {
            "position": position,
            "part": part,
            "at": at,
            "note": note,
            "form": form,
            "sha256": digest.hex(),
            "counts": [[table.table, count] for table, count in zip(FORMS, counts, strict=False)],
            "rows": sum(counts),
            "checkpoint": size,
        }
        for position, part, at, counts, digest, note, form, size in rows
    ]


def state(database_url: str, *, within_s: float = 15.0) -> dict[str, Any]:
    """Return how far sealing is, the newest checkpoint, and what was dropped. Raises
    AuditUnavailable."""
    since = datetime.now(UTC) - _WITHIN
    with snapshot(
        database_url, statement_timeout_ms=int(within_s * 1000), within_s=within_s
    ) as connection:
        row = connection.execute(_STATE).fetchone()
        waiting = connection.execute(_WAITING, (first_id(since), MOST_WAITING)).fetchone()
        gone = connection.execute(_GONE, (MOST_GONE,)).fetchall()
    assert row is not None and waiting is not None
    seals, sealed_at, checkpoints, text, size, tiles = row
    return {
        "seals": seals,
        "sealed_at": sealed_at,
        "checkpoints": checkpoints,
        "checkpoint": text,
        "size": size,
        "unchecked": seals - size,
        "waiting": waiting[0],
        "is_more": waiting[0] >= MOST_WAITING,
        "oldest": waiting[1],
        "tiles": tiles,
        "all_tiles": size // WIDTH,
        "gone": [
            {
                "position": position,
                "before": created_at(call_id),
                "part": part,
                "at": at,
                "counts": counts,
                "note": note,
            }
            for position, call_id, part, at, counts, note in gone
        ],
    }
