"""The texts in a tool call's arguments as rules see them: every decoded string and key, however
it was escaped."""

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from policy.base import ToolCall
from policy.effects.argument_names import dialect_of_tool
from policy.effects.places import NOWHERE, Places
from policy.effects.sql import ANY, Kind, NotOneStatement, kinds_of
from policy.effects.sql_effects import read_sql
from policy.effects.surface import surface_of
from policy.effects.surface_parts import Surface
from policy.effects.touch import Touch, touch_of
from policy.schemas.schema_work import SchemaBudget
from protocol.bounds import MAX_FOLDED_BYTES, MAX_RULE_TEXTS
from protocol.bytes.folding import fold, is_plain, without_unseen
from protocol.request import Tool
from protocol.server_tools.typed import as_function

if TYPE_CHECKING:
    from policy.effects.history.conversation import EarlierCalls

Json = Any


class Undecidable(ValueError):
    """More texts, or more text to fold, than rules examine."""


class Looks:
    """What rules examine in one call, computed once for all of them."""

    def __init__(
        self, call: ToolCall, places: Places = NOWHERE, history: "EarlierCalls | None" = None
    ) -> None:
        self._call, self._history = call, history
        self.places = places
        self._everywhere: list[str] | None = None
        self._kinds: dict[tuple[str, str], set[Kind] | None] = {}
        self.budget = SchemaBudget()
        """What all rules together may spend on schemas."""

    def kinds(self, text: str, dialect: str) -> set[Kind] | None:
        """The kinds of the one statement in `text`, parsed once whatever the rules; None where it
        is not one."""
        if (text, dialect) not in self._kinds:
            try:
                spoken = self._spoken(dialect)
                self._kinds[text, dialect] = (
                    _kinds_in_all(text) if spoken == ANY else kinds_of(text, spoken)
                )
            except NotOneStatement:
                self._kinds[text, dialect] = None
        return self._kinds[text, dialect]

    def sql_effects(self, text: str, dialect: str) -> frozenset[str] | None:
        """What the statements in `text` do, read once whatever the rules; None where that is not
        known."""
        known = self._effects_of_sql
        if (text, dialect) not in known:
            reading = read_sql(text, self._spoken(dialect))
            known[text, dialect] = None if reading.unsure else frozenset(reading.effects)
        return known[text, dialect]

    def _spoken(self, dialect: str) -> str:
        """The dialect that is meant: where any may be, the one that the tool's name says."""
        return dialect_of_tool(self._call.name) if dialect == ANY else dialect

    @cached_property
    def _effects_of_sql(self) -> dict[tuple[str, str], frozenset[str] | None]:
        return {}

    @cached_property
    def touch(self) -> Touch:
        """What the call would do after those before it, read once whatever the rules."""
        alone = touch_of(self._call, self.places, self.surface)
        if self._history is None:
            return alone
        return self._history.touch(self._call, alone, self.places)

    @cached_property
    def surface(self) -> Surface:
        """What the arguments are."""
        return surface_of(self._call)

    @cached_property
    def sql(self) -> list[str]:
        """The texts that are for a database."""
        return [statement.text for statement in self.surface.sql]

    @property
    def everywhere(self) -> list[str]:
        """All texts, and the arguments' exact text. Raises Undecidable."""
        if self._everywhere is None:
            self._everywhere = [
                *dict.fromkeys((*spellings(self._call.arguments), *texts(self._call.value)))
            ]
        return self._everywhere

    def under(self, key: str) -> list[str]:
        """The texts under one top-level key, or what a lenient reader takes for it, and their JSON
        text. Raises Undecidable."""
        forms: list[str] = []
        for name in self.named(key):
            value = self._call.value[name]
            forms += [*spellings(json.dumps(value, ensure_ascii=False)), *texts(value)]
        return forms

    def named(self, key: str) -> list[str]:
        """The top-level keys that a lenient reader takes for `key`."""
        return self._top.get(fold(key), [])

    @cached_property
    def _top(self) -> dict[str, list[str]]:
        by_folded_name: dict[str, list[str]] = {}
        for name in self._call.value:
            by_folded_name.setdefault(fold(name), []).append(name)
        return by_folded_name

    @cached_property
    def keys(self) -> dict[str, str]:
        """Every key of every object, with its folded form."""
        names: dict[str, str] = {}
        stack: list[Json] = [self._call.value]
        while stack:
            item = stack.pop()
            if isinstance(item, dict):
                names |= dict.fromkeys(item, "")
                stack += item.values()
            elif isinstance(item, list):
                stack += item
        return {name: fold(name) for name in names}


def _kinds_in_all(text: str) -> set[Kind]:
    reading = read_sql(text, ANY)
    if reading.unsure or "several" in reading.effects:
        raise NotOneStatement(reading.unsure or "several statements")
    return set(reading.kinds)


def spellings(text: str) -> list[str]:
    """Return the text, and what lenient readers may take it for (`protocol.bytes.folding`). Raises
    Undecidable."""
    if is_plain(text):
        return [text]
    _check_size(text)
    return [*dict.fromkeys((text, *without_unseen(text)))]


def _check_size(text: str) -> None:
    if len(text.encode("utf-8", "surrogatepass")) - len(text) > MAX_FOLDED_BYTES:
        raise Undecidable("too much text that has to be folded")


def texts(value: Json) -> list[str]:
    """Return every string and key in `value` in all its spellings, and what stands together joined
    by blanks. Raises Undecidable.

    A program may take its words from one list (`["rm", "-rf"]`), from lists in lists, or from the
    fields of an object (`{"command": "rm", "args": ["-rf"]}`). Every value is part of at most four
    joined texts: of its list, of the outermost list around it, of its object, and of the whole; so
    it stays linear.
    """
    words: dict[str, None] = {}
    count = 0
    stack = [value]
    while stack:
        item = stack.pop()
        count += 1
        if isinstance(item, str):
            words[item] = None
        elif isinstance(item, dict):
            words |= dict.fromkeys(item)
            stack += item.values()
        elif isinstance(item, list):
            stack += item
        if count > MAX_RULE_TEXTS or len(words) > MAX_RULE_TEXTS:
            raise Undecidable("too many values")
    distinct = dict.fromkeys((*words, *_joined(value, {})))
    odd = [word for word in words if not is_plain(word)]
    if not odd:
        return list(distinct)
    _check_size("".join(odd))
    spelt = {word: without_unseen(word) for word in odd}
    for way in 0, -1:
        table = {word: forms[way] for word, forms in spelt.items()}
        distinct |= dict.fromkeys((*table.values(), *_joined(value, table)))
    return list(distinct)


def _joined(value: Json, spelt: dict[str, str]) -> list[str]:
    if (
        type(value) is dict
        and len(value) == 1
        and type(next(iter(value.values()))) not in (dict, list)
    ):
        # one text, which is nothing to join, as most commands are
        return []
    everything: list[str] = []
    joins = [everything]

    # no function that calls itself: it would be a cycle, in which the texts stay until the garbage
    # collector comes
    stack: list[tuple[Json, list[str] | None, list[str] | None, list[str] | None]] = [
        (value, None, None, None)
    ]
    while stack:
        item, outer, near, owner = stack.pop()
        if isinstance(item, dict | list):
            pieces: list[str] = []
            joins.append(pieces)
            if isinstance(item, dict):
                stack += [(inner, outer, None, pieces) for inner in reversed(item.values())]
                continue
            if outer is None:
                joins.append(outer := [])
            stack += [(inner, outer, pieces, owner) for inner in reversed(item)]
            continue
        text = spelt.get(item, item) if isinstance(item, str) else json.dumps(item)
        for join in (everything, outer, near, owner):
            if join is not None:
                join.append(text)
    return [" ".join(join) for join in joins if len(join) > 1]


def plain_values(value: Json, *, known: frozenset[str] = frozenset()) -> list[str] | None:
    """Return every key and every value that is neither object nor list, as text; None where a rule
    cannot vouch for them.

    That is where an object or list is empty, or there are too many. `known`: keys of `value` itself
    that need no rule.
    """
    values: list[str] = []
    stack: list[tuple[Json, frozenset[str]]] = [(value, known)]
    while stack:
        item, exempt = stack.pop()
        if isinstance(item, dict | list):
            if not item:
                return None
            if isinstance(item, dict):
                values += [name for name in item if name not in exempt]
            stack += [
                (inner, frozenset())
                for inner in (item.values() if isinstance(item, dict) else item)
            ]
        else:
            values.append(item if isinstance(item, str) else json.dumps(item))
        if len(values) + len(stack) > MAX_RULE_TEXTS:
            return None
    return values


def schema_of(tool: Tool) -> dict[str, Any] | None:
    """Return the schema that a client tool's arguments must fit; None where there is none to hold
    them against.

    Tools with a type instead of a schema take what their vendor says, and nothing besides.
    """
    if tool.kind == "function" or tool.kind == "custom":
        return tool.schema
    known = as_function(tool) if tool.kind == "client" else None
    return None if known is None else known.schema | {"additionalProperties": False}
