"""Reads tables of words and what is so of each, which modules hold as text or `policy/data` has."""

import re
from importlib import resources


def by_word(table: str) -> dict[str, str]:
    """Return what stands behind ` :` in the rows, by each word before it. A row that goes on does
    so in indented lines."""
    lines = re.sub(r"\n +", " ", table.strip()).splitlines()
    rows = [line.partition(" :") for line in lines]
    return {word: text.strip() for words, _, text in rows for word in words.split()}


def data(name: str) -> str:
    """Return a table of `policy/data` without its comments."""
    text = resources.files("policy").joinpath("data", name).read_text(encoding="utf-8")
    return re.sub(r"(?m)^#.*\n", "", text).strip()


def sections(name: str) -> dict[str, str]:
    """Return the parts of a file by the headings over them."""
    parts = re.split(r"(?m)^\[(\w+)\]\n", re.sub(r"\n{2,}", "\n", data(name)))
    return dict(zip(parts[1::2], parts[2::2], strict=True))
