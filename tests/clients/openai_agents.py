"""The Agents SDK on the task of the tests, in an environment of its own: what it prints last is the
model's last word."""

import asyncio
import json
import subprocess
import sys

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from openai import AsyncOpenAI


@function_tool  # type: ignore[untyped-decorator]
def shell(command: str) -> str:
    """Run a command in a shell and return what it prints."""
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False
    ).stdout


async def main() -> None:
    """Run the task, streamed."""
    told = json.loads(sys.argv[1])
    client = AsyncOpenAI(base_url=told["url"], api_key=told["key"])
    kind = OpenAIResponsesModel if told["dialect"] == "responses" else OpenAIChatCompletionsModel
    agent = Agent(
        name="tester",
        instructions="You run commands.",
        tools=[shell],
        model=kind(model=told["model"], openai_client=client),
    )
    result = Runner.run_streamed(agent, told["task"])
    async for _ in result.stream_events():
        pass
    print(result.final_output)


asyncio.run(main())
