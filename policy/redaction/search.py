"""Finds secrets and personal data in text, also while more of it is still to come.

Theory. A text is a row of runs: characters without white space, with blanks between digits or
capitals, as cards, telephones and accounts are written, and line ends between lines of base64, as
in private keys. What is in a run depends on the run, on `CONTEXT_CHARS` before it and on one
character behind it. So text can go as soon as its last run is complete, and what is in it does not
depend on how it came. A run may be a megabyte: it is taken in pieces, and the first half of each is
decided with the other half in sight.

Digits and letters are looked at in their compatibility forms, without characters that nobody sees.
Must not know: policies, what is done about a find.
"""

import functools
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from policy.redaction.numbers import numbers
from policy.redaction.secret_rules import CONTEXT_CHARS, MIN_SECRET_CHARS, pack, secrets
from protocol.bytes.folding import without_unseen

UNSEEN = "\u00a0\u00ad\u200b-\u200f\u2060-\u206f\ufe00-\ufe0f\ufeff\uff01-\uff5e"
_CHARACTER = f"[!-~{UNSEEN}]"
_LEFT, _RIGHT = "(?<=[0-9A-Z)\uff10-\uff19])", "(?=[0-9A-Z(+\uff10-\uff19])"
_RUN = re.compile(
    f"{_CHARACTER}+(?:(?:{_LEFT} {_RIGHT}|(?<=[A-Za-z0-9+/=]{{40}})\r?\n[ \t]{{0,16}}(?=[\\w+/=-])"
    f"|(?<=-----)\r?\n[ \t]{{0,16}}(?=[\\w+/=])|(?<=[\\w+/=]{{4}})\r?\n[ \t]{{0,16}}(?=-))"
    f"{_CHARACTER}+)*",
    re.ASCII,
)
_MAY_GO_ON = re.compile(
    f"{_LEFT} ?\\Z|(?<=[\\w+/=-]{{4}})(?:\r?\n[ \t]{{0,16}}|\r)?\\Z|\\Z", re.ASCII
)
"""Behind a run: whether more text may belong to it."""
PIECE_CHARS = 8_192
OFTEN = re.compile(f"[\\d@\uff20]|-----|{_CHARACTER}{{{MIN_SECRET_CHARS}}}")
"""What stands in every text in which there is something."""
_MIN_CHARS = 6
"""The shortest find, an address."""
_BREAK = re.compile("[a-z,.:;] ")
"""What stands in no run."""
_EMAIL = re.compile(
    r"(?<![\w.%+-])[\w.%+-]{1,64}(?:@|%40)(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])",
    re.ASCII,
)
_NO_EMAIL = re.compile(
    r"(?:git|hg|svn|noreply|no-reply)@|[^@]*@(?:.*\.)?(?:example(?:\.\w+)?|test|invalid|local"
    r"|localhost|users\.noreply\.github\.com|openssh\.com|libssh\.org)\Z|[^@]*@self\.|.*\.(?:png|svg|jpe?g|gif|webp|service|socket|timer|target|mount|slice)\Z",
    re.ASCII | re.IGNORECASE,
)
"""Addresses of documentation and of programs, and names of files, units and algorithms."""
_ESCAPE = re.compile(r"(?<!\\)\\+(?:[nrt]|(?=[\"']))")
"""In JSON within a text: a line end, or what stands before a quote."""


class Find(NamedTuple):
    """Something in a text: where it is, its class, the rule that knows it, and its value as it is
    compared."""

    start: int
    end: int
    kind: str
    rule: str
    value: str


def search(text: str) -> list[Find]:
    """Return what is in a whole text, in order. Nothing of a class overlaps."""
    places = [match.start() for match in pack()["gate"].finditer(_readable(text))]
    return finds(text, 0, len(text), [*places, len(text)]) if places else []


def decided_to(text: str, start: int) -> int:
    """Return up to where what is in a text from `start` on can be decided, more text being to come.
    `start` is 0, or was returned before."""
    last = deque(_RUN.finditer(text, start), 1)
    if not last or _MAY_GO_ON.match(text, last[0].end()) is None:
        return len(text)
    start, end = last[0].span()
    return start + PIECE_CHARS // 2 if end - start >= PIECE_CHARS else start


def finds(text: str, start: int, stop: int, places: Sequence[int] = ()) -> list[Find]:
    """Return what begins from `start` on and before `stop`. `places`: where alone something may
    begin."""
    result: list[Find] = []
    last = -1
    while start < stop:
        place = places[bisect_left(places, start - CONTEXT_CHARS)] if places else last
        if place != last:
            # once for each, as a line may be a megabyte
            last = place
            start = _before(text, start, place)
        run = _RUN.search(text, start)
        if run is None:
            break
        start, end = run.span()
        if end - start < _MIN_CHARS:
            start = end
        while start < min(end, stop):
            is_last = end - start < PIECE_CHARS
            limit = end if is_last else start + PIECE_CHARS // 2
            for find in _in_piece(text, start, end if is_last else start + PIECE_CHARS):
                if find.start >= min(limit, stop):
                    break
                result.append(find)
                limit = max(limit, find.end)
            start = limit
    return result


def _before(text: str, start: int, place: int) -> int:
    """Where runs may be looked at from, if nothing is in those from `start` to `place`."""
    near = max(start, place - CONTEXT_CHARS)
    breaks = [match.end() for match in _BREAK.finditer(text, near, max(near, place))]
    return breaks[-1] if breaks else max(start, text.rfind("\n", start, place) + 1)


def apart(every: Iterable[Find]) -> list[Find]:
    """In order, of those at one place the longest, without what begins inside another."""
    result: list[Find] = []
    for find in sorted(every, key=lambda find: (find.start, -find.end)):
        if not result or find.start >= result[-1].end:
            result.append(find)
    return result


def _in_piece(text: str, start: int, end: int) -> list[Find]:
    run = text[start:end]
    places: Sequence[int] = range(len(run) + 1)
    if not run.isascii():
        letters = [_folded(letter) for letter in run]
        places = [at for at, folded in enumerate(letters) for _ in folded] + [len(run)]
        run = "".join(letters)
    context = text[max(start - CONTEXT_CHARS, 0) : start]
    every: dict[str, list[Find]] = {}
    for begin, stop, kind, rule in _spans(
        _without_escapes(context), _without_escapes(run), text[end : end + 1]
    ):
        find = Find(start + places[begin], start + places[stop], kind, rule, run[begin:stop])
        every.setdefault(kind, []).append(find)
    # those of another class stay: which of them count is for others to say
    return sorted(find for group in every.values() for find in apart(group))


def _spans(context: str, run: str, behind: str) -> Iterator[tuple[int, int, str, str]]:
    size = len(context)
    window = _readable(f"{context}{run}{behind}")
    # the second as in URLs
    may_have_email = "@" in run or "%40" in run
    others = run
    for start, end, name in secrets(window) if len(run) >= MIN_SECRET_CHARS else ():
        if end > size:
            begin, stop = max(start - size, 0), min(end - size, len(run))
            yield begin, stop, "secret", name
            if may_have_email:
                # before a host, as in an URL, it is no name of a mailbox
                others = others[:begin] + "\n" * (stop - begin) + others[stop:]
    for match in _EMAIL.finditer(others) if may_have_email else ():
        if _NO_EMAIL.match(match[0].replace("%40", "@")) is None:
            yield *match.span(), "email", "email"
    for start, end, kind in numbers(run):
        yield start, end, kind, kind


def _without_escapes(text: str) -> str:
    """Text of the same length, without the letters of escapes, which belong to no value."""
    return _ESCAPE.sub(lambda match: "\n" * len(match[0]), text) if "\\" in text else text


@functools.lru_cache(4_096)
def _folded(letter: str) -> str:
    return letter if letter < "\x80" else without_unseen(letter)[0]


def _readable(text: str) -> str:
    """Text of the same length that RE2 takes: it reads UTF-8, which has no lone surrogates."""
    return text.encode(errors="replace").decode()
