"""Deterministic rules about tool calls: names, argument patterns, JSON Schemas, SQL by kind. No
judge can overrule them.

A rule's conditions must all hold. Where a condition cannot be decided (SQL that does not parse,
more text than is looked at), a `deny` rule applies and an `allow` rule does not. A `deny` rule
takes names and keys for whatever a lenient program may take them for; an `allow` rule takes them
exactly, and vouches for no arguments with a key that only looks like its own.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from policy.base import ALLOW, Block, Context, Executor, Policy, Replace, ToolCall, Verdict
from policy.builtin import effect_rules
from policy.builtin.arguments import Looks, Undecidable, plain_values, schema_of
from policy.effects.sql import Kind, check_dialect
from policy.effects.sql_functions import SqlEffect
from policy.effects.touch import Places, Source, load_parser
from policy.patterns import NamePattern, NamePatterns, Pattern, compile_re2, literal
from policy.schemas.schemas import Schema, ToolSchemas, TooMuchWork, compile_schema
from protocol.bounds import MAX_RULES
from protocol.bytes.folding import fold
from settings.config import Name

Folder = Annotated[str, Field(min_length=1, max_length=1024)]
Hosts = Annotated[tuple[str, ...], Field(max_length=MAX_RULES)]
_OWN_NAMES = ("allow", "validate_schema", "unsure")
"""What the record has in the place of a rule's name where one of these options decides."""
Part = Source | Literal["sql", "other"]
"""What a piece of a call is: something of which effects are known, a statement for a database, or a
text that nobody reads."""
_ANY_NAMES = ("a", "Zq-9.w_y", "0")
"""A pattern of names that matches these matches all."""
_PENDING = frozenset(("mcp_pending",))
"""Who runs a call of an MCP server that the provider asks about first."""
_EVERYBODY = frozenset(get_args(Executor)) - _PENDING


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _check_schema(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    if schema is not None:
        compile_schema(schema)
    return schema


class Sql(_Strict):
    """The SQL in `argument`, parsed in `dialect`. Allow: exactly one statement, with all its kinds
    in `kinds` and all its effects in `effects`. Deny: a kind in `kinds` or an effect in `effects`
    occurs, or the text is not exactly one statement that can be parsed.
    """

    argument: str | None = None
    """The top-level argument with the SQL. Unset: each argument that looks like SQL by its own name
    or its tool's."""
    kinds: tuple[Kind, ...] | None = None
    """Kinds of statements (docs/run/policies.md#tool_rules)."""
    effects: tuple[SqlEffect, ...] | None = None
    """What the statement does, including functions with side effects
    (docs/run/policies.md#tool_rules). Give `kinds`, `effects` or both."""
    dialect: Annotated[str, AfterValidator(check_dialect)]
    """The SQL dialect: `postgres`, `mysql`, `tsql`, `sqlite` or another."""

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if self.kinds is None and self.effects is None:
            raise ValueError(
                "give `kinds`, `effects` or both: what the statement is, or what it does"
            )
        return self


class Rule(_Strict):
    """Which calls a rule matches: all its conditions must hold."""

    name: Name | None = None
    """Its name in the record and in notices. Unset: its place, counted from 0, as in `deny[2]`."""
    tool: NamePattern | list[NamePattern] = "*"
    """Names of tools."""
    argument_matches: Pattern | None = None
    """Deny: found in any string or key of the arguments, in neighbouring values of lists and
    objects joined together, or in their exact text. Allow: matches each whole key and value, except
    keys that the tool's own schema lists."""
    argument: str | None = None
    """Look only at this top-level argument; needs `argument_matches`."""
    schema_: Annotated[
        dict[str, Any] | None, AfterValidator(_check_schema), Field(alias="schema")
    ] = None
    """The arguments are valid under this JSON Schema."""
    sql: Sql | None = None
    """What the SQL in an argument does."""
    does: effect_rules.Does | None = None
    """What the call does, by any of its arguments."""
    shell: effect_rules.Shell | None = None
    """What its commands do."""
    paths: effect_rules.Paths | None = None
    """Paths in the arguments of file tools."""
    network: effect_rules.Network | None = None
    """Addresses in the arguments."""
    secrets: effect_rules.Secrets | None = None
    """Credentials in the arguments."""
    executor: Executor | Annotated[list[Executor], Field(min_length=1)] | None = None
    """Who runs the call. Unset: anyone."""
    server: NamePattern | list[NamePattern] | None = None
    """The MCP server that runs the call, in the form of `tool`. Unset: any or none."""

    @property
    def is_about_all(self) -> bool:
        """Is it about each call of each tool?"""
        names = [NamePatterns(tool) for tool in self._tools]
        conditions = self.model_dump(exclude={"name", "tool", "executor"}, exclude_none=True)
        return (
            not conditions
            and (self.executor is None or _EVERYBODY.issubset(self.executor))
            and any(all(map(pattern.match, _ANY_NAMES)) for pattern in names)
        )

    @property
    def _tools(self) -> list[NamePattern]:
        return self.tool if isinstance(self.tool, list) else [self.tool]

    @property
    def reads_effects(self) -> bool:
        """Must what a call does be known?"""
        return any(
            condition is not None for condition in (self.does, self.shell, self.paths, self.network)
        )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.argument is not None and self.argument_matches is None:
            raise ValueError("`argument` needs `argument_matches`")
        return self


class DenyRule(Rule):
    """What to do with the calls that a rule matches."""

    decision: Literal["block", "replace"] = "block"
    """What to do with the call."""
    arguments: dict[str, Any] | None = None
    """With `replace`: the arguments that the client gets."""
    reason: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")] = "rule"
    """The reason in the record, of `a-z`, `0-9` and `_`."""
    message: str = ""
    """What the notice tells the client."""

    @model_validator(mode="after")
    def _can_match(self) -> Self:
        sql = self.sql
        if not self._tools or self.server == []:
            raise ValueError(
                "a list of names is empty, so the rule is about no call: name something, or take"
                " the rule out"
            )
        if sql is not None and not sql.kinds and not sql.effects:
            raise ValueError(
                "`sql` names no kind and no effect, so the rule finds none: name something, or take"
                " the rule out"
            )
        if self.server is not None and self.executor in (
            "client",
            ["client"],
            "provider",
            ["provider"],
        ):
            raise ValueError(
                "a call that the client or the provider runs has no `server`: the rule is about no"
                " call"
            )
        return self

    @model_validator(mode="after")
    def _replaces_by_something(self) -> Self:
        if (self.decision == "replace") != (self.arguments is not None):
            raise ValueError(
                "`decision: replace` and `arguments` go together: give both, or neither"
            )
        return self


class ToolRulesOptions(_Strict):
    """Options of `tool_rules`."""

    allow: Annotated[tuple[Rule, ...], Field(max_length=MAX_RULES)] | None = None
    """Block calls that match none of these rules. Unset: no call is blocked for matching none."""
    deny: Annotated[tuple[DenyRule, ...], Field(max_length=MAX_RULES)] = ()
    """Block calls that match one of these rules, or replace their arguments. A block wins over a
    replacement."""
    project: Folder = "."
    """Absolute path of the project folder, for rules about scopes. With `.`, relative paths count
    as paths in the project."""
    home: Folder = "~"
    """Absolute path of the home folder."""
    hosts: Hosts = ()
    """Hosts of the scope `listed`: names, `*.example.org`, addresses, or networks such as
    `10.0.0.0/8`."""
    unsure: Literal["block", "allow"] = "block"
    """What to do with a call when a `deny` rule about effects cannot decide, because the text does
    not show everything the call would run."""
    validate_schema: bool = False
    """Block calls that the client runs whose arguments do not fit the tool's schema. Providers
    check the arguments of their own tools."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [rule.name for rule in self.deny if rule.name is not None]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(
                f"deny: two rules have the name {twice!r}: the record could not tell them apart"
            )
        if taken := next((name for name in names if name in _OWN_NAMES), None):
            raise ValueError(
                f"deny: no rule can have the name {taken!r}: the record says it of the option"
                f" `{taken}`"
            )
        for place, rule in enumerate(self.allow or ()):
            if rule.secrets is not None or (
                rule.shell is not None and rule.shell.unsure is not None
            ):
                raise ValueError(
                    f"allow.{place}: `secrets` and `shell: {{unsure: ...}}` say what is denied:"
                    " they are for rules of `deny`"
                )
        return self


class CompiledRule:
    """A compiled rule."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._names = NamePatterns(rule.tool)
        executors = [rule.executor] if isinstance(rule.executor, str) else rule.executor
        # rules about an MCP server's calls also apply before the call has run
        self._executors = (
            None
            if executors is None
            else frozenset(executors) | (_PENDING if "mcp" in executors else frozenset())
        )
        self._servers = None if rule.server is None else NamePatterns(rule.server)
        self._pattern = (
            compile_re2(rule.argument_matches) if rule.argument_matches is not None else None
        )
        self._literal = literal(rule.argument_matches)
        self._schema = _Schema(rule.schema_) if rule.schema_ is not None else None
        self._effects = effect_rules.compiled(rule.shell, rule.does, rule.paths, rule.network)
        self._asks_effects_alone = (
            bool(self._effects)
            and rule.tool == "*"
            and not any(
                (executors, self._servers, self._pattern, self._schema, rule.sql, rule.secrets)
            )
        )
        self._kinds = effect_rules.kinds_of(self._effects) if self._asks_effects_alone else None
        if rule.reads_effects:
            load_parser()

    def denies(self, call: ToolCall, looks: Looks) -> bool:
        """Do all conditions hold, or cannot be decided?"""
        return self.holds(call, looks) != "no"

    def holds(self, call: ToolCall, looks: Looks) -> effect_rules.Held:
        """Do all conditions hold, or cannot be decided? `unsure`: they would, if what cannot be
        known of a command held."""
        if self._asks_effects_alone:
            if self._kinds is not None and self._kinds.isdisjoint(looks.touch.kinds):
                # as nearly all rules about nearly all calls
                return "no"
            return effect_rules.denied(self._effects, looks.touch)
        held = (
            self._runs(call, NamePatterns.means)
            and self._names.means(call.name)
            and (self._schema is None or self._schema.may_fit(call.value, looks))
            and (self._pattern is None or self._finds(looks))
            and (self.rule.sql is None or _sql_denies(self.rule.sql, call, looks))
            and (self.rule.secrets is None or self._has_secret(self.rule.secrets, looks))
        )
        if not held or not self._effects:
            return "yes" if held else "no"
        return effect_rules.denied(self._effects, looks.touch)

    def asks_effects_of(self, call: ToolCall) -> bool:
        """Is it a rule about what this call does?"""
        return self._asks_effects_alone or (bool(self._effects) and self._is_about(call))

    def overlooks(self, call: ToolCall, looks: Looks) -> bool:
        """Is it a rule about what this call does, which has more arguments than are looked at?"""
        return bool(self._effects) and self._is_about(call) and not looks.touch.surface.is_whole

    def allows(self, call: ToolCall, looks: Looks) -> bool:
        """Do all conditions surely hold?"""
        return (
            self._runs(call, NamePatterns.match)
            and self._names.match(call.name)
            and (self._schema is None or self._schema.fits(call.value, looks))
            and (self._pattern is None or self._covers(call, looks))
            and (self.rule.sql is None or _sql_allows(self.rule.sql, call, looks))
            and (
                not self._effects or effect_rules.allowed(self._effects, looks.touch, looks.places)
            )
            and self._covers_all(looks)
        )

    def _covers_all(self, looks: Looks) -> bool:
        """Does a condition speak of everything that the call holds? A rule about tools alone speaks
        of all of their arguments."""
        of_some = self._pattern is not None and self.rule.argument is not None
        if not (of_some or self._effects or self.rule.sql) or (
            self._pattern is not None and not of_some
        ):
            return True
        surface = looks.surface
        parts: list[tuple[Part, str]] = [
            *(("shell", text.argument) for text in surface.shell),
            *(("paths", use.argument) for use in surface.paths),
            *(("network", use.argument) for use in surface.urls),
            *(("sql", text.argument) for text in surface.sql),
            *(("other", text.argument) for text in surface.messages),
            *(("other", name) for name in surface.unread),
        ]
        return surface.is_whole and all(self._speaks_of(part, argument) for part, argument in parts)

    def _speaks_of(self, part: Part, argument: str) -> bool:
        if argument == self.rule.argument:
            return True
        if part == "sql":
            return self.rule.sql is not None and self.rule.sql.argument in (None, argument)
        if part == "other":
            return self._schema is not None and self._schema.names(argument)
        return any(condition.covers(part, argument) for condition in self._effects)

    def _is_about(self, call: ToolCall) -> bool:
        return self._runs(call, NamePatterns.means) and self._names.means(call.name)

    def _has_secret(self, secrets: effect_rules.Secrets, looks: Looks) -> bool:
        try:
            keys = effect_rules.arguments_of(secrets)
            texts = (
                looks.everywhere
                if keys is None
                else [text for key in keys for text in looks.under(key)]
            )
        except Undecidable:
            return True
        return effect_rules.has_secret(secrets, texts)

    def _runs(self, call: ToolCall, matches: Callable[[NamePatterns, str], bool]) -> bool:
        by_executor = self._executors is None or call.executor in self._executors
        return by_executor and (
            self._servers is None or (bool(call.server) and matches(self._servers, call.server))
        )

    def _finds(self, looks: Looks) -> bool:
        key, pattern = self.rule.argument, self._pattern
        assert pattern is not None
        try:
            texts = looks.everywhere if key is None else looks.under(key)
        except Undecidable:
            return True
        if self._literal is not None:
            return any(self._literal in text for text in texts)
        return any(pattern.search(text) is not None for text in texts)

    def _covers(self, call: ToolCall, looks: Looks) -> bool:
        key, pattern = self.rule.argument, self._pattern
        assert pattern is not None
        if key is None:
            known = (
                (schema_of(call.tool) or {}).get("properties") if call.tool is not None else None
            )
            values = plain_values(
                call.value, known=frozenset(known if isinstance(known, dict) else ())
            )
        else:
            values = plain_values(call.value[key]) if looks.named(key) == [key] else None
        return bool(values) and all(pattern.fullmatch(text) is not None for text in values or ())


class _Schema:
    """A schema ready to be asked. Keys that only look like one it names count as that one where it
    forbids."""

    def __init__(self, schema: dict[str, Any], compiled: Schema | None = None) -> None:
        self._compiled = compile_schema(schema) if compiled is None else compiled
        self._names = frozenset(_names_in(schema))
        self._by_form = {fold(name): name for name in self._names}

    def names(self, argument: str) -> bool:
        """Is the argument one of which it speaks?"""
        return argument in self._names

    def is_of(self, compiled: Schema) -> bool:
        """Was it made of this schema?"""
        return self._compiled is compiled

    def _lookalikes(self, looks: Looks) -> dict[str, str]:
        return {
            key: self._by_form[form]
            for key, form in looks.keys.items()
            if form in self._by_form and key not in self._names
        }

    def fits(self, value: dict[str, Any], looks: Looks) -> bool:
        """Is `value` valid, whatever reads its keys? What takes too long to say is not."""
        try:
            return self._compiled.is_valid(value, looks.budget) and not self._lookalikes(looks)
        except TooMuchWork:
            return False

    def may_fit(self, value: dict[str, Any], looks: Looks) -> bool:
        """Is `value` valid for some reader? What takes too long to say is."""
        try:
            if self._compiled.is_valid(value, looks.budget):
                return True
            alike = self._lookalikes(looks)
            return bool(alike) and self._compiled.is_valid(_renamed(value, alike), looks.budget)
        except TooMuchWork:
            return True


def _names_in(schema: Any) -> Iterator[str]:
    """The names of properties that a schema speaks of, wherever."""
    stack = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            properties, required = item.get("properties"), item.get("required")
            yield from properties if isinstance(properties, dict) else ()
            yield from (
                name
                for name in (required if isinstance(required, list) else ())
                if isinstance(name, str)
            )
            stack += item.values()
        elif isinstance(item, list):
            stack += item


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(inner, names) for key, inner in value.items()}
    return [_renamed(inner, names) for inner in value] if isinstance(value, list) else value


def _sql_denies(sql: Sql, call: ToolCall, looks: Looks) -> bool:
    if sql.argument is None:
        return any(_sql_holds(sql, text, looks) for text in looks.sql)
    texts = [call.value[key] for key in looks.named(sql.argument)]
    if len(texts) != 1:
        return bool(texts)
    return not isinstance(texts[0], str) or _sql_holds(sql, texts[0], looks)


def _sql_holds(sql: Sql, text: str, looks: Looks) -> bool:
    kinds = looks.kinds(text, sql.dialect) if sql.kinds is not None else set()
    effects = looks.sql_effects(text, sql.dialect) if sql.effects is not None else frozenset[str]()
    return (
        kinds is None
        or effects is None
        or not kinds.isdisjoint(sql.kinds or ())
        or not effects.isdisjoint(sql.effects or ())
    )


def _sql_is_within(sql: Sql, text: str, looks: Looks) -> bool:
    kinds = looks.kinds(text, sql.dialect) if sql.kinds is not None else set()
    effects = looks.sql_effects(text, sql.dialect) if sql.effects is not None else frozenset[str]()
    return (
        kinds is not None
        and effects is not None
        and kinds <= set(sql.kinds or ())
        and effects <= set(sql.effects or ())
    )


def _sql_allows(sql: Sql, call: ToolCall, looks: Looks) -> bool:
    if sql.argument is None:
        texts = looks.sql
    elif looks.named(sql.argument) == [sql.argument] and isinstance(call.value[sql.argument], str):
        texts = [call.value[sql.argument]]
    else:
        return False
    return bool(texts) and all(_sql_is_within(sql, text, looks) for text in texts)


def weight_of(rules: Iterable[Rule]) -> int:
    """Return the weight of a policy with these rules. 8 KiB of the worst SQL take 0.1 s, 64 KiB of
    the worst shell text 20 ms, everything else a tenth of that."""
    return 8 if any(rule.sql is not None or rule.reads_effects for rule in rules) else 1


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
        self._schemas: dict[str, _Schema] = {}
        self._compiled = ToolSchemas()
        self._places = Places(self.options.project, self.options.home, self.options.hosts)
        self._blocks_unsure = self.options.unsure == "block" and any(
            rule.reads_effects for rule in self.options.deny
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
        """Give the call its own compiled tool schemas."""
        clone = super().for_call(context)
        clone._schemas, clone._compiled = {}, ToolSchemas()
        return clone

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Decide by the rules."""
        looks = Looks(call, self._places)
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
            known = self._schemas[call.name] = _Schema(schema, compiled)
        return known.fits(call.value, looks)
