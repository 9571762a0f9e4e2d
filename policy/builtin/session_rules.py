"""Rules about sequences and numbers of calls: "no mail once a secret was read", "no deployment
before the tests", "at most 50 calls".

What a session did before stands in its request: the earlier calls and their results, as the client
sends them. So a client that leaves calls out, as many do to keep a long conversation short, begins
to count anew. Calls that were blocked were never made, and do not count.
"""

from collections.abc import Sequence, Set
from decimal import Decimal
from functools import cached_property
from typing import Any, Self

import msgspec

from policy.base import ALLOW, Block, Context, Policy, ToolCall, Verdict
from policy.builtin.arguments import Looks
from policy.builtin.compiled_rules import CompiledRule, weight_of
from policy.builtin.effect_rules import Held
from policy.builtin.session_options import SessionRule, SessionRulesOptions
from policy.effects.history.past_calls import value_of
from policy.effects.places import AUTO, NOWHERE, Places, places_of
from policy.patterns import compile_re2
from protocol.conversations.earlier_turns import EarlierTurns
from protocol.request import ToolResultPart, ToolUsePart

MAX_CALLS = 5_000
"""Calls of a history that are looked at, newest first."""
MAX_CHARS = 128 * 1024
"""Of their arguments and results that rules look into."""
MAX_WORK = 20_000
"""Rules that are tried on earlier calls. What lies behind a bound counts as matched, but for
`unless`."""


class _Past(msgspec.Struct, frozen=True):
    """A call that was made. `result` None: it has none yet."""

    call: ToolCall
    looks: Looks
    result: str | None
    is_read: bool


class SessionRules(Policy):
    """Block tool calls by what the calls before them did."""

    name = "session_rules"
    keeps_request = False
    remembers = True

    def __init__(self, **options: object) -> None:
        self.options = SessionRulesOptions.model_validate(options)
        self._labels = [
            (
                rule.label,
                CompiledRule(rule),
                None if rule.result_matches is None else compile_re2(rule.result_matches),
            )
            for rule in self.options.labels
        ]
        self._rules = [
            (CompiledRule(rule), rule, rule.name or f"rules[{place}]")
            for place, rule in enumerate(self.options.rules)
        ]
        rules = (*self.options.labels, *self.options.rules)
        self.reads_project = self.options.project == AUTO and any(
            rule.reads_effects for rule in rules
        )
        self.weight = weight_of(rules)
        self._session = _Session(EarlierTurns(), NOWHERE)

    def for_call(self, context: Context) -> Self:
        """Give the call what its session did before."""
        clone, options = super().for_call(context), self.options
        places = places_of(options.project, options.home, options.hosts, context.claims)
        clone._session = _Session(context.earlier, places)
        return clone

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Decide by the rules, in their order."""
        if self._session.turns.is_lost:
            return Block("history_unavailable")
        this = self._session.past(call, None)
        before = self._session.before(call)
        for compiled, rule, name in self._rules:
            if compiled.denies(call, this.looks) and self._applies(compiled, rule, this, before):
                return Block(rule.reason, rule.message, name)
        self._session.answer.setdefault(call.block, this)
        return ALLOW

    def _applies(
        self, compiled: CompiledRule, rule: SessionRule, this: _Past, before: Sequence[_Past]
    ) -> bool:
        latest = before[: rule.within]
        if not all(self._is_set(label, latest, {"yes", "unsure"}) for label in rule.if_) or any(
            self._is_set(label, latest, {"yes"}) for label in rule.unless
        ):
            return False
        if rule.max is None:
            return True
        calls = [past.call for past in latest if self._session.holds(past, compiled) != "no"]
        return _is_above(rule.max, rule.sum, [this.call, *calls])

    def _is_set(self, label: str, before: Sequence[_Past], enough: Set[Held]) -> bool:
        """Did one of the calls set a label, as sure as is enough?"""
        return any(
            self._session.holds(past, compiled, pattern) in enough
            for name, compiled, pattern in self._labels
            if name == label
            for past in before
        )


class _Session:
    """The calls before a call, newest first: those of the request, and the ones of this answer that
    passed, by their blocks."""

    def __init__(self, turns: EarlierTurns, places: Places) -> None:
        self.turns, self._places = turns, places
        self.answer: dict[int, _Past] = {}
        self._held: dict[tuple[int, CompiledRule], Held] = {}

    def past(self, call: ToolCall, result: str | None, *, is_read: bool = True) -> _Past:
        """Return a call as one of the session."""
        return _Past(call, Looks(call, self._places), result, is_read)

    def holds(self, past: _Past, rule: CompiledRule, pattern: Any = None) -> Held:
        """Does a rule match a call, and a pattern its result? Each is asked once."""
        key = id(past), rule
        if key not in self._held:
            if not rule.is_for(past.call):
                held: Held = "no"
            elif len(self._held) >= MAX_WORK or not past.is_read:
                held = "unsure"
            elif pattern is not None and not pattern.search(past.result or ""):
                held = "no"
            else:
                held = rule.holds(past.call, past.looks)
            self._held[key] = held
        return self._held[key]

    def before(self, call: ToolCall) -> list[_Past]:
        """Return the calls before this one."""
        answered = [past for block, past in self.answer.items() if block < call.block]
        return [*reversed(answered), *self._earlier]

    @cached_property
    def _earlier(self) -> list[_Past]:
        results: dict[str, str] = {}
        calls: list[_Past] = []
        chars = 0
        for part in (part for turn in reversed(self.turns) for part in reversed(turn.parts)):
            if type(part) is ToolResultPart:
                results.setdefault(part.tool_call_id, part.text)
            elif type(part) is ToolUsePart and len(calls) < MAX_CALLS:
                result = results.pop(part.id, None)
                chars += len(part.arguments) + len(result or "")
                is_read = chars <= MAX_CHARS
                value = value_of(part.arguments) if is_read else {}
                call = ToolCall(-1, -1, part.id, part.name, part.arguments, value, None)
                calls.append(self.past(call, result, is_read=is_read))
        return calls


def _is_above(most: float, argument: str | None, calls: Sequence[ToolCall]) -> bool:
    """Are there more calls, or is the sum higher, or not known?"""
    amounts = [1 if argument is None else call.value.get(argument) for call in calls]
    if not all(type(amount) in (int, float, str) for amount in amounts):
        return True
    try:
        # what is taken back does not make room for more
        return not sum(abs(Decimal(str(amount)[:64])) for amount in amounts) <= Decimal(str(most))
    except (ArithmeticError, ValueError):
        return True
