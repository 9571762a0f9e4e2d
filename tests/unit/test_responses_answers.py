"""Answers of every kind of upstream, written for a client of Responses: the official accumulator
takes them, and the facts come out."""

import json
from typing import Any

import pytest

from protocol.bytes.sse import EventSplitter
from protocol.citations import Citation
from protocol.dialects.responses.ids import call_of
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.errors import LocalProtocolError
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    SignatureDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from protocol.request import ChatRequest, Tool
from tests.support.checks.decoding import by_block, decode, events_of
from tests.support.clients.sdk import responses_answer
from tests.support.json_values import Json
from tests.support.upstreams.dialect_recordings import dialect_recordings, need_dialect_recordings
from tests.support.upstreams.recordings import own_recordings, recordings

CALL = "01990000-0000-7000-8000-00000000abcd"
INCLUDE = [
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "file_search_call.results",
    "message.output_text.logprobs",
]


OLD = {r.name: r for r in [*recordings(), *own_recordings()]}


def request(*, stream: bool, tools: tuple[Tool, ...] = ()) -> ChatRequest:
    return ChatRequest(
        dialect="responses", model="m", stream=stream, tools=tools, echo={"include": INCLUDE}
    )


def encoded(
    events: list[Event], *, stream: bool, tools: tuple[Tool, ...] = (), piece: int = 1
) -> bytes:
    """What the client gets, encoded in calls of `piece` events: each is encoded as it is
    released."""
    encoder = CLIENTS["responses"].encoder(
        request(stream=stream, tools=tools), call_id=CALL, created=1
    )
    return b"".join(encoder.encode(events[at : at + piece]) for at in range(0, len(events), piece))


def check_frames(body: bytes) -> list[Json]:
    """The frames of a stream: named as they are, numbered without a gap; what the last one repeats
    was said before."""
    splitter = EventSplitter(1 << 24)
    frames = []
    for chunk in splitter.feed(body) + splitter.finish():
        head, _, data = chunk.decode().partition("\n")
        frame = json.loads(data.removeprefix("data: "))
        assert head == f"event: {frame['type']}"
        frames.append(frame)
    assert [f["sequence_number"] for f in frames] == list(range(len(frames)))
    assert [f["type"] for f in frames[:2]] == ["response.created", "response.in_progress"]
    done = [f["item"] for f in frames if f["type"] == "response.output_item.done"]
    assert frames[-1]["response"]["output"] == done
    assert [f["output_index"] for f in frames if f["type"] == "response.output_item.added"][
        : len(done)
    ] == list(range(len(done)))
    texts: dict[tuple[str, int], str] = {}
    for frame in frames:
        if frame["type"] == "response.output_text.delta":
            at = frame["item_id"], frame["content_index"]
            texts[at] = texts.get(at, "") + frame["delta"]
    whole = {
        (i["id"], n): p["text"]
        for i in done
        if i["type"] == "message"
        for n, p in enumerate(i["content"])
        if p.get("text")
    }
    assert (
        frames[-1]["type"] == "response.failed"
        or {at: text for at, text in texts.items() if text} == whole
    )
    return frames


RECORDED = {
    r.name: r
    for r in dialect_recordings()
    if r.dialect == "responses" and "stop_reason_neutral" in r.facts
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("name", list(RECORDED) or ["none"])
def test_a_recorded_response_comes_out_with_its_items(name: str, stream: bool) -> None:
    need_dialect_recordings()
    want, events = RECORDED[name].facts, by_block(events_of(RECORDED[name]))
    if any(isinstance(e, UpstreamFailed) for e in events):
        assert want["stop_reason_neutral"] == "failed"
        return
    typed = {"apply_patch", "shell", "local_shell", "computer", "tool_search"}
    custom = {c["name"] for c in want["calls"] if c["type"] == "custom"}
    named = {c["name"] for c in want["calls"] if c["executor"] == "client"}
    out = encoded(
        events,
        stream=stream,
        tools=tuple(
            Tool(name, kind="custom" if name in custom else "client")
            if name in custom | typed
            else Tool(name)
            for name in named
        ),
    )
    if stream:
        check_frames(out)
    got = responses_answer(out, stream=stream)
    items = [
        i.type
        for i in got.output
        if i.type.endswith("_call") or i.type in ("mcp_approval_request", "program")
    ]
    assert len(items) == len(want["calls"])
    if (usage := want.get("usage")) and got.usage:
        assert got.usage.input_tokens == usage["input_tokens"]


@pytest.mark.parametrize(
    "name", ["own/anthropic-every-field", "own/openai-tools-interleaved", "own/anthropic-thinking"]
)
def test_an_answer_is_the_same_however_its_events_are_grouped(name: str) -> None:
    events = by_block(decode(OLD[name].dialect, [OLD[name].body]))
    assert len({encoded(events, stream=True, piece=piece) for piece in (1, 2, 7, 1000)}) == 1


# --- shapes ---

START = MessageStart("", "m", extra={"dialect": "responses"})
FOREIGN = MessageStart("msg_1", "m", extra={"dialect": "anthropic"})
END = MessageStop(StopReason.END_TURN, Usage(3, 5, 1, 0, 2))


def block(index: int, kind: BlockKind, *inner: Event, **fields: Any) -> list[Event]:
    return [BlockStart(index, kind, **fields), *inner, BlockStop(index)]


def whole(events: list[Event], tools: tuple[Tool, ...] = (), include: tuple[str, ...] = ()) -> Json:
    asked = ChatRequest(
        dialect="responses", model="m", tools=tools, echo={"include": list(include)}
    )
    body: Json = json.loads(
        CLIENTS["responses"].encoder(asked, call_id=CALL, created=1).encode(events)
    )
    return body


CALLS: list[tuple[Tool | None, BlockStart, str, Json]] = [
    (
        None,
        BlockStart(0, BlockKind.TOOL_USE, "c", "f"),
        "",
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
    ),
    (
        Tool("ns.f", outer={"namespace": {"name": "ns"}}),
        BlockStart(0, BlockKind.TOOL_USE, "c", "ns.f"),
        '{"a":1}',
        {"type": "function_call", "name": "f", "namespace": "ns", "arguments": '{"a":1}'},
    ),
    (
        Tool("f"),
        BlockStart(0, BlockKind.TOOL_USE, "c", "ns.f", {"namespace": "ns"}),
        "{}",
        {"type": "function_call", "name": "ns.f"},
    ),
    (
        Tool("free", kind="custom"),
        BlockStart(0, BlockKind.TOOL_USE, "c", "free"),
        '{"input":"a\\"b"}',
        {"type": "custom_tool_call", "name": "free", "input": 'a"b'},
    ),
    (
        Tool("shell", kind="client"),
        BlockStart(0, BlockKind.TOOL_USE, "c", "shell"),
        '{"commands":["ls"],"timeout_ms":1.0}',
        {
            "type": "shell_call",
            "action": {"commands": ["ls"], "timeout_ms": 1.0},
            "call_id": "c",
            "status": "completed",
        },
    ),
    (
        None,
        BlockStart(
            0,
            BlockKind.TOOL_USE,
            "c",
            "computer",
            {"item": "computer_call", "pending_safety_checks": []},
        ),
        '{"actions":[{"type":"wait"}]}',
        {"type": "computer_call", "actions": [{"type": "wait"}], "pending_safety_checks": []},
    ),
    (
        Tool("tool_search", kind="client"),
        BlockStart(0, BlockKind.TOOL_USE, "c", "tool_search"),
        '{"query":"q"}',
        {"type": "tool_search_call", "execution": "client", "arguments": {"query": "q"}},
    ),
    (
        None,
        BlockStart(
            0, BlockKind.TOOL_USE, "mcpr_1", "f", {"executor": "mcp_pending", "server_label": "s"}
        ),
        "{}",
        {
            "type": "mcp_approval_request",
            "id": f"mcpr_{CALL.replace('-', '')}_0",
            "name": "f",
            "server_label": "s",
            "arguments": "{}",
        },
    ),
    (
        None,
        BlockStart(
            0, BlockKind.TOOL_USE, "c", "f", {"caller": {"type": "program", "caller_id": "p"}}
        ),
        "{}",
        {
            "type": "function_call",
            "status": "in_progress",
            "caller": {"type": "program", "caller_id": "p"},
        },
    ),
]


@pytest.mark.parametrize(
    ("tool", "start", "arguments", "want"), CALLS, ids=[want["type"] for *_, want in CALLS]
)
def test_a_call_has_the_shape_of_its_tool(
    tool: Tool | None, start: BlockStart, arguments: str, want: Json
) -> None:
    events: list[Event] = [START, start, ArgumentsDelta(0, arguments), BlockStop(0), END]
    [item] = whole(events, (tool,) if tool is not None else ())["output"]
    assert item == item | want
    frames = check_frames(encoded(events, stream=True, tools=(tool,) if tool is not None else ()))
    assert frames[-1]["response"]["output"] == [item]
    first = next(n for n, f in enumerate(frames) if f["type"] == "response.output_item.added")
    # nothing of it before its end, and then all of it at once
    asked = ChatRequest(dialect="responses", model="m", stream=True)
    encoder = CLIENTS["responses"].encoder(asked, call_id=CALL, created=1)
    encoder.encode([START])
    assert encoder.encode(events[1:3]) == b"" and first == 2


def test_what_a_provider_ran_is_one_item_and_shows_what_was_asked_for() -> None:
    search = block(
        0,
        BlockKind.SERVER_TOOL_USE,
        ArgumentsDelta(0, '{"type":"search","query":"q","sources":[{"url":"u"}]}'),
        id="ws",
        name="web_search",
        body={"type": "web_search_call"},
    )
    result = {
        "type": "web_search_call_result",
        "tool_use_id": "ws",
        "status": "completed",
        "results": [{"url": "u"}],
    }
    code = block(
        2,
        BlockKind.SERVER_TOOL_USE,
        ArgumentsDelta(2, '{"code":"1"}'),
        id="ci",
        name="code_interpreter",
        body={"type": "code_interpreter_call", "container_id": "k"},
    )
    ran = {
        "type": "code_interpreter_call_result",
        "tool_use_id": "ci",
        "status": "completed",
        "outputs": [{"type": "logs", "logs": "1"}],
    }
    events = [
        START,
        *search,
        *block(1, BlockKind.OTHER, name="web_search_call_result", body=result),
        *code,
        *block(3, BlockKind.OTHER, name="code_interpreter_call_result", body=ran),
        END,
    ]
    few, code_few = whole(events)["output"]
    assert (
        few["action"] == {"type": "search", "query": "q"}
        and "results" not in few
        and code_few["outputs"] is None
    )
    asked = (
        "web_search_call.results",
        "web_search_call.action.sources",
        "code_interpreter_call.outputs",
    )
    most, code_most = whole(events, include=asked)["output"]
    assert (
        most["results"]
        and most["action"]["sources"]
        and code_most["outputs"] == ran["outputs"]
        and code_most["code"] == "1"
    )
    # its result was withheld: the call is told alone
    [alone] = whole([START, *search, END])["output"]
    assert alone["type"] == "web_search_call"


NUMBERS = "1.10 1E2 -0 -0.0 1e-7 123456789012345678901234567890 0.1000000000000000055511151231257827".split()
SAID = ",".join(f'"n{place}":{number}' for place, number in enumerate(NUMBERS))
OBJECTS = [
    '{"type":"web_search_call","id":"i","status":"completed","action":{"type":"search","query":"q",%s}}',
    '{"type":"file_search_call","id":"i","status":"completed","queries":["q",{%s}],"results":null}',
    '{"type":"shell_call","call_id":"i","status":"completed","action":{"commands":["ls"],%s}}',
    '{"type":"shell_call","call_id":"i","status":"completed","environment":{"type":"container_auto"},"action":{"commands":["ls"],%s}}',
    '{"type":"apply_patch_call","call_id":"i","status":"completed","operation":{"type":"delete_file","path":"a",%s}}',
    '{"type":"computer_call","call_id":"i","status":"completed","actions":[{"type":"click",%s}]}',
    '{"type":"tool_search_call","call_id":"i","status":"completed","execution":"server","arguments":{"query":"q",%s}}',
]


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("written", OBJECTS)
def test_numbers_of_a_call_are_written_as_they_came(written: str, is_streamed: bool) -> None:
    """Policies decided on this text, and the provider ran it: another spelling of a number may be
    another number."""
    item = written % SAID
    answer = f'{{"id":"r","model":"m","status":"completed","output":[{item}]}}'
    done = f'data: {{"type":"response.output_item.done","output_index":0,"item":{item}}}\n\n'
    last = f'data: {{"type":"response.completed","response":{answer}}}\n\n'
    # the last event alone has it where a proxy keeps the others back
    for upstream in ((done, last), (last,)) if is_streamed else ((answer,),):
        text = "".join(upstream).encode()
        events = (
            decode("responses", [text])
            if is_streamed
            else DIALECTS["responses"].decode_whole(text, frozenset())
        )
        assert SAID in "".join(e.text for e in events if isinstance(e, ArgumentsDelta))
        for stream in (True, False):
            assert SAID in encoded(events, stream=stream).decode()


def test_sealed_reasoning_goes_to_who_asked_and_only_that_of_this_dialect() -> None:
    thought = block(
        0, BlockKind.THINKING, SignatureDelta(0, "c2Vh"), body={"item": 0, "part": "summary_text"}
    )
    assert "encrypted_content" not in whole([START, *thought, END])["output"][0]
    assert (
        whole([START, *thought, END], include=("reasoning.encrypted_content",))["output"][0][
            "encrypted_content"
        ]
        == "c2Vh"
    )
    assert whole([FOREIGN, *thought, END], include=("reasoning.encrypted_content",))["output"] == []


def test_texts_of_one_item_are_parts_and_those_of_two_are_messages() -> None:
    def said(first: int, second: int) -> list[Any]:
        texts = [
            block(n, BlockKind.TEXT, TextDelta(n, "a"), body={"item": item})
            for n, item in enumerate((first, second))
        ]
        return [
            len(item["content"]) for item in whole([START, *texts[0], *texts[1], END])["output"]
        ]

    assert (said(0, 0), said(0, 1)) == ([2], [1, 1])


def test_log_probabilities_stand_beside_their_text_where_they_were_asked_for() -> None:
    entries = [{"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": []}]
    events: list[Event] = [
        START,
        BlockStart(0, BlockKind.TEXT),
        TextDelta(0, "a"),
        AttachmentDelta(0, "logprobs", {"content": entries}),
        TextDelta(0, "b"),
        BlockStop(0),
        END,
    ]
    frames = check_frames(encoded(events, stream=True, piece=9))
    assert [f["logprobs"] for f in frames if f["type"] == "response.output_text.delta"] == [
        entries,
        [],
    ]
    assert whole(events)["output"][0]["content"][0]["logprobs"] == []


def test_citations_are_annotations_and_those_of_documents_stand_apart() -> None:
    text = block(
        0,
        BlockKind.TEXT,
        TextDelta(0, "found"),
        AttachmentDelta(0, "citation", Citation(kind="url", url="u", title="t")),
        AttachmentDelta(0, "citation", Citation(kind="page", raw={"type": "page_location"})),
    )
    body = whole([FOREIGN, *text, END])
    place = {"type": "url_citation", "start_index": 0, "end_index": 5, "title": "t", "url": "u"}
    assert body["output"][0]["content"][0]["annotations"] == [place]
    assert body["sluice"]["citations"][0]["citation"] == {"type": "page_location"}
    frames = check_frames(encoded([FOREIGN, *text, END], stream=True))
    assert [
        f["annotation"] for f in frames if f["type"] == "response.output_text.annotation.added"
    ] == [place]


ENDS: list[tuple[MessageStop | UpstreamFailed, str, Any]] = [
    (END, "completed", None),
    (MessageStop(StopReason.MAX_TOKENS), "incomplete", {"reason": "max_output_tokens"}),
    (
        MessageStop(StopReason.MAX_TOKENS, extra={"native_stop": "steered"}),
        "incomplete",
        {"reason": "steered"},
    ),
    (MessageStop(StopReason.REFUSAL), "incomplete", {"reason": "content_filter"}),
    (MessageStop(StopReason.REFUSAL, explanation="no"), "completed", None),
    (UpstreamFailed("overloaded_error", "busy"), "failed", None),
    (UpstreamFailed("invalid_request_error", "no"), "failed", None),
]


@pytest.mark.parametrize(("end", "status", "details"), ENDS)
def test_an_answer_ends_as_its_clients_read_it(
    end: MessageStop | UpstreamFailed, status: str, details: Any
) -> None:
    events: list[Event] = [START, *block(0, BlockKind.TEXT, TextDelta(0, "so")), end]
    last = check_frames(encoded(events, stream=True))[-1]
    assert (last["type"], last["response"]["status"], last["response"]["incomplete_details"]) == (
        f"response.{status}",
        status,
        details,
    )
    if isinstance(end, UpstreamFailed):
        code = {
            "overloaded_error": "server_is_overloaded",
            "invalid_request_error": "invalid_prompt",
        }[end.kind]
        assert last["response"]["error"] == {"code": code, "message": end.message}
    if isinstance(end, MessageStop) and end.explanation:
        assert last["response"]["output"][0]["content"][1] == {"type": "refusal", "refusal": "no"}
    assert responses_answer(encoded(events, stream=True), stream=True).status == status


def test_usage_has_every_number() -> None:
    usage = whole([START, END])["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (4, 5, 9)
    assert usage["input_tokens_details"] == {"cached_tokens": 1, "cache_write_tokens": 0}
    assert usage["output_tokens_details"] == {"reasoning_tokens": 2}


WRONG: list[list[Event]] = [
    [START, START],
    [BlockStart(0, BlockKind.TEXT)],
    [START, TextDelta(0, "a")],
    [START, *block(0, BlockKind.TEXT)[:1], END],
    [END],
    [START, *block(0, BlockKind.TEXT)[:1], BlockStart(1, BlockKind.TEXT)],
    [START, BlockStart(0, BlockKind.OPAQUE)],
    [START, END, END],
    [START, BlockStart(0, BlockKind.TEXT), ArgumentsDelta(0, "{}")],
    [
        START,
        *block(
            0,
            BlockKind.SERVER_TOOL_USE,
            ArgumentsDelta(0, "{"),
            id="a",
            name="x",
            body={"type": "web_search_call"},
        ),
        END,
    ],
    [START, *block(0, BlockKind.SERVER_TOOL_USE, id="a", name="x", body={"type": "strange"}), END],
]


@pytest.mark.parametrize("events", WRONG)
def test_the_encoder_refuses_what_the_dialect_does_not_allow(events: list[Event]) -> None:
    for stream in (True, False):
        with pytest.raises(LocalProtocolError):
            encoded(events, stream=stream)


def test_a_response_id_names_its_call() -> None:
    assert call_of(whole([START, END])["id"]) == CALL
    assert [
        call_of(odd)
        for odd in (
            "resp_1",
            "msg_01990000000070008000000000000000",
            "resp_0199000000007000800000000000abcdef",
            "",
        )
    ] == [""] * 4
