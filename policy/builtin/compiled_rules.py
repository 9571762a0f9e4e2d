"""Rules of the policy `tool_rules`, ready to be asked about a call: does a rule of `deny` hold,
does one of `allow` vouch for it? Must not know: what becomes of the call then."""

from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, Literal

from policy.base import ToolCall
from policy.builtin import effect_rules
from policy.builtin.arguments import Looks, Undecidable, plain_values, schema_of
from policy.builtin.rule_options import PENDING, Rule, Secrets, Sql, several
from policy.effect_sentences import describe_sql, describe_unsure
from policy.effects.touch import Source, load_parser
from policy.monitors.fields import nodes
from policy.patterns import NamePatterns, compile_re2, literal
from policy.schemas.schemas import Schema, TooMuchWork, compile_schema
from protocol.bytes.folding import fold

Part = Source | Literal["sql", "other"]
"""What a piece of a call is: something of which effects are known, a statement for a database, or a
text that nobody reads."""


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
            else frozenset(executors) | (PENDING if "mcp" in executors else frozenset())
        )
        self._servers = None if rule.server is None else NamePatterns(rule.server)
        self._pattern = (
            compile_re2(rule.argument_matches) if rule.argument_matches is not None else None
        )
        self._literal = literal(rule.argument_matches)
        self._schema = RuleSchema(rule.schema_) if rule.schema_ is not None else None
        self._effects = effect_rules.compiled(rule.shell, rule.does, rule.paths, rule.network)
        self._asks_effects_alone = (
            bool(self._effects)
            and rule.tool == "*"
            and not any(
                (
                    *(executors, self._servers, self._pattern, self._schema),
                    *(rule.sql, rule.secrets, rule.unread),
                )
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
            self.is_for(call)
            and (self._schema is None or self._schema.may_fit(call.value, looks))
            and (self._pattern is None or self._finds(looks))
            and (self.rule.sql is None or _sql_finds(self.rule.sql, call, looks) is not None)
            and (self.rule.secrets is None or self._has_secret(self.rule.secrets, looks))
            and (self.rule.unread is None or looks.surface.is_unread)
        )
        if not held or not self._effects:
            return "yes" if held else "no"
        return effect_rules.denied(self._effects, looks.touch)

    def why(self, call: ToolCall, looks: Looks, held: effect_rules.Held) -> str:
        """Say what the call does that the rule is about, or why that is not known; empty where the
        rule is not about what calls do."""
        if held == "unsure":
            return describe_unsure(looks.touch.unsure)
        if self._effects:
            return effect_rules.why(self._effects, looks.touch, looks.places)
        if self.rule.sql is not None:
            kinds, effects = _sql_finds(self.rule.sql, call, looks) or ((), ())
            return describe_sql(effects, kinds)
        return "carries a credential" if self.rule.secrets is not None else ""

    def asks_effects_of(self, call: ToolCall) -> bool:
        """Is it a rule about what this call does?"""
        return self._asks_effects_alone or (bool(self._effects) and self.is_for(call))

    def overlooks(self, call: ToolCall, looks: Looks) -> bool:
        """Is it a rule about what this call does, which has more arguments than are looked at?"""
        return bool(self._effects) and self.is_for(call) and not looks.touch.surface.is_whole

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

    def is_for(self, call: ToolCall) -> bool:
        """Is it a rule about calls of this tool, whatever they do?"""
        return self._runs(call, NamePatterns.means) and self._names.means(call.name)

    def _has_secret(self, secrets: Secrets, looks: Looks) -> bool:
        try:
            keys = several(secrets.argument)
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


class RuleSchema:
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
    for _, _, item in nodes(schema):
        if isinstance(item, dict):
            for named in (item.get("properties"), item.get("required")):
                names = named if isinstance(named, dict | list) else ()
                yield from (name for name in names if isinstance(name, str))


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(inner, names) for key, inner in value.items()}
    return [_renamed(inner, names) for inner in value] if isinstance(value, list) else value


Statement = tuple[Set[str], Set[str]]
"""The kinds and the effects of a statement, as far as there are rules about these."""


def _sql_texts(sql: Sql, call: ToolCall, looks: Looks) -> list[str] | None:
    """The statements of a call; None where it is not known which they are."""
    if sql.argument is None:
        return looks.sql
    texts = [call.value[key] for key in looks.named(sql.argument)]
    return None if len(texts) > 1 or not all(isinstance(text, str) for text in texts) else texts


def _read_sql(sql: Sql, text: str, looks: Looks) -> Statement | None:
    kinds = looks.kinds(text, sql.dialect) if sql.kinds is not None else set()
    effects = looks.sql_effects(text, sql.dialect) if sql.effects is not None else frozenset[str]()
    return None if kinds is None or effects is None else (kinds, effects)


def _sql_finds(sql: Sql, call: ToolCall, looks: Looks) -> Statement | None:
    """What a condition names of the first statement that has any of it; None where none has.
    Nothing where a statement is not understood."""
    texts = _sql_texts(sql, call, looks)
    for text in () if texts is None else texts:
        read = _read_sql(sql, text, looks)
        if read is None:
            return set(), set()
        found = read[0] & set(sql.kinds or ()), read[1] & set(sql.effects or ())
        if any(found):
            return found
    return (set(), set()) if texts is None else None


def _sql_allows(sql: Sql, call: ToolCall, looks: Looks) -> bool:
    texts = _sql_texts(sql, call, looks) if sql.argument in (None, *call.value) else None
    read = [_read_sql(sql, text, looks) for text in texts or ()]
    return bool(read) and all(
        each is not None and each[0] <= set(sql.kinds or ()) and each[1] <= set(sql.effects or ())
        for each in read
    )


def weight_of(rules: Iterable[Rule]) -> int:
    """Return the weight of a policy with these rules. 8 KiB of the worst SQL take 0.1 s, 64 KiB of
    the worst shell text 20 ms, everything else a tenth of that."""
    return 8 if any(rule.sql is not None or rule.reads_effects for rule in rules) else 1
