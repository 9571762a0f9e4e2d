"""The columns of the audit lists, on a terminal and in a pipe.

What an auditor asks first comes first and is always shown: when, which call, whose, what, the
verdict and its cause. Must not know: where items come from.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from db.filters import ListName
from protocol.reasons import SENTENCES
from protocol.usage.prices import dollars
from sluice.tables import Item, TableColumn, clock, short_ids


class Listed(NamedTuple):
    """How a list is shown: columns on a terminal, paths for a pipe, and the path of the time that
    groups its lines."""

    columns: Sequence[TableColumn]
    values: Sequence[str]
    time: str


def of_calls(items: Sequence[Item]) -> Listed:
    """The list of calls."""
    columns = (
        TableColumn(heading="time", value=lambda item: clock(item["created_at"])),
        TableColumn(heading="call", value=short_ids(items), leaves=3),
        TableColumn(heading="key", value="key", least=6, is_whole=True, leaves=0),
        TableColumn(heading="model", value="model", least=8, leaves=2),
        TableColumn(heading="state", value="state", leaves=0),
        TableColumn(heading="reason", value="reason", least=8),
        TableColumn(heading="status", value="status", is_extra=True),
        TableColumn(heading="tools", value="tool_calls", leaves=2),
        TableColumn(heading="blocked", value="tool_calls_blocked", leaves=2),
        TableColumn(heading="policy", value="policy", least=8, is_extra=True),
        TableColumn(heading="session", value="session", least=8, is_extra=True),
        TableColumn(heading="upstream", value="upstream", least=8, is_extra=True),
        TableColumn(heading="stop", value="stop_reason", is_extra=True),
    )
    values = (
        "created_at",
        "call_id",
        "key",
        "model",
        "state",
        "reason",
        "status",
        "tool_calls",
        "tool_calls_blocked",
        "policy",
        "session",
        "upstream",
        "stop_reason",
        "ended_at",
        "key_id",
    )
    return Listed(columns, values, "created_at")


def of_tool_calls(items: Sequence[Item]) -> Listed:
    """The list of tool calls. Who runs them is shown where that is not the client for all."""
    others = any(item.get("executor") != "client" for item in items)
    has_words = any(_in_words(item) for item in items)
    columns = (
        TableColumn(heading="time", value=lambda item: clock(item["created_at"])),
        TableColumn(heading="call", value=short_ids(items), leaves=3),
        TableColumn(heading="key", value="key", least=8, is_whole=True),
        TableColumn(heading="tool", value="name", least=8, is_whole=True, leaves=0),
        *([TableColumn(heading="run by", value="executor", leaves=2)] if others else []),
        TableColumn(heading="verdict", value="verdict", leaves=0),
        TableColumn(heading="rule", value=cause, least=8, is_whole=True),
        *_OF_CALL,
        *(
            [
                TableColumn(
                    heading="why",
                    value=_in_words,
                    least=8,
                    is_extra=True,
                )
            ]
            if has_words
            else []
        ),
        TableColumn(
            heading="arguments",
            value=lambda item: brief(item["arguments"]),
            least=8,
            stretches=True,
            leaves=2,
        ),
    )
    values = (
        "decided_at",
        "call_id",
        "key",
        "name",
        "verdict",
        "rule",
        "reason",
        "why",
        "arguments",
        "session",
        "policy",
        "model",
        "executor",
        "released_at",
        "notice_at",
        "created_at",
        "key_id",
    )
    return Listed(columns, values, "created_at")


def of_judge_blocks(items: Sequence[Item]) -> Listed:
    """The list of judge blocks: who judged what, how sure, and in which words."""
    columns = (
        TableColumn(heading="time", value=lambda item: clock(item["created_at"])),
        TableColumn(heading="call", value=short_ids(items), leaves=3),
        TableColumn(heading="key", value="key", least=8, is_whole=True),
        TableColumn(
            heading="tool",
            value=lambda item: item["name"] or item["kind"],
            least=8,
            is_whole=True,
            leaves=0,
        ),
        TableColumn(heading="judged", value=lambda item: judged(item["judge"]), leaves=0),
        TableColumn(heading="judge", value="judge.model", least=6),
        *_OF_CALL,
        TableColumn(
            heading="arguments",
            value=lambda item: brief(item["arguments"]),
            least=8,
            stretches=True,
            leaves=2,
        ),
        TableColumn(heading="explanation", value="judge.explanation", wraps=True, is_below=True),
    )
    values = (
        "decided_at",
        "call_id",
        "key",
        "kind",
        "name",
        "judge.probability",
        "judge.threshold",
        "judge.model",
        "judge.explanation",
        "arguments",
        "verdict",
        "rule",
        "reason",
        "session",
        "policy",
        "model",
        "created_at",
        "key_id",
    )
    return Listed(columns, values, "created_at")


def of_reviews(items: Sequence[Item]) -> Listed:
    """The decisions that a person is to look at. State and label are shown where they are not the
    same for all."""
    states, labels = {item["state"] for item in items}, {labelled(item) for item in items}
    columns = (
        TableColumn(heading="time", value=lambda item: clock(item["created_at"])),
        TableColumn(heading="call", value=short_ids(items), leaves=0),
        TableColumn(heading="block", value="block", leaves=0),
        TableColumn(heading="key", value="key", least=8, is_whole=True, leaves=3),
        TableColumn(heading="why", value="why", leaves=0),
        TableColumn(
            heading="score",
            value=lambda item: None if item["score"] is None else f"{item['score']:.2f}",
            leaves=3,
        ),
        *([TableColumn(heading="state", value="state", leaves=2)] if len(states) > 1 else []),
        *([TableColumn(heading="label", value=labelled, leaves=0)] if labels - {None} else []),
        TableColumn(heading="tool", value="name", least=8, is_whole=True),
        TableColumn(heading="policy", value="policy", least=8, is_extra=True),
        TableColumn(heading="session", value="session", least=8, is_extra=True),
        TableColumn(
            heading="arguments",
            value=lambda item: brief(item["arguments"]),
            least=8,
            stretches=True,
            leaves=2,
        ),
    )
    values = (
        "decided_at",
        "call_id",
        "block",
        "key",
        "why",
        "score",
        "state",
        "label",
        "agreed",
        "name",
        "arguments",
        "policy",
        "verdict",
        "session",
        "model",
        "u",
        "created_at",
        "key_id",
    )
    return Listed(columns, values, "created_at")


def labelled(item: Item) -> object:
    """Return what the auditors of a decision say, in one word."""
    return "not agreed" if item["agreed"] is False else item["label"]


def of_counts(by: Sequence[str], zone: str) -> Listed:
    """Counts: what was counted by, then how many; `zone` is that of the days."""
    columns = [
        TableColumn(heading=f"day ({zone})" if name == "day" else name, value=name, least=6)
        for name in by
    ]
    numbers = [
        TableColumn(heading=name.replace("_", " "), value=name) for name in ("tool_calls", "calls")
    ]
    return Listed([*columns, *numbers], [*by, "tool_calls", "calls"], "")


def of_usage(by: Sequence[str]) -> Listed:
    """Usage: what was summed by, then the sums, costs in dollars."""
    sums = ("calls", "failed", "input_tokens", "output_tokens", "cached_tokens", "unpriced")
    columns = [TableColumn(heading=name, value=name, least=6) for name in by]
    columns += [TableColumn(heading=name.replace("_", " "), value=name) for name in sums]
    columns += [
        TableColumn(heading=heading, value=partial(_usd, name))
        for heading, name in (("cost", "cost_nanousd"), ("judges", "judge_nanousd"))
    ]
    return Listed(columns, [*by, *sums, "cost_nanousd", "judge_nanousd"], "")


def _usd(name: str, item: Item) -> str:
    return dollars(item[name])


_OF_CALL = (
    TableColumn(heading="session", value="session", least=8, is_extra=True),
    TableColumn(heading="policy", value="policy", least=8, is_extra=True),
    TableColumn(heading="model", value="model", least=8, is_extra=True),
)


LISTS: dict[ListName, Callable[[Sequence[Item]], Listed]] = {
    "calls": of_calls,
    "tool-calls": of_tool_calls,
    "judge-blocks": of_judge_blocks,
    "reviews": of_reviews,
}


def cause(item: Item) -> object:
    """Return the rule by which something was decided, or the reason where no rule has a name."""
    return item.get("rule") or item["reason"]


def _in_words(item: Item) -> str:
    return item.get("why") or SENTENCES.get(item["reason"], "")


def judged(judge: Item) -> str:
    """Return how probable a judge found it, and from where on it is too much."""
    numbers = [judge.get("probability"), judge.get("threshold")]
    return " of ".join("-" if number is None else f"{number:.2f}" for number in numbers)


def brief(arguments: str | None) -> str | None:
    """Return the arguments of a tool call as a row shows them: of an object that holds one text and
    nothing else, that text."""
    try:
        # as pairs: of two with one name a mapping would show the last alone
        parsed = json.loads(arguments or "", object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return arguments
    only = parsed[0][1] if isinstance(parsed, tuple) and len(parsed) == 1 else None
    return only if isinstance(only, str) and only.strip() else arguments
