"""What a deferred turn takes, and what the record says of what was left out: bounded, and true."""

import pytest

from policy.session.answer.ids import CallIds, alike
from policy.session.answer_log import AnswerLog
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    TextDelta,
)
from protocol.records import BlockRecord, EventRecord, ToolCallRecord
from protocol.request import DialectName
from tests.support.checks.deferred import (
    DEPLOY,
    DIALECTS,
    OTHER,
    Critical,
    answer,
    begun,
    ended,
    of,
)
from tests.support.upstreams.cases import began, calls_of, client_call, frames, text, text_of, whole
from tests.support.upstreams.frames import delta, end, start, stop


@pytest.mark.parametrize(
    "example", ["0", "c", "call_1", "call_", "_", "é", "-", "call_01", "9" * 3]
)
def test_ids_like_a_very_short_one_are_still_told_apart(example: str) -> None:
    ids = CallIds("01990000-0000-7000-8000-00000000abcd")
    ids.of(0, example)
    made = [ids.alike(example, f"n:{n}") for n in range(300)]
    assert len({*made, example}) == 301 and all(len(one) <= len(example) + 5 for one in made)
    again = CallIds("01990000-0000-7000-8000-00000000abcd")
    again.of(0, example)
    assert [again.alike(example, f"n:{n}") for n in range(300)] == made


@pytest.mark.parametrize(
    ("example", "begin"),
    [
        ("toolu_01AbCdEfGhIjKlMn", "toolu_01"),
        ("chatcmpl-tool-0123456789abcdef0123456789abcdef", "chatcmpl-tool-"),
        ("function-call-1234567890123", "function-call-"),
        ("call_AbC1deF2", "call_"),
    ],
)
def test_an_id_alike_keeps_the_words_and_the_version_that_its_example_begins_with(
    example: str, begin: str
) -> None:
    made = alike(example, "seed")
    assert made != example and made.startswith(begin) and len(made) == len(example)
    if "tool-" in example:
        assert set(made[len(begin) :]) <= set("0123456789abcdef")


@pytest.mark.parametrize("client", DIALECTS)
def test_calls_of_the_other_model_keep_short_ids_apart_from_those_before(
    client: DialectName,
) -> None:
    history = {
        "openai": [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": f"call_{n}",
                        "type": "function",
                        "function": {"name": "look", "arguments": "{}"},
                    }
                    for n in range(9)
                ],
            },
            *({"role": "tool", "tool_call_id": f"call_{n}", "content": "ok"} for n in range(9)),
        ],
        "anthropic": [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": f"call_{n}", "name": "look", "input": {}}
                    for n in range(9)
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": f"call_{n}", "content": "ok"}
                    for n in range(9)
                ],
            },
        ],
    }
    other: DialectName = "anthropic" if client == "openai" else "openai"
    a = begun(client, client, Critical(OTHER[other]), messages=history[client])
    a.feed(answer(client, "", ("call_9", "deploy", {})))
    a.feed(answer(other, "", *[(f"toolu_{n}", "look", {"n": n}) for n in range(12)]))
    ids = [identity for identity, _, _ in calls_of(ended(a))]
    assert len({*ids, *(f"call_{n}" for n in range(9))}) == 21
    assert all(i.startswith("call_") and i[5:].isdigit() and len(i) <= 8 for i in ids), ids
    assert [r.tool_call_id for r in of(a.records, ToolCallRecord)][1:] == ids


def test_ids_of_more_calls_than_are_listed_are_not_noted_one_by_one() -> None:
    a = begun("openai", "openai", Critical("claude-trusted")).feed(answer("openai", "", DEPLOY))
    calls = [event for n in range(600) for event in client_call(n, f"toolu_{n}", "look", {})]
    a.feed(frames(began(), *calls, *end("tool_use")))
    assert len(calls_of(ended(a))) == 128
    assert sum(r.kind == "minted_id" for r in of(a.records, EventRecord)) == 256


THOUGHT = [
    start(0, type="thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="Hm."),
    delta(0, "signature_delta", signature="c2ln"),
    stop(0),
]


@pytest.mark.parametrize("client", DIALECTS)
def test_what_is_left_out_of_the_second_answer_is_not_on_record_as_allowed(
    client: DialectName,
) -> None:
    a = begun(client, client, Critical("claude-trusted")).feed(answer(client, "I deploy.", DEPLOY))
    sealed = whole(1, {"type": "redacted_thinking", "data": "c2ln"})
    blocks = [
        *THOUGHT,
        *sealed,
        *text(2, "Well."),
        *client_call(3, "toolu_1", "look", {}),
        *text(4, "So."),
    ]
    a.feed(frames(began(), *blocks, *end("tool_use")))
    assert text_of(ended(a)) == "I deploy.So."
    found = {(r.kind, r.verdict, r.reason) for r in of(a.records, BlockRecord) if r.block > 1}
    assert found == {
        ("thinking", "withheld", "left_out"),
        ("other", "withheld", "left_out"),
        ("text", "withheld", "left_out"),
        ("text", "allow", ""),
    }
    assert (
        sum(
            r.kind == "text" and r.verdict == "allow" and r.block > 1
            for r in of(a.records, BlockRecord)
        )
        == 1
    )


def test_the_name_of_the_model_that_answered_does_not_go_out() -> None:
    body = {
        "type": "fallback",
        "from": {"model": "claude-trusted"},
        "to": {"model": "claude-trusted-b"},
    }
    a = begun("anthropic", "anthropic", Critical("claude-trusted")).feed(
        answer("anthropic", "", DEPLOY)
    )
    a.feed(
        frames(began(), *whole(0, body), *client_call(1, "toolu_1", "look", {}), *end("tool_use"))
    )
    assert b"trusted" not in a.data and [name for _, name, _ in calls_of(ended(a))] == ["look"]


def test_what_went_out_takes_the_size_of_its_text() -> None:
    said = AnswerLog()
    said.add(BlockStart(0, BlockKind.TEXT))
    for n in range(10_000):
        said.add(TextDelta(0, "ab"))
        said.add(AttachmentDelta(0, "logprobs", {"content": [{"token": "ab", "n": n}]}))
    assert len(said._events) == 1 and len(said._pieces) < 256 and len(said._joined) < 40
    assert said.unended == [0] and said.has_text
    said.add(BlockStop(0))
    said.add(BlockStart(1, BlockKind.TOOL_USE, "c", "look"))
    said.add(ArgumentsDelta(1, "{}"))
    assert list(said) == [
        BlockStart(0, BlockKind.TEXT),
        TextDelta(0, "ab" * 10_000),
        BlockStop(0),
        BlockStart(1, BlockKind.TOOL_USE, "c", "look"),
        ArgumentsDelta(1, "{}"),
    ]
    assert said.unended == [1]
