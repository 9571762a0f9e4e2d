"""Gemini behind the whole product, asked by both official clients: a tool loop whose signatures
come back, a blocked call."""

from collections.abc import Iterator
from typing import Any

import pytest

from protocol.request import DialectName
from tests.support.clients.sdk_calls import MODES, Mode, ask, openai_client, results, tool
from tests.support.json_values import Json
from tests.support.servers.stores import Stores
from tests.support.upstreams.gemini import MODEL, answer, body_of, call, check_request
from tests.support.upstreams.product import Place, config, replayed
from tests.support.upstreams.replay import Replay, Reply, stream

CLIENTS: list[DialectName] = ["openai", "anthropic"]
KEY = "sk-provider-of-gemini-4713"


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    def made(replay: Replay) -> Json:
        base = config(replay)
        base["upstreams"]["google"] = {
            "dialect": "gemini",
            "base_url": replay.url,
            "api_key_env": "TEST_GEMINI_PROVIDER_KEY",
        }
        base["models"].append({"match": "gemini-*", "upstream": "google"})
        return base

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_GEMINI_PROVIDER_KEY", KEY)
        with replayed(*stores, made) as running:
            yield running


def reply(mode: Mode, *parts: Json, seed: int = 0) -> Reply:
    if mode == "whole":
        return Reply(body_of(answer(*parts))[6:].strip())
    return stream(
        body_of(*(answer(part, finish=None) for part in parts), answer()),
        cutting="random",
        seed=seed,
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_tool_loop_gives_each_signature_back_and_a_blocked_call_never_comes(
    place: Place, client: DialectName, mode: Mode
) -> None:
    product, replay = place
    thought = {"text": "hm", "thought": True}
    replay.answer(
        reply(
            mode,
            thought,
            {"text": "I look. "},
            call("get_weather", "QUFBQQ==", city="Paris"),
            call("get_weather", city="x; rm -rf /"),
        ),
        reply(mode, call("get_weather", "QkJCQg==", city="Rome"), seed=1),
        reply(mode, {"text": "Rain."}, {"text": "", "thoughtSignature": "Q0NDQw=="}, seed=2),
    )
    tools, headers = [tool(client, "get_weather", city="string")], {"x-sluice-policy": "default"}
    messages: list[Json] = [{"role": "user", "content": "Weather?"}]
    more: Json = {"max_tokens": 2000, "model": MODEL, "tools": tools, "headers": headers}
    first = ask(product.url, client, mode, messages, **more)
    assert (
        first.plain_calls == [("get_weather", {"city": "Paris"})]
        and first.thinking == "hm"
        and "I look. " in first.text
    )
    messages += results(client, first, ["rain"])
    second = ask(product.url, client, mode, messages, **more)
    assert second.plain_calls == [("get_weather", {"city": "Rome"})]
    assert first.calls[0].id != second.calls[0].id
    messages += results(client, second, ["sun"])
    assert ask(product.url, client, mode, messages, **more).text == "Rain."
    for asked in replay.asked:
        check_request(asked.body)
        verb = "generateContent" if mode == "whole" else "streamGenerateContent"
        assert asked.path == f"/models/{MODEL}:{verb}" and asked.headers["x-goog-api-key"] == KEY
    signed = [
        [
            p.get("thoughtSignature")
            for c in a.body["contents"]
            for p in c["parts"]
            if "functionCall" in p
        ]
        for a in replay.asked
    ]
    assert signed == [[], ["QUFBQQ=="], ["QUFBQQ==", "QkJCQg=="]]
    assert b"rm -rf" not in replay.asked[2].raw


def test_a_call_that_nobody_recorded_is_sent_without_a_forged_signature(
    place: Place,
) -> None:
    product, replay = place
    replay.answer(reply("whole", {"text": "Done."}))
    made = {"id": "call_foreign", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages: Any = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "call_foreign", "content": "y"},
    ]
    with openai_client(product.url) as sdk:
        said = sdk.chat.completions.with_raw_response.create(
            model=MODEL, messages=messages, extra_headers={"x-sluice-policy": "noop"}
        )
    assert said.headers["x-sluice-dropped"] == "thought_signature"
    assert (
        replay.asked[0].body["contents"][1]["parts"][0]["thoughtSignature"]
        == "skip_thought_signature_validator"
    )
