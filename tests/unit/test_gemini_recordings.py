"""Recorded Gemini answers: the decoder says what their facts say, however they are cut; what
clients get of them is a matter of tests/e2e/test_conformance.py."""

import random

import pytest

from protocol.dialects.table import DIALECTS
from protocol.events import BlockKind, MessageStop, SignatureDelta
from tests.support.checks.decoding import decode, digest, events_of
from tests.support.upstreams.dialect_recordings import dialect_recordings, need_dialect_recordings
from tests.support.upstreams.gemini import calls_in, opaque, said

ALL = {r.name: r for r in dialect_recordings() if r.dialect == "gemini"}
ANSWERS = [name for name, r in ALL.items() if "error" not in r.facts] or ["none"]


@pytest.fixture(autouse=True)
def _need() -> None:
    need_dialect_recordings()


@pytest.mark.parametrize("name", ANSWERS)
def test_the_decoder_says_what_the_facts_say(name: str) -> None:
    facts, events = ALL[name].facts, events_of(ALL[name])
    texts, thoughts = (
        "".join(t for kind, _, t in said(events) if kind == k)
        for k in (BlockKind.TEXT, BlockKind.THINKING)
    )
    assert (len(texts), digest(texts), len(thoughts)) == (
        facts["text_chars"],
        facts["text_sha"],
        facts["thinking_chars"],
    )
    wanted = [(c["name"], c["arguments"]) for c in facts["calls"] if c["executor"] == "client"]
    assert calls_in(events) == wanted
    stop = events[-1]
    assert isinstance(stop, MessageStop) and str(stop.stop_reason) == facts["stop_reason_neutral"]
    counts = facts["usage_neutral"]
    usage = stop.usage
    assert (
        (usage.input_tokens or 0),
        (usage.output_tokens or 0),
        usage.cache_read_tokens or 0,
    ) == (
        counts["input_tokens"],
        counts["output_tokens"],
        counts["cache_read_tokens"],
    )
    assert usage.thinking_tokens == counts["thinking_tokens"]
    assert sum(isinstance(e, SignatureDelta) for e in events) == facts["thought_signatures"]
    assert opaque(events) == []


@pytest.mark.parametrize("name", [n for n in ANSWERS if n == "none" or ALL[n].is_stream])
def test_it_says_the_same_however_it_is_cut(name: str) -> None:
    body = ALL[name].body
    whole = decode("gemini", [body])
    for seed in range(5):
        chance = random.Random(f"{name} {seed}")
        places = sorted(chance.randrange(len(body) + 1) for _ in range(chance.randrange(1, 60)))
        pieces = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
        assert decode("gemini", pieces) == whole, f"seed {seed}"


@pytest.mark.parametrize("name", [n for n, r in ALL.items() if "error" in r.facts] or ["none"])
def test_errors_are_read(name: str) -> None:
    facts = ALL[name].facts
    status = facts["error"]["code"]
    failed = DIALECTS["gemini"].decode_error(status, ALL[name].body, None)
    assert failed.message == facts["error"]["message"]
    assert failed.kind == ("rate_limit_error" if status == 429 else "authentication_error")
    assert failed.retry_after == ("35" if facts["retry_delay"] else None)
