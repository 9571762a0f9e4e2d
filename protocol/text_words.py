"""The words and shapes of calls in text: keys, tags, and what is found (protocol.md 2.2)."""

import json
import re

import msgspec

NAMES = ("name", "tool", "tool_name", "function", "function_name", "action", "recipient_name")
ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "kwargs")
WRAPPERS = ("tool_calls", "tool_call", "function_call", "tool_uses")
TAGS = ("tool_call", "function_call", "tool_use", "tools", "function", "tool", "invoke", "tool_code")


def _letter(letter: str) -> str:
    return rf"(?:{letter}|\\u00(?:{ord(letter.lower()):02x}|{ord(letter.upper()):02x}))"


def written(keys: tuple[str, ...]) -> str:
    """What matches these keys as JSON may write them: any letter as an escape."""
    return "|".join("".join(map(_letter, key)) for key in sorted(keys, key=len, reverse=True))


_QUOTE = r"""\\*["']"""
"""Within a string, too."""
NAME_IN = re.compile(rf"""(?:{written(NAMES)})(?:{_QUOTE})?\s*[:=]\s*{_QUOTE}([^"'\n\\]{{1,128}}){_QUOTE}""", re.IGNORECASE)
ARGUMENTS_IN = re.compile(rf"""(?:{written(ARGUMENTS)})(?:{_QUOTE})?\s*:""", re.IGNORECASE)
TAG = re.compile(
    rf"""<\|?(?:(?P<tag>{"|".join(TAGS)})(?:=(?P<value>[\w.:/-]+))?(?P<more>\s[^<>]{{0,200}})?|python_tag)\|?>""", re.IGNORECASE
)


class FoundCall(msgspec.Struct, frozen=True):
    """A call in text. `raw` is its exact text with what stands between it and the call before; `arguments` JSON of an object.

    `strict`: it parses without repair under the rules for tool arguments. Where it does not parse at all, `arguments` are
    `{"text": raw}`, so that policies see what a more lenient parser might run.
    """

    raw: str
    name: str
    arguments: str
    strict: bool = True
    repaired: bool = False
    is_cut: bool = False
    """It is longer than what is held: `raw` is its beginning, and nobody saw the rest."""


class Thought(msgspec.Struct, frozen=True):
    """Reasoning between tags; `raw` has the tags that were in it."""

    text: str
    raw: str


Piece = str | FoundCall | Thought


class Candidate:
    """Where the search for the end of a held candidate stands. `close` is the tag that ends it, or empty: brackets do."""

    __slots__ = ("at", "close", "end", "opened", "quote", "quotes", "spans", "stack", "start")

    def __init__(self, at: int, *, close: str = "", stack: str = "", quotes: str = '"') -> None:
        self.at, self.close, self.quotes, self.quote = at, close, quotes, ""
        self.stack = list(stack)
        self.start, self.end = 0, -1
        self.opened: list[int] = []
        self.spans: list[tuple[int, int]] = []


def as_text(raw: str) -> str:
    """Return arguments for what cannot be read: the text as it stands."""
    return json.dumps({"text": raw})
