"""What an upstream can multiply in one answer: blocks, tool calls, calls in text, names, ids, signatures (docs/bounds.md)."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from policy.base import Policy, TextBlock
from policy.slots import Slot, Slots
from protocol.bounds import MAX_BLOCKS, MAX_TEXT_CALLS, MAX_TOOL_CALLS, TEXT_STEP_CHARS
from protocol.events import BlockKind
from protocol.json_strict import dumps
from protocol.records import BlockRecord, EventRecord, ToolCallRecord
from protocol.request import Dialect
from tests.support.answering import Answer, Watch

WRITTEN = '{"name":"bash","arguments":{"a":1}}'
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]


def completion(content: str | None = None, calls: int = 0, **message: Any) -> bytes:
    """A whole answer of chat/completions."""
    tools = [{"id": f"call_{n}", "type": "function", "function": {"name": "bash", "arguments": '{"n":%d}' % n}} for n in range(calls)]
    said = {"role": "assistant", "content": content, **({"tool_calls": tools} if calls else {}), **message}
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls" if calls else "stop"}
    return dumps({"id": "x", "model": "gpt-x", "choices": [choice]})


def message(blocks: list[dict[str, Any]], reason: str = "end_turn") -> bytes:
    """A whole answer of Messages."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    return dumps(
        {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": blocks, "stop_reason": reason, "usage": usage}
    )


def whole(body: bytes, upstream: Dialect = "openai", client: Dialect = "openai", *policies: Policy, **request: Any) -> Answer:
    """The answer to a client that does not stream."""
    return Answer(upstream, client, streams=False, policies=policies or [Watch()], **request).feed(body, streams=False)


def calls(answer: Answer) -> list[ToolCallRecord]:
    return [r for r in answer.records if isinstance(r, ToolCallRecord)]


def counted(work: Callable[[], object]) -> int:
    """How many functions of Python are called."""
    count = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


# --- calls in text ---


def test_calls_in_text_past_the_bound_cost_nothing_more() -> None:
    few, many = (counted(lambda n=n: whole(completion(WRITTEN * n))) for n in (1_000, 100_000))
    assert many < few * 1.1


def test_slots_are_put_into_a_long_queue_without_a_search() -> None:
    slots = Slots(lambda event: None)
    queue = [Slot(index, BlockKind.TEXT) for index in range(200_000)]
    for slot in queue:
        slots.add(slot)
    began = time.process_time()
    for _ in range(5_000):
        slots.insert_after(queue[-1], Slot(0, BlockKind.TOOL_USE, key=slots.new_key()))
    # a search through the queue took 10 s
    assert time.process_time() - began < 1
    assert len(slots.unfinished()) == 205_000 and slots.cut_after(queue[-2])[0] is queue[-1]


@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_a_text_with_too_many_calls_is_cut_with_a_message(client: Dialect) -> None:
    answer = whole(completion("before " + WRITTEN * (MAX_TEXT_CALLS + 50) + " behind"), "openai", client)
    text = answer.data.decode()
    assert text.count("bash") == MAX_TEXT_CALLS and "behind" not in text
    assert f"a text may have {MAX_TEXT_CALLS} tool calls" in text
    assert [c.verdict for c in calls(answer)] == ["allow"] * MAX_TEXT_CALLS + ["block"]
    assert calls(answer)[-1].reason == "too_many"
    assert [(r.verdict, r.reason) for r in answer.records if isinstance(r, BlockRecord)] == [("block", "too_many")]


def test_what_follows_too_many_calls_in_the_same_text_is_not_looked_at() -> None:
    class Reads(Policy):
        seen = 0

        def on_text(self, text: str, block: TextBlock) -> str:
            Reads.seen += len(text)
            return text

    whole(completion(WRITTEN * (MAX_TEXT_CALLS + 1) + "x" * 10**6), "openai", "openai", Watch(), Reads())
    assert Reads.seen <= 2 * TEXT_STEP_CHARS


def test_long_text_reaches_hooks_in_steps() -> None:
    class Longest(Policy):
        longest = 0

        def on_text(self, text: str, block: TextBlock) -> str:
            Longest.longest = max(Longest.longest, len(text))
            return text

    said = "abcdefghij" * 20_000
    answer = whole(completion(said), "openai", "openai", Longest())
    assert json.loads(answer.data)["choices"][0]["message"]["content"] == said
    assert Longest.longest == TEXT_STEP_CHARS


# --- tool calls ---


@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
@pytest.mark.parametrize("client", ["openai", "anthropic"])
@pytest.mark.parametrize("times", [1, 10, 50])
def test_tool_calls_past_the_bound_are_left_out_with_one_message(upstream: Dialect, client: Dialect, times: int) -> None:
    count = MAX_TOOL_CALLS * times + 7
    blocks = [{"type": "tool_use", "id": f"toolu_{n}", "name": "bash", "input": {"n": n}} for n in range(count)]
    body = completion("hi", count) if upstream == "openai" else message(blocks, "tool_use")
    answer = whole(body, upstream, client, tools=TOOLS if client == "openai" else [{"name": "bash", "input_schema": {"type": "object"}}])
    listed = calls(answer)
    assert len(listed) == min(count, 2 * MAX_TOOL_CALLS)
    assert [(c.verdict, c.reason) for c in listed[MAX_TOOL_CALLS:]] == [("block", "too_many")] * (len(listed) - MAX_TOOL_CALLS)
    assert all(c.verdict == "allow" for c in listed[:MAX_TOOL_CALLS])
    text = answer.data.decode()
    assert text.count("the others were left out") == 1 and text.count('"bash"') == MAX_TOOL_CALLS
    notes = [r.detail for r in answer.records if isinstance(r, EventRecord) and r.kind == "too_many"]
    assert notes == ([] if times == 1 else [f"-1: {count} tool calls came, of which {2 * MAX_TOOL_CALLS} are listed"])


def test_native_calls_and_calls_in_text_are_counted_together() -> None:
    answer = whole(completion(WRITTEN * MAX_TEXT_CALLS, MAX_TOOL_CALLS), tools=TOOLS)
    assert sum(c.verdict == "allow" for c in calls(answer)) == MAX_TOOL_CALLS
    assert {c.reason for c in calls(answer)[MAX_TOOL_CALLS:]} == {"too_many"}


def test_a_provider_run_call_past_the_bound_ends_the_turn() -> None:
    blocks = [{"type": "server_tool_use", "id": f"srvtoolu_{n}", "name": "web_search", "input": {}} for n in range(MAX_TOOL_CALLS + 5)]
    answer = whole(message([*blocks, {"type": "text", "text": "what builds on them"}]), "anthropic", "anthropic")
    assert [c.verdict for c in calls(answer)] == ["allow"] * MAX_TOOL_CALLS + ["block"]
    assert b"what builds on them" not in answer.data and b"the others were left out" in answer.data


# --- blocks ---


@pytest.mark.parametrize("times", [1, 10])
def test_an_answer_of_too_many_blocks_ends(times: int) -> None:
    blocks = [{"type": "text", "text": "x"}] * (MAX_BLOCKS * times + 1)
    answer = whole(message(blocks), "anthropic", "anthropic")
    assert answer.session.state == "FAILED"
    assert [r.detail for r in answer.records if isinstance(r, EventRecord)] == [f"1: upstream began more than {MAX_BLOCKS} blocks"]


def test_a_stream_of_too_many_blocks_ends() -> None:
    def chunk(**delta: str) -> bytes:
        return b"data: " + dumps({"id": "x", "model": "gpt-x", "choices": [{"index": 0, "delta": delta}]}) + b"\n\n"

    stream = (chunk(content="a") + chunk(reasoning_content="b")) * (MAX_BLOCKS // 2)
    answer = Answer("openai", "openai", policies=[Watch()]).feed(stream + chunk(content="one more"))
    assert answer.session.state == "FAILED" and b"one more" not in answer.data
    assert f"upstream began more than {MAX_BLOCKS} blocks" in answer.data.decode()
