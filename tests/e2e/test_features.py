"""What applications use beside text and tools, there and back through the product and the SDKs,
with the other dialect behind it."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel

from tests.support.clients.sdk_calls import anthropic_client, openai_client
from tests.support.json_values import Json, as_json
from tests.support.servers.stores import Stores
from tests.support.upstreams.product import Place, config, replayed
from tests.support.upstreams.recordings import framed
from tests.support.upstreams.replay import Replay, Reply, stream
from tests.support.waiting import wait_for

CLAUDE, CLAUDE_OLD, GPT = "claude-haiku-4-5", "claude-3-haiku", "gpt-x"
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION: Any = {"name": "get_weather", "description": "d", "parameters": WEATHER}
USER: Any = [{"role": "user", "content": "go"}]


class City(BaseModel):
    """What is asked for."""

    city: str
    people: int


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    def made(replay: Replay) -> Json:
        base = config(replay)
        keys = [
            key
            | {
                "policies": ["noop"],
                "server_tools": ["web_search"] if key["name"] == "dev" else [],
            }
            for key in base["keys"]
        ]
        prompted = {
            "dialect": "openai",
            "base_url": replay.url + "/v1",
            "native_tools": False,
            "guided": "ollama",
        }
        routes = [{"match": "qwen*", "upstream": "ollama"}, *base["models"]]
        return base | {
            "keys": keys,
            "models": routes,
            "upstreams": base["upstreams"] | {"ollama": prompted},
        }

    with replayed(*stores, made) as running:
        yield running


@pytest.fixture
def gpt(place: Place) -> Iterator[openai.OpenAI]:
    with openai_client(place[0].url) as client:
        yield client


@pytest.fixture
def claude(place: Place) -> Iterator[anthropic.Anthropic]:
    with anthropic_client(place[0].url) as client:
        yield client


def message(*content: Json, reason: str = "end_turn", streamed: bool = False) -> Reply:
    body: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(content),
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 5},
    }
    if not streamed:
        return Reply(as_json(body))
    events: list[Json] = [
        {"type": "message_start", "message": body | {"content": [], "stop_reason": None}}
    ]
    for index, block in enumerate(content):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 5},
        }
    )
    return stream(
        framed("anthropic", [json.dumps(e) for e in [*events, {"type": "message_stop"}]]),
        cutting="events",
    )


def completion(said: Json, finish: str = "stop") -> Reply:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None, **said},
        "finish_reason": finish,
    }
    usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    return Reply(
        as_json(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": "gpt-x",
                "choices": [choice],
                "usage": usage,
            }
        )
    )


def call(name: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}


def asked(place: Place) -> Json:
    body: Json = place[1].asked[-1].body
    return body


# --- OpenAI clients, Anthropic models ---


@pytest.mark.parametrize("streamed", [False, True])
def test_a_parsed_answer_from_a_model_without_structured_output(
    place: Place, gpt: openai.OpenAI, streamed: bool
) -> None:
    place[1].answer(
        message({"type": "text", "text": '{"city": "Paris", "people": 2}'}, streamed=True)
    )
    with gpt.chat.completions.stream(
        model=CLAUDE_OLD, messages=USER, response_format=City
    ) as events:
        list(events)
    forced = asked(place)["tool_choice"]["name"]
    place[1].answer(
        message(
            {"type": "text", "text": "Here:"},
            call(forced, city="Paris", people=2),
            reason="tool_use",
            streamed=streamed,
        )
    )
    if streamed:
        with gpt.chat.completions.stream(
            model=CLAUDE_OLD, messages=USER, response_format=City
        ) as events:
            list(events)
            said = events.get_final_completion()
    else:
        said = gpt.chat.completions.parse(model=CLAUDE_OLD, messages=USER, response_format=City)
    choice = said.choices[0]
    assert choice.message.parsed == City(city="Paris", people=2)
    assert (choice.finish_reason, choice.message.tool_calls or []) == ("stop", [])
    assert forced not in (choice.message.content or "")


@pytest.mark.parametrize(
    ("says", "kept"), [("my-agent/1.0 (linux)", "my-agent/1.0 (linux)"), ("a" * 300, "a" * 200)]
)
@pytest.mark.slow
def test_what_the_client_says_it_is_is_on_record(
    place: Place, gpt: openai.OpenAI, says: str, kept: str
) -> None:
    place[1].answer(completion({"role": "assistant", "content": "ok"}))
    raw = gpt.chat.completions.with_raw_response.create(
        model=GPT, messages=USER, extra_headers={"user-agent": says}
    )
    call_id = raw.headers["x-sluice-call-id"]
    # a call's record comes after its answer; until then no list has it
    wait_for(lambda: any(item["call_id"] == call_id for item in place[0].audit("calls")["items"]))
    assert place[0].audit(f"calls/{call_id}")["user_agent"] == kept


def test_web_search_options_are_the_operators_to_allow(place: Place, gpt: openai.OpenAI) -> None:
    from tests.support.servers.product import CLIENT_KEY

    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    cited = {
        "type": "web_search_result_location",
        "url": "https://example.org",
        "title": "T",
        "encrypted_index": "eA==",
        "cited_text": "it",
    }
    place[1].answer(
        message(
            {
                "type": "server_tool_use",
                "id": "srvtoolu_1",
                "name": "web_search",
                "input": {"query": "x"},
            },
            result,
            {"type": "text", "text": "So: "},
            {"type": "text", "text": "it is.", "citations": [cited]},
        )
    )
    said = gpt.chat.completions.create(
        model=CLAUDE, messages=USER, web_search_options={"search_context_size": "low"}
    )
    choice = said.choices[0].message
    assert (choice.content, choice.tool_calls) == ("So: it is.", None)
    annotation = (choice.annotations or [])[0].url_citation
    assert (annotation.start_index, annotation.end_index, annotation.url) == (
        4,
        10,
        "https://example.org",
    )
    assert asked(place)["tools"][0]["max_uses"] == 1
    place[1].answer(message())
    with (
        openai_client(place[0].url, CLIENT_KEY) as other,
        pytest.raises(openai.BadRequestError, match="server_tools"),
    ):
        other.chat.completions.create(model=CLAUDE, messages=USER, web_search_options={})
    assert place[1].asked == []


# --- Anthropic clients, OpenAI models ---


# --- models without native tool calls ---

ENVELOPE = '{"tool_calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]}'


@pytest.mark.parametrize("streamed", [False, True])
def test_a_model_without_native_tools_calls_one(
    place: Place, gpt: openai.OpenAI, streamed: bool
) -> None:
    tools: Any = [{"type": "function", "function": FUNCTION}]
    text = f"<think>Hm.</think>I look it up.\n{ENVELOPE}"
    if streamed:
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "qwen3"}
        rows = [
            {**head, "choices": [{"index": 0, "delta": {"content": c}, "finish_reason": None}]}
            for c in text
        ]
        rows.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        place[1].answer(
            stream(framed("openai", [json.dumps(r) for r in rows]), cutting="random", seed=3)
        )
        with gpt.chat.completions.stream(
            model="qwen3", messages=USER, tools=tools, tool_choice="required"
        ) as events:
            list(events)
            choice: Any = events.get_final_completion().choices[0]
    else:
        place[1].answer(completion({"content": text}))
        choice = gpt.chat.completions.create(
            model="qwen3", messages=USER, tools=tools, tool_choice="required"
        ).choices[0]
    assert choice.message.content == "I look it up."
    assert [
        (c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls
    ] == [("get_weather", {"city": "Paris"})]
    assert choice.finish_reason == "tool_calls"
    sent = asked(place)
    assert "tools" not in sent and "tool_calls" in sent["format"]["properties"]
    listed = place[0].audit("tool-calls", limit=1, order="desc")["items"][0]
    assert (listed["form"], listed["name"], listed["verdict"]) == ("prompt", "get_weather", "allow")
