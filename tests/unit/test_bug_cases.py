"""The twenty-one faults of gateways and SDKs that others had (docs/change/protocol.md 3), one test
or family each, judged by the official SDKs.

Each goes through decoder, policy session and encoder, streamed and whole, to clients of both
dialects. What needs processes is in tests/e2e/test_bug_cases.py.
"""

import json
from typing import Any

import anthropic
import openai
import pytest

from protocol.request import DialectName
from tests.support.checks.order import check_messages_frames
from tests.support.checks.outcomes import payloads
from tests.support.clients.answering import Answer, Watch, direct, every_way
from tests.support.clients.sdk_answers import WAYS
from tests.support.json_values import Json, as_json
from tests.support.upstreams.cases import (
    began,
    calls_of,
    chunks,
    client_call,
    frames,
    piece,
    so_far,
    stop_of,
    stopped,
    text,
    text_of,
    whole,
)
from tests.support.upstreams.frames import delta, end, start, stop
from tests.support.upstreams.recordings import framed
from tests.support.upstreams.weather import (
    PARIS,
    SERVER_CALL,
    THINKING,
    WEATHER,
    recorded_turn,
    validate,
)

CLIENTS: list[DialectName] = ["openai", "anthropic"]
both_clients = pytest.mark.parametrize("client", CLIENTS)

SEARCHED = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def fails(body: bytes, upstream: DialectName, client: DialectName) -> tuple[Answer, Watch]:
    """The answer ends in an error: the SDK raises it in every way of streaming, and the frames have
    one error as their end."""
    watch = Watch()
    answer = Answer(upstream, client, policies=[watch]).feed(body)
    assert answer.session.state == "FAILED"
    kind: Any = openai.APIError if client == "openai" else anthropic.APIError
    for way in WAYS[client][True]:
        with pytest.raises(kind):
            direct.read(client, way, answer.data)
    values = [value for _, value in payloads(answer.data)]
    assert [n for n, v in enumerate(values) if isinstance(v, dict) and v.get("error")] == [
        len(values) - 1
    ]
    assert not [
        v for v in values if v == "[DONE]" or v.get("type") in ("message_delta", "message_stop")
    ]
    assert not [c for v in values for c in v.get("choices") or () if c["finish_reason"]]
    if client == "anthropic":
        check_messages_frames(answer.data)
    return answer, watch


@both_clients
def test_case_01_client_then_server_tool(client: DialectName) -> None:
    note = {"noteId": "d10aa585"}
    body = frames(
        began(),
        *text(0, "I look."),
        *client_call(1, "toolu_1", "readNoteTree", note),
        start(2, **SERVER_CALL),
        delta(2, "input_json_delta", partial_json='{"query": "add bullet'),
        delta(2, "input_json_delta", partial_json='", "limit": 5}'),
        stop(2),
        *end("tool_use"),
    )
    for _, said, watch in every_way("anthropic", client, body):
        assert calls_of(said) == [("toolu_1", "readNoteTree", note)]
        assert stop_of(said) == stopped(client, "tool_calls", "tool_use")
        assert watch.calls == [
            ("readNoteTree", "client", note),
            ("tool_search_tool_bm25", "provider", {"query": "add bullet", "limit": 5}),
        ]


@both_clients
def test_case_02_a_result_block_after_a_tool_leaves_its_arguments_alone(
    client: DialectName,
) -> None:
    body = frames(
        began(),
        start(0, **SERVER_CALL | {"name": "web_search"}),
        delta(0, "input_json_delta", partial_json='{"query": "x"}'),
        stop(0),
        *client_call(1, "toolu_1", "weather", PARIS),
        *whole(2, SEARCHED),
        *end("tool_use"),
    )
    for answer, said, _ in every_way("anthropic", client, body):
        assert calls_of(said) == [("toolu_1", "weather", PARIS)]
        if client == "openai" and answer.session.request and answer.session.request.stream:
            # the exact text, to which others add a stray {}
            [call] = direct.read("openai", "iterate", answer.data)["calls"]
            assert call["arguments"] == json.dumps(PARIS)


@both_clients
def test_case_03_tool_calls_behind_text_are_numbered_from_0(client: DialectName) -> None:
    body = frames(
        began(),
        *text(0, "Both."),
        *client_call(1, "toolu_1", "weather", PARIS),
        *client_call(2, "toolu_2", "weather", {"city": "Rome"}),
        *end("tool_use"),
    )
    # the official helper raises IndexError where the first index is 1
    for _, said, _ in every_way("anthropic", client, body):
        assert calls_of(said) == [
            ("toolu_1", "weather", PARIS),
            ("toolu_2", "weather", {"city": "Rome"}),
        ]
        assert text_of(said) == "Both."


@both_clients
def test_case_04_interleaved_arguments_of_parallel_calls(client: DialectName) -> None:
    body = chunks(
        {"role": "assistant", "content": None},
        piece(0, "", "call_a", "weather"),
        piece(1, "", "call_b", "weather"),
        piece(0, '{"city":'),
        piece(1, '{"city"'),
        piece(0, ' "Paris"}'),
        piece(1, ': "Rome"}'),
    )
    for answer, said, _ in every_way("openai", client, body):
        assert calls_of(said) == [
            ("call_a", "weather", PARIS),
            ("call_b", "weather", {"city": "Rome"}),
        ]
        if client == "anthropic" and answer.session.request and answer.session.request.stream:
            # one block open at a time: Claude Code fails otherwise
            check_messages_frames(answer.data)


READ = {"cache_read_input_tokens": 20}


@pytest.mark.parametrize(
    ("at_start", "at_end", "want"),
    [
        ({"input_tokens": 10, "output_tokens": 1}, {"output_tokens": 7}, (10, 7, 0)),
        (
            {"input_tokens": 10, "output_tokens": 1},
            {"input_tokens": 61, "output_tokens": 2},
            (61, 2, 0),
        ),
        (
            {"input_tokens": 0, "output_tokens": 0},
            {"input_tokens": 61, "output_tokens": 2},
            (61, 2, 0),
        ),
        (
            {"input_tokens": 3, "output_tokens": 1, **READ, "cache_creation_input_tokens": 4},
            {"output_tokens": 9},
            (27, 9, 20),
        ),
        (
            {"input_tokens": 3, "output_tokens": 1, **READ},
            {"output_tokens": 9, **READ},
            (23, 9, 20),
        ),
    ],
)
@both_clients
def test_case_05_the_last_word_about_usage_counts(
    client: DialectName,
    at_start: dict[str, int],
    at_end: dict[str, int],
    want: tuple[int, int, int],
) -> None:
    stop_frame = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": at_end,
    }
    body = frames(began(usage=at_start), *text(0, "Hi"), stop_frame, {"type": "message_stop"})
    for _, said, _ in every_way("anthropic", client, body):
        usage = said["usage"]
        if client == "openai":
            got = usage["prompt_tokens"], usage["completion_tokens"], usage["cached_tokens"]
            assert usage["total_tokens"] == got[0] + got[1]
        else:
            cached = usage["cache_read_input_tokens"]
            got = (
                usage["input_tokens"] + cached + usage["cache_creation_input_tokens"],
                usage["output_tokens"],
                cached,
            )
        assert got == want


ERROR = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
BROKEN: dict[str, tuple[DialectName, bytes]] = {
    "anthropic error": (
        "anthropic",
        frames(began(), *text(0, "So far. ")) + b"event: error\ndata: " + as_json(ERROR) + b"\n\n",
    ),
    "anthropic cut": ("anthropic", frames(began(), *text(0, "So far. "))),
    "anthropic cut in a block": ("anthropic", frames(began(), *text(0, "So far. ")[:2])),
    "openai error": (
        "openai",
        chunks({"content": "So far. "}, finish=None, done=False)
        + b'data: {"error":{"message":"Overloaded","type":"server_error"}}\n\n',
    ),
    "openai cut": ("openai", chunks({"content": "So far. "}, finish=None, done=False)),
    "openai done without a finish": ("openai", chunks({"content": "So far. "}, finish=None)),
}


@both_clients
@pytest.mark.parametrize("name", BROKEN)
def test_case_06_an_error_in_the_middle_is_the_end(name: str, client: DialectName) -> None:
    upstream, body = BROKEN[name]
    answer, _ = fails(body, upstream, client)
    assert so_far(answer.data, client) == "So far. "


@both_clients
def test_case_07_a_paused_turn(client: DialectName) -> None:
    container = {"id": "container_1", "expires_at": "2099-01-01T00:00:00Z"}
    search = SERVER_CALL | {"name": "web_search", "input": {"query": "x"}}
    first = frames(
        began(usage={"input_tokens": 10, "output_tokens": 1}),
        *whole(0, THINKING),
        *text(1, "Searching. "),
        *whole(2, search),
        *end("pause_turn", container=container),
    )
    second = frames(
        began(usage={"input_tokens": 20, "output_tokens": 1}),
        *whole(0, SEARCHED),
        *text(1, "Found."),
        *end(),
    )
    for way in WAYS[client][True]:
        answer = Answer("anthropic", client, policies=[Watch()]).feed(first)
        if client == "anthropic":
            assert answer.read(way)["stop_reason"] == "pause_turn"
            continue
        assert answer.session.state == "ACTIVE"
        asked, again = answer.dispatched
        assert again["messages"] == [
            *asked["messages"],
            {
                "role": "assistant",
                "content": [THINKING, {"type": "text", "text": "Searching. "}, search],
            },
        ]
        assert again["container"] == "container_1"
        said = answer.feed(second).read(way)
        assert (said["content"], said["finish"], said["calls"]) == ("Searching. Found.", "stop", [])
        assert (said["usage"]["prompt_tokens"], said["usage"]["completion_tokens"]) == (30, 6)


SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "result", "schema": SCHEMA}}


def asked_for_json(model: str, body: bytes, *, streams: bool = True) -> Answer:
    answer = Answer(
        "anthropic",
        "openai",
        model=model,
        streams=streams,
        response_format=FORMAT,
        tools=[WEATHER["openai"]],
    )
    assert not answer.refused
    return answer.feed(body, streams=streams)


def internal_tool(model: str) -> str:
    """The tool that stands for the schema, on models that have none of their own."""
    asked = Answer(
        "anthropic", "openai", model=model, response_format=FORMAT, tools=[WEATHER["openai"]]
    ).dispatched[0]
    validate(asked)
    names = [t["name"] for t in asked["tools"]]
    assert "weather" in names
    return next((n for n in names if n != "weather"), "")


@pytest.mark.parametrize(
    ("model", "is_native"), [("claude-sonnet-4-5", True), ("claude-3-haiku-20240307", False)]
)
def test_case_09_a_schema_and_tools_in_one_request(model: str, is_native: bool) -> None:
    inner = internal_tool(model)
    assert is_native == (inner == "")
    called = frames(began(), *client_call(0, "toolu_1", "weather", PARIS), *end("tool_use"))
    value = {"answer": 42}
    said_it = client_call(0, "toolu_9", inner, value) if inner else text(0, json.dumps(value))
    answered = frames(began(), *said_it, *end("tool_use" if inner else "end_turn"))
    for way in WAYS["openai"][True]:
        said = asked_for_json(model, called).read(way)
        assert (calls_of(said), said["finish"], said["content"]) == (
            [("toolu_1", "weather", PARIS)],
            "tool_calls",
            "",
        )
        answer = asked_for_json(model, answered)
        said = answer.read(way)
        assert (json.loads(said["content"]), said["finish"], said["calls"]) == (value, "stop", [])
        assert not inner or inner.encode() not in answer.data


@pytest.mark.parametrize("pieces", [(), ("",)], ids=["no delta", "an empty delta"])
@both_clients
def test_case_10_a_call_without_input_has_an_empty_object(
    client: DialectName, pieces: tuple[str, ...]
) -> None:
    deltas = [delta(1, "input_json_delta", partial_json=p) for p in pieces]
    block = start(1, type="tool_use", id="toolu_1", name="refresh", input={})
    body = frames(began(), *text(0, "I refresh."), block, *deltas, stop(1), *end("tool_use"))
    for answer, said, watch in every_way("anthropic", client, body):
        assert calls_of(said) == [("toolu_1", "refresh", {})]
        assert watch.calls == [("refresh", "client", {})]
        if client == "openai" and answer.session.request and answer.session.request.stream:
            assert direct.read("openai", "iterate", answer.data)["calls"][0]["arguments"] == "{}"


def in_one(**call: Any) -> bytes:
    """A call, the finish reason and the usage in one chunk, as Mistral sends them."""
    function = {"name": "weather", "arguments": json.dumps(PARIS)}
    choice = {
        "index": 0,
        "delta": {"content": "", "tool_calls": [{"id": "D681PevKs", "function": function, **call}]},
        "finish_reason": "tool_calls",
    }
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
    first = {
        "id": "m",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "mistral",
        "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        ],
    }
    return framed(
        "openai", [json.dumps(first), json.dumps({**first, "choices": [choice], "usage": usage})]
    )


@both_clients
def test_case_11_a_call_its_arguments_and_the_finish_in_one_chunk(client: DialectName) -> None:
    for _, said, _ in every_way("openai", client, in_one(index=0)):
        assert calls_of(said) == [("D681PevKs", "weather", PARIS)]
        assert stop_of(said) == stopped(client, "tool_calls", "tool_use")
        assert (said["usage"].get("completion_tokens") or said["usage"].get("output_tokens")) == 3


@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
@both_clients
def test_case_12_a_call_that_ends_with_stop_behind_empty_content(
    client: DialectName, finish: str
) -> None:
    body = chunks(
        {"role": "assistant", "content": ""},
        {"content": ""},
        piece(0, json.dumps(PARIS), "call_a", "weather"),
        finish=finish,
    )
    for _, said, _ in every_way("openai", client, body):
        assert calls_of(said) == [("call_a", "weather", PARIS)]
        # a client of the same dialect hears the vendor's own word, as it would directly
        assert stop_of(said) == stopped(client, finish, "tool_use")
        if client == "anthropic":
            assert [b["type"] for b in said["blocks"]] == ["tool_use"]
        else:
            assert said["content"] == ""


def opened(identity: str) -> Json:
    return began(id=identity)


@both_clients
def test_case_14_another_message_inside_an_open_call_releases_neither(client: DialectName) -> None:
    half = [
        start(0, type="tool_use", id="toolu_1", name="weather", input={}),
        delta(0, "input_json_delta", partial_json='{"city": "Par'),
    ]
    body = frames(
        opened("msg_1"),
        *half,
        opened("msg_2"),
        *client_call(0, "toolu_2", "weather", PARIS),
        *end("tool_use"),
    )
    answer, watch = fails(body, "anthropic", client)
    assert b"toolu_" not in answer.data and b"Par" not in answer.data
    assert watch.calls == []


@both_clients
def test_case_14_the_same_message_beginning_again_changes_nothing(client: DialectName) -> None:
    body = frames(
        opened("msg_1"),
        opened("msg_1"),
        *client_call(0, "toolu_1", "weather", PARIS),
        *end("tool_use"),
    )
    for _, said, _ in every_way("anthropic", client, body):
        assert calls_of(said) == [("toolu_1", "weather", PARIS)]


COMPLETE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": PARIS}
BORN_WHOLE = {
    "at its start": frames(began(), *whole(0, COMPLETE), *end("tool_use")),
    "inside message_start": frames(
        began(content=[COMPLETE], stop_reason="tool_use"), {"type": "message_stop"}
    ),
}


@pytest.mark.parametrize("name", BORN_WHOLE)
@both_clients
def test_case_15_a_call_that_comes_complete_reaches_policy_and_client(
    client: DialectName, name: str
) -> None:
    for _, said, watch in every_way("anthropic", client, BORN_WHOLE[name]):
        assert calls_of(said) == [("toolu_1", "weather", PARIS)]
        assert stop_of(said) == stopped(client, "tool_calls", "tool_use")
        assert watch.calls == [("weather", "client", PARIS)]
    for answer, said, _ in every_way("anthropic", client, BORN_WHOLE[name], deny="Paris"):
        assert calls_of(said) == [] and b"Paris" not in answer.data
        assert answer.verdicts == [("weather", "block")]


@both_clients
def test_case_16_a_rejected_call_in_an_error_does_not_leak(client: DialectName) -> None:
    error = {
        "message": "tool call validation failed: parameters for tool wipe_disk",
        "type": "invalid_request_error",
        "code": "tool_use_failed",
        "failed_generation": '{"name": "wipe_disk", "arguments": {"path": "/"}}',
        "status_code": 400,
    }
    head = chunks({"role": "assistant", "reasoning": "Hm."}, finish=None, done=False)
    answer, watch = fails(
        head + b"event: error\ndata: " + as_json({"error": error}) + b"\n\n",
        "openai",
        client,
    )
    assert b"failed_generation" not in answer.data and b"wipe_disk" not in answer.data
    assert watch.calls == []


@both_clients
def test_case_17_calls_without_index(client: DialectName) -> None:
    for _, said, _ in every_way("openai", client, in_one()):
        assert calls_of(said) == [("D681PevKs", "weather", PARIS)]
    body = chunks(
        {"role": "assistant", "content": ""},
        {
            "tool_calls": [
                *piece(None, '{"city": "Paris"}', "a1", "weather")["tool_calls"],
                *piece(None, '{"city": "Rome"}', "b2", "weather")["tool_calls"],
            ]
        },
    )
    answer = Answer("openai", client, policies=[watch := Watch()]).feed(body)
    for way in WAYS[client][True]:
        assert calls_of(answer.read(way)) == [
            ("a1", "weather", PARIS),
            ("b2", "weather", {"city": "Rome"}),
        ]
    assert len(watch.calls) == 2


@pytest.mark.parametrize("why", ["This request asks for malware.", ""])
@both_clients
def test_case_18_a_refusal_without_a_block(client: DialectName, why: str) -> None:
    details = (
        {"stop_details": {"type": "refusal", "category": "cyber", "explanation": why}}
        if why
        else {}
    )
    body = frames(began(usage={"input_tokens": 18, "output_tokens": 1}), *end("refusal", **details))
    for _, said, _ in every_way("anthropic", client, body):
        assert (text_of(said), calls_of(said)) == ("", [])
        assert stop_of(said) == stopped(client, "content_filter", "refusal")
        if client == "openai":
            assert said["refusal"] == why


@both_clients
def test_case_19_a_call_cut_by_max_tokens_is_never_approved(client: DialectName) -> None:
    half = [
        start(1, type="tool_use", id="toolu_1", name="make_file", input={}),
        delta(1, "input_json_delta", partial_json='{"lines": ["a", "b'),
    ]
    body = frames(began(), *text(0, "I write."), *half, stop(1), *end("max_tokens"))
    for answer, said, watch in every_way("anthropic", client, body, streams_only=True):
        assert calls_of(said) == [] and text_of(said).startswith("I write.")
        assert stop_of(said) == stopped(client, "length", "max_tokens")
        assert watch.calls == []
        assert answer.verdicts == [("make_file", "block")]


@both_clients
def test_case_19_the_same_from_the_other_dialect(client: DialectName) -> None:
    body = chunks(
        {"role": "assistant", "content": "I write."},
        piece(0, '{"lines": ["a", "b', "call_a", "make_file"),
        finish="length",
    )
    for answer, said, watch in every_way("openai", client, body, streams_only=True):
        assert calls_of(said) == [] and text_of(said).startswith("I write.")
        assert stop_of(said) == stopped(client, "length", "max_tokens")
        assert watch.calls == []
        assert answer.verdicts == [("make_file", "block")]


INTERLEAVED: list[Json] = [
    THINKING,
    SERVER_CALL | {"name": "web_search", "input": {"query": "x"}},
    SEARCHED,
    THINKING | {"thinking": "Now the weather.", "signature": "c2Vjb25k"},
    {"type": "text", "text": "I ask."},
    COMPLETE,
]


def test_case_20_thinking_between_tools_keeps_its_place() -> None:
    body = frames(
        began(),
        *(f for n, block in enumerate(INTERLEAVED) for f in whole(n, block)),
        *end("tool_use"),
    )
    for way in WAYS["anthropic"][True]:
        answer = Answer("anthropic", "anthropic", policies=[Watch()]).feed(body)
        assert (
            direct.read("anthropic", way, answer.data)["content"]
            == direct.read("anthropic", way, body)["content"]
        )
    assert recorded_turn(body).content() == INTERLEAVED
    for _, said, _ in every_way("anthropic", "openai", body):
        assert (said["reasoning"], said["content"]) == ("Let me see.Now the weather.", "I ask.")
        assert calls_of(said) == [("toolu_1", "weather", PARIS)]


def test_case_20_reasoning_between_the_parts_of_a_completion_keeps_its_place() -> None:
    body = chunks(
        {"reasoning_content": "First."},
        {"content": "One."},
        {"reasoning_content": "Then."},
        {"content": "Two."},
        finish="stop",
    )
    answer = Answer("openai", "anthropic", policies=[Watch()]).feed(body)
    for way in WAYS["anthropic"][True]:
        blocks = answer.read(way)["blocks"]
        assert [b.get("thinking") or b.get("text") for b in blocks] == [
            "First.",
            "One.",
            "Then.",
            "Two.",
        ]
        # no signature is forged
        assert not any("signature" in b for b in blocks)


@both_clients
def test_case_21_an_error_beside_choices_is_an_error(client: DialectName) -> None:
    last = {
        "id": "gen-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "error": {"code": 502, "message": "Token limit reached", "metadata": {"raw": "secret"}},
        "choices": [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": " and more"},
                "finish_reason": "error",
            }
        ],
    }
    body = (
        b": OPENROUTER PROCESSING\n\n"
        + chunks({"content": "So far."}, finish=None, done=False)
        + framed("openai", [json.dumps(last)])
    )
    answer, _ = fails(body, "openai", client)
    assert so_far(answer.data, client) in ("So far.", "So far. and more")
    assert b"secret" not in answer.data
