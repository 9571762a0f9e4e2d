"""A place in a shell text, and what every reader of one does there: skip blanks, find the end of
brackets, count its work. Must not know: words, commands.
"""

import re
from typing import Self

from policy.effects.shell.parse.budget import MAX_NESTING, NotRead, OutOfWork, StepBudget
from policy.effects.shell.parse.tree import Lit, Parts, Redir

_BLANKS = re.compile(r"(?:[ \t]+|\\(?:\n|\Z))+(?:#[^\n]*)?|#[^\n]*")
_LINES = re.compile(r"(?:[ \t\n]+|\\(?:\n|\Z)|#[^\n]*)+")
_BRACKETS = re.compile(r"[()]")
_BRACKET_COST = 32
"""Of the budget's characters, for each bracket that is looked at."""


class TextScanner:
    """Goes through one text. `nesting`: how deep it is inside other texts."""

    def __init__(self, text: str, budget: StepBudget, nesting: int = 0) -> None:
        budget.spend(len(text))
        self.text = text
        self.at = 0
        self.budget = budget
        self.nesting = nesting
        self.pending: list[tuple[Redir, str, bool]] = []
        """Heredocs whose text comes with the next line: redirect, its last line, whether tabs
        before it are left out."""
        self.errors: list[str] = []

    @property
    def sign(self) -> str:
        """The sign at its place, empty at the end."""
        return self.text[self.at : self.at + 1]

    @property
    def next_sign(self) -> str:
        """The one behind it."""
        return self.text[self.at + 1 : self.at + 2]

    def skip(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Go behind what stands here, where it matches."""
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def heredocs(self) -> None:
        """Read the texts of the heredocs of the line before: the grammar's part."""
        raise NotImplementedError

    def within(self, text: str) -> Self:
        """Make a reader of a text within this one."""
        return type(self)(text, self.budget, self.nesting)

    def blanks(self, *, lines: bool = False) -> None:
        """Skip blanks and comments, and with `lines` ends of lines too."""
        text = self.text
        if text[self.at : self.at + 1] not in " \t\n\\#":
            # as nearly always
            return
        self.skip(_LINES if lines and not self.pending else _BLANKS)
        if lines and self.pending and text.startswith("\n", self.at):
            self.at += 1
            self.heredocs()
            self.blanks(lines=True)

    def closing(self, at: int, brackets: int = 2) -> int:
        """Find the brackets that close `((`, or one; -1 if none do."""
        depth = brackets
        for match in _BRACKETS.finditer(self.text, at):
            depth += 1 if match[0] == "(" else -1
            self.budget.left -= _BRACKET_COST
            if self.budget.left < 0:
                break
            if (
                depth == brackets - 1
                and brackets == 2
                and not self.text.startswith("))", match.start())
            ):
                return -1
            if depth == brackets - 1:
                self.budget.spend(match.start() - at)
                return match.start()
        self.budget.spend(len(self.text) - at)
        return -1

    def enter(self) -> None:
        """Go one bracket deeper. Raises OutOfWork."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise OutOfWork("depth: more brackets within brackets than are read")

    def text_of(self, parts: Parts) -> str:
        """Return the text of a plain word."""
        return "".join(part.text if isinstance(part, Lit) else "$" for part in parts)

    def wrong(self, what: str) -> NotRead:
        """Make the error of what is wrong here."""
        return NotRead(f"parse: {what}, at character {self.at}", self.at)
