"""Deterministic rules about tool calls: names, argument patterns, JSON Schemas, SQL by kind. No judge can overrule them.

A rule's conditions must all hold. Where a condition cannot be decided (SQL that does not parse), a `deny` rule applies
and an `allow` rule does not.
"""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from policy.arguments import scalars, spellings, texts
from policy.base import ALLOW, Block, Context, Executor, Policy, Replace, ToolCall, Verdict, shown
from policy.patterns import NamePattern, Names, Pattern, compile_re2
from policy.schemas import TooMuchWork, compile_client_schema, compile_schema
from policy.sql import Kind, NotOneStatement, check_dialect, kinds_of
from protocol.bounds import MAX_RULES


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _check_schema(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    if schema is not None:
        compile_schema(schema)
    return schema


class Sql(_Strict):
    """The SQL text in `argument`, read in `dialect`. Allow: exactly one statement, all of its kinds among `kinds`.
    Deny: one of `kinds` occurs, or the text is not exactly one statement that can be parsed."""

    argument: str
    kinds: tuple[Kind, ...]
    dialect: Annotated[str, AfterValidator(check_dialect)]


class Rule(_Strict):
    """What calls a rule is about.

    `tool`: names, by shell pattern or `{re2: ...}`, one or a list. `executor`: who runs the call, one or a list; none is
    everybody. `server`: the MCP server that runs it, as `tool`. `argument_matches`: an RE2 pattern. Deny: found in any
    string, key or list of strings of the arguments, or in their exact text. Allow: matches each value whole. `argument`:
    look only at this top-level argument. `schema`: the arguments are valid under this JSON Schema. `sql`: see Sql.
    """

    tool: NamePattern | list[NamePattern] = "*"
    argument_matches: Pattern | None = None
    argument: str | None = None
    schema_: Annotated[dict[str, Any] | None, AfterValidator(_check_schema), Field(alias="schema")] = None
    sql: Sql | None = None
    executor: Executor | Annotated[list[Executor], Field(min_length=1)] | None = None
    server: NamePattern | list[NamePattern] | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.argument is not None and self.argument_matches is None:
            raise ValueError("`argument` needs `argument_matches`")
        return self


class DenyRule(Rule):
    """What happens to the calls: `block` with a reason and a message for the client, or `replace` with `arguments`."""

    decision: Literal["block", "replace"] = "block"
    arguments: dict[str, Any] | None = None
    reason: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")] = "rule"
    message: str = ""

    @model_validator(mode="after")
    def _replaces_by_something(self) -> Self:
        if (self.decision == "replace") != (self.arguments is not None):
            raise ValueError("`arguments` are given exactly where the decision is `replace`")
        return self


class Options(_Strict):
    """Options of `tool_rules`.

    With `allow`, what no allow rule matches is blocked; with `validate_schema`, what does not fit its tool's own schema,
    of calls that the client runs: providers check the arguments of their own tools.
    """

    allow: Annotated[tuple[Rule, ...], Field(max_length=MAX_RULES)] | None = None
    deny: Annotated[tuple[DenyRule, ...], Field(max_length=MAX_RULES)] = ()
    validate_schema: bool = False


class _Compiled:
    """A rule ready to be asked."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._names = Names(rule.tool)
        executors = [rule.executor] if isinstance(rule.executor, str) else rule.executor
        self._executors = None if executors is None else frozenset(executors)
        self._servers = None if rule.server is None else Names(rule.server)
        self._pattern = compile_re2(rule.argument_matches) if rule.argument_matches is not None else None
        self._schema = compile_schema(rule.schema_) if rule.schema_ is not None else None

    def denies(self, call: ToolCall) -> bool:
        """Do all conditions hold, or cannot be decided?"""
        return (
            self._runs(call)
            and any(self._names.match(name) for name in spellings(call.name))
            and self._fits(call, undecided=True)
            and (self._pattern is None or self._finds(call))
            and (self.rule.sql is None or _sql_denies(self.rule.sql, call))
        )

    def allows(self, call: ToolCall) -> bool:
        """Do all conditions surely hold?"""
        return (
            self._runs(call)
            and self._names.match(call.name)
            and self._fits(call, undecided=False)
            and (self._pattern is None or self._covers(call))
            and (self.rule.sql is None or _sql_allows(self.rule.sql, call))
        )

    def _fits(self, call: ToolCall, *, undecided: bool) -> bool:
        try:
            return self._schema is None or bool(self._schema.is_valid(call.value))
        except TooMuchWork:
            return undecided

    def _runs(self, call: ToolCall) -> bool:
        by_executor = self._executors is None or call.executor in self._executors
        return by_executor and (self._servers is None or (bool(call.server) and self._servers.match(call.server)))

    def _finds(self, call: ToolCall) -> bool:
        key = self.rule.argument
        if key is None:
            candidates = [call.arguments, *texts(call.value)]
        elif key in call.value:
            candidates = [json.dumps(call.value[key], ensure_ascii=False), *texts(call.value[key])]
        else:
            return False
        assert self._pattern is not None
        return any(self._pattern.search(spelling) is not None for text in candidates for spelling in spellings(text))

    def _covers(self, call: ToolCall) -> bool:
        key = self.rule.argument
        if key is not None and key not in call.value:
            return False
        assert self._pattern is not None
        found = scalars(call.value if key is None else call.value[key])
        return all(self._pattern.fullmatch(text) is not None for text in found)


def _sql_denies(sql: Sql, call: ToolCall) -> bool:
    if sql.argument not in call.value:
        return False
    text = call.value[sql.argument]
    try:
        return not isinstance(text, str) or not kinds_of(text, sql.dialect).isdisjoint(sql.kinds)
    except NotOneStatement:
        return True


def _sql_allows(sql: Sql, call: ToolCall) -> bool:
    text = call.value.get(sql.argument)
    try:
        return isinstance(text, str) and kinds_of(text, sql.dialect) <= set(sql.kinds)
    except NotOneStatement:
        return False


class ToolRules(Policy):
    """Block or replace tool calls by rules. A block wins over a replacement, and an allow list over both."""

    name = "tool_rules"
    keeps_request = False

    def __init__(self, **options: object) -> None:
        self.options = Options.model_validate(options)
        allow = self.options.allow
        self._allow = None if allow is None else [_Compiled(rule) for rule in allow]
        self._deny = [(_Compiled(rule), rule) for rule in self.options.deny]
        self._schemas: dict[str, Any] = {}

    def for_call(self, context: Context) -> Self:
        """Give the call its own compiled tool schemas."""
        mine = super().for_call(context)
        mine._schemas = {}
        return mine

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Decide by the rules."""
        if self.options.validate_schema and call.executor == "client" and not self._fits(call):
            return Block("schema", f"[Sluice: the tool call {shown(call.name)} was blocked: its arguments do not fit the tool's schema]")
        matching = [rule for compiled, rule in self._deny if compiled.denies(call)]
        for rule in matching:
            if rule.decision == "block":
                return Block(rule.reason, rule.message)
        if self._allow is not None and not any(rule.allows(call) for rule in self._allow):
            return Block("not_allowed", f"[Sluice: the tool call {shown(call.name)} was blocked: no rule allows it]")
        for rule in matching:
            return Replace(json.dumps(rule.arguments), rule.reason)
        return ALLOW

    def _fits(self, call: ToolCall) -> bool:
        if call.tool is None or call.tool.kind == "server":
            return False
        if call.name not in self._schemas:
            try:
                self._schemas[call.name] = compile_client_schema(call.tool.schema)
            except ValueError:
                return False
        try:
            return bool(self._schemas[call.name].is_valid(call.value))
        except TooMuchWork:
            return False
