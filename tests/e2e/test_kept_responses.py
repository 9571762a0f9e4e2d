"""Responses that go on with earlier ones: rebuilt from the record, for all upstreams, with the official SDK as the client."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.servers.product import KEY, Product, base_config, running
from tests.support.upstreams.replay import Replay, Reply, replaying, stream
from tests.support.upstreams.responses import events, frames, function_call, message, reasoning, response

Place = tuple[Product, Replay]
SEALED = "gAAAA-sealed_1"
TOOLS: Any = [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]
OTHER_KEY = "sk-other-client"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str) -> Iterator[Place]:
    """The product with an upstream of each dialect."""
    folder: Path = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch, replaying() as replay:
        patch.setenv("UP_KEY", "sk-provider")
        config = base_config()
        own = {"base_url": f"{replay.url}/v1", "api_key_env": "UP_KEY"}
        config["upstreams"] = {name: {"dialect": name, **own} for name in ("responses", "openai")}
        config["upstreams"]["anthropic"] = {"dialect": "anthropic", "base_url": replay.url, "api_key_env": "UP_KEY"}
        config["models"] = [{"match": f"{name}-*", "upstream": up} for name, up in (("gpt", "responses"), ("chat", "openai"), ("claude", "anthropic"))]
        with running(folder, redis_url, database_url, config) as product:
            yield product, replay


@pytest.fixture
def client(place: Place) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{place[0].url}/v1", api_key=KEY, max_retries=0) as made:
        yield made


def answered(items: list[dict[str, Any]], *, whole: bool) -> Reply:
    return Reply(json.dumps(response(items)).encode()) if whole else stream(frames(events(items)), cutting="random", seed=3)


def ask(client: openai.OpenAI, *, whole: bool, **said: Any) -> Any:
    if whole:
        return client.responses.create(**said)
    with client.responses.stream(**said) as running_:
        return running_.get_final_response()


@pytest.mark.parametrize("whole", [True, False])
def test_three_turns_with_a_block_in_the_middle(place: Place, client: openai.OpenAI, whole: bool) -> None:
    _, replay = place
    seed = uuid.uuid4().hex[:8]
    first = [
        reasoning(SEALED, "Think."),
        function_call(f"call_up_{seed}", "weather", '{"city":"Paris"}'),
        function_call(f"call_no_{seed}", "bash", '{"command":"rm -rf /"}'),
    ]
    replay.answer(answered(first, whole=whole), answered([message("It rains.")], whole=whole), answered([message("Bye.")], whole=whole))
    one = ask(client, whole=whole, model="gpt-5.5", input="weather?", instructions="Be short.", tools=TOOLS)
    call = next(i for i in one.output if i.type == "function_call")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    two = ask(client, whole=whole, model="gpt-5.5", input=[output], tools=TOOLS, previous_response_id=one.id)
    three = ask(client, whole=whole, model="gpt-5.5", input="Thanks", previous_response_id=two.id)
    assert two.previous_response_id == one.id and three.output_text == "Bye."
    sent = [a.body for a in replay.asked]
    assert all("previous_response_id" not in body and body["store"] is False for body in sent)
    kinds = [item["type"] for item in sent[1]["input"]]
    assert kinds == ["message", "reasoning", "message", "function_call", "function_call_output"], kinds
