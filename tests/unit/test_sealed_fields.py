"""What only the provider can read: it goes to clients that ask for it unless the upstream's setting withholds it, and is counted."""

import json
from typing import Any

import pytest

from policy.session.effects import CallInfo, Effects
from policy.session.session import Session
from protocol.config import Config
from protocol.events import SignatureDelta
from protocol.records import EventRecord
from streams.metrics import Count
from tests.support.upstreams.responses import response
from workers.sums import Decided

SEAL = "Q" * 5_000
INCLUDE = ["reasoning.encrypted_content"]


def answered(sealed: str | None, *, include: list[str], dialect: str = "responses") -> tuple[str, Effects]:
    """What a client gets of an answer with encrypted reasoning, as text, and its effects."""
    upstream: dict[str, Any] = {"dialect": dialect, "base_url": "http://127.0.0.1:1"} | ({"sealed": sealed} if sealed else {})
    config = Config.model_validate({"upstreams": {"up": upstream}, "models": [{"match": "*", "upstream": "up"}]})
    session = Session(CallInfo("c", 1, dialect, dialect, "k", "", "n", "g", "p", "r", False, 2**20), [], config)
    if dialect == "responses":
        session.begin(json.dumps({"model": "gpt-5", "input": "x", "include": include}).encode())
        item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": SEAL}
        message = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "hi", "annotations": []}]}
        session.body(1, json.dumps(response([item, message])).encode())
    else:
        asked = {"model": "claude-x", "max_tokens": 5000, "messages": [{"role": "user", "content": "x"}]}
        session.begin(json.dumps(asked | {"thinking": {"type": "enabled", "budget_tokens": 1024}}).encode())
        content = [{"type": "thinking", "thinking": "t", "signature": SEAL}, {"type": "text", "text": "hi"}]
        whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": "end_turn"}
        session.body(1, json.dumps(whole | {"stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}).encode())
    effects = session.drain()
    return "".join(o.signature for o in effects.outputs if isinstance(o, SignatureDelta)), effects


def notes(effects: Effects, kind: str) -> list[str]:
    return [r.detail for r in effects.records if isinstance(r, EventRecord) and r.kind == kind]


@pytest.mark.parametrize("dialect", ["responses", "anthropic"])
@pytest.mark.parametrize("sealed", [None, "allow"])
def test_a_sealed_field_that_a_client_gets_is_counted(dialect: str, sealed: str | None) -> None:
    signature, effects = answered(sealed, include=INCLUDE, dialect=dialect)
    assert signature == SEAL and not notes(effects, "withheld")
    assert notes(effects, "sealed") == ["-1: 1 fields of 5,000 characters that only the provider can read"]
    decided = Decided()
    decided.add(effects.records)
    assert decided.counts()[Count.SEALED_ANSWERS] == 1


@pytest.mark.parametrize("dialect", ["responses", "anthropic"])
def test_an_upstream_s_sealed_fields_may_be_withheld(dialect: str) -> None:
    signature, effects = answered("withhold", include=INCLUDE, dialect=dialect)
    assert not signature and len(notes(effects, "withheld")) == 1 and not notes(effects, "sealed")


def test_what_the_client_did_not_ask_for_is_not_counted() -> None:
    assert not notes(answered(None, include=[])[1], "sealed")


def test_an_unknown_word_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match="sealed"):
        answered("maybe", include=[])
