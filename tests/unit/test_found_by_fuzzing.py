"""What the fuzz targets of tests/fuzz found, each as a test of its own."""

import json
from typing import Any

import pytest

from policy.base import (
    ALLOW,
    AskJudge,
    Block,
    Judgement,
    JudgeQuestion,
    OtherBlock,
    Policy,
    ToolCall,
    Verdict,
    shown,
)
from policy.session.effects import Output
from policy.session.session import Session
from protocol import codecs
from protocol.bytes.json_strict import dumps, loads_exact
from protocol.dialects.anthropic.turn import TurnBuilder
from protocol.dialects.table import CLIENTS
from protocol.errors import InvalidRequest, RemoteProtocolError
from protocol.events import (
    AttachmentDelta,
    BlockStart,
    BlockStop,
    MessageStop,
    Opaque,
    TextDelta,
    UpstreamFailed,
)
from protocol.target import Target
from protocol.text_calls.scanner import CallScanner
from protocol.text_calls.words import TextCall, Thought
from settings.config import Config
from tests.support.checks.kinds import of_kind
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import read_request
from tests.support.upstreams.frames import delta, end, message, start, stop
from tests.support.upstreams.recordings import framed
from tests.support.worker_calls import call_info

CALL = '{"name": "bash", "arguments": {"command": "rm -rf /"}}'


class DenyCalls(Policy):
    name = "deny"

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Block("denied")


class DenySecond(Policy):
    """Denies the second search, and reads results."""

    name = "second"

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Block("denied") if "second" in call.arguments else super().on_tool_call(call)

    def on_other(self, block: OtherBlock) -> Verdict:
        return super().on_other(block)


def outputs(*frames: Json, policy: Policy) -> list[Output]:
    """What a streaming Messages client gets, the request aside; it must be what its encoder can
    write."""
    session = Session(
        call_info("c", "anthropic", max_arguments_bytes=10_000),
        [policy],
        Config(),
    )
    session.begin(
        b'{"model":"demo","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"x"}]}'
    )
    session.drain()
    session.chunks(1, [framed("anthropic", [json.dumps(f)]) for f in frames])
    session.eof()
    out = session.drain().outputs
    assert session.request is not None
    CLIENTS["anthropic"].encoder(session.request, call_id="c", created=1).encode(out)  # type: ignore[arg-type]
    return out


def search(index: int, words: str) -> list[Json]:
    call = start(
        index,
        type="server_tool_use",
        id=f"srvtoolu_{index}",
        name="web_search",
        input={"query": words},
    )
    return [call, stop(index)]


def pieces(*parts: str) -> list[Any]:
    scanner = CallScanner(None, reasoning=True)
    return [p for part in parts for p in scanner.feed(part)] + scanner.finish()


@pytest.mark.parametrize("name", [CALL, f"<tool_call>{CALL}</tool_call>", "a b", "x" * 65])
def test_a_call_in_the_name_of_a_denied_call_is_in_no_notice(name: str) -> None:
    frames = [
        message(),
        start(0, type="tool_use", id="t", name=name, input={}),
        stop(0),
        *end("tool_use"),
    ]
    text = "".join(o.text for o in outputs(*frames, policy=DenyCalls()) if isinstance(o, TextDelta))
    why = (
        "the policy 'p' forbids it (deny: denied)"
        if name == "x" * 65
        else "its name is not a valid tool name"
    )
    assert text.startswith(
        f"[Sluice blocked the tool call (name withheld): {why}. It was not executed. "
    )
    assert shown("mcp.box:bash-2/x") == "'mcp.box:bash-2/x'"


def test_a_denied_search_ends_the_turn_though_a_block_before_it_is_open() -> None:
    open_blocks = [
        start(0, type="text", text=""),
        delta(0, "text_delta", text="Hm"),
        start(1, type="redacted_thinking", data="ZQ=="),
    ]
    out = outputs(
        message(), *open_blocks, *search(2, "second"), stop(1), stop(0), *end(), policy=DenySecond()
    )
    assert isinstance(out[-1], MessageStop)
    assert (
        [o.index for o in out if isinstance(o, BlockStart)]
        == [o.index for o in out if isinstance(o, BlockStop)]
        == [0, 1, 2]
    )


def test_a_denied_search_ends_the_turn_though_another_waits_for_its_result() -> None:
    out = outputs(message(), *search(0, "first"), *search(1, "second"), *end(), policy=DenySecond())
    assert isinstance(out[-1], MessageStop)
    assert [o.id for o in out if isinstance(o, BlockStart)] == ["srvtoolu_0", ""]


def test_a_failure_ends_the_open_text_before_what_came_behind_it() -> None:
    frames = [
        start(0, type="text", text="Hm"),
        start(1, type="redacted_thinking", data="ZQ=="),
        stop(1),
        start(1, type="text", text=""),
    ]
    out = outputs(message(), *frames, policy=Policy())
    assert isinstance(out[-1], UpstreamFailed)
    assert [(type(o), o.index) for o in out if isinstance(o, BlockStart | BlockStop)] == [
        (BlockStart, 0),
        (BlockStop, 0),
        (BlockStart, 1),
        (BlockStop, 1),
    ]


def test_numbers_that_no_float_holds_are_written_beside_lone_surrogates() -> None:
    value = loads_exact(b'{"a":[11e9993,"\\ude00",0.12345678901234567890,"x"],"b":{}}')
    assert dumps(value) == b'{"a":[11e9993,"\\ude00",0.12345678901234567890,"x"],"b":{}}'


class AskAJudge(Policy):
    asks = True

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return AskJudge(JudgeQuestion("demo-judge", "s", "p", "n", 0.5, None, {}))

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        return ALLOW if judgement.probability == 0 else Block("judge")


@pytest.mark.parametrize(
    "ending", [[], [{"type": "novelty"}], end()], ids=["cut", "unknown", "ended"]
)
@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_what_comes_out_does_not_depend_on_when_a_judgement_came(
    probability: float, ending: list[Json]
) -> None:
    frames = [
        message(),
        *search(0, "x"),
        start(1, type="text", text=""),
        delta(1, "text_delta", text="Hm"),
    ]
    frames += [stop(1)] if ending == end() else []
    digests = set()
    for wait in range(len(frames) + len(ending) + 2):
        session = Session(
            call_info("c", "anthropic", max_arguments_bytes=10_000),
            [AskAJudge()],
            Config(),
        )
        session.begin(
            b'{"model":"demo","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"x"}]}'
        )
        for number, frame in enumerate([*frames, *ending], 1):
            session.chunks(number, [framed("anthropic", [json.dumps(frame)])])
            if number == wait:
                session.judgement(0, 0, Judgement(probability=probability), 1)
        session.eof()
        session.judgement(0, 0, Judgement(probability=probability), 1)
        taken = session.drain()
        assert isinstance(taken.outputs[-1], MessageStop | UpstreamFailed)
        digests.add((taken.digest, taken.next))
    assert len(digests) == 1


def test_numbers_of_any_size_in_a_block_pass() -> None:
    block = start(
        0, type="web_search_tool_result", tool_use_id="srvtoolu_9", content=[{"n": 1 << 70}]
    )
    assert isinstance(outputs(message(), block, stop(0), *end(), policy=Policy())[-1], MessageStop)


def test_a_count_that_no_record_can_hold_is_refused() -> None:
    for dialect, usage in (
        ("openai", {"prompt_tokens": 1 << 70}),
        (
            "anthropic",
            {"input_tokens": 1 << 70},
        ),
    ):
        body: Json = {
            "id": "m",
            "type": "message",
            "content": [],
            "stop_reason": "end_turn",
            "usage": usage,
        }
        if dialect == "openai":
            body = {
                "id": "m",
                "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}],
                "usage": usage,
            }
        with pytest.raises(RemoteProtocolError):
            codecs.decode_whole("openai" if dialect == "openai" else "anthropic", as_json(body))


@pytest.mark.parametrize("missing", ["id", "name"])
def test_a_providers_call_without_an_id_or_a_name_is_refused(missing: str) -> None:
    call = {"type": "server_tool_use", "id": "t", "name": "bash", "input": {}} | {missing: ""}
    body = {"id": "m", "type": "message", "content": [call], "stop_reason": "tool_use"}
    with pytest.raises(RemoteProtocolError):
        codecs.decode_whole("anthropic", as_json(body))


def test_annotations_of_a_whole_answer_with_calls_go_with_its_text() -> None:
    annotation = {
        "type": "url_citation",
        "url_citation": {
            "url": "https://example.com",
            "title": "t",
            "start_index": 0,
            "end_index": 1,
        },
    }
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = {"role": "assistant", "content": "x", "annotations": [annotation], "tool_calls": [call]}
    body = {"id": "m", "choices": [{"index": 0, "message": said, "finish_reason": "tool_calls"}]}
    events = codecs.decode_whole("openai", as_json(body))
    assert [e.value.raw for e in events if isinstance(e, AttachmentDelta)] == [annotation]
    assert not of_kind(events, Opaque)


def test_reasoning_inside_a_fence_is_found() -> None:
    assert any(isinstance(p, Thought) for p in pieces("```json\n<think>hm</think>\n```"))


def test_a_closing_tag_is_found_behind_letters_that_are_two_in_lower_case() -> None:
    assert pieces("<think>\u0130\u0130 a</think>ok")[-1] == "ok"
    found = pieces("<tool_call>" + "\u0130" * 30 + CALL + "</tool_call> rest")
    assert isinstance(found[0], TextCall) and found[0].raw.endswith("</tool_call>")


def test_a_tag_with_a_line_end_in_it_is_found_wherever_it_is_cut() -> None:
    text = f"<tool\r\n_call>{CALL}</tool>"
    assert pieces(text) == pieces(*text)


@pytest.mark.parametrize("content", [5, "x", {"a": 1}])
def test_content_that_is_no_list_is_no_turn(content: Any) -> None:
    turn = TurnBuilder()
    turn.body(
        as_json({"type": "message", "id": "m", "stop_reason": "end_turn", "content": content})
    )
    assert not turn.complete


def test_citations_that_are_no_list_are_no_turn() -> None:
    turn = TurnBuilder()
    block = start(0, type="text", text="", citations="x")
    for frame in (
        message(),
        block,
        delta(0, "citations_delta", citation={"type": "x"}),
        stop(0),
        *end(),
    ):
        turn.feed(framed("anthropic", [json.dumps(frame)]))
    assert not turn.complete


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "base64", "media_type": ["image/png"], "data": "x"}},
        {"type": "search_result", "title": "t", "source": "s", "content": [{"type": {"a": 1}}]},
    ],
)
def test_values_of_another_type_in_a_request_are_refused_or_passed_on(
    block: Json,
) -> None:
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": [block]}]}
    request = CLIENTS["anthropic"].decode_request(as_json(body), endpoint="messages")
    with pytest.raises(InvalidRequest):
        codecs.encode_request(request, Target(dialect="openai"))
    written = codecs.encode_request(request, Target(dialect="anthropic"))
    assert written.body is not None and json.loads(written.body)["messages"] == body["messages"]


def test_an_empty_user_turn_is_not_lost() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": []}]}
    request = read_request("openai", body)
    written = codecs.encode_request(request, Target(dialect="openai"), changed=True)
    assert written.body is not None and json.loads(written.body)["messages"] == body["messages"]


def test_a_legacy_client_gets_one_call_though_both_end_at_the_end() -> None:
    session = Session(
        call_info(max_arguments_bytes=10_000),
        [Policy()],
        Config(),
    )
    asked = {
        "model": "demo",
        "stream": True,
        "messages": [{"role": "user", "content": "x"}],
        "functions": [{"name": "f"}],
    }
    session.begin(as_json(asked))
    calls = [
        {"index": i, "id": f"c{i}", "function": {"name": "f", "arguments": "{}"}} for i in (0, 1)
    ]
    chunk = {
        "id": "x",
        "choices": [
            {
                "index": 0,
                "delta": {"role": "assistant", "tool_calls": calls},
                "finish_reason": "tool_calls",
            }
        ],
    }
    session.chunks(1, [b"data: " + as_json(chunk) + b"\n\n", b"data: [DONE]\n\n"])
    session.eof()
    out = session.drain().outputs
    assert [o.id for o in out if isinstance(o, BlockStart) and o.id] == ["c0"]
