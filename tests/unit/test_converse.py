"""Converse answers: recorded and made ones against botocore and the recorded facts, in clients'
dialects, cut and changed anywhere."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from protocol import codecs
from protocol.bytes.eventstream import EventStreamSplitter, message
from protocol.bytes.json_strict import loads_arguments, normal_arguments
from protocol.citations import Citation
from protocol.dialects.table import DIALECTS
from protocol.errors import NotFound, RateLimited, RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    SignatureDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
)
from tests.support.checks.decoding import by_block, digest
from tests.support.checks.kinds import of_kind
from tests.support.json_values import Json, as_json
from tests.support.upstreams import converse as made

SHARED = Path(__file__).parents[3] / "shared" / "dialect-streams"


def entries() -> list[Json]:
    path = SHARED / "expected.json"
    found = json.loads(path.read_text())["entries"] if path.exists() else []
    return [e for e in found if e["api"] == "bedrock-converse" and e["http_status"] == 200]


RECORDED = {e["name"]: e for e in entries()}
OWN = {
    "thought": made.thought_call(),
    "said": made.said("Hel", "lo", " \u2028 wörld"),
    "parallel": made.written(
        made.begun(),
        made.call(0, "a", "x"),
        made.piece(0, toolUse={"input": "{}"}),
        made.stopped(0),
        made.call(1, "b", "y"),
        made.stopped(1),
        *made.ended("tool_use"),
    ),
    "provider": made.written(
        made.begun(),
        made.call(0, "s", "nova_code_interpreter", type="server_tool_use"),
        made.piece(0, toolUse={"input": '{"a":1}'}),
        made.stopped(0),
        (
            "contentBlockStart",
            {
                "contentBlockIndex": 1,
                "start": {"toolResult": {"toolUseId": "s", "status": "success"}},
            },
        ),
        made.piece(1, toolResult=[{"json": {"out": 1}}]),
        made.stopped(1),
        made.call(2, "c", "nova_code_interpreter", type="tool_use"),
        made.stopped(2),
        *made.ended("tool_use"),
    ),
    "empty text": made.written(
        made.begun(),
        made.piece(0, text=""),
        made.stopped(0),
        made.piece(1, reasoningContent={"text": "hm"}),
        made.stopped(1),
        made.piece(2, text="ok"),
        made.stopped(2),
        *made.ended("end_turn"),
    ),
    "cut by the limit": made.written(
        made.begun(), made.piece(0, text="begun"), *made.ended("max_tokens")
    ),
}


def need() -> None:
    if RECORDED:
        return
    assert os.environ.get("CI") != "true", f"{SHARED} is missing"
    pytest.skip(f"{SHARED} is missing")


def decode(body: bytes, sizes: list[int] | None = None) -> list[Event]:
    splitter, decoder = EventStreamSplitter(1 << 20), DIALECTS["converse"].decoder()
    events: list[Event] = []
    at = 0
    for size in sizes or [len(body)]:
        for chunk in splitter.feed(body[at : at + size]):
            events += decoder.feed(chunk)
        at += size
    for chunk in splitter.finish():
        events += decoder.feed(chunk)
    return events + decoder.finish()


def facts(events: list[Event]) -> Json:
    """The same as `read_by_botocore`."""
    found: Json = {
        "text": {},
        "thinking": {},
        "signature": {},
        "calls": {},
        "stop": "",
        "usage": {},
    }
    kinds: dict[int, BlockKind] = {}
    for event in events:
        match event:
            case BlockStart():
                kinds[event.index] = event.kind
                if event.kind in (BlockKind.TOOL_USE, BlockKind.SERVER_TOOL_USE):
                    found["calls"][event.index] = [
                        event.id,
                        event.name,
                        event.kind is BlockKind.SERVER_TOOL_USE,
                        "",
                    ]
            case TextDelta():
                held = found["text" if kinds[event.index] is BlockKind.TEXT else "thinking"]
                held[event.index] = held.get(event.index, "") + event.text
            case ArgumentsDelta():
                found["calls"][event.index][3] += event.text
            case SignatureDelta():
                found["signature"][event.index] = event.signature
            case MessageStop():
                found["stop"], found["usage"] = (
                    event.stop_reason,
                    (
                        event.usage.input_tokens,
                        event.usage.output_tokens,
                    ),
                )
            case _:
                pass
    return found


def body_of(entry: Json) -> bytes:
    return bytes((SHARED / entry["file"]).read_bytes())


def events_of(entry: Json) -> list[Event]:
    body = body_of(entry)
    return decode(body) if entry["kind"] == "eventstream" else codecs.decode_whole("converse", body)


@pytest.mark.parametrize("name", RECORDED or ["none"])
def test_the_recorded_facts_come_out(name: str) -> None:
    need()
    want = RECORDED[name]["facts"]
    events = events_of(RECORDED[name])
    got, blocks = facts(events), of_kind(events, BlockStart)
    text, thinking = "".join(got["text"].values()), "".join(got["thinking"].values())
    assert (len(text), digest(text), len(thinking)) == (
        want["text_chars"],
        want["text_sha"],
        want["thinking_chars"],
    )
    assert [
        (b.index, f"other:{b.name}" if b.kind is BlockKind.OTHER else str(b.kind)) for b in blocks
    ] == [(b["index"], b["type"]) for b in want["blocks"]]
    assert [
        (c[0], c[1], loads_arguments(normal_arguments(c[3])), "provider" if c[2] else "client")
        for c in got["calls"].values()
    ] == [(c["id"], c["name"], c["arguments"], c["executor"]) for c in want["calls"]]
    assert got["stop"] == want["stop_reason_neutral"]
    usage = want["usage_neutral"]
    assert got["usage"] == (usage["input_tokens"], usage["output_tokens"])
    assert sum(isinstance(e, AttachmentDelta) for e in events) == sum(
        want.get("citations", {}).values()
    )


def test_a_changed_byte_is_an_error_and_never_another_event() -> None:
    body = OWN["thought"]
    want = decode(body)
    for at in range(len(body)):
        data = bytearray(body)
        data[at] ^= 0x5A
        splitter, decoder, events = (
            EventStreamSplitter(1 << 20),
            DIALECTS["converse"].decoder(),
            list[Event](),
        )
        with pytest.raises(RemoteProtocolError):  # noqa: PT012 - what came before the error counts
            for chunk in splitter.feed(bytes(data)):
                events += decoder.feed(chunk)
            for chunk in [*splitter.feed(b""), *splitter.finish()]:
                events += decoder.feed(chunk)
        assert events == want[: len(events)]
        assert not any(isinstance(e, MessageStop) for e in events)


def test_the_end_waits_for_the_counts_or_for_the_end_of_the_stream() -> None:
    stop, counts = made.ended("end_turn")
    decoder = DIALECTS["converse"].decoder()
    decoder.feed(made.framed(*made.begun()))
    assert decoder.feed(made.framed(*stop)) == []
    [event] = decoder.feed(made.framed(*counts))
    assert isinstance(event, MessageStop) and event.usage.output_tokens == 5
    assert decoder.finish() == [] and decoder.feed(made.framed(*stop)) == [
        Opaque("data after the end")
    ]
    decoder = DIALECTS["converse"].decoder()
    for found in (made.begun(), stop):
        decoder.feed(made.framed(*found))
    assert decoder.finish() == [MessageStop(StopReason.END_TURN)]


def test_a_citation_may_come_before_its_text() -> None:
    found = {
        "title": "t",
        "location": {"web": {"url": "http://a"}},
        "sourceContent": [{"text": "x"}, {"text": "y"}],
    }
    stream = made.written(
        made.begun(),
        made.piece(0, citation=found),
        made.piece(0, text="said"),
        made.stopped(0),
        *made.ended("end_turn"),
    )
    events = decode(stream)[1:4]
    cited = Citation(
        kind="url", url="http://a", title="t", cited_text="xy", raw=found, dialect="converse"
    )
    assert events == [
        BlockStart(0, BlockKind.TEXT),
        TextDelta(0, "said"),
        AttachmentDelta(0, "citation", cited),
    ]
    lone = decode(
        made.written(
            made.begun(), made.piece(0, citation=found), made.stopped(0), *made.ended("end_turn")
        )
    )
    assert lone[1] == Opaque("citation of no text")


def _web(*urls: str) -> list[Json]:
    return [{"location": {"web": {"domain": "d", "url": url}}} for url in urls]


@pytest.mark.parametrize(
    ("blocks", "wanted"),
    [
        (["a", _web("u1", "u2"), "b", _web("u3"), "."], [(0, "u1"), (0, "u2"), (2, "u3")]),
        (["a", _web("u1"), _web("u2"), "b"], [(0, "u1"), (0, "u2")]),
        (["a", _web("u1")], [(0, "u1")]),
        (["a", "", _web("u1"), "b"], [(0, "u1")]),
        ([None, _web("u1"), "b"], [(-1, "citation of no text")]),
        (["a", None, _web("u1"), "b"], [(-1, "citation of no text")]),
        ([_web("u1")], [(-1, "citation of no text")]),
        (["a", [{"location": {"new": {}}}, *_web("u1")], "b"], [(-1, "citation new"), (0, "u1")]),
    ],
)
def test_a_block_of_citations_alone_is_about_the_text_before_it(
    blocks: list[Any], wanted: list[tuple[int, str]]
) -> None:
    """A text, its citations (as Nova's search says them) or, for None, a call of the provider's."""
    pieces: list[made.Event] = [made.begun()]
    content: list[Json] = []
    for index, block in enumerate(blocks):
        if block is None:
            pieces += [
                made.call(index, "s", "nova_grounding", type="server_tool_use"),
                made.stopped(index),
            ]
            content.append(
                {
                    "toolUse": {
                        "toolUseId": "s",
                        "name": "nova_grounding",
                        "type": "server_tool_use",
                        "input": {},
                    }
                }
            )
        elif isinstance(block, str):
            pieces += [made.piece(index, text=block), made.stopped(index)]
            content.append({"text": block})
        else:
            pieces += [*(made.piece(index, citation=found) for found in block), made.stopped(index)]
            content.append({"citationsContent": {"citations": block}})
    whole = {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "end_turn",
        "usage": {},
    }
    streamed = decode(made.written(*pieces, *made.ended("end_turn")))
    for events in (streamed, codecs.decode_whole("converse", as_json(whole))):
        found = [(e.index, e.value.url) for e in events if isinstance(e, AttachmentDelta)]
        assert sorted([*found, *((-1, e.what) for e in events if isinstance(e, Opaque))]) == sorted(
            wanted
        )
        assert by_block(events) == [e for e in events if not isinstance(e, Opaque)], (
            "each block whole, before the next one"
        )
        starts, stops = (
            [e.index for e in events if isinstance(e, kind)] for kind in (BlockStart, BlockStop)
        )
        assert starts == stops


def test_a_text_that_waits_for_citations_ends_however_the_answer_ends() -> None:
    said = made.written(made.begun(), made.piece(0, text="x"), made.stopped(0))
    for end in (b"", made.exception("throttlingException", "slow down")):
        assert [type(e) for e in decode(said + end)] == [
            MessageStart,
            BlockStart,
            TextDelta,
            BlockStop,
            UpstreamFailed,
        ]


def test_sealed_thinking_comes_whole_and_joined() -> None:
    pieces = [
        made.piece(0, reasoningContent={"redactedContent": data}) for data in ("YQ==", "YmM=")
    ]
    events = decode(made.written(made.begun(), *pieces, made.stopped(0), *made.ended("end_turn")))
    assert events[1] == BlockStart(
        0,
        BlockKind.OTHER,
        name="redacted_thinking",
        body={"type": "redacted_thinking", "redactedContent": "YWJj"},
    )
    with pytest.raises(RemoteProtocolError, match="base64"):
        decode(
            made.written(
                made.begun(),
                made.piece(0, reasoningContent={"redactedContent": "%%"}),
                made.stopped(0),
            )
        )


@pytest.mark.parametrize(
    ("event", "what"),
    [
        (("strange", {}), "event strange"),
        (made.piece(0, video={"a": 1}), "contentBlockDelta.delta video"),
        (("messageStart", {"role": "assistant", "odd": "x"}), "messageStart odd"),
        (
            ("contentBlockStart", {"contentBlockIndex": 0, "start": {"image": {"format": "png"}}}),
            "block image",
        ),
        (made.call(0, "a", "b", type="other_tool_use"), "block toolUse other_tool_use"),
        (
            (
                "messageStop",
                {"stopReason": "end_turn", "additionalModelResponseFields": {"a": "b"}},
            ),
            "messageStop additionalModelResponseFields",
        ),
    ],
)
def test_what_is_not_modelled_is_withheld_by_name(event: made.Event, what: str) -> None:
    decoder = DIALECTS["converse"].decoder()
    if event[0] != "messageStart":
        decoder.feed(made.framed(*made.begun()))
    assert Opaque(what) in decoder.feed(made.framed(*event))


@pytest.mark.parametrize(
    ("fields", "withheld"),
    [
        ({"stop_sequence": None}, 0),
        ({"delta": {"stop_sequence": None}}, 0),
        ({}, 0),
        (None, 0),
        ({"delta": {"stop_sequence": "END"}}, 1),
        ([], 1),
    ],
)
def test_fields_of_a_model_that_say_nothing_are_not_named(fields: Any, withheld: int) -> None:
    stop = ("messageStop", {"stopReason": "end_turn", "additionalModelResponseFields": fields})
    whole = {
        "output": {"message": {"role": "assistant", "content": []}},
        "stopReason": "end_turn",
        "additionalModelResponseFields": fields,
    }
    for events in (
        decode(made.written(made.begun(), stop)),
        codecs.decode_whole("converse", as_json(whole)),
    ):
        assert sum(isinstance(e, Opaque) for e in events) == withheld


def test_pieces_of_a_withheld_block_are_withheld() -> None:
    stream = made.written(
        made.begun(),
        made.call(0, "a", "b", type="new"),
        made.piece(0, toolUse={"input": "{}"}),
        made.stopped(0),
    )
    assert not any(isinstance(e, BlockStart | ArgumentsDelta | BlockStop) for e in decode(stream))


def test_what_a_guardrail_masked_goes_nowhere() -> None:
    trace = {"guardrail": {"modelOutput": ["the secret"]}}
    events = decode(
        made.written(
            made.begun(),
            ("messageStop", {"stopReason": "guardrail_intervened"}),
            ("metadata", {"usage": {}, "trace": trace}),
        )
    )
    assert events[1:] == [Opaque("metadata trace"), MessageStop(StopReason.REFUSAL)]
    assert "secret" not in repr(events)


@pytest.mark.parametrize(
    "events",
    [
        [made.piece(0, text="x")],
        [made.begun(), made.begun()],
        [("messageStart", {"role": "user"})],
        [made.begun(), made.piece(0, toolUse={"input": "{}"})],
        [made.begun(), made.call(0, "", "x")],
        [made.begun(), made.call(0, "x", "")],
        [made.begun(), made.call(0, "a", "x"), made.piece(0, text="x")],
        [made.begun(), made.call(0, "a", "x"), made.call(0, "b", "y")],
        [made.begun(), made.piece(0, text="x"), made.stopped(0), made.piece(0, text="y")],
        [made.begun(), made.piece(0, text="x"), made.stopped(0), made.stopped(0)],
        [made.begun(), made.piece(0, text="x"), made.piece(0, reasoningContent={"text": "y"})],
        [
            made.begun(),
            made.piece(0, text="x"),
            made.piece(0, reasoningContent={"redactedContent": "YQ=="}),
        ],
        [made.begun(), made.piece(-1, text="x")],
        [made.begun(), ("metadata", {"usage": {}})],
        [made.begun(), ("messageStop", {})],
        [made.begun(), ("messageStop", {"stopReason": "refusal"})],
        [made.begun(), ("messageStop", {"stopReason": "new"})],
        [made.begun(), made.ended("end_turn")[0], made.piece(0, text="x")],
        [made.begun(), ("contentBlockDelta", {"delta": {"text": 1}})],
        [made.begun(), made.ended("end_turn")[0], ("metadata", {"usage": {"inputTokens": "x"}})],
        [made.begun(), made.piece(0, toolResult=[{"text": "x"}])],
        [made.begun(), made.piece(0, text="x"), made.piece(0, text="y", toolUse={"input": "{}"})],
        [made.begun(), made.piece(0, text="x", citation={})],
        [
            made.begun(),
            (
                "contentBlockStart",
                {
                    "contentBlockIndex": 0,
                    "start": {
                        "toolUse": {"toolUseId": "a", "name": "x"},
                        "toolResult": {"toolUseId": "a"},
                    },
                },
            ),
        ],
    ],
)
def test_what_the_api_forbids_is_refused(events: list[made.Event]) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(made.written(*events))


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (made.exception("throttlingException", "slow down"), "rate_limit_error"),
        (made.exception("modelStreamErrorException", "slow down"), "api_error"),
        (made.exception("serviceUnavailableException", "slow down"), "overloaded_error"),
        (made.exception("modelTimeoutException", "slow down"), "timeout_error"),
        (made.exception("validationException", "slow down"), "invalid_request_error"),
        (made.exception("newException", "slow down"), "api_error"),
        (
            message(
                {
                    ":message-type": "error",
                    ":error-code": "internalServer",
                    ":error-message": "slow down",
                },
                b"",
            ),
            "api_error",
        ),
    ],
)
def test_an_exception_ends_a_stream_and_first_it_has_a_status(raw: bytes, kind: str) -> None:
    [first] = decode(raw)
    assert (
        isinstance(first, UpstreamFailed)
        and (first.kind, first.message) == (kind, "slow down")
        and first.status >= 400
    )
    *_, last = decode(made.written(made.begun(), made.piece(0, text="x")) + raw)
    assert isinstance(last, UpstreamFailed) and (last.kind, last.status) == (kind, 0)


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_a_malformed_answer_is_a_failure(reason: str) -> None:
    assert isinstance(
        decode(made.written(made.begun(), *made.ended(reason)[:1]))[-1], UpstreamFailed
    )


@pytest.mark.parametrize(
    ("status", "name", "kind"),
    [
        (400, "ValidationException", "invalid_request_error"),
        (429, "ThrottlingException", "rate_limit_error"),
        (400, "ServiceQuotaExceededException", "rate_limit_error"),
        (429, "ModelNotReadyException", "overloaded_error"),
        (408, "ModelTimeoutException", "timeout_error"),
        (424, "ModelErrorException", "api_error"),
        (403, "AccessDeniedException", "authentication_error"),
        (403, "com.amazon.x#ExpiredTokenException:http://y", "authentication_error"),
        (404, "ResourceNotFoundException", "not_found_error"),
        (403, "", "authentication_error"),
        (500, "", "api_error"),
        (503, "odd", "overloaded_error"),
    ],
)
def test_an_error_answer_is_read_by_its_kind(status: int, name: str, kind: str) -> None:
    failed = DIALECTS["converse"].decode_error(
        status, as_json({"__type": name, "message": "why"}), "3"
    )
    assert (failed.kind, failed.message, failed.status, failed.retry_after) == (
        kind,
        "why",
        status,
        "3",
    )
    assert (
        DIALECTS["converse"].decode_error(status, b"<html>", None).message
        == f"the upstream answered with status {status}"
    )


def test_our_own_refusal_for_an_upstream_is_read_back() -> None:
    converse = DIALECTS["converse"]
    for error, kind in (
        (RateLimited("wait"), "rate_limit_error"),
        (NotFound("none"), "not_found_error"),
    ):
        failed = converse.decode_error(error.http_status, converse.error_body(error), None)
        assert (failed.kind, failed.message) == (kind, error.message)


def test_a_whole_answer_is_read_block_by_block() -> None:
    content = [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "YQ=="}},
        {"text": ""},
        {
            "citationsContent": {
                "content": [{"text": "a"}, {"text": "b"}],
                "citations": [{"location": {"documentPage": {}}}],
            }
        },
        {"toolUse": {"toolUseId": "i", "name": "n", "input": {"a": 1.50}}},
        {"toolUse": {"toolUseId": "s", "name": "n", "type": "server_tool_use"}},
        {"toolResult": {"toolUseId": "s", "content": [{"text": "x"}]}},
        {"video": {"a": 1}},
        {"image": {"format": "png"}},
    ]
    body = {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use",
        "usage": {"inputTokens": 1},
        "trace": {"a": 1},
    }
    events = codecs.decode_whole("converse", as_json(body))
    kinds = [(e.index, e.kind) for e in events if isinstance(e, BlockStart)]
    assert kinds == [
        (0, "thinking"),
        (1, "other"),
        (3, "text"),
        (4, "tool_use"),
        (5, "server_tool_use"),
        (6, "other"),
    ]
    assert sum(isinstance(e, BlockStop) for e in events) == len(kinds)
    assert {"block video", "block image", "answer trace"} == {
        e.what for e in events if isinstance(e, Opaque)
    }
    assert isinstance(events[0], MessageStart) and isinstance(events[-1], MessageStop)
    assert ArgumentsDelta(4, '{"a":1.5}') in events and SignatureDelta(0, "c2ln") in events
    two = {
        "message": {
            "role": "assistant",
            "content": [{"text": "x", "toolUse": {"toolUseId": "i", "name": "n"}}],
        }
    }
    for wrong in (
        b"[]",
        b"{",
        b'{"output": {}}',
        as_json(body | {"output": two}),
        as_json(body | {"stopReason": "odd"}),
    ):
        with pytest.raises(RemoteProtocolError):
            codecs.decode_whole("converse", wrong)
