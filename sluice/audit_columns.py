"""The columns of the audit lists: what each list shows on a terminal, and what it writes into a pipe.

What an auditor asks first stands first and is always shown: when, which call, whose, what, the verdict and its cause. Must not know: where
items come from.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sluice.tables import Column, Item, at, clock, short_ids


class Listed(NamedTuple):
    """How a list is shown: columns of a terminal, paths for a pipe, and the path of the time that its lines stand under."""

    columns: Sequence[Column]
    values: Sequence[str]
    time: str


def of_calls(items: Sequence[Item]) -> Listed:
    """The list of calls."""
    columns = (
        Column(heading="time", value=lambda item: clock(item["created_at"])),
        Column(heading="call", value=short_ids(items)),
        Column(heading="key", value="key", least=6),
        Column(heading="model", value="model", least=8),
        Column(heading="state", value="state"),
        Column(heading="reason", value="reason", least=8),
        Column(heading="status", value="status", is_extra=True),
        Column(heading="tools", value="tool_calls"),
        Column(heading="blocked", value="tool_calls_blocked"),
        Column(heading="policy", value="policy", is_extra=True),
        Column(heading="session", value="session", is_extra=True),
        Column(heading="upstream", value="upstream", is_extra=True),
        Column(heading="stop", value="stop_reason", is_extra=True),
    )
    values = (
        "created_at", "call_id", "key", "model", "state", "reason", "status", "tool_calls", "tool_calls_blocked", "policy", "session",
        "upstream", "stop_reason", "ended_at", "key_id",
    )  # fmt: skip
    return Listed(columns, values, "created_at")


def of_tool_calls(items: Sequence[Item]) -> Listed:
    """The list of tool calls. Who runs them is told where that is not the client for all."""
    others = any(item.get("executor") != "client" for item in items)
    columns = (
        Column(heading="time", value=lambda item: clock(item["decided_at"])),
        Column(heading="call", value=short_ids(items)),
        Column(heading="key", value="key", least=6),
        Column(heading="tool", value="name", least=8),
        Column(heading="run by", value="executor", is_extra=not others),
        Column(heading="verdict", value="verdict"),
        _cause(items),
        *_OF_CALL,
        Column(heading="arguments", value="arguments", least=12, stretches=True),
    )
    shown = [column for column in columns if others or column.heading != "run by"]
    values = (
        "decided_at", "call_id", "key", "name", "verdict", "rule", "reason", "arguments", "session", "policy", "model", "executor",
        "released_at", "key_id",
    )  # fmt: skip
    return Listed(shown, values, "decided_at")


def of_judge_blocks(items: Sequence[Item]) -> Listed:
    """The list of judge blocks: who judged what, how sure, and in which words."""
    columns = (
        Column(heading="time", value=lambda item: clock(item["decided_at"])),
        Column(heading="call", value=short_ids(items)),
        Column(heading="key", value="key", least=6),
        Column(heading="tool", value=lambda item: item["name"] or item["kind"], least=8),
        Column(heading="judged", value=_judged),
        Column(heading="judge", value="judge.model", least=8),
        *_OF_CALL,
        Column(heading="arguments", value="arguments", is_extra=True, stretches=True),
        Column(heading="explanation", value="judge.explanation", least=12, stretches=True),
    )
    values = (
        "decided_at", "call_id", "key", "kind", "name", "judge.probability", "judge.threshold", "judge.model", "judge.explanation",
        "arguments", "verdict", "rule", "reason", "session", "policy", "model", "key_id",
    )  # fmt: skip
    return Listed(columns, values, "decided_at")


def of_counts(by: Sequence[str]) -> Listed:
    """Counts: what was counted by, then how many."""
    columns = [Column(heading="day (UTC)" if name == "day" else name, value=name, least=6) for name in by]
    numbers = [Column(heading=name.replace("_", " "), value=name) for name in ("tool_calls", "calls")]
    return Listed([*columns, *numbers], [*by, "tool_calls", "calls"], "")


_OF_CALL = (
    Column(heading="session", value="session", is_extra=True),
    Column(heading="policy", value="policy", is_extra=True),
    Column(heading="model", value="model", is_extra=True),
)


def _cause(items: Sequence[Item]) -> Column:
    """The rule by which something was decided, or the reason where none has a name."""
    heading = "rule" if any(item.get("rule") for item in items) else "reason"
    return Column(heading=heading, value=lambda item: item.get("rule") or item["reason"], least=8)


def _judged(item: Item) -> str:
    """How probable the judge found it, and from where on it is too much."""
    numbers = [at(item, "judge.probability"), at(item, "judge.threshold")]
    return " of ".join("-" if number is None else f"{number:.2f}" for number in numbers)
