"""The turns before a call: those of its request, and in front of them the tool calls that its
session made before and the request does not have, because the client left them out to save room.

What is on record is looked up once and then a fact of the call. Must not know: who looks it up.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice

import msgspec

from protocol.request import ToolUsePart, Turn

MAX_CALLS, MAX_BYTES = 5_000, 256 * 1024
"""Recorded calls that are looked at, the newest, and bytes of their arguments."""
_MAX_ID = 200
_HOURS = 24
"""How far back they are looked for."""
_decode = msgspec.json.Decoder(list[tuple[str, str, str]]).decode
_encode = msgspec.json.Encoder().encode


class WantedCalls(msgspec.Struct, frozen=True):
    """The tool calls that the client was given in this session, but for those with these ids."""

    session: str
    ids: tuple[str, ...]
    hours: int = _HOURS
    calls: int = MAX_CALLS
    size: int = MAX_BYTES


class EarlierTurns:
    """The turns of one call, as policies go through them in either direction."""

    def __init__(self, turns: Sequence[Turn] = ()) -> None:
        self._turns, self._recorded = turns, tuple[Turn, ...]()
        self.is_lost = False
        """The record could not be read."""

    def __iter__(self) -> Iterator[Turn]:
        return chain(self._recorded, self._turns)

    def __reversed__(self) -> Iterator[Turn]:
        return chain(reversed(self._turns), self._recorded)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the request's newest tool calls. A call whose id is longer than any provider's
        is taken for one that the request lacks, which is the stricter way."""
        ids = (
            part.id
            for turn in reversed(self._turns)
            for part in turn.parts
            if type(part) is ToolUsePart and len(part.id) <= _MAX_ID
        )
        return tuple(islice(ids, MAX_CALLS))

    def recall(self, packed: bytes) -> None:
        """Take what the record has, as `pack_calls` made it."""
        try:
            calls = _decode(packed)
        except msgspec.DecodeError:
            self.is_lost = True
            return
        parts = tuple(ToolUsePart(*call) for call in calls)
        self._recorded = (Turn("assistant", parts),) if parts else ()


LOST = b"null"
"""The fact that the record could not be read."""


def pack_calls(calls: Sequence[tuple[str, str, str]]) -> bytes:
    """Return recorded calls, each an id, a name and arguments, the oldest first, as a fact."""
    return _encode(calls)
