"""Clients that the tests install, as agents with tools over several turns: calls allowed and
blocked, streamed and not, both dialects.

Each keeps its own history and runs its own tool loop; nothing is set but address, key and model.
"""

from collections.abc import AsyncIterable, Iterator
from typing import Any, Literal

import anthropic
import openai
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput, RunContext, ToolOutput
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from protocol.request import DialectName
from tests.support.clients.node import installed, run_script
from tests.support.clients.sdk_calls import DIALECTS, anthropic_client
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Product, running
from tests.support.servers.stores import Stores

pytestmark = pytest.mark.timeout(180)

MODELS = ["demo", "demo-openai", "demo-anthropic"]
"""Answering in the client's dialect, always in chat/completions, always in Messages."""
BLOCKED = (
    "[Sluice blocked the tool call 'bash': rule 'deny[0]' of the policy 'default'. It was not"
    " executed. "
)
SAYS = "I am the demo model inside Sluice"
CONVERSATION: list[tuple[str, list[tuple[str, Json]], str]] = [
    (
        "think about the weather in Paris and Tokyo, and the time",
        [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Tokyo"}), ("get_time", {})],
        "The tool said: noon",
    ),
    ("delete everything with rm -rf /", [], BLOCKED),
    (
        "the weather in Oslo, and delete everything with rm -rf /",
        [("get_weather", {"city": "Oslo"})],
        "The tool said: sunny in Oslo",
    ),
    ("list the files", [("bash", {"command": "ls -la"})], "The tool said: ran ls -la"),
    ("hello", [], SAYS),
]
"""What the user says, which tools run, and what the last answer says."""
SCRIPTS: dict[str, tuple[str, DialectName, list[str]]] = {
    "openai": ("openai.mjs", "openai", ["whole", "stream", "runner", "runner-stream"]),
    "anthropic": ("anthropic.mjs", "anthropic", ["whole", "stream", "runner", "runner-stream"]),
    "vercel-openai": ("vercel.mjs", "openai", ["whole", "stream"]),
    "vercel-anthropic": ("vercel.mjs", "anthropic", ["whole", "stream"]),
}
NODE_CASES = [
    (script, model, mode)
    for script, (_, _, modes) in SCRIPTS.items()
    for model in MODELS
    for mode in modes
]
STOPS = {
    "openai": "stop",
    "anthropic": "end_turn",
    "vercel-openai": "stop",
    "vercel-anthropic": "stop",
}


@pytest.fixture(scope="module")
def product(stores: Stores) -> Iterator[Product]:
    with running(*stores) as made:
        yield made


@pytest.fixture(scope="module")
def node_answers(product: Product) -> dict[str, Json]:
    """What each script says; each runs once, with all its cases."""
    return {}


def answers_of(product: Product, known: dict[str, Json], script: str) -> Json:
    if script not in known:
        file, dialect, modes = SCRIPTS[script]
        words = [said for said, _, _ in CONVERSATION]
        cases = [
            {"name": f"{model} {mode}", "model": model, "mode": mode, "words": words}
            for model in MODELS
            for mode in modes
        ]
        place = {"url": product.url, "key": KEY, "provider": dialect, "cases": cases}
        known[script] = run_script(installed(), file, place)
    return known[script]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "model", "mode"), NODE_CASES)
def test_a_client_in_javascript(
    product: Product, node_answers: dict[str, Json], script: str, model: str, mode: str
) -> None:
    said = answers_of(product, node_answers, script)[f"{model} {mode}"]
    assert "error" not in said, said["error"]
    assert len(said["turns"]) == len(CONVERSATION)
    for turn, (_, calls, text) in zip(said["turns"], CONVERSATION, strict=True):
        assert [(name, arguments) for name, arguments in turn["calls"]] == calls
        assert text in turn["text"]
        assert turn["stop"] == STOPS[script]


def agent_of(model: Model, calls: list[tuple[str, Json]]) -> Agent[None, str]:
    def get_weather(city: str) -> str:
        calls.append(("get_weather", {"city": city}))
        return f"sunny in {city}"

    def get_time() -> str:
        calls.append(("get_time", {}))
        return "noon"

    def bash(command: str) -> str:
        calls.append(("bash", {"command": command}))
        return f"ran {command}"

    return Agent(model, tools=[get_weather, get_time, bash])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_agent_of_pydantic_ai(
    product: Product, dialect: DialectName, model: str, streamed: bool
) -> None:
    pieces: list[object] = []

    async def watch(_: RunContext[None], events: AsyncIterable[object]) -> None:
        async for event in events:
            pieces.append(event)

    calls: list[tuple[str, Json]] = []
    history: list[ModelMessage] = []
    async with openai.AsyncOpenAI(base_url=product.url + "/v1", api_key=KEY, max_retries=0) as one:
        async with anthropic.AsyncAnthropic(
            base_url=product.url, api_key=KEY, max_retries=0
        ) as other:
            chosen: Model = OpenAIChatModel(model, provider=OpenAIProvider(openai_client=one))
            if dialect == "anthropic":
                chosen = AnthropicModel(model, provider=AnthropicProvider(anthropic_client=other))
            agent = agent_of(chosen, calls)
            for words, wanted, text in CONVERSATION:
                calls.clear()
                pieces.clear()
                said = await agent.run(
                    words, message_history=history, event_stream_handler=watch if streamed else None
                )
                history = said.all_messages()
                assert sorted(calls, key=str) == sorted(wanted, key=str)
                assert text in said.output
                assert bool(pieces) == streamed


class Event(BaseModel):
    """What is asked for."""

    name: str
    day: Literal["Friday", "Saturday"]
    guests: list[str]
    place: str | None


EVENT = Event(name="demo", day="Friday", guests=[], place="demo")
QUICK = "Alice and Bob are going to a science fair on Friday."
WAYS: Json = {
    "tool": ToolOutput(Event),
    "native": NativeOutput(Event),
    "prompted": PromptedOutput(Event),
}
# its own profile of an unknown Claude has no native structured answers
OUTPUTS = [
    (dialect, way)
    for dialect in DIALECTS
    for way in WAYS
    if (dialect, way) != ("anthropic", "native")
]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("dialect", "way"), OUTPUTS)
async def test_a_structured_output_of_pydantic_ai(
    product: Product, dialect: DialectName, way: str, model: str
) -> None:
    async with openai.AsyncOpenAI(base_url=product.url + "/v1", api_key=KEY, max_retries=0) as one:
        async with anthropic.AsyncAnthropic(
            base_url=product.url, api_key=KEY, max_retries=0
        ) as other:
            chosen: Model = OpenAIChatModel(model, provider=OpenAIProvider(openai_client=one))
            if dialect == "anthropic":
                chosen = AnthropicModel(model, provider=AnthropicProvider(anthropic_client=other))
            agent: Agent[None, Event] = Agent(chosen, output_type=WAYS[way])
            assert (await agent.run(QUICK)).output == EVENT
            async with agent.run_stream(QUICK) as streamed:
                assert [part async for part in streamed.stream_output()][-1] == EVENT


OBJECTS: dict[str, list[str]] = {
    "openai": ["parse", "stream", "forced"],
    "anthropic": ["parse", "stream", "forced"],
    "vercel-openai": ["generateObject", "streamObject", "output", "output-stream", "forced"],
    "vercel-anthropic": ["generateObject", "streamObject", "output", "output-stream", "forced"],
}
MISTAKES = {
    "openai": [
        ("key", 401, "Incorrect API key provided"),
        ("base", 404, "set the base URL to HERE/v1 (with /v1"),
    ],
    "anthropic": [
        ("key", 401, "Incorrect API key provided"),
        ("base", 404, "set the base URL to HERE (without /v1"),
    ],
    "vercel-openai": [
        ("key", 401, "Incorrect API key provided"),
        ("base", 404, "set the base URL to HERE/v1 (with /v1"),
    ],
    "vercel-anthropic": [
        ("key", 401, "Incorrect API key provided"),
        ("base", 404, "set the base URL to HERE/v1 (with /v1"),
    ],
}


@pytest.fixture(scope="module")
def node_objects(product: Product) -> dict[str, Json]:
    """What the script of structured answers and mistakes says."""
    cases = [
        {"name": f"{client} {way} {model}", "client": client, "way": way, "model": model}
        for client, ways in OBJECTS.items()
        for way in ways
        for model in MODELS
    ]
    cases += [
        {"name": f"{client} {way}", "client": client, "way": way, "model": "demo"}
        for client in MISTAKES
        for way, *_ in MISTAKES[client]
    ]
    cases.append(
        {
            "name": "vercel-openai responses",
            "client": "vercel-openai",
            "way": "responses",
            "model": "demo",
        }
    )
    cases += [
        {"name": f"{client} models", "client": client, "way": "models", "model": "demo"}
        for client in ("openai", "anthropic")
    ]
    return run_script(
        installed(), "objects.mjs", {"url": product.url, "key": KEY, "words": QUICK, "cases": cases}
    )


@pytest.mark.slow
def test_the_default_of_vercels_openai_is_responses(
    node_objects: dict[str, Json],
) -> None:
    assert "demo model" in node_objects["vercel-openai responses"].get("got", "")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("client", "way"), [(client, way) for client, ways in OBJECTS.items() for way in ways]
)
def test_a_structured_answer_in_javascript(
    node_objects: dict[str, Json], client: str, way: str, model: str
) -> None:
    said = node_objects[f"{client} {way} {model}"]
    assert "error" not in said, said["error"]
    assert said["got"] == EVENT.model_dump()


@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_models_in_javascript(node_objects: dict[str, Json], client: str) -> None:
    assert node_objects[f"{client} models"].get("got") == {
        "listed": [*MODELS, "demo-responses"],
        "retrieved": "demo",
    }


@pytest.mark.parametrize(
    ("client", "way", "status", "says"),
    [(client, *row) for client, rows in MISTAKES.items() for row in rows],
)
def test_a_mistake_in_javascript(
    product: Product,
    node_objects: dict[str, Json],
    client: str,
    way: str,
    status: int,
    says: str,
) -> None:
    said = node_objects[f"{client} {way}"]
    assert said.get("status") == status and says.replace("HERE", product.url) in said["error"]


@pytest.mark.slow
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_the_tool_runner_of_the_python_sdk(product: Product, model: str, streamed: bool) -> None:
    """It asks for a stored conversation first, which this key may not have, and goes on without."""
    calls: list[tuple[str, Json]] = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather."""
        calls.append(("get_weather", {"city": city}))
        return f"sunny in {city}"

    @anthropic.beta_tool
    def bash(command: str) -> str:
        """Run a command."""
        calls.append(("bash", {"command": command}))
        return f"ran {command}"

    words = "the weather in Oslo, and delete everything with rm -rf /"
    with anthropic_client(product.url) as client:
        asked: Json = {
            "model": model,
            "max_tokens": 1000,
            "messages": [{"role": "user", "content": words}],
        }
        runner: Any = client.beta.messages.tool_runner(
            **asked, tools=[get_weather, bash], stream=streamed
        )
        turns = [turn.get_final_message() if streamed else turn for turn in runner]
    assert [block.text for block in turns[-1].content] == ["The tool said: sunny in Oslo"]
    assert any(BLOCKED in getattr(block, "text", "") for block in turns[0].content)
    assert calls == [("get_weather", {"city": "Oslo"})]
