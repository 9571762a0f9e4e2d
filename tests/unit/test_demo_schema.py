"""Instances that the demo model makes of schemas: they fit, and whatever a schema asks for costs
little."""

import contextlib
import json
import time
import tracemalloc
from typing import Any, Literal

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from demo.schema import SizeBudget, TooMuch, instance, required
from protocol.bounds import DEMO_MADE_CHARS, DEMO_VALUES
from tests.support.cpu import cpu_within, slowness
from tests.support.json_values import Json


class Node(BaseModel):
    value: int
    next: "Node | None"


class Tree(BaseModel):
    name: str = Field(min_length=8, max_length=10)
    children: list["Tree"]
    parent: "Tree | None"


class Event(BaseModel):
    name: str
    kind: Literal["talk", "meal"]
    seats: int = Field(ge=3, multiple_of=2)
    price: float = Field(gt=0, lt=1)
    guests: list[str] = Field(min_length=2)
    place: str | None
    day: dict[str, int]
    notes: str = "none"
    tree: Tree


def fits(schema: Any, value: Any) -> bool:
    return bool(jsonschema_rs.validator_for(schema).is_valid(value))


@pytest.mark.parametrize("model", [Node, Tree, Event])
def test_what_pydantic_writes_is_answered_with_what_it_reads(model: type[BaseModel]) -> None:
    made = instance(model.model_json_schema(), SizeBudget())
    assert isinstance(model.model_validate(made), model)
    assert fits(model.model_json_schema(), made)


def test_a_minimal_instance_has_what_is_required_and_no_more() -> None:
    assert instance(Node.model_json_schema(), SizeBudget()) == {"value": 0, "next": None}
    assert instance(Event.model_json_schema(), SizeBudget())["seats"] == 4
    assert "notes" not in instance(Event.model_json_schema(), SizeBudget())


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": "object"},
        {"type": ["null", "integer"]},
        {"type": "null"},
        {"const": {"a": [1]}},
        {"enum": ["x", 1]},
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "uuid"},
        {"type": "string", "maxLength": 0},
        {"type": "string", "minLength": 100},
        {"type": "integer", "minimum": 2.5},
        {"type": "integer", "exclusiveMinimum": 0},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.1},
        {"type": "number", "maximum": -3.5},
        {"type": "integer", "exclusiveMaximum": 0},
        {"type": "integer", "maximum": -10, "multipleOf": 7},
        {"minimum": 4, "type": "number"},
        {"type": "array", "minItems": 3, "items": {"type": "integer"}},
        {"type": "array", "minItems": 2, "prefixItems": [{"type": "string"}, {"type": "boolean"}]},
        {"items": {"type": "string"}},
        {"required": ["a", "b"], "properties": {"a": {"type": "integer"}}},
        {
            "type": "object",
            "properties": {"k": {"enum": ["z"]}},
            "anyOf": [{"required": ["k"]}, {"required": ["l"]}],
        },
        {
            "allOf": [
                {"$ref": "#/$defs/a"},
                {"required": ["b"], "properties": {"b": {"type": "integer"}}},
            ],
            "$defs": {
                "a": {"type": "object", "required": ["a"], "properties": {"a": {"const": 7}}}
            },
        },
        {"oneOf": [{"type": "array", "minItems": 1, "items": {"$ref": "#"}}, {"type": "integer"}]},
        {"anyOf": [False, {"type": "boolean"}]},
        {"allOf": [True, {"type": "null"}]},
        {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "boolean"}}},
    ],
)
def test_an_instance_fits_its_schema(schema: Any) -> None:
    assert fits(schema, instance(schema, SizeBudget()))


WIDE = {f"p{n}": {"type": "string"} for n in range(20_000)}
MUCH: list[Any] = [
    {"required": list(WIDE), "properties": WIDE},
    {"type": "array", "minItems": 10**9},
    {"type": "string", "minLength": 10**9},
    {"type": "array", "minItems": 10**4, "items": {"const": "x" * 99}},
    {"const": "x" * 200_000},
    {"enum": [["x" * 100] * 2_000]},
    {"default": "\U0001f600" * 10_000},
    {"required": ["x" * 200_000]},
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"required": ["a"], "properties": {"a": {"$ref": "#"}}},
    {"allOf": [{"$ref": "#"}]},
    {"anyOf": [{"$ref": "#"}] * 50_000},
    {
        "required": ["a", "b", "c"],
        "properties": {n: {"anyOf": [{"$ref": "#/properties/" + m} for m in "abc"]} for n in "abc"},
    },
    # each definition requires the next one ten times
    {
        "$ref": "#/$defs/d0",
        "$defs": {
            f"d{n}": {
                "required": [f"r{m}" for m in range(10)],
                "properties": {f"r{m}": {"$ref": f"#/$defs/d{n + 1}"} for m in range(10)},
            }
            for n in range(30)
        }
        | {"d30": {"type": "string"}},
    },
    # a long list looked at again and again
    {
        "required": [f"r{n}" for n in range(900)],
        "properties": {f"r{n}": {"$ref": "#/$defs/a"} for n in range(900)},
        "$defs": {"a": {"type": ["null"] * 30_000}},
    },
    {
        "required": [f"r{n}" for n in range(900)],
        "properties": {f"r{n}": {"$ref": "#/$defs/a"} for n in range(900)},
        "$defs": {"a": {"allOf": [{"properties": WIDE}]}},
    },
    {
        "required": [f"r{n}" for n in range(900)],
        "properties": {f"r{n}": {"$ref": "#/$defs/a"} for n in range(900)},
        "$defs": {"a": {"anyOf": [{}], **{f"k{n}": 1 for n in range(10_000)}}},
    },
    {"$ref": "#" + "/a" * 100_000},
]


@pytest.mark.parametrize("schema", MUCH)
def test_what_a_schema_makes_is_bounded_before_it_is_made(schema: Any) -> None:
    with cpu_within(0.5):
        try:
            made = instance(schema, SizeBudget())
        except (TooMuch, LookupError, RecursionError):
            made = None
    assert len(json.dumps(made)) < 20 * DEMO_MADE_CHARS


def often(schema: Any) -> Json:
    return {"type": "array", "minItems": DEMO_VALUES - 10, "items": schema}


LONG = [1] * 80_000
CHAIN = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(500)} | {"d500": {"type": "string"}}
READ: list[Any] = [
    often({"type": "string", "format": LONG}),
    often({"type": {"a": LONG}}),
    often({"allOf": [True] * 40_000}),
    often({"required": ["a"] * 40_000}),
    often({"const": "", **{f"k{n}": 1 for n in range(10_000)}}),
    # each level would hold a list of its own
    {"allOf": [{"$ref": "#"}, *[True] * 40_000]},
    {"$defs": CHAIN, "allOf": [{"$ref": "#/$defs/d0", **{f"k{n}": 1 for n in range(10_000)}}]},
]


@pytest.mark.parametrize("schema", READ)
def test_what_of_a_schema_is_read_is_bounded_too(schema: Any) -> None:
    """Though next to nothing is made of it."""
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises((TooMuch, TypeError)):
            instance(schema, SizeBudget())
        assert time.process_time() - began < 0.25 * slowness()
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=3), v, max_size=4),
    max_leaves=8,
)
WORDS = (
    "type properties required items minItems anyOf allOf oneOf $ref enum const default minimum"
    " multipleOf minLength maxLength prefixItems"
)


@given(
    st.dictionaries(
        st.sampled_from(WORDS.split()),
        values | st.sampled_from(["#", "object", "array", "string", "integer"]),
        max_size=6,
    )
)
def test_an_odd_schema_is_one_of_the_errors_that_become_400(schema: Json) -> None:
    for make in (
        lambda: instance(schema, SizeBudget()),
        lambda: required(schema, {"a": 1}, SizeBudget()),
    ):
        with contextlib.suppress(
            ValueError, TypeError, AttributeError, LookupError, RecursionError, ArithmeticError
        ):
            json.dumps(make())
