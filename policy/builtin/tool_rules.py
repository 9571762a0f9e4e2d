"""Deterministic rules about tool calls: names, argument patterns, JSON Schemas, SQL by kind. No
judge can overrule them.

A rule's conditions must all hold. Where a condition cannot be decided (SQL that does not parse,
more text than is looked at), a `deny` rule applies and an `allow` rule does not. A `deny` rule
takes names and keys for whatever a lenient program may take them for; an `allow` rule takes them
exactly, and vouches for no arguments with a key that only looks like its own.
"""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import msgspec

from policy.base import ALLOW, Allow, Ask, Block, Context, Policy, Replace, ToolCall, Verdict
from policy.builtin.arguments import Looks, schema_of
from policy.builtin.compiled_rules import CompiledRule, RuleSchema, weight_of
from policy.builtin.rule_options import Rule, ToolRulesOptions
from policy.claims.claims import NO_CLAIMS, mark_of
from policy.effect_sentences import describe_unsure
from policy.effects.places import AUTO, places_of
from policy.schemas.schemas import ToolSchemas, TooMuchWork

if TYPE_CHECKING:
    from policy.effects.history.conversation import EarlierCalls

_NOTED = Allow(reason="unread", rule="unread")
"""What becomes of a call with text that no rule could look at, where that is allowed."""


class RuleMatch(NamedTuple):
    """A rule that matches a call, in which list, and the sentence about the call."""

    list_name: str
    name: str
    why: str = ""


_AnyRule = TypeVar("_AnyRule", bound=Rule)


def _compiled(
    list_name: str, rules: Sequence[_AnyRule]
) -> list[tuple[CompiledRule, _AnyRule, str]]:
    """Return the rules ready to be asked, each with its name on record."""
    return [
        (CompiledRule(rule), rule, rule.name or f"{list_name}[{place}]")
        for place, rule in enumerate(rules)
    ]


class ToolRules(Policy):
    """Block or replace tool calls by rules, or ask about them. A block wins over a replacement, an
    allow list over both, and a question over an allow list."""

    name = "tool_rules"
    keeps_request = False

    def __init__(self, **options: object) -> None:
        self.options = ToolRulesOptions.model_validate(options)
        allow = self.options.allow
        self._allow = None if allow is None else [CompiledRule(rule) for rule in allow]
        self._deny = _compiled("deny", self.options.deny)
        self._ask = _compiled("ask", self.options.ask)
        self._schemas: dict[str, RuleSchema] = {}
        self._compiled = ToolSchemas()
        self._history: EarlierCalls | None = None
        objecting = (*self.options.deny, *self.options.ask)
        rules = (*(allow or ()), *objecting)
        approval = self.options.approval
        self._approval = None if approval is None else approval.as_asked()
        self._claims = NO_CLAIMS
        self._reads = any(rule.reads_effects for rule in rules)
        self.reads_project = self._reads and self.options.project == AUTO
        self._heeds_unsure = self.options.unsure != "allow" and any(
            rule.reads_effects for rule in objecting
        )
        self.weight = weight_of(rules)
        self.remembers = self.options.memory and self._reads

    def why_idle(self) -> str:
        """Without rules nothing is refused, nor where one rule allows whatever there is."""
        options = self.options
        if (
            options.deny
            or options.ask
            or options.validate_schema
            or (options.allow is not None and not any(rule.is_about_all for rule in options.allow))
        ):
            return ""
        return (
            "a rule of `allow` names every call: name fewer"
            if options.allow
            else "it has no rules: give `allow`, `deny`, `ask` or `validate_schema`"
        )

    def for_call(self, context: Context) -> Self:
        """Give the call its own compiled tool schemas, and the calls before it."""
        clone = super().for_call(context)
        clone._schemas, clone._compiled = {}, ToolSchemas()
        clone._claims = context.claims
        if self.remembers:
            # loads what reads shell texts, which only rules about effects need
            from policy.effects.history.conversation import EarlierCalls

            # what the client sent, whatever policies make of it
            clone._history = EarlierCalls(context.earlier)
        return clone

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Decide by the rules."""
        if self._history is not None and self._history.is_lost:
            return Block("history_unavailable")
        verdict = self._decide(call)
        if self._history is not None and not isinstance(verdict, Block):
            self._history.remember(call)
        return verdict

    def _decide(self, call: ToolCall) -> Verdict:
        looks = self.looks(call)
        if (
            self.options.validate_schema
            and call.executor == "client"
            and not self._fits(call, looks)
        ):
            return Block("schema", rule="validate_schema")
        replacement: Replace | None = None
        noted = ALLOW
        for compiled, rule, name in self._deny:
            if (held := compiled.holds(call, looks)) == "no":
                continue
            if rule.decision == "block":
                return Block(
                    rule.reason if held == "yes" else "unsure",
                    rule.message,
                    name,
                    why=compiled.why(call, looks, held),
                )
            replacement = replacement or Replace(json.dumps(rule.arguments), rule.reason, name)
        question = self._question(call, looks)
        if isinstance(question, Ask):
            mark = mark_of(looks.places.project, call.name, call.value)
            if mark in self._claims.allowed:
                noted = Allow(reason="allowed_always", rule=question.rule)
                question = None
            else:
                question = msgspec.structs.replace(question, mark=mark, approval=self._approval)
        if isinstance(question, Block) or (question is not None and replacement is None):
            return question
        if self._allow is not None and not any(rule.allows(call, looks) for rule in self._allow):
            return Block("not_allowed", rule="allow")
        if replacement is None and self._reads and looks.surface.is_unread:
            return _NOTED
        return replacement or noted

    def looks(self, call: ToolCall) -> Looks:
        """Return what the rules see of a call."""
        options = self.options
        places = places_of(options.project, options.home, options.hosts, self._claims)
        return Looks(call, places, self._history)

    def matching(self, call: ToolCall) -> Iterator[RuleMatch]:
        """Yield all rules that match a call, whichever decides: for people who ask why."""
        looks = self.looks(call)
        for list_name, rules in (("deny", self._deny), ("ask", self._ask)):
            for compiled, _, name in rules:
                if (held := compiled.holds(call, looks)) != "no":
                    yield RuleMatch(list_name, name, compiled.why(call, looks, held))
        open_question = self._question(call, looks)
        if open_question is not None and open_question.rule == "unsure":
            is_denied = isinstance(open_question, Block)
            yield RuleMatch("deny" if is_denied else "ask", "unsure", open_question.why)
        for place, compiled in enumerate(self._allow or ()):
            if compiled.allows(call, looks):
                yield RuleMatch("allow", compiled.rule.name or f"allow[{place}]")

    def _question(self, call: ToolCall, looks: Looks) -> Ask | Block | None:
        """What is asked about the call, or where too little is known of it the block."""
        if (
            self._heeds_unsure
            and any(rule.asks_effects_of(call) for rule, _, _ in (*self._deny, *self._ask))
            and looks.touch.unsure
        ):
            is_open = self.options.unsure == "ask"
            why = describe_unsure(looks.touch.unsure)
            return (Ask if is_open else Block)("unsure", rule="unsure", why=why)
        unread = self.options.unread if self._reads and looks.surface.is_unread else "allow"
        if unread == "block":
            return Block("unread", rule="unread")
        for compiled, rule, name in self._ask:
            if (held := compiled.holds(call, looks)) != "no":
                reason = rule.reason if held == "yes" else "unsure"
                return Ask(reason, rule.message, name, compiled.why(call, looks, held))
        return Ask("unread", rule="unread") if unread == "ask" else None

    def _fits(self, call: ToolCall, looks: Looks) -> bool:
        schema = None if call.tool is None else schema_of(call.tool)
        if schema is None:
            return False
        try:
            compiled = self._compiled.compiled(call.name, schema)
        except TooMuchWork:
            return False
        if compiled is None:
            return False
        known = self._schemas.get(call.name)
        if known is None or not known.is_of(compiled):
            known = self._schemas[call.name] = RuleSchema(schema, compiled)
        return known.fits(call.value, looks)
