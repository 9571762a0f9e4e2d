"""The blocks of one Gemini answer, numbered as their content comes: what the decoder builds events
with.

Neighbouring texts of one kind are one block. A signature belongs to the part that it came with, so
a signed text is a block of its own (`body` says `signed`), and nothing is added to a block after a
signature: an empty signed part, which ends many streams, seals the block before it. Calls come
whole and are emitted at once.
"""

from typing import Any

from protocol.bounds import MAX_BLOCKS
from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    SignatureDelta,
    TextDelta,
)

SIGNED = {"signed": True}
"""The body of a text whose signature came with it."""
ANNOTATIONS = "annotations"
"""The name of a block of sources that came when no text was open."""
SEAL = "thoughtSignature"
"""The name of a block that is nothing but a signature."""


class Blocks:
    """Blocks of one message."""

    def __init__(self) -> None:
        self.has_calls = False
        self.open_index = -1
        """The text or thinking that is open; -1 for none."""
        self.open_kind: BlockKind | None = None
        self.pieces: list[str] = []
        """The open block's text, for its citations."""
        self.previous_text_bytes = 0
        """Bytes of the texts, as UTF-8, before the open one."""
        self._is_sealed = False
        self._next = 0

    def text(self, kind: BlockKind, text: str, signature: str, events: list[Event]) -> None:
        """Add a text, or reasoning, and what signs it."""
        if not text:
            if signature:
                self._seal(signature, events)
            return
        if self.open_kind is not kind or self._is_sealed or signature:
            self.close(events)
            self.open_index, self.open_kind = self._new(), kind
            events.append(BlockStart(self.open_index, kind, body=SIGNED if signature else None))
        if kind is BlockKind.TEXT:
            self.pieces.append(text)
        events.append(TextDelta(self.open_index, text))
        if signature:
            events.append(SignatureDelta(self.open_index, signature))
            self._is_sealed = True

    def _seal(self, signature: str, events: list[Event]) -> None:
        if self.open_kind is None or self._is_sealed:
            # after a call: nothing is open that it could stand with
            self.other(SEAL, {"type": SEAL}, signature, events)
            return
        events.append(SignatureDelta(self.open_index, signature))
        self._is_sealed = True

    def goes_on(self, kind: BlockKind) -> bool:
        """May a text of this kind be added to the open block?"""
        return self.open_kind is kind and not self._is_sealed

    def call(
        self, name: str, identity: str, arguments: str, signature: str, events: list[Event]
    ) -> None:
        """Add a call that the client executes."""
        self.has_calls = True
        self._tell(
            BlockStart(self._begin(events), BlockKind.TOOL_USE, identity, name),
            arguments,
            signature,
            events,
        )

    def server_call(
        self,
        name: str,
        identity: str,
        arguments: str,
        body: dict[str, Any],
        signature: str,
        events: list[Event],
    ) -> str:
        """Add a call that the provider ran; returns its id, which is made where upstream gave
        none."""
        index = self._begin(events)
        made = identity or f"server_{index}"
        if identity:
            body = body | {"id": identity}
        self._tell(
            BlockStart(index, BlockKind.SERVER_TOOL_USE, made, name, body),
            arguments,
            signature,
            events,
        )
        return made

    def other(self, name: str, body: dict[str, Any], signature: str, events: list[Event]) -> None:
        """Add what is carried whole."""
        self._tell(
            BlockStart(self._begin(events), BlockKind.OTHER, name=name, body=body),
            "",
            signature,
            events,
        )

    def _tell(self, start: BlockStart, arguments: str, signature: str, events: list[Event]) -> None:
        events.append(start)
        if arguments:
            events.append(ArgumentsDelta(start.index, arguments))
        if signature:
            events.append(SignatureDelta(start.index, signature))
        events.append(BlockStop(start.index))

    def close(self, events: list[Event]) -> None:
        """End the open text or thinking."""
        if self.open_kind is not None:
            events.append(BlockStop(self.open_index))
            self.previous_text_bytes += sum(
                len(piece.encode("utf-8", "surrogatepass")) for piece in self.pieces
            )
        self.open_index, self.open_kind, self.pieces, self._is_sealed = -1, None, [], False

    def _begin(self, events: list[Event]) -> int:
        self.close(events)
        return self._new()

    def _new(self) -> int:
        if self._next >= MAX_BLOCKS:
            raise RemoteProtocolError(f"upstream began more than {MAX_BLOCKS} blocks")
        self._next += 1
        return self._next - 1
