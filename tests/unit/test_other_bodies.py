"""Bodies of Responses that clients send to /v1/chat/completions, and tools in that form: served as
chat/completions, for every upstream."""

import json

import pytest

from policy.session.effects import Respond, SendUpstream
from policy.session.session import Session
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.errors import InvalidRequest
from protocol.request import DialectName
from settings.config import Config
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info

TOOL = {
    "type": "function",
    "name": "read_file",
    "description": "d",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}
GRAMMAR = {"syntax": "lark", "definition": "start: /.+/"}
PATCH = {"type": "custom", "name": "patch", "format": {"type": "grammar", **GRAMMAR}}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "text"}
INPUT: list[Json] = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    {"type": "function_call", "call_id": "c1", "name": "read_file", "arguments": '{"path":"a"}'},
    RESULT,
]
BODY: Json = {
    "model": "m",
    "stream": True,
    "input": INPUT,
    "tools": [TOOL],
    "reasoning": {"effort": "low"},
    "store": False,
    "stream_options": {"include_usage": True},
    "max_output_tokens": 9,
}


def begun(body: Json, upstream: DialectName) -> tuple[Session, SendUpstream | Respond]:
    given = {
        "upstreams": {"u": {"dialect": upstream, "base_url": "http://127.0.0.1:1"}},
        "models": [{"match": "*", "upstream": "u"}],
    }
    info = call_info("01990000-0000-7000-8000-000000000000", durable=True, max_arguments_bytes=1000)
    session = Session(info, [], Config.model_validate(given))
    session.begin(as_json(body))
    if session.out.lookup is not None:
        session.turns([])
    [output] = session.drain().outputs
    assert isinstance(output, SendUpstream | Respond)
    return session, output


@pytest.mark.parametrize("upstream", DIALECTS)
def test_a_responses_body_at_chat_goes_to_every_upstream(upstream: DialectName) -> None:
    session, sent = begun(BODY, upstream)
    assert isinstance(sent, SendUpstream) and sent.body is not None, sent
    body = json.loads(sent.body)
    assert "include_usage" not in json.dumps(body) or upstream == "openai"
    assert all(word in json.dumps(body) for word in ("be brief", "hi", "read_file", "text"))
    assert session.request is not None and session.request.include_usage
    if upstream == "openai":
        assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "tool"]
        assert body["tools"][0]["function"]["name"] == "read_file"
        session.chunks(
            1,
            [
                b"data:"
                b' {"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"ok"}}]}\n\n'
            ],
        )
        frames = (
            CLIENTS["openai"]
            .encoder(session.request, call_id="c", created=1)
            .encode(session.drain().outputs)  # type: ignore[arg-type]
        )
        assert b'"chat.completion.chunk"' in frames and b'"content":"ok"' in frames


def test_flat_tools_are_written_as_chat_has_them() -> None:
    chosen = {"type": "function", "name": "read_file"}
    asked = {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "tools": [TOOL, PATCH],
        "tool_choice": chosen,
    }
    session, sent = begun(asked, "openai")
    assert isinstance(sent, SendUpstream) and sent.body is not None
    body = json.loads(sent.body)
    assert body["tools"][0] == {
        "type": "function",
        "function": {n: v for n, v in TOOL.items() if n != "type"},
    }
    assert body["tools"][1] == {
        "type": "custom",
        "custom": {"name": "patch", "format": {"type": "grammar", "grammar": GRAMMAR}},
    }
    assert body["tool_choice"] == {"type": "function", "function": {"name": "read_file"}}
    assert session.request is not None and session.request.tool("read_file") is not None
    _, sent = begun(
        asked | {"tools": [{"name": "read_file", "input_schema": TOOL["parameters"]}]}, "openai"
    )
    assert (
        isinstance(sent, SendUpstream)
        and json.loads(sent.body or b"")["tools"][0]["function"]["parameters"] == TOOL["parameters"]
    )
    nested = asked | {"tools": body["tools"], "tool_choice": body["tool_choice"]}
    _, as_it_came = begun(nested, "openai")
    assert isinstance(as_it_came, SendUpstream) and as_it_came.body is None


def test_a_chat_body_at_responses_is_told_its_path() -> None:
    with pytest.raises(InvalidRequest, match="send it to /v1/chat/completions"):
        CLIENTS["responses"].decode_request(
            b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}'
        )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"previous_response_id": "resp_1"}, "not kept"),
        ({"input": []}, "input must be"),
        ({"conversation": "c"}, "conversations"),
    ],
)
def test_what_cannot_be_served_at_chat_is_named(more: Json, said: str) -> None:
    _, refused = begun(BODY | more, "openai")
    assert isinstance(refused, Respond) and refused.status == 400 and said in refused.body.decode()
