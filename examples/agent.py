"""A small agent: it offers a model one tool, `bash`, and goes on until the model calls no more
tools.

It prints each command instead of running it, so trying it is safe whatever the policy allows. The
SDK reads the address and the key from OPENAI_BASE_URL and OPENAI_API_KEY. `docs/use/tutorial.md`
runs it."""

import json
import sys

from openai import OpenAI

BASH = {
    "name": "bash",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
}
MOST_TURNS = 8


def main() -> None:
    """Give the model the words of the command line."""
    client = OpenAI()
    messages = [{"role": "user", "content": " ".join(sys.argv[1:])}]
    for _ in range(MOST_TURNS):
        answer = client.chat.completions.create(
            model="demo", messages=messages, tools=[{"type": "function", "function": BASH}]
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if message.content:
            print("model:", message.content)
        if not message.tool_calls:
            return
        for call in message.tool_calls:
            print("would run:", json.loads(call.function.arguments)["command"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "done"})


if __name__ == "__main__":
    main()
