"""Recorded assistant turns, whatever their dialect: what a lookup finds, how it is packed, and what
builds a turn from raw chunks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from protocol import bounds
from protocol.bytes.json_strict import dumps, loads_exact
from protocol.errors import RemoteProtocolError
from protocol.events import PAUSES, StopReason
from protocol.request import DialectName


class WantedTurns(msgspec.Struct, frozen=True):
    """Which turns to find in the record: those with these tool call ids, and the answers of these
    calls, as an upstream of `dialect` sent them."""

    dialect: DialectName
    ids: tuple[str, ...]
    answers: tuple[str, ...] = ()


class StoredTurn(msgspec.Struct, frozen=True):
    """One recorded assistant turn. `tool_call_ids` are the calls that its client received."""

    call_id: str
    content: list[dict[str, Any]]
    container: str
    tool_call_ids: tuple[str, ...]
    upstream: str = ""
    """The provider's name: signatures and encrypted content mean nothing to another."""
    model: str = ""
    """The model that was asked for."""
    blocks: tuple[int, ...] = ()
    """The number of each of these calls' blocks in the answer, by which a call is found whose
    upstream gave it no id."""


Lost = Literal["memory", "too large", "read too late", "unreadable"]
"""Why turns are missing that may be on record. `memory`: their API key has its share of Redis'
memory."""


class RecordedTurns(msgspec.Struct, frozen=True):
    """What a lookup found: turns, oldest first, and why others are missing."""

    turns: Sequence[StoredTurn] = ()
    lost: Sequence[Lost] = ()


def pack_turns(turns: Sequence[StoredTurn], lost: Sequence[Lost] = ()) -> bytes:
    """Pack turns, numbers exactly as they are: JSON, because msgpack could not hold them."""
    return dumps([*lost, *map(msgspec.structs.asdict, turns)])


def unpack_turns(data: bytes) -> RecordedTurns:
    """Unpack `pack_turns`. Raises ValueError."""
    values = msgspec.convert(loads_exact(data), list[StoredTurn | Lost])
    return RecordedTurns(
        [value for value in values if not isinstance(value, str)],
        [value for value in values if isinstance(value, str)],
    )


class BaseTurnBuilder(ABC):
    """Builds one assistant turn from raw events or whole answers; answers that go on with a paused
    turn are appended.

    `complete` is true once the last answer ended properly; after anything that is not understood it
    stays false.
    """

    goes_on = False
    """May there be more of the turn after what makes it complete?"""

    def __init__(self) -> None:
        self.container, self.container_expires_at, self.stop_reason = "", "", ""
        self._size = 0
        self._has_ended = self.is_broken = False

    @property
    def complete(self) -> bool:
        """Has the turn ended, with everything understood?"""
        return self._has_ended and not self.is_broken

    @property
    def is_paused(self) -> bool:
        """Has it ended in a way that another answer may go on with?"""
        return self.complete and self.stop_reason in PAUSES

    def feed(self, chunk: bytes) -> None:
        """Take one SSE event with its framing."""
        self._read(chunk, self._read_chunk)

    def body(self, raw: bytes) -> None:
        """Take a whole answer."""
        self._read(raw, self._read_body)

    def take(self, raw: bytes) -> None:
        """Take a recorded chunk: a whole answer or an event."""
        if raw[:1] in (b"{", b" ", b"\n", b"\t", b"\r") and raw.lstrip()[:1] == b"{":
            self.body(raw)
        else:
            self.feed(raw)

    def go_on(self) -> None:
        """Take that another answer goes on with the turn, however this one ended."""
        self.stop_reason = StopReason.PAUSE_TURN

    def finish(self) -> None:  # noqa: B027 - most have nothing to do
        """No chunk follows. Dialects whose streams end without a word end their message here."""

    def _read(self, raw: bytes, read: Callable[[bytes], None]) -> None:
        self._size += len(raw)
        if self._size > bounds.MAX_TURN_BYTES:
            self.is_broken = True
        if not self.is_broken:
            try:
                read(raw)
            except (ValueError, msgspec.MsgspecError, RemoteProtocolError):
                self.is_broken = True

    @abstractmethod
    def content(self) -> list[dict[str, Any]]:
        """The content blocks as they go into the next request. Values that must not be changed."""

    @abstractmethod
    def _read_chunk(self, chunk: bytes) -> None:
        """Take an event with its framing. Raises ValueError, MsgspecError or RemoteProtocolError
        where it is not understood."""

    @abstractmethod
    def _read_body(self, raw: bytes) -> None:
        """Take a whole answer. Raises as `_read_chunk`."""
