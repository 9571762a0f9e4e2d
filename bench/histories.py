"""Requests as agents send them: a history of many short turns with tool calls and their results, of
a size."""

import json
import random
from typing import Any

TOOLS = ("bash", "read_file", "edit_file", "grep", "list_files", "web_search")


def history(model: str, size_bytes: int, *, seed: int = 1) -> bytes:
    """A chat/completions request of about `size_bytes`: the same numbers give the same bytes."""
    source = random.Random(seed)
    words = [f"w{source.randrange(4000):x}" for _ in range(3000)]

    def prose(count: int) -> str:
        return " ".join(source.choices(words, k=count))

    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a coding agent. " + prose(500)},
        {"role": "user", "content": prose(80)},
    ]
    size = 0
    while size < size_bytes:
        step = _step(source, prose)
        messages += step
        size += len(json.dumps(step))
    tools = [
        {
            "type": "function",
            "function": {"name": name, "description": prose(40), "parameters": _SCHEMA},
        }
        for name in TOOLS
    ]
    return json.dumps(
        {"model": model, "stream": True, "messages": messages, "tools": tools}
    ).encode()


_SCHEMA = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "what to run"},
        "timeout": {"type": "integer"},
    },
    "required": ["command"],
}


def _step(source: random.Random, prose: Any) -> list[dict[str, Any]]:
    """What the agent says, one or two calls, their results, at times a word of the user: 2 to 8
    KB."""
    calls, results = [], []
    for _ in range(source.choice((1, 1, 2))):
        identity = f"call_{source.getrandbits(96):024x}"
        arguments = json.dumps(
            {
                "command": f'grep -rn "{prose(1)}" src/ | head -{source.randrange(90)}',
                "timeout": source.randrange(900),
            }
        )
        calls.append(
            {
                "id": identity,
                "type": "function",
                "function": {"name": source.choice(TOOLS), "arguments": arguments},
            }
        )
        lines = (
            f'src/{prose(1)}.py:{source.randrange(900)}:\t{prose(1)} = "{prose(6)}"  \u2014'
            f" {prose(3)}"
            for _ in range(source.randrange(10, 90))
        )
        results.append({"role": "tool", "tool_call_id": identity, "content": "\n".join(lines)})
    told = [{"role": "user", "content": prose(20)}] if source.random() < 0.1 else []
    return [{"role": "assistant", "content": prose(40), "tool_calls": calls}, *results, *told]
