"""The ways in which a call can come (docs/change/protocol.md 4): a policy that denies it wins in
each, for clients of both dialects.

What is denied everywhere is a call whose arguments say DANGER; the word must be in no byte that a
client gets, and the denial on record.
"""

import json
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from protocol.request import DialectName
from tests.support.clients.sdk_calls import DIALECTS
from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY, Product
from tests.support.servers.stores import Stores
from tests.support.upstreams import converse, gemini, responses
from tests.support.upstreams.cases import frames
from tests.support.upstreams.product import MODEL, Place, call_of, config, new_session, replayed
from tests.support.upstreams.replay import Replay, Reply, stream

DANGER = "wipe-the-disk"
INPUT = {"command": DANGER}
PATHS: dict[DialectName, str] = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
START = {
    "type": "message",
    "role": "assistant",
    "id": "msg_1",
    "model": "claude-x",
    "usage": {"input_tokens": 3, "output_tokens": 1},
}
CALLER = {"type": "code_execution_20250825", "tool_id": "srvtoolu_0"}
FULL_CALL = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": INPUT}
SERVER_CALL = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "bash_code_execution",
    "input": INPUT,
}
MCP_CALL = {
    "type": "mcp_tool_use",
    "id": "mcptoolu_1",
    "name": "shell",
    "server_name": "box",
    "input": INPUT,
}
RESULT = {
    "type": "bash_code_execution_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": {"type": "x", "stdout": DANGER},
}
TEXT = {"type": "text", "text": "Well."}
HISTORY: Json = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "bash_code_execution",
    "input": INPUT,
}


NEWER = ("responses", "gemini", "converse")
"""Dialects of upstreams whose cases are further below."""


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    def made(replay: Replay) -> Json:
        rules = [{"tool": "*", "argument_matches": DANGER}]
        base = config(replay)
        families = ["web_search", "code_execution", "mcp"]
        keys = [key | {"policies": ["guard"], "server_tools": families} for key in base["keys"]]
        for name in NEWER:
            path = "/v1" if name == "responses" else ""
            base["upstreams"][name] = {
                "dialect": name,
                "base_url": replay.url + path,
                "api_key_env": "TEST_OPENAI_PROVIDER_KEY",
            }
            base["models"].append({"match": f"{name}-*", "upstream": name})
        return base | {"policies": {"guard": [{"use": "tool_rules", "deny": rules}]}, "keys": keys}

    with replayed(*stores, made) as running:
        yield running


def ended(reason: str) -> tuple[Json, Json]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}}, {
        "type": "message_stop"
    }


def at_start(*blocks: Json, reason: str = "tool_use") -> bytes:
    """A stream whose blocks are complete when they begin."""
    events: list[Json] = [{"type": "message_start", "message": START | {"content": []}}]
    for index, block in enumerate(blocks):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    return frames(*events, *ended(reason))


def in_deltas(block: Json, reason: str = "tool_use") -> bytes:
    text = json.dumps(block["input"])
    behind: list[Json] = [
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "text", "text": f"It says {DANGER}."},
        },
        {"type": "content_block_stop", "index": 1},
    ]
    pieces = [
        {"type": "input_json_delta", "partial_json": text[:14]},
        {"type": "input_json_delta", "partial_json": text[14:]},
    ]
    return frames(
        {"type": "message_start", "message": START | {"content": []}},
        {"type": "content_block_start", "index": 0, "content_block": block | {"input": {}}},
        *({"type": "content_block_delta", "index": 0, "delta": p} for p in pieces),
        {"type": "content_block_stop", "index": 0},
        *(behind if reason == "end_turn" else ()),
        *ended(reason),
    )


def chunks(*deltas: Json, finish: str = "tool_calls") -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
    rows = [{**head, "choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    rows.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return b"".join(f"data: {json.dumps(r)}\n\n".encode() for r in rows) + b"data: [DONE]\n\n"


ARGUMENTS = json.dumps(INPUT)
ERROR = {
    "error": {
        "message": f"bad call {DANGER}",
        "failed_generation": ARGUMENTS,
        "type": "invalid_request_error",
    }
}
NAMED = {"name": "bash", "arguments": ARGUMENTS}
CALL = json.dumps({"name": "bash", "arguments": INPUT})
AS_TEXT = [
    CALL,
    f"<tool_call>{CALL}</tool_call>",
    "```json\n" + json.dumps({"tool": "bash", "parameters": INPUT}) + "\n```",
    json.dumps({"tool_calls": [{"function": NAMED}]}),
    "{'name': 'bash', 'arguments': {'command': '" + DANGER + "',}}",
]
ANTHROPIC: dict[str, bytes] = {
    "deltas": in_deltas(FULL_CALL),
    "complete at block start": at_start(TEXT, FULL_CALL),
    "inside message_start": frames(
        {
            "type": "message_start",
            "message": START | {"content": [FULL_CALL], "stop_reason": "tool_use"},
        },
        {"type": "message_stop"},
    ),
    "server tool": in_deltas(SERVER_CALL, "end_turn"),
    "server tool complete at start": at_start(SERVER_CALL, RESULT, TEXT, reason="end_turn"),
    "mcp": in_deltas(MCP_CALL, "end_turn"),
    "nested server tool": at_start(SERVER_CALL | {"caller": CALLER}, RESULT, reason="end_turn"),
    "nested client tool": at_start(FULL_CALL | {"caller": CALLER}),
    "text over two blocks": at_start(
        {"type": "text", "text": CALL[:30]}, {"type": "text", "text": CALL[30:]}, reason="end_turn"
    ),
    "text with escapes": at_start(
        {"type": "text", "text": CALL.replace("name", r"n\u0061me")}, reason="end_turn"
    ),
    **{
        f"text {n}": at_start(TEXT, {"type": "text", "text": t}, reason="end_turn")
        for n, t in enumerate(AS_TEXT)
    },
}
OPENAI: dict[str, bytes] = {
    "deltas": chunks(
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "bash", "arguments": ARGUMENTS[:14]},
                }
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[14:]}}]},
    ),
    "without index": chunks({"tool_calls": [{"id": "call_1", "function": NAMED}]}),
    "legacy": chunks({"function_call": NAMED}, finish="function_call"),
    "custom": chunks(
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "call_1",
                    "type": "custom",
                    "custom": {"name": "bash", "input": DANGER},
                }
            ]
        }
    ),
    "second choice": (
        chunks({"content": "ok"}, finish="stop")
        .replace(b'"index": 0', b'"index": 1', 1)
        .replace(b'"ok"', f'"{DANGER}"'.encode())
    ),
    "unknown field": chunks({"content": "ok", "tool_uses": [NAMED]}, finish="stop"),
    "error frame": (
        chunks({"content": "so "}).partition(b"\n\n")[0]
        + b"\n\nevent: error\ndata: "
        + as_json(ERROR)
        + b"\n\n"
    ),
    "logprobs": (
        b"data: "
        + as_json(
            {
                "id": "x",
                "choices": [
                    {
                        "index": 0,
                        "delta": {"content": "ok"},
                        "logprobs": {"content": [{"token": DANGER, "logprob": 0}]},
                    }
                ],
            }
        )
        + b"\n\n"
        + chunks(finish="stop")
    ),
    "reasoning details": chunks(
        {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": DANGER}]},
        finish="stop",
    ),
    "text around a thought": chunks(
        {"content": CALL[:30]}, {"reasoning_content": "hm"}, {"content": CALL[30:]}, finish="stop"
    ),
    "log probabilities of a call in text": (
        chunks({"content": CALL}, finish="stop").replace(
            b'"finish_reason": null',
            b'"finish_reason": null, "logprobs": '
            + as_json({"content": [{"token": CALL, "logprob": 0}]}),
        )
    ),
    "a name that is a call": chunks(
        {
            "tool_calls": [
                {"index": 0, "id": "call_1", "function": {"name": CALL, "arguments": ARGUMENTS}}
            ]
        },
        finish="tool_calls",
    ),
    **{
        f"text {n}": chunks({"content": "Well. "}, *({"content": c} for c in t), finish="stop")
        for n, t in enumerate(AS_TEXT)
    },
}
NO_ROW = {"second choice", "unknown field", "error frame", "logprobs", "reasoning details"}
CASES = [("anthropic", n) for n in ANTHROPIC] + [("openai", n) for n in OPENAI]


def post(
    product: Product,
    client: DialectName,
    upstream: DialectName,
    session: str,
    messages: list[Any],
    **more: Any,
) -> httpx.Response:
    body = {"model": MODEL[upstream], "max_tokens": 100, "messages": messages, **more}
    headers = {"authorization": f"Bearer {KEY}", "x-sluice-session": session}
    return httpx.post(product.url + PATHS[client], json=body, headers=headers, timeout=30)


def denied(product: Product, session: str) -> list[str]:
    listed = product.audit("tool-calls", call_id=call_of(product, session)["call_id"])["items"]
    return [c["verdict"] for c in listed if DANGER in (c["arguments"] or "")]


@pytest.mark.slow
@pytest.mark.case("U7")
@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize(("upstream", "case"), CASES, ids=[f"{u}: {n}" for u, n in CASES])
def test_a_denied_call_reaches_no_client(
    place: Place, client: DialectName, upstream: DialectName, case: str
) -> None:
    product, replay = place
    session = new_session()
    replay.answer(
        stream((ANTHROPIC if upstream == "anthropic" else OPENAI)[case], cutting="events")
    )
    answer = post(
        product, client, upstream, session, [{"role": "user", "content": "go"}], stream=True
    )
    assert answer.status_code == 200, answer.text
    assert DANGER not in answer.text
    if case not in NO_ROW:
        assert denied(product, session) == ["block"]


@pytest.mark.case("U7")
@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize(
    "block",
    [FULL_CALL, SERVER_CALL, MCP_CALL, FULL_CALL | {"caller": CALLER}],
    ids=lambda b: b["type"],
)
def test_a_denied_call_in_a_whole_answer_reaches_no_client(
    place: Place, client: DialectName, block: Json
) -> None:
    product, replay = place
    session = new_session()
    content = [TEXT, block, *([] if block["type"] == "tool_use" else [RESULT])]
    replay.answer(
        Reply(
            as_json(START | {"content": content, "stop_reason": "end_turn", "stop_sequence": None})
        )
    )
    answer = post(product, client, "anthropic", session, [{"role": "user", "content": "go"}])
    assert (answer.status_code, DANGER in answer.text) == (200, False)
    assert denied(product, session) == ["block"]


@pytest.mark.parametrize(("upstream", "case"), CASES, ids=[f"{u}: {n}" for u, n in CASES])
def test_a_denied_call_reaches_no_client_of_responses(
    place: Place, upstream: DialectName, case: str
) -> None:
    product, replay = place
    session = new_session()
    replay.answer(
        stream((ANTHROPIC if upstream == "anthropic" else OPENAI)[case], cutting="events")
    )
    body = {"model": MODEL[upstream], "input": "go", "stream": True}
    headers = {"authorization": f"Bearer {KEY}", "x-sluice-session": session}
    answer = httpx.post(f"{product.url}/v1/responses", json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    assert DANGER not in answer.text
    if case not in NO_ROW:
        assert denied(product, session) == ["block"]
        # a turn with a block is whole: clients send what failed again
        assert answer.text.rstrip().split("\n")[-2] == "event: response.completed"


def of_responses(*items: Json) -> Reply:
    return stream(responses.frames(responses.events(items)), cutting="events")


def of_gemini(*parts: Json, **more: Any) -> Reply:
    return stream(gemini.body_of(gemini.answer(*parts, **more)))


def of_converse(*events: converse.Event) -> Reply:
    return Reply(
        converse.written(converse.begun(), *events, *converse.ended("tool_use")),
        content_type=converse.STREAM_TYPE,
    )


LOCAL = {
    "type": "shell_call",
    "call_id": "c",
    "action": {"commands": ["ls"]},
    "environment": {"type": "local"},
}
NEWER_CASES: dict[tuple[str, str], tuple[Reply, bool]] = {
    ("responses", "function"): (
        of_responses(responses.function_call("c", "bash", ARGUMENTS)),
        True,
    ),
    ("responses", "custom"): (
        of_responses({"type": "custom_tool_call", "call_id": "c", "name": "bash", "input": DANGER}),
        True,
    ),
    ("responses", "shell"): (of_responses(LOCAL | {"action": {"commands": [DANGER]}}), True),
    ("responses", "beside the action"): (
        of_responses(LOCAL | {"operation": DANGER, "item": "apply_patch_call"}),
        False,
    ),
    ("responses", "actions"): (
        of_responses(
            {"type": "computer_call", "call_id": "c", "actions": [{"type": "type", "text": DANGER}]}
        ),
        True,
    ),
    ("responses", "mcp"): (
        of_responses(
            {
                "type": "mcp_call",
                "name": "sh",
                "server_label": "box",
                "arguments": ARGUMENTS,
                "output": DANGER,
            }
        ),
        True,
    ),
    ("responses", "mcp question"): (
        of_responses(
            {
                "type": "mcp_approval_request",
                "name": "sh",
                "server_label": "box",
                "arguments": ARGUMENTS,
            }
        ),
        True,
    ),
    ("responses", "text"): (of_responses(responses.message(CALL)), True),
    ("responses", "part field"): (of_responses(responses.message("ok") | {"note": DANGER}), False),
    ("gemini", "call"): (of_gemini(gemini.call("bash", command=DANGER)), True),
    ("gemini", "pieces"): (
        of_gemini(
            gemini.piece("$.command", DANGER[:6], name="bash", text_goes_on=True),
            gemini.piece("$.command", DANGER[6:], goes_on=False),
        ),
        True,
    ),
    ("gemini", "code"): (
        of_gemini({"executableCode": {"language": "PYTHON", "code": DANGER}}),
        True,
    ),
    ("gemini", "field"): (
        of_gemini({"text": "ok"}, citationMetadata={"citations": [{"title": DANGER}]}),
        False,
    ),
    ("converse", "call"): (
        of_converse(
            converse.call(0, "t", "bash"),
            converse.piece(0, toolUse={"input": ARGUMENTS}),
            converse.stopped(0),
        ),
        True,
    ),
    ("converse", "field"): (
        of_converse(
            converse.piece(0, text="ok"), ("metadata", {"usage": {}, "trace": {"x": DANGER}})
        ),
        False,
    ),
}
"""Answers of the newer dialects, and whether what is denied is a call on record."""


@pytest.mark.parametrize(
    ("upstream", "case"), NEWER_CASES, ids=[f"{u}: {n}" for u, n in NEWER_CASES]
)
def test_a_denied_call_of_the_newer_dialects_reaches_no_client(
    place: Place, upstream: str, case: str
) -> None:
    product, replay = place
    reply, is_call = NEWER_CASES[upstream, case]
    # clients by turns: what each dialect writes has tests of its own
    for client in ("responses", ("openai", "anthropic")[len(case) % 2]):
        session = new_session()
        replay.answer(reply)
        said = (
            {"input": "go"}
            if client == "responses"
            else {"messages": [{"role": "user", "content": "go"}], "max_tokens": 100}
        )
        path = (
            "/v1/responses"
            if client == "responses"
            else {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}[client]
        )
        headers = {"authorization": f"Bearer {KEY}", "x-sluice-session": session}
        body = {"model": f"{upstream}-x", "stream": True, **said}
        answer = httpx.post(product.url + path, json=body, headers=headers, timeout=30)
        assert answer.status_code == 200, answer.text
        assert DANGER not in answer.text
        if is_call:
            assert denied(product, session) == ["block"], client
        elif case != "beside the action":
            assert "ok" in answer.text


def test_the_result_of_a_denied_call_in_an_earlier_answer_reaches_no_client(
    place: Place,
) -> None:
    product, replay = place
    session = new_session()
    replay.answer(
        stream(
            at_start(RESULT, {"type": "text", "text": f"It says {DANGER}."}, reason="end_turn"),
            cutting="events",
        )
    )
    turns = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [HISTORY]}]
    answer = post(product, "anthropic", "anthropic", session, turns, stream=True)
    assert (answer.status_code, DANGER in answer.text) == (200, False), answer.text
    assert denied(product, session) == ["block"]


@pytest.mark.parametrize("client", DIALECTS)
def test_a_client_gets_a_whole_turn_in_place_of_a_denied_provider_call(
    place: Place, client: DialectName
) -> None:
    product, replay = place
    replay.answer(stream(ANTHROPIC["server tool"], cutting="events"))
    answer = post(
        product,
        client,
        "anthropic",
        new_session(),
        [{"role": "user", "content": "go"}],
        stream=True,
    )
    assert (
        "and withheld its result: rule 'deny[" in answer.text
        and "of the policy 'guard'" in answer.text
    )
    last = "data: [DONE]" if client == "openai" else '{"type":"message_stop"}'
    assert answer.text.rstrip().endswith(last)
    assert (
        '"finish_reason":"stop"' if client == "openai" else '"stop_reason":"end_turn"'
    ) in answer.text
