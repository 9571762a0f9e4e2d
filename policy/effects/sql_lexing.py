"""Where strings, quoted names and comments are in an SQL text, by the lexical rules of a dialect;
the remainder is SQL words.

Databases differ in what ends a string or a comment, and that decides whether `; delete from t` is
text or a statement.
"""

import re
from typing import Literal

import msgspec


class Style(msgspec.Struct, frozen=True):
    """The lexical rules of a dialect. `escapes`: in which strings a backslash keeps the quote from
    ending them. `dollars`: `$tag$` quotes. `nested`: comments in comments count. `hash`: `#` begins
    a comment. `dash_blank`: `--` does only before white space. `brackets`: `[name]`."""

    escapes: Literal["all", "marked", "none"] = "none"
    dollars: bool = False
    nested: bool = False
    hash: bool = False
    dash_blank: bool = False
    brackets: bool = False


STYLES = {
    "postgres": Style(escapes="marked", dollars=True, nested=True),
    "mysql": Style(escapes="all", hash=True, dash_blank=True),
    "sqlite": Style(brackets=True),
    "tsql": Style(nested=True, brackets=True),
}
"""Dialects whose rules are known here."""


class Guarded(msgspec.Struct, frozen=True):
    """A region of a text that holds no words. `is_nested`: a comment with a comment in it.
    `is_open`: the text ends before it does."""

    start: int
    end: int
    kind: Literal["string", "name", "comment"]
    is_open: bool = False
    is_nested: bool = False


_OPENS = re.compile(r"""['"`\[#]|--|/\*|\$(?:[^\W\d]\w*)?\$""")
_PLAIN = {quote: re.compile(f"{quote}(?:[^{quote}]|{quote}{quote})*+{quote}") for quote in "'\"`"}
_ESCAPED = {
    quote: re.compile(rf"{quote}(?:[^{quote}\\]|{quote}{quote}|\\.)*+{quote}", re.DOTALL)
    for quote in "'\""
}
_BRACKETS = re.compile(r"\[(?:[^\]]|\]\])*+\]")
_LINE = re.compile(r"[^\r\n]*")
_NESTING = re.compile(r"/\*|\*/")
_MARK = re.compile(r"(?<![\w$])[eE]\Z")
_JOINS = re.compile(r"\s*\n\s*")


def guarded(text: str, style: Style) -> list[Guarded]:
    """Return the strings, quoted names and comments of a text in order. Linear."""
    regions: list[Guarded] = []
    position = 0
    was_marked = False
    while (opened := _OPENS.search(text, position)) is not None:
        start, mark = opened.start(), opened[0]
        if mark in ("'", '"', "`"):
            marked = mark == "'" and _is_marked(text, start, regions, was_marked)
            escapes = style.escapes == "all" or (style.escapes == "marked" and marked)
            match = (_ESCAPED if escapes and mark != "`" else _PLAIN)[mark].match(text, start)
            regions.append(
                Guarded(
                    start,
                    match.end() if match else len(text),
                    "string" if mark == "'" else "name",
                    match is None,
                )
            )
            was_marked = marked
        elif mark == "[" and style.brackets:
            match = _BRACKETS.match(text, start)
            regions.append(
                Guarded(start, match.end() if match else len(text), "name", match is None)
            )
        elif (mark == "#" and style.hash) or (
            mark == "--" and not (style.dash_blank and text[start + 2 : start + 3].strip())
        ):
            line = _LINE.match(text, start)
            regions.append(Guarded(start, line.end() if line else len(text), "comment"))
        elif mark == "/*":
            regions.append(_comment(text, start, nested=style.nested))
        elif (
            len(mark) > 1
            and mark[0] == "$"
            and style.dollars
            and not re.match(r"[\w$]", text[start - 1 : start])
        ):
            end = text.find(mark, start + len(mark))
            regions.append(
                Guarded(start, end + len(mark) if end >= 0 else len(text), "string", end < 0)
            )
        else:
            # `$a$b$`: the second dollar may open something
            position = start + 1
            continue
        position = regions[-1].end
    return regions


def _is_marked(text: str, start: int, regions: list[Guarded], was_marked: bool) -> bool:
    """Is it `E'...'`, or the next line of one?"""
    if _MARK.search(text, max(0, start - 2), start):
        return True
    return (
        was_marked
        and bool(regions)
        and regions[-1].kind == "string"
        and _JOINS.fullmatch(text, regions[-1].end, start) is not None
    )


def _comment(text: str, start: int, *, nested: bool) -> Guarded:
    depth, is_nested = 0, False
    for mark in _NESTING.finditer(text, start):
        if mark[0] == "/*":
            depth += 1 if nested or not depth else 0
            is_nested = is_nested or mark.start() > start
        else:
            depth -= 1
        if depth <= 0:
            return Guarded(start, mark.end(), "comment", is_nested=is_nested)
    return Guarded(start, len(text), "comment", is_open=True, is_nested=is_nested)


def without_nested(text: str, style: Style) -> str:
    """Return the text with a blank for each comment that holds a comment, where the dialect takes
    it for one."""
    return replaced(
        text,
        [piece for piece in guarded(text, style) if piece.is_nested and not piece.is_open],
        {"comment": " "},
    )


def replaced(text: str, pieces: list[Guarded], by: dict[str, str]) -> str:
    """Return the text with something else in the place of pieces, by their kind. What is not in
    `by` stays."""
    parts: list[str] = []
    position = 0
    for piece in pieces:
        parts += [text[position : piece.start], by.get(piece.kind, text[piece.start : piece.end])]
        position = piece.end
    return "".join([*parts, text[position:]])


def cut(text: str, pieces: list[Guarded]) -> list[str]:
    """Return the statements of a text: cut at semicolons that stand in no such piece. Empty ones
    stay."""
    statements: list[str] = []
    start = position = 0
    for piece in [*pieces, Guarded(len(text), len(text), "comment")]:
        while (semicolon := text.find(";", position, piece.start)) >= 0:
            statements.append(text[start:semicolon])
            start = position = semicolon + 1
        position = piece.end
    return [*statements, text[start:]]
