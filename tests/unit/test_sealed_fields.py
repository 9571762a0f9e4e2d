"""What only the provider can read: it goes to clients that ask for it unless the upstream's setting
withholds it, and is counted."""

from typing import Any

import pytest

from policy.session.answer.metadata import without_sealed
from policy.session.effects import SessionEffects
from policy.session.session import Session
from protocol.events import SignatureDelta
from protocol.records import EventRecord
from settings.config import Config
from streams.metrics import Count
from tests.support.json_values import Json, as_json
from tests.support.upstreams.responses import response
from tests.support.worker_calls import call_info
from workers.call_totals import DecisionCounts

SEAL = "Q" * 5_000
INCLUDE = ["reasoning.encrypted_content"]


REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "s"}],
    "encrypted_content": SEAL,
}
THOUGHT = {"type": "thinking", "thinking": "t", "signature": SEAL}


def answered(
    sealed: str | None,
    *,
    include: list[str],
    dialect: str = "responses",
    first: Json | None = None,
) -> tuple[str, SessionEffects]:
    """What a client gets of an answer with encrypted reasoning, as text, and its effects."""
    upstream: Json = {"dialect": dialect, "base_url": "http://127.0.0.1:1"} | (
        {"sealed": sealed} if sealed else {}
    )
    config = Config.model_validate(
        {"upstreams": {"up": upstream}, "models": [{"match": "*", "upstream": "up"}]}
    )
    session = Session(call_info("c", dialect, endpoint=dialect), [], config)
    if dialect == "responses":
        session.begin(as_json({"model": "gpt-5", "input": "x", "include": include}))
        message = {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "hi", "annotations": []}],
        }
        session.body(1, as_json(response([first or REASONING, message])))
    else:
        asked = {
            "model": "claude-x",
            "max_tokens": 5000,
            "messages": [{"role": "user", "content": "x"}],
        }
        session.begin(as_json(asked | {"thinking": {"type": "enabled", "budget_tokens": 1024}}))
        content = [first or THOUGHT, {"type": "text", "text": "hi"}]
        whole = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": content,
            "stop_reason": "end_turn",
        }
        session.body(
            1,
            as_json(
                whole | {"stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
            ),
        )
    effects = session.drain()
    return "".join(o.signature for o in effects.outputs if isinstance(o, SignatureDelta)), effects


def notes(effects: SessionEffects, kind: str) -> list[str]:
    return [r.detail for r in effects.records if isinstance(r, EventRecord) and r.kind == kind]


@pytest.mark.parametrize("dialect", ["responses", "anthropic"])
@pytest.mark.parametrize("sealed", [None, "allow"])
def test_a_sealed_field_that_a_client_gets_is_counted(dialect: str, sealed: str | None) -> None:
    signature, effects = answered(sealed, include=INCLUDE, dialect=dialect)
    assert signature == SEAL and not notes(effects, "withheld")
    assert notes(effects, "sealed") == [
        "-1: 1 fields of 5,000 characters that only the provider can read"
    ]
    decided = DecisionCounts()
    decided.add(effects.records)
    assert decided.counts()[Count.SEALED_ANSWERS] == 1


@pytest.mark.parametrize("dialect", ["responses", "anthropic"])
def test_an_upstream_s_sealed_fields_may_be_withheld(dialect: str) -> None:
    signature, effects = answered("withhold", include=INCLUDE, dialect=dialect)
    assert not signature and len(notes(effects, "withheld")) == 1 and not notes(effects, "sealed")


SEARCHED = {
    "type": "web_search_result",
    "url": "https://x.example",
    "title": "x",
    "encrypted_content": SEAL,
    "page_age": None,
}
CITED = {
    "type": "web_search_result_location",
    "url": "https://x.example",
    "title": "x",
    "encrypted_index": SEAL,
    "cited_text": "hi",
}
CARRIED: list[tuple[str, Json, bool]] = [
    ("responses", {"type": "compaction", "id": "cmp_1", "encrypted_content": SEAL}, False),
    ("anthropic", {"type": "redacted_thinking", "data": SEAL}, False),
    (
        "anthropic",
        {"type": "compaction", "content": "the summary", "encrypted_content": SEAL},
        True,
    ),
    ("anthropic", {"type": "text", "text": "cited", "citations": [CITED]}, True),
]


@pytest.mark.parametrize(
    ("dialect", "block", "stays"),
    CARRIED,
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_so_may_those_of_what_is_carried_whole(dialect: str, block: Json, stays: bool) -> None:
    _, effects = answered("allow", include=[], dialect=dialect, first=block)
    assert SEAL in repr(effects.outputs) and notes(effects, "sealed") == [
        "-1: 1 fields of 5,000 characters that only the provider can read"
    ]
    _, effects = answered("withhold", include=[], dialect=dialect, first=block)
    assert (
        SEAL not in repr(effects.outputs)
        and len(notes(effects, "withheld")) == 1
        and not notes(effects, "sealed")
    )
    assert (
        any(
            str(word) in repr(effects.outputs)
            for word in (block.get("content"), block.get("text"))
            if word
        )
        == stays
    )


def test_what_is_sealed_is_emptied_in_a_copy() -> None:
    """Also deep in what a provider's tool found, and deeper than Python's stack."""
    deep: Any = {"content": [SEARCHED]}
    for _ in range(5_000):
        deep = [deep]
    found, lengths = without_sealed("web_search_tool_result", {"found": deep, "data": "a file"})
    assert lengths == [5_000] and found["data"] == "a file"
    assert without_sealed("reasoning_details", [{"data": SEAL, "text": "t"}]) == (
        [{"data": "", "text": "t"}],
        [5_000],
    )
    assert SEARCHED["encrypted_content"] == SEAL


def test_what_the_client_did_not_ask_for_is_not_counted() -> None:
    assert not notes(answered(None, include=[])[1], "sealed")


def test_an_unknown_word_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match="sealed"):
        answered("maybe", include=[])
