"""Finds tool calls that a model writes as text, while the text arrives (docs/change/protocol.md
2.2).

Models without native tools answer this way, and so may any model that wants to evade a judge:
clients with parsers of their own run such text. The scanner passes ordinary text and holds a
possible call until it is complete.

Theory. Outside a candidate, one search finds the next character at which a candidate may begin; the
text before it is released. A candidate is one of: an object whose current key belongs to a call; a
fragment from such a key to the end of its object; a fence or tag in front of one of these; an
object after words that name a call (the words are already released, the arguments are not); a list
of calls as code. Its end is found by counting brackets outside strings, each character once. Then
it is parsed once. Every object in it that is a call becomes a piece, with the text before it, so
the text of one call is never released with another. Everything else is text. Bounded: past MAX_HELD
a candidate is decided as far as it came.
"""

import re
from collections import deque

from protocol.text_calls.beginnings import (
    BARS,
    PREFIXES,
    THOUGHTS,
    may_be_fence,
    may_be_key,
    may_be_object,
    may_be_tag,
)
from protocol.text_calls.candidates import CandidateEnd, pattern_of
from protocol.text_calls.reader import Reader
from protocol.text_calls.words import (
    ARGUMENTS,
    CURLY,
    MAY_BE_PYTHONIC,
    NAMED_ENDS,
    NAMES,
    PYTHONIC,
    TAG,
    WRAPPERS,
    Piece,
    Thought,
    name_before,
    written,
)

MAX_HELD = 64 * 1024
"""Characters of a candidate that are held."""
_KEYS = written((*NAMES, *ARGUMENTS, *WRAPPERS))
_COLON = r"(?:\s*:|\s{100})"
"""What makes a string a key. White space this long counts as well, since a colon may follow it."""
_OPENER = re.compile(r"""[{<`"'\[]""")
_LIKELY = re.compile(
    rf"""["'`\[]|<(?=[\w|\uff5c-]|\Z)|\{{(?:(?<=[\s\w(>:\]`+-]\{{)|(?<=\A\{{)|(?=[\s\w\\"'{CURLY}]|\Z))"""
)
"""The openers that may begin something, judged by the characters next to them: even in text that
was crafted to be full of openers, few remain."""
_KEY = re.compile(rf"""(["'])(?:{_KEYS})\1{_COLON}""", re.IGNORECASE)
_OBJECT = re.compile(
    rf"""\{{\s*(?:(["'])(?:{_KEYS})\1|[{CURLY}]?(?:{_KEYS})[{CURLY}]?){_COLON}""", re.IGNORECASE
)
_FENCE_TAIL = re.compile(r"```[\w+-]{0,20}\s*\Z")
_BEFORE = 256
"""Characters before a candidate that may name its call."""
_FENCE = re.compile(r"```[\w+-]{0,20}[ \t]*\r?\n?\s*(?=[{\[<])")
_FENCE_END = re.compile(r"\s*```")
_MAY_BE_FENCE_END = re.compile(r"\s{0,100}`{0,2}")
_MARK = re.compile(r"\[TOOL_CALLS\]", re.IGNORECASE)
_THOUGHT = re.compile(rf"<(?P<tag>{'|'.join(THOUGHTS)})>", re.IGNORECASE)
_LONGEST_HEAD = 240
"""More characters than the head of any candidate has: if this many are there and none fits, none
begins here."""


class CallScanner:
    """Text in, pieces out. `names`: the only names that make a call (None: any). `reasoning`:
    tagged reasoning becomes Thought."""

    def __init__(self, names: frozenset[str] | None, *, reasoning: bool) -> None:
        self._names, self._reasoning = names, reasoning
        self._held = ""
        self._gone = deque[str](maxlen=_BEFORE)
        """What is before `_held`, in pieces of a character at least: so its last _BEFORE
        characters, or more."""
        self._candidate: CandidateEnd | None = None
        self._thinking = ""
        self._reader = Reader(names, self._within)

    def feed(self, text: str) -> list[Piece]:
        """Take more text; returns what is decided. The pieces' texts, joined, are the text."""
        if self.passes(text):
            return [text] if text else []
        self._held += text
        return self._advance(final=False)

    def passes(self, text: str) -> bool:
        """Take text in which nothing begins that may become a call, while nothing is held: nearly
        every chunk. Else nothing is taken."""
        if self._held or self._thinking or _OPENER.search(text) is not None:
            return False
        if text:
            self._gone.append(text if len(text) < _BEFORE else text[-_BEFORE:])
        return True

    def finish(self) -> list[Piece]:
        """The text is over."""
        pieces = self._advance(final=True)
        if self._held:
            pieces.append(self._held)
            self._held = ""
        return pieces

    def take_back(self, text: str) -> None:
        """Forget `text`, the end of what was given out: the caller feeds it again, with what
        follows."""
        gone = "".join(self._gone)[-_BEFORE:]
        if text and (gone.endswith(text) or text.endswith(gone)):
            self._gone.clear()
            self._gone.append(gone[: -len(text)])

    def _advance(self, *, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        while self._held:
            if self._thinking:
                moved = self._think(pieces, final=final)
            elif self._candidate is None:
                moved = self._look(pieces, final=final)
            else:
                moved = self._close(pieces, final=final)
            if not moved:
                break
        return pieces

    # --- outside a candidate ---

    def _look(self, pieces: list[Piece], *, final: bool) -> bool:
        """Let go what begins no candidate; False where more text must say what it is."""
        held, start = self._held, 0
        while (opener := _LIKELY.search(held, start)) is not None:
            at = opener.start()
            head = self._head(at)
            if head == "more" and not final and len(held) - at < _LONGEST_HEAD:
                self._let_go(pieces, at)
                return False
            if head == "thought":
                self._let_go(pieces, at)
                self._thinking = "open"
                return True
            if head == "candidate":
                assert self._candidate is not None
                self._let_go(pieces, at)
                self._candidate.at -= at
                self._candidate.start = self._candidate.at
                return True
            start = at + 1
        self._let_go(pieces, len(held))
        return False

    def _let_go(self, pieces: list[Piece], end: int) -> None:
        if end:
            text, self._held = self._held[:end], self._held[end:]
            self._put(pieces, text)

    def _put(self, pieces: list[Piece], text: str) -> None:
        self._gone.append(text[-_BEFORE:])
        if pieces and isinstance(pieces[-1], str):
            pieces[-1] += text
        else:
            pieces.append(text)

    def _head(self, at: int) -> str:
        """What begins at `at`: "candidate" (`_candidate` is set), "thought", "more" (it may become
        one of these), or "" for nothing."""
        held, first = self._held, self._held[at]
        if first in "\"'":
            return self._key(at)
        if first == "`":
            if (fence := _FENCE.match(held, at)) is not None:
                inner = self._head(fence.end()) if fence.end() < len(held) else "more"
                # reasoning is found by its own tag, whatever stands before it
                return "" if inner == "thought" else inner
            return "more" if may_be_fence(self._window(at)) else ""
        if first == "<":
            return self._tag(at)
        if first == "[":
            return self._mark(at)
        if (name := self._named(at)) is not None:
            return self._begin(CandidateEnd(at, name=name))
        if held[at + 1 : at + 2].isalnum() and held[at + 1].lower() not in PREFIXES:
            return ""
        if (key := _OBJECT.match(held, at)) is not None:
            return self._begin(CandidateEnd(at, quotes="\"'" if (key[1] or "'") == "'" else '"'))
        return "more" if may_be_object(self._window(at)) else ""

    def _begin(self, candidate: CandidateEnd) -> str:
        self._candidate = candidate
        return "candidate"

    def _named(self, at: int) -> str | None:
        """The name of the call whose arguments begin at `at`, if the words before say so."""
        near = self._before(at, 32)
        if not (_unfenced(near) if "`" in near else near.rstrip()).lower().endswith(NAMED_ENDS):
            return None
        return name_before(_unfenced(self._before(at, _BEFORE)))

    def _before(self, at: int, count: int) -> str:
        if at >= count:
            return self._held[at - count : at]
        if len(self._gone) > 1:
            gone = "".join(self._gone)[-_BEFORE:]
            self._gone.clear()
            self._gone.append(gone)
        return ("".join(self._gone) + self._held[:at])[-count:]

    def _window(self, at: int) -> str:
        # never all that is held: that would be read again for every opener in it
        return self._held[at : at + _LONGEST_HEAD]

    def _key(self, at: int) -> str:
        word = self._held[at + 1 : at + 3].lower()
        if word not in PREFIXES and "\\" not in word:
            return ""
        if (key := _KEY.match(self._held, at)) is not None:
            return self._begin(CandidateEnd(at, stack="{", quotes="\"'" if key[1] == "'" else '"'))
        return "more" if may_be_key(self._window(at)) else ""

    def _tag(self, at: int) -> str:
        held = self._held
        if self._reasoning and _THOUGHT.match(held, at):
            return "thought"
        if (tag := TAG.match(held, at)) is not None:
            if tag["begin"]:
                close = tag[0][:-1].removesuffix(tag[0][1]).lower().replace("begin", "end")
            else:
                # with its namespace
                close = (
                    f"</{held[at + 1 : tag.end('tag')].lstrip(BARS).lower()}"
                    if tag["tag"]
                    else "\0"
                )
            return self._begin(CandidateEnd(tag.end(), close=close))
        window = self._window(at)
        return "more" if ">" not in window and may_be_tag(window) else ""

    def _mark(self, at: int) -> str:
        held = self._held
        if (mark := _MARK.match(held, at)) is not None:
            inner = _OPENER.search(held, mark.end(), mark.end() + _LONGEST_HEAD)
            if inner is None or inner[0] not in "{[":
                return "more" if inner is None else ""
            return self._begin(CandidateEnd(inner.start()))
        window = self._window(at)
        if "[tool_calls]".startswith(window.lower()):
            return "more"
        if window[1:2].isspace() or window[1:2].isalpha() or not window[1:]:
            line = self._before(at, 32).rpartition("\n")[2]
            if not line.strip() or line.rstrip().endswith("<|python_tag|>"):
                if PYTHONIC.match(window):
                    return self._begin(CandidateEnd(at, quotes="\"'", is_code=True))
                if MAY_BE_PYTHONIC.fullmatch(window):
                    return "more"
        body = window[1:].lstrip()
        if not body:
            return "more"
        if body[0] == "{":
            state = self._head(at + len(window) - len(body))
            if state == "candidate":
                self._candidate = CandidateEnd(
                    at, quotes=self._candidate.quotes if self._candidate else '"'
                )
            return state
        return ""

    # --- thoughts ---

    def _think(self, pieces: list[Piece], *, final: bool) -> bool:
        held = self._held
        if self._thinking == "open":
            opened = _THOUGHT.match(held)
            assert opened is not None
            self._thinking = opened["tag"]
            self._held = held[opened.end() :]
            pieces.append(Thought("", opened[0]))
            return True
        close = f"</{self._thinking}>"
        match = pattern_of(close).search(held)
        if match is not None:
            end = match.start()
            pieces.append(Thought(held[:end], held[: end + len(close)]))
            self._held, self._thinking = held[end + len(close) :], ""
            return True
        keep = (
            0
            if final
            else next(
                (
                    n
                    for n in range(min(len(close) - 1, len(held)), 0, -1)
                    if close.lower().startswith(held[-n:].lower())
                ),
                0,
            )
        )
        thought = held[: len(held) - keep]
        if thought:
            pieces.append(Thought(thought, thought))
        self._held = held[len(thought) :]
        return False

    # --- inside a candidate ---

    def _close(self, pieces: list[Piece], *, final: bool) -> bool:
        candidate = self._candidate
        assert candidate is not None
        candidate.look(self._held)
        end = candidate.end
        if end >= 0 and self._held.startswith("```"):
            # the end of a fence belongs to what is in it
            fence = _FENCE_END.match(self._held, end)
            if fence is None and not final and _MAY_BE_FENCE_END.fullmatch(self._held, end):
                return False
            end = fence.end() if fence is not None else end
        if end < 0 and not final and len(self._held) <= MAX_HELD:
            return False
        is_whole, raw = end >= 0, self._held if end < 0 else self._held[:end]
        self._candidate, self._held = None, self._held[len(raw) :]
        decided = self._reader.decide(raw, candidate, is_whole=is_whole)
        if not is_whole and not final:
            decided = self._reader.cut(raw, decided)
        if decided:
            pieces += decided
        else:
            self._reader.note_name(raw)
            self._put(pieces, raw)
        return True

    def _within(self, text: str) -> list[Piece]:
        inner = CallScanner(self._names, reasoning=False)
        return [*inner.feed(text), *inner.finish()]


def _unfenced(text: str) -> str:
    return _FENCE_TAIL.sub("", text).rstrip()
