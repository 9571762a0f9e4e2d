"""A whole call as plain text: what was asked, the answer by block, and what the client got, byte
for byte.

Lines in ⟦ ⟧ are ours, and nothing written by others can look like one: the sign ⟦ itself is spelled
out where it comes from outside. What nobody would see is spelled out as ⟦U+001B⟧, and bytes that
are not UTF-8 as ⟦byte ff⟧, so that the text can be turned back into bytes. Must not know: the
database.
"""

import re
from collections.abc import Iterable, Sequence

from db.read.call.story import Overview
from db.read.json_rows import JsonObject
from pages.call.sides import Listener
from pages.escape import UNSEEN, is_plain
from protocol.records import to_text
from protocol.request import ChatRequest, OtherPart, TextPart, ToolResultPart, ToolUsePart

_OPEN, _CLOSE = "\u27e6", "\u27e7"
_SPELLED = re.compile(f"{_OPEN}(?:U\\+([0-9A-F]{{4,6}})|byte ([0-9a-f]{{2}})){_CLOSE}")
_ODD = re.compile(f"[{_OPEN}{_CLOSE}{UNSEEN}]")
_BYTE = range(0xDC80, 0xDD00)
ABOUT = (
    f"{_OPEN}Sluice: lines in these brackets are not part of what was said. What nobody would see"
    f" is written as {_OPEN}U+001B{_CLOSE}, bytes that are no UTF-8 as {_OPEN}byte"
    f" ff{_CLOSE}.{_CLOSE}\n"
)


def mark(text: str) -> str:
    """Return a line of ours. What it quotes is spelled out on one line."""
    return f"{_OPEN}{spell(text).replace(chr(10), ' ').replace(chr(9), ' ')}{_CLOSE}\n"


def spell(text: str) -> str:
    """Return text with what nobody would see spelled out; newlines and tabs stay."""
    if is_plain(text):
        return text
    return _ODD.sub(_spelled, text)


def spell_bytes(data: bytes) -> str:
    """Return bytes as text that `unspell` turns back into them."""
    return spell(data.decode(errors="surrogateescape"))


def unspell(text: str) -> bytes:
    """Return the bytes that `spell_bytes` was given."""
    return _SPELLED.sub(_unspelled, text).encode(errors="surrogateescape")


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return (
        f"{_OPEN}byte {code - 0xDC00:02x}{_CLOSE}"
        if code in _BYTE
        else f"{_OPEN}U+{code:04X}{_CLOSE}"
    )


def _unspelled(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else chr(0xDC00 + int(match[2], 16))


def top(overview: Overview) -> str:
    """Return the first lines: which call, and how it ended."""
    call = overview.call
    lines = [f"call {overview.call_id}"]
    for name in "created_at ended_at state reason key session model upstream policy policy_revision dialect".split():
        if call[name]:
            lines.append(f"{name} {call[name]}")
    return "".join(map(mark, lines))


def request(asked: ChatRequest) -> Iterable[str]:
    """Yield the request: instructions, tools and turns."""
    for text in asked.system:
        yield f"{mark('request: system')}{spell(text)}\n"
    if asked.tools:
        yield mark(f"request: tools: {', '.join(tool.name for tool in asked.tools)}")
    for number, turn in enumerate(asked.turns):
        yield mark(f"request: turn {number}: {turn.role}")
        for part in turn.parts:
            yield _part(part)


def _part(part: TextPart | ToolUsePart | ToolResultPart | OtherPart) -> str:
    match part:
        case TextPart():
            return f"{spell(part.text)}\n"
        case ToolUsePart():
            return f"{mark(f'tool call {part.id}: {part.name}')}{spell(part.arguments)}\n"
        case ToolResultPart():
            return f"{mark(f'result of {part.tool_call_id}')}{spell(part.text)}\n"
        case OtherPart():
            return mark(f"{part.kind}: the raw request has it")


class AnswerText:
    """The answer by block, from chunks as they come; nothing of it is stored."""

    def __init__(self, overview: Overview, listener: Listener) -> None:
        self._overview, self._listener = overview, listener
        self._starts = {attempt["first_seq"] for attempt in overview.attempts}
        self._now: int | None = None
        self._is_line_open = False

    def take(self, chunks: Sequence[tuple[int, int, bytes]]) -> str:
        """Return what these chunks add."""
        out: list[str] = []
        for seq, block, raw in chunks:
            if seq in self._starts:
                self._listener.restart()
            self._listener.take(raw, block)
            for number, text in self._listener.last:
                if number != self._now:
                    out += [self._newline(), self._head(number)]
                    self._now = number
                out.append(spell(text))
                self._is_line_open = not text.endswith("\n")
        return "".join(out)

    def end(self) -> str:
        """Return the last lines: blocks without content, and what went wrong."""
        listener = self._listener
        listener.finish()
        silent = [number for number in self._overview.numbers if number not in listener.heard]
        lines = [self._newline(), *(self._head(number) for number in silent)]
        if listener.failed:
            lines.append(mark(f"the upstream ended with an error: {listener.failed}"))
        if listener.problem:
            lines.append(mark(f"not all of the answer can be decoded: {listener.problem}"))
        return "".join(lines)

    def _newline(self) -> str:
        line, self._is_line_open = "\n" if self._is_line_open else "", False
        return line

    def _head(self, number: int) -> str:
        tool, block = self._overview.tools.get(number), self._overview.blocks.get(number)
        last = block or tool
        heard_block = self._listener.blocks.get(number)
        name = (
            tool.name if tool is not None else heard_block.name if heard_block is not None else ""
        )
        kind = (
            "tool call"
            if tool is not None
            else (
                heard_block.kind
                if heard_block is not None and heard_block.kind
                else block.kind
                if block is not None
                else ""
            )
        )
        words = [f"block {number}", f"{kind} {name}".strip()]
        if last is None:
            words.append("no verdict")
        else:
            why = ", ".join(
                filter(None, (last.policy, last.rule and f"rule {last.rule}", last.reason))
            )
            words.append(f"{last.verdict.upper()}{f' ({why})' if why else ''}")
        if number in self._overview.whys:
            words.append(self._overview.whys[number])
        return mark(": ".join(words))


def written(piece: JsonObject) -> str:
    """Return the line before a piece that the client got: the piece goes from behind it to the line
    end before the next mark."""
    relayed = {True: "", False: ", not relayed", None: ", not known whether relayed"}[
        piece["relayed"]
    ]
    name = f"release {piece['number']}" if piece["kind"] == "release" else piece["kind"]
    return mark(f"client got: {name}, {piece['bytes']:,} bytes{relayed}")


def event(row: JsonObject) -> str:
    """Return an event as a line."""
    return mark(f"event {row['at']} {row['kind']}: {row['detail']}")


def undecoded(body: bytes) -> str:
    """Return a request that is none, as it came."""
    return f"{mark('request, which cannot be decoded')}{spell(to_text(body))}\n"
