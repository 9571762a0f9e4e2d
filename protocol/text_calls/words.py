"""The words and shapes of calls in text: keys, tags, and what is found (docs/change/protocol.md
2.2)."""

import json
import re

import msgspec

NAMES = tuple(
    "name tool tool_name toolname function function_name functionname action recipient_name".split()
)
ARGUMENTS = tuple(
    "arguments parameters params args input action_input actioninput tool_input"
    " toolinput tool_args toolargs kwargs".split()
)
"""In any case, so `toolName` and `toolInput` too."""
WRAPPERS = ("tool_calls", "tool_call", "function_call", "tool_uses")
TAGS = tuple("tool_call function_call tool_use tools function tool invoke tool_code".split())


def _letter(letter: str) -> str:
    return rf"(?:{letter}|\\u00(?:{ord(letter.lower()):02x}|{ord(letter.upper()):02x}))"


def written(keys: tuple[str, ...]) -> str:
    """What matches these keys as JSON may write them: any letter as an escape."""
    return "|".join("".join(map(_letter, key)) for key in sorted(keys, key=len, reverse=True))


CURLY = "\u201c\u201d\u201e\u201f\uff02\u2018\u2019\uff07"
"""Quotation marks that lenient parsers (json_repair and others) put right."""
_QUOTE = rf"""\\*["'{CURLY}]"""
"""Within a string, too."""
NAME_IN = re.compile(
    rf"""(?:{written(NAMES)})(?:{_QUOTE})?\s*[:=]\s*{_QUOTE}([^"'{CURLY}\n\\]{{1,128}}){_QUOTE}""",
    re.IGNORECASE,
)
ARGUMENTS_IN = re.compile(rf"""(?:{written(ARGUMENTS)})(?:{_QUOTE})?\s*:""", re.IGNORECASE)
TAG = re.compile(
    rf"""<[|\uff5c]?(?:(?:[\w-]{{1,30}}:)?(?P<tag>{"|".join(TAGS)})(?:=(?P<value>[\w.:/-]+))?(?P<more>\s[^<>]{{0,200}})?|python_tag"""
    r"""|(?P<begin>tool[_\u2581]call[_\u2581]begin))[|\uff5c]?>""",
    re.IGNORECASE,
)
"""A namespace may stand before the name. `begin`: the tokens of DeepSeek and Kimi."""
BEGUN = re.compile(
    r"""\s*(?:function\s*<[|\uff5c]tool[_\u2581]sep[|\uff5c]>)?\s*(?:functions?\.)?([\w.-]{1,128}?)(?::\d{1,9})?\s*"""
    r"""(?:<[|\uff5c]tool[_\u2581](?:sep|call[_\u2581]argument[_\u2581]begin)[|\uff5c]>|\n|\{)"""
)
"""The name behind such a token."""
NAMED_ENDS = ("(", "<|message|>", "action input:", "[args]")
"""What stands between a call's name and its arguments: calls as code, gpt-oss, ReAct, Mistral."""
_WORD = re.compile(r"[\w.-]{1,128}")
_REACT = re.compile(r"[ \t]*([\w.-]{1,128})[ \t]*\r?\n\s*action input:", re.IGNORECASE)
PYTHONIC = re.compile(
    r"""\[\s*[A-Za-z_][\w.]{0,127}\(\s*(?:[A-Za-z_]\w{0,63}\s*=\s*["'\d\[{TFN-]|\)\s*[,\]])"""
)
"""Llama's calls: a list of calls with named arguments, at the beginning of a line."""
MAY_BE_PYTHONIC = re.compile(
    r"""\[\s*(?:[A-Za-z_][\w.]{0,127}(?:\(\s*(?:\)\s*|[A-Za-z_]\w{0,63}\s*(?:=\s*)?)?)?)?"""
)
PYTHONIC_NAME = re.compile(r"""[\[,]\s*([A-Za-z_][\w.]{0,127})\(""")


def name_before(text: str) -> str | None:
    """The name of the call whose arguments come behind `text`, which ends in one of NAMED_ENDS;
    None where it names none."""
    low = text.lower()
    if low.endswith("("):
        for space in ("functions.", "default_api.", "multi_tool_use.", "tools."):
            name = text[low.rfind(space) + len(space) : -1].strip() if space in low else ""
            if _WORD.fullmatch(name):
                return name
    elif low.endswith("<|message|>"):
        to = low.rfind("to=")
        if (
            to >= 0
            and not {"\n", "{", "}"} & set(low[to:])
            and (word := _WORD.match(text, to + 3)) is not None
        ):
            return word[0].removeprefix("functions.")
    elif low.endswith("action input:"):
        react = _REACT.fullmatch(text, low.rfind("action:") + 7) if "action:" in low else None
        return react[1] if react is not None else None
    else:
        head = text[:-6].rstrip()
        head = head[: head.rfind("[CALL_ID]")].rstrip() if _CALL_ID.search(head) else head
        word = _WORD.fullmatch(head[max(head.rfind(c) for c in " \n\t]>") + 1 :])
        return "text" if word is None else word[0]
    return None


_CALL_ID = re.compile(r"\[CALL_ID\][\w-]{0,64}\Z")


class TextCall(msgspec.Struct, frozen=True):
    """A call in text. `raw` is its exact text with what stands between it and the call before;
    `arguments` JSON of an object.

    `strict`: it parses without repair under the rules for tool arguments. Where it does not parse
    at all, `arguments` are `{"text": raw}`, so that policies see what a more lenient parser might
    run.
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


Piece = str | TextCall | Thought


def as_text(raw: str) -> str:
    """Return arguments for what cannot be read: the text as it stands."""
    return json.dumps({"text": raw})
