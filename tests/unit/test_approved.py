"""The answer is held to the request that was approved: its tools, schemas, choice and number of
calls, in every direction and form."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from policy.base import ALLOW, Block, Policy, ToolCall, Verdict
from policy.builtin.tool_rules import ToolRules
from policy.session.effects import SendUpstream
from policy.session.session import Session
from protocol.events import ArgumentsDelta, BlockKind, BlockStart
from protocol.records import ToolCallRecord
from protocol.request import ChatRequest, DialectName, Tool, ToolChoice
from tests.support.checks.approving import SCHEMA, approving
from tests.support.clients.answering import CONFIG, MODEL, Answer
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info

WAYS: list[tuple[DialectName, DialectName]] = [
    (c, u) for c in ("openai", "anthropic") for u in ("openai", "anthropic")
]
every_way = pytest.mark.parametrize(("client", "upstream"), WAYS)
RM = '{"command":"rm -rf /"}'
Call = tuple[str, str]


class Sees(Policy):
    """Blocks what has no definition, and says what it sees of the request."""

    name = "sees"

    def on_tool_call(self, call: ToolCall) -> Verdict:
        seen = [
            sorted(t.name for t in r.tools) for r in (self.context.request, self.context.approved)
        ]
        return ALLOW if call.tool is not None else Block("undeclared", json.dumps(seen))


def body_of(
    client: DialectName,
    upstream: DialectName,
    tools: tuple[str, ...] = ("bash", "read"),
    **more: Any,
) -> bytes:
    body: Json = {
        "model": MODEL[upstream],
        "stream": True,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "go"}],
    }
    if client == "openai":
        body["tools"] = [
            {"type": "function", "function": {"name": n, "parameters": SCHEMA}} for n in tools
        ]
    else:
        body["tools"] = [{"name": n, "input_schema": SCHEMA} for n in tools]
    return as_json(body | more)


def frames_of(upstream: DialectName, calls: tuple[Call, ...], *, text: str = "") -> list[bytes]:
    if upstream == "openai":
        chunks: list[Json] = [{"content": text}] if text else []
        chunks += [
            {
                "tool_calls": [
                    {
                        "index": i,
                        "id": f"call_{i}",
                        "type": "function",
                        "function": {"name": n, "arguments": a},
                    }
                ]
            }
            for i, (n, a) in enumerate(calls)
        ]
        deltas: list[Json] = [{"index": 0, "delta": c, "finish_reason": None} for c in chunks]
        deltas.append({"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"})
        return [
            b"data: " + as_json({"id": "x", "model": "m", "choices": [d]}) + b"\n\n" for d in deltas
        ] + [b"data: [DONE]\n\n"]
    message: Json = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    events: list[Json] = [{"type": "message_start", "message": message}]
    blocks: list[tuple[Json, Json]] = (
        [({"type": "text", "text": ""}, {"type": "text_delta", "text": text})] if text else []
    )
    blocks += [
        (
            {"type": "tool_use", "id": f"toolu_{i}", "name": n, "input": {}},
            {"type": "input_json_delta", "partial_json": a},
        )
        for i, (n, a) in enumerate(calls)
    ]
    for index, (block, delta) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]


class Said:
    """One call: what went upstream, the verdicts, and the calls that the client got."""

    def __init__(
        self,
        client: DialectName,
        upstream: DialectName,
        body: bytes,
        frames: list[bytes],
        *policies: Policy,
    ) -> None:
        info = call_info(
            "019b7600-0000-7000-8000-000000000001",
            client,
            nonce="nonce",
            max_arguments_bytes=100_000,
        )
        session = Session(info, policies, CONFIG)
        session.begin(body)
        taken = session.drain()
        sent = next((o for o in taken.outputs if isinstance(o, SendUpstream)), None)
        assert sent is not None, taken.outputs
        self.sent: Json = json.loads(sent.body if sent.body is not None else body)
        records, outputs = taken.records, taken.outputs
        for number, frame in enumerate(frames, start=1):
            session.chunks(number, [frame])
            taken = session.drain()
            records, outputs = records + taken.records, outputs + taken.outputs
        self.verdicts = [
            (r.name, r.verdict, r.reason) for r in records if isinstance(r, ToolCallRecord)
        ]
        self.names = [
            o.name for o in outputs if isinstance(o, BlockStart) and o.kind is BlockKind.TOOL_USE
        ]
        self.arguments = [o.text for o in outputs if isinstance(o, ArgumentsDelta)]
        self.text = "".join(
            getattr(o, "text", "") for o in outputs if not isinstance(o, ArgumentsDelta)
        )
        self.session = session


def replaced(**changes: Any) -> Policy:
    return approving(lambda request: msgspec.structs.replace(request, **changes))


def without_bash(request: ChatRequest) -> ChatRequest:
    return msgspec.structs.replace(
        request, tools=tuple(t for t in request.tools if t.name != "bash")
    )


def narrowed(request: ChatRequest) -> ChatRequest:
    tools = tuple(
        msgspec.structs.replace(
            t, schema={"type": "object", "properties": {"command": {"enum": ["ls"]}}}
        )
        for t in request.tools
    )
    return msgspec.structs.replace(request, tools=tools)


CHANGES: dict[str, tuple[Callable[[ChatRequest], ChatRequest], str]] = {
    "bash is taken away": (without_bash, "not_offered"),
    "all tools are taken away": (
        lambda r: msgspec.structs.replace(r, tools=(), tool_choice=None),
        "not_offered",
    ),
    "another tool in its place": (
        lambda r: msgspec.structs.replace(r, tools=(Tool("read", schema=SCHEMA),)),
        "not_offered",
    ),
    "only read is allowed": (
        lambda r: msgspec.structs.replace(r, tool_choice=ToolChoice("auto", allowed=("read",))),
        "tool_choice",
    ),
    "read is forced": (
        lambda r: msgspec.structs.replace(r, tool_choice=ToolChoice("tool", "read")),
        "tool_choice",
    ),
    "none may be called": (
        lambda r: msgspec.structs.replace(r, tool_choice=ToolChoice("none")),
        "tool_choice",
    ),
    "the schema is narrowed": (narrowed, "schema"),
}


@every_way
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_policy_took_away_is_not_called(
    change: str, client: DialectName, upstream: DialectName
) -> None:
    how, reason = CHANGES[change]
    said = Said(
        client,
        upstream,
        body_of(client, upstream),
        frames_of(upstream, (("bash", RM),)),
        approving(how),
    )
    assert said.verdicts == [("bash", "block", reason)]
    assert said.names == said.arguments == []


@every_way
@pytest.mark.parametrize("change", [c for c in CHANGES if c != "all tools are taken away"])
def test_what_it_left_is(change: str, client: DialectName, upstream: DialectName) -> None:
    how, reason = CHANGES[change]
    name = "bash" if reason == "schema" else "read"
    frames = frames_of(upstream, ((name, '{"command":"ls"}'),))
    said = Said(client, upstream, body_of(client, upstream), frames, approving(how))
    assert said.verdicts == [
        (
            name,
            "block" if change == "none may be called" else "allow",
            "tool_choice" if change == "none may be called" else "",
        )
    ]


@every_way
@pytest.mark.parametrize(
    "text", ['<tool_call>{"name":"bash","arguments":{"command":"rm -rf /"}}</tool_call>']
)
@pytest.mark.parametrize("change", CHANGES)
def test_nor_is_it_in_text(
    change: str, text: str, client: DialectName, upstream: DialectName
) -> None:
    how, reason = CHANGES[change]
    said = Said(
        client,
        upstream,
        body_of(client, upstream),
        frames_of(upstream, (), text=text),
        approving(how),
        ToolRules(),
    )
    assert said.verdicts == [("bash", "block", reason)]
    assert "rm -rf" not in said.text


@every_way
@pytest.mark.parametrize("change", CHANGES)
def test_text_is_searched_for_what_was_taken_away_though_no_policy_decides_about_calls(
    change: str, client: DialectName, upstream: DialectName
) -> None:
    text = '<tool_call>{"name":"bash","arguments":{"command":"rm -rf /"}}</tool_call>'
    how, reason = CHANGES[change]
    said = Said(
        client,
        upstream,
        body_of(client, upstream),
        frames_of(upstream, (), text=text),
        approving(how),
    )
    assert said.verdicts == [("bash", "block", reason)] and "rm -rf" not in said.text


@every_way
def test_text_is_searched_for_a_second_call_where_a_policy_allows_one(
    client: DialectName, upstream: DialectName
) -> None:
    text = '<tool_call>{"name":"bash","arguments":{"command":"rm -rf /"}}</tool_call>'
    frames = frames_of(upstream, (("read", "{}"),), text=text)
    said = Said(
        client, upstream, body_of(client, upstream), frames, replaced(parallel_tool_calls=False)
    )
    assert [(name, reason) for name, _, reason in said.verdicts if reason] == [
        (said.verdicts[1][0], "one_call")
    ]


@every_way
def test_later_policies_see_what_was_approved(client: DialectName, upstream: DialectName) -> None:
    def renamed(request: ChatRequest) -> ChatRequest:
        return msgspec.structs.replace(
            request, tools=(*request.tools, Tool("extra", schema=SCHEMA))
        )

    frames = frames_of(upstream, (("extra", "{}"), ("nothing", "{}")))
    said = Said(client, upstream, body_of(client, upstream), frames, approving(renamed), Sees())
    assert said.verdicts == [("extra", "allow", ""), ("nothing", "block", "undeclared")]
    assert '[["bash", "read"], ["bash", "extra", "read"]]' in said.text


@every_way
def test_rules_validate_by_the_approved_schema(client: DialectName, upstream: DialectName) -> None:
    rules = ToolRules(validate_schema=True)
    for how, reason in ((without_bash, "not_offered"), (narrowed, "schema")):
        said = Said(
            client,
            upstream,
            body_of(client, upstream),
            frames_of(upstream, (("bash", RM),)),
            approving(how),
            rules,
        )
        assert said.verdicts == [("bash", "block", reason)]


@every_way
def test_what_the_model_calls_by_itself_is_the_policies_matter_where_nothing_was_taken_away(
    client: DialectName, upstream: DialectName
) -> None:
    said = Said(
        client, upstream, body_of(client, upstream), frames_of(upstream, (("made_up", "{}"),))
    )
    assert said.verdicts == [("made_up", "allow", "")]


def choice_of(client: DialectName, mode: str, name: str = "") -> Json:
    if client == "openai":
        return {"tool_choice": {"type": "function", "function": {"name": name}} if name else mode}
    return {"tool_choice": {"type": "tool", "name": name} if name else {"type": mode}}


def one_of(client: DialectName) -> Json:
    return (
        {"parallel_tool_calls": False}
        if client == "openai"
        else {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    )


@every_way
def test_the_clients_own_choice_counts(client: DialectName, upstream: DialectName) -> None:
    frames = frames_of(upstream, (("bash", RM), ("read", "{}")))
    for choice, verdicts in (
        (
            choice_of(client, "none"),
            [("bash", "block", "tool_choice"), ("read", "block", "tool_choice")],
        ),
        (choice_of(client, "", "read"), [("bash", "block", "tool_choice"), ("read", "allow", "")]),
        (one_of(client), [("bash", "allow", ""), ("read", "block", "one_call")]),
    ):
        said = Said(client, upstream, body_of(client, upstream, **choice), frames)
        assert said.verdicts == verdicts
        assert said.names == [name for name, verdict, _ in verdicts if verdict == "allow"]


@every_way
def test_a_policy_may_allow_one_call_alone(client: DialectName, upstream: DialectName) -> None:
    frames = frames_of(upstream, (("read", "{}"), ("bash", RM)))
    said = Said(
        client, upstream, body_of(client, upstream), frames, replaced(parallel_tool_calls=False)
    )
    assert said.verdicts == [("read", "allow", ""), ("bash", "block", "one_call")]


@every_way
def test_one_call_is_one_with_those_in_text(client: DialectName, upstream: DialectName) -> None:
    text = '<tool_call>{"name":"bash","arguments":{}}</tool_call>'
    frames = frames_of(upstream, (("read", "{}"),), text=text)
    said = Said(client, upstream, body_of(client, upstream, **one_of(client)), frames, ToolRules())
    assert said.verdicts == [("bash", "allow", ""), ("read", "block", "one_call")]


def test_the_older_form_is_held_to_it_too() -> None:
    body = as_json(
        {
            "model": MODEL["openai"],
            "stream": True,
            "messages": [{"role": "user", "content": "go"}],
            "functions": [{"name": n, "parameters": SCHEMA} for n in ("bash", "read")],
        }
    )
    delta = {"function_call": {"name": "bash", "arguments": RM}}
    frames = [
        b"data: "
        + as_json(
            {"id": "x", "model": "m", "choices": [{"index": 0, "delta": d, "finish_reason": f}]}
        )
        + b"\n\n"
        for d, f in ((delta, None), ({}, "function_call"))
    ] + [b"data: [DONE]\n\n"]
    for how, reason in CHANGES.values():
        said = Said("openai", "openai", body, frames, approving(how))
        assert said.verdicts == [("bash", "block", reason)] and said.names == []


@every_way
def test_the_answer_is_written_for_the_client_by_its_own_request(
    client: DialectName, upstream: DialectName
) -> None:
    said = Said(
        client,
        upstream,
        body_of(client, upstream),
        frames_of(upstream, (), text="hi"),
        approving(without_bash),
    )
    assert said.session.request is not None and said.session.request.stream
    assert [t.name for t in said.session.request.tools] == ["bash", "read"]


def test_a_model_that_a_policy_chose_is_routed_anew() -> None:
    for upstream, sent in (("openai", "gpt-x"), ("anthropic", "claude-sonnet-4-5")):
        policy = replaced(model=sent)
        info = call_info(nonce="nonce", max_arguments_bytes=100_000)
        session = Session(info, [policy], CONFIG)
        session.begin(body_of("openai", "openai"))
        [out] = session.drain().outputs
        assert isinstance(out, SendUpstream) and (out.upstream, out.dialect) == (upstream, upstream)
        assert json.loads(out.body or body_of("openai", "openai"))["model"] == sent


def test_a_model_that_nobody_has_is_refused() -> None:
    session = Session(
        call_info(max_arguments_bytes=100_000),
        [replaced(model="nobodys")],
        CONFIG,
    )
    session.begin(body_of("openai", "openai"))
    [out] = session.drain().outputs
    assert not isinstance(out, SendUpstream) and session.status == 404


# --- a turn that goes on ---


def paused() -> bytes:
    frames = frames_of("anthropic", (), text="So far.")
    return b"".join(f.replace(b'"end_turn"', b'"pause_turn"') for f in frames)


def says_again(request: ChatRequest) -> ChatRequest:
    return msgspec.structs.replace(request, system=(*request.system, "Be careful."))


def test_hooks_see_the_clients_request_again_for_a_turn_that_goes_on() -> None:
    answer = Answer("anthropic", "openai", policies=[approving(says_again)])
    for _ in range(3):
        answer.feed(paused())
    assert len(answer.dispatched) == 4
    for number, sent in enumerate(answer.dispatched):
        assert json.dumps(sent).count("Be careful.") == 1
        assert len(sent["messages"]) == 1 + min(number, 1)
    said = [json.dumps(sent["messages"][1:]).count("So far.") for sent in answer.dispatched]
    assert said == [0, 1, 2, 3]


def test_a_turn_that_goes_on_is_held_to_what_was_approved_for_it() -> None:
    class Later(Policy):
        """Takes the tool away once the turn goes on."""

        def on_request(self, request: ChatRequest) -> ChatRequest | Block | None:
            return without_bash(request) if request.turns[-1].role == "assistant" else None

    tools = [
        {"type": "function", "function": {"name": n, "parameters": SCHEMA}}
        for n in ("bash", "read")
    ]
    answer = Answer("anthropic", "openai", policies=[Later()], tools=tools)
    answer.feed(paused()).feed(b"".join(frames_of("anthropic", (("bash", RM), ("read", "{}")))))
    assert answer.verdicts == [("bash", "block"), ("read", "allow")]


def test_a_model_changed_in_the_middle_of_a_turn_ends_it() -> None:
    class Later(Policy):
        def on_request(self, request: ChatRequest) -> ChatRequest | Block | None:
            return (
                msgspec.structs.replace(request, model="gpt-x")
                if request.turns[-1].role == "assistant"
                else None
            )

    answer = Answer("anthropic", "openai", policies=[Later()])
    answer.feed(paused())
    assert len(answer.outputs) and answer.session.state == "ENDED"
    assert b"changed the model in the middle of a turn" in answer.data


@pytest.mark.parametrize(
    ("policies", "verdict"),
    [((), ("allow", "")), ((replaced(tools=()),), ("block", "not_offered"))],
)
def test_what_a_provider_runs_is_held_to_it_too(
    policies: tuple[Policy, ...], verdict: tuple[str, str]
) -> None:
    """A provider cannot run what it was not offered: an upstream that says it did is cut off
    there."""
    use = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "x"},
    }
    said = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
        "content": [use, {"type": "text", "text": "what builds on it"}],
    }
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    answer = Answer("anthropic", "anthropic", streams=False, policies=policies, tools=tools).feed(
        as_json(said), streams=False
    )
    assert [(r.verdict, r.reason) for r in answer.records if isinstance(r, ToolCallRecord)] == [
        verdict
    ]
    assert (b"what builds on it" in answer.data) == (verdict[0] == "allow")
