"""Every bound multiplied: cheap at the bound, in proportion below it, a clear error past it; and
docs/change/bounds.md, which lists all.

A bound has a maker here, or a test elsewhere that multiplies it. To add one: write its number in
protocol/bounds.py, a row in docs/change/bounds.md, and a maker below whose key is the number's
name, or the test that the row names."""

import json
import math
import re
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from db.filters import parse_filters
from policy.builtin.tool_rules import ToolRules
from policy.session.effects import Respond
from policy.session.session import Session
from protocol import bounds
from protocol.dialects.table import CLIENTS
from protocol.errors import InvalidRequest
from protocol.request import DialectName
from settings.config import Config
from settings.limits import Limits
from tests.support.cpu import counted, slowness
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import read_request
from tests.support.worker_calls import call_info

ROOT = Path(__file__).parents[2]
HERE = "tests/unit/test_bounds.py"
STEP_S = 0.5
"""CPU at a bound: twice the 250 ms that a step may take, for slow machines. The watchdog ends a
worker at 1 s."""
_CLEAR = re.compile(r"has [\d,]+ .+; one request may have [\d,]+")
CALL = "01990000-0000-7000-8000-000000000000"


def number(name: str) -> int:
    """The bound of that name."""
    return int(getattr(bounds, name))


# --- requests, with `n` of something ---


def openai(**body: Any) -> Json:
    return {"model": "demo", "messages": [{"role": "user", "content": "hi"}]} | body


def anthropic(**body: Any) -> Json:
    return openai(max_tokens=9) | body


def responses(**body: Any) -> Json:
    return {"model": "demo", "input": [{"role": "user", "content": "hi"}]} | body


def said(identity: str, arguments: str = "{}") -> list[Json]:
    """A call and its output, as items of Responses."""
    call = {"type": "function_call", "call_id": identity, "name": "f", "arguments": arguments}
    return [
        {"role": "user", "content": "hi"},
        call,
        {"type": "function_call_output", "call_id": identity, "output": "x"},
    ]


def called(arguments: str = "{}", identity: str = "c") -> list[Json]:
    call = {"id": identity, "type": "function", "function": {"name": "f", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": identity, "content": "x"}
    return [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}, result]


def used(identity: str) -> list[Json]:
    use, result = (
        {"type": "tool_use", "id": identity, "name": "f", "input": {}},
        {
            "type": "tool_result",
            "tool_use_id": identity,
        },
    )
    return [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]


def function(name: str = "f", schema: Json | None = None, **more: Any) -> Json:
    return {
        "type": "function",
        "function": (
            {"name": name, "parameters": {"type": "object"} if schema is None else schema} | more
        ),
    }


def tool(name: str = "f", schema: Json | None = None, **more: Any) -> Json:
    return {"name": name, "input_schema": {"type": "object"} if schema is None else schema} | more


def flat(name: str = "f", schema: Json | None = None, **more: Any) -> Json:
    return {
        "type": "function",
        "name": name,
        "parameters": {"type": "object"} if schema is None else schema,
    } | more


def flats(n: int) -> list[Json]:
    return [flat(f"f{i}") for i in range(n)]


def allowed_flat(n: int) -> Json:
    return {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": f"f{i}"} for i in range(n)],
    }


def unfolding(n: int) -> Json:
    """A schema that unfolds to about `n`."""
    part = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(100)}}
    return {
        "type": "object",
        "$defs": {"d": part},
        "properties": {f"r{i}": {"$ref": "#/$defs/d"} for i in range(n // 102)},
    }


def referring(n: int) -> Json:
    return {
        "type": "object",
        "$defs": {"d": {"type": "string"}},
        "properties": {f"r{i}": {"$ref": "#/$defs/d"} for i in range(n)},
    }


def described(n: int) -> Json:
    return {"type": "object", "description": "x" * (n - 40)}


def answered(schema: Json) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


def spoken(n: int) -> list[Json]:
    return [{"role": ("user", "assistant")[i % 2], "content": "a"} for i in range(n)]


Maker = Callable[[int], Json]
REQUESTS: dict[str, list[tuple[DialectName, Maker]]] = {
    "MAX_BODY_VALUES": [
        ("openai", lambda n: openai(x=[1] * (n - 20))),
        ("anthropic", lambda n: anthropic(x=[{}] * (n - 20))),
        (
            "responses",
            lambda n: responses(metadata={"a": "b"}, prompt_cache_options={"a": [1] * (n - 30)}),
        ),
        (
            "openai",
            lambda n: openai(
                model="demo-anthropic", messages=called(json.dumps({"a": [1] * (n - 5)}))
            ),
        ),
        (
            "responses",
            lambda n: responses(
                model="demo-anthropic", input=said("c", json.dumps({"a": [1] * (n - 5)}))
            ),
        ),
    ],
    "MAX_FIELDS": [
        (d, lambda n: anthropic(**{f"x{i}": 1 for i in range(n - 3)}))
        for d in ("openai", "anthropic")
    ],
    "MAX_MESSAGES": [
        ("openai", lambda n: openai(messages=spoken(n))),
        ("anthropic", lambda n: anthropic(messages=spoken(n))),
        ("responses", lambda n: responses(input=spoken(n))),
    ],
    "MAX_PARTS": (
        [
            (
                d,
                lambda n: anthropic(
                    messages=[{"role": "user", "content": [{"type": "text", "text": "a"}] * n}]
                ),
            )
            for d in ("openai", "anthropic")
        ]
        + [
            (
                "responses",
                lambda n: responses(
                    input=[
                        {"role": "user", "content": [{"type": "input_text", "text": "a"}] * (n - 1)}
                    ]
                ),
            )
        ]
    ),
    "MAX_REQUEST_ID_CHARS": [
        ("openai", lambda n: openai(messages=called(identity="c" * n))),
        ("anthropic", lambda n: anthropic(messages=used("c" * n))),
        ("responses", lambda n: responses(input=said("c" * n))),
    ],
    "MAX_TOOLS": [
        ("openai", lambda n: openai(tools=[function(f"f{i}") for i in range(n)])),
        ("openai", lambda n: openai(functions=[function(f"f{i}")["function"] for i in range(n)])),
        ("anthropic", lambda n: anthropic(tools=[tool(f"f{i}") for i in range(n)])),
        ("openai", lambda n: openai(tools=[function()], tool_choice=allowed(n))),
        ("responses", lambda n: responses(tools=flats(n))),
        (
            "responses",
            lambda n: responses(
                tools=[
                    {"type": "namespace", "name": "n", "description": "d", "tools": flats(n - 1)}
                ]
            ),
        ),
        (
            "responses",
            lambda n: responses(
                input=[{"type": "additional_tools", "role": "developer", "tools": flats(n)}]
            ),
        ),
        ("responses", lambda n: responses(tools=[flat()], tool_choice=allowed_flat(n))),
    ],
    "MAX_REQUEST_NAME_CHARS": [
        ("openai", lambda n: openai(tools=[function("f" * n)])),
        ("anthropic", lambda n: anthropic(tools=[tool("f" * n)])),
        ("responses", lambda n: responses(tools=[flat("f" * n)])),
    ],
    "MAX_DESCRIPTION_CHARS": [
        ("openai", lambda n: openai(tools=[function(description="d" * n)])),
        ("anthropic", lambda n: anthropic(tools=[tool(description="d" * n)])),
        ("responses", lambda n: responses(tools=[flat(description="d" * n)])),
    ],
    "MAX_SCHEMA_BYTES": [
        ("openai", lambda n: openai(tools=[function(schema=described(n))])),
        ("anthropic", lambda n: anthropic(tools=[tool(schema=described(n))])),
        ("openai", lambda n: openai(response_format=answered(described(n)))),
        ("responses", lambda n: responses(tools=[flat(schema=described(n))])),
        (
            "responses",
            lambda n: responses(
                text={"format": {"type": "json_schema", "name": "n", "schema": described(n)}}
            ),
        ),
    ],
    "MAX_SCHEMA_EXPANSION": [
        ("openai", lambda n: openai(tools=[function(schema=unfolding(n - 200))])),
        ("anthropic", lambda n: anthropic(tools=[tool(schema=unfolding(n - 200))])),
        ("openai", lambda n: openai(response_format=answered(unfolding(n - 200)))),
        ("responses", lambda n: responses(tools=[flat(schema=unfolding(n - 200))])),
        (
            "responses",
            lambda n: responses(
                text={"format": {"type": "json_schema", "name": "n", "schema": unfolding(n - 200)}}
            ),
        ),
    ],
    "MAX_REFERENCES": [
        (
            "openai",
            lambda n: openai(tools=[function(f"f{i}", referring(n // 10)) for i in range(10)]),
        ),
        (
            "anthropic",
            lambda n: anthropic(tools=[tool(f"f{i}", referring(n // 10)) for i in range(10)]),
        ),
    ],
    "MAX_SCHEMAS_EXPANSION": [
        (
            "openai",
            lambda n: openai(
                tools=[function(f"f{i}", unfolding(n // 20 - 200)) for i in range(20)]
            ),
        ),
        (
            "anthropic",
            lambda n: anthropic(tools=[tool(f"f{i}", unfolding(n // 20 - 200)) for i in range(20)]),
        ),
    ],
    "MAX_STOPS": [
        ("openai", lambda n: openai(stop=[f"s{i}" for i in range(n)])),
        ("anthropic", lambda n: anthropic(stop_sequences=[f"s{i}" for i in range(n)])),
    ],
    "MAX_STOP_CHARS": [
        ("openai", lambda n: openai(stop=["s" * n])),
        ("anthropic", lambda n: anthropic(stop_sequences=["s" * n])),
    ],
    "MAX_METADATA": [
        ("openai", lambda n: openai(metadata={f"k{i}": "v" for i in range(n)})),
        ("responses", lambda n: responses(metadata={f"k{i}": "v" for i in range(n)})),
    ],
    "MAX_MCP_SERVERS": [
        (
            "anthropic",
            lambda n: anthropic(
                mcp_servers=[{"type": "url", "url": "https://x", "name": f"s{i}"} for i in range(n)]
            ),
        ),
    ],
    "MAX_MODEL_CHARS": [
        *((d, lambda n: anthropic(model="m" * n)) for d in ("openai", "anthropic")),
        ("responses", lambda n: responses(model="m" * n)),
    ],
}


def allowed(n: int) -> Json:
    tools = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(n)]
    return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}


def session(dialect: DialectName) -> Session:
    return Session(
        call_info(CALL, dialect, durable=True, max_arguments_bytes=8 << 20),
        [],
        Config(),
    )


def took(work: Callable[[], object]) -> float:
    """The CPU of the quickest of three."""
    times = []
    for _ in range(3):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
        if times[-1] < 0.8 * STEP_S:
            break
    return min(times)


CASES = [(name, place) for name, makers in REQUESTS.items() for place in range(len(makers))]


def begun(name: str, place: int, n: int) -> tuple[DialectName, bytes]:
    dialect, make = REQUESTS[name][place]
    return dialect, json.dumps(make(n), separators=(",", ":")).encode()


@pytest.mark.parametrize(("name", "place"), CASES)
def test_at_its_bound_a_request_is_read_in_little_time(name: str, place: int) -> None:
    bound = number(name)
    dialect, body = begun(name, place, bound)
    CLIENTS[dialect].decode_request(body)
    seconds = took(lambda: session(dialect).begin(body))
    print(f"{name} ({dialect}): {seconds:.3f} s")
    assert seconds < STEP_S


@pytest.mark.slow
@pytest.mark.parametrize(("name", "place"), CASES)
def test_below_its_bound_work_grows_with_the_size(name: str, place: int) -> None:
    bound = number(name)
    (dialect, less), (_, more) = (begun(name, place, n) for n in (bound // 2, bound))
    session(dialect).begin(less)
    few, many = (
        counted(lambda: session(dialect).begin(less)),
        counted(lambda: session(dialect).begin(more)),
    )
    assert many < 1_000 or many < 3 * few


@pytest.mark.parametrize(("name", "place"), CASES)
def test_past_its_bound_a_request_is_refused_with_a_clear_error(name: str, place: int) -> None:
    bound = number(name)
    size = 0
    for n in (bound * 10, bound * 100, bound * 1_000):
        if max(n, 10 * size) > bounds.MAX_BODY_BYTES:
            # the gateway refuses it
            break
        dialect, body = begun(name, place, n)
        size = len(body)
        asked = session(dialect)
        seconds = took(lambda: asked.begin(body))  # noqa: B023 - called at once
        answer = asked.drain().outputs[0]
        assert isinstance(answer, Respond)
        error = json.loads(answer.body)["error"]
        assert (answer.status, error["type"]) == (400, "invalid_request_error")
        # or that of something that it is made of
        assert _CLEAR.search(error["message"]), error["message"]
        assert seconds < STEP_S * slowness()


def test_one_more_than_the_bound_is_refused() -> None:
    for name in (
        "MAX_MESSAGES",
        "MAX_PARTS",
        "MAX_TOOLS",
        "MAX_STOPS",
        "MAX_METADATA",
        "MAX_MODEL_CHARS",
        "MAX_REQUEST_NAME_CHARS",
        "MAX_REQUEST_ID_CHARS",
    ):
        dialect, body = begun(name, 0, number(name) + 1)
        with pytest.raises(InvalidRequest, match=f"may have {number(name):,}"):
            CLIENTS[dialect].decode_request(body)


def test_commas_and_brackets_in_strings_are_no_values() -> None:
    text = '[{,"\\' * 2_000_000
    request = read_request("openai", openai(messages=[{"role": "user", "content": text}]))
    assert len(request.turns) == 1


@pytest.mark.parametrize("end", ["1e999", "NaN", '"\\ud800"', '{"a":1,"a":2}', "x"])
def test_a_large_body_that_is_refused_at_its_end_is_cheap(end: str) -> None:
    for many in (
        '{"role":"user","content":"a"},' * 480_000,
        '"' + "x" * 15_000_000 + '",',
        "1," * 190_000,
    ):
        body = f'{{"model":"demo","messages":[{many}{end}]}}'.encode()
        asked = session("openai")
        asked.begin(body)
        assert asked.status == 400
        assert took(lambda: session("openai").begin(body)) < STEP_S  # noqa: B023 - called at once


def test_what_is_wrong_is_named_with_its_place() -> None:
    tools = [tool("a"), tool("b", {"type": "object", "description": "x" * 2_000_000})]
    with pytest.raises(InvalidRequest) as refused:
        read_request("anthropic", anthropic(tools=tools))
    assert (
        refused.value.message
        == "tools[1].input_schema has 2,000,034 bytes; one request may have 1,048,576"
    )
    assert refused.value.param == "tools"


# --- answers ---


def event_of_lines(n: int) -> bytes:
    return b"data: 1\n" * (n - 1) + b": " + b"x" * 40_000 + b"\n\n"


def event_of_values(n: int) -> bytes:
    return b'data: {"choices":[],"x":[' + b"1," * (n - 10) + b"1]}\n\n"


ANSWERS: dict[str, Callable[[int], bytes]] = {
    "MAX_EVENT_LINES": event_of_lines,
    "MAX_EVENT_VALUES": event_of_values,
}


def streamed(chunk: bytes) -> Session:
    one = session("openai")
    one.begin(as_json(openai(stream=True)))
    one.drain()
    one.chunks(1, [chunk])
    return one


def whole(n: int) -> Session:
    one = session("openai")
    one.begin(as_json(openai()))
    one.drain()
    choice = '{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"a"}}'
    one.body(1, f'{{"id":"a","choices":[{choice}],"x":[{"1," * (n - 30)}1]}}'.encode())
    return one


@pytest.mark.parametrize("times", [10, 40])
@pytest.mark.parametrize("name", [*ANSWERS, "MAX_ANSWER_VALUES"])
def test_past_its_bound_an_answer_ends_with_a_clear_error(name: str, times: int) -> None:
    bound = number(name)
    make: Callable[[int], Session] = (
        whole if name == "MAX_ANSWER_VALUES" else lambda n: streamed(ANSWERS[name](n))
    )
    assert took(lambda: make(bound)) < 2 * STEP_S
    n = min(bound * times, 4_000_000 if name != "MAX_ANSWER_VALUES" else 16_000_000)
    failed = make(n)
    assert failed.state == "FAILED"
    assert re.search(
        rf"[\d,]+ (lines|JSON values); one may have {bound:,}", repr(failed.drain().outputs)
    )
    assert took(lambda: make(n)) < STEP_S


# --- configuration ---


def rule_of(n: int) -> object:
    return ToolRules(deny=[{"tool": "x", "argument_matches": "a" * n}])


CONFIGURATIONS: dict[str, Callable[[int], object]] = {
    "MAX_PATTERN_CHARS": rule_of,
    "MAX_RULES": lambda n: ToolRules(deny=[{"tool": "x"}] * n),
    "MAX_ACCEPTED_SETS": lambda n: Config.model_validate(
        {"accept_policy_sets": ["0123456789ab"] * n}
    ),
    "MAX_SERIES": lambda n: Config.model_validate({"policies": {"default": [{"use": "noop"}] * n}}),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_past_its_bound_a_configuration_is_refused(name: str) -> None:
    bound, make = number(name), CONFIGURATIONS[name]
    make(bound)
    for times in (10, 100):
        with pytest.raises(ValueError, match=f"{bound}|{bound:,}"):
            make(bound * times)


@pytest.mark.parametrize("name", ["MAX_PAGE", "MAX_FILTER_CHARS"])
def test_past_its_bound_an_audit_filter_is_refused(name: str) -> None:
    bound = number(name)

    def given(n: int) -> list[tuple[str, str]]:
        return [("limit", str(n))] if name == "MAX_PAGE" else [("q", "w" * n)]

    parse_filters(given(bound), of="calls")
    for times in (10, 100, 1_000):
        with pytest.raises(InvalidRequest, match=str(bound)):
            parse_filters(given(bound * times), of="calls")
        with pytest.raises(InvalidRequest):
            parse_filters([("cursor", "A" * bound * times)], of="calls")


# --- the page ---

PAGE = ROOT / "docs/change/bounds.md"
MAKERS = (
    REQUESTS.keys()
    | ANSWERS.keys()
    | CONFIGURATIONS.keys()
    | {"MAX_ANSWER_VALUES", "MAX_PAGE", "MAX_FILTER_CHARS"}
)
_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "min": 60, "h": 3600, "%": 0.01}
_BOUND = re.compile(r"([\d,]+) ?(KiB|MiB|GiB|min\b|h\b|%|).*?`")
_TEST = re.compile(r"\[(test_\w+)\]\(\.\./\.\./(tests/[\w/]+\.py)\)")


class Row(NamedTuple):
    """A row of the page: what is bounded, the names of its number with the value beside them, and
    its tests."""

    what: str
    names: list[str]
    value: float
    tests: list[tuple[str, str]]


def rows_of(page: str) -> list[Row]:
    """A row without a test has the one that is named above its table."""
    rows, above = list[Row](), list[tuple[str, str]]()
    for line in page.splitlines():
        if line.startswith("#"):
            above = []
        elif not line.startswith("|"):
            above += _TEST.findall(line)
        elif not line.startswith(("| what", "|---")):
            what, bound = line.strip("| ").split(" | ")[:2]
            found = _BOUND.match(bound)
            value = float(found[1].replace(",", "")) * _UNITS[found[2]] if found else 0.0
            rows.append(
                Row(
                    what,
                    re.findall(r"`([^`]+)`", bound) if found else [],
                    value,
                    _TEST.findall(line) or above,
                )
            )
    return rows


def number_at(name: str) -> float:
    """The number that a name on the page stands for."""
    module, _, last = name.rpartition(".")
    return float(
        getattr(
            Limits() if module == "limits" else import_module(module or "protocol.bounds"), last
        )
    )


def wrong_with(row: Row) -> str:
    """What does not hold of a row, or an empty string."""
    for name in row.names:
        if not math.isclose(number_at(name), row.value):
            return f"{name} is {number_at(name):,}"
    for name, path in row.tests:
        if not re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE):
            return f"there is no test {path}::{name}"
        if path == HERE and MAKERS.isdisjoint(row.names):
            return f"no maker in {HERE}"
    return "" if row.tests else "it has no test"


def test_every_bound_is_on_the_page_with_its_value_and_a_test_that_exists() -> None:
    rows = rows_of(PAGE.read_text())
    assert {row.what: wrong for row in rows if (wrong := wrong_with(row))} == {}
    assert len(rows) == len({row.what for row in rows}), "two rows are about the same"
    numbers = {name for name in vars(bounds) if name.isupper()}
    named = {name for row in rows for name in row.names}
    assert numbers - named == set() and named >= MAKERS


def test_a_page_that_is_wrong_is_noticed() -> None:
    page = PAGE.read_text()
    for right, wrong in (
        ("| 10,000 `MAX_MESSAGES`", "| 10,001 `MAX_MESSAGES`"),
        ("| 12 h `db", "| 13 h `db"),
        ("[test_a_head_has_a_time]", "[test_a_head_has_no_time]"),
        ("[test_past_its_bound_a_request_is_refused_with_a_clear_error]", "[test_nothing]"),
    ):
        assert right in page
        assert any(map(wrong_with, rows_of(page.replace(right, wrong))))
