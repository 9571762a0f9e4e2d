"""A Converse upstream behind the running product: chat and Messages clients, streamed, with their
official SDKs."""

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import openai
import pytest

from tests.support.json_values import Json, as_json
from tests.support.servers.asked import ask as ask_pages
from tests.support.servers.product import KEY, Product, base_config
from tests.support.upstreams import converse as made
from tests.support.upstreams.product import Place, call_of
from tests.support.upstreams.replay import Replay, Reply, replaying

MODEL = "us.anthropic.claude-sonnet-4-5-v1:0"
PATH = f"/model/{MODEL}/converse"
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "command": {"type": "string"}},
}
KEY_ENV = "TEST_CONVERSE_KEY"
JUDGED = {
    "output": {"message": {"role": "assistant", "content": []}},
    "stopReason": "tool_use",
    "usage": {"inputTokens": 3, "outputTokens": 2},
}


def configuration(replay: Replay) -> Json:
    """One upstream of this dialect, for every model; a series with a judge that is one of its
    models."""
    config = base_config()
    config["upstreams"] = {
        "aws": {"dialect": "converse", "base_url": replay.url, "api_key_env": KEY_ENV}
    }
    config["models"] = [{"match": "*", "upstream": "aws"}]
    config["policies"]["judged"] = [
        {"use": "tool_judge", "model": "amazon.nova-2-lite-v1:0", "threshold": 0.6}
    ]
    config["keys"][0]["policies"].append("judged")
    return config


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[Place]:
    """The product with one upstream of this dialect."""
    folder = tmp_path_factory.mktemp("converse")
    with replaying() as replay:
        with Product(folder, redis_url, database_url, configuration(replay)) as product:
            product.start(
                "audit", "judge", "gateway", "policy", "pages", env={KEY_ENV: "bedrock-key-4713"}
            )
            yield product, replay


def streamed(body: bytes, **more: Any) -> Reply:
    return Reply(body, content_type=made.STREAM_TYPE, cutting="random", seed=5, **more)


def chat(product: Product) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{product.url}/v1", api_key=KEY, max_retries=0)


def ask_chat(product: Product, messages: list[Any], **more: Any) -> Any:
    """Ask, streamed, and return the completion that the SDK adds up."""
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
    with chat(product).chat.completions.stream(
        model=MODEL, messages=messages, tools=tools, reasoning_effort="low", **more
    ) as events:
        return events.get_final_completion()


@pytest.mark.slow
def test_a_tool_loop_of_a_chat_client_gives_the_signed_thinking_back(place: Place) -> None:
    product, replay = place
    replay.answer(streamed(made.thought_call()), streamed(made.said("Mild.")))
    messages: list[Any] = [{"role": "user", "content": "Oslo?"}]
    first = ask_chat(product, messages)
    [call] = first.choices[0].message.tool_calls
    assert (call.id, call.function.name, json.loads(call.function.arguments)) == (
        "tooluse_1",
        "weather",
        {"city": "Oslo"},
    )
    assert (first.choices[0].message.content, first.choices[0].finish_reason) == (
        "Let me look.",
        "tool_calls",
    )
    wire = {
        "id": call.id,
        "type": "function",
        "function": {"name": "weather", "arguments": call.function.arguments},
    }
    messages.append({"role": "assistant", "content": "Let me look.", "tool_calls": [wire]})
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "12 degrees"})
    assert ask_chat(product, messages).choices[0].message.content == "Mild."
    one, two = replay.asked
    assert (one.path, two.path) == (f"{PATH}-stream", f"{PATH}-stream")
    assert one.headers["authorization"] == "Bearer bedrock-key-4713"
    assert (
        one.body["additionalModelRequestFields"]["thinking"]["type"] == "enabled"
        and "model" not in one.body
    )
    user, assistant, result = two.body["messages"]
    assert [next(iter(block)) for block in assistant["content"]] == [
        "reasoningContent",
        "text",
        "toolUse",
    ]
    sealed = {"text": "The weather is asked.", "signature": made.THOUGHT}
    assert assistant["content"][0] == {"reasoningContent": {"reasoningText": sealed}}
    assert assistant["content"][2]["toolUse"] == {
        "toolUseId": "tooluse_1",
        "name": "weather",
        "input": {"city": "Oslo"},
    }
    assert result["content"] == [
        {"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": "12 degrees"}]}}
    ]
    assert (
        two.body["additionalModelRequestFields"]["thinking"]["type"] == "enabled"
        and user["role"] == "user"
    )


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_blocked_call_reaches_nobody(place: Place, is_streamed: bool) -> None:
    product, replay = place
    call = {"toolUseId": "tooluse_3", "name": "weather", "input": {"command": "rm -rf /"}}
    whole = JUDGED | {
        "output": {
            "message": {
                "role": "assistant",
                "content": [{"text": "Let me look."}, {"toolUse": call}],
            }
        }
    }
    replay.answer(
        streamed(made.thought_call("tooluse_3", arguments='{"command": "rm -rf /"}'))
        if is_streamed
        else Reply(as_json(whole))
    )
    body = {"model": MODEL, "stream": is_streamed, "messages": [{"role": "user", "content": "go"}]}
    body["tools"] = [
        {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
    ]
    got = httpx.post(
        f"{product.url}/v1/chat/completions",
        json=body,
        headers={"authorization": f"Bearer {KEY}"},
        timeout=20,
    )
    assert got.status_code == 200 and b"Let me look." in got.content
    assert b"tooluse_3" not in got.content and b'"tool_calls"' not in got.content
    assert replay.asked[0].path == (f"{PATH}-stream" if is_streamed else PATH)


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (streamed(made.exception("throttlingException", "slow down")), 429),
        (streamed(made.exception("validationException", "too long")), 400),
        (
            Reply(
                b'{"message": "no"}',
                status=400,
                headers={"x-amzn-errortype": "ThrottlingException:http://x/"},
            ),
            429,
        ),
        (
            Reply(
                b'{"message": "no"}',
                status=403,
                headers={"x-amzn-errortype": "AccessDeniedException"},
            ),
            502,
        ),
        (Reply(b"{}", status=404, headers={"x-amzn-errortype": "ResourceNotFoundException"}), 404),
        (streamed(made.said("x")[:60]), 502),
    ],
)
def test_an_error_before_the_first_word_is_one_of_http(
    place: Place, reply: Reply, status: int
) -> None:
    product, replay = place
    replay.answer(reply)
    with pytest.raises(openai.APIStatusError) as raised:
        chat(product).chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
        )
    assert raised.value.status_code == status, raised.value.message


@pytest.mark.parametrize(("probability", "is_let"), [(0.1, True), (0.9, False)])
def test_a_judge_may_be_asked_there(place: Place, probability: float, is_let: bool) -> None:
    product, replay = place

    def judged(asked: bytes) -> bytes:
        nonce = re.findall(rb"<envelope ([0-9a-f]+)>", asked)[0].decode()
        given = {"nonce": nonce, "probability": probability, "explanation": "so it is"}
        content = [{"toolUse": {"toolUseId": "j", "name": "judgement", "input": given}}]
        return as_json(JUDGED | {"output": {"message": {"role": "assistant", "content": content}}})

    replay.answer(streamed(made.thought_call("tooluse_5")), Reply(make=judged))
    body: Json = {
        "model": MODEL,
        "stream": True,
        "messages": [{"role": "user", "content": "go"}],
    }
    body["tools"] = [
        {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
    ]
    headers = {"authorization": f"Bearer {KEY}", "x-sluice-policy": "judged"}
    got = httpx.post(f"{product.url}/v1/chat/completions", json=body, headers=headers, timeout=20)
    _, asked = replay.asked
    assert asked.path == "/model/amazon.nova-2-lite-v1:0/converse"
    assert asked.body["toolConfig"]["toolChoice"] == {"tool": {"name": "judgement"}}
    assert (b"tooluse_5" in got.content) is is_let
    assert (b"judged harmful (0.90" in got.content) is not is_let, got.text


@pytest.mark.slow
def test_the_pages_of_a_call_show_its_messages(place: Place) -> None:
    product, replay = place
    replay.answer(streamed(made.said("Hello there.")))
    session = "converse-page"
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    headers = {"authorization": f"Bearer {KEY}", "x-sluice-session": session}
    assert (
        httpx.post(
            f"{product.url}/v1/chat/completions", json=body, headers=headers, timeout=20
        ).status_code
        == 200
    )
    call = call_of(product, session)
    at = f"/debug/calls/{call['call_id']}"
    page = ask_pages(product.database_url, configuration(replay), lambda pages: pages.page(at))
    wire = ask_pages(
        product.database_url, configuration(replay), lambda pages: pages.page(f"{at}/wire")
    )
    assert "Hello there." in page.html
    assert ":event-type: contentBlockDelta" in html.unescape(wire.html)
