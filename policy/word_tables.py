"""Reads tables that modules hold as text: words, and what is so of each."""

import re


def by_word(table: str) -> dict[str, str]:
    """Return what stands behind ` :` in the rows, by each word before it. A row that goes on does
    so in indented lines."""
    lines = re.sub(r"\n +", " ", table.strip()).splitlines()
    rows = [line.partition(" :") for line in lines]
    return {word: text.strip() for words, _, text in rows for word in words.split()}
