"""Deterministic rules about tool calls: names, argument patterns, JSON Schemas, SQL by kind. No
judge can overrule them.

A rule's conditions must all hold. Where a condition cannot be decided (SQL that does not parse,
more text than is looked at), a `deny` rule applies and an `allow` rule does not. A `deny` rule
takes names and keys for whatever a lenient program may take them for; an `allow` rule takes them
exactly, and vouches for no arguments with a key that only looks like its own.
"""

import json
from typing import Self

from policy.base import ALLOW, Block, Context, Policy, Replace, ToolCall, Verdict
from policy.builtin.arguments import Looks, schema_of
from policy.builtin.compiled_rules import CompiledRule, RuleSchema, weight_of
from policy.builtin.rule_options import ToolRulesOptions
from policy.effects.history.conversation import History
from policy.effects.places import Places
from policy.schemas.schemas import ToolSchemas, TooMuchWork


class ToolRules(Policy):
    """Block or replace tool calls by rules. A block wins over a replacement, and an allow list over
    both."""

    name = "tool_rules"
    keeps_request = False

    def __init__(self, **options: object) -> None:
        self.options = ToolRulesOptions.model_validate(options)
        allow = self.options.allow
        self._allow = None if allow is None else [CompiledRule(rule) for rule in allow]
        self._deny = [
            (CompiledRule(rule), rule, rule.name or f"deny[{place}]")
            for place, rule in enumerate(self.options.deny)
        ]
        self._schemas: dict[str, RuleSchema] = {}
        self._compiled = ToolSchemas()
        self._history: History | None = None
        self._places = Places(self.options.project, self.options.home, self.options.hosts)
        self._blocks_unsure = self.options.unsure == "block" and any(
            rule.reads_effects for rule in self.options.deny
        )
        self._remembers = self.options.memory and any(
            rule.reads_effects for rule in (*(allow or ()), *self.options.deny)
        )
        self.weight = weight_of((*(allow or ()), *self.options.deny))

    def why_idle(self) -> str:
        """Without rules nothing is refused, nor where one rule allows whatever there is."""
        options = self.options
        if (
            options.deny
            or options.validate_schema
            or (options.allow is not None and not any(rule.is_about_all for rule in options.allow))
        ):
            return ""
        return (
            "a rule of `allow` names every call: name fewer"
            if options.allow
            else "it has no rules: give `allow`, `deny` or `validate_schema`"
        )

    def for_call(self, context: Context) -> Self:
        """Give the call its own compiled tool schemas, and the calls before it."""
        clone = super().for_call(context)
        clone._schemas, clone._compiled = {}, ToolSchemas()
        if self._remembers:
            # what the client sent, whatever policies make of it
            clone._history = History(context.request.turns)
        return clone

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Decide by the rules."""
        verdict = self._decide(call)
        if self._history is not None and not isinstance(verdict, Block):
            self._history.remember(call)
        return verdict

    def _decide(self, call: ToolCall) -> Verdict:
        looks = Looks(call, self._places, self._history)
        if (
            self.options.validate_schema
            and call.executor == "client"
            and not self._fits(call, looks)
        ):
            return Block("schema", rule="validate_schema")
        matching = [
            (rule, name, held)
            for compiled, rule, name in self._deny
            if (held := compiled.holds(call, looks)) != "no"
        ]
        for rule, name, held in matching:
            if rule.decision == "block":
                return Block(rule.reason if held == "yes" else "unsure", rule.message, name)
        if (
            self._blocks_unsure
            and any(compiled.asks_effects_of(call) for compiled, _, _ in self._deny)
            and looks.touch.unsure
        ):
            return Block("unsure", rule="unsure")
        if self._allow is not None and not any(rule.allows(call, looks) for rule in self._allow):
            return Block("not_allowed", rule="allow")
        for rule, name, _ in matching:
            return Replace(json.dumps(rule.arguments), rule.reason, name)
        return ALLOW

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
