"""Tools that providers ran by themselves: calls on record, and what came of them for clients of
every dialect."""

import pytest

from protocol.dialects.table import CLIENTS
from protocol.records import EventRecord, ToolCallRecord
from settings.config import Config
from tests.support.clients.answering import Answer, Watch
from tests.support.json_values import Json, as_json

EXECUTED: list[Json] = [
    {
        "index": 0,
        "type": "search",
        "arguments": '{"query":"q"}',
        "output": "Some prose.",
        "search_results": {"results": []},
    },
    {"index": 1, "type": "python", "arguments": '{"code":"1"}', "output": "1"},
]
IMAGE: Json = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}


def answered(
    upstream: str, client: str, sent: bytes, *, streams: bool = False, deny: str = ""
) -> Answer:
    one = {"dialect": upstream, "base_url": "http://127.0.0.1:1"}
    config = Config.model_validate(
        {"upstreams": {"up": one}, "models": [{"match": "*", "upstream": "up"}]}
    )
    return Answer(upstream, client, streams=streams, policies=[Watch(deny)], config=config).feed(
        sent, streams=streams
    )


def calls(answer: Answer) -> list[tuple[str, bytes, str, str]]:
    return [
        (r.name, r.arguments, r.executor, r.verdict)
        for r in answer.records
        if isinstance(r, ToolCallRecord)
    ]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("streams", [True, False])
def test_tools_that_groq_s_compound_models_ran_are_calls_on_record_once(
    client: str, streams: bool
) -> None:
    if streams:
        begun = [{name: tool[name] for name in ("index", "type", "arguments")} for tool in EXECUTED]
        deltas: list[Json] = [
            {"role": "assistant", "executed_tools": begun},
            {"executed_tools": EXECUTED},
            {"content": "hi"},
        ]
        chunks = [
            {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta}]} for delta in deltas
        ]
        chunks.append(
            {
                "id": "x",
                "model": "m",
                "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            }
        )
        sent = b"".join(b"data: %s\n\n" % as_json(chunk) for chunk in chunks) + b"data: [DONE]\n\n"
    else:
        unnumbered = [
            {name: value for name, value in tool.items() if name != "index"} for tool in EXECUTED
        ]
        message = {"role": "assistant", "content": "hi", "executed_tools": unnumbered}
        sent = as_json(
            {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        )
    answer = answered("openai", client, sent, streams=streams)
    assert calls(answer) == [
        ("web_search", b'{"query":"q"}', "provider", "allow"),
        ("code_execution", b'{"code":"1"}', "provider", "allow"),
    ]
    assert b"hi" in answer.data and b"Some prose." not in answer.data
    [note] = [
        r.detail for r in answer.records if isinstance(r, EventRecord) and r.kind == "withheld"
    ]
    assert note.endswith("delta field executed_tools")
    assert calls(answered("openai", client, sent, streams=streams, deny="query"))[0][3] == "block"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("streams", [True, False])
def test_an_image_that_a_model_made_does_not_vanish_without_a_word(
    client: str, streams: bool
) -> None:
    whole = as_json(
        {"candidates": [{"content": {"role": "model", "parts": [IMAGE]}, "finishReason": "STOP"}]}
    )
    answer = answered(
        "gemini", client, b"data: %s\n\n" % whole if streams else whole, streams=streams
    )
    notes = [
        r.detail for r in answer.records if isinstance(r, EventRecord) and r.kind == "withheld"
    ]
    if client == "anthropic":
        assert notes == ["-1: inlineData"] and b"withheld this answer" in answer.data
    else:
        assert not notes and b'"blocks":[{"mimeType":"image/png"' in answer.data
