"""Sentences for people: wrapped between words on a terminal, left whole in a pipe or a file. Loads
nothing heavy."""

import shutil
import textwrap
from typing import TextIO

_LEAST = 40
"""A terminal narrower than this gets lines of so many characters."""


def wrapped(text: str, stream: TextIO) -> str:
    """Return `text` as `stream` shows it best; lines that go on are indented. Paths and other long
    words stay whole."""
    if not stream.isatty():
        return text
    width, lines = max(_LEAST, shutil.get_terminal_size().columns), []
    for line in text.split("\n"):
        words = line.lstrip()
        indent = " " * (len(line) - len(words))
        lines += textwrap.wrap(
            words,
            width,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines)
