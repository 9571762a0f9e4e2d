"""What an upstream can multiply in one answer: blocks, tool calls, calls in text, names, ids,
signatures (docs/change/bounds.md)."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from policy.base import ALLOW, Block, Context, OtherBlock, Policy, TextBlock, ToolCall, Verdict
from policy.builtin.text_replace import TextReplace
from policy.builtin.tool_judge import ToolJudge
from policy.builtin.tool_rules import ToolRules
from policy.session.answer.slots import Slot, Slots
from protocol.bounds import (
    MAX_BLOCKS,
    MAX_ID_CHARS,
    MAX_NAME_CHARS,
    MAX_NOTES,
    MAX_OPAQUE_NOTES,
    MAX_SIGNATURE_CHARS,
    MAX_TEXT_CALLS,
    MAX_TOOL_CALLS,
    TEXT_STEP_CHARS,
)
from protocol.bytes.json_strict import dumps
from protocol.dialects.table import CLIENTS
from protocol.events import BlockKind
from protocol.records import BlockRecord, EventRecord
from protocol.request import DialectName
from protocol.text_calls.scanner import CallScanner
from protocol.text_calls.words import Piece
from tests.support.checks.kinds import of_kind
from tests.support.clients.answering import Answer, Watch
from tests.support.clients.sdk_calls import tool
from tests.support.cpu import cpu_within, slowness
from tests.support.json_values import Json
from tests.support.upstreams.many_calls import calls, completion, message
from tests.support.upstreams.recordings import framed

WRITTEN = '{"name":"bash","arguments":{"a":1}}'
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]


def whole(
    body: bytes,
    upstream: DialectName = "openai",
    client: DialectName = "openai",
    *policies: Policy,
    **request: Any,
) -> Answer:
    """The answer to a client that does not stream."""
    return Answer(upstream, client, streams=False, policies=policies or [Watch()], **request).feed(
        body, streams=False
    )


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
    few, many = (
        counted(lambda: whole(completion(WRITTEN * 1_000))),
        counted(lambda: whole(completion(WRITTEN * 100_000))),
    )
    assert many < few * 1.1


def test_slots_are_put_into_a_long_queue_without_a_search() -> None:
    slots = Slots(lambda event: None)
    queue = [Slot(index, index, BlockKind.TEXT) for index in range(50_000)]
    for slot in queue:
        slots.add(slot)
    with cpu_within(1.5):
        for _ in range(5_000):
            slots.insert_after(queue[-1], Slot(slots.new_key(), 0, BlockKind.TOOL_USE))
        # 0.05 s; a search through the queue takes 5 s
    assert len(slots.unfinished()) == 55_000 and slots.cut_after(queue[-2])[0] is queue[-1]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_text_with_too_many_calls_is_cut_with_a_message(client: DialectName) -> None:
    answer = whole(
        completion("before " + WRITTEN * (MAX_TEXT_CALLS + 50) + " behind"), "openai", client
    )
    text = answer.data.decode()
    assert text.count("bash") - text.count("'bash'") == MAX_TEXT_CALLS and "behind" not in text
    assert f"a text may have {MAX_TEXT_CALLS} tool calls" in text
    assert [c.verdict for c in calls(answer)] == ["allow"] * MAX_TEXT_CALLS + ["block"]
    assert calls(answer)[-1].reason == "too_many"
    assert [(r.verdict, r.reason) for r in answer.records if isinstance(r, BlockRecord)] == [
        ("block", "too_many")
    ]


class Holds(Policy):
    """Holds all text of a block until its end."""

    def __init__(self) -> None:
        self.held = ""

    def for_call(self, context: Context) -> "Holds":
        mine = super().for_call(context)
        mine.held = ""
        return mine

    def on_text(self, text: str, block: TextBlock) -> str:
        self.held += text
        return ""

    def on_text_end(self, block: TextBlock) -> str:
        held, self.held = self.held, ""
        return held


@pytest.mark.parametrize("text", [WRITTEN * 150, "```json\n[" + ",".join([WRITTEN] * 150) + "]"])
@pytest.mark.parametrize("policies", [[Watch()], [Holds(), Watch()]])
@pytest.mark.parametrize("behind", [[], [{"type": "text", "text": "behind"}]])
def test_too_many_calls_at_the_end_of_a_text_end_it(
    text: str, policies: list[Policy], behind: list[Json]
) -> None:
    answer = whole(
        message([{"type": "text", "text": text}, *behind]), "anthropic", "anthropic", *policies
    )
    assert answer.session.state == "ENDED"
    assert [b["type"] for b in json.loads(answer.data)["content"]] == ["text"] * (1 + len(behind))
    assert len(calls(answer)) == MAX_TEXT_CALLS + 1 and (b"behind" in answer.data) is bool(behind)


def test_what_is_searched_again_at_each_border_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """29 kB of blocks with nothing in them, behind 56 kB of what may begin a call: 4 MiB searched
    again took 0.7 s in one step."""
    feed, fed = CallScanner.feed, list[int]()

    def counting(self: CallScanner, text: str) -> list[Piece]:
        fed.append(len(text))
        return feed(self, text)

    monkeypatch.setattr(CallScanner, "feed", counting)
    text = "<tool_call>" + '"name":}' * 7_000
    answer = whole(
        message([{"type": "text", "text": text}, *[{"type": "text", "text": ""}] * 300]),
        "anthropic",
        "anthropic",
    )
    assert [r.status for r in answer.refused] == [500] and b"too many blocks" in answer.refused[
        0
    ].body
    assert sum(fed) <= 2**20 + 2 * len(text)


def test_text_that_a_policy_gives_at_once_is_searched_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is searched as one is copied for each candidate in it: 0.4 MB took 3 s."""
    sizes: list[int] = []
    feed = CallScanner.feed

    def noted(scanner: CallScanner, text: str) -> list[Piece]:
        sizes.append(len(text))
        return feed(scanner, text)

    monkeypatch.setattr(CallScanner, "feed", noted)
    said = '"name":} ' * 10_000
    answer = whole(completion(said), "openai", "openai", Holds(), Watch())
    assert max(sizes) == TEXT_STEP_CHARS
    assert json.loads(answer.data)["choices"][0]["message"]["content"] == said


def test_what_follows_too_many_calls_in_the_same_text_is_not_looked_at() -> None:
    class Reads(Policy):
        seen = 0

        def on_text(self, text: str, block: TextBlock) -> str:
            Reads.seen += len(text)
            return text

    whole(
        completion(WRITTEN * (MAX_TEXT_CALLS + 1) + "x" * 10**6),
        "openai",
        "openai",
        Watch(),
        Reads(),
    )
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
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("times", [1, 10, 50])
def test_tool_calls_past_the_bound_are_left_out_with_one_message(
    upstream: DialectName, client: DialectName, times: int
) -> None:
    count = MAX_TOOL_CALLS * times + 7
    blocks = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": "bash", "input": {"n": n}}
        for n in range(count)
    ]
    body = completion("hi", count) if upstream == "openai" else message(blocks, "tool_use")
    answer = whole(body, upstream, client, tools=[tool(client, "bash")])
    listed = calls(answer)
    assert len(listed) == min(count, 2 * MAX_TOOL_CALLS)
    assert [(c.verdict, c.reason) for c in listed[MAX_TOOL_CALLS:]] == [("block", "too_many")] * (
        len(listed) - MAX_TOOL_CALLS
    )
    assert all(c.verdict == "allow" for c in listed[:MAX_TOOL_CALLS])
    text = answer.data.decode()
    # a Responses client is told once more which tools it offered
    shown = text.count('"bash"') - (client == "responses")
    assert text.count("the others were left out") == 1 and shown == MAX_TOOL_CALLS
    notes = [
        r.detail for r in answer.records if isinstance(r, EventRecord) and r.kind == "too_many"
    ]
    assert notes == (
        []
        if times == 1
        else [f"-1: {count} tool calls came, of which {2 * MAX_TOOL_CALLS} are listed"]
    )


def test_a_provider_run_call_past_the_bound_ends_the_turn() -> None:
    blocks = [
        {"type": "server_tool_use", "id": f"srvtoolu_{n}", "name": "web_search", "input": {}}
        for n in range(MAX_TOOL_CALLS + 5)
    ]
    answer = whole(
        message([*blocks, {"type": "text", "text": "what builds on them"}]),
        "anthropic",
        "anthropic",
    )
    assert [c.verdict for c in calls(answer)] == ["allow"] * MAX_TOOL_CALLS + ["block"]
    assert b"what builds on them" not in answer.data and b"the others were left out" in answer.data


# --- blocks ---


@pytest.mark.parametrize("times", [1, 10])
def test_an_answer_of_too_many_blocks_ends(times: int) -> None:
    blocks = [{"type": "text", "text": "x"}] * (MAX_BLOCKS * times + 1)
    answer = whole(message(blocks), "anthropic", "anthropic")
    assert answer.session.state == "FAILED"
    assert [r.detail for r in answer.records if isinstance(r, EventRecord)] == [
        f"1: upstream began more than {MAX_BLOCKS} blocks"
    ]


def test_a_stream_of_too_many_blocks_ends() -> None:
    def chunk(**delta: str) -> bytes:
        return (
            b"data: "
            + dumps({"id": "x", "model": "gpt-x", "choices": [{"index": 0, "delta": delta}]})
            + b"\n\n"
        )

    stream = (chunk(content="a") + chunk(reasoning_content="b")) * (MAX_BLOCKS // 2)
    answer = Answer("openai", "openai", policies=[Watch()]).feed(stream + chunk(content="one more"))
    assert answer.session.state == "FAILED" and b"one more" not in answer.data
    assert f"upstream began more than {MAX_BLOCKS} blocks" in answer.data.decode()


# --- ids, names, signatures ---

PROSE = "Project Falcon is go. " * 20_000
REPLACE = {
    "rules": [
        {"find": "Project Falcon", "replace": "X"},
        {"pattern": "sk-[a-z]{20}", "replace": "Y"},
    ]
}
ODD_IDS = [PROSE, "a b", "", "x" * (MAX_ID_CHARS + 1), "call_\n1", "call_\ud83d", "sk-" + "a" * 20]


def called(identity: str, name: str = "bash") -> bytes:
    call = {"id": identity, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return completion(None, tool_calls=[call])


@pytest.mark.parametrize("identity", ODD_IDS)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_id_that_is_none_is_another_one_for_the_client_and_on_record_as_it_came(
    identity: str, client: DialectName
) -> None:
    answers = [
        whole(called(identity), "openai", client, TextReplace(**REPLACE), Watch()) for _ in range(2)
    ]
    assert answers[0].data == answers[1].data
    body = json.loads(answers[0].data)
    [shown] = {
        "openai": lambda: [c["id"] for c in body["choices"][0]["message"]["tool_calls"]],
        "anthropic": lambda: [c["id"] for c in body["content"]],
        "responses": lambda: [i["call_id"] for i in body["output"]],
    }[client]()
    assert shown.startswith("call_") and shown.isascii() and len(shown) < 40 and shown != identity
    [record] = calls(answers[0])
    assert record.tool_call_id == identity or not identity


@pytest.mark.parametrize(("times", "offered"), [(1, False), (10, False), (1_000, False), (1, True)])
def test_a_name_past_the_bound_is_withheld(times: int, offered: bool) -> None:
    name = "n" * (MAX_NAME_CHARS * times + 1)
    tools = [
        {
            "type": "function",
            "function": {
                "name": name[:64] if not offered else name,
                "parameters": {"type": "object"},
            },
        }
    ]
    answer = whole(called("call_1", name), tools=tools)
    [record] = calls(answer)
    assert (record.name, record.verdict, record.reason) == (name, "block", "name")
    assert name not in answer.data.decode() and "(name withheld)" in answer.data.decode()


@pytest.mark.parametrize(
    "name", ["Project Falcon is go", "bash\x07", "bash\u2028", "bash\ud83d", "ba\u200bsh"]
)
def test_a_name_that_says_something_else_is_withheld(name: str) -> None:
    answer = whole(called("call_1", name), tools=TOOLS)
    assert [(r.name, r.reason) for r in calls(answer)] == [(name, "name")]
    assert name.encode("utf-8", "surrogatepass") not in answer.data and b"Falcon" not in answer.data


@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use"])
def test_a_name_of_a_provider_run_call_that_says_something_else_ends_the_turn(kind: str) -> None:
    use = {
        "type": kind,
        "id": "srvtoolu_1",
        "name": "Project Falcon is go",
        "input": {},
        "server_name": "x",
    }
    answer = whole(
        message([use, {"type": "text", "text": "what builds on it"}]), "anthropic", "anthropic"
    )
    assert [(r.verdict, r.reason) for r in calls(answer)] == [("block", "name")]
    assert b"Falcon" not in answer.data and b"builds" not in answer.data


@pytest.mark.parametrize("secret", ["sk-" + "a" * 20])
def test_words_beside_a_call_are_shown_to_policies(secret: str) -> None:
    caller = {"type": "code_execution_20250825", "tool_id": secret}
    use = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}, "caller": caller}
    answer = whole(
        message([use], "tool_use"), "anthropic", "anthropic", TextReplace(**REPLACE), Watch()
    )
    assert (
        secret.encode() not in answer.data
        and json.loads(answer.data)["content"][0]["id"] == "toolu_1"
    )


@pytest.mark.parametrize(
    "signature", [PROSE, "Project Falcon", "EqoB\n", "A" * (MAX_SIGNATURE_CHARS + 1)]
)
@pytest.mark.parametrize("streams", [False, True])
def test_a_signature_that_is_none_is_withheld(signature: str, streams: bool) -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": signature}
    answer = Answer("anthropic", "anthropic", streams=streams, policies=[Watch()]).feed(
        message([block]), streams=False
    )
    assert json.dumps(signature)[1:-1] not in answer.data.decode()
    assert [r.detail for r in answer.records if isinstance(r, EventRecord)] == ["1: signature"]


def test_notes_about_an_answer_have_an_end() -> None:
    # a short one that is none: what a long one becomes is tested above
    delta = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "Project Falcon"},
    }
    start = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": ""},
    }
    frames = [
        {"type": "message_start", "message": json.loads(message([]))},
        start,
        *[delta] * (2 * MAX_NOTES),
    ]
    answer = Answer("anthropic", "anthropic").feed(
        b"".join(framed("anthropic", [json.dumps(f)]) for f in frames)
    )
    noted = of_kind(answer.records, EventRecord)
    assert len(noted) == MAX_NOTES + 1
    assert [r.kind for r in noted[-2:]] == ["withheld", "too_many"]


def test_notes_about_unknown_content_have_an_end() -> None:
    blocks = [{"type": f"unknown_{n}", "content": "words"} for n in range(2 * MAX_OPAQUE_NOTES)]
    answer = whole(message(blocks), "anthropic", "anthropic")
    noted = [r.kind for r in answer.records if isinstance(r, EventRecord)]
    assert noted == ["withheld"] * MAX_OPAQUE_NOTES and b"words" not in answer.data


def test_policies_are_shown_ids() -> None:
    class NoSecretIds(Policy):
        def on_other(self, block: OtherBlock) -> Verdict:
            return (
                Block("secret")
                if block.type == "tool call id" and block.body["id"].startswith("hunter")
                else ALLOW
            )

    assert b"hunter2" not in whole(called("hunter2"), "openai", "openai", NoSecretIds()).data


class Allows(Policy):
    """Somebody's own: what it is given is a copy."""

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return ALLOW


@pytest.mark.parametrize(
    "values",
    [{"enum": [[n] for n in range(80_000)]}, {"examples": [[] for _ in range(160_000)]}],
    ids=["enum", "other"],
)
@pytest.mark.parametrize("series", ["none", "own", "judge", "rules"])
def test_a_large_definition_of_a_tool_is_worked_on_once_however_often_it_is_called(
    values: Json, series: str
) -> None:
    """A hundred calls are decided in one step: 34 s of CPU where each policy got a copy of the tool
    for each call."""
    own = {
        "none": None,
        "own": Allows(),
        "judge": ToolJudge(model="demo-judge"),
        "rules": ToolRules(validate_schema=True),
    }[series]
    tools = [
        {
            "type": "function",
            "function": {
                "name": "bash",
                "parameters": {"type": "object", "properties": {"a": values}},
            },
        }
    ]
    taken = []
    for count in (1, 100):
        answer = Answer(
            "openai", "openai", streams=False, policies=[own] if own else [], tools=tools
        )
        began = time.process_time()
        answer.feed(completion(calls=count), streams=False)
        taken.append(time.process_time() - began)
    assert taken[1] < 5 * taken[0] + 0.25 * slowness()
