"""An append-only Merkle tree (RFC 6962) as far as it must be kept to go on: the roots of its complete subtrees. Pure."""

from hashlib import sha256

HASH = 32


class Tree:
    """A tree of which leaves are added at the right. Holds one hash for each set bit of its size."""

    def __init__(self) -> None:
        self.size = 0
        self._peaks: list[bytes] = []

    @classmethod
    def restore(cls, size: int, peaks: bytes) -> "Tree":
        """Return the tree of that size with those peaks, as `peaks` gave them. Raises ValueError when they do not fit."""
        if len(peaks) != HASH * size.bit_count():
            raise ValueError("these are not the peaks of a tree of that size")
        tree = cls()
        tree.size = size
        tree._peaks = [peaks[i : i + HASH] for i in range(0, len(peaks), HASH)]
        return tree

    def add(self, data: bytes) -> None:
        """Add a leaf."""
        self._peaks.append(sha256(b"\0" + data).digest())
        filled = self.size
        while filled & 1:
            right, left = self._peaks.pop(), self._peaks.pop()
            self._peaks.append(_node(left, right))
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
            root = _node(left, root)
        return root


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()
