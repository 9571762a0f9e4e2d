"""A conversation as a coding agent has it: all of it is sent with each call."""

import json
from typing import Any

import httpx2 as httpx

from tests.support.checks.record import rows
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Product
from tests.support.waiting import wait_for

SESSION = "b3a2e6b0-3f0c-4c7e-9a55-0e6d1f5a7c11"
AGENT = {
    "x-api-key": KEY,
    "anthropic-version": "2023-06-01",
    "user-agent": "claude-cli/2.1.234 (external, cli)",
}
NAMED = {**AGENT, "x-claude-code-session-id": SESSION}
PAGE = f"/debug/sessions/dev/{SESSION}"
TYPED = (
    "mend the tests: say one",
    "list the files",
    "delete everything with rm -rf",
    "look around: say look",
    "say more",
    "weather in Tokyo",
    "say four",
    "what was before, in short",
    "say six",
    "this session goes on from one that ran out: say seven",
    "say eight",
)
"""What a person typed in `twelve_calls`, but for the call that names the session."""
TOOL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"name": "bash", "description": "Runs a command.", "input_schema": TOOL},
    {"name": "get_weather", "description": "The weather.", "input_schema": CITY},
]


class Agent:
    """A conversation as an agent has it: sends all of it each time, and moves its mark for the
    cache."""

    def __init__(self, product: Product, first: str, **headers: str) -> None:
        self._product, self._headers, self.turns = product, {**NAMED, **headers}, [_typed(first)]
        self.ids: list[str] = []

    def call(self, **more: Any) -> list[Json]:
        """Make a call, and take its answer into the conversation."""
        marked = json.loads(json.dumps(self.turns))
        if isinstance(marked[-1]["content"], list):
            marked[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        body = {
            "model": "demo",
            "max_tokens": 500,
            "tools": TOOLS,
            "system": f"now it is {len(self.ids)}",
            "messages": marked,
            **more,
        }
        answer = httpx.post(
            f"{self._product.url}/v1/messages", json=body, headers=self._headers, timeout=20
        )
        assert answer.status_code == 200, answer.text
        self.ids.append(answer.headers["x-sluice-call-id"])
        content: list[Json] = answer.json()["content"]
        self.turns.append({"role": "assistant", "content": content})
        return content

    def goes_on(self, text: str) -> None:
        """Results for what was asked, and something typed."""
        asked = [part["id"] for part in self.turns[-1]["content"] if part["type"] == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": one, "content": f"result {len(self.turns)}"}
            for one in asked
        ]
        self.turns.append({"role": "user", "content": [*results, {"type": "text", "text": text}]})


def _typed(text: str) -> Json:
    reminder = {
        "type": "text",
        "text": "<system-reminder>\nthe rules of the project\n</system-reminder>",
    }
    return {"role": "user", "content": [reminder, {"type": "text", "text": text}]}


def twelve_calls(product: Product) -> dict[str, list[str]]:
    """A session of 12 calls: a title, the conversation, a subagent beside it, a compaction, and a
    turn that was not the model's."""
    title = Agent(product, "name this: mend the tests")
    title.call(max_tokens=1)
    main = Agent(product, "mend the tests: say one")
    for text in ("list the files", "delete everything with rm -rf"):
        main.call()
        main.goes_on(text)
    sub = Agent(product, "look around: say look", **{"x-claude-code-agent-id": "a1"})
    sub.call()
    sub.goes_on("say more")
    main.call()
    main.goes_on("weather in Tokyo")
    sub.call()
    main.call()
    main.goes_on("say four")
    main.call()
    kept = list(main.turns)
    # the history is made smaller, but for its beginning
    main.turns = [*kept[:2], {"role": "user", "content": "what was before, in short"}]
    main.call()
    main.goes_on("say six")
    main.call()
    # and then from the beginning
    main.turns = [_typed("this session goes on from one that ran out: say seven")]
    main.call()
    main.turns[-1] = {
        "role": "assistant",
        "content": [{"type": "text", "text": "I was told that I may"}],
    }
    main.goes_on("say eight")
    main.call()
    ids = {"title": title.ids, "main": main.ids, "sub": sub.ids}
    every = [one for of in ids.values() for one in of]
    assert len(every) == 12
    count = (
        "SELECT count(*) FROM histories JOIN ends USING (call_id) WHERE call_id = ANY(%s::uuid[])"
    )
    wait_for(lambda: rows(product.database_url, count, every) == [(12,)], timeout_s=20)
    return ids
