"""Schemas cleaned for a provider: what it sees, while the client's own stays what is checked
against."""

import copy
import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.bytes.json_schema import SchemaTarget, clean
from protocol.bytes.json_schema_parts import MAX_DEPTH, Unsupported
from tests.support.json_values import Json

STRING = {"type": "string"}


def obj(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


def closed(**properties: Any) -> Json:
    return obj(**properties) | {"additionalProperties": False}


def output(schema: Any) -> Any:
    """What becomes of the schema of one property."""
    return clean(obj(p=schema), "anthropic_output")["properties"]["p"]


def test_alternatives_at_the_top_become_one_object_that_takes_them_all() -> None:
    """LiteLLM drops such a oneOf: the model is told of no argument at all."""
    one = obj(kind={"const": "a"}, x=STRING) | {"required": ["kind", "x"], "title": "First"}
    two = obj(kind={"const": "b"}, y=STRING) | {"required": ["kind"]}
    schema = {
        "type": "object",
        "oneOf": [one, {"$ref": "#/$defs/Two"}],
        "$defs": {"Two": two},
        "description": "Do.",
    }
    cleaned = clean(schema, "anthropic_tool")
    assert cleaned == {
        "type": "object",
        "properties": {
            "kind": {"anyOf": [{"const": "a"}, {"const": "b"}]},
            "x": STRING,
            "y": STRING,
        },
        "required": ["kind"],
        "$defs": {"Two": two},
        "description": (
            'Do.\n\nThe arguments have exactly one of these forms: (1) First: kind = "a", x; (2)'
            ' kind = "b", y (optional).'
        ),
    }
    for value in ({"kind": "a", "x": "1"}, {"kind": "b"}, {"kind": "b", "y": "1"}):
        assert jsonschema_rs.is_valid(schema, value)
        assert jsonschema_rs.is_valid(cleaned, value)


def test_all_of_at_the_top_is_one_object() -> None:
    parts = [
        closed(a=STRING) | {"required": ["a"]},
        closed(a={"minLength": 1}, b=STRING) | {"required": ["b"]},
    ]
    merged = clean({"allOf": parts, "properties": {"b": {"maxLength": 3}}}, "anthropic_tool")
    assert merged == closed(
        a={"allOf": [STRING, {"minLength": 1}]}, b={"allOf": [{"maxLength": 3}, STRING]}
    ) | {"required": ["a", "b"]}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string"}, "must be an object"),
        ({"oneOf": [STRING]}, "must be of objects"),
        ({"oneOf": [True]}, "must be of objects"),
        ({"oneOf": []}, "must be lists"),
        ({"anyOf": {}}, "must be lists"),
        ({"anyOf": [{"properties": 7}]}, "properties must be"),
        ({"anyOf": [{"required": 7}]}, "required must be"),
        ({"oneOf": [{"$ref": "https://example.org/x"}]}, "must name a definition"),
        ({"oneOf": [{"$ref": "#/$defs/Nobody"}]}, "must name a definition"),
        ({"oneOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {"$ref": "#/$defs/A"}}}, "circle"),
        (
            {"oneOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}},
            "circle",
        ),
        ({"oneOf": [{"$ref": "#/$defs/A"}], "$defs": []}, r"\$defs must be"),
        ({"oneOf": [{}], "$defs": {"A": {}}, "definitions": {"A": {}}}, "two places"),
        ({"oneOf": [{}] * 3000}, "too many"),
    ],
)
def test_a_top_that_cannot_be_one_object_is_refused(schema: Json, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        clean(schema, "anthropic_tool")


def test_references_that_double_at_each_step_end_soon() -> None:
    definitions: Json = {f"A{i}": {"oneOf": [{"$ref": f"#/$defs/A{i + 1}"}] * 2} for i in range(90)}
    with pytest.raises(Unsupported, match="too many"):
        clean(
            {"oneOf": [{"$ref": "#/$defs/A0"}], "$defs": definitions | {"A90": {}}},
            "anthropic_tool",
        )


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (
            STRING | {"$schema": "x", "$id": "y", "title": "T", "x-order": 3, "readOnly": True},
            STRING,
        ),
        (STRING | {"default": "a"}, STRING | {"default": "a"}),
        (closed(a=STRING) | {"required": ["a"]}, closed(a=STRING) | {"required": ["a"]}),
        (obj(title=STRING), closed(title=STRING)),
        ({"properties": {"a": STRING}}, closed(a=STRING)),
        (closed(), closed()),
        ({"oneOf": [STRING, {"type": "null"}]}, {"anyOf": [STRING, {"type": "null"}]}),
        (
            {"allOf": [STRING | {"description": "b"}], "description": "a"},
            STRING | {"description": "b\n\na"},
        ),
        ({"enum": ["a", 1, None]}, {"enum": ["a", 1, None]}),
        ({"type": "string", "const": "a"}, {"type": "string", "const": "a"}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"type": "array", "items": STRING, "minItems": 1},
            {"type": "array", "items": STRING, "minItems": 1},
        ),
    ],
)
def test_what_the_subset_has_is_kept(schema: Json, expected: Json) -> None:
    assert output(schema) == expected


def test_a_list_of_several_keeps_that_it_is_not_empty() -> None:
    assert output({"type": "array", "items": STRING, "minItems": 3}) == {
        "type": "array",
        "items": STRING,
        "minItems": 1,
        "description": "minItems: 3",
    }


@pytest.mark.parametrize(
    "name",
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"],
)
def test_formats_that_compile_are_kept(name: str) -> None:
    assert output(STRING | {"format": name}) == STRING | {"format": name}


def test_definitions_have_one_place_and_only_the_used_ones_stay() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/definitions/A"},
            "b": {"$ref": "#/$defs/B", "description": "the b", "default": {}},
        },
        "definitions": {"A": obj(b={"$ref": "#/$defs/B"}), "Unused": True},
        "$defs": {"B": {"type": "integer", "minimum": 0}},
    }
    assert clean(schema, "anthropic_output") == closed(
        a={"$ref": "#/$defs/A"},
        b={"anyOf": [{"$ref": "#/$defs/B"}], "description": "the b\n\ndefault: {}"},
    ) | {
        "$defs": {
            "A": closed(b={"$ref": "#/$defs/B"}),
            "B": {"type": "integer", "description": "minimum: 0"},
        }
    }


def nested(depth: int) -> Json:
    schema: Json = STRING
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (True, "must be an object"),
        ({}, "no type"),
        ({"description": "anything"}, "no type"),
        ({"type": "object"}, "open object"),
        (obj(), "open object"),
        (obj(a=STRING) | {"additionalProperties": True}, "open object"),
        (obj(a=STRING) | {"additionalProperties": STRING}, "open object"),
        (obj(a=STRING) | {"patternProperties": {"^x": STRING}}, "open object"),
        (obj(a=STRING) | {"required": ["b"]}, "does not describe"),
        ({"type": "array"}, "must be an object"),
        ({"type": "array", "items": [STRING]}, "must be an object"),
        ({"enum": [{"a": 1}]}, "plain values"),
        ({"enum": []}, "plain values"),
        ({"const": [1]}, "plain values"),
        ({"allOf": [STRING, STRING]}, "several parts"),
        ({"anyOf": [STRING], "oneOf": [STRING]}, "beside it"),
        ({"anyOf": [STRING], "type": "string"}, "beside it"),
        ({"anyOf": []}, "must be a list"),
        ({"$ref": "#"}, "must name a definition"),
        ({"$ref": "https://example.org"}, "must name a definition"),
        ({"$ref": "#/$defs/Nobody"}, "must be an object"),
        (nested(MAX_DEPTH + 5), "deeper"),
    ],
)
def test_what_cannot_be_compiled_is_refused_for_another_way(schema: Any, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        output(schema)


def test_a_definition_that_several_use_is_no_circle() -> None:
    refs = {name: {"$ref": f"#/$defs/{name}"} for name in "ABC"}
    definitions = {"A": obj(b=refs["B"], c=refs["C"]), "B": obj(c=refs["C"]), "C": STRING}
    cleaned = clean(obj(**refs) | {"$defs": definitions}, "anthropic_output")
    assert cleaned == closed(**refs) | {
        "$defs": {
            k: v if k == "C" else v | {"additionalProperties": False}
            for k, v in definitions.items()
        }
    }


def test_recursion_cannot_be_compiled() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/B"}}}
    back = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}},
    }
    with pytest.raises(Unsupported, match="recursive"):
        clean(obj(a={"$ref": "#/$defs/A"}) | {"$defs": {"A": tree, "B": back}}, "anthropic_output")


STRICT = closed(a=STRING) | {"required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (STRICT | {"$schema": "x", "default": {}, "title": "T"}, STRICT | {"title": "T"}),
        (
            STRICT | obj(a={"type": "array", "items": STRICT | {"$id": "x"}}),
            STRICT | obj(a={"type": "array", "items": STRICT}),
        ),
        (
            STRICT | {"properties": {"a": {"anyOf": [STRICT]}}},
            STRICT | {"properties": {"a": {"anyOf": [STRICT]}}},
        ),
        (STRICT | {"$defs": {"A": STRICT}}, STRICT | {"$defs": {"A": STRICT}}),
    ],
)
def test_strict_mode_takes_closed_objects_that_require_everything(
    schema: Json, expected: Json
) -> None:
    assert clean(schema, "openai_strict") == expected


@pytest.mark.parametrize(
    "schema",
    [
        obj(a=STRING),
        closed(a=STRING),
        STRING,
        STRICT | {"allOf": []},
        closed(a=True) | {"required": ["a"]},
        STRICT | {"anyOf": {}},
        STRICT | {"$defs": {"A": obj()}},
        closed(a={"type": "string", "not": {}}) | {"required": ["a"]},
    ],
)
def test_strict_mode_refuses_the_rest(schema: Json) -> None:
    with pytest.raises(Unsupported):
        clean(schema, "openai_strict")


NAMES = st.sampled_from(["a", "b", "title", "type", "$ref"])
LEAVES = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number", "boolean", "null"])},
    optional={
        "minimum": st.integers(0, 9),
        "minLength": st.integers(0, 9),
        "pattern": st.sampled_from(["^a+$", "(?=a)"]),
        "title": st.just("T"),
        "format": st.sampled_from(["date", "color"]),
        "description": st.text(max_size=5),
        "default": st.just(1),
        "x-extra": st.just([]),
    },
)


def _grow(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(NAMES, children, max_size=3)},
        optional={
            "additionalProperties": st.sampled_from([False, True]),
            "minProperties": st.integers(0, 3),
            "oneOf": st.lists(children, min_size=1, max_size=2),
        },
    )
    lists = st.fixed_dictionaries(
        {"type": st.just("array"), "items": children},
        optional={"minItems": st.integers(0, 3), "uniqueItems": st.booleans()},
    )
    return (
        objects
        | lists
        | st.fixed_dictionaries({"anyOf": st.lists(children, min_size=1, max_size=3)})
    )


SCHEMAS = st.recursive(LEAVES | st.booleans() | st.just({}), _grow, max_leaves=8)


def _subschemas(schema: Any) -> list[Json]:
    found = [schema]
    for key in ("properties", "$defs"):
        found += [s for child in schema.get(key, {}).values() for s in _subschemas(child)]
    found += [s for child in schema.get("anyOf", ()) for s in _subschemas(child)]
    return found + (_subschemas(schema["items"]) if "items" in schema else [])


@given(
    properties=st.dictionaries(NAMES, SCHEMAS, min_size=1, max_size=3),
    target=st.sampled_from(["anthropic_tool", "anthropic_output", "openai_tool"]),
)
def test_any_schema_stays_valid_and_the_original_stays_as_it_was(
    properties: Json, target: SchemaTarget
) -> None:
    schema = obj(**properties)
    before = copy.deepcopy(schema)
    try:
        cleaned = clean(schema, target)
    except Unsupported:
        assert target == "anthropic_output"
        return
    finally:
        assert schema == before
    assert jsonschema_rs.meta.is_valid(cleaned)
    assert clean(cleaned, target) == cleaned
    assert cleaned["type"] == "object"
    if target == "anthropic_output":
        allowed = {
            "type",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "anyOf",
            "enum",
            "const",
            "minItems",
            "description",
        }
        for part in _subschemas(cleaned):
            assert part.keys() <= allowed | {"default", "format", "pattern", "$ref", "$defs"}
            assert "properties" not in part or part["additionalProperties"] is False


@given(
    one=st.dictionaries(NAMES, LEAVES, max_size=3),
    two=st.dictionaries(NAMES, LEAVES, max_size=3),
    keyword=st.sampled_from(["oneOf", "anyOf"]),
    data=st.data(),
)
def test_merged_alternatives_take_what_one_of_them_takes(
    one: Json, two: Json, keyword: str, data: st.DataObject
) -> None:
    variants = [
        closed(**properties) | {"required": sorted(properties)} for properties in (one, two)
    ]
    merged = clean({keyword: variants}, "anthropic_tool")
    values = st.sampled_from([None, True, 1, 2.5, "", "a", "aaaaaaaaaa"])
    value = data.draw(
        st.fixed_dictionaries(dict.fromkeys(data.draw(st.sampled_from([one, two])), values))
    )
    if any(jsonschema_rs.is_valid(variant, value) for variant in variants):
        assert jsonschema_rs.is_valid(merged, value)


@pytest.mark.slow
def test_a_large_schema_takes_linear_time() -> None:
    wide = obj(
        **{f"p{i}": STRING | {"minLength": 1, "if": {"const": "x" * 50}} for i in range(20_000)}
    )
    cleaned = clean(wide, "anthropic_output")
    assert len(json.dumps(cleaned)) < 3 * len(json.dumps(wide))
    assert len(clean(wide, "anthropic_tool")["properties"]) == 20_000
