"""What the end of a call says of its record, and what the rows of that call come to when they are
counted again."""

from hashlib import sha256
from typing import Any, NamedTuple

import psycopg

Connection = psycopg.Connection[Any]
_DECISIONS = " UNION ALL ".join(
    f"SELECT 1 FROM {table} WHERE call_id = %(call)s"
    for table in ("blocks", "tool_calls", "tool_releases", "judgements")
)


class Sums(NamedTuple):
    """Chunks, releases with bytes, decisions, and the hash over those of the releases that were
    relayed. None: not known."""

    chunks: int | None
    releases: int | None
    decisions: int | None
    relayed_sha256: bytes | None


def _rows(connection: Connection, query: str, call_id: str) -> list[Any]:
    return connection.execute(query.encode(), {"call": call_id}).fetchall()


def told(connection: Connection, call_id: str) -> Sums | None:
    """What the call's end says; None where there is no end."""
    for chunks, releases, decisions, relayed in _rows(
        connection,
        "SELECT chunks, releases, decisions, relayed_sha256 FROM ends WHERE call_id = %(call)s",
        call_id,
    ):
        return Sums(chunks, releases, decisions, None if relayed is None else bytes(relayed))
    return None


def recounted(connection: Connection, call_id: str) -> Sums:
    """The same from the rows; the hash is that of the releases up to the number that the gateway
    had come to."""
    [(chunks,)] = _rows(connection, "SELECT count(*) FROM chunks WHERE call_id = %(call)s", call_id)
    [(releases,)] = _rows(
        connection, "SELECT count(*) FROM releases WHERE call_id = %(call)s", call_id
    )
    [(decisions,)] = _rows(connection, f"SELECT count(*) FROM ({_DECISIONS}) AS rows", call_id)
    relayed = _rows(
        connection,
        "SELECT r.sha256 FROM releases r JOIN ends e USING (call_id) WHERE call_id = %(call)s AND"
        " r.number_next <= e.relayed ORDER BY r.number",
        call_id,
    )
    return Sums(
        chunks,
        releases,
        decisions,
        sha256(b"".join(bytes(digest) for (digest,) in relayed)).digest(),
    )


def sum_differences(connection: Connection, call_id: str, *, all_known: bool = False) -> list[str]:
    """Sentences on what the end says otherwise than the rows; `all_known`: also on what it does not
    say."""
    said = told(connection, call_id)
    if said is None:
        return [f"{call_id} has no end"]
    found = []
    for name, ours, rows in zip(Sums._fields, said, recounted(connection, call_id), strict=True):
        if ours is None and all_known:
            found.append(f"{call_id}: the end does not say {name}")
        if ours is not None and ours != rows:
            found.append(f"{call_id}: the end says {name} {ours!r}, the rows {rows!r}")
    return found
