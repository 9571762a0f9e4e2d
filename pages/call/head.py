"""The head of a call's page: who, when, how it ended, notes on its record, and where the time went.

Must not know: the database, templates.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from db.read.call.story import MOST_EVENTS, Overview
from db.read.json_rows import JsonObject
from db.read.json_rows import time as iso
from db.text import from_column
from pages.verdicts import CUT, WORDS
from protocol.records import ASKED, PASSED, STREAM_LOST, UNCLAIMED

_BLOCKED = "blocked_by_policy"
_ENDS = {
    "complete": "",
    "client_gone": "The client went away before its answer was complete.",
    "gateway_lost": "Its gateway died, so nobody knows how much of it the client got.",
    STREAM_LOST: "Redis lost the call while it ran: what was not recorded by then is not known.",
    UNCLAIMED: "No policy worker ever began it, so nothing was sent to a model.",
    "stream_timeout": "No answer came from a policy worker in time.",
    _BLOCKED: "Nothing was sent to a model.",
    "overloaded": "It was shed: the gateway had no room for it.",
}
_SAME = (
    "call_id session key key_id model upstream policy policy_revision policy_set stream dialect"
    " endpoint gateway state reason status stop_reason usage tool_calls tool_calls_blocked"
    " created_at ended_at incomplete user_agent"
).split()
"""What the head shows as the record has it."""
_IDENTIFIED = "identified"
"""The event that says where the session's name was found."""
_MOST_MARKS = 40
"""Stretches that the bar and its table show, the longest; the page says how many there are."""
_GRAVEST = ("block", "replace", "withheld", "discarded", "allow")
_BECAME = {
    "block": "blocked",
    "replace": "changed and released",
    "withheld": "withheld",
    "discarded": "discarded",
    "allow": "released",
    "stays": "allowed and never released",
    "hold": "not decided yet",
}
_REFUSAL, _TOKEN_LIMIT, _UNFINISHED = "refusal", "max_tokens", "unfinished"
_NAMED, _NAME = 3, 60
"""Names of blocks with one verdict that a sentence has, and characters of each."""
_PROJECT = "project"
"""The event that says which folders the call's project was taken to be, and why."""
_SHOWN_ELSEWHERE = frozenset(("keepalive", _IDENTIFIED, _PROJECT, ASKED))


def head(overview: Overview, now: datetime) -> dict[str, Any]:
    """Return what stands above the rows."""
    call = overview.call
    created, ended = _time(call["created_at"]), _time(call["ended_at"])
    is_open = call["state"] == "ACTIVE"
    takeovers = sum(event["kind"] == "takeover" for event in overview.events)
    return {
        **{name: call[name] for name in _SAME},
        "session_from": _field(overview, _IDENTIFIED, "source"),
        "project": {
            name: _field(overview, _PROJECT, name) for name in ("source", "roots", "ignored")
        },
        "verdicts": _counted(overview),
        "happened": happened(overview),
        "is_open": is_open,
        "sentence": _ENDS.get(call["reason"] or "", ""),
        "duration_ms": (
            round(((ended or now) - created).total_seconds() * 1000) if created else None
        ),
        "takeovers": takeovers,
        "chunks": overview.chunks,
        "chunk_bytes": overview.chunk_bytes,
        "releases": overview.releases.n,
        "released_bytes": int(overview.releases.size),
        "body_bytes": overview.counts.body_size,
        "before": overview.before,
        "next": overview.next,
        "sealed": _sealed(overview),
        "notes": _notes(overview),
    }


def _field(overview: Overview, kind: str, name: str) -> str:
    """A field of the detail of the first event of a kind; a list as one text."""
    detail = next((event["detail"] for event in overview.events if event["kind"] == kind), "")
    try:
        parsed = json.loads(detail)
    except ValueError:
        return ""
    value = parsed.get(name) if isinstance(parsed, dict) else None
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else ""


def _last_words(overview: Overview) -> dict[int, Any]:
    """The row with the last word on each block of which there is one, in the order of the
    answer."""
    return {
        n: overview.blocks.get(n) or overview.tools[n]
        for n in overview.numbers
        if n in overview.blocks or n in overview.tools
    }


def _counted(overview: Overview) -> list[list[Any]]:
    """How many blocks have each verdict, the gravest first: the verdict, its word, and the
    number."""
    rows = _last_words(overview).items()
    counted = Counter(
        CUT if _is_cut(row, number in overview.tools) else str(row.verdict) for number, row in rows
    )
    return [
        [verdict, word, counted[name]]
        for verdict in _GRAVEST
        for name, word in (
            (verdict, WORDS[verdict]),
            *([(CUT, CUT)] if verdict == "withheld" else []),
        )
        if counted[name]
    ]


def _is_cut(row: Any, is_tool: bool) -> bool:
    """Did this block end early? Its text went out as far as it came; a tool call that ended early
    never does, it is withheld."""
    return not is_tool and row.reason == _UNFINISHED


def happened(overview: Overview) -> str:
    """Return what happened in a few sentences, the gravest first."""
    rows, call = _last_words(overview), overview.call
    if call["reason"] == _BLOCKED:
        return "A policy blocked the request."
    if not overview.numbers:
        summary = "No answer has begun." if call["state"] == "ACTIVE" else "No answer is on record."
    elif overview.tools:
        many = len(overview.tools)
        what = "one tool call" if many == 1 else f"{many:,} tool calls"
        summary = (
            f"The model asked for {what}: {'; '.join(_became(overview, rows, overview.tools))}."
        )
    else:
        summary = (
            "The model refused to answer."
            if call["stop_reason"] == _REFUSAL
            else "The model answered without tool calls."
        )
    # the end of this text says of the whole answer that it was cut
    others = [
        n
        for n, row in rows.items()
        if n not in overview.tools
        and row.verdict not in ("allow", "hold")
        and not _is_cut(row, False)
    ]
    if became := "; ".join(_became(overview, rows, others)):
        summary += f" {became[0].upper()}{became[1:]}."
    if call["state"] == "FAILED":
        summary += (
            f" The answer was cut: {call['reason']}."
            if overview.numbers
            else f" The call failed: {call['reason']}."
        )
    elif call["stop_reason"] == _TOKEN_LIMIT:
        summary += " The answer was cut at its token limit."
    return summary


def _became(overview: Overview, rows: Mapping[int, Any], numbers: Collection[int]) -> list[str]:
    """What became of these blocks, those of one verdict together: `bash was blocked by tool_rules,
    rule no-rm`."""
    groups: dict[str, list[int]] = {}
    for number in sorted(set(numbers) & rows.keys()):
        tool, verdict = overview.tools.get(number), str(rows[number].verdict)
        stays = (
            tool is not None
            and verdict in PASSED
            and tool.released_at is None
            and overview.call["state"] != "ACTIVE"
        )
        groups.setdefault("stays" if stays else verdict, []).append(number)
    sentences = []
    for verdict in (*_GRAVEST, "stays", "hold"):
        if of := groups.get(verdict):
            many = Counter(
                from_column(overview.tools[n].name if n in overview.tools else rows[n].kind)[:_NAME]
                for n in of
            )
            names = [
                name if n == 1 else f"{n:,} × {name}" for name, n in islice(many.items(), _NAMED)
            ]
            left = len(of) - sum(islice(many.values(), _NAMED))
            more = f" and {left:,} more" if left else ""
            row = rows[of[0]]
            by = f" by {from_column(row.policy)}" if verdict == "block" and row.policy else ""
            rule = f", rule {from_column(row.rule)[:_NAME]}" if by and row.rule else ""
            sentences.append(
                f"{', '.join(names)}{more} {'was' if len(of) == 1 else 'were'}"
                f" {_BECAME[verdict]}{by}{rule}"
            )
    return sentences


def _time(at: str | None) -> datetime | None:
    return None if at is None else datetime.fromisoformat(at)


def _sealed(overview: Overview) -> dict[str, Any] | None:
    """Where the call stands in the tree of seals, and under which checkpoint."""
    if not overview.seals:
        return None
    last = overview.seals[-1]
    return {
        "position": last.position,
        "at": iso(last.at),
        "parts": len(overview.seals),
        "checkpoint": last.checkpoint,
    }


def shed_sentences(shed: Sequence[JsonObject]) -> list[str]:
    """Return the note on rows that retention removed."""
    return [
        f"Its {gone['table'].replace('_', ' ')} went on {gone['at'][:10]}: {gone['note']}."
        for gone in shed
    ]


def _notes(overview: Overview) -> list[dict[str, str]]:
    """Sentences about the record itself. `mood`: how grave it is."""
    call, notes = overview.call, []
    for event in overview.events:
        if event["kind"] == "redacted":
            why = f": {event['detail']}" if event["detail"] else ""
            notes.append(
                (
                    "held",
                    (
                        f"Its content was redacted on {event['at']}{why}. What was decided is still"
                        " here."
                    ),
                )
            )
        elif event["kind"] == "incomplete":
            notes.append(("refused", f"The record is incomplete: {event['detail']}"))
    if call["incomplete"] and not any("incomplete" in text for _, text in notes):
        notes.append(("refused", "The record of this call lacks something."))
    notes += [("held", sentence) for sentence in shed_sentences(overview.shed)]
    if overview.is_shed and not overview.shed:
        notes.append(
            ("held", f"Its {overview.counts.chunks_said:,} chunks are not on record any more.")
        )
    if call["claimed_at"] is None and call["reason"] != UNCLAIMED:
        notes.append(
            (
                "refused",
                (
                    "The beginning of this call is not on record: its key, model and policy are not"
                    " known."
                ),
            )
        )
    if overview.counts.dead_letters:
        fits = (
            "1 record of it fits no table and lies"
            if overview.counts.dead_letters == 1
            else f"{overview.counts.dead_letters:,} records of it fit no table and lie"
        )
        notes.append(("refused", f"{fits} in the dead letters."))
    if call["state"] != "ACTIVE" and not overview.seals:
        notes.append(("muted", "Not sealed yet."))
    return [{"mood": mood, "text": text} for mood, text in notes]


def events(overview: Overview) -> dict[str, Any]:
    """Return what happened besides, and how much of that is not listed."""
    listed = [event for event in overview.events if event["kind"] not in _SHOWN_ELSEWHERE]
    return {"items_": listed, "more": max(0, overview.counts.events - MOST_EVENTS)}


def timeline(overview: Overview, now: datetime) -> dict[str, Any] | None:
    """Return where the time went: stretches in milliseconds from the call's beginning, each in a
    lane. None where nothing is known."""
    call = overview.call
    created = _time(call["created_at"])
    if created is None:
        return None
    claimed, ended = _time(call["claimed_at"]), _time(call["ended_at"])
    firsts = [span.first_at for span in overview.spans.values()]
    lasts = [span.last_at for span in overview.spans.values()]

    def ms(at: datetime) -> int:
        return max(0, round((at - created).total_seconds() * 1000))

    stretches: list[dict[str, Any]] = []

    def add(name: str, begin: datetime | None, end: datetime | None, lane: int) -> None:
        if begin is not None and end is not None:
            stretches.append(
                {"name": name, "from": ms(begin), "to": max(ms(begin), ms(end)), "lane": lane}
            )

    add("claim", created, claimed, 0)
    first, last = (min(firsts), max(lasts)) if firsts else (None, None)
    add("first byte", claimed or created, first, 0)
    add("stream", first, last, 0)
    for judged in overview.judged:
        end = ms(judged.at)
        stretches.append(
            {"name": "judge", "from": max(0, end - judged.latency_ms), "to": end, "lane": 1}
        )
    for tool in overview.tools.values():
        if tool.released_at is not None:
            add("commit", tool.at, tool.released_at, 2)
    whole = max([ms(ended or now), *(stretch["to"] for stretch in stretches)], default=0)
    totals = {
        name: _sum(stretches, name) for name in ("claim", "first byte", "stream", "judge", "commit")
    }
    sealed = _sealed(overview)
    return {
        "ms": whole,
        "stretches": _drawn(stretches, whole),
        "all": len(stretches),
        "lanes": len({stretch["lane"] for stretch in stretches}),
        "totals": [{"name": name, "ms": total, "n": n} for name, (total, n) in totals.items() if n],
        "sealed_ms": (
            ms(datetime.fromisoformat(sealed["at"])) - ms(ended) if sealed and ended else None
        ),
    }


def _sum(stretches: Sequence[dict[str, Any]], name: str) -> tuple[int, int]:
    """How long stretches of this name lasted together, and how many there are. Those at the same
    time count once."""
    spans = sorted(
        (stretch["from"], stretch["to"]) for stretch in stretches if stretch["name"] == name
    )
    total = end = 0
    for begin, until in spans:
        total += max(0, until - max(begin, end))
        end = max(end, until)
    return total, len(spans)


def _drawn(stretches: Sequence[dict[str, Any]], whole: int) -> list[dict[str, Any]]:
    """Places on a bar of 1,000. The longest are drawn where there are many."""
    longest = sorted(stretches, key=lambda stretch: stretch["from"] - stretch["to"])[:_MOST_MARKS]
    lanes = sorted({stretch["lane"] for stretch in longest})
    return [
        {
            **stretch,
            "lane": lanes.index(stretch["lane"]),
            "x": round(1000 * stretch["from"] / whole, 1),
            "w": max(2, round(1000 * (stretch["to"] - stretch["from"]) / whole, 1)),
        }
        for stretch in sorted(longest, key=lambda stretch: (stretch["lane"], stretch["from"]))
        if whole
    ]
