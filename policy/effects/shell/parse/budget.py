"""How much work one text may take, counted in steps: no clock, so that every reading ends the same
way."""

MAX_TEXT_BYTES = 64 * 1024
"""Of the text, and of what it makes of itself."""
MAX_NODES = 2_000
"""Words, their parts and commands, in the text and in the programs within it; a part that runs in
each turn of a loop counts each time."""
MAX_DEPTH = 8
"""Of programs within programs: `sh -c`, `eval`, functions and aliases."""
MAX_NESTING = 24
"""Of brackets within brackets in one text. Each is some ten calls of functions, of which Python
allows 1,000 in one another."""
_CHARS_PER_NODE = 256
"""Reading so many characters counts as much as a node."""


class NotRead(Exception):
    """The text, or the rest of it, is not read; the reason begins with its kind and a colon."""

    def __init__(self, reason: str, at: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at


class OutOfWork(NotRead):
    """The bound is reached: nothing more is read."""


class StepBudget:
    """Counts the steps of one reading."""

    __slots__ = ("left",)

    def __init__(self, nodes: int = MAX_NODES) -> None:
        self.left = nodes * _CHARS_PER_NODE

    def spend(self, chars: int = 0) -> None:
        """Count one node and these characters. Raises OutOfWork."""
        self.left -= _CHARS_PER_NODE + chars
        if self.left < 0:
            raise OutOfWork("size: more commands and words than are read")
