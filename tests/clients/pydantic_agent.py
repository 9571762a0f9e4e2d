"""pydantic-ai on the task of the tests, in an environment of its own: what it prints last is the
model's last word."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterable
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


def shell(command: str) -> str:
    """Run a command in a shell and return what it prints."""
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False
    ).stdout


async def events(_: RunContext[object], stream: AsyncIterable[Any]) -> None:
    """Take the events; that there is a handler makes requests streamed."""
    async for _event in stream:
        pass


def main() -> None:
    """Run the task."""
    given = json.loads(sys.argv[1])
    url, key, name = given["url"], given["key"], given["model"]
    model: Model
    if given["dialect"] == "anthropic":
        model = AnthropicModel(
            name, provider=AnthropicProvider(base_url=url.removesuffix("/v1"), api_key=key)
        )
    else:
        kind = OpenAIResponsesModel if given["dialect"] == "responses" else OpenAIChatModel
        model = kind(name, provider=OpenAIProvider(base_url=url, api_key=key))
    agent = Agent(model, instructions="You run commands.", tools=[shell])
    print(asyncio.run(agent.run(given["task"], event_stream_handler=events)).output)


main()
