"""Inner nodes of the tree of seals, kept in tiles of 256, so that the path of one seal among
millions takes a few rows.

The tile of level 0 and index i holds the hashes of the leaves from 256 * i on, that of level l
those of the tiles of the level below, each by its root. Only whole tiles are kept, and a tile never
changes; what is right of the last one comes from the seals. Audit writers fill them after each
checkpoint, those of older records too, some at a time. They are no part of what is sealed: whoever
reads them compares the root that comes of it with the checkpoint. Must not know: what a seal
covers.
"""

from collections.abc import Sequence
from typing import LiteralString

import psycopg

from db.canonical import seal_leaf
from db.seals.merkle import HASH, leaf_hash, node
from protocol.errors import AuditUnavailable

BITS = 8
WIDTH = 1 << BITS
FILLED_AT_ONCE = 200
"""Tiles of the lowest level that one round fills: 51,200 seals."""
MAX_MISSING = 4_000
"""Tiles that a path makes itself where they are not there yet: a million seals, some seconds."""
MAX_HELD = 500
"""Tiles held in memory, 20 kB each."""
_SEALS: LiteralString = """
SELECT position, call_id, part, at, counts, sha256, note FROM seals WHERE position >= %s
    AND position < %s ORDER BY position
"""
_TILE: LiteralString = "SELECT hashes FROM tree_tiles WHERE level = %s AND index = %s"
_ROOTS: LiteralString = (
    "SELECT index, root FROM tree_tiles WHERE level = %s AND index >= %s AND index < %s"
)
_NEXT: LiteralString = (
    "SELECT coalesce(max(index) + 1, 0) FROM tree_tiles WHERE level = %s AND index < %s"
)
_INSERT: LiteralString = (
    "INSERT INTO tree_tiles (level, index, hashes, root) VALUES (%s, %s, %s, %s) ON CONFLICT DO"
    " NOTHING"
)


def fill(connection: psycopg.Connection, size: int, *, most: int = FILLED_AT_ONCE) -> int:
    """Keep the whole tiles of the tree of that size that are not there yet, at most so many of the
    lowest level; returns how many."""
    # a tile past the end of the tree, which any writer can add, is none of these
    whole = size // WIDTH
    first = _next(connection, 0, whole)
    leaves = _leaves(connection, first * WIDTH, min(whole, first + most) * WIDTH)
    made = _keep(connection, 0, first, leaves)
    level, added = 0, made
    while added:
        # each level above from the roots of the one below
        below, whole = whole, whole // WIDTH
        first = _next(connection, level + 1, whole)
        asked = (level, first * WIDTH, min((first + WIDTH) * WIDTH, below))
        roots = [root for _, root in sorted(connection.execute(_ROOTS, asked, binary=True))]
        level, added = level + 1, _keep(connection, level + 1, first, roots)
    return made


def _keep(connection: psycopg.Connection, level: int, first: int, hashes: Sequence[bytes]) -> int:
    tiles = [hashes[i : i + WIDTH] for i in range(0, len(hashes) - WIDTH + 1, WIDTH)]
    with connection.cursor() as cursor:
        cursor.executemany(
            _INSERT,
            [(level, first + i, b"".join(tile), root_of(tile)) for i, tile in enumerate(tiles)],
        )
    return len(tiles)


def _leaves(connection: psycopg.Connection, start: int, end: int) -> list[bytes]:
    """The hashes of the leaves from `start` to before `end`, up to the first that is not there."""
    hashes: list[bytes] = []
    with connection.cursor(binary=True) as cursor:
        for position, *seal in cursor.stream(_SEALS, (start, end)) if start < end else ():
            if position != start + len(hashes):
                break
            hashes.append(leaf_hash(seal_leaf(*seal)))
    return hashes


def root_of(hashes: Sequence[bytes]) -> bytes:
    """Return the root over a power of two of nodes."""
    while len(hashes) > 1:
        hashes = [node(hashes[i], hashes[i + 1]) for i in range(0, len(hashes), 2)]
    return hashes[0]


class Nodes:
    """Roots of complete subtrees of the tree, from tiles and seals. For `db.seals.merkle.path_of`.

    `is_trusting`: whether tiles are read at all; without them all comes from the seals. Raises
    AuditUnavailable where too many tiles are missing, ValueError where a seal is.
    """

    def __init__(self, connection: psycopg.Connection, *, is_trusting: bool = True) -> None:
        self._connection, self._is_trusting = connection, is_trusting
        self._tiles: dict[tuple[int, int], list[bytes]] = {}
        self._missing = 0

    def subtree(self, level: int, index: int) -> bytes:
        """Return the root of the complete subtree over 2**level leaves from index * 2**level on."""
        within = level % BITS
        first = index << within
        tile, at = divmod(first, WIDTH)
        return root_of(self._tile(level // BITS, tile, at + (1 << within))[at : at + (1 << within)])

    def _tile(self, level: int, index: int, need: int) -> list[bytes]:
        """The first hashes of a tile, at least `need` of them."""
        known = self._tiles.get((level, index), [])
        if len(known) < need:
            known = self._kept(level, index) or self._made(level, index, need)
            if len(self._tiles) >= MAX_HELD:
                self._tiles.clear()
            self._tiles[level, index] = known
        return known

    def _kept(self, level: int, index: int) -> list[bytes]:
        row = (
            self._connection.execute(_TILE, (level, index), binary=True).fetchone()
            if self._is_trusting
            else None
        )
        return [] if row is None else [row[0][i : i + HASH] for i in range(0, len(row[0]), HASH)]

    def _made(self, level: int, index: int, need: int) -> list[bytes]:
        start = index * WIDTH
        if level == 0:
            self._missing += 1
            if self._missing > MAX_MISSING:
                raise AuditUnavailable(
                    "the inner nodes of the tree are not kept yet: audit writers fill them in the"
                    " background"
                )
            leaves = _leaves(self._connection, start, start + WIDTH)
            if len(leaves) < need:
                raise ValueError(f"the seal at position {start + len(leaves)} is not there")
            return leaves
        asked = (level - 1, start, start + need)
        roots: dict[int, bytes] = (
            dict(self._connection.execute(_ROOTS, asked, binary=True).fetchall())
            if self._is_trusting
            else {}
        )
        return [
            roots.get(i) or root_of(self._tile(level - 1, i, WIDTH)[:WIDTH])
            for i in range(start, start + need)
        ]


def _next(connection: psycopg.Connection, level: int, whole: int) -> int:
    """The index behind the last tile of that level, of those that the tree has."""
    row = connection.execute(_NEXT, (level, whole)).fetchone()
    assert row is not None
    return int(row[0])
