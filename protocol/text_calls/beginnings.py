"""What a text may become that is not all there: the beginnings of an object, a key, a fence or a
tag behind which a call may stand (docs/change/protocol.md 2.2)."""

import re

from protocol.text_calls.words import ARGUMENTS, CURLY, NAMES, TAGS, WRAPPERS

_ESCAPE = re.compile(r"\\u00([0-7][0-9a-fA-F])")
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
THOUGHTS = ("think", "thinking", "thought", "reasoning")
_ALL_KEYS = frozenset((*NAMES, *ARGUMENTS, *WRAPPERS))
PREFIXES = frozenset(k[:n] for k in _ALL_KEYS for n in range(len(k) + 1))
_TOKEN_BEGINS = ("tool_call_begin", "tool\u2581call\u2581begin")
_TAG_NAMES = (*TAGS, *THOUGHTS, "python_tag", *_TOKEN_BEGINS)
_NAMESPACE = re.compile(r"[\w-]{1,30}:")
_MAY_BE_NAMESPACE = re.compile(r"[\w-]{0,30}")
BARS = "|\uff5c"


def may_be_object(text: str) -> bool:
    """Is `text` as far as it came an object whose first key is of a call?"""
    inner = text[1:].lstrip()
    if inner and inner[0] in CURLY:
        return _is_prefix_of_key(inner[1:].rstrip(CURLY + " "))
    return (
        not inner
        or (inner[0] in "\"'" and may_be_key(inner))
        or (inner[0].isalpha() and _is_prefix_of_key(inner))
    )


def may_be_key(text: str) -> bool:
    """Is `text` as far as it came a key of a call, with its quotation mark?"""
    word = text[1:]
    if "\\" in word:
        word = _HALF_ESCAPE.sub("", _ESCAPE.sub(lambda m: chr(int(m[1], 16)), word))
    end = word.find(text[0])
    if end < 0:
        return _is_prefix_of_key(word)
    return word[:end].lower() in _ALL_KEYS and not word[end + 1 :].strip()


def _is_prefix_of_key(text: str) -> bool:
    return text.rstrip().lower() in PREFIXES


def may_be_fence(text: str) -> bool:
    """Is `text` as far as it came a fence?"""
    return re.fullmatch(r"`{1,3}|```[\w+-]{0,20}[ \t]*\r?\n?\s*", text) is not None


def may_be_tag(text: str) -> bool:
    """Is `text` as far as it came a tag in which models write calls, or their reasoning?"""
    word = text[1:].lower().removeprefix("|").removeprefix("\uff5c")
    if (space := _NAMESPACE.match(word)) is not None:
        word = word[space.end() :]
    elif _MAY_BE_NAMESPACE.fullmatch(word):
        return True
    return any(
        t.startswith(word)
        or (word.startswith(t) and (word[len(t)] in "=|\uff5c" or word[len(t)].isspace()))
        for t in _TAG_NAMES
    )
