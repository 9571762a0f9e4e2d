"""Verification of the tree: every seal in its place, every checkpoint over the seals before it, and
those kept elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from db.canonical import seal_leaf
from db.seals import checkpoints
from db.seals.checkpoints import Checkpoint
from db.seals.findings import Damage, Report
from db.seals.merkle import Tree

_PAGE = 5_000
MAX_NEAR = 50_000
"""Seals looked at for the checkpoints around one call."""
_SEALS: LiteralString = """
SELECT position, call_id, part, at, counts, sha256, note FROM seals WHERE position >= %s
    ORDER BY position
"""
_CHECKPOINTS: LiteralString = "SELECT size, text, peaks, sha256 FROM checkpoints ORDER BY size"
_BEFORE: LiteralString = (
    "SELECT size, text, peaks, sha256 FROM checkpoints WHERE size <= %s ORDER BY size DESC LIMIT 1"
)
_AFTER: LiteralString = (
    "SELECT size, text, peaks, sha256 FROM checkpoints WHERE size > %s ORDER BY size LIMIT 1"
)


@dataclass(slots=True)
class Dropped:
    """Up to where rows were dropped in order, and the position of the seal that says so."""

    before: UUID = field(default_factory=lambda: UUID(int=0))
    position: int = -1


def check_tree(
    connection: psycopg.Connection,
    report: Report,
    *,
    against: Sequence[Checkpoint] = (),
    key: Ed25519PublicKey | None = None,
    progress: Callable[[int], None] = lambda count: None,
) -> None:
    """Compute the tree from all seals and compare it with every checkpoint."""
    tree = Tree()
    stored = _Checkpoints(connection, report, key)
    outside = sorted(against, key=lambda c: c.size)
    gap = False
    with connection.cursor("tree_seals", binary=True) as cursor:
        cursor.itersize = _PAGE
        cursor.execute(_SEALS, (0,))
        for position, *seal in cursor:
            if position != tree.size and not gap:
                report.found(
                    Damage.MISSING,
                    "the seal at this position is not there",
                    table="seals",
                    row=str(tree.size),
                )
                gap = True
            tree.add(seal_leaf(*seal))
            if not gap:
                stored.compare(tree)
                while outside and outside[0].size == tree.size:
                    _compare_outside(report, outside.pop(0), tree, stored.origin)
            if tree.size % _PAGE == 0:
                progress(_PAGE)
    progress(tree.size % _PAGE)
    report.size = tree.size
    if not gap:
        stored.compare_rest(tree.size)
    for checkpoint in outside:
        if checkpoint.size > tree.size:
            damage = Damage.RESTORED_BACKUP if report.ok else Damage.TRUNCATED
            problem = f"the checkpoint kept elsewhere is over {checkpoint.size} seals, here are {tree.size}"
            report.found(damage, problem, table="seals", row=str(tree.size))
    stored.close()


def find_dropped(connection: psycopg.Connection) -> Dropped:
    """Return up to where rows were dropped in order."""
    row = connection.execute(
        "SELECT call_id, position FROM seals WHERE part = -1 ORDER BY call_id DESC LIMIT 1"
    ).fetchone()
    return Dropped(*row) if row else Dropped()


def find_damaged(connection: psycopg.Connection) -> int:
    """Return how many calls, once for each table, were dropped with other rows than their seals
    counted."""
    # the second number of such leaves
    row = connection.execute(
        "SELECT coalesce(sum(counts[2]), 0)::bigint FROM seals WHERE part = -1"
    ).fetchone()
    return row[0] if row else 0


def check_near(connection: psycopg.Connection, report: Report, positions: Sequence[int]) -> None:
    """Compare the seals between the checkpoints around these positions with those checkpoints, not
    the whole tree."""
    if not positions:
        return
    before, after = (
        connection.execute(which, (at,)).fetchone()
        for which, at in ((_BEFORE, min(positions)), (_AFTER, max(positions)))
    )
    start, end = (before[0] if before else 0), (after[0] if after else 0)
    if after is None or end - start > MAX_NEAR:
        return
    try:
        tree = Tree.restore(start, before[2]) if before else Tree()
        fits = before is None or checkpoints.parse(before[1]).root == tree.root
    except ValueError:
        tree, fits = Tree(), False
    rows = connection.execute(_SEALS + " LIMIT %s", (start, end - start), binary=True).fetchall()
    if [row[0] for row in rows] != list(range(start, end)):
        report.found(
            Damage.MISSING,
            "a seal between these positions is not there",
            table="seals",
            row=f"{start} to {end - 1}",
        )
        return
    for _, *seal in rows:
        tree.add(seal_leaf(*seal))
    if not fits or not _is_over(after, tree):
        problem = f"it does not fit the seals from {start} on"
        report.found(Damage.CHECKPOINT_MISMATCH, problem, table="checkpoints", row=str(end))
    report.checkpoints, report.checkpoint = 1 + (before is not None), after[1]


def _is_over(stored: tuple[Any, ...], tree: Tree) -> bool:
    """Is this stored checkpoint one over this tree?"""
    size, text, peaks, digest = stored
    try:
        checkpoint = checkpoints.parse(text)
    except ValueError:
        return False
    same = (checkpoint.size, checkpoint.root, peaks) == (tree.size, tree.root, tree.peaks)
    return bool(
        same and size == checkpoint.size and digest == sha256(text.encode() + peaks).digest()
    )


def _compare_outside(report: Report, checkpoint: Checkpoint, tree: Tree, origin: str) -> None:
    problem = ""
    if checkpoint.root != tree.root:
        problem = (
            "the record was written anew: its first seals are others than the checkpoint kept"
            " elsewhere says"
        )
    elif origin and checkpoint.origin != origin:
        problem = f"the checkpoint kept elsewhere is of {checkpoint.origin}, this is {origin}"
    if problem:
        report.found(
            Damage.CHECKPOINT_MISMATCH, problem, table="checkpoints", row=str(checkpoint.size)
        )


class _Checkpoints:
    """The stored checkpoints, in the order of their sizes, one ahead."""

    def __init__(
        self, connection: psycopg.Connection, report: Report, key: Ed25519PublicKey | None
    ) -> None:
        self._cursor = connection.cursor("tree_checkpoints", binary=True)
        self._cursor.itersize = _PAGE
        self._cursor.execute(_CHECKPOINTS)
        self._rows: Iterator[tuple[Any, ...]] = iter(self._cursor)
        self._next = next(self._rows, None)
        self._report, self._key = report, key
        self._previous, self._compares, self._is_signed = "0" * 64, True, False
        self.origin = ""

    def close(self) -> None:
        """End the reading."""
        self._cursor.close()

    def compare(self, tree: Tree) -> None:
        """Compare the checkpoint of the tree's size, if there is one."""
        while self._next is not None and self._next[0] <= tree.size:
            self._take(self._next, tree)
            self._next = next(self._rows, None)

    def compare_rest(self, size: int) -> None:
        """What is left is over more seals than there are. The newest one's signature covers the
        others, by the hashes in them."""
        if self._key is not None and not self._is_signed:
            problem = "the newest checkpoint is not signed by the key"
            self._report.found(
                Damage.CHECKPOINT_MISMATCH, problem, table="checkpoints", row=str(size)
            )
        if self._next is not None:
            problem = f"a checkpoint is over {self._next[0]} seals, here are {size}"
            self._report.found(Damage.TRUNCATED, problem, table="seals", row=str(size))

    def _take(self, stored: tuple[Any, ...], tree: Tree) -> None:
        size, text, peaks, digest = stored
        report = self._report
        report.checkpoints += 1
        report.checkpoint = text
        problem = ""
        try:
            checkpoint = checkpoints.parse(text)
            self.origin = self.origin or checkpoint.origin
            if digest != sha256(text.encode() + peaks).digest() or checkpoint.size != size:
                problem = "the checkpoint was changed"
            elif checkpoint.previous != self._previous:
                problem = "it does not follow the checkpoint before"
            elif checkpoint.origin != self.origin:
                problem = "its origin is another"
            elif self._compares and not _is_over(stored, tree):
                # each later one would say the same
                self._compares = False
                problem = (
                    "it does not fit the seals: one of those since the checkpoint before was"
                    " changed, or the checkpoint"
                )
        except ValueError:
            problem = "the checkpoint was changed"
        self._is_signed = self._key is not None and checkpoints.is_signed_by(text, self._key)
        report.signed += self._is_signed
        if problem:
            report.found(Damage.CHECKPOINT_MISMATCH, problem, table="checkpoints", row=str(size))
        self._previous = checkpoints.digest(text)
