"""Configured upstreams of both dialects, from clients of both: what arrives at the provider, and
what comes back."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.request import DialectName
from tests.support.clients.sdk_calls import (
    DIALECTS,
    MODES,
    STOPS,
    Mode,
    anthropic_client,
    ask,
    tool,
)
from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY
from tests.support.servers.stores import Stores
from tests.support.upstreams.product import (
    MODEL,
    PROVIDER_KEYS,
    Place,
    assert_no_keys_in_logs,
    replayed,
)
from tests.support.upstreams.recordings import own
from tests.support.upstreams.replay import Asked, Replay, Reply, stream

PATHS: dict[DialectName, str] = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
STREAMS: dict[DialectName, dict[str, str]] = {
    "openai": {"text": "openai-text.sse", "calls": "openai-tools-interleaved.sse"},
    "anthropic": {"text": "anthropic-text.sse", "calls": "anthropic-tools-parallel.sse"},
}
CALLS = [("get_weather", {"city": "Paris"}), ("get_time", {"zone": "CET"})]


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    with replayed(*stores) as made:
        yield made


def pairs(test: Any) -> Any:
    """Each client of each upstream."""
    return pytest.mark.parametrize("upstream", DIALECTS)(
        pytest.mark.parametrize("client", DIALECTS)(test)
    )


def whole(
    dialect: DialectName, *, text: str = "Both.", calls: bool = True, stop: str = "tools"
) -> bytes:
    """An answer that is not streamed."""
    if dialect == "openai":
        message: Json = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{n}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(value)},
                }
                for n, (name, value) in enumerate(CALLS)
            ]
        return as_json(
            {
                "id": "chatcmpl-own2",
                "object": "chat.completion",
                "created": 1760000000,
                "model": "model-o",
                "choices": [
                    {"index": 0, "message": message, "finish_reason": STOPS["openai"][stop]}
                ],
                "usage": {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29},
            }
        )
    content: list[Json] = [{"type": "text", "text": text}]
    if calls:
        content += [
            {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": value}
            for n, (name, value) in enumerate(CALLS)
        ]
    return as_json(
        {
            "id": "msg_own2",
            "type": "message",
            "role": "assistant",
            "model": "model-a",
            "content": content,
            "stop_reason": STOPS["anthropic"][stop],
            "stop_sequence": None,
            "usage": {"input_tokens": 20, "output_tokens": 9},
        }
    )


def answer_of(upstream: DialectName, mode: Mode, *, calls: bool) -> Reply:
    if mode == "whole":
        return Reply(whole(upstream, calls=calls, stop="tools" if calls else "end"))
    return stream(own(STREAMS[upstream]["calls" if calls else "text"]), cutting="events")


def with_system(client: DialectName, text: str, turns: list[Json]) -> Json:
    """Messages and system prompt in the client's dialect."""
    if client == "openai":
        return {"messages": [{"role": "system", "content": text}, *turns]}
    return {"messages": turns, "system": text}


def arrived(replay: Replay, upstream: DialectName) -> Asked:
    assert len(replay.asked) == 1
    asked = replay.asked[0]
    assert asked.path == PATHS[upstream]
    return asked


def system_text(upstream: DialectName, body: Json) -> str:
    """The system prompt that arrived."""
    content = body["messages"][0]["content"] if upstream == "openai" else body["system"]
    return content if isinstance(content, str) else "".join(p["text"] for p in content)


@pytest.mark.case("C5")
@pairs
def test_the_provider_gets_its_own_key_and_nothing_of_the_clients(
    place: Place, upstream: DialectName, client: DialectName
) -> None:
    product, replay = place
    replay.answer(answer_of(upstream, "whole", calls=False))
    ask(
        product.url,
        client,
        "whole",
        "hello",
        model=MODEL[upstream],
        headers={"x-sluice-session": "s-1", "cookie": "a=b"},
    )
    asked = arrived(replay, upstream)
    heads = {k.lower(): v for k, v in asked.headers.items()}
    if upstream == "openai":
        assert (
            heads["authorization"] == f"Bearer {PROVIDER_KEYS['openai']}"
            and heads["x-team"] == "seven"
            and "x-api-key" not in heads
        )
    else:
        assert (
            heads["x-api-key"] == PROVIDER_KEYS["anthropic"]
            and heads["anthropic-version"]
            and "authorization" not in heads
        )
    assert KEY not in str(heads) and KEY.encode() not in asked.raw
    assert not {h for h in heads if h.startswith(("x-sluice", "x-stainless", "cookie"))}
    assert heads["content-type"] == "application/json"
    assert_no_keys_in_logs(product)


@pytest.mark.parametrize("mode", MODES)
@pairs
def test_a_request_with_everything_arrives(
    place: Place, mode: Mode, upstream: DialectName, client: DialectName
) -> None:
    product, replay = place
    replay.answer(answer_of(upstream, mode, calls=True))
    offered = [
        tool(client, "get_weather", city="string"),
        tool(client, "get_time", zone="string"),
        tool(client, "refresh"),
    ]
    request = with_system(
        client, "Be brief. Grüße 😀", [{"role": "user", "content": "weather and time"}]
    )
    said = ask(
        product.url,
        client,
        mode,
        request.pop("messages"),
        model=MODEL[upstream],
        tools=offered,
        max_tokens=77,
        **request,
        extra_body={"temperature": 0.5},
        headers={"x-sluice-policy": "noop"},
    )
    body = arrived(replay, upstream).body
    assert body["model"] == MODEL[upstream]
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 77
    assert body["temperature"] == 0.5
    assert bool(body.get("stream")) == (mode != "whole")
    assert system_text(upstream, body) == "Be brief. Grüße 😀"
    if upstream == "openai":
        tools = [
            (
                t["type"],
                t["function"]["name"],
                t["function"]["description"],
                t["function"]["parameters"],
            )
            for t in body["tools"]
        ]
        assert [t[0] for t in tools] == ["function"] * 3
    else:
        tools = [("", t["name"], t["description"], t["input_schema"]) for t in body["tools"]]
    assert [t[1:3] for t in tools] == [
        ("get_weather", "get_weather tool"),
        ("get_time", "get_time tool"),
        ("refresh", "refresh tool"),
    ]
    assert tools[0][3] == {"type": "object", "properties": {"city": {"type": "string"}}}
    assert said.text == "Both."
    assert said.plain_calls[:2] == CALLS
    assert said.stop == STOPS[client]["tools"]
    assert said.tokens == ((27, 42) if upstream == "anthropic" and mode != "whole" else (20, 9))


@pytest.mark.slow
def test_tokens_are_counted_by_an_anthropic_upstream_and_estimated_for_others(place: Place) -> None:
    product, replay = place
    replay.answer(Reply(b'{"input_tokens": 4711}'))
    with anthropic_client(product.url) as client:
        counted = client.messages.with_raw_response.count_tokens(
            model=MODEL["anthropic"],
            messages=[{"role": "user", "content": "hello"}],
            system="Be brief.",
        )
        assert counted.parse().input_tokens == 4711
        assert "x-sluice-estimated" not in counted.headers
        assert [a.path for a in replay.asked] == ["/v1/messages/count_tokens"]
        assert replay.asked[0].body["system"] == "Be brief."
        replay.answer(Reply())
        guessed = client.messages.with_raw_response.count_tokens(
            model=MODEL["openai"], messages=[{"role": "user", "content": "hello"}]
        )
        assert guessed.parse().input_tokens > 0
        assert guessed.headers["x-sluice-estimated"] == "true"
        assert replay.asked == []
