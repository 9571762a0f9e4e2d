"""How much a worker is told that one step may decide on: all calls of chat/completions are complete
with the same chunk."""

import pytest

from policy.base import Policy
from policy.builtin.tool_rules import ToolRules
from policy.session.session import Session
from protocol.bytes.json_strict import dumps
from settings.config import Config
from tests.support.worker_calls import call_info

BODY = dumps(
    {"model": "demo-openai", "stream": True, "messages": [{"role": "user", "content": "go"}]}
)
SQL = ToolRules(
    deny=[{"tool": "*", "sql": {"kinds": ["delete"], "argument": "query", "dialect": "postgres"}}]
)


def chunk(**choice: object) -> bytes:
    body = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, **choice}],
    }
    return b"data: " + dumps(body) + b"\n\n"


@pytest.mark.parametrize(("policy", "weight"), [(ToolRules(deny=[{"tool": "x"}]), 1), (SQL, 8)])
def test_arguments_of_all_open_calls_count_until_they_are_decided(
    policy: Policy, weight: int
) -> None:
    info = call_info("019b7600-0000-7000-8000-000000000001")
    session = Session(info, [policy], Config(demo=True))
    session.begin(BODY)
    held, size = [], 0
    for index in range(5):
        function = {"name": "f", "arguments": '{"a":"' + "x" * 1_000 + '"}'}
        call = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
        session.chunks(index, [chunk(delta={"tool_calls": [call]}, finish_reason=None)])
        held.append(session.held_bytes)
        size = len(function["arguments"])
    assert held == [n * (size + 4_096) * weight for n in range(1, 6)]
    session.chunks(5, [chunk(delta={}, finish_reason="tool_calls")])
    assert session.held_bytes == 0
