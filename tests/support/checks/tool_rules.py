"""One call under the rules of a policy."""

import json
from typing import Any

from policy.base import Block, Context, ToolCall, Verdict
from policy.builtin.tool_rules import ToolRules
from protocol.request import ChatRequest, Tool
from tests.support.json_values import Json

CONTEXT = Context("call", "nonce", "key", "", ChatRequest(dialect="openai", model="demo"))
RM = r"rm\s+-rf"


def decide(
    arguments: str | Json, name: str = "bash", tool: Tool | None = None, **options: Any
) -> Verdict:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    policy = ToolRules(**options).for_call(CONTEXT)
    return policy.on_tool_call(ToolCall(0, 0, "id", name, text, json.loads(text), tool))


def reason(verdict: Verdict) -> str:
    return verdict.reason if isinstance(verdict, Block) else ""
