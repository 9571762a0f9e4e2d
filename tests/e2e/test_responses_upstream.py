"""A Responses provider behind the running product: chat and Messages clients loop over tools, and
reasoning comes back from the record."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY, base_config, running
from tests.support.upstreams.product import Place, call_of, new_session
from tests.support.upstreams.replay import Reply, replaying, stream
from tests.support.upstreams.responses import (
    events,
    frames,
    function_call,
    message,
    reasoning,
    response,
)

SEALED = "gAAAA-sealed_1"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SECOND = [message("It rains.")]


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[Place]:
    """The product with one upstream, which speaks Responses."""
    folder: Path = tmp_path_factory.mktemp("responses")
    with pytest.MonkeyPatch.context() as patch, replaying() as replay:
        patch.setenv("RESPONSES_KEY", "sk-provider")
        config = base_config()
        config["upstreams"] = {
            "up": {
                "dialect": "responses",
                "base_url": f"{replay.url}/v1",
                "api_key_env": "RESPONSES_KEY",
            }
        }
        config["models"] = [{"match": "gpt-*", "upstream": "up"}]
        with running(folder, redis_url, database_url, config) as product:
            yield product, replay


def first_items(seed: int) -> list[Json]:
    """An answer with a call that runs and one that is blocked. Ids are of one conversation alone:
    by them its turns are found."""
    return [
        reasoning(SEALED, "Think."),
        message("Let me look.", phase="commentary"),
        function_call(f"call_up_{seed}", "weather", '{"city":"Paris"}'),
        function_call(f"call_no_{seed}", "bash", '{"command":"rm -rf /"}'),
    ]


def answered(items: list[Json], *, whole: bool, seed: int) -> Reply:
    if whole:
        return Reply(as_json(response(items)))
    return stream(frames(events(items)), cutting="random", seed=seed)


def check_second(asked: list[Any], call_id: str) -> None:
    """What the provider got back: its reasoning, sealed, then what it led to; nothing of the
    blocked call."""
    first, second = (a.body for a in asked)
    assert [a.path for a in asked] == ["/v1/responses"] * 2
    assert (
        first["store"] is False
        and first["include"] == ["reasoning.encrypted_content"]
        and first["tools"][0]["strict"] is False
    )
    kinds = [item["type"] for item in second["input"]]
    assert kinds[:2] == ["message", "reasoning"] and kinds[-2:] == [
        "function_call",
        "function_call_output",
    ]
    sealed = second["input"][1]
    assert (
        sealed["encrypted_content"] == SEALED
        and "id" not in sealed
        and sealed["summary"][0]["text"] == "Think."
    )
    call, output = second["input"][-2:]
    assert (call["name"], json.loads(call["arguments"])) == (
        "weather",
        {"city": "Paris"},
    ) and output["output"] == "rain"
    assert call["call_id"] == output["call_id"] == call_id
    assert "rm -rf" not in json.dumps(second) and "It was not executed" in json.dumps(second)


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_a_chat_client_loops(place: Place, whole: bool) -> None:
    product, replay = place
    seed = 1 + whole
    replay.answer(
        answered(first_items(seed), whole=whole, seed=seed),
        answered(SECOND, whole=whole, seed=seed),
    )
    session = new_session()
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    messages: list[Any] = [{"role": "user", "content": "weather?"}]
    with openai.OpenAI(
        base_url=f"{product.url}/v1",
        api_key=KEY,
        max_retries=0,
        default_headers={"x-sluice-session": session},
    ) as client:

        def ask() -> Any:
            if whole:
                return client.chat.completions.create(
                    model="gpt-5.5", messages=messages, tools=tools
                ).choices[0]
            with client.chat.completions.stream(
                model="gpt-5.5", messages=messages, tools=tools
            ) as said:
                return said.get_final_completion().choices[0]

        first = ask()
        assert first.finish_reason == "tool_calls" and [
            c.function.name for c in first.message.tool_calls
        ] == ["weather"]
        assert (
            first.message.content.startswith("Let me look.")
            and "It was not executed" in first.message.content
        )
        assert first.message.model_dump().get("reasoning_content") == "Think."
        messages.append(first.message.to_dict())
        messages.append(
            {"role": "tool", "tool_call_id": first.message.tool_calls[0].id, "content": "rain"}
        )
        call_of(product, session)
        second = ask()
    assert (second.finish_reason, second.message.content) == ("stop", "It rains.")
    check_second(replay.asked, f"call_up_{seed}")
