"""The next request of a chat/completions client to a Messages upstream: its assistant turns are
those that the upstream sent."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clients.sdk_calls import MODES, Mode, Said, ask, results, tool
from tests.support.json_values import Json, as_json
from tests.support.servers.product import CLIENT_KEY, Product
from tests.support.servers.stores import Stores
from tests.support.upstreams.product import Place, config, replayed
from tests.support.upstreams.replay import Replay, Reply, stream
from tests.support.upstreams.turns import streamed

MODEL = "claude-sonnet-4-5"
THINKING: Json = {
    "type": "thinking",
    "thinking": "Let me see.",
    "signature": "c2lnbmF0dXJl" * 20,
}
USE: Json = {
    "type": "tool_use",
    "id": "toolu_01",
    "name": "get_weather",
    "input": {"city": "Paris"},
}
SEARCH: Json = {
    "type": "server_tool_use",
    "id": "srvtoolu_01",
    "name": "web_search",
    "input": {"query": "x", "n": 1.5},
}
FOUND: Json = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_01",
    "content": [
        {
            "type": "web_search_result",
            "title": "t",
            "url": "https://example.org",
            "encrypted_content": "Zm9v",
            "page_age": None,
        }
    ],
}
PLACE = {
    "type": "web_search_result_location",
    "cited_text": "rain",
    "url": "https://example.org",
    "title": "t",
    "encrypted_index": "eA",
}
CITED: Json = {"type": "text", "text": "It rains.", "citations": [PLACE]}
CONTAINER = {"id": "container_01", "expires_at": "2099-01-01T00:00:00Z"}
TOOLS: Any = [tool("openai", "get_weather", city="string")]


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    def made(replay: Replay) -> Json:
        base = config(replay)
        searching = {"server_tools": [{"type": "web_search_20250305", "name": "web_search"}]}
        routes = [
            route | (searching if route["match"] == "claude-*" else {}) for route in base["models"]
        ]
        keys = [
            key | {"server_tools": ["web_search"], "policies": ["default", "noop", "upper"]}
            for key in base["keys"]
        ]
        return base | {"keys": keys, "models": routes}

    with replayed(*stores, made) as running:
        yield running


def answer(content: list[Json], reason: str, *, whole: bool, identity: str) -> Reply:
    usage = {"input_tokens": 10, "output_tokens": 5}
    about = {
        "id": identity,
        "role": "assistant",
        "model": MODEL,
        "stop_sequence": None,
        "usage": usage,
    }
    if whole:
        return Reply(
            as_json(
                {
                    **about,
                    "type": "message",
                    "content": content,
                    "stop_reason": reason,
                    "container": CONTAINER,
                }
            )
        )
    chunks = b"".join(streamed(content, reason, container=CONTAINER["id"], about=about))
    return stream(chunks, cutting="random", seed=len(chunks))


def unique(content: list[Json], mark: str) -> list[Json]:
    """The content with ids of this test's own: the record remembers those of others."""
    return [
        {
            **block,
            **({"id": f"{block['id']}_{mark}"} if "id" in block else {}),
            **({"tool_use_id": f"{block['tool_use_id']}_{mark}"} if "tool_use_id" in block else {}),
        }
        for block in content
    ]


def asking(
    product: Product, mode: Mode, messages: Any, *, policy: str = "noop", **more: Any
) -> Said:
    return ask(
        product.url,
        "openai",
        mode,
        messages,
        model=MODEL,
        tools=TOOLS,
        headers={"x-sluice-policy": policy},
        max_tokens=20_000,
        **more,
    )


def round_trip(place: Place, mode: Mode, content: list[Json], **more: Any) -> Json:
    """Ask, run the tool, ask again; returns the second request as upstream got it."""
    product, replay = place
    whole = mode == "whole"
    replay.answer(
        answer(content, "tool_use", whole=whole, identity="msg_01"),
        answer(
            [{"type": "text", "text": "Take an umbrella."}],
            "end_turn",
            whole=whole,
            identity="msg_02",
        ),
    )
    said = asking(product, mode, "Weather?", **more)
    assert said.stop == "tool_calls"
    last = asking(
        product,
        mode,
        [
            {"role": "user", "content": "Weather?"},
            *results("openai", said, ["rain"] * len(said.calls)),
        ],
        **more,
    )
    assert last.text.upper() == "TAKE AN UMBRELLA."
    body: Json = replay.asked[1].body
    return body


@pytest.mark.parametrize("mode", MODES)
def test_what_a_search_found_comes_back_with_its_container(place: Place, mode: Mode) -> None:
    content = unique(
        [THINKING, {"type": "text", "text": "Searching. "}, SEARCH, FOUND, CITED, USE],
        f"search_{mode}",
    )
    body = round_trip(place, mode, content)
    assert body["messages"][1]["content"] == content
    assert body["container"] == CONTAINER["id"]


def test_case_13_an_unanswered_server_call_stays_and_its_late_result_comes_back_too(
    place: Place,
) -> None:
    product, replay = place
    first = unique([THINKING, SEARCH, USE], "late")
    second = [unique([FOUND], "late")[0], unique([USE], "later")[0]]
    replay.answer(
        answer(first, "tool_use", whole=False, identity="msg_01"),
        answer(second, "tool_use", whole=False, identity="msg_02"),
        answer([{"type": "text", "text": "Done."}], "end_turn", whole=False, identity="msg_03"),
    )
    messages: list[Json] = [{"role": "user", "content": "Weather?"}]
    for _ in range(2):
        messages += results("openai", asking(product, "iterate", messages), ["rain"])
    assert asking(product, "iterate", messages).text == "Done."
    sent = replay.asked[2].body["messages"]
    assert [m["content"] for m in sent if m["role"] == "assistant"] == [first, second]


@pytest.mark.parametrize("mode", MODES)
def test_what_sealed_a_chat_answer_comes_back_for_a_messages_client(
    place: Place, mode: Mode
) -> None:
    product, replay = place
    seal = {"extra_content": {"google": {"thought_signature": "U0lHTkFUVVJF"}}}
    details = [
        {"type": "reasoning.encrypted", "data": "RU5D", "format": "google-gemini-v1", "index": 0}
    ]
    call = {
        "index": 0,
        "id": f"call_{mode}",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'},
        **seal,
    }
    said = {
        "role": "assistant",
        "content": None,
        "reasoning": "Hm.",
        "reasoning_details": details,
        "tool_calls": [call],
    }

    def reply(said: Json, finish: str) -> Reply:
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
        if mode == "whole":
            return Reply(
                as_json(
                    head | {"choices": [{"index": 0, "message": said, "finish_reason": finish}]}
                )
            )
        chunk = head | {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}
        return stream(b"data: %s\n\ndata: [DONE]\n\n" % as_json(chunk))

    replay.answer(
        reply(
            said
            | {
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "Hm.", "index": 0},
                    *details,
                ]
            },
            "tool_calls",
        )
    )
    tools = [tool("anthropic", "get_weather", city="string")]
    more: Any = {
        "model": "gpt-x",
        "tools": tools,
        "max_tokens": 900,
        "headers": {"x-sluice-policy": "noop"},
    }
    first = ask(product.url, "anthropic", mode, "Weather?", **more)
    assert (first.thinking, first.stop, [c.name for c in first.calls]) == (
        "Hm.",
        "tool_use",
        ["get_weather"],
    )
    replay.answer(reply({"role": "assistant", "content": "Take an umbrella."}, "stop"))
    messages = [{"role": "user", "content": "Weather?"}, *results("anthropic", first, ["rain"])]
    assert ask(product.url, "anthropic", mode, messages, **more).text == "Take an umbrella."
    sent = replay.asked[0].body["messages"][1]
    assert sent["reasoning_details"] == [
        {"type": "reasoning.text", "text": "Hm.", "index": 0},
        *details,
    ]
    assert sent["tool_calls"][0]["extra_content"] == seal["extra_content"]


@pytest.mark.slow
def test_a_turn_of_another_key_is_not_put_in(place: Place) -> None:
    product, replay = place
    content = unique([THINKING, USE], "foreign")
    replay.answer(answer(content, "tool_use", whole=False, identity="msg_01"))
    said = asking(product, "iterate", "Weather?")
    messages = [{"role": "user", "content": "Weather?"}, *results("openai", said, ["rain"])]
    replay.answer(
        answer([{"type": "text", "text": "Done."}], "end_turn", whole=False, identity="msg_02")
    )
    asking(product, "iterate", messages, key=CLIENT_KEY)
    assert replay.asked[0].body["messages"][1]["content"] == [content[1]]
