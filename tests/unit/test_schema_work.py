"""Schemas of clients: what checking by them takes is known before it is begun, and no validator is
busy for longer."""

import contextlib
import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from policy.base import Policy, Replace, ToolCall, Verdict
from policy.schemas.schema_work import Estimate, SchemaBudget, TooMuchWork, size_of
from policy.schemas.schemas import AnswerCheck, ToolSchemas, compile_client_schema, compile_schema
from protocol.bounds import (
    MAX_ARGUMENT_VALUES,
    MAX_CHECKED_CHARS,
    MAX_SCHEMA_EXPANSION,
    MAX_SCHEMA_WORK,
)
from protocol.bytes.json_schema_bounds import bounds_of
from protocol.bytes.json_schema_graph import Graph, UnclearSchema, states
from protocol.dialects.table import CLIENTS
from protocol.errors import InvalidRequest
from protocol.request import DialectName, Tool
from tests.support.checks.block_runs import Run, client
from tests.support.clients.schemas import Schema, doubled
from tests.support.cpu import cpu_within
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import read_request

STEP_S = 0.5
"""CPU that the worst may take here: twice what is aimed at, for slow machines."""


def asked_again(levels: int) -> Schema:
    schema: Schema = {"type": "object"}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": {"type": "object"}}
    return schema


def of_items(items: Schema) -> Schema:
    return {"properties": {"a": {"items": items}}}


def of_text(pattern: str) -> Schema:
    return {"properties": {"a": {"pattern": pattern}}}


def took(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def expansions(schema: Schema) -> int:
    return bounds_of(Graph(schema).root).expansions


def check(schema: Schema, value: Any) -> bool | None:
    return ToolSchemas().is_valid(Tool("f", schema=schema), value)


# --- refused with the request ---


def body(dialect: DialectName, schema: Schema, where: str) -> bytes:
    function = {"name": "f", "parameters": schema}
    given: dict[tuple[str, str], Json] = {
        ("openai", "tools"): {"tools": [{"type": "function", "function": function}]},
        ("openai", "functions"): {"functions": [function]},
        ("openai", "answer"): {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": schema},
            }
        },
        ("anthropic", "tools"): {"tools": [{"name": "f", "input_schema": schema}]},
        ("anthropic", "answer"): {
            "output_config": {"format": {"type": "json_schema", "schema": schema}}
        },
    }
    return as_json(
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
        | given[dialect, where]
    )


@pytest.mark.parametrize(
    ("dialect", "where", "named"),
    [
        ("openai", "tools", "tools[0].function.parameters"),
        ("openai", "functions", "functions[0].parameters"),
        ("openai", "answer", "response_format.json_schema.schema"),
        ("anthropic", "tools", "tools[0].input_schema"),
        ("anthropic", "answer", "output_config.format.schema"),
    ],
)
@pytest.mark.parametrize(
    "schema", [doubled(40), asked_again(18)], ids=["references", "unevaluated"]
)
def test_a_schema_that_unfolds_too_often_is_refused_by_name(
    dialect: DialectName, where: str, named: str, schema: Schema
) -> None:
    given = body(dialect, schema, where)
    with cpu_within(STEP_S):
        with pytest.raises(InvalidRequest) as refused:
            CLIENTS[dialect].decode_request(given)
    assert refused.value.message.startswith(named)
    assert f"may have {MAX_SCHEMA_EXPANSION:,}" in refused.value.message


def test_many_schemas_that_each_pass_are_refused_together() -> None:
    tools = [{"name": f"f{n}", "input_schema": doubled(12)} for n in range(10)]
    data = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "x"}],
        "tools": tools,
    }
    with pytest.raises(
        InvalidRequest, match=r"input_schema has .*references unfolded, with those before"
    ):
        read_request("anthropic", data)
    read_request("anthropic", data | {"tools": tools[:4]})


def test_escapes_do_not_hide_a_reference() -> None:
    hidden = body("anthropic", doubled(40), "tools").replace(b"$ref", rb"\u0024\u0072ef")
    with pytest.raises(InvalidRequest, match="unfolded"):
        CLIENTS["anthropic"].decode_request(hidden)


# --- checked in bounded time, or not at all ---

HOSTILE: dict[str, tuple[Schema, Any]] = {
    "references": (doubled(40), {}),
    "references for each item": (of_items(doubled(12)) | doubled(12), {"a": [{}] * 50_000}),
    "unevaluated": (asked_again(18), {f"k{i}": {} for i in range(100)}),
    "enumerations": (
        of_items({"enum": [{"a": i} for i in range(1_000)]}),
        {"a": [{"a": 999}] * 20_000},
    ),
    "a pattern that backtracks": (of_text(r"(?=.*a)(?=.*b)\w*!"), {"a": "ab" * 200_000}),
    "a pattern of many states": (of_text(r"a[ab]{1000}[!?]"), {"a": "ab" * 2_000_000}),
    "repetitions of repetitions": (
        of_text(r"(([ab]*a[ab]{100}){10}){10}[cd]"),
        {"a": "ab" * 1_000_000},
    ),
    "a pattern that is long to compile": (of_text(r"\s" * 2_000), {"a": "x"}),
    "many patterns": (
        {"properties": {f"p{i}": {"pattern": rf"^(?=a)\w+{i}$"} for i in range(3_000)}},
        {"p1": "x"},
    ),
    "patterns of names": (
        {"patternProperties": {rf"a[ab]{{{500 + i}}}": {} for i in range(100)}},
        {"ab" * 5_000: 1},
    ),
    "patterns of names from $defs": (
        {"propertyNames": {"pattern": r"a[ab]{1000}[!?]"}},
        {"ab" * 500_000: 1},
    ),
    "unique at every level": (
        {
            "$defs": {"u": {"uniqueItems": True, "items": {"$ref": "#/$defs/u"}}},
            "properties": {"a": {"$ref": "#/$defs/u"}},
        },
        {"a": [[list(range(60)) for _ in range(30)] for _ in range(40)]},
    ),
    "many values": (of_items({"required": [f"r{i}" for i in range(3_000)]}), {"a": [{}] * 60_000}),
    "more values than are looked at": ({"type": "object"}, {"a": [1] * (MAX_ARGUMENT_VALUES + 1)}),
    "a schema in a schema that begins anew": (
        {"$id": "r", "allOf": [{"$id": "s", "$ref": "#/$defs/a0"}], **doubled(40)},
        {},
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_worst_schema_with_the_worst_arguments_takes_little_time(name: str) -> None:
    schema, value = HOSTILE[name]

    def tried() -> None:
        with contextlib.suppress(TooMuchWork):
            check(schema, value)

    seconds = min(took(tried) for _ in range(3))
    print(f"{name}: {seconds:.3f} s of CPU")
    assert seconds < STEP_S


def test_a_call_has_one_budget_for_all_its_checks() -> None:
    schemas, value = ToolSchemas(), {"a": [{"a": 999}] * 1_000}
    checked = 0

    def use_up() -> None:
        nonlocal checked
        for n in range(500):
            try:
                schemas.is_valid(
                    Tool(f"f{n % 50}", schema=of_items({"enum": [{"a": i} for i in range(50)]})),
                    value,
                )
                checked += 1
            except TooMuchWork:
                pass

    assert took(use_up) < 2 * STEP_S
    assert 0 < checked < 500


def test_what_is_not_checked_in_time_counts_as_not_fitting() -> None:
    schema, value = HOSTILE["enumerations"]
    assert ToolSchemas().fits(Tool("f", schema=schema), value) is False
    answer = AnswerCheck(schema)
    answer.add(json.dumps(value))
    assert answer.problem() == "too large to be checked"


def test_an_answer_that_is_too_long_to_be_checked_counts_as_not_fitting() -> None:
    for size, problem in (
        (MAX_CHECKED_CHARS, ""),
        (MAX_CHECKED_CHARS + 1, "too large to be checked"),
    ):
        answer = AnswerCheck({"type": "string"})
        answer.add('"')
        answer.add("x" * (size - 2))
        answer.add('"')
        assert answer.problem() == problem


class Swap(Policy):
    name = "swap"

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Replace('{"a": "' + "ab" * 200_000 + '"}')


def test_a_replacement_that_cannot_be_checked_is_blocked() -> None:
    run = Run(
        Swap(), max_arguments=10**6, tools=(Tool("bash", schema=of_text(r"(?=.*a)(?=.*b)\w*!")),)
    )
    run.feed(*client(0, arguments='{"a": "' + "x" * 200_000 + '"}'))
    assert run.rows("verdict", "reason", "schema_valid") == [("block", "schema", None)]


# --- what is not hostile is checked ---

EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
TREE = {
    "$ref": "#/$defs/n",
    "$defs": {
        "n": {
            "type": "object",
            "properties": {"next": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
        }
    },
}


DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


def tree(depth: int) -> Schema:
    return {"next": [tree(depth - 1)] * 3} if depth else {}


LOGIC: Schema = {
    "anyOf": [
        {
            "properties": {
                "op": {"const": op},
                "of": {"type": "array", "items": {"$ref": "#"}},
            },
            "required": ["op", "of"],
        }
        for op in ("and", "or", "not", "xor", "any", "all", "none", "one")
    ]
    + [{"properties": {"is": {"type": "string"}}, "required": ["is"]}]
}
TYPEBOX: Schema = {
    "$id": "T0",
    "type": "object",
    "properties": {"nodes": {"type": "array", "items": {"$ref": "T0"}}},
}
NAMED: Schema = {
    "$defs": {"x": {"$id": "Node", "properties": {"a": {"$ref": "Node"}, "b": {"type": "string"}}}},
    "$ref": "Node",
}


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        (
            {"properties": {"to": {"pattern": EMAIL}, "body": {"type": "string"}}},
            {"to": "a.b@example.com", "body": "x" * 300_000},
            True,
        ),
        (
            {"properties": {"to": {"pattern": EMAIL}, "body": {"type": "string"}}},
            {"to": "a..b@example.com", "body": "x" * 300_000},
            False,
        ),
        (of_items({"type": "object", "required": ["a"]}), {"a": [{"a": 1}] * 20_000}, True),
        (TREE, tree(6), True),
        (TREE, {"next": [{"next": {}}]}, False),
        (LOGIC, {"op": "xor", "of": [{"op": "not", "of": [{"is": "a"}]}] * 5}, True),
        (LOGIC, {"op": "xor", "of": [{"op": "not", "of": [{"is": 1}]}] * 5}, False),
        (TYPEBOX, {"nodes": [{"nodes": []}]}, True),
        (TYPEBOX, {"nodes": [{"nodes": 1}]}, False),
        (NAMED, {"a": {"b": 1}}, False),
        (
            {"$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}, "required": []},
            {"a": {"a": {}}},
            True,
        ),
        (
            {
                "$defs": {"s": {"$anchor": "s", "type": "string"}},
                "properties": {"a": {"$ref": "#s"}},
            },
            {"a": 1},
            False,
        ),
        (
            {"$defs": {"a/b": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/a~1b"}}},
            {"a": 1},
            False,
        ),
        (
            {
                "$defs": {"\u00e4 b": {"type": "string"}},
                "properties": {"a": {"$ref": "#/$defs/%C3%A4%20b"}},
            },
            {"a": 1},
            False,
        ),
        (
            {"prefixItems": [{"$ref": "#/prefixItems/1"}, {"type": "object"}], "type": "object"},
            {},
            True,
        ),
        (
            {"$schema": DRAFT_2019, "properties": {"a": {"$recursiveRef": "#"}}, "type": "object"},
            {"a": {"a": 1}},
            False,
        ),
    ],
)
def test_what_is_not_hostile_is_checked(schema: Schema, value: Any, fits: bool) -> None:
    assert check(schema, value) is fits


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$ref": "http://json-schema.org/draft-07/schema#"},
        {"$ref": "#nowhere"},
        {"$ref": "#/nowhere"},
        {"$ref": "#/allOf/7", "allOf": [{}]},
        {"properties": {"a": {"$id": "http://x/y"}}},
        {"properties": {"a": {"$id": "a"}, "b": {"$id": "a"}}},
        {"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"id": "a"}}},
        {"$defs": {f"d{n}": {"$id": f"d{n}"} for n in range(100)}},
    ],
)
def test_a_schema_whose_references_are_not_clear_is_none(schema: Schema) -> None:
    with pytest.raises(UnclearSchema):
        compile_schema(schema)
    assert check(schema, {}) is None


def test_a_reference_means_whatever_it_might_mean() -> None:
    # read from x-a, `#/$defs/b` is the empty schema for one draft and the large one for another
    schema = {
        "$ref": "#/x-a",
        "x-a": {"$id": "b", "allOf": [{"$ref": "#/$defs/a0"}], "$defs": {"a0": {}}},
        "$defs": doubled(40)["$defs"],
    }
    assert expansions(schema) > MAX_SCHEMA_EXPANSION


# --- the estimate is an upper bound ---


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("abc", 4),
        ("a{5}b{3,}", 9),
        ("((a{10}){10}){10}", 1001),
        ("[]a]{3}", 4),
        ("[abc", 5),
        ("a{,7}", 8),
        ("(((", 1),
        (r"\d{4}", 5),
        ("a)b", 4),
    ],
)
def test_states_of_a_pattern(pattern: str, count: int) -> None:
    assert states(pattern) == count


def test_states_have_a_bound() -> None:
    assert states("(" * 40 + "a" + "){99999}" * 40) == (1 << 60) + 1


class Maker:
    """Schemas that everything fits, so that nothing ends early, and values for them. For one value,
    references lead forward only."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._definitions = self._chance.randint(1, 8)

    def schema(self) -> Schema:
        chance = self._chance
        return {
            "$defs": {
                f"d{n}": self._part(chance.randint(1, 3), n + 1) for n in range(self._definitions)
            },
            **self._part(3, 0),
        }

    def _part(self, depth: int, least: int) -> Schema:
        chance = self._chance
        if depth > 0 and chance.random() > 0.12:
            made: Schema = {}
            for _ in range(chance.randint(1, 3)):
                made |= self._keyword(depth - 1, least)
            return made
        if least < self._definitions and chance.random() < 0.4:
            return self._reference(least)
        plain: list[Schema] = [
            {},
            {"minProperties": 0},
            {"maxLength": 10**6},
            {"not": {"const": [1, 2]}},
            {"pattern": ".*"},
            {"uniqueItems": False},
            {"not": {"required": [f"q{n}" for n in range(50)]}},
            {"not": {"enum": [{"z": n} for n in range(20)]}},
        ]
        return chance.choice(plain)

    def _reference(self, least: int) -> Schema:
        return (
            {"$ref": f"#/$defs/d{self._chance.randrange(least, self._definitions)}"}
            if least < self._definitions
            else {}
        )

    def _keyword(self, depth: int, least: int) -> Schema:
        chance = self._chance
        names = chance.sample("abc", chance.randint(1, 3))

        def same() -> Schema:
            return self._part(depth, least)

        def inside() -> Schema:
            return self._part(depth, 0)

        match chance.choice(
            [
                "all",
                "all",
                "any",
                "not",
                "if",
                "named",
                "named",
                "pattern",
                "one",
                "reference",
                "reference",
            ]
        ):
            case "all":
                return {"allOf": [same() for _ in names]}
            case "any":
                return {
                    chance.choice(["anyOf", "oneOf"]): [
                        *({"allOf": [same(), False]} for _ in names),
                        same(),
                    ]
                }
            case "not":
                return {"not": {"allOf": [same(), False]}}
            case "if":
                return {"if": same(), "then": same()}
            case "named":
                return {"properties": {name: inside() for name in names}}
            case "pattern":
                return {
                    "patternProperties": {
                        pattern: inside()
                        for pattern in chance.sample(["^a", "b$", ".*", "[ab]"], 2)
                    }
                }
            case "one":
                keywords = [
                    "additionalProperties",
                    "items",
                    "unevaluatedProperties",
                    "unevaluatedItems",
                    "propertyNames",
                ]
                return {chance.choice(keywords): inside()}
        return self._reference(least)

    def value(self, depth: int) -> Any:
        chance = self._chance
        if depth <= 0 or chance.random() < 0.1:
            return chance.choice([1, "abc", "ab" * 20, True, None, {}, []])
        if chance.random() < 0.75:
            return {
                name: self.value(depth - 1) for name in chance.sample("abc", chance.randint(1, 3))
            }
        return [self.value(depth - 1) for _ in range(chance.randint(1, 6))]


def test_the_estimate_is_an_upper_bound() -> None:
    first = random.randrange(10**6)
    print(f"seed {first}")
    estimated = 0
    for seed in range(first, first + 120):
        maker = Maker(seed)
        try:
            schema = compile_client_schema(maker.schema(), SchemaBudget(1e12))
        except ValueError:
            continue
        value, budget = maker.value(6), SchemaBudget(float(MAX_SCHEMA_WORK))
        try:
            seconds = took(lambda: schema.is_valid(value, budget))  # noqa: B023 - called at once
        except TooMuchWork:
            continue
        units = MAX_SCHEMA_WORK - budget.left
        estimated += 1
        # a unit is 10 ns; the rest is for what every check takes, and for slow machines
        assert seconds < 4 * units * 1e-8 + 0.05, (
            f"seed {seed}: {seconds} s, estimated {units * 1e-8} s"
        )
    assert estimated > 50


def test_the_walk_agrees_with_the_validator_on_where_schemas_apply() -> None:
    # the long text beside the pattern is not under it; one that is takes too much
    estimate = Estimate({"items": {"properties": {"p": {"pattern": EMAIL}}}}, SchemaBudget())
    estimate.check([{"p": "a@b.cc", "other": "x" * 100_000}], SchemaBudget())
    with pytest.raises(TooMuchWork):
        estimate.check([{"p": "x" * 100_000}], SchemaBudget())
    # every pattern of names is taken to match
    estimate = Estimate({"patternProperties": {"^q": {"pattern": EMAIL}}}, SchemaBudget())
    with pytest.raises(TooMuchWork):
        estimate.check({"other": "x" * 100_000}, SchemaBudget())


def test_size_counts_values_and_characters() -> None:
    assert size_of({"ab": ["cde", 1, {"f": None}]}, 10) == (6, 6)
    with pytest.raises(TooMuchWork):
        size_of([1, 2, 3], 3)


def test_a_tool_that_gets_another_schema_is_held_against_that_one() -> None:
    """A turn that goes on has a request of its own, in which a policy may narrow a tool."""
    schemas = ToolSchemas()
    wide, narrow = (
        {"type": "object", "properties": {"a": {"enum": values}}} for values in (["x", "y"], ["x"])
    )
    assert [
        schemas.is_valid(Tool("f", schema=schema), {"a": "y"}) for schema in (wide, narrow, wide)
    ] == [True, False, True]


def test_a_schema_that_takes_too_long_is_not_compiled_again() -> None:
    schemas, schema = (
        ToolSchemas(),
        {
            "type": "object",
            "properties": {f"p{n}": {"pattern": r"\w" * 400} for n in range(400)},
        },
    )
    for _ in range(100):
        with pytest.raises(TooMuchWork):
            schemas.is_valid(Tool("f", schema=schema), {"p1": "x"})
    # what is left of the budget is for the others
    assert len(schemas._compiled) == 1
