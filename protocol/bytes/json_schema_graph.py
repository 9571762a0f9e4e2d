"""A JSON Schema as a graph: which schemas each one applies, and how much work each is by itself.
`json_schema_bounds` counts the paths.

Theory. To check a value, a validator applies a schema, the schemas that it names for the same value
(`allOf`, `$ref`, ...) and those for the values inside (`properties`, `items`, ...). References turn
this into a graph, and a validator walks every path: thirty definitions that each name the next one
twice are 2^30 steps. So paths are counted, with a memo, before anything walks them. For a reference
back into a schema that is being applied, the validator remembers its result once for each value:
the reference is cut from the graph, and its target counts once more. `unevaluatedProperties` and
`unevaluatedItems` ask again which parts of the schema hold: each level of them costs 2.6 times the
one below. A schema that cannot be counted (it applies itself to the same value, or has identifiers
that can be read in two ways) is `Unclear`, and nothing is checked by it.

Units of work are about 10 ns. They are upper bounds, held against jsonschema-rs by
tests/unit/test_schema_work.py. Must not know: validators, values.
"""

import re
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

_REFS = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))
_NAMING = frozenset(("$anchor", "$dynamicAnchor", "$recursiveAnchor", "$id", "$schema", "id"))
_LISTS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_MAPS = frozenset(("dependentSchemas", "dependencies", "patternProperties"))
_GROUPS = {
    "same": "allOf anyOf oneOf not if then else dependentSchemas dependencies"
    " $ref $dynamicRef $recursiveRef",
    "by_name": "properties",
    "by_pattern": "patternProperties",
    "other": "additionalProperties unevaluatedProperties",
    "names": "propertyNames",
    "by_place": "prefixItems",
    "items": "items additionalItems",
    "each": "contains unevaluatedItems",
    "": "required dependentRequired enum const uniqueItems multipleOf format minLength maxLength"
    " pattern",
}
_KEYWORDS = {keyword: group for group, keywords in _GROUPS.items() for keyword in keywords.split()}
"""Which of a node's groups takes what a keyword has: none where it has no schemas."""
_PLAIN_ID = re.compile(r"[A-Za-z0-9_.~-]*[A-Za-z0-9_~-]")
MAX_NAMED = 64
"""Parts of a schema with an $id of their own, and places with the same anchor."""
MAX_BACKTRACKS = 1_000
"""Steps allowed to a pattern that needs backtracking; each may read all of its text."""
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_COUNTED = re.compile(r"\{\d*(?:,(\d*))?\}")
_NEEDS_BACKTRACKING = re.compile(r"\(\?[=!<>]|\\[1-9kKG]|[*+?}]\+")
_CLASS = re.compile(r"\\[dDwWsScpP]")
_WIDE = re.compile(r"\[\^|\.|\\[DWSpP]")
TOO_MUCH = 1 << 60


class UnclearSchema(ValueError):
    """The schema's references cannot be followed with certainty; the message says why."""


class Work(NamedTuple):
    """Upper bounds: units of work for each value, and for each character of its text."""

    value: float
    text: float

    def plus(self, other: "Work") -> "Work":
        """Both."""
        return Work(self.value + other.value, self.text + other.text)

    def max(self, other: "Work") -> "Work":
        """Either, whichever is more."""
        return Work(max(self.value, other.value), max(self.text, other.text))


def states(pattern: str) -> int:
    """About how many states a pattern compiles to: counted repetitions multiply what they
    repeat."""
    open_sums, item = [0], 0
    position, end = 0, len(pattern)
    while position < end:
        character = pattern[position]
        if character == "{" and (match := _COUNTED.match(pattern, position)):
            most = max((int(n) for n in re.findall(r"\d{1,9}", match[0])), default=1)
            item, position = item * max(1, most), match.end()
            continue
        open_sums[-1] = min(TOO_MUCH, open_sums[-1] + item)
        item = 1
        if character == "\\":
            position += 1
        elif character == "[":
            close = pattern.find("]", position + 2)
            # a class may hold classes: what is skipped too little only counts as more states
            position = close if close > 0 else position
        elif character == "(":
            open_sums.append(0)
            item = 0
        elif character == ")" and len(open_sums) > 1:
            item = open_sums.pop()
        position += 1
    return min(TOO_MUCH, sum(open_sums) + item) + 1


def _pattern_work(pattern: str) -> float:
    # 8 ns a state and character at worst; a pattern with backtracking may read its text anew at
    # each step
    return 0.8 * states(pattern) * (MAX_BACKTRACKS if _NEEDS_BACKTRACKING.search(pattern) else 1)


def _pattern_compiling(pattern: str) -> float:
    # rewriting classes like \s costs 2 us times the square of their number, a state of many
    # characters 15 us, another 1 us at most
    classes = len(_CLASS.findall(pattern))
    wide = 1500 if _WIDE.search(pattern) or not pattern.isascii() else 100
    return (
        200.0 * classes**2
        + wide * states(pattern)
        + (30_000 if _NEEDS_BACKTRACKING.search(pattern) else 0)
    )


def _values(value: Any) -> int:
    """How many values there are in `value`."""
    count, level = 1, [value]
    while level:
        level = [
            c
            for v in level
            if type(v) is dict or type(v) is list
            for c in (v.values() if type(v) is dict else v)
        ]
        count += len(level)
    return count


class Node:
    """One schema in the document: its own work, and those that it applies, by where. `Graph` fills
    it."""

    __slots__ = (
        "asks_again",
        "by_name",
        "by_pattern",
        "by_place",
        "compiling",
        "each",
        "is_unique",
        "items",
        "names",
        "other",
        "same",
        "work",
    )

    def __init__(self) -> None:
        self.same: list[Node] = []
        self.by_name: dict[str, Node] = {}
        self.by_pattern: list[Node] = []
        self.other: list[Node] = []
        """For members without a schema of their own."""
        self.names: list[Node] = []
        self.by_place: list[Node] = []
        self.items: list[Node] = []
        self.each: list[Node] = []
        self.asks_again = False
        self.work = LEAF
        self.compiling = 250.0
        self.is_unique = False
        """Are all values inside compared? That is work for each of them."""

    def inside(self) -> list["Node"]:
        """Those for values inside."""
        return [
            *self.by_name.values(),
            *self.by_pattern,
            *self.other,
            *self.names,
            *self.by_place,
            *self.items,
            *self.each,
        ]

    def add(self, value: float, text: float = 0) -> None:
        """Add to its own work."""
        self.work = Work(self.work.value + value, self.work.text + text)


LEAF = Work(5, 0)


def _weigh(node: Node, keyword: str, value: Any) -> None:
    """Add what a keyword takes besides the schemas in it."""
    match keyword:
        case "properties" | "required" | "dependentSchemas" | "dependencies":
            node.add(3 * len(value) if isinstance(value, (dict, list)) else 0)
        case "dependentRequired":
            node.add(3 * _values(value))
        case "enum" | "const":
            listed = value if keyword == "enum" and isinstance(value, list) else [value]
            strings = sum(isinstance(v, str) for v in listed)
            count = _values(listed) if strings < len(listed) else 0
            node.add(3 * strings + 25 * count, strings / 10)
            node.compiling += 20 * strings + 100 * count
        case "uniqueItems":
            node.is_unique = value is True
        case "multipleOf" | "format":
            node.add(50, 1)
        case "minLength" | "maxLength":
            node.add(1, 0.1)
        case "pattern" if isinstance(value, str):
            node.add(5, _pattern_work(value))
            node.compiling += _pattern_compiling(value)
        case "patternProperties" if isinstance(value, dict):
            # asked once for the schema, once for what is additional, once for what is not evaluated
            node.add(9 * len(value), 3 * sum(map(_pattern_work, value)))
            node.compiling += 3 * sum(map(_pattern_compiling, value))
        case "unevaluatedProperties" | "unevaluatedItems":
            node.asks_again = True


class Graph:
    """A client's schema as nodes. Raises Unclear; follows references within the document only.

    What a reference might mean under one draft or another, it means here: too many paths are
    counted, never too few.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root_schema = schema
        self._nodes: dict[int, Node] = {}
        self._named: dict[str, dict[str, Any]] = {}
        self._anchors: dict[str, list[dict[str, Any]]] = {}
        self._anchored: list[dict[str, Any]] = []
        self._waiting: list[tuple[Node, dict[str, Any]]] = []
        self._look_for_names()
        self.root = self._node(schema)
        while self._waiting:
            self._link(*self._waiting.pop())
        same = {node: node.same for node in self._nodes.values() if node.same}
        try:
            if same:  # seldom, and an empty graph costs too
                TopologicalSorter(same).prepare()
        except CycleError as error:
            # it says nothing, and asking it again what it evaluated takes exponential time
            raise UnclearSchema("a part of it applies itself to the same value") from error

    def _look_for_names(self) -> None:
        """Find what references can name."""
        level: list[Any] = [self._root_schema]
        is_root = True
        while level:
            for value in level:
                if isinstance(value, dict):
                    self._look_at(value, is_root=is_root)
            is_root = False
            level = [
                c
                for v in level
                for c in (v.values() if type(v) is dict else v)
                if type(c) is dict or type(c) is list
            ]
        if len(self._named) > MAX_NAMED or any(
            len(schemas) > MAX_NAMED for schemas in (self._anchored, *self._anchors.values())
        ):
            raise UnclearSchema("too many of its parts have a name of their own")

    def _look_at(self, value: dict[str, Any], *, is_root: bool) -> None:
        if _NAMING.isdisjoint(value):
            return
        for name in ("$anchor", "$dynamicAnchor"):
            if isinstance(value.get(name), str):
                self._anchors.setdefault(value[name], []).append(value)
        if value.get("$recursiveAnchor") is True:
            self._anchored.append(value)
        identity = value.get("$id")
        if is_root:
            if isinstance(identity, str):
                self._named[identity] = value
            return
        if isinstance(value.get("$schema"), str):
            raise UnclearSchema("a part of it has a $schema of its own")
        if isinstance(value.get("id"), str) and "draft-0" in str(self._root_schema.get("$schema")):
            raise UnclearSchema("a part of it has an id")
        if isinstance(identity, str):
            if _PLAIN_ID.fullmatch(identity) is None or identity in self._named:
                raise UnclearSchema("a part of it has an $id that is no plain name of its own")
            self._named[identity] = value

    def _node(self, schema: Any) -> Node:
        node = self._nodes.get(id(schema)) if isinstance(schema, dict) else None
        if node is None:
            node = Node()
            if isinstance(schema, dict):
                self._nodes[id(schema)] = node
                self._waiting.append((node, schema))
        return node

    def _listed(self, value: Any) -> list[Node]:
        return (
            [self._node(v) for v in value if isinstance(v, dict)] if isinstance(value, list) else []
        )

    def _mapped(self, value: Any) -> dict[str, Node]:
        return (
            {k: self._node(v) for k, v in value.items() if isinstance(v, dict)}
            if isinstance(value, dict)
            else {}
        )

    def _link(self, node: Node, schema: dict[str, Any]) -> None:
        for keyword, value in schema.items():
            if (group := _KEYWORDS.get(keyword)) is not None:
                _weigh(node, keyword, value)
                if group:
                    self._link_one(node, keyword, group, value)

    def _link_one(self, node: Node, keyword: str, group: str, value: Any) -> None:
        if group == "by_name":
            node.by_name = self._mapped(value)
        elif keyword in _REFS:
            node.same += (
                [self._node(target) for target in self._targets(keyword, value)]
                if isinstance(value, str)
                else []
            )
        elif keyword in _MAPS:
            getattr(node, group).extend(self._mapped(value).values())
        elif isinstance(value, dict):
            getattr(node, group).append(self._node(value))
        elif keyword == "items" or keyword in _LISTS:
            (node.by_place if group == "items" else getattr(node, group)).extend(
                self._listed(value)
            )

    def _targets(self, keyword: str, ref: str) -> list[Any]:
        """What a reference may mean. Raises Unclear."""
        name, _, fragment = ref.partition("#")
        every = [
            self._root_schema,
            *(d for d in self._named.values() if d is not self._root_schema),
        ]
        if keyword == "$recursiveRef":
            return [*every, *(d for d in self._anchored if all(d is not e for e in every))]
        if name:
            if name not in self._named:
                raise UnclearSchema("a reference names another document")
            every = [self._named[name]]
        if not fragment:
            return every
        targets = (
            [v for d in every for v in _pointed(_unquoted(fragment), d)]
            if fragment.startswith("/")
            else self._anchors.get(fragment, [])
        )
        if not targets:
            raise UnclearSchema("a reference names what is not there")
        return targets


def _unquoted(text: str) -> str:
    return _PERCENT.sub(
        lambda match: bytes.fromhex(match[1].decode()), text.encode("utf-8", "surrogatepass")
    ).decode("utf-8", "replace")


def _pointed(pointer: str, value: Any) -> list[Any]:
    """What a JSON pointer finds in `value`: one value or none."""
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif (
            isinstance(value, list)
            and token.isascii()
            and token.isdigit()
            and len(token) < 10
            and int(token) < len(value)
        ):
            value = value[int(token)]
        else:
            return []
    return [value]
