"""The bytes of one call on their way to its client, and the account of what was handed on.

The account goes into the record with the call's end: a hash over the hashes of the replies that
were written, the keepalives between them, and what replaced the end of an answer that had begun.
"""

from collections import Counter
from collections.abc import Callable
from hashlib import sha256

from protocol.bytes import waiting
from streams.layout import Relayed, Reply


class _Keepalive(bytes):
    """Tells a keepalive from what a session released."""


class Outgoing:
    """Bytes that wait to be written. `relayed` is the next output that was not handed on."""

    __slots__ = (
        "_digests",
        "_keepalive",
        "_keepalives",
        "_late",
        "_releases",
        "_sum",
        "_waiting",
        "local_error",
        "relayed",
        "size",
        "write",
    )

    def __init__(self, keepalive: bytes) -> None:
        self._keepalive = keepalive
        self.relayed = 0
        self.write: Callable[[bytes], bool] | None = None
        """Writes to the client without waking its handler, while that waits; False: not now, wake
        it."""
        self._waiting: list[bytes] = []
        self.size = 0
        """Bytes that wait."""
        self._sum = sha256()
        self._digests = bytearray()
        self.local_error = b""
        """What this gateway writes itself at the end: an error."""
        self._releases = 0
        """How many replies with bytes are in `_sum`; the hashes of the newest wait in
        `_digests`."""
        self._late: Reply | None = None
        """The reply of which `late` was written."""
        self._keepalives: list[tuple[int, str]] = []
        """The session's next output at each keepalive, and what it says."""

    def add(self, data: bytes, digest: bytes) -> None:
        """Queue the bytes of a reply; `digest` is their hash, which goes into the account."""
        self._waiting.append(data)
        self.size += len(data)
        self._digests += digest

    def add_late(self, reply: Reply, digest: bytes) -> None:
        """Queue the frame with which an answer ends that has begun."""
        self._late = reply
        self.add(reply.late, digest)

    def add_keepalive(self, expected: int, words: str = "") -> None:
        """Queue a keepalive; the next output is `expected`. The one place where bytes go to the
        client that are no output of the session: they are the dialect's own, whatever the worker
        sent, because no hash on record covers them. `words` (`waiting.checked`): what it says."""
        self._keepalives.append((expected, words))
        self.add(_Keepalive(waiting.keepalive(self._keepalive, words)), b"")

    def try_write(self, expected: int) -> bool:
        """Write all that waits without the handler; False where that is not possible now. The next
        output is `expected`."""
        if self.write is None or not self.write(b"".join(self._waiting)):
            return False
        self._waiting, self.size = [], 0
        self.relayed = expected
        return True

    def take(self, expected: int) -> bytes:
        """Return all that waits; it counts as written. The next output is `expected`."""
        data = b"".join(self._waiting)
        self._waiting, self.size = [], 0
        self.relayed = expected
        return data

    def write_error(self, data: bytes) -> None:
        """Take into account that the answer ends with this error of the gateway."""
        self.local_error = data

    # --- the account ---

    def add_up(self) -> None:
        """Take the hashes of what was handed on into one: not with each reply, and not all at the
        end, which may be a million."""
        if not self._digests:
            return
        handed = len(self._digests)
        if self._waiting:
            late = self._late
            is_late_waiting = late is not None and not late.data and self.relayed <= late.number
            waiting = len(self._waiting) - self._keepalives_waiting - is_late_waiting
            handed -= waiting * self._sum.digest_size
        self._sum.update(self._digests[:handed])
        self._releases += handed // self._sum.digest_size
        del self._digests[:handed]

    @property
    def _keepalives_waiting(self) -> int:
        return sum(type(data) is _Keepalive for data in self._waiting)

    def report(self) -> Relayed:
        """What went towards the client of this call; what still waits to be written did not."""
        self.add_up()
        keepalives: list[tuple[int, int]] = []
        words: dict[int, list[str]] = {}
        if self._keepalives:
            written = self._keepalives[: len(self._keepalives) - self._keepalives_waiting]
            keepalives = list(Counter(place for place, _ in written).items())
            for place, said in written:
                words.setdefault(place, []).append(said)
            words = {place: each for place, each in words.items() if any(each)}
        own, late = self.local_error, -1
        if self._late is not None and self.relayed > self._late.number:
            own, late = self._late.late, self._late.number
        return Relayed(self._releases, self._sum.digest(), keepalives, own, late, words)
