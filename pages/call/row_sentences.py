"""What happened to a content block, in words: the sentences of its row. Must not know: bytes of the
call, templates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from db.read.call.story import Overview
from db.text import from_column
from pages.call.sides import Got, SideBlock
from protocol.reasons import SENTENCES

IN_OTHER_WORDS = frozenset(("", "rule", "judge", "text", "after_denied", "unfinished"))
"""Those that are in other words of the row already."""


def verdict_of(overview: Overview, number: int) -> str:
    """The last word on a block; held while the call is open, and nothing where the record has
    none."""
    row = overview.blocks.get(number) or overview.tools.get(number)
    if row is not None:
        return str(row.verdict)
    return "hold" if overview.call["state"] == "ACTIVE" else ""


def label_of(kind: str, tool: Any, upstream_block: SideBlock | None, block: Any) -> str:
    """What a block is, without its name."""
    if tool is not None:
        label = {
            "client": "tool",
            "provider": "provider's tool",
            "mcp": "MCP tool",
            "nested": "tool inside a tool",
        }.get(tool.executor, "tool")
        return f"{label}, written as text" if tool.form == "prompt" else label
    if kind == "tool":
        return "tool"
    if (
        kind == "thinking"
        and upstream_block is not None
        and not upstream_block.text
        and upstream_block.sealed
    ):
        return "thinking, encrypted by the provider"
    if kind == "text" and upstream_block is not None and upstream_block.name == "refusal":
        return "the model's refusal"
    return {"other": "block", "opaque": "not modelled"}.get(kind, kind)


def decided_by(last: Any, steps: Sequence[Mapping[str, Any]]) -> str:
    """Who blocked or changed it: a judge, a rule, or nothing that has a name of its own."""
    if last is None or last.verdict == "allow":
        return ""
    if (
        steps
        and steps[-1]["policy"] == from_column(last.policy)
        and last.reason.startswith("judge")
    ):
        return "judge"
    return "rule" if last.rule else ""


def sentence(overview: Overview, number: int, row: Mapping[str, Any]) -> str:
    """What happened to whom."""
    if row["kind"] == "tool":
        return _of_tool(overview, number, row)
    got, verdict = row["got"], row["verdict"]
    if is_cut(row):
        why = (
            "the client went away first"
            if overview.call["reason"] == "client_gone"
            else "the upstream never finished it"
        )
        last = (
            f"; its last chunk is {overview.spans[number].last_seq:,}"
            if number in overview.spans
            else ""
        )
        return f"cut: {why}{last}; {row['went_out']} released"
    if verdict == "allow":
        if row["kind"] == "thinking" and row["sealed_bytes"] and not row["characters"]:
            return "released as it came; nobody here can read it"
        if overview.call["reason"] == "client_gone" and got is None:
            return "approved; the client was gone before it had all of it"
        return "released, unchanged"
    return {
        "replace": "released, changed",
        "block": (
            "said by the model, never released from where it was blocked"
            if row["kind"] == "text"
            else "never released"
        ),
        "withheld": _behind(overview, number, row["reason"]),
        "discarded": "of an answer that was not chosen, never released",
        "hold": "being decided",
    }.get(verdict, _no_word(overview))


def went_out(upstream_block: SideBlock | None, got: Got | None) -> str:
    """How much of a text went out as it came, for a sentence; empty: nothing of it."""
    if (
        upstream_block is None
        or got is None
        or not got.text
        or not upstream_block.text.startswith(got.text)
    ):
        return ""
    return (
        "what came of it was"
        if got.text == upstream_block.text
        else f"its first {len(got.text):,} characters were"
    )


def is_cut(row: Mapping[str, Any]) -> bool:
    """Did it end early, and a part of it go out? No tool call does. Where the client went away,
    nobody decided about all of it."""
    ended_early = row["verdict"] == "" or (
        row["verdict"] == "withheld" and row["reason"] == "unfinished"
    )
    return bool(row["kind"] != "tool" and ended_early and row["went_out"])


def _of_tool(overview: Overview, number: int, row: Mapping[str, Any]) -> str:
    tool, runs = overview.tools.get(number), row["executor"] not in ("client", "")
    match row["verdict"]:
        case "allow" | "replace" if tool is not None and tool.released_at is None:
            return (
                "asked for, approved, never released"
                if overview.call["state"] != "ACTIVE"
                else "asked for, approved, not released yet"
            )
        case "allow":
            return "run by the provider, released" if runs else "asked for, released unchanged"
        case "replace":
            return "asked for, released with other arguments"
        case "block":
            return (
                "blocked, never released; the provider may have run it"
                if runs
                else "asked for, never released"
            )
        case "withheld":
            return _behind(overview, number, row["reason"])
        case "discarded":
            return "asked for in an answer that was not chosen, never released"
        case "hold":
            return "asked for, being decided"
        case _:
            return f"asked for; {_no_word(overview)}"


def _behind(overview: Overview, number: int, reason: str) -> str:
    if reason == "after_denied":
        place = overview.numbers.index(number)
        denied = [
            n
            for n in overview.numbers[:place]
            if n in overview.tools and verdict_of(overview, n) in ("block", "withheld")
        ]
        if denied:
            return f"withheld behind #{denied[-1]}"
    if reason == "unfinished":
        span = overview.spans.get(number)
        return (
            f"withheld: the upstream never finished it; its last chunk is {span.last_seq:,}"
            if span
            else "withheld: it was never finished"
        )
    return "withheld"


def _no_word(overview: Overview) -> str:
    if overview.is_shed:
        return "its chunks are not on record any more"
    return "no decision is on record" if overview.call["state"] != "ACTIVE" else "being decided"


def because(row: Mapping[str, Any]) -> str:
    """Why, where the reason is one of Sluice's own."""
    return (
        ""
        if row["verdict"] == "allow" or row["reason"] in IN_OTHER_WORDS
        else SENTENCES.get(row["reason"], "")
    )
