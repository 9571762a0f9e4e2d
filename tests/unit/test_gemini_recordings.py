"""Recorded Gemini answers: the decoder says what their facts say, however they are cut; what clients
get of them is a matter of tests/e2e/test_conformance.py."""

import json
import os
import random
from pathlib import Path

import pytest

from protocol import codecs
from protocol.dialects.table import DIALECTS
from protocol.events import BlockKind, Event, MessageStop, SignatureDelta
from tests.support.checks.decoding import decode, digest
from tests.support.json_values import Json
from tests.support.upstreams.gemini import calls_in, opaque, said

SHARED = Path(__file__).parents[3] / "shared" / "dialect-streams"
ENTRIES: Json = {}
if (SHARED / "expected.json").exists():
    ENTRIES = {
        e["name"]: e
        for e in json.loads((SHARED / "expected.json").read_text())["entries"]
        if e["api"] == "gemini"
    }
ANSWERS = [name for name, entry in ENTRIES.items() if "error" not in entry["facts"]] or ["none"]


def entry_of(name: str) -> Json:
    if not ENTRIES:
        if os.environ.get("CI"):
            pytest.fail("../shared/dialect-streams is missing")
        pytest.skip("../shared/dialect-streams is missing")
    found: Json = ENTRIES[name]
    return found


def body_of(entry: Json) -> bytes:
    raw = (SHARED / str(entry["file"])).read_bytes()
    if entry["kind"] == "chunks":
        return b"".join(b"data: " + line + b"\n\n" for line in raw.split(b"\n") if line.strip())
    return raw


def events_of(entry: Json) -> list[Event]:
    body = body_of(entry)
    return (
        codecs.decode_whole("gemini", body) if entry["kind"] == "json" else decode("gemini", [body])
    )


@pytest.mark.parametrize("name", ANSWERS)
def test_the_decoder_says_what_the_facts_say(name: str) -> None:
    entry = entry_of(name)
    facts, events = entry["facts"], events_of(entry)
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


@pytest.mark.parametrize(
    "name", [n for n in ANSWERS if n == "none" or ENTRIES[n]["kind"] != "json"]
)
def test_it_says_the_same_however_it_is_cut(name: str) -> None:
    body = body_of(entry_of(name))
    whole = decode("gemini", [body])
    for seed in range(5):
        chance = random.Random(f"{name} {seed}")
        places = sorted(chance.randrange(len(body) + 1) for _ in range(chance.randrange(1, 60)))
        pieces = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
        assert decode("gemini", pieces) == whole, f"seed {seed}"


@pytest.mark.parametrize(
    "name", [n for n, e in ENTRIES.items() if "error" in e["facts"]] or ["none"]
)
def test_errors_are_read(name: str) -> None:
    entry = entry_of(name)
    status = entry["facts"]["error"]["code"]
    failed = DIALECTS["gemini"].decode_error(status, body_of(entry), None)
    assert failed.message == entry["facts"]["error"]["message"]
    assert failed.kind == ("rate_limit_error" if status == 429 else "authentication_error")
    assert failed.retry_after == ("35" if entry["facts"]["retry_delay"] else None)
