"""Policies: which revisions live workers have, and what each did in a day and a week."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import Any
from uuid import UUID

from db.engine import reading
from db.filters import parse_filters
from db.read import policies as of_record
from db.read.counts import UsageGroup
from db.read.usage import Judged, judged, last_days, share, usage
from pages import links
from pages.escape import spelled
from pages.figures import figures_of
from pages.listing import FIRST_BYTES
from pages.page import Page, PageRequest, Route, ShownContent
from pages.views.call import check_query
from protocol.errors import NotFound
from settings.config import PolicyStep

DAYS = (1, 7)
BLOCKS = 20
BY = (UsageGroup.POLICY, UsageGroup.REVISION)
Pair = tuple[str, str]


async def list_policies(asked: PageRequest) -> Page:
    """Every policy and revision of the last week, and those that workers have."""
    check_query(asked)
    look, rows = await asyncio.gather(figures_of(asked.services).look(), _rows(asked, None))
    held = _held(look)
    policy_rows = [
        *rows["items"],
        *(
            _empty(name, revision)
            for name, revision in sorted(held)
            if (name, revision) not in rows["known"]
        ),
    ]
    values = {
        "rows": [
            row | {"held": held.get((row["policy"], row["revision"]), 0)} for row in policy_rows
        ],
        "newest": rows["newest"],
        "is_known": look["workers"]["age_s"] is not None,
        "waiting": _waiting(look, held),
        "days": DAYS,
    }
    return Page(template="policies.html", title="Policies", values=values)


async def show_policy(asked: PageRequest) -> Page:
    """One policy: its revisions, why it did not release, how judges answered, and its last blocks.
    Raises NotFound."""
    check_query(asked)
    name = asked.params["name"]
    filters = parse_filters(
        [("policy", name), ("verdict", "block"), ("limit", str(BLOCKS))], of="tool-calls"
    )
    since = datetime.now(UTC) - timedelta(days=DAYS[-1])
    look, rows, (blocks, _), (why, is_cut, counts) = await asyncio.gather(
        figures_of(asked.services).look(),
        _rows(asked, name),
        asked.services.reader.lines("tool-calls", filters, first=FIRST_BYTES),
        _reasons(asked, since, name),
    )
    held = {pair: n for pair, n in _held(look).items() if pair[0] == name}
    steps = asked.services.settings.config.policies.get(name, ())
    if not rows["items"] and not held and not blocks and not steps:
        raise NotFound(
            f"no policy named {spelled(name)[:80]} is configured or decided anything in the last"
            f" {DAYS[-1]} days"
        )
    items = [*rows["items"], *(_empty(*pair) for pair in sorted(held) if pair not in rows["known"])]
    values = {
        "policy": name,
        "rows": [row | {"held": held.get((row["policy"], row["revision"]), 0)} for row in items],
        "newest": rows["newest"],
        "is_known": look["workers"]["age_s"] is not None,
        "days": DAYS,
        "reasons": [row._asdict() for row in why[: of_record.MAX_REASONS]],
        "parts": [{"use": step.use, "options": _json(step.options)} for step in steps],
        "rules": _rules(steps, counts),
        "most_rules": of_record.MAX_RULES,
        "try_call": (
            f"sluice check sluice.yaml --policy {quote(name)} --try-call bash"
            f" '{_json({'command': 'ls'})}'"
        ),
        "reasons_more": len(why) > of_record.MAX_REASONS,
        "reasons_cut": is_cut,
        "most": of_record.MOST,
        "blocks": blocks,
        "histograms": _histograms(rows["judged"]),
        "waiting": [row for row in _waiting(look, _held(look)) if row["policy"] == name],
    }
    shown = ShownContent(
        [UUID(call) for call in {row["call_id"] for row in blocks}], len(blocks) + len(why)
    )
    return Page(
        template="policy.html", title=f"{spelled(name)[:60]} · policy", values=values, shown=shown
    )


async def _reasons(
    asked: PageRequest, since: datetime, name: str
) -> tuple[list[of_record.Reason], bool, list[tuple[str, str, int]]]:
    async with reading(asked.services.reader.engine) as connection:
        why, is_cut = await of_record.reasons(connection, since, name)
        return why, is_cut, await of_record.rules(connection, since, name)


def _json(value: object) -> str:
    # YAML has values that JSON has not
    return json.dumps(value, ensure_ascii=False, default=str)


def _rules(
    steps: Sequence[PolicyStep], counts: Sequence[tuple[str, str, int]]
) -> list[dict[str, Any]]:
    """The rules of a policy with how often each decided, the most frequent first: those of the
    configuration, then those of an earlier revision."""
    left = {(part, rule): n for part, rule, n in counts}
    rules = []
    for step in steps:
        for name, listed in step.options.items():
            for place, rule in enumerate(listed if isinstance(listed, list | tuple) else ()):
                if isinstance(rule, dict):
                    rule_name = str(rule.get("name") or f"{name}[{place}]")
                    rule_body = {key: value for key, value in rule.items() if key != "name"}
                    rules.append(
                        {
                            "part": step.use,
                            "list": name,
                            "rule": rule_name,
                            "says": _json(rule_body),
                            "n": left.pop((step.use, rule_name), 0),
                        }
                    )
    rules += [
        {"part": part, "list": "", "rule": rule, "says": None, "n": n}
        for (part, rule), n in left.items()
    ]
    return sorted(rules, key=lambda row: -row["n"])


async def _rows(asked: PageRequest, name: str | None) -> dict[str, Any]:
    """Return a row for each policy and revision, with the sums of a day and of a week."""
    engine, now = asked.services.reader.engine, datetime.now(UTC)
    only = {} if name is None else {UsageGroup.POLICY: name}
    spans = [last_days(days, now) for days in DAYS]
    of_days = [await usage(engine, entry, BY, only) for entry in spans]
    judges = [
        {(entry.policy, entry.revision): entry for entry in await judged(engine, span, name)}
        for span in spans
    ]
    async with reading(engine) as connection:
        labels = await of_record.labels(connection, spans[-1].since, name)
    sums = [{_pair(item): item for item in entry["items"]} for entry in of_days]
    items = [
        {
            "policy": pair[0],
            "revision": pair[1],
            "periods": [
                _period(day.get(pair), judge.get(pair), days)
                for day, judge, days in zip(sums, judges, DAYS, strict=True)
            ],
            "labels": labels.get(pair, {}),
            "wrong": share(
                labels.get(pair, {}).get("wrong", 0), sum(labels.get(pair, {}).values())
            ),
        }
        for pair in sums[-1]
        if pair != ("", "")
    ]
    newest = "left out" if any(entry["newest"] == "left out" for entry in of_days) else "counted"
    return {
        "items": items,
        "known": set(sums[-1]),
        "newest": newest,
        "judged": list(judges[-1].values()),
    }


def _pair(item: Mapping[str, Any]) -> Pair:
    return item["policy"], item["revision"]


def _period(item: Mapping[str, Any] | None, judge: Judged | None, days: int) -> dict[str, Any]:
    """The sums of some days of one revision."""
    names = (
        "calls",
        "failed",
        "tool_calls",
        "refused",
        "replaced",
        "blocks_refused",
        "blocks_replaced",
        "faults",
        "judge_n",
        "judge_failed",
        "judge_late",
        "judge_over",
    )
    counts: dict[str, Any] = {name: item[name] if item else 0 for name in names}
    return {
        "days": days,
        **counts,
        "p50_ms": judge.p50_ms if judge else None,
        "p95_ms": judge.p95_ms if judge else None,
    }


def _empty(name: str, revision: str) -> dict[str, Any]:
    """The row of a revision under which no call began."""
    return {
        "policy": name,
        "revision": revision,
        "periods": [_period(None, None, days) for days in DAYS],
        "labels": {},
        "wrong": None,
    }


def _held(look: Mapping[str, Any]) -> dict[Pair, int]:
    return {(policy, revision): n for policy, revision, n in look["workers"].get("held", [])}


def _waiting(look: Mapping[str, Any], held: Mapping[Pair, int]) -> list[dict[str, Any]]:
    """The open calls, of those that are looked at, whose revision no living worker has."""
    if look["workers"]["age_s"] is None:
        return []
    return [
        call
        for call in look["open"].get("calls", [])
        if call["revision"] and (call["policy"], call["revision"]) not in held
    ]


def _histograms(judgements: Sequence[Judged]) -> list[dict[str, Any]]:
    """How often a probability fell into each tenth, by revision and threshold."""
    return [
        {
            "revision": judgement.revision,
            "threshold": threshold,
            "total": sum(bins),
            "bins": [[f"{n / 10:.1f} to {(n + 1) / 10:.1f}", many] for n, many in enumerate(bins)],
        }
        for judgement in judgements
        for threshold, bins in sorted(judgement.bins.items())
    ]


ROUTES = (Route(links.POLICIES, list_policies), Route(f"{links.POLICIES}/{{name}}", show_policy))
