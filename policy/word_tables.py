"""Reads tables of words and patterns, which modules hold as text or which lie in `policy/data`."""

import re
from importlib import resources


def rows_of(table: str, *, between: str = "") -> list[str]:
    """Return the rows. One that goes on does so in indented lines, which are joined by
    `between`."""
    return re.sub(r"\n +", between, table.strip()).splitlines()


def by_word(table: str) -> dict[str, str]:
    """Return what stands behind ` :` in the rows, by each word before it."""
    rows = [row.partition(" :") for row in rows_of(table, between=" ")]
    return {word: text.strip() for words, _, text in rows for word in words.split()}


def patterns(table: str) -> dict[str, re.Pattern[str]]:
    """Return the pattern behind ` : ` in each row, by the name before it."""
    return {
        name: re.compile(text) for name, _, text in (r.partition(" : ") for r in rows_of(table))
    }


def data(name: str) -> str:
    """Return a table of `policy/data` without its comments."""
    text = resources.files("policy").joinpath("data", name).read_text(encoding="utf-8")
    return re.sub(r"(?m)^#.*\n", "", text).strip()


def sections(name: str) -> dict[str, str]:
    """Return the parts of a file by the headings over them."""
    parts = re.split(r"(?m)^\[(\w+)\]\n", re.sub(r"\n{2,}", "\n", data(name)))
    return dict(zip(parts[1::2], parts[2::2], strict=True))
