"""The part of an append-only Merkle tree (RFC 6962) that is needed to append: the roots of its
complete subtrees. And the path of one leaf: its siblings on the way up, with which the root is
computed from the leaf alone. Pure."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import pairwise

HASH = 32


class Tree:
    """A tree of which leaves are added at the right. Holds one hash for each set bit of its
    size."""

    def __init__(self) -> None:
        self.size = 0
        self._peaks: list[bytes] = []

    @classmethod
    def restore(cls, size: int, peaks: bytes) -> "Tree":
        """Return the tree of that size with those peaks, as `peaks` gave them. Raises ValueError
        when they do not fit."""
        if len(peaks) != HASH * size.bit_count():
            raise ValueError("these are not the peaks of a tree of that size")
        tree = cls()
        tree.size = size
        tree._peaks = [peaks[i : i + HASH] for i in range(0, len(peaks), HASH)]
        return tree

    def add(self, data: bytes) -> None:
        """Add a leaf."""
        self._peaks.append(leaf_hash(data))
        filled = self.size
        while filled & 1:
            right, left = self._peaks.pop(), self._peaks.pop()
            self._peaks.append(node(left, right))
            filled >>= 1
        self.size += 1

    @property
    def peaks(self) -> bytes:
        """The roots of the complete subtrees, the largest first."""
        return b"".join(self._peaks)

    @property
    def root(self) -> bytes:
        """The root; of the empty tree the hash of nothing."""
        if not self._peaks:
            return sha256(b"").digest()
        root = self._peaks[-1]
        for left in reversed(self._peaks[:-1]):
            root = node(left, root)
        return root


def path_of(index: int, size: int, subtree: Callable[[int, int], bytes]) -> list[bytes]:
    """Return the path of a leaf in the tree of that size, from the leaf up (RFC 6962, 2.1.1).

    `subtree(level, i)` gives the root of the complete subtree over 2**level leaves from i *
    2**level on.
    """
    if not 0 <= index < size:
        raise ValueError("there is no such leaf in a tree of that size")
    path: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        half = start + (1 << (end - start - 1).bit_length() - 1)
        sibling = (half, end) if index < half else (start, half)
        path.append(_root_of(*sibling, subtree))
        start, end = (start, half) if index < half else (half, end)
    return path[::-1]


def _root_of(start: int, end: int, subtree: Callable[[int, int], bytes]) -> bytes:
    """The root over these leaves, the first of which a subtree begins with."""
    if (end - start).bit_count() == 1:
        level = (end - start).bit_length() - 1
        return subtree(level, start >> level)
    half = start + (1 << (end - start - 1).bit_length() - 1)
    return node(_root_of(start, half, subtree), _root_of(half, end, subtree))


def root_by_path(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """Return the root that a leaf's hash and path lead to. Raises ValueError where a path in a tree
    of that size is of another length."""
    if not 0 <= index < size:
        raise ValueError("there is no such leaf in a tree of that size")
    root, last = leaf, size - 1
    for sibling in path:
        if last == 0:
            raise ValueError("the path is too long")
        if index & 1 or index == last:
            root = node(sibling, root)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            root = node(root, sibling)
        index, last = index >> 1, last >> 1
    if last:
        raise ValueError("the path is too short")
    return root


def nodes_beside(
    known: Sequence[int], size: int, subtree: Callable[[int, int], bytes]
) -> Iterator[bytes]:
    """Yield the roots of what lies beside these leaves of the tree of that size, from left to
    right. `known` rises; `subtree` as above."""

    def walk(start: int, end: int, low: int, high: int) -> Iterator[bytes]:
        if low == high:
            yield _root_of(start, end, subtree)
        elif high - low < end - start:
            half = start + (1 << (end - start - 1).bit_length() - 1)
            middle = bisect_left(known, half, low, high)
            yield from walk(start, half, low, middle)
            yield from walk(half, end, middle, high)

    return walk(0, size, 0, len(known))


def root_beside(known: Sequence[int], hashes: bytes, size: int, nodes: Iterator[bytes]) -> bytes:
    """Return the root that leaves and what `nodes_beside` gave of them lead to. Raises ValueError
    where there are not as many nodes."""
    if any(position >= other for position, other in pairwise(known)) or (
        known and not 0 <= known[0] <= known[-1] < size
    ):
        raise ValueError("there are no such leaves in a tree of that size")

    def walk(start: int, end: int, low: int, high: int) -> bytes:
        if low == high:
            if len(sibling := next(nodes, b"")) != HASH:
                raise ValueError("a node is missing")
            return sibling
        if end - start == 1:
            return hashes[low * HASH : low * HASH + HASH]
        half = start + (1 << (end - start - 1).bit_length() - 1)
        middle = bisect_left(known, half, low, high)
        return node(walk(start, half, low, middle), walk(half, end, middle, high))

    root = walk(0, size, 0, len(known))
    if next(nodes, None) is not None:
        raise ValueError("there are more nodes than that")
    return root


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\0" + data).digest()


def node(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node over two others."""
    return sha256(b"\1" + left + right).digest()
