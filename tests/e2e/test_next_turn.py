"""Conversations that go on after a block: what the client got is a turn that it and the provider
take again, in every pair of dialects."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from protocol.request import DialectName
from tests.support.clients.sdk_calls import DIALECTS, MODES, STOPS, Mode, Said, ask, results, tool
from tests.support.json_values import Json, as_json
from tests.support.servers.product import Product, parse_sse
from tests.support.upstreams.product import MODEL, call_of, new_session, recorded_bytes
from tests.support.upstreams.replay import Replay, Reply, stream

Calls = Sequence[tuple[str, Json]]
WEATHER = ("get_weather", {"city": "Paris"})
DANGER = ("bash", {"command": "rm -rf /"})
LISTING = ("bash", {"command": "ls"})


def pairs(test: Any) -> Any:
    """Each client of each upstream, whole, iterated and with the helper."""
    return pytest.mark.parametrize("mode", MODES)(
        pytest.mark.parametrize("upstream_dialect", DIALECTS)(
            pytest.mark.parametrize("client", DIALECTS)(test)
        )
    )


def openai_answer(text: str, calls: Calls, *, whole: bool) -> Reply:
    """A chat/completions provider's answer, arguments in two pieces."""
    usage = {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}
    head = {"id": "chatcmpl-1", "created": 1, "model": "gpt-x"}
    stop = "tool_calls" if calls else "stop"
    named = [
        {"id": f"call_{n}", "type": "function", "function": {"name": c, "arguments": json.dumps(a)}}
        for n, (c, a) in enumerate(calls)
    ]
    if whole:
        message: Json = {
            "role": "assistant",
            "content": text or None,
            **({"tool_calls": named} if calls else {}),
        }
        choice: Json = {"index": 0, "message": message, "finish_reason": stop}
        return Reply(
            as_json({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        )
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in text.split(" ") if word]
    for n, call in enumerate(named):
        function: Any = call["function"]
        half = len(function["arguments"]) // 2
        deltas.append(
            {
                "tool_calls": [
                    call
                    | {
                        "index": n,
                        "function": function | {"arguments": function["arguments"][:half]},
                    }
                ]
            }
        )
        deltas.append(
            {"tool_calls": [{"index": n, "function": {"arguments": function["arguments"][half:]}}]}
        )
    chunks: list[Json] = [
        {"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas
    ]
    chunks += [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": stop}]},
        {"choices": [], "usage": usage},
    ]
    lines = [json.dumps({**head, "object": "chat.completion.chunk", **c}) for c in chunks]
    return stream(
        "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode(),
        cutting="random",
        seed=len(lines),
    )


def anthropic_answer(text: str, calls: Calls, *, whole: bool) -> Reply:
    """A Messages provider's answer, input in two pieces."""
    content: list[Json] = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": value}
        for n, (name, value) in enumerate(calls)
    ]
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 20, "output_tokens": 9},
    }
    if whole:
        return Reply(as_json(message))
    events: list[Json] = [
        {"type": "message_start", "message": message | {"content": [], "stop_reason": None}}
    ]
    for index, block in enumerate(content):
        if block["type"] == "text":
            deltas: list[Json] = [
                {"type": "text_delta", "text": word} for word in block["text"].split(" ")
            ]
            start = block | {"text": ""}
        else:
            written = json.dumps(block["input"])
            half = len(written) // 2
            deltas = [
                {"type": "input_json_delta", "partial_json": part}
                for part in (written[:half], written[half:])
            ]
            start = block | {"input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": message["stop_reason"]},
            "usage": {"output_tokens": 9},
        }
    )
    events.append({"type": "message_stop"})
    body = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()
    return stream(body, cutting="random", seed=len(events))


def provider(dialect: DialectName, mode: Mode, text: str, calls: Calls = ()) -> Reply:
    """What the provider answers."""
    return (openai_answer if dialect == "openai" else anthropic_answer)(
        text, calls, whole=mode == "whole"
    )


def offered(client: DialectName) -> list[Json]:
    return [tool(client, "get_weather", city="string"), tool(client, "bash", command="string")]


def strict(dialect: DialectName, messages: list[Json]) -> None:
    """What a strict provider checks of a conversation: nothing empty, every call answered by the
    next turn and nothing else."""
    for position, message in enumerate(messages):
        following = messages[position + 1] if position + 1 < len(messages) else None
        if dialect == "openai":
            calls = [c["id"] for c in message.get("tool_calls") or ()]
            answered = []
            for later in messages[position + 1 :]:
                if later["role"] != "tool":
                    break
                answered.append(later["tool_call_id"])
            assert message["role"] == "tool" or message.get("content") or calls
            assert not calls or answered == calls
        else:
            blocks = (
                message["content"]
                if isinstance(message["content"], list)
                else [{"type": "text", "text": message["content"]}]
            )
            assert blocks and all(b["text"] for b in blocks if b["type"] == "text")
            uses = [b["id"] for b in blocks if b["type"] == "tool_use"]
            if uses:
                assert following is not None and following["role"] == "user"
                assert [
                    b["tool_use_id"] for b in following["content"] if b["type"] == "tool_result"
                ] == uses
    if dialect == "anthropic":
        roles = [m["role"] for m in messages]
        assert roles == [("user", "assistant")[n % 2] for n in range(len(roles))]


def go_on(
    product: Product,
    replay: Replay,
    client: DialectName,
    upstream: DialectName,
    mode: Mode,
    turns: list[Json],
) -> None:
    """The next turn is served, and what arrives at the provider is a conversation that it takes."""
    replay.answer(provider(upstream, mode, "All is well"))
    after = ask(product.url, client, mode, turns, model=MODEL[upstream], tools=offered(client))
    assert after.text.replace(" ", "") == "Alliswell"
    assert after.stop == STOPS[client]["end"]
    assert len(replay.asked) == 1
    strict(upstream, replay.asked[0].body["messages"])


def first(
    product: Product,
    replay: Replay,
    client: DialectName,
    upstream: DialectName,
    mode: Mode,
    text: str,
    calls: Calls,
    session: str = "",
) -> tuple[list[Json], Said]:
    turns = [{"role": "user", "content": "go"}]
    replay.answer(provider(upstream, mode, text, calls))
    head = {"x-sluice-session": session or "none"}
    said = ask(
        product.url, client, mode, turns, model=MODEL[upstream], tools=offered(client), headers=head
    )
    assert said.tokens == (20, 9)
    return turns, said


@pytest.mark.slow
@pairs
def test_the_only_call_is_blocked(
    product: Product,
    upstream: Replay,
    client: DialectName,
    upstream_dialect: DialectName,
    mode: Mode,
) -> None:
    session = new_session()
    turns, said = first(product, upstream, client, upstream_dialect, mode, "", [DANGER], session)
    assert said.calls == [] and said.stop == STOPS[client]["end"]
    assert "blocked the tool call 'bash'" in said.text and "rm -rf" not in said.text
    go_on(
        product,
        upstream,
        client,
        upstream_dialect,
        mode,
        [*turns, said.message, {"role": "user", "content": "why?"}],
    )
    call = call_of(product, session)
    listed = product.audit("tool-calls", call_id=call["call_id"])["items"]
    assert [
        (c["name"], c["verdict"], json.loads(c["arguments"]), c["released_arguments"])
        for c in listed
    ] == [("bash", "block", DANGER[1], None)]
    assert call["state"] == "ENDED" and call["reason"] == "complete"


@pairs
def test_one_of_three_calls_is_blocked(
    product: Product,
    upstream: Replay,
    client: DialectName,
    upstream_dialect: DialectName,
    mode: Mode,
) -> None:
    turns, said = first(
        product, upstream, client, upstream_dialect, mode, "I will.", [WEATHER, DANGER, LISTING]
    )
    assert said.plain_calls == [WEATHER, LISTING]
    assert said.stop == STOPS[client]["tools"]
    assert said.text.startswith("I") and "blocked the tool call 'bash'" in said.text
    assert len({c.id for c in said.calls}) == 2
    go_on(
        product,
        upstream,
        client,
        upstream_dialect,
        mode,
        [*turns, *results(client, said, ["sunny", "a.txt"])],
    )


@pytest.mark.slow
@pairs
def test_the_record_has_what_came_and_what_went(
    product: Product,
    upstream: Replay,
    client: DialectName,
    upstream_dialect: DialectName,
    mode: Mode,
) -> None:
    session = new_session()
    first(product, upstream, client, upstream_dialect, mode, "I will.", [WEATHER, DANGER], session)
    call = call_of(product, session)
    came = recorded_bytes(product, call["call_id"])
    assert came == upstream.reply.body
    assert (call["usage"]["input_tokens"], call["usage"]["output_tokens"]) == (20, 9)
    assert call["upstream"] == upstream_dialect
    if mode == "whole":
        return
    verdicts = {
        c["verdict"] for c in product.audit(f"calls/{call['call_id']}/chunks", limit=500)["items"]
    }
    assert verdicts == {"allow", "block"}
    assert parse_sse(came)
