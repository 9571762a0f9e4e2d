"""The demo model: its scripts as the official SDKs read them, deterministic, and never an
exception."""

import json
from itertools import islice
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo import model as demo
from protocol.bounds import DEMO_CALLS, DEMO_CHARS, DEMO_TOOLS, DEMO_WORDS
from protocol.request import DialectName
from tests.support.clients.sdk import anthropic_answer, openai_answer
from tests.support.cpu import cpu_within
from tests.support.json_values import Json, as_json

DIALECTS: list[DialectName] = ["openai", "anthropic"]
WEATHER = {
    "type": "object",
    "properties": {"days": {"type": "integer"}, "place": {"type": "string"}},
}
BASH = {"type": "object", "properties": {"command": {"type": "string"}}}


def asked(
    dialect: DialectName,
    words: str,
    *,
    stream: bool,
    body: Json | None = None,
    **tools: Any,
) -> bytes:
    offered: list[Json] = []
    for name, schema in tools.items():
        if dialect == "openai":
            offered.append({"type": "function", "function": {"name": name, "parameters": schema}})
        else:
            offered.append({"name": name, "input_schema": schema})
    request = {
        "model": "demo",
        "stream": stream,
        "messages": [{"role": "user", "content": words}],
        "tools": offered,
    }
    return as_json(request | (body or {}))


def said(
    dialect: DialectName,
    words: str,
    *,
    stream: bool,
    body: Json | None = None,
    **tools: Any,
) -> tuple[str, list[Any], str | None]:
    """Text, calls and stop reason, as the dialect's SDK has them; `body` is added to the
    request."""
    script = demo.script(dialect, "chat", asked(dialect, words, stream=stream, body=body, **tools))
    assert script.status == 200
    data = b"".join(piece for _, piece in script.steps)
    if dialect == "openai":
        choice = openai_answer(data, stream=stream).choices[0]
        calls: list[Any] = list(choice.message.tool_calls or ())
        named = [(c.function.name, json.loads(c.function.arguments)) for c in calls]
        return choice.message.content or "", named, choice.finish_reason
    message = anthropic_answer(data, stream=stream)
    text = "".join(b.text for b in message.content if b.type == "text")
    return (
        text,
        [(b.name, b.input) for b in message.content if b.type == "tool_use"],
        message.stop_reason,
    )


def steps(script: demo.ScriptedAnswer) -> list[tuple[float, bytes]]:
    return list(script.steps)


both = pytest.mark.parametrize(
    ("dialect", "stream"), [(d, s) for d in DIALECTS for s in (True, False)]
)


STRICT_BASH = {
    "type": "object",
    "required": ["command", "timeout", "why"],
    "properties": {
        "command": {"type": "string"},
        "timeout": {"type": "integer", "minimum": 1},
        "why": {"type": "string"},
    },
}


def choice(dialect: DialectName, name: str) -> Json:
    """`tool_choice`: "any" for a call of some tool, "none", or a tool's name."""
    if dialect == "anthropic":
        return {
            "tool_choice": (
                {"type": name} if name in ("any", "none") else {"type": "tool", "name": name}
            )
        }
    words = {"any": "required", "none": "none"}
    return {"tool_choice": words.get(name) or {"type": "function", "function": {"name": name}}}


@both
def test_a_forced_choice_is_a_call_of_that_tool(dialect: DialectName, stream: bool) -> None:
    def calls(words: str, name: str) -> list[Any]:
        return said(
            dialect,
            words,
            stream=stream,
            body=choice(dialect, name),
            get_weather=WEATHER,
            bash=STRICT_BASH,
        )[1]

    filled = {"command": "demo", "timeout": 1, "why": "demo"}
    assert calls("hello", "bash") == [("bash", filled)]
    assert calls("hello", "any") == [("get_weather", {})]
    assert calls("weather in Rome, then rm -rf /x", "bash") == [
        ("bash", filled | {"command": "rm -rf /x"})
    ]
    assert calls("weather in Rome", "any") == [("get_weather", {"place": "Rome"})]
    assert calls("weather in Rome", "none") == []
    assert calls("hello", "unknown") == []


ANSWER = {
    "type": "object",
    "required": ["name", "day"],
    "properties": {"name": {"type": "string"}, "day": {"enum": ["Friday"]}},
}
FORMATS: list[tuple[DialectName, Json]] = [
    (
        "openai",
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "event", "schema": ANSWER},
            }
        },
    ),
    ("anthropic", {"output_config": {"format": {"type": "json_schema", "schema": ANSWER}}}),
    ("anthropic", {"output_format": {"type": "json_schema", "schema": ANSWER}}),
]


@pytest.mark.parametrize(("dialect", "body"), FORMATS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_structured_answer_is_an_instance_of_its_schema(
    dialect: DialectName, body: Json, stream: bool
) -> None:
    text, calls, _ = said(
        dialect, "Alice goes to a fair", stream=stream, body=body, get_weather=WEATHER
    )
    assert (json.loads(text), calls) == ({"name": "demo", "day": "Friday"}, [])
    # tools come first, as in an agent that ends with a structured answer
    assert said(dialect, "weather in Rome", stream=stream, body=body, get_weather=WEATHER)[1] == [
        ("get_weather", {"place": "Rome"})
    ]


WRITTEN = (
    f"Answer with a JSON object that is compatible with this schema:\n\n{json.dumps(ANSWER)}\n\nNo"
    " text around it."
)


@both
@pytest.mark.parametrize(
    "words",
    [
        WRITTEN,
        f"json_schema:\n```json\n{json.dumps(ANSWER)}\n```",
        f"JSON schema:\n{json.dumps(ANSWER)}",
    ],
)
def test_a_schema_in_the_instructions_or_in_the_words_is_answered(
    dialect: DialectName, stream: bool, words: str
) -> None:
    user = [{"role": "user", "content": "Alice goes to a fair"}]
    system: Json = {"messages": [{"role": "system", "content": words}, *user]}
    if dialect == "anthropic":
        system = {"messages": user, "system": [{"type": "text", "text": words}]}
    for body in (system, {"messages": [{"role": "user", "content": words}]}):
        assert json.loads(said(dialect, "", stream=stream, body=body)[0]) == {
            "name": "demo",
            "day": "Friday",
        }
        # agents have schemas in their instructions too
        assert said(dialect, "", stream=stream, body=body, get_weather=WEATHER)[0].startswith(
            "I am"
        )
        # a tool for any object stands for JSON where the dialect has no such format
        forced = said(
            dialect, "", stream=stream, body=body | choice(dialect, "json"), json={"type": "object"}
        )
        assert forced[1] == [("json", {"name": "demo", "day": "Friday"})]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 10**6},
        {"type": "string", "minLength": 10**9},
        {"$ref": "#"},
        {"const": "x" * 50_000},
    ],
)
def test_a_schema_that_asks_for_too_much_is_refused_in_the_dialect(schema: Json) -> None:
    for dialect, body in FORMATS[:2]:
        text = json.dumps(body).replace(json.dumps(ANSWER), json.dumps(schema))
        script = demo.script(
            dialect, "chat", asked(dialect, "hello", stream=True, body=json.loads(text))
        )
        assert script.status == 400
        assert (
            "demo model makes at most"
            in (said := json.loads(next(iter(script.steps))[1])["error"]["message"])
            or "itself" in said
        )


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x" * 2_000: {"type": "string"}}},
        {"required": ["x" * 2_000], "properties": {"city": {}}},
        {"required": [f"r{n}" for n in range(100)], "properties": {"city": {}}},
        {"required": ["r"], "properties": {"city": {}, "r": {"minLength": 9_000}}},
        {"required": ["r"], "properties": {"city": {}, "r": {"const": "\U0001f600" * 500}}},
    ],
)
def test_calls_end_where_their_arguments_are_too_much(dialect: DialectName, schema: Json) -> None:
    script = demo.script(
        dialect,
        "chat",
        asked(dialect, "weather " + "in A and B " * 200, stream=True, get_weather=schema),
    )
    data = b"".join(piece for _, piece in script.steps)
    kind = b'"type":"tool_use"' if dialect == "anthropic" else b'"type":"function"'
    assert script.status == 200 and 0 < data.count(kind) < DEMO_CALLS and len(data) < 2**20


@both
def test_length(dialect: DialectName, stream: bool) -> None:
    text, _, stop = said(dialect, "long 40, max tokens", stream=stream)
    assert len(text.split()) == 40
    assert stop == ("length" if dialect == "openai" else "max_tokens")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_thinking(dialect: DialectName) -> None:
    data = b"".join(
        p for _, p in demo.script(dialect, "chat", asked(dialect, "think", stream=True)).steps
    )
    if dialect == "openai":
        message = openai_answer(data, stream=True).choices[0].message
        assert "script" in (message.model_extra or {})["reasoning_content"]
    else:
        block = anthropic_answer(data, stream=True).content[0]
        assert block.type == "thinking" and "script" in block.thinking and block.signature


@pytest.mark.parametrize(("status", "retry"), [(429, "1"), (500, None), (529, "1")])
def test_errors(status: int, retry: str | None) -> None:
    for dialect in DIALECTS:
        script = demo.script(dialect, "chat", asked(dialect, f"fail with {status}", stream=True))
        assert (script.status, script.retry_after, script.content_type) == (
            status,
            retry,
            "application/json",
        )
        assert (
            json.loads(next(iter(script.steps))[1])["error"]["message"]
            == "the demo model fails as asked"
        )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_error_in_the_middle(dialect: DialectName) -> None:
    data = b"".join(
        p
        for _, p in demo.script(
            dialect, "chat", asked(dialect, "fail in the middle", stream=True)
        ).steps
    )
    with pytest.raises((openai.APIError, anthropic.APIError)):
        (
            openai_answer(data, stream=True)
            if dialect == "openai"
            else anthropic_answer(data, stream=True)
        )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_cut(dialect: DialectName) -> None:
    data = b"".join(
        p for _, p in demo.script(dialect, "chat", asked(dialect, "cut", stream=True)).steps
    )
    assert b"data: " in data and b"[DONE]" not in data and b"message_stop" not in data


@pytest.mark.parametrize("dialect", DIALECTS)
def test_time(dialect: DialectName) -> None:
    slow = steps(demo.script(dialect, "chat", asked(dialect, "answer slowly", stream=True)))
    assert {delay for delay, _ in slow[1:]} == {0.3}
    assert (
        steps(demo.script(dialect, "chat", asked(dialect, "wait 20 seconds", stream=True)))[0][0]
        == 20
    )
    assert (
        steps(demo.script(dialect, "chat", asked(dialect, "wait 20 seconds", stream=False)))[0][0]
        == 20
    )


def test_same_body_same_bytes() -> None:
    body = asked("anthropic", "weather in Paris", stream=True, get_weather=WEATHER)
    assert steps(demo.script("anthropic", "messages", body)) == steps(
        demo.script("anthropic", "messages", body)
    )
    other = asked("anthropic", "weather in Tokyo", stream=True, get_weather=WEATHER)
    assert (
        steps(demo.script("anthropic", "messages", body))[0]
        != steps(demo.script("anthropic", "messages", other))[0]
    )


def test_counts_tokens() -> None:
    script = demo.script("anthropic", "count_tokens", asked("anthropic", "hello", stream=False))
    assert json.loads(next(iter(script.steps))[1])["input_tokens"] > 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"messages":[]}',
        b'{"messages":"x"}',
        b'{"messages":[7]}',
        b'{"messages":[{"content":[7]}]}',
        b'{"messages":[{"content":"x"}],"tools":"x"}',
        b'{"messages":[{"content":"rm -rf"}],"tools":[{"name":7}]}',
        (
            b'{"messages":[{"content":"rm'
            b' -rf"}],"tools":[{"name":"bash","input_schema":{"properties":[1]}}]}'
        ),
        b"[" * 100_000,
        b'{"messages":[{"content":"x"}],"response_format":{"type":"json_schema","json_schema":7}}',
        b'{"messages":[{"content":"x"}],"response_format":{"type":"json_schema","json_schema":{"schema":{"minimum":1e999,"type":"number"}}}}',
        b'{"messages":[{"content":"x"}],"response_format":{"type":"json_schema","json_schema":{"schema":{"const":"\\ud800"}}}}',
        b'{"messages":[{"content":"x"}],"output_format":{"type":"json_schema"}}',
        b'{"messages":[{"content":"x"}],"tool_choice":7}',
        b'{"messages":[{"content":"long ' + b"9" * 5000 + b'"}]}',
        b'{"model":"\\ud800","messages":[{"content":"x"}]}',
    ],
)
def test_odd_bodies_are_refused_in_the_dialect(body: bytes) -> None:
    for dialect in DIALECTS:
        script = demo.script(dialect, "chat", body)
        assert script.status == 400
        error = json.loads(next(iter(script.steps))[1])
        assert error["error"]["type"] == "invalid_request_error"
        assert ("type" in error) == (dialect == "anthropic")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
)
part = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_result"])}, optional={"text": values, "content": values}
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "messages": st.lists(st.fixed_dictionaries({"content": values | st.lists(part)})),
            "tools": values,
        },
    )
)
@pytest.mark.slow
def test_never_raises(request: Json) -> None:
    for dialect in DIALECTS:
        assert demo.script(dialect, "chat", as_json(request)).status in (200, 400)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("times", [10, 100, 1000])
def test_scripts_are_bounded_before_they_are_made(dialect: DialectName, times: int) -> None:
    """Of what a body may have in it, each thing multiplied; before: 2.8 s and 79 MB for 0.5 MB of
    cities."""
    schema = {"type": "object", "properties": {f"p{n}": {} for n in range(5)}}
    bodies = [
        asked(dialect, "weather " + "in A and B " * (5 * times), stream=True, get_weather=WEATHER),
        asked(
            dialect,
            "weather " + "in a" * (20 * times),
            stream=True,
            **{f"weather{n}": schema for n in range(times)},
        ),
        asked(dialect, "rm -rf /", stream=True, **{f"bash{n}": BASH for n in range(times)}),
        (
            asked(dialect, f"long {10**times}", stream=True)
            if times < 1000
            else asked(dialect, "long 999999999", stream=True)
        ),
        asked(dialect, "time and again", stream=True, **{f"time{n}": {} for n in range(times)}),
    ]
    for body in bodies:
        with cpu_within(1.0):
            script = demo.script(dialect, "chat", body)
            taken = steps(script) if b"long" not in body else list(islice(script.steps, 1000))
        assert script.status == 200
        data = b"".join(piece for _, piece in taken)
        assert (
            data.count(b'"type":"tool_use"') <= DEMO_CALLS
            and data.count(b'"type":"function"') <= DEMO_CALLS
        )
        assert len(data) < 2**20
    late = asked(dialect, "x" * DEMO_CHARS + " weather in Paris", stream=True, get_weather=WEATHER)
    last = asked(
        dialect, "rm -rf", stream=True, **{f"t{n}": {} for n in range(DEMO_TOOLS)} | {"bash": BASH}
    )
    for body in (late, last):
        data = b"".join(piece for _, piece in demo.script(dialect, "chat", body).steps)
        assert b'"type":"tool_use"' not in data and b'"type":"function"' not in data
    if times == 10:
        assert (
            sum(b"word" in piece for _, piece in demo.script(dialect, "chat", bodies[3]).steps)
            == DEMO_WORDS
        )
