"""Searches text for calls: in all blocks of an answer as one text, because clients join them.

A block may end within what becomes a call in the next one. Its text goes out, and the next block is
searched with that beginning in front; a call that is found so is decided whole, and what of it is
not yet out waits for the verdict.
"""

from collections.abc import Sequence

from policy.session.answer.slots import TextRun
from protocol.bounds import MAX_CARRIED_CHARS, TEXT_STEP_CHARS
from protocol.dialects.table import CLIENTS
from protocol.errors import RemoteProtocolError
from protocol.events import BlockKind, BlockStart
from protocol.request import DialectName
from protocol.text_calls.scanner import CallScanner
from protocol.text_calls.words import Piece, TextCall


def raw_of(piece: Piece) -> str:
    """The text that a piece is."""
    return piece if isinstance(piece, str) else piece.raw


def holds_call(text: str) -> bool:
    """Is there what a client may read as a call?"""
    scanner = CallScanner(None, reasoning=False)
    for at in range(0, len(text), TEXT_STEP_CHARS):
        if any(
            isinstance(piece, TextCall) for piece in scanner.feed(text[at : at + TEXT_STEP_CHARS])
        ):
            return True
    return any(isinstance(piece, TextCall) for piece in scanner.finish())


class Search:
    """The search of one answer."""

    def __init__(self, dialect: DialectName, *, is_on: bool) -> None:
        self._is_on, self._dialect = is_on, CLIENTS[dialect]
        self._scanner = CallScanner(None, reasoning=False)
        self._carry, self._carried = "", 0
        self._open = -1

    def begin(self, event: BlockStart) -> TextRun:
        """Begin a block of text or thinking. Raises RemoteProtocolError for a text inside
        another."""
        if event.kind is not BlockKind.TEXT:
            return TextRun(
                event,
                None,
                field="reasoning" if event.name == "reasoning" else self._dialect.thinking_field,
            )
        if event.name and self._dialect.names_text:
            # a field of its own there, which no client joins to the content
            return TextRun(
                event, CallScanner(None, reasoning=False) if self._is_on else None, field=event.name
            )
        if not self._is_on:
            return TextRun(event, None, field="content")
        if self._open >= 0:
            raise RemoteProtocolError("upstream began a block of text inside another")
        carry = self._carry
        self._carried += len(carry)
        if self._carried > MAX_CARRIED_CHARS:
            raise RemoteProtocolError(
                "upstream spread what may be a tool call over too many blocks"
            )
        known = len(carry) - sum(len(raw_of(piece)) for piece in self._scanner.feed(carry))
        self._open, self._carry = event.index, ""
        return TextRun(event, self._scanner, known, field="content")

    def end(self, run: TextRun, pieces: Sequence[Piece]) -> None:
        """End a block; `pieces` is what the scanner returned at its end, with which a call may
        begin."""
        if run.start.index != self._open:
            return
        self._open = -1
        if run.blocked:
            self._scanner = CallScanner(None, reasoning=False)
        else:
            self._carry = "".join(map(raw_of, pieces))
            # some calls begin only at a line's beginning, or behind none of their own letters
            self._scanner.take_back(self._carry)
