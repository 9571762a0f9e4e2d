"""Answers of both first dialects with as many tool calls as one likes."""

from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.records import ToolCallRecord
from tests.support.checks.kinds import of_kind
from tests.support.clients.answering import Answer
from tests.support.json_values import Json


def completion(content: str | None = None, calls: int = 0, **message: Any) -> bytes:
    """A whole answer of chat/completions."""
    tools = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "bash", "arguments": f'{{"n":{n}}}'},
        }
        for n in range(calls)
    ]
    said = {
        "role": "assistant",
        "content": content,
        **({"tool_calls": tools} if calls else {}),
        **message,
    }
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls" if calls else "stop"}
    return dumps({"id": "x", "model": "gpt-x", "choices": [choice]})


def message(blocks: list[Json], reason: str = "end_turn") -> bytes:
    """A whole answer of Messages."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    return dumps(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": blocks,
            "stop_reason": reason,
            "usage": usage,
        }
    )


def calls(answer: Answer) -> list[ToolCallRecord]:
    return of_kind(answer.records, ToolCallRecord)
