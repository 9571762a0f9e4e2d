"""Arguments and bodies that two parsers could read differently are refused."""

import contextlib
import json
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import json_strict
from protocol.errors import InvalidRequest
from protocol.json_strict import MAX_DEPTH, AmbiguousJson, dumps, loads_arguments, loads_body, loads_foreign, normal_arguments

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_every_plain_object_is_read_as_json_reads_it(value: dict[str, object]) -> None:
    assert loads_arguments(json.dumps(value)) == value
    assert loads_arguments(json.dumps(value, ensure_ascii=False)) == value
    assert loads_body(json.dumps(value).encode()) == value


@pytest.mark.case("J5")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": {"b": [{"c": 1, "\\u0063": 2}]}}', "twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": [Infinity]}', "Infinity"),
        ('{"a": -Infinity}', "Infinity"),
        ('{"a": 1e400}', "too large"),
        ('{"a": -1E999}', "too large"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"\\udfff": 1}', "surrogate"),
        ('{"a": "\ud800"}', "surrogate"),
        ('{"a": 1} x', "valid"),
        ('{"a": 1}{"a": 2}', "valid"),
        ('{"a": 1', "valid"),
        ("{'a': 1}", "valid"),
        ('{"a": 1,}', "valid"),
        ('{"a": "\n"}', "valid"),
        ('{"a": 01}', "valid"),
        ("\ufeff{}", "valid"),
        ("", "valid"),
        ("  ", "valid"),
        ("[]", "object"),
        ("null", "object"),
        ('"{}"', "object"),
        ('{"a": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}", "deeper"),
        ('{"a": ' + "[" * 100_000, "deeper"),
        ('{"a": ' + '{"a": ' * MAX_DEPTH + "1" + "}" * MAX_DEPTH + "}", "deeper"),
    ],
)
def test_ambiguous_arguments_are_refused(text: str, why: str) -> None:
    with pytest.raises(AmbiguousJson, match=why):
        loads_arguments(text)


def test_deepest_allowed_nesting() -> None:
    deep = '{"a": ' + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1) + "}"
    assert loads_arguments(deep)["a"] is not None
    assert loads_arguments('{"a": "' + "[" * 1000 + '"}')


@pytest.mark.case("J5")
def test_pairs_of_surrogates_and_large_integers_are_kept() -> None:
    assert loads_arguments('{"a": "\\ud83d\\ude00", "b": 123456789012345678901234567890}') == {
        "a": "😀",
        "b": 123456789012345678901234567890,
    }


@pytest.mark.case("U9")
@pytest.mark.parametrize(
    "text",
    [
        '{"a":"' + "x" * 5_000_000 + '"}',
        '{"a":"' + '\\"' * 2_500_000,
        '{"a":[' + '"a",' * 1_000_000 + "1]}",
        '{"a":"' + "\\ud83d\\ude00" * 400_000 + '"}',
        '{"a":' + "[" * 5_000_000,
    ],
    ids=["text", "unterminated", "strings", "emoji", "deep"],
)
def test_five_megabytes_take_linear_time(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(AmbiguousJson):
        loads_arguments(text)
    assert time.process_time() - start < 5


def test_no_arguments_are_an_empty_object_only_by_name() -> None:
    assert [normal_arguments(t) for t in ("", " \n\t", "{}", "x")] == ["{}", "{}", "{}", "x"]


@pytest.mark.parametrize(
    "body", [b"", b"x", b"[]", b"\xff{}", b'{"a":1,"a":2}', b'{"a":"\\ud800"}', b'{"a":' + b"[" * 200 + b"]" * 200 + b"}"]
)
def test_bad_bodies_say_so(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="request body") as caught:
        loads_body(body)
    assert caught.value.error_code == "invalid_json"


def test_lone_surrogates_go_out_as_they_came() -> None:
    value = loads_foreign(b'{"a":"\\ud800x"}')
    assert value == {"a": "\ud800x"}
    assert dumps(value) == b'{"a":"\\ud800x"}'
    assert dumps({"a": "\u00e9"}) == '{"a":"é"}'.encode()
    assert dumps({"a": "\ud800", "b": msgspec.Raw(b'{"c": 1.50}')}) == b'{"a":"\\ud800","b":{"c": 1.50}}'
    assert dumps(msgspec.Raw(b'{"c": 1.50}')) == b'{"c": 1.50}'
    with pytest.raises(TypeError):
        dumps({"a": "\ud800", "b": object})
    with pytest.raises(ValueError, match="NaN"):
        loads_foreign(b"[NaN]")


_STRING = st.lists(
    st.sampled_from(["a", "b", '\\"', "\\\\", "\\u0061", "\\u0022", "\\ud83d\\ude00", "\\ud800", "\u00e9", "\\n", ":", "{"]), max_size=3
).map(lambda parts: '"' + "".join(parts) + '"')
_TEXT = st.recursive(
    _STRING | st.sampled_from(["1", "-0", "1.5", "1e999", "-1e400", "0.1", "9" * 25, "true", "null", "NaN", "Infinity", "01", ""]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")
        | st.lists(st.tuples(_STRING, inner), max_size=3).map(lambda pairs: "{" + ",".join(f"{k}:{v}" for k, v in pairs) + "}")
    ),
    max_leaves=12,
)


@settings(max_examples=400)
@given(_TEXT, st.sampled_from([2, 64]))
def test_what_the_fast_parser_takes_is_what_the_strict_one_reads(text: str, depth: int) -> None:
    fast = json_strict._loads_fast(text, depth)
    if fast is not json_strict._UNSURE:
        assert repr(fast) == repr(json_strict._loads_slow(text, depth))


def test_a_plain_history_takes_the_fast_way() -> None:
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": 'a "quoted" \\ word \u2014 \U0001f600'}] * 3, "temperature": 0.7}
    ).encode()
    assert json_strict._loads_fast(body, 128) == json.loads(body)
    assert json_strict._loads_fast('{"a": 1, "\\u0061": 2}', 64) is json_strict._UNSURE
