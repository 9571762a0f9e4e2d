"""Rules about sequences and numbers of calls: "no mail once a secret was read", "no deployment
before the tests", "at most 50 calls".

What a session did before stands in its request: the earlier calls and their results, as the client
sends them. So a client that leaves calls out, as many do to keep a long conversation short, begins
to count anew. Calls that were blocked were never made, and do not count.
"""

from collections.abc import Reversible, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, Self

from policy.base import ALLOW, Block, Context, Policy, ToolCall, Verdict
from policy.builtin.arguments import Looks
from policy.builtin.compiled_rules import CompiledRule, weight_of
from policy.builtin.effect_rules import Held
from policy.builtin.session_options import SessionRule, SessionRulesOptions, Total
from policy.claims.claims import NO_CLAIMS, ProjectClaims
from policy.effects.history.past_calls import value_of
from policy.effects.places import AUTO, Places, places_of
from policy.patterns import compile_re2
from protocol.conversations.earlier_turns import EarlierTurns
from protocol.request import ToolResultPart, ToolUsePart, Turn

_SURELY: frozenset[Held] = frozenset(("yes",))
_PERHAPS: frozenset[Held] = frozenset(("yes", "unsure"))

MAX_CALLS = 5_000
"""Calls of a history that are looked at, newest first."""
MAX_CHARS = 128 * 1024
"""Of their arguments and results that rules look into."""
MAX_WORK = 20_000
"""Rules that are tried on earlier calls. What lies behind a bound counts as matched, but for
`unless`."""


class _Past:
    """A call that was made, and what rules make of it, each asked once. `result` None: it has none
    yet."""

    def __init__(self, looks: Looks, call: ToolCall, result: str | None, *, is_read: bool) -> None:
        self.call, self.result = call, result
        self._looks, self._is_read = looks, is_read
        self._held: dict[CompiledRule, Held] = {}

    def holds(self, rule: CompiledRule, work: list[int]) -> Held:
        """Does a rule match it? `work`: how often one may still be tried."""
        if rule not in self._held:
            work[0] -= 1
            if not rule.is_for(self.call):
                self._held[rule] = "no"
            elif work[0] < 0 or not self._is_read:
                self._held[rule] = "unsure"
            else:
                self._held[rule] = rule.holds(self.call, self._looks)
        return self._held[rule]

    def shows(self, pattern: Any) -> Held:
        """Does its result contain what a pattern says?"""
        if pattern is None:
            return "yes"
        if not self._is_read:
            return "unsure"
        return "yes" if self.result is not None and pattern.search(self.result) else "no"


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
        self._places = self._places_of(NO_CLAIMS)
        self.reads_project = self.options.project == AUTO and any(
            rule.reads_effects for rule in rules
        )
        self.weight = weight_of(rules)
        self._earlier = EarlierTurns()
        self._session = _Session(self._earlier, self._places)

    def for_call(self, context: Context) -> Self:
        """Give the call what its session did before."""
        clone = super().for_call(context)
        clone._places = self._places_of(context.claims)
        clone._earlier = context.earlier
        clone._session = _Session(context.earlier, clone._places)
        return clone

    def _places_of(self, claims: ProjectClaims) -> Places:
        options = self.options
        return places_of(options.project, options.home, options.hosts, claims)

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Decide by the rules, in their order."""
        if self._earlier.is_lost:
            return Block("history_unavailable")
        before = self._session.before(call)
        looks = Looks(call, self._places)
        for compiled, rule, name in self._rules:
            if compiled.denies(call, looks) and self._applies(compiled, rule, call, before):
                return Block(rule.reason, rule.message, name)
        self._session.remember(call)
        return ALLOW

    def _applies(
        self, compiled: CompiledRule, rule: SessionRule, call: ToolCall, before: Sequence[_Past]
    ) -> bool:
        latest = before[: rule.within]
        if any(self._times(label, latest, _PERHAPS) < rule.at_least for label in rule.if_):
            return False
        if any(self._times(label, latest, _SURELY) for label in rule.unless):
            return False
        if rule.max_calls is None and rule.total is None:
            return True
        work = self._session.work
        same = [past for past in latest if past.holds(compiled, work) in _PERHAPS]
        return (rule.max_calls is not None and len(same) >= rule.max_calls) or (
            rule.total is not None and _is_above(rule.total, [call, *(past.call for past in same)])
        )

    def _times(self, label: str, before: Sequence[_Past], enough: frozenset[Held]) -> int:
        """How many of the calls set a label, as sure as is enough."""
        work = self._session.work
        return sum(
            any(
                name == label
                and past.holds(compiled, work) in enough
                and past.shows(pattern) in enough
                for name, compiled, pattern in self._labels
            )
            for past in before
        )


class _Session:
    """The calls before a call, newest first: those of the request, and the ones of this answer."""

    def __init__(self, turns: Reversible[Turn], places: Places) -> None:
        self._turns, self._places = turns, places
        self._answer: dict[int, _Past] = {}
        self.work = [MAX_WORK]

    def remember(self, call: ToolCall) -> None:
        """Add a call of this answer that passes."""
        if call.block not in self._answer:
            looks = Looks(call, self._places)
            self._answer[call.block] = _Past(looks, call, None, is_read=True)

    def before(self, call: ToolCall) -> list[_Past]:
        """Return the calls before this one."""
        answered = [past for block, past in self._answer.items() if block < call.block]
        return [*reversed(answered), *self._earlier]

    @cached_property
    def _earlier(self) -> list[_Past]:
        results: dict[str, str] = {}
        calls: list[_Past] = []
        chars = 0
        for part in (part for turn in reversed(self._turns) for part in reversed(turn.parts)):
            if type(part) is ToolResultPart:
                results.setdefault(part.tool_call_id, part.text)
            elif type(part) is ToolUsePart and len(calls) < MAX_CALLS:
                result = results.pop(part.id, None)
                chars += len(part.arguments) + len(result or "")
                is_read = chars <= MAX_CHARS
                value = value_of(part.arguments) if is_read else {}
                call = ToolCall(-1, -1, part.id, part.name, part.arguments, value, None)
                calls.append(_Past(Looks(call, self._places), call, result, is_read=is_read))
        return calls


def _is_above(total: Total, calls: Sequence[ToolCall]) -> bool:
    """Is the sum too high, or not known?"""
    amounts = [call.value.get(total.argument) for call in calls]
    if not all(type(amount) in (int, float, str) for amount in amounts):
        return True
    try:
        # what is taken back does not make room for more
        return not sum(abs(Decimal(str(amount)[:64])) for amount in amounts) <= Decimal(
            str(total.max)
        )
    except (ArithmeticError, ValueError):
        return True
