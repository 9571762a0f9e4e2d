"""Texts in the form in which values are looked for in them: what stands there as a word of its
own, and the words of names."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cached_property

MAX_HITS = 1_000
"""Places of a value that are looked at, in the middle of words or not."""
MAX_PLACES = 20
"""Places of a value around which the text is read."""
_HOST = re.compile(
    r"(?:[a-z][a-z0-9+.-]{0,20}:)?//(?:[^\s/?#@]{0,200}@)?([^\s/?#:@\"'<>)\]]{1,253})",
    re.IGNORECASE,
)
_HIDDEN = dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))
_BLANKS = {ord(" "): None, ord("-"): None}
_ESCAPED = re.compile(r"\\(?:([\"'/\\])|[nrt]|\n *(?:\\(?= ))?)")
_CLOSED = re.compile(r"[A-Za-z]{2}\d{2}[A-Za-z0-9]{8,30}|\+?\d{7,34}")
"""Accounts and phone numbers without blanks: people write them with some."""


def plain(text: str) -> str:
    """Return a text in the form in which texts are compared: small letters, compatible forms, no
    hidden characters, single blanks."""
    return " ".join(shown(text).casefold().split())


def shown(text: str) -> str:
    """Return a text as a reader sees it: without hidden characters, in compatible forms."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text.translate(_HIDDEN))


def host_of(value: str) -> str:
    """Return the host of a URL, without `www.`; empty where it is none."""
    match = _HOST.match(value.strip())
    return match[1].lower().rstrip(".").removeprefix("www.") if match else ""


class ComparedTexts:
    """Texts of one origin, in the form in which they are compared."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self._plain = " \n ".join(map(plain, texts))

    @cached_property
    def _lines(self) -> set[str]:
        return {plain(line) for text in self._texts for line in text.split("\n")}

    @cached_property
    def squeezed(self) -> str:
        """The texts without blanks and hyphens."""
        return squeezed(self._plain)

    def has(self, wanted: str, *, is_exact: bool) -> bool:
        """Does the value stand in one of them, or as a whole line? What is found too often in the
        middle of words does not."""
        if is_exact:
            return wanted in self._lines
        if next(places(self._plain, wanted), -1) >= 0:
            return True
        return _CLOSED.fullmatch(wanted) is not None and wanted in self.squeezed


def unescaped(text: str) -> str:
    """Return a text without the marks in which JSON and YAML write ends of lines and quotes."""
    if "''" in text:
        text = text.replace("''", "'")
    return _ESCAPED.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    return match[1] or (" " if match[0][1] in "nrt" else "")


def squeezed(text: str) -> str:
    """Return a plain text without blanks and hyphens."""
    return text.translate(_BLANKS)


def places(text: str, wanted: str) -> Iterator[int]:
    """Yield where a value stands in the text as a word of its own, of the first so many hits."""
    at = -1
    for _ in range(MAX_HITS):
        at = text.find(wanted, at + 1)
        if at < 0:
            return
        if not _goes_on(text[max(0, at - 2) : at][::-1], "_-+@") and not _goes_on(
            text[at + len(wanted) : at + len(wanted) + 2], "_@"
        ):
            yield at


def _goes_on(adjacent: str, marks: str) -> bool:
    """Does the adjacent text continue the word? No word follows a punctuation mark directly."""
    if not adjacent:
        return False
    first = adjacent[0]
    if first == "@" == marks[-1] and not adjacent[1:].isalnum():
        # `@name` is a name, `box@name` an address
        return False
    return first.isalnum() or first in marks or (first in ".-+" and adjacent[1:].isalnum())


def words(name: str) -> Iterator[str]:
    """Yield the words of a name, in small letters: of `sendMail`, `send_mail` and
    `mcp__mail__send-mail`."""
    last = re.split(r"__|[./:]", name)[-1] or name
    for match in re.finditer(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", last[:200]):
        yield match[0].lower()
