"""The story of a call: one row per content block, in words that say what happened.

Rows of the record become what the template shows: JSON values alone. Must not know: the database,
templates, HTTP.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from db.read.call.story import BlockDetails, ChunkSpan, Overview
from db.read.json_rows import number as finite
from db.read.json_rows import release_times
from db.read.json_rows import time as iso
from db.text import from_column
from pages import links
from pages.call import arguments
from pages.call.row_sentences import (
    IN_OTHER_WORDS,
    because,
    decided_by,
    is_cut,
    label_of,
    sentence,
    verdict_of,
    went_out,
)
from pages.call.sides import BlockOutcome, Got, SideBlock
from pages.verdicts import CUT, loud
from protocol.records import to_text

PAGE = links.BLOCKS
"""Content blocks on a page."""
FEW = 10
"""On a page of up to this many rows, each may show a lot."""
BUDGET, BUDGET_OF_FEW = 10_000, 64_000
"""Bytes of arguments and texts on a page of many rows, and of few."""
LEAST = 160
"""Bytes of a text that are shown however many rows there are."""


@dataclass(frozen=True, slots=True)
class Sides:
    """What was decoded from the call's bytes: both sides if it is small, else the beginnings of
    blocks."""

    upstream: Mapping[int, SideBlock] = field(default_factory=dict)
    got: Mapping[int, Got] = field(default_factory=dict)
    left: str = ""
    """What the client got that belongs to no block: an error, for example."""
    is_whole: bool = False
    failed: str = ""
    """The error with which the upstream ended."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Cut:
    """How much of each text is read for a page."""

    most: int
    tail: int


NO_DETAILS = BlockDetails({}, {}, {}, {})


def cut_for(overview: Overview, numbers: Sequence[int]) -> Cut:
    """Return how much of each text may be read, so that the page stays small: all of it, if all are
    short."""
    sizes = [
        (tool.size or 0) + (tool.released_size or 0)
        for number in numbers
        if (tool := overview.tools.get(number)) is not None
    ]
    budget = BUDGET_OF_FEW if len(numbers) <= FEW else BUDGET
    if (
        sum(min(size, 2 * arguments.ENDS) if size > arguments.WHOLE else size for size in sizes)
        <= budget
    ):
        return Cut(arguments.WHOLE, arguments.ENDS)
    most = max(LEAST, budget // max(1, len(numbers)))
    return Cut(most, min(most // 2, arguments.ENDS))


def decided(overview: Overview, upstream: Mapping[int, SideBlock]) -> list[BlockOutcome]:
    """Return what became of each block, by which the two sides of a call are aligned."""
    rows = []
    for number in overview.numbers:
        tool, upstream_block = overview.tools.get(number), upstream.get(number)
        verdict = verdict_of(overview, number)
        if tool is not None:
            was_released = (
                verdict in ("allow", "replace")
                and tool.released_size is not None
                and tool.form != "prompt"
                and tool.released_at is not None
            )
            rows.append(
                BlockOutcome(
                    number,
                    True,
                    upstream_block.text if upstream_block else "",
                    released="" if was_released else None,
                )
            )
        elif upstream_block is not None:
            rows.append(
                BlockOutcome(
                    number, upstream_block.is_call, upstream_block.text, passed=verdict == "allow"
                )
            )
    return rows


def rows(
    overview: Overview, numbers: Sequence[int], details: BlockDetails, sides: Sides, cut: Cut
) -> list[dict[str, Any]]:
    """Return the rows of these blocks."""
    text_limit = max(
        LEAST, (BUDGET_OF_FEW if len(numbers) <= FEW else BUDGET // 2) // max(1, len(numbers))
    )
    return [_row(overview, numbers, number, details, sides, cut, text_limit) for number in numbers]


def _row(
    overview: Overview,
    numbers: Sequence[int],
    number: int,
    details: BlockDetails,
    sides: Sides,
    cut: Cut,
    text_limit: int,
) -> dict[str, Any]:
    tool, upstream_block = overview.tools.get(number), sides.upstream.get(number)
    block, span = overview.blocks.get(number), overview.spans.get(number)
    verdict, is_of_many = verdict_of(overview, number), len(numbers) > FEW
    judgements = details.judgements.get(number, [])
    steps = [_step(overview, number, judgement, whole=not is_of_many) for judgement in judgements]
    kind = _kind(overview, number, upstream_block)
    row: dict[str, Any] = {
        "number": number,
        "kind": kind,
        "label": label_of(kind, tool, upstream_block, block),
        **_identity(tool, upstream_block),
        "verdict": verdict,
        "word": loud(verdict),
        **_decision(block or tool, steps),
        **release_times(verdict, tool.released_at if tool is not None else None),
        **_counts(overview, span, upstream_block if sides.is_whole else None),
        **dict.fromkeys(("text", "arguments", "released", "changes", "label_of", "may_allow")),
        "got": _got(sides, number, kind, verdict, text_limit),
        "went_out": went_out(upstream_block, sides.got.get(number)),
        "steps": steps,
        "scores": details.scores.get(number, []),
        "decisions": details.decisions.get(number, []),
        "holds": _holds(span, tool, steps),
        "sealed_bytes": upstream_block.sealed if upstream_block is not None else 0,
        "is_decided": (
            verdict in ("allow", "block", "replace") and (tool is not None or verdict != "allow")
        ),
        "is_one_of_many": is_of_many,
    }
    row["sentence"] = sentence(overview, number, row)
    row["because"] = because(row)
    row["why"] = overview.whys.get(number, "")
    if is_cut(row):
        row["word"] = CUT.upper()
    # reasons that add nothing to the words before them are not repeated
    row["said_why"] = "" if row["because"] or row["reason"] in IN_OTHER_WORDS else row["reason"]
    if tool is not None:
        row.update(_arguments(details.arguments.get(number), tool, cut))
    elif upstream_block is not None:
        row["text"] = _text(upstream_block, span, sides.is_whole, text_limit)
    return row


def _identity(tool: Any, upstream_block: SideBlock | None) -> dict[str, str]:
    """What names a block: of a tool call what the record has, of others what was decoded."""
    if tool is None:
        name = upstream_block.name if upstream_block is not None else ""
        return {"name": name, "id": "", "executor": "", "form": ""}
    return {
        "name": from_column(tool.name),
        "id": from_column(tool.tool_call_id),
        "executor": tool.executor,
        "form": tool.form,
    }


def _decision(last: Any, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Who decided on a block last, when and why."""
    return {
        "by": decided_by(last, steps),
        "policy": from_column(last.policy) if last is not None else "",
        "rule": from_column(last.rule) if last is not None and last.rule else "",
        "reason": from_column(last.reason) if last is not None else "",
        "decided_at": iso(last.at) if last is not None else None,
    }


def _kind(overview: Overview, number: int, upstream_block: SideBlock | None) -> str:
    if number in overview.tools:
        return "tool"
    kind = overview.blocks[number].kind if number in overview.blocks else ""
    if upstream_block is not None and (kind in ("", "other") or upstream_block.kind == "thinking"):
        kind = upstream_block.kind or kind
    return "tool" if kind in ("tool_use", "server_tool_use") else kind or "block"


def _counts(
    overview: Overview, span: ChunkSpan | None, upstream_block: SideBlock | None
) -> dict[str, Any]:
    seqs = overview.releases.seqs or []
    return {
        "chunks": span.chunks if span else 0,
        "bytes": span.size if span else 0,
        "releases": (
            bisect_right(seqs, span.last_seq) - bisect_left(seqs, span.first_seq) if span else 0
        ),
        "characters": len(upstream_block.text) if upstream_block is not None else None,
        "first_seq": span.first_seq if span else None,
    }


def _got(
    sides: Sides, number: int, kind: str, verdict: str, text_limit: int
) -> dict[str, Any] | None:
    """What the client got in place of what was not released as it came."""
    got = sides.got.get(number)
    if (
        not sides.is_whole
        or got is None
        or verdict in ("allow", "")
        or (verdict == "replace" and kind == "tool")
    ):
        return None
    if (
        upstream_block := sides.upstream.get(number)
    ) is not None and upstream_block.text == got.text:
        return None
    text = got.text.strip("\n")
    return {
        "text": text[:text_limit],
        "length": len(text),
        "shared": [n for n in got.shared if n != number],
    }


def _text(
    upstream_block: SideBlock, span: ChunkSpan | None, is_whole: bool, text_limit: int
) -> dict[str, Any] | None:
    text = upstream_block.text
    if not text:
        return None
    more = not is_whole and span is not None and upstream_block.chunks < span.chunks
    return {
        "text": text[:text_limit],
        "length": None if more else len(text),
        "cut": more or len(text) > text_limit,
        "first": min(text_limit, len(text)),
    }


def _arguments(read: Any, tool: Any, cut: Cut) -> dict[str, Any]:
    """The arguments as asked and as released, and what changed between."""
    if read is None:
        return {}
    asked = arguments.one_side(
        arguments.shown(bytes(read.start), _bytes(read.tail), tool.size, cut.most)
    )
    if read.released is None or tool.is_same:
        return {"arguments": asked}
    released = arguments.shown(
        bytes(read.released), _bytes(read.released_tail), tool.released_size, cut.most
    )
    if asked["cut"] or released["cut"]:
        return {"arguments": asked, "released": arguments.one_side(released)}
    return {
        "arguments": asked,
        "released": arguments.one_side(released),
        "changes": arguments.compared(asked["text"], released["text"]),
    }


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _step(overview: Overview, number: int, row: Any, *, whole: bool) -> dict[str, Any]:
    """One question to a judge, with what it answered; prompt and reply where there is room."""
    judgement = next(j for j in overview.judged if j.block == number and j.step == row.step)
    probability, threshold = finite(judgement.probability), finite(judgement.threshold)
    return {
        "step": judgement.step,
        "at": iso(judgement.at),
        "model": from_column(judgement.model),
        "policy": from_column(judgement.policy),
        "probability": probability,
        "threshold": threshold,
        "reached": probability is not None and threshold is not None and probability >= threshold,
        "latency_ms": judgement.latency_ms,
        "attempts": judgement.attempts,
        "error": judgement.error,
        "explanation": from_column(row.explanation),
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "prompt": _beginning(row.prompt if whole else b"", row.prompt_size),
        "reply": _beginning(row.reply if whole else b"", row.reply_size),
    }


def _beginning(data: Any, size: int) -> dict[str, Any]:
    data = bytes(data)
    return {
        "text": to_text(data) if len(data) == size else data.decode(errors="ignore"),
        "size": size,
        "cut": len(data) < size,
    }


def _holds(
    span: ChunkSpan | None, tool: Any, steps: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """How long a complete tool call was held, and by whom."""
    if span is None or tool is None:
        return []
    judged = sum(step["latency_ms"] for step in steps)
    whole = _ms(span.last_at, tool.at)
    holds = [{"who": "policy", "ms": max(0, whole - judged)}, {"who": "judge", "ms": judged}]
    if tool.released_at is not None:
        holds.append({"who": "commit", "ms": max(0, _ms(tool.at, tool.released_at))})
    return [hold for hold in holds if hold["ms"]]


def _ms(begin: datetime, end: datetime) -> int:
    return round((end - begin).total_seconds() * 1000)
