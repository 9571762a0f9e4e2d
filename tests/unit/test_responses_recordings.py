"""Every Responses recording is what its facts say, and its stream may be cut anywhere; what clients
get of it is a matter of tests/e2e/test_conformance.py."""

import json
import random
from typing import Any

import pytest

from protocol import codecs
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    Event,
    MessageStop,
    Opaque,
    SignatureDelta,
    TextDelta,
    UpstreamFailed,
)
from tests.support.checks.decoding import decode, digest, events_of
from tests.support.checks.kinds import of_kind
from tests.support.json_values import Json, as_json
from tests.support.upstreams.dialect_recordings import dialect_recordings, need_dialect_recordings

ALL = {r.name: r for r in dialect_recordings() if r.dialect == "responses" and "blocks" in r.facts}
NAMES = sorted(ALL) or ["none"]


@pytest.fixture(autouse=True)
def _need() -> None:
    need_dialect_recordings()


def told(events: list[Event]) -> list[Json]:
    """The blocks as the facts have them."""
    blocks: dict[int, Json] = {}
    for event in events:
        match event:
            case BlockStart():
                blocks[event.index] = {
                    "kind": event.kind,
                    "id": event.id,
                    "name": event.name,
                    "body": event.body or {},
                    "text": "",
                    "annotations": 0,
                }
            case TextDelta() | ArgumentsDelta():
                blocks[event.index]["text"] += event.text
            case SignatureDelta():
                blocks[event.index]["sealed"] = True
            case AttachmentDelta():
                blocks[event.index]["annotations"] += 1
            case _:
                pass
    return list(blocks.values())


def like_facts(blocks: list[Json]) -> list[tuple[Any, ...]]:
    """Neighbouring pieces of one kind joined, results left to their calls."""
    found: list[tuple[Any, ...]] = []
    for block in blocks:
        kind, body = block["kind"], block["body"]
        if kind is BlockKind.OTHER:
            if "tool_use_id" not in body:
                found.append((f"other:{block['name']}",))
        elif kind in (BlockKind.TEXT, BlockKind.THINKING):
            found.append((str(kind), len(block["text"]), digest(block["text"])))
        else:
            # a question about a call is decided like a call of the client's
            pending = body.get("executor") == "mcp_pending"
            found.append(
                (str(BlockKind.SERVER_TOOL_USE if pending else kind), block["id"], block["name"])
            )
    return found


def of_facts(facts: Json) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for block in facts["blocks"]:
        if block["type"].startswith("other:"):
            found.append((block["type"],))
        elif "text_chars" in block:
            found.append((block["type"], block["text_chars"], block["text_sha"]))
        else:
            found.append((block["type"], block["id"], block["name"]))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_what_its_facts_say(name: str) -> None:
    recording = ALL[name]
    facts, events = recording.facts, events_of(recording)
    if facts["status"] == "failed":
        failed = events[-1]
        assert isinstance(failed, UpstreamFailed) and failed.kind in (
            "billing_error",
            "rate_limit_error",
        )
        assert sum(isinstance(e, UpstreamFailed) for e in events) == 1 and not told(events)
        return
    blocks = told(events)
    assert like_facts(blocks) == of_facts(facts)
    for block, fact in zip(
        [b for b in blocks if b["kind"] is not BlockKind.OTHER],
        [b for b in facts["blocks"] if ":" not in b["type"]],
        strict=True,
    ):
        assert block["annotations"] == fact.get("annotations", 0)
        assert block.get("sealed", False) == fact.get("encrypted", False)
        if isinstance(wanted := fact.get("arguments"), dict) and "code_sha" not in wanted:
            assert json.loads(block["text"]) == wanted
        elif isinstance(wanted, dict):
            assert digest(json.loads(block["text"])["code"]) == wanted["code_sha"]
    stop = events[-1]
    assert isinstance(stop, MessageStop) and stop.stop_reason == facts["stop_reason_neutral"]
    usage = {n: v or 0 for n, v in facts["usage_neutral"].items()}
    assert {n: getattr(stop.usage, n) or 0 for n in usage} == usage
    assert not of_kind(events, Opaque)


@pytest.mark.parametrize("name", NAMES)
def test_streams_are_the_same_however_they_arrive_and_whole(name: str) -> None:
    recording = ALL[name]
    if not recording.is_stream:
        return
    events, seed = events_of(recording), random.randrange(1 << 30)
    chance, body = random.Random(seed), recording.body
    for _ in range(3):
        cuts = sorted(chance.randrange(len(body)) for _ in range(20))
        pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        assert decode("responses", pieces) == events, f"seed {seed}"
    # a stream that ends early is never a finished one
    last = body.rstrip().rfind(b"\n\n")
    ends = [
        e
        for e in decode("responses", [body[: last + 2]])
        if isinstance(e, MessageStop | UpstreamFailed)
    ]
    assert len(ends) == 1 and isinstance(ends[0], UpstreamFailed | MessageStop)
    assert isinstance(ends[0], UpstreamFailed) or b"[DONE]" in body[last:]
    final = [
        json.loads(line[5:])
        for line in body.decode().splitlines()
        if line.startswith("data:") and line[5:].strip() != "[DONE]"
    ][-1]
    if final["type"] != "response.completed" or not final["response"].get("output"):
        return
    whole = codecs.decode_whole("responses", as_json(final["response"]))
    assert [
        b["text"] for b in told(whole) if b["kind"] in (BlockKind.TEXT, BlockKind.THINKING)
    ] == [b["text"] for b in told(events) if b["kind"] in (BlockKind.TEXT, BlockKind.THINKING)]
