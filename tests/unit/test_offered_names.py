"""Which offered tool a call means when its name comes in two wire fields: policies, client and
record get the same answer."""

import json
from typing import Any

import pytest

from policy.builtin.tool_rules import ToolRules
from policy.patterns import NamePatterns
from policy.session.effects import Output
from policy.session.session import Session
from protocol import codecs
from protocol.dialects.table import CLIENTS
from protocol.events import ArgumentsDelta, BlockKind, BlockStart
from protocol.records import ToolCallRecord
from protocol.request import Tool, ToolUsePart
from protocol.requests.names import OfferedNames
from protocol.target import Target
from settings.config import Config
from tests.support.checks.kinds import of_kind
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import written_body
from tests.support.worker_calls import call_info

BASH: Json = {"type": "function", "name": "bash", "parameters": {"type": "object"}}
WAIT: Json = {"type": "function", "name": "wait", "parameters": {"type": "object"}}


def space(name: str, *tools: Json) -> Json:
    return {"type": "namespace", "name": name, "description": "d", "tools": [*tools]}


def frame(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def answer(*calls: Json) -> list[bytes]:
    frames = [
        frame("response.created", response={"id": "resp_1", "model": "m", "status": "in_progress"})
    ]
    for number, call in enumerate(calls):
        item = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "status": "completed",
            **call,
        }
        frames += [
            frame("response.output_item.added", output_index=number, item=item | {"arguments": ""}),
            frame("response.output_item.done", output_index=number, item=item),
        ]
    return [
        *frames,
        frame("response.completed", response={"id": "resp_1", "model": "m", "status": "completed"}),
    ]


def decided(
    tools: list[Json], call: Json, **rules: Any
) -> tuple[list[Output], list[ToolCallRecord]]:
    """What goes out for an answer of one call, and what is recorded of it."""
    config = Config.model_validate(
        {
            "upstreams": {"up": {"dialect": "responses", "base_url": "http://127.0.0.1:1/v1"}},
            "models": [{"match": "*", "upstream": "up"}],
        }
    )
    info = call_info("c", "responses")
    session = Session(info, [ToolRules(**rules)], config)
    session.begin(as_json({"model": "gpt-5", "stream": True, "input": "x", "tools": tools}))
    session.drain()
    outputs: list[Output] = []
    records: list[ToolCallRecord] = []
    for number, chunk in enumerate(answer(call), start=1):
        session.chunks(number, [chunk])
        effects = session.drain()
        outputs += effects.outputs
        records += of_kind(effects.records, ToolCallRecord)
    return outputs, records


def released_names(outputs: list[Output]) -> list[str]:
    return [o.name for o in outputs if isinstance(o, BlockStart) and o.kind is BlockKind.TOOL_USE]


RM = {"name": "bash", "arguments": '{"command":"rm -rf /"}'}


@pytest.mark.parametrize("namespace", ["bash", "shell", "functions", None])
def test_a_rule_on_a_tool_holds_whatever_namespace_the_model_puts_before_it(
    namespace: str | None,
) -> None:
    call = RM | ({"namespace": namespace} if namespace else {})
    outputs, records = decided([BASH], call, deny=[{"tool": "bash"}])
    assert not released_names(outputs) and not of_kind(outputs, ArgumentsDelta)
    assert [(r.name, r.verdict) for r in records] == [("bash", "block")]


def test_a_namespace_that_was_not_offered_does_not_rename_a_call() -> None:
    outputs, _ = decided([BASH], RM | {"namespace": "bash"}, deny=[{"tool": "other"}])
    assert released_names(outputs) == ["bash"]


@pytest.mark.parametrize("namespace", ["team", None])
def test_a_bare_name_means_the_only_namespaced_tool_of_that_name(namespace: str | None) -> None:
    call = {"name": "wait", "arguments": "{}"} | ({"namespace": namespace} if namespace else {})
    tools = [space("team", WAIT), BASH]
    for tool in "team.wait", "wait":
        outputs, records = decided(tools, call, deny=[{"tool": tool}])
        assert not released_names(outputs) and {r.name for r in records} == {"team.wait"}
    outputs, _ = decided(tools, call, allow=[{"tool": "team.wait"}])
    assert released_names(outputs) == ["team.wait"]
    outputs, _ = decided(tools, call, allow=[{"tool": "wait"}])
    assert not released_names(outputs)


@pytest.mark.parametrize("namespace", [None, "c"])
def test_a_name_that_several_namespaces_offer_is_released_under_none(namespace: str | None) -> None:
    call = RM | ({"namespace": namespace} if namespace else {})
    outputs, records = decided(
        [space("a", BASH), space("b", BASH)], call, deny=[{"tool": "a.bash"}]
    )
    assert not released_names(outputs)
    assert [(r.name, r.verdict, r.reason) for r in records] == [("bash", "block", "ambiguous_name")]


@pytest.mark.parametrize(
    ("name", "namespace", "means"),
    [
        ("f", "f", "f.f"),
        ("g", "g", "g"),
        ("g", "a", "g"),
        ("h", "", "h"),
        ("h", "c", "h"),
        ("h", "a", "a.h"),
        ("only", "", "b.only"),
        ("only", "a", "b.only"),
        ("none", "a", "none"),
        ("a.h", "", "a.h"),
    ],
)
def test_a_call_means_an_offered_tool_or_what_its_client_would_run(
    name: str, namespace: str, means: str
) -> None:
    def of(namespace: str, name: str) -> Tool:
        return Tool(f"{namespace}.{name}", outer={"namespace": {"name": namespace}})

    offered = OfferedNames([of("f", "f"), Tool("g"), of("a", "h"), of("b", "h"), of("b", "only")])
    assert offered.meant_by(name, namespace) == means


def test_a_call_of_the_history_is_named_as_it_was_decided() -> None:
    items = [
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "bash",
            "namespace": "bash",
            "arguments": "{}",
        },
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        {
            "type": "function_call",
            "call_id": "c2",
            "name": "wait",
            "namespace": "team",
            "arguments": "{}",
        },
        {"type": "function_call_output", "call_id": "c2", "output": "ok"},
    ]
    body = as_json({"model": "gpt-5", "input": items, "tools": [BASH, space("team", WAIT)]})
    request = CLIENTS["responses"].decode_request(body)
    assert [p.name for t in request.turns for p in t.parts if isinstance(p, ToolUsePart)] == [
        "bash",
        "team.wait",
    ]
    again = json.loads(codecs.encode_request(request, Target(dialect="responses")).body or body)
    assert [i.get("call_id") for i in again["input"]] == ["c1", "c1", "c2", "c2"]
    chat = written_body(request, Target(dialect="openai"))
    called = [c["function"]["name"] for m in chat["messages"] for c in m.get("tool_calls", ())]
    offered = [t["function"]["name"] for t in chat["tools"]]
    assert called == offered


@pytest.mark.parametrize(
    "name", ["bash", "x.bash", "functions.x.bash", "default_api:bash", " bash ", "x.bash:0"]
)
def test_a_deny_rule_matches_the_bare_name_and_an_allow_rule_does_not(name: str) -> None:
    assert NamePatterns("bash").means(name)
    assert NamePatterns("bash").match(name) == (name == "bash")
