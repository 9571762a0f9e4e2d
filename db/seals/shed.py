"""Tables whose old rows were removed in order: up to where, by which leaf of the tree, and the
digests kept of those rows.

A digest counts only for calls under such a leaf: somebody who deletes rows and writes digests of
them has no leaf, or one that everybody sees.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import LiteralString
from uuid import UUID

import psycopg

from db.canonical import FORMS, Digest
from db.migrations.removal import GONE, PART_SHED, SHEDDABLE
from db.seals.findings import Damage, SealFinding

_PLACES = frozenset(place for place, form in enumerate(FORMS) if form.table in SHEDDABLE)
_DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAVES: LiteralString = "SELECT call_id, position FROM seals WHERE part = -2 ORDER BY call_id"
_GONE: LiteralString = (
    "SELECT call_id, part, at, position FROM seals WHERE part < 0 AND call_id > %s ORDER BY call_id"
)
_KEPT: LiteralString = (
    "SELECT call_id, place, rows, sha256 FROM kept_digests WHERE call_id >= %s AND call_id <= %s"
)


@dataclass(slots=True)
class Shed:
    """The leaves by the place of the table: bounds that rise, each with its position in the
    tree."""

    bounds: dict[int, list[UUID]] = field(default_factory=dict)
    positions: dict[int, list[int]] = field(default_factory=dict)

    def leaves(self, call_id: UUID) -> dict[int, int]:
        """Return the places of the tables of which this call's rows went, each with the position of
        the leaf that says so first."""
        leaf_positions = {}
        for place, bounds in self.bounds.items():
            at = bisect_right(bounds, call_id)
            if at < len(bounds):
                leaf_positions[place] = self.positions[place][at]
        return leaf_positions


def find_shed(connection: psycopg.Connection) -> Shed:
    """Return all leaves of tables that go by themselves. Another excuses no row that is missing,
    nor has every seal such a table."""
    shed = Shed()
    for call_id, position in connection.execute(_LEAVES):
        place = (call_id.int & 0xFFFF) - 1
        if place in _PLACES:
            shed.bounds.setdefault(place, []).append(call_id)
            shed.positions.setdefault(place, []).append(position)
    return shed


def strange(call_id: UUID, part: int, at: datetime) -> str:
    """Say why no lawful step wrote this leaf; empty: one may have. Who may write to the tables can
    add a leaf of any table and time."""
    ms, low = call_id.int >> 80, call_id.int & (1 << 80) - 1
    place = (low & 0xFFFF) - 1
    if part == PART_SHED and place not in _PLACES:
        return f"it says that rows of {name_of(place)} went, of which none go by themselves"
    # the last two bytes of a leaf of whole days count those of the same day
    if ms % _DAY_MS or low >> 16:
        return "it says that rows went up to a time at which no day (UTC) begins"
    if timedelta(milliseconds=ms) > at - _EPOCH:
        return "it says that rows went of a day that was not over"
    return ""


def find_strange(connection: psycopg.Connection, low: UUID) -> Iterator[SealFinding]:
    """Yield a finding for each leaf that says that rows of calls from `low` on went, and that no
    lawful step wrote."""
    with connection.cursor("gone_leaves", binary=True) as cursor:
        cursor.execute(_GONE, (low,))
        for call_id, part, at, position in cursor:
            problem = strange(call_id, part, at) if part in (GONE, PART_SHED) else ""
            if problem:
                yield SealFinding(Damage.ALTERED, problem, table="seals", row=str(position))


def kept_digests(
    connection: psycopg.Connection, low: UUID, high: UUID
) -> dict[bytes, dict[int, Digest]]:
    """Return the digests kept of calls from `low` up to and with `high`, by call and place."""
    digests: dict[bytes, dict[int, Digest]] = {}
    for call, place, rows, digest in connection.execute(_KEPT, (low, high), binary=True):
        digests.setdefault(call.bytes, {})[place] = rows, digest
    return digests


def with_kept(
    digests: Collection[Digest], places: Collection[int], retained: Mapping[int, Digest]
) -> list[Digest]:
    """Return digests with those kept in the places of tables whose rows went; where none is kept
    there were none."""
    return [
        retained.get(place, digest) if place in places else digest
        for place, digest in enumerate(digests)
    ]


def name_of(place: int) -> str:
    """Return the table's name."""
    return FORMS[place].table if 0 <= place < len(FORMS) else f"table {place}"
