"""Arguments and bodies that two parsers could read differently are refused."""

import contextlib
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.bounds import MAX_ARGUMENT_VALUES, MAX_ODD_KEY_CHARS
from protocol.bytes import json_strict
from protocol.bytes.json_strict import (
    MAX_DEPTH,
    AmbiguousJson,
    dumps,
    loads_arguments,
    loads_body,
    loads_call,
    loads_foreign,
    normal_arguments,
)
from protocol.errors import InvalidRequest
from tests.support.cpu import cpu_within
from tests.support.json_values import as_json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_every_plain_object_is_read_as_json_reads_it(value: dict[str, object]) -> None:
    assert loads_arguments(json.dumps(value)) == value
    assert loads_arguments(json.dumps(value, ensure_ascii=False)) == value
    assert loads_body(as_json(value)) == value


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
    with cpu_within(5):
        with contextlib.suppress(AmbiguousJson):
            loads_arguments(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"command":"ls","Command":"rm -rf /"}', "differ in case"),
        ('{"a":[{"cents":5,"CENTS":100000}]}', "differ in case"),
        ('{"k":1,"\u212a":2}', "differ in case"),
        ('{"s":1,"\u017f":2}', "differ in case"),
        ('{"a":1,"\uff41":2}', "differ in case"),
        ('{"__proto__":{"command":"rm"}}', "prototype"),
        ('{"a":[{"\\u005f_proto__":1}]}', "prototype"),
        ('{"__PROTO__":1}', "prototype"),
        ('{"constructor":{"prototype":{"x":1}}}', "prototype"),
        ('{"command\\u0000":"rm"}', "NUL"),
        ('{"\\u0000":"rm"}', "NUL"),
        ('{"a":9007199254740993}', "integer"),
        ('{"a":[-9007199254740992]}', "integer"),
        ('{"a":[' + "1," * MAX_ARGUMENT_VALUES + "1]}", "values"),
        (
            "{" + ",".join(f'"\u00e9{n:030}":1' for n in range(MAX_ODD_KEY_CHARS // 30)) + "}",
            "too much text in keys",
        ),
    ],
)
def test_arguments_that_two_programs_read_differently_are_refused(text: str, why: str) -> None:
    """Findings 8 and C9."""
    with pytest.raises(AmbiguousJson, match=why):
        loads_call(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"constructor":"Ferrari","prototype":{"x":1},"proto":1,"":{}}',
        '{"a":9007199254740991,"b":-9007199254740991,"c":1e300,"d":true}',
        '{"a":{"x":1},"b":{"X":1},"x":[]}',
        json.dumps({"text": '[{,\\"' * MAX_ARGUMENT_VALUES}),
        "{}",
    ],
)
def test_arguments_that_only_look_doubtful_are_read(text: str) -> None:
    assert loads_call(text) == json.loads(text)


def test_a_tool_may_read_keys_or_integers_exactly() -> None:
    keys, integer = '{"env":{"http_proxy":"a","HTTP_PROXY":"b"}}', '{"tweet":1234567890123456789}'
    assert loads_call(keys, exact_keys=True) == json.loads(keys)
    assert loads_call(integer, exact_integers=True) == json.loads(integer)
    for text in ('{"__proto__":1}', '{"a\\u0000":1}'):
        with pytest.raises(AmbiguousJson):
            loads_call(text, exact_keys=True, exact_integers=True)
    with pytest.raises(AmbiguousJson):
        loads_call(keys, exact_integers=True)
    with pytest.raises(AmbiguousJson):
        loads_call(integer, exact_keys=True)


_8M = 8 << 20


@pytest.mark.parametrize(
    "text",
    [
        '{"a":[' + "{}," * (_8M // 3) + "1]}",
        '{"a":[' + ("[" * 60 + "]" * 60 + ",") * (_8M // 121) + "1]}",
        '{"a":["' + '","' * (_8M // 3) + '"]}',
        '{"a":"' + ',\\"' * (_8M // 3),
        "{" + ",".join(f'"{n:078}":1' for n in range(MAX_ARGUMENT_VALUES - 2)) + "}",
        '{"' + "\u0301\u0316" * (_8M // 4) + '":1}',
        '{"a":[' + "1" * 4_000 + ("," + "1" * 4_000) * 2_000 + "]}",
    ],
    ids=["objects", "deep", "strings", "open", "keys", "marks", "digits"],
)
def test_eight_megabytes_of_arguments_take_no_time_that_others_notice(text: str) -> None:
    with cpu_within(1):
        with contextlib.suppress(AmbiguousJson):
            loads_call(text)


def test_no_arguments_are_an_empty_object_only_by_name() -> None:
    assert [normal_arguments(t) for t in ("", " \n\t", "{}", "x")] == ["{}", "{}", "{}", "x"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"[]",
        b"\xff{}",
        b'{"a":1,"a":2}',
        b'{"a":"\\ud800"}',
        b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
    ],
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
    assert (
        dumps({"a": "\ud800", "b": msgspec.Raw(b'{"c": 1.50}')})
        == b'{"a":"\\ud800","b":{"c": 1.50}}'
    )
    assert dumps(msgspec.Raw(b'{"c": 1.50}')) == b'{"c": 1.50}'
    with pytest.raises(TypeError):
        dumps({"a": "\ud800", "b": object})
    with pytest.raises(ValueError, match="NaN"):
        loads_foreign(b"[NaN]")


_STRING = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            '\\"',
            "\\\\",
            "\\u0061",
            "\\u0022",
            "\\ud83d\\ude00",
            "\\ud800",
            "\u00e9",
            "\\n",
            ":",
            "{",
        ]
    ),
    max_size=3,
).map(lambda parts: '"' + "".join(parts) + '"')
_TEXT = st.recursive(
    _STRING
    | st.sampled_from(
        [
            "1",
            "-0",
            "1.5",
            "1e999",
            "-1e400",
            "0.1",
            "9" * 25,
            "true",
            "null",
            "NaN",
            "Infinity",
            "01",
            "",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")
        | st.lists(st.tuples(_STRING, inner), max_size=3).map(
            lambda pairs: "{" + ",".join(f"{k}:{v}" for k, v in pairs) + "}"
        )
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
    body = as_json(
        {
            "model": "m",
            "messages": [{"role": "user", "content": 'a "quoted" \\ word \u2014 \U0001f600'}] * 3,
            "temperature": 0.7,
        }
    )
    assert json_strict._loads_fast(body, 128) == json.loads(body)
    assert json_strict._loads_fast('{"a": 1, "\\u0061": 2}', 64) is json_strict._UNSURE
