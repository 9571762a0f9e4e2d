"""Reads the calls of a candidate: a piece of text that is complete, or as complete as it gets
(docs/change/protocol.md 2.2)."""

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.text_calls.candidates import CandidateEnd
from protocol.text_calls.envelopes import CallObject, call_in, doubtful_names
from protocol.text_calls.words import (
    ARGUMENTS_IN,
    BEGUN,
    NAME_IN,
    PYTHONIC_NAME,
    TAG,
    Piece,
    TextCall,
    as_text,
)

_PARAMETER = re.compile(
    r"""<(?:\w+:)?parameter(?:=|\s+name=["']?)([\w.:/-]+)["']?\s*>(.*?)(?:(</(?:\w+:)?parameter>)|\Z)""",
    re.DOTALL,
)
"""One that is never closed goes to the end, so that the search for its end is not made again for
each one behind it."""
_ATTRIBUTE = re.compile(r"""name\s*=\s*["']?([\w.:/-]+)""")
_FIRST_WORD = re.compile(r"(?:functions?\.)?([A-Za-z_][\w.-]{0,127})(?=(?::\d+)?\s*(?:[\n<{(]|\Z))")
"""A name before arguments of another shape: templates write `name`, a line end, and tags or an
object."""
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


class Reader:
    """Reads candidates of one text. `names`: the only names that make a call (None: any). `scan`
    looks for calls in a tag's content."""

    def __init__(self, names: frozenset[str] | None, scan: Callable[[str], list[Piece]]) -> None:
        self._names, self._scan = names, scan
        self.name = ""
        """The last name that stood in text without arguments beside it: they may follow past a
        bound, or out of their object."""

    def note_name(self, raw: str) -> None:
        """Remember the name in text that is no call."""
        if (name := NAME_IN.search(raw)) is not None:
            self.name = name[1]

    def cut(self, raw: str, pieces: list[Piece]) -> list[Piece]:
        """What may be a call, and goes on past what is held: its arguments could say anything
        there."""
        calls = [p for p in pieces if isinstance(p, TextCall)]
        if not calls and not ARGUMENTS_IN.search(raw):
            return pieces
        name = (
            calls[0].name if calls else m[1] if (m := NAME_IN.search(raw)) else self.name or "text"
        )
        return [TextCall(raw, name, as_text(raw), strict=False, is_cut=True)]

    def decide(self, raw: str, candidate: CandidateEnd, *, is_whole: bool) -> list[Piece]:
        """The calls in a candidate, together all of its text; nothing where there is none."""
        if candidate.close:
            return self._tagged(raw)
        if candidate.is_code:
            return self._code(raw)
        if candidate.name and (self._names is None or candidate.name in self._names):
            # a fence may stand around the object
            return [
                self._made(
                    raw,
                    candidate.name,
                    raw[candidate.start : raw.rfind("}") + 1] if is_whole else raw,
                )
            ]
        prefix = raw[: candidate.start]
        fragment = raw[:1] in "\"'"
        body = ("{" + raw) if fragment else raw
        spans = (
            [(a + 1, b + 1) for a, b in candidate.spans] + [(0, len(body))]
            if fragment
            else candidate.spans
        )
        if is_whole:
            calls = self._parse(body, candidate.start, spans, shift=1 if fragment else 0)
        else:
            calls = None
        if calls is None:
            return self._lenient(raw, candidate)
        if not calls and (
            name := re.fullmatch(r"\[TOOL_CALLS\]\s*([\w.:/-]+)\s*", prefix, re.IGNORECASE)
        ):
            return _segments(raw, [(len(raw), self._made("", name[1], raw[candidate.start :]))])
        return _segments(raw, calls)

    def _parse(
        self, body: str, start: int, spans: list[tuple[int, int]], *, shift: int
    ) -> list[tuple[int, TextCall]] | None:
        """The calls in JSON text with the place where each ends, outermost first in order; None
        where it is not JSON."""
        numbers = itertools.count()
        decoder = json.JSONDecoder(object_pairs_hook=lambda pairs: CallObject(pairs, next(numbers)))
        try:
            value, _ = decoder.raw_decode(body, start)
        except (ValueError, RecursionError):
            return None
        calls: list[tuple[int, TextCall]] = []
        self._walk(value, body, spans, shift, calls)
        return calls

    def _walk(
        self,
        value: Any,
        body: str,
        spans: list[tuple[int, int]],
        shift: int,
        calls: list[tuple[int, TextCall]],
    ) -> None:
        stack = [value]
        while stack:
            item = stack.pop()
            if isinstance(item, list):
                stack += [v for v in reversed(item) if isinstance(v, list | CallObject)]
            elif isinstance(item, CallObject):
                names = [n for n in doubtful_names(item) if self._names is None or n in self._names]
                if names and item.number < len(spans):
                    # a part for each name, so that each is decided on, and nothing runs if one part
                    # is withheld
                    (begin, end), arguments = (
                        spans[item.number],
                        as_text(body[slice(*spans[item.number])]),
                    )
                    for part, name in enumerate(names, 1):
                        calls.append(
                            (
                                begin + (end - begin) * part // len(names) - shift,
                                TextCall("", name, arguments, strict=False),
                            )
                        )
                    continue
                call = call_in(item, self._names, self.name)
                if call is not None and item.number < len(spans):
                    calls.append((spans[item.number][1] - shift, self._made("", *call)))
                else:
                    stack += [
                        v for v in reversed(list(item.values())) if isinstance(v, list | CallObject)
                    ]

    def _made(self, raw: str, name: str, arguments: str, *, repaired: bool = False) -> TextCall:
        try:
            loads_arguments(arguments)
            return TextCall(raw, name, arguments, strict=not repaired, repaired=repaired)
        except AmbiguousJson:
            return TextCall(raw, name, as_text(raw) if raw else "", strict=False)

    def _lenient(self, raw: str, candidate: CandidateEnd) -> list[Piece]:
        """Read text that does not parse: repaired if possible, otherwise taken as it is if it has a
        name and arguments."""
        closers = "".join("}" if s == "{" else "]" for s in reversed(candidate.stack))
        repaired = _TRAILING_COMMA.sub(r"\1", raw[candidate.start :] + candidate.quote + closers)
        body = "{" + repaired if raw[:1] in "\"'" else repaired
        try:
            value, _ = json.JSONDecoder(
                object_pairs_hook=lambda pairs: CallObject(pairs, 0)
            ).raw_decode(body)
        except (ValueError, RecursionError):
            value = None
        items = value if isinstance(value, list) else [value]
        calls = [
            c
            for c in (
                call_in(i, self._names, self.name) for i in items if isinstance(i, CallObject)
            )
            if c is not None
        ]
        if len(calls) == 1 and candidate.quotes == '"':
            return [self._made(raw, *calls[0], repaired=True)]
        name = NAME_IN.search(raw)
        if (name is not None or self.name) and ARGUMENTS_IN.search(raw):
            call_name = name[1] if name is not None else self.name
            if self._names is None or call_name in self._names:
                return [TextCall(raw, call_name, as_text(raw), strict=False)]
        return []

    def _code(self, raw: str) -> list[Piece]:
        """A list of calls as code: not read, but shown to policies under every name in it, each
        with a part of the text."""
        names = sorted(
            {n for n in PYTHONIC_NAME.findall(raw) if self._names is None or n in self._names}
        )
        size = len(raw) // max(len(names), 1)
        arguments = as_text(raw)
        parts = [
            raw[n * size : (n + 1) * size if n < len(names) - 1 else len(raw)]
            for n in range(len(names))
        ]
        return [
            TextCall(part, name, arguments, strict=False)
            for part, name in zip(parts, names, strict=True)
        ]

    def _begun(self, raw: str, content: str) -> list[Piece]:
        """What stands behind a token that begins a call."""
        begun, start, end = BEGUN.match(content), content.find("{"), content.rfind("}")
        name = begun[1] if begun is not None else "text"
        if self._names is not None and name not in self._names:
            return []
        return [self._made(raw, name, content[start : end + 1] if 0 <= start < end else "")]

    def _tagged(self, raw: str) -> list[Piece]:
        """A tag's content: JSON, or parameters in tags of their own."""
        opened = TAG.search(raw)
        assert opened is not None
        if opened["begin"]:
            return self._begun(raw, raw[opened.end() :])
        name = opened["value"] or ""
        if not name and opened["more"] and (attribute := _ATTRIBUTE.search(opened["more"])):
            name = attribute[1]
        content = raw[opened.end() :]
        # cut at its own end only: what stands behind another's is as much in it, and may be the
        # call
        if opened["tag"] and (
            ends := list(
                re.finditer(rf"</(?:[\w-]{{1,30}}:)?{opened['tag']}", content, re.IGNORECASE)
            )
        ):
            content = content[: ends[-1].start()]
        body = content.strip()
        if body[:1] in ("{", "["):
            calls = [p for p in self._scan(body) if isinstance(p, TextCall)]
            if not name and len(calls) == 1:
                return [msgspec.structs.replace(calls[0], raw=raw)]
            if not name and calls and "".join(p.raw for p in calls) == body:
                first, last = raw.index(body), raw.index(body) + len(body)
                calls[0] = msgspec.structs.replace(calls[0], raw=raw[:first] + calls[0].raw)
                calls[-1] = msgspec.structs.replace(calls[-1], raw=calls[-1].raw + raw[last:])
                return list(calls)
            if name and body[0] == "{":
                return [self._made(raw, name, body)]
        written = _PARAMETER.findall(content)
        parameters = {key: value.strip("\n") for key, value, _ in written}
        if (
            name
            and parameters
            and len(parameters) == len(written)
            and all(closed for _, _, closed in written)
        ):
            return [
                self._made(raw, name, json.dumps(parameters, ensure_ascii=False), repaired=True)
            ]
        call_name = name or (m[1] if (m := NAME_IN.search(body) or _FIRST_WORD.match(body)) else "")
        if not call_name and not body:
            return []
        if self._names is not None and call_name not in self._names:
            return []
        if (
            not call_name
            and (opened["tag"] or "").lower() in ("tools", "tool", "function")
            and not ARGUMENTS_IN.search(body)
        ):
            # words that documents use as tags, too
            return []
        return [TextCall(raw, call_name or "text", as_text(raw), strict=False)]


def _segments(raw: str, calls: list[tuple[int, TextCall]]) -> list[Piece]:
    """Each call with the text from the one before it; the last with what is left."""
    pieces: list[Piece] = []
    start = 0
    for number, (end, call) in enumerate(calls):
        end = len(raw) if number == len(calls) - 1 else end
        text = raw[start:end]
        arguments = call.arguments or as_text(text)
        pieces.append(msgspec.structs.replace(call, raw=text, arguments=arguments))
        start = end
    return pieces
