"""Where a value came from: the user's words, a trusted tool's result, a field or only the text of another result, or nowhere.

An index over the history of one request, made once for a call and asked for each value. Linear in the history, of which at most
PROVENANCE_CHARS characters are read, the newest results first.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from policy.monitors.fields import fields
from protocol.bounds import PROVENANCE_CHARS, PROVENANCE_LINES
from protocol.request import ChatRequest, TextPart, ToolResultPart, ToolUsePart

Origin = Literal["user", "trusted", "field", "text", "nowhere"]
"""user: the user's words or the operator's (the system prompt). trusted: a trusted tool's result. field: a whole value in a structured
result of another tool. text: only within a text of such a result, which somebody else may have written. nowhere: in none of these."""
ORIGINS: tuple[Origin, ...] = ("user", "trusted", "field", "text", "nowhere")
Match = Literal["auto", "exact", "substring", "host", "domain"]
"""How a value is looked for. exact: a whole line or field. substring: whole within a text, not as a part of a longer word. host: a URL by
its host. domain: an e-mail address by what is behind the @. auto: a URL by its host, else substring."""
MIN_CHARS = 4
"""Shorter values are in every text by chance: they are known as whole fields alone."""
_MAX_HITS = 1_000
_HOST = re.compile(r"(?:[a-z][a-z0-9+.-]{0,20}:)?//(?:[^\s/?#@]{0,200}@)?([^\s/?#:@\"'<>)\]]{1,253})", re.IGNORECASE)
_HIDDEN = dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))
_NAME = re.compile(r"[A-Z][a-z]{1,2}")
"""Names of people that are that short, as the user writes them."""
_LINKS = re.compile(
    r"(?i)\b(?:links?|urls?|web ?(?:sites?|pages?)|sites?|pages?|articles?|blogs?|https?|www|liens?|enlaces?|(?:web)?seiten?|p[aá]ginas?)\b"
    r"|ссылк|链接|网页|リンク"
)
_BLANKS = {ord(" "): None, ord("-"): None}
_NAMED = re.compile(r"[^<>@\n]{0,80}<([^<>@\s]{1,64}@[^<>@\s]{1,253})>")
_THOUGHTS = ("thinking", "redacted_thinking")
_CLOSED = re.compile(r"[A-Za-z]{2}\d{2}[A-Za-z0-9]{8,30}|\+?\d{7,34}")
"""Accounts and phone numbers without blanks: people write them with some."""


def plain(text: str) -> str:
    """Return a text in the form in which texts are compared: small letters, compatible forms, no hidden characters, single blanks."""
    return " ".join(shown(text).casefold().split())


def shown(text: str) -> str:
    """Return a text as a reader sees it: without hidden characters, in compatible forms."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text.translate(_HIDDEN))


def host_of(value: str) -> str:
    """Return the host of a URL, without `www.`; empty where it is none."""
    found = _HOST.match(value.strip())
    return found[1].lower().rstrip(".").removeprefix("www.") if found else ""


class _Texts:
    """Texts of one origin, in the form in which they are compared."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self._plain = " \n ".join(map(plain, texts))
        self._lines: set[str] | None = None
        self._squeezed = ""

    def has(self, wanted: str, *, is_exact: bool) -> bool:
        """Does the value stand in one of them, or as a whole line?"""
        if is_exact:
            if self._lines is None:
                self._lines = {plain(line) for text in self._texts for line in text.split("\n")}
            return wanted in self._lines
        if _stands(self._plain, wanted):
            return True
        if _CLOSED.fullmatch(wanted):
            self._squeezed = self._squeezed or self._plain.translate(_BLANKS)
            return wanted in self._squeezed
        return False


class Sources(NamedTuple):
    """What an index is made of, taken from a request without reading it: references to its texts, of which it keeps alive these alone."""

    user: tuple[str, ...]
    """The user's words, the newest first, then the operator's."""
    said: int
    """How many of these are the user's."""
    results: tuple[tuple[str, str], ...]
    """The tool's name, empty where no call has the result's id, and the text; the newest first."""
    has_others: bool
    """Documents, images and results of tools that the provider ran stand in the history too."""
    size: int


def sources(request: ChatRequest) -> Sources:
    """Take the texts of a request of which a value may come, up to PROVENANCE_CHARS: the user's, the operator's, then results."""
    user, results, names, has_others = list[str](), list[ToolResultPart](), dict[str, str](), False
    for turn in request.turns:
        for part in turn.parts:
            if isinstance(part, ToolUsePart):
                names[part.id] = part.name
            elif isinstance(part, ToolResultPart):
                results.append(part)
            elif isinstance(part, TextPart):
                if turn.role != "assistant":
                    user.append(part.text)
            else:
                has_others = has_others or part.kind not in _THOUGHTS
    room = PROVENANCE_CHARS
    kept = list[str]()
    for text in (*reversed(user), *request.system):
        kept.append(text[:room])
        room -= len(kept[-1])
    found = list[tuple[str, str]]()
    for result in reversed(results):
        found.append((names.get(result.tool_call_id, ""), result.text[:room]))
        room -= len(found[-1][1])
    return Sources(tuple(kept), len(user), tuple(found), has_others, PROVENANCE_CHARS - room)


class Origins:
    """The index of one request."""

    def __init__(self, given: Sources, is_trusted: Callable[[str], bool], is_raw: Callable[[str], bool]) -> None:
        self.has_untrusted = given.has_others
        """Is there anything in the history that somebody else may have written?"""
        self._fields = set[str]()
        trusted, untrusted, lines = list[str](), list[str](), PROVENANCE_LINES
        for name, text in given.results:
            if name and is_trusted(name):
                trusted.append(text)
                continue
            self.has_untrusted = True
            untrusted.append(text)
            if name and not is_raw(name) and (count := text.count("\n") + text.count(",")) <= lines:
                lines -= count
                for _, value in fields(text):
                    self._fields.update(_forms(value))
        self._asked = "\n".join(given.user[: given.said])
        self._user, self._trusted, self._text = map(_Texts, (list(given.user), trusted, untrusted))

    def quotes(self, value: str) -> bool:
        """Does a text that somebody else may have written have this URL to the letter, but for its scheme?"""
        return self._text.has(plain(value).partition("//")[2].rstrip("/"), is_exact=False)

    @property
    def speaks_of_links(self) -> bool:
        """Has the user said anything about pages or links?"""
        return _LINKS.search(self._asked) is not None

    def of(self, value: str, match: Match = "auto") -> Origin:
        """Return the best origin of a value."""
        wanted = plain(value)
        if match == "host" or (match == "auto" and host_of(value)):
            wanted = host_of(value)
        elif match == "domain":
            wanted = wanted.rpartition("@")[2]
        if not wanted:
            return "nowhere"
        forms, is_exact, is_long = (wanted, f"www.{wanted}"), match == "exact", len(wanted) >= MIN_CHARS
        if is_long and any(self._user.has(form, is_exact=is_exact) for form in forms):
            return "user"
        if not is_long and _NAME.fullmatch(value.strip()) and re.search(rf"\b{value.strip()}\b", self._asked):
            return "user"
        if is_long and any(self._trusted.has(form, is_exact=is_exact) for form in forms):
            return "trusted"
        if plain(value) in self._fields or (match != "auto" and not self._fields.isdisjoint(forms)):
            return "field"
        return "text" if is_long and any(self._text.has(form, is_exact=is_exact) for form in forms) else "nowhere"


def _forms(value: str) -> Iterator[str]:
    """Yield what a field's value is known as: itself, each address of a list, and the address behind a name."""
    yield plain(value)
    if "@" in value:
        for one in value.split(",") if "," in value else (value,):
            found = _NAMED.fullmatch(one.strip())
            yield plain(found[1] if found else one)
    elif host := host_of(value):
        yield f"//{host}"


def _stands(text: str, wanted: str) -> bool:
    """Does it stand in the text as a word of its own? What is found too often in the middle of words does not."""
    at = -1
    for _ in range(_MAX_HITS):
        at = text.find(wanted, at + 1)
        if at < 0:
            return False
        if not _goes_on(text[max(0, at - 2) : at][::-1], "_-+@") and not _goes_on(text[at + len(wanted) : at + len(wanted) + 2], "_@"):
            return True
    return False


def _goes_on(beside: str, marks: str) -> bool:
    """Is what stands beside it of the same word? A mark of a sentence is followed by none."""
    if not beside:
        return False
    first = beside[0]
    return first.isalnum() or first in marks or (first in ".-+" and beside[1:].isalnum())


def words(name: str) -> Iterator[str]:
    """Yield the words of a name, in small letters: of `sendMail`, `send_mail` and `mcp__mail__send-mail`."""
    last = re.split(r"__|[./:]", name)[-1] or name
    for found in re.finditer(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", last[:200]):
        yield found[0].lower()
