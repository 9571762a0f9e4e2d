"""Finds secrets and personal data in text, also while more of it is still to come.

Theory. A text is a row of runs: characters without white space, and blanks between digits or
capitals, as cards, telephones and accounts are written. Nothing that is looked for spans two runs,
but private keys. What is found in a run depends on the run, on `CONTEXT_CHARS` before it and on one
character behind it. So text can go as soon as its last run is complete, and what is found does not
depend on how it came. A run may be a megabyte: it is taken in pieces, each half of which is decided
with the other half in sight. The longer pieces are for text in which something may begin.

Digits and letters are looked at in their compatibility forms, without characters that nobody sees.
Must not know: policies, what is done about a find.
"""

import functools
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from policy.patterns import compile_re2
from policy.redaction.numbers import numbers
from policy.redaction.secret_rules import CONTEXT_CHARS, MIN_SECRET_CHARS, secret_rules
from protocol.bytes.folding import without_unseen

CLASSES = ("secret", "email", "card", "iban", "phone")
"""What is looked for; of two finds of one length at one place the earlier here."""
_UNSEEN = "\u00a0\u00ad\u200b-\u200f\u2060-\u206f\ufe00-\ufe0f\ufeff"
_CHARACTER = f"[!-~{_UNSEEN}\uff01-\uff5e]"
_LEFT, _RIGHT = "[0-9A-Z)\uff10-\uff19]", "[0-9A-Z(+\uff10-\uff19]"
_RUN = re.compile(f"{_CHARACTER}+(?:(?<={_LEFT}) (?={_RIGHT}){_CHARACTER}+)*")
_JOINT = re.compile(_LEFT)
LONG_RUN_CHARS, _LONG_PIECE = 128, 4_096
_OFTEN = re.compile(f"[\\d@]|-----|{_CHARACTER}{{{MIN_SECRET_CHARS}}}")
"""What stands in every text in which something is found."""
_MAY_BEGIN = re.compile(r"\d|@|-----")
_KEY_BEGINS = re.compile(r"-----BEGIN[ A-Z0-9_-]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = re.compile(r"-----END[ A-Z0-9_-]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_TEXT = re.compile(r"[A-Za-z0-9+/=]{40}", re.ASCII)
_KEY_HEAD_CHARS, MAX_KEY_CHARS = 300, 16_384
"""Within so many characters a private key's letters begin; without its last line it is taken to be
so long."""
_EMAIL = re.compile(
    r"(?<![\w.%+-])[\w.%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])", re.ASCII
)
_NO_EMAIL = re.compile(
    r"(?:git|hg|svn|noreply|no-reply)@|[^@]*@(?:.*\.)?(?:example(?:\.\w+)?|test|invalid|local"
    r"|localhost|users\.noreply\.github\.com)\Z|.*\.(?:png|svg|jpe?g|gif)\Z",
    re.ASCII | re.IGNORECASE,
)
"""Addresses of documentation and of programs, and names of files."""


class Find(NamedTuple):
    """Something in a text: where it is, its class, the rule that found it, and its value as it is
    compared."""

    start: int
    end: int
    kind: str
    rule: str
    value: str


class _Gate:
    """Says where in a long text something may be: one pass of one automaton."""

    def __init__(self) -> None:
        unseen = f"[{_UNSEEN}\uff01-\uff5e]"
        self._pattern = compile_re2(
            rf"(?i:{secret_rules().beginning})|[\w.%+-]@[\w-]+\.|-----BEGIN"
            rf"|\d(?:[ ().\-/]{{0,2}}\d){{6,30}}|[A-Z]{{2}}\d\d[ -]?[A-Z0-9]{{4}}"
            rf"|{unseen}(?:[!-~]?{unseen})*"
        )

    def lines(self, text: str) -> Iterator[tuple[int, int, list[int]]]:
        """Yield the parts of a text that must be searched, whole lines each, in order, and where in
        them something may begin."""
        start = end = 0
        places: list[int] = []
        for match in self._pattern.finditer(_readable(text)):
            begin = match.start()
            if begin >= end:
                if end:
                    yield start, end, places
                start, places = text.rfind("\n", 0, begin) + 1, []
            places.append(begin)
            # a value may stand on the line behind its name's
            if (least := match.end() + CONTEXT_CHARS) > end and end < len(text):
                line_end = text.find("\n", least)
                end = line_end if line_end >= 0 else len(text)
        if end:
            yield start, end, places


def search(text: str) -> list[Find]:
    """Return what is in a whole text, in order, nothing of which overlaps."""
    result: list[Find] = []
    done = 0
    for start, end, places in _gate().lines(text):
        result += finds(text, max(start, done), end, places)
        done = result[-1].end if result else 0
    return result


def is_dull(text: str, start: int) -> bool:
    """Is it sure that nothing is found from a place of a text on?"""
    return _OFTEN.search(text, start) is None


def decided_to(text: str, start: int) -> int:
    """Return up to where what is found from `start` on can be decided, more text being to come.
    `start` is 0, or was returned before."""
    # no run is longer than its line
    runs = _RUN.finditer(text, max(start, text.rfind("\n", start) + 1))
    last = next(iter(deque(runs, maxlen=1)), None)
    stop = len(text)
    if last is not None and (last.end() == stop or _may_join(text, last.end())):
        stop = last.start()
        if last.end() - stop >= LONG_RUN_CHARS:
            piece = _piece(text, stop)
            if last.end() - stop >= piece:
                stop += piece // 2
    if text.find("-----BEGIN", start) >= 0 and (begin := _open_key(text, start)) is not None:
        stop = min(stop, begin)
    return stop


def _may_join(text: str, end: int) -> bool:
    return (
        end == len(text) - 1 and text[end] == " " and _JOINT.match(text, end - 1, end) is not None
    )


def _open_key(text: str, start: int) -> int | None:
    """The beginning of the run in which a private key begins that may go on."""
    for match in _KEY_BEGINS.finditer(text, start):
        if _key_end(text, match) == 0:
            runs = _RUN.finditer(text, max(start, text.rfind("\n", 0, match.start()) + 1))
            return next(run.start() for run in runs if run.end() > match.start())
    return None


def _key_end(text: str, begin: re.Match[str]) -> int:
    """Where a private key ends; 0 where more text may tell, -1 where there is none."""
    head = begin.end() + _KEY_HEAD_CHARS
    most = begin.start() + MAX_KEY_CHARS
    if _KEY_TEXT.search(text, begin.end(), head) is None:
        return 0 if len(text) < head else -1
    if (end := _KEY_ENDS.search(text, begin.end(), most)) is not None:
        return end.end()
    return 0 if len(text) < most else most


def finds(text: str, start: int, stop: int, places: Sequence[int] | None = None) -> list[Find]:
    """Return what begins from `start` on and before `stop`. `places`: where alone something may
    begin."""
    result: list[Find] = []
    while start < stop and (run := _RUN.search(text, start)) is not None:
        start, end = run.span()
        if places is not None:
            near = bisect_left(places, start - CONTEXT_CHARS)
            if near == len(places):
                break
            if places[near] >= end:
                start = end
                continue
        while start < min(end, stop):
            piece = _piece(text, start) if end - start >= LONG_RUN_CHARS else end - start + 1
            is_last = end - start < piece
            limit = end if is_last else start + piece // 2
            upto = end if is_last else start + piece
            for find in _in_run(text, start, upto):
                if find.start >= min(limit, stop):
                    break
                result.append(find)
                limit = max(limit, find.end)
            start = limit
    return result


def _piece(text: str, start: int) -> int:
    """How much of a long run is looked at at once."""
    head = text[start : start + LONG_RUN_CHARS]
    if not head.isascii() or _MAY_BEGIN.search(head) is not None:
        return _LONG_PIECE
    context = text[max(start - CONTEXT_CHARS, 0) : start]
    return _LONG_PIECE if secret_rules().may_match(_readable(context) + head) else LONG_RUN_CHARS


def _in_run(text: str, start: int, end: int) -> list[Find]:
    """What is in a run, or in a piece of one: the leftmost first, of those the longest; nothing
    overlaps."""
    if is_dull(text, start) if end == len(text) else _OFTEN.search(text, start, end) is None:
        return []
    raw = text[start:end]
    places: list[int] | None = None
    run = raw
    if not raw.isascii():
        run, places = _folded(raw)
    every = [
        (*span, kind, rule)
        for span, kind, rule in _spans(
            text[max(start - CONTEXT_CHARS, 0) : start], run, text[end : end + 1]
        )
    ]
    result: list[Find] = []
    at = 0
    for begin, stop, kind, rule in sorted(every, key=_rank):
        if begin < at:
            continue
        at = stop
        value = run[begin:stop]
        if places is not None:
            begin, stop = places[begin], places[stop]
        result.append(Find(start + begin, start + stop, kind, rule, value))
    for match in _KEY_BEGINS.finditer(text, start, end):
        if (stop := _key_end(text, match)) >= 0:
            # what is not decided yet is so only at the end of a text
            stop = stop or (len(text) if _KEY_TEXT.search(text, match.end()) else 0)
        if stop > 0:
            begin = match.start()
            before = [find for find in result if find.end <= begin]
            return [*before, Find(begin, stop, "secret", "private-key", text[begin:stop])]
    return result


def _rank(span: tuple[int, int, str, str]) -> tuple[int, int, int]:
    return span[0], -span[1], CLASSES.index(span[2])


def _spans(context: str, run: str, behind: str) -> Iterator[tuple[tuple[int, int], str, str]]:
    if len(run) >= MIN_SECRET_CHARS:
        window = _readable(f"{context}{run}{behind}")
        rules = secret_rules()
        if rules.may_match(window):
            for start, end, name in rules.secrets(window):
                begin, stop = max(start - len(context), 0), min(end - len(context), len(run))
                if stop > begin:
                    yield (begin, stop), "secret", name
    if "@" in run:
        for match in _EMAIL.finditer(run):
            if _NO_EMAIL.match(match[0]) is None:
                yield match.span(), "email", "email"
    for start, end, kind in numbers(run):
        yield (start, end), kind, kind


def _folded(run: str) -> tuple[str, list[int]]:
    """A run as it is compared, and for each place of that the place in the run."""
    letters, places = [], []
    for place, letter in enumerate(run):
        folded = letter if letter < "\x80" else _folded_letter(letter)
        letters.append(folded)
        places += [place] * len(folded)
    return "".join(letters), [*places, len(run)]


@functools.lru_cache(4_096)
def _folded_letter(letter: str) -> str:
    return without_unseen(letter)[0]


def _readable(text: str) -> str:
    """Text of the same length that RE2 takes: it reads UTF-8, which has no lone surrogates."""
    if text.isascii():
        return text
    try:
        # nearly always; and to look for them takes ten times as long
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


_SURROGATE = re.compile("[\ud800-\udfff]")


@functools.cache
def _gate() -> _Gate:
    return _Gate()
