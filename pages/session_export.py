"""A session as a file: JSON lines, one per call; Markdown; plain text. Each turn appears once."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from db.read.sessions import RELEASED_BYTES, RecordedCalls, SessionCalls, SessionReader
from pages.call.whole_text import ABOUT, mark, spell
from pages.conversation import ConversationStep, steps, wanted
from pages.model_acts import ModelAct
from pages.sent_turns import ShownTurn
from protocol.conversations.prefix_tree import MAIN, Placed

_AT_ONCE = 10
_ROLES = {
    "user": "Client",
    "assistant": "Model, as the client sent it",
    "tool": "Tool result",
    "system": "System",
}
_MEANS = re.compile(r"([\\`*_\[\]<>#|])")
"""What Markdown takes for more than text."""
Write = Callable[[ConversationStep], str]


async def export(
    reader: SessionReader, session_calls: SessionCalls, placed: Sequence[Placed], write: Write
) -> AsyncIterator[bytes]:
    """Yield the file, some calls at a time. Raises AuditUnavailable."""
    if write is _plain:
        yield ABOUT.encode()
    for begin in range(0, len(session_calls.calls), _AT_ONCE):
        indexes = range(begin, min(begin + _AT_ONCE, len(session_calls.calls)))
        pieces, released = wanted(session_calls.calls, placed, indexes)
        content = await reader.read_contents(pieces, released)
        yield await asyncio.to_thread(_written, session_calls, placed, indexes, content, write)
    if session_calls.more:
        yield _more(len(session_calls.calls), write).encode()


def _written(
    session_calls: SessionCalls,
    placed: Sequence[Placed],
    indexes: Sequence[int],
    content: RecordedCalls,
    write: Write,
) -> bytes:
    return "".join(
        map(write, steps(session_calls.calls, placed, indexes, content, cut=False))
    ).encode(errors="backslashreplace")


def _more(calls: int, write: Write) -> str:
    if write is _json_line:
        return json.dumps({"more": True, "calls": calls}) + "\n"
    sentence = f"more calls than {calls:,} are in this session"
    return mark(sentence) if write is _plain else f"\n*{sentence}*\n"


def _json_line(step: ConversationStep) -> str:
    at = step.placed
    line = {
        **step.call.item,
        "branch": None if at.branch == MAIN else at.branch,
        "index": step.index,
        "parent": at.parent if at.parent >= 0 else None,
        "agent": step.call.marked.agent,
        "common_turns": at.common,
        "history_changed": at.changed,
        "history_begins": at.begins,
        "skipped_turns": step.skipped,
        "skipped_acts": step.skipped_acts,
        "answer_bytes": step.answer_bytes or None,
        "turns": [
            {
                "role": turn.role,
                "number": turn.number,
                "foreign": turn.is_foreign,
                "parts": [
                    {"kind": part.kind, "text": part.text, "name": part.name, "id": part.id}
                    for part in turn.parts
                ],
            }
            for turn in step.turns
        ],
        "released": [
            {
                "kind": act.kind,
                "text": act.text,
                "name": act.name,
                "verdict": act.verdict,
                "reason": act.reason,
                "policy": act.policy,
                "released": act.released,
                "bytes": act.size if act.is_begun else None,
            }
            for act in step.acts
        ],
    }
    return json.dumps(line) + "\n"


def _markdown(step: ConversationStep) -> str:
    lines = [f"\n## {_inline(_title(step))}\n"]
    lines += [
        f"**{_inline(said_by)}**\n\n{_quoted(spell(text))}\n" for said_by, text in _pieces(step)
    ]
    lines += [f"*{sentence}*\n" for sentence in _left_out(step)]
    return "\n".join(lines)


def _plain(step: ConversationStep) -> str:
    lines = ["\n", mark(_title(step))]
    lines += [f"{mark(said_by)}{spell(text)}\n" for said_by, text in _pieces(step)]
    return "".join([*lines, *map(mark, _left_out(step))])


def _pieces(step: ConversationStep) -> Iterator[tuple[str, str]]:
    """The texts of a call, each with its speaker: a line of ours, and text that somebody else
    wrote."""
    for turn in step.turns:
        yield _speaker(turn), _of_turn(turn)
    for act in step.acts:
        yield (
            f"Model{_verdict(act)}",
            (f"{act.name} {act.text}" if act.kind == "tool_use" else act.text),
        )
        if act.released is not None:
            yield "Released instead", act.released


def _inline(text: str) -> str:
    """One line of text in Markdown, whatever it quotes."""
    return _MEANS.sub(r"\\\1", spell(text).replace("\n", " ").replace("\t", " "))


def _left_out(step: ConversationStep) -> list[str]:
    """What a file does not have of a call, which has it on its own pages."""
    left = [f"{step.skipped:,} more new turns are in the request"] if step.skipped else []
    left += (
        [f"{step.skipped_acts:,} more tool calls are on the call's page"]
        if step.skipped_acts
        else []
    )
    return left + (
        [f"of the answer's {step.answer_bytes:,} bytes the first {RELEASED_BYTES:,} are read here"]
        if step.answer_bytes
        else []
    )


def _title(step: ConversationStep) -> str:
    item, at = step.call.item, step.placed
    where = "" if at.branch == MAIN else f", branch of call {at.branch + 1}"
    anew = (
        f", history changed from turn {at.common + 1} on"
        if at.changed
        else ", history begins anew"
        if at.begins
        else ""
    )
    return f"{step.index + 1}. {item['at']} {item['model']} {item['call_id']}{where}{anew}"


def _speaker(turn: ShownTurn) -> str:
    return _ROLES.get(turn.role, turn.role) + (
        ", not what Sluice released" if turn.is_foreign else ""
    )


def _of_turn(turn: ShownTurn) -> str:
    return "\n".join(
        f"{part.name} {part.text}" if part.kind == "tool_use" else part.text for part in turn.parts
    )


def _verdict(act: ModelAct) -> str:
    verdict = (
        f" ({act.verdict} by {act.policy}: {act.reason})"
        if act.verdict and act.verdict != "allow"
        else ""
    )
    return verdict + (f", the beginning of {act.size:,} bytes" if act.is_begun else "")


def _quoted(text: str) -> str:
    """A block of code that the text cannot end."""
    longest = max((len(run) for run in _runs(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _runs(text: str) -> list[str]:
    return "".join(character if character == "`" else " " for character in text).split()


FORMS: dict[str, tuple[str, str, Write]] = {
    "jsonl": ("application/x-ndjson; charset=utf-8", "jsonl", _json_line),
    "markdown": ("text/markdown; charset=utf-8", "md", _markdown),
    "text": ("text/plain; charset=utf-8", "txt", _plain),
}
"""By name: the media type, how the file's name ends, and how a call is written."""
