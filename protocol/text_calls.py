"""Tool calls that a model writes as text, found while the text comes (protocol.md 2.2).

Models without native tools answer so, and so does any model that wants past a judge: clients with parsers of their own
run such text. The scanner lets ordinary text through and holds what may become a call until it is complete.

Theory. Outside a candidate one search finds the next character at which one may begin; what comes before is let go. A
candidate is an object whose key at hand belongs to a call, a fragment from such a key to the end of its object, a fence
or a tag in front of one of these. Its end is found by counting brackets outside strings, each character once. Then it is
parsed once, and every object in it that is a call becomes a piece, with the text before it; so no call's text goes out with
another's. What is no call is text. Bounded: past MAX_HELD a candidate is decided as far as it came.
"""

import itertools
import json
import re
from typing import Any

import msgspec

from protocol.json_strict import AmbiguousJson, loads_arguments

MAX_HELD = 64 * 1024
"""Characters of a candidate that are held."""
_NAMES = ("name", "tool", "tool_name", "function", "function_name", "action", "recipient_name")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "kwargs")
_WRAPPERS = ("tool_calls", "tool_call", "function_call", "tool_uses")
_SURE = frozenset(_ARGUMENTS) - {"parameters", "input"}
"""Keys whose value is of a call whatever it is; documents use the others, too."""
_WRITTEN = "tool_calls"
"""Stands for arguments that are within a string with calls."""
_BESIDE = frozenset((*_NAMES, "input", "id", "type"))
"""All that a call of a free-form tool has."""


def _letter(letter: str) -> str:
    return rf"(?:{letter}|\\u00(?:{ord(letter.lower()):02x}|{ord(letter.upper()):02x}))"


def _written(keys: tuple[str, ...]) -> str:
    """What matches these keys as JSON may write them: any letter as an escape."""
    return "|".join("".join(map(_letter, key)) for key in sorted(keys, key=len, reverse=True))


_KEYS = _written((*_NAMES, *_ARGUMENTS, *_WRAPPERS))
_COLON = r"(?:\s*:|\s{100})"
"""What makes a string a key; so much white space that one may come is taken for it."""
_ESCAPE = re.compile(r"\\u00([0-7][0-9a-fA-F])")
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_TAGS = ("tool_call", "function_call", "tool_use", "tools", "function", "tool", "invoke", "tool_code")
_THOUGHTS = ("think", "thinking", "thought", "reasoning")
_IDENTIFIER = re.compile(r"[A-Za-z_][\w.:/-]{0,127}")
_NAME_IN = re.compile(rf"""["']?(?:{_written(_NAMES)})["']?\s*[:=]\s*["']([^"'\n]{{1,128}})["']""", re.IGNORECASE)
_ARGUMENTS_IN = re.compile(rf"""["']?(?:{_written(_ARGUMENTS)})["']?\s*:""", re.IGNORECASE)
_OPENER = re.compile(r"""[{<`"'\[]""")
_STRUCTURE = re.compile(r"""[{}\[\]"'\\]""")
_KEY = re.compile(rf"""(["'])(?:{_KEYS})\1{_COLON}""", re.IGNORECASE)
_OBJECT = re.compile(rf"""\{{\s*(?:(["'])(?:{_KEYS})\1|(?:{_KEYS})){_COLON}""", re.IGNORECASE)
_FENCE = re.compile(r"```[\w+-]{0,20}[ \t]*\r?\n?\s*(?=[{\[<])")
_FENCE_END = re.compile(r"\s*```")
_MAY_BE_FENCE_END = re.compile(r"\s{0,100}`{0,2}")
_TAG = re.compile(
    rf"""<\|?(?:(?P<tag>{"|".join(_TAGS)})(?:=(?P<value>[\w.:/-]+))?(?P<more>\s[^<>]{{0,200}})?|python_tag)\|?>""", re.IGNORECASE
)
_MARK = re.compile(r"\[TOOL_CALLS\]", re.IGNORECASE)
_THOUGHT = re.compile(rf"<(?P<tag>{'|'.join(_THOUGHTS)})>", re.IGNORECASE)
_PARAMETER = re.compile(r"""<(?:\w+:)?parameter(?:=|\s+name=["']?)([\w.:/-]+)["']?\s*>(.*?)(?:(</(?:\w+:)?parameter>)|\Z)""", re.DOTALL)
"""One that is never closed goes to the end, so that the search for its end is not made again for each one behind it."""
_ATTRIBUTE = re.compile(r"""name\s*=\s*["']?([\w.:/-]+)""")
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
_LONGEST_HEAD = 240
"""More characters than any head of a candidate has: where that many are there and none fits, there is none."""


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


class _Candidate:
    """Where the search for the end of a held candidate stands. `close` is the tag that ends it, or empty: brackets do."""

    __slots__ = ("at", "close", "end", "opened", "quote", "quotes", "spans", "stack", "start")

    def __init__(self, at: int, *, close: str = "", stack: str = "", quotes: str = '"') -> None:
        self.at, self.close, self.quotes, self.quote = at, close, quotes, ""
        self.stack = list(stack)
        self.start, self.end = 0, -1
        self.opened: list[int] = []
        self.spans: list[tuple[int, int]] = []


class CallScanner:
    """Text in, pieces out. `names`: the only names that make a call (None: any). `reasoning`: tagged reasoning becomes Thought."""

    def __init__(self, names: frozenset[str] | None, *, reasoning: bool) -> None:
        self._names, self._reasoning = names, reasoning
        self._held = ""
        self._candidate: _Candidate | None = None
        self._thinking = ""
        self._name = ""
        """The last name that stood in text without arguments beside it: they may follow past a bound, or out of their object."""

    def feed(self, text: str) -> list[Piece]:
        """Take more text; returns what is decided. The pieces' texts, joined, are the text."""
        if not self._held and not self._thinking and _OPENER.search(text) is None:
            return [text] if text else []
        self._held += text
        return self._advance(final=False)

    def finish(self) -> list[Piece]:
        """The text is over."""
        pieces = self._advance(final=True)
        if self._held:
            pieces.append(self._held)
            self._held = ""
        return pieces

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
        while (opener := _OPENER.search(held, start)) is not None:
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
            if pieces and isinstance(pieces[-1], str):
                pieces[-1] += text
            else:
                pieces.append(text)

    def _head(self, at: int) -> str:
        """What begins at `at`: "candidate" (set), "thought", "more" (a beginning of one), or nothing."""
        held, first = self._held, self._held[at]
        if first in "\"'":
            return self._key(at)
        if first == "`":
            if (fence := _FENCE.match(held, at)) is not None:
                inner = self._head(fence.end()) if fence.end() < len(held) else "more"
                # reasoning is found by its own tag, whatever stands before it
                return "" if inner == "thought" else inner
            return "more" if _may_be_fence(self._window(at)) else ""
        if first == "<":
            return self._tag(at)
        if first == "[":
            return self._mark(at)
        if held[at + 1 : at + 2].isalnum() and held[at + 1].lower() not in _PREFIXES:
            return ""
        if (key := _OBJECT.match(held, at)) is not None:
            self._candidate = _Candidate(at, quotes="\"'" if (key[1] or "'") == "'" else '"')
            return "candidate"
        return "more" if _may_be_object(self._window(at)) else ""

    def _window(self, at: int) -> str:
        # never all that is held: that would be read again for every opener in it
        return self._held[at : at + _LONGEST_HEAD]

    def _key(self, at: int) -> str:
        word = self._held[at + 1 : at + 3].lower()
        if word not in _PREFIXES and "\\" not in word:
            return ""
        if (key := _KEY.match(self._held, at)) is not None:
            self._candidate = _Candidate(at, stack="{", quotes="\"'" if key[1] == "'" else '"')
            return "candidate"
        return "more" if _may_be_key(self._window(at)) else ""

    def _tag(self, at: int) -> str:
        held = self._held
        if self._reasoning and _THOUGHT.match(held, at):
            return "thought"
        if (tag := _TAG.match(held, at)) is not None:
            name = tag["tag"]
            self._candidate = _Candidate(tag.end(), close=f"</{name.lower()}" if name else "\0")
            return "candidate"
        window = self._window(at)
        return "more" if ">" not in window and _may_be_tag(window) else ""

    def _mark(self, at: int) -> str:
        held = self._held
        if (mark := _MARK.match(held, at)) is not None:
            inner = _OPENER.search(held, mark.end(), mark.end() + _LONGEST_HEAD)
            if inner is None or inner[0] not in "{[":
                return "more" if inner is None else ""
            self._candidate = _Candidate(inner.start())
            return "candidate"
        window = self._window(at)
        if "[tool_calls]".startswith(window.lower()):
            return "more"
        body = window[1:].lstrip()
        if not body:
            return "more"
        if body[0] == "{":
            found = self._head(at + len(window) - len(body))
            if found == "candidate":
                self._candidate = _Candidate(at, quotes=self._candidate.quotes if self._candidate else '"')
            return found
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
        # not by `lower`: some letters are two in lower case
        found = re.compile(re.escape(close), re.IGNORECASE).search(held)
        if found is not None:
            end = found.start()
            pieces.append(Thought(held[:end], held[: end + len(close)]))
            self._held, self._thinking = held[end + len(close) :], ""
            return True
        keep = (
            0
            if final
            else next((n for n in range(min(len(close) - 1, len(held)), 0, -1) if close.lower().startswith(held[-n:].lower())), 0)
        )
        said = held[: len(held) - keep]
        if said:
            pieces.append(Thought(said, said))
        self._held = held[len(said) :]
        return False

    # --- inside a candidate ---

    def _close(self, pieces: list[Piece], *, final: bool) -> bool:
        candidate = self._candidate
        assert candidate is not None
        if candidate.end < 0:
            candidate.end = self._tag_end(candidate) if candidate.close else self._brackets_end(candidate)
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
        found = self._decide(raw, candidate, is_whole=is_whole)
        if not is_whole and not final:
            found = self._cut(raw, found)
        if found:
            pieces += found
        else:
            self._note_name(raw)
            if pieces and isinstance(pieces[-1], str):
                pieces[-1] += raw
            else:
                pieces.append(raw)
        return True

    def _cut(self, raw: str, found: list[Piece]) -> list[Piece]:
        """What may be a call, and goes on past what is held: its arguments could say anything there."""
        calls = [p for p in found if isinstance(p, FoundCall)]
        if not calls and not _ARGUMENTS_IN.search(raw):
            return found
        name = calls[0].name if calls else m[1] if (m := _NAME_IN.search(raw)) else self._name or "text"
        return [FoundCall(raw, name, _as_text(raw), strict=False, is_cut=True)]

    def _tag_end(self, candidate: _Candidate) -> int:
        held = self._held
        start = max(candidate.at - len(candidate.close), 0)
        found = re.compile(re.escape(candidate.close), re.IGNORECASE).search(held, start) if candidate.close != "\0" else None
        if found is None:
            candidate.at = len(held)
            return -1
        end = held.find(">", found.start())
        return end + 1 if end >= 0 else -1

    def _brackets_end(self, candidate: _Candidate) -> int:
        held, at, quote, stack = self._held, candidate.at, candidate.quote, candidate.stack
        while (found := _STRUCTURE.search(held, at)) is not None:
            sign, at = found[0], found.end()
            if quote:
                if sign == "\\":
                    if at >= len(held):
                        at -= 1
                        break
                    at += 1
                elif sign == quote:
                    quote = ""
            elif sign in candidate.quotes:
                quote = sign
            elif sign in "{[":
                stack.append(sign)
                if sign == "{":
                    candidate.opened.append(at - 1)
            elif sign in "}]":
                if stack:
                    stack.pop()
                if sign == "}" and candidate.opened:
                    candidate.spans.append((candidate.opened.pop(), at))
                if not stack:
                    candidate.at, candidate.quote = at, quote
                    return at
        else:
            at = len(held)
        candidate.at, candidate.quote = at, quote
        return -1

    def _note_name(self, raw: str) -> None:
        if (name := _NAME_IN.search(raw)) is not None:
            self._name = name[1]

    # --- deciding ---

    def _decide(self, raw: str, candidate: _Candidate, *, is_whole: bool) -> list[Piece]:
        """The calls in a candidate, together all of its text; nothing where there is none."""
        if candidate.close:
            return self._tagged(raw)
        prefix = raw[: candidate.start]
        fragment = raw[:1] in "\"'"
        body = ("{" + raw) if fragment else raw
        spans = [(a + 1, b + 1) for a, b in candidate.spans] + [(0, len(body))] if fragment else candidate.spans
        if is_whole:
            calls = self._parse(body, candidate.start, spans, shift=1 if fragment else 0)
        else:
            calls = None
        if calls is None:
            return self._lenient(raw, candidate)
        if not calls and (name := re.fullmatch(r"\[TOOL_CALLS\]\s*([\w.:/-]+)\s*", prefix, re.IGNORECASE)):
            return _segments(raw, [(len(raw), self._made("", name[1], raw[candidate.start :]))])
        return _segments(raw, calls)

    def _parse(self, body: str, start: int, spans: list[tuple[int, int]], *, shift: int) -> list[tuple[int, FoundCall]] | None:
        """The calls in JSON text with the place where each ends, outermost first in order; None where it is not JSON."""
        numbers = itertools.count()
        decoder = json.JSONDecoder(object_pairs_hook=lambda pairs: _Object(pairs, next(numbers)))
        try:
            value, _ = decoder.raw_decode(body, start)
        except (ValueError, RecursionError):
            return None
        found: list[tuple[int, FoundCall]] = []
        self._walk(value, body, spans, shift, found)
        return found

    def _walk(self, value: Any, body: str, spans: list[tuple[int, int]], shift: int, found: list[tuple[int, FoundCall]]) -> None:
        stack = [value]
        while stack:
            item = stack.pop()
            if isinstance(item, list):
                stack += [v for v in reversed(item) if isinstance(v, list | _Object)]
            elif isinstance(item, _Object):
                names = [n for n in _doubtful_names(item) if self._names is None or n in self._names]
                if names and item.number < len(spans):
                    # a part for each name, so that each is decided on, and nothing runs if one part is withheld
                    (begin, end), said = spans[item.number], _as_text(body[slice(*spans[item.number])])
                    for part, name in enumerate(names, 1):
                        found.append((begin + (end - begin) * part // len(names) - shift, FoundCall("", name, said, strict=False)))
                    continue
                call = self._envelope(item)
                if call is not None and item.number < len(spans):
                    found.append((spans[item.number][1] - shift, self._made("", *call)))
                else:
                    stack += [v for v in reversed(list(item.values())) if isinstance(v, list | _Object)]

    def _envelope(self, item: "_Object") -> tuple[str, str] | None:
        """Name and JSON text of the arguments, if the object is a call."""
        low = {k.lower(): v for k, v in item.items()}
        inner = low.get("function")
        if isinstance(inner, _Object) and (call := self._envelope(inner)) is not None:
            return call
        name = next((low[k].strip() for k in _NAMES if isinstance(low.get(k), str)), None)
        key = next((k for k in _ARGUMENTS if k in low), None)
        if key is None and (written := _calls_in_string(low)):
            # JSON within JSON
            name, key = written, _WRITTEN
        if name is None and key is not None and self._name:
            name = self._name
        if name is None or key is None or not _IDENTIFIER.fullmatch(name) or (self._names is not None and name not in self._names):
            return None
        value = low.get(key)
        if isinstance(value, _Object):
            if item.is_ambiguous or _is_ambiguous(value):
                return name, ""
            return name, json.dumps(value, ensure_ascii=False)
        if isinstance(value, str) and (value.lstrip()[:1] == "{" or key == "action_input" or not value.strip()):
            return name, value if value.strip() else "{}"
        if key in _SURE or key == _WRITTEN or (key == "input" and isinstance(value, str) and low.keys() <= _BESIDE):
            return name, ""
        return None

    def _made(self, raw: str, name: str, arguments: str, *, repaired: bool = False) -> FoundCall:
        try:
            loads_arguments(arguments)
            return FoundCall(raw, name, arguments, strict=not repaired, repaired=repaired)
        except AmbiguousJson:
            return FoundCall(raw, name, "", strict=False)

    def _lenient(self, raw: str, candidate: _Candidate) -> list[Piece]:
        """What does not parse: repaired if that is all it takes, else taken as it stands where it has a name and arguments."""
        closers = "".join("}" if s == "{" else "]" for s in reversed(candidate.stack))
        repaired = _TRAILING_COMMA.sub(r"\1", raw[candidate.start :] + candidate.quote + closers)
        body = "{" + repaired if raw[:1] in "\"'" else repaired
        try:
            value, _ = json.JSONDecoder(object_pairs_hook=lambda pairs: _Object(pairs, 0)).raw_decode(body)
        except (ValueError, RecursionError):
            value = None
        items = value if isinstance(value, list) else [value]
        calls = [c for c in (self._envelope(i) for i in items if isinstance(i, _Object)) if c is not None]
        if len(calls) == 1 and candidate.quotes == '"':
            return [self._made(raw, *calls[0], repaired=True)]
        name = _NAME_IN.search(raw)
        if (name is not None or self._name) and _ARGUMENTS_IN.search(raw):
            said = name[1] if name is not None else self._name
            if self._names is None or said in self._names:
                return [FoundCall(raw, said, _as_text(raw), strict=False)]
        return []

    def _tagged(self, raw: str) -> list[Piece]:
        """A tag's content: JSON, or parameters in tags of their own."""
        opened = _TAG.search(raw)
        assert opened is not None
        name = opened["value"] or ""
        if not name and opened["more"] and (attribute := _ATTRIBUTE.search(opened["more"])):
            name = attribute[1]
        content = raw[opened.end() :]
        # cut at its own end only: what stands behind another's is as much in it, and may be the call
        if opened["tag"] and (ends := list(re.finditer(rf"</{opened['tag']}", content, re.IGNORECASE))):
            content = content[: ends[-1].start()]
        body = content.strip()
        if body[:1] in ("{", "["):
            inner = CallScanner(self._names, reasoning=False)
            found = [p for p in (*inner.feed(body), *inner.finish()) if isinstance(p, FoundCall)]
            if not name and len(found) == 1:
                return [msgspec.structs.replace(found[0], raw=raw)]
            if not name and found and "".join(p.raw for p in found) == body:
                first, last = raw.index(body), raw.index(body) + len(body)
                found[0] = msgspec.structs.replace(found[0], raw=raw[:first] + found[0].raw)
                found[-1] = msgspec.structs.replace(found[-1], raw=found[-1].raw + raw[last:])
                return list(found)
            if name and body[0] == "{":
                return [self._made(raw, name, body)]
        written = _PARAMETER.findall(content)
        parameters = {key: value.strip("\n") for key, value, _ in written}
        if name and parameters and len(parameters) == len(written) and all(closed for _, _, closed in written):
            return [self._made(raw, name, json.dumps(parameters, ensure_ascii=False), repaired=True)]
        said = name or (m[1] if (m := _NAME_IN.search(body)) else "")
        if not said and not body:
            return []
        if self._names is not None and said not in self._names:
            return []
        if not said and (opened["tag"] or "").lower() in ("tools", "tool", "function") and not _ARGUMENTS_IN.search(body):
            # words that documents use as tags, too
            return []
        return [FoundCall(raw, said or "text", _as_text(raw), strict=False)]


class _Object(dict[str, Any]):
    """An object with its place in the order in which objects end."""

    def __init__(self, pairs: list[tuple[str, Any]], number: int) -> None:
        super().__init__(pairs)
        self.number, self.is_ambiguous = number, len(self) != len(pairs)


def _calls_in_string(low: dict[str, Any]) -> str:
    """The name of the call in a string that stands where calls do, or empty."""
    for key in _WRAPPERS:
        value = low.get(key)
        if isinstance(value, str) and _ARGUMENTS_IN.search(value) and (name := _NAME_IN.search(value)):
            return name[1]
    return ""


def _is_ambiguous(value: Any) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, _Object):
            if item.is_ambiguous:
                return True
            stack += item.values()
        elif isinstance(item, list):
            stack += item
    return False


def _doubtful_names(item: dict[str, Any]) -> list[str]:
    """The names in an object that two parsers may run as two calls: it has two names, or arguments under two keys. Else none."""
    names = {n for k, n in item.items() if k.lower() in _NAMES and isinstance(n, str) and _IDENTIFIER.fullmatch(n)}
    arguments = [k for k, v in item.items() if k.lower() in _ARGUMENTS and isinstance(v, dict | str)]
    inner = item.get("function")
    if isinstance(inner, dict) and arguments and any(k in inner for k in _ARGUMENTS):
        arguments.append("function")
        names |= {n for k in _NAMES if isinstance(n := inner.get(k), str) and _IDENTIFIER.fullmatch(n)}
    return sorted(names) if names and arguments and (len(names) > 1 or len(arguments) > 1) else []


def _as_text(raw: str) -> str:
    return json.dumps({"text": raw})


def _segments(raw: str, calls: list[tuple[int, FoundCall]]) -> list[Piece]:
    """Each call with the text from the one before it; the last with what is left."""
    pieces: list[Piece] = []
    start = 0
    for number, (end, call) in enumerate(calls):
        end = len(raw) if number == len(calls) - 1 else end
        text = raw[start:end]
        arguments = call.arguments or _as_text(text)
        pieces.append(msgspec.structs.replace(call, raw=text, arguments=arguments))
        start = end
    return pieces


def _may_be_object(text: str) -> bool:
    rest = text[1:].lstrip()
    return not rest or (rest[0] in "\"'" and _may_be_key(rest)) or (rest[0].isalpha() and _is_prefix_of_key(rest))


def _may_be_key(text: str) -> bool:
    word = text[1:]
    if "\\" in word:
        word = _HALF_ESCAPE.sub("", _ESCAPE.sub(lambda m: chr(int(m[1], 16)), word))
    end = word.find(text[0])
    if end < 0:
        return _is_prefix_of_key(word)
    return word[:end].lower() in _ALL_KEYS and not word[end + 1 :].strip()


_ALL_KEYS = frozenset((*_NAMES, *_ARGUMENTS, *_WRAPPERS))


_PREFIXES = frozenset(k[:n] for k in _ALL_KEYS for n in range(len(k) + 1))


def _is_prefix_of_key(text: str) -> bool:
    return text.rstrip().lower() in _PREFIXES


def _may_be_fence(text: str) -> bool:
    return re.fullmatch(r"`{1,3}|```[\w+-]{0,20}[ \t]*\r?\n?\s*", text) is not None


_TAG_NAMES = (*_TAGS, *_THOUGHTS, "|python_tag|", *(f"|{t}|" for t in _TAGS))


def _may_be_tag(text: str) -> bool:
    word = text[1:].lower()
    return any(t.startswith(word) or (word.startswith(t) and (word[len(t)] == "=" or word[len(t)].isspace())) for t in _TAG_NAMES)
