"""Responses streams to events: what is said again is compared, what is not known is withheld, and
nothing is found by ids."""

import json
from typing import Any

import pytest

from policy.base import JudgeQuestion
from protocol import codecs
from protocol.bounds import MAX_BLOCKS
from protocol.dialects.base import JudgeReply
from protocol.dialects.table import DIALECTS
from protocol.errors import RemoteProtocolError
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
    RawDelta,
    SignatureDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
)
from tests.support.json_values import Json, as_json
from tests.support.upstreams.responses import (
    events,
    frames,
    function_call,
    message,
    reasoning,
    response,
)
from workers.judge.request_forms import Asking, Known, reply_text, request_body

Made = list[Json]
CUSTOM = {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": 'SELECT "é\\"'}


def decode(made: Made, unknown: frozenset[str] = frozenset()) -> list[Event]:
    decoder = DIALECTS["responses"].decoder(unknown)
    found = [event for one in made for event in decoder.feed(frames([one]))]
    return found + decoder.finish()


def only(found: list[Event], kind: type) -> list[Any]:
    return [e for e in found if isinstance(e, kind)]


def said(found: list[Event]) -> dict[int, str]:
    """The text or arguments of each block."""
    texts = dict.fromkeys((e.index for e in only(found, BlockStart)), "")
    for event in found:
        if isinstance(event, TextDelta | ArgumentsDelta):
            texts[event.index] += event.text
    return texts


def at(made: Made, kind: str, last: bool = False) -> Json:
    """The first (or last) event of a type."""
    found = [e for e in made if e["type"] == f"response.{kind}"]
    return found[-1 if last else 0]


def test_an_answer_of_all_kinds() -> None:
    found = decode(
        events(
            [
                reasoning("gAAA", "One.", "Two."),
                message("Hello you", phase="commentary"),
                function_call("c", "f", '{"a":1}'),
                CUSTOM,
            ]
        )
    )
    starts = only(found, BlockStart)
    assert [s.kind.value for s in starts] == [
        "thinking",
        "thinking",
        "text",
        "tool_use",
        "tool_use",
    ]
    assert list(said(found).values()) == [
        "One.",
        "Two.",
        "Hello you",
        '{"a":1}',
        '{"input":"SELECT \\"é\\\\\\""}',
    ]
    assert [s.body for s in starts[:3]] == [
        {"item": 0, "part": "summary_text"},
        {"item": 0, "part": "summary_text"},
        {"item": 1, "phase": "commentary"},
    ]
    # sealed with its last part, once
    assert only(found, SignatureDelta) == [SignatureDelta(1, "gAAA")]
    assert [(s.id, s.name) for s in starts[3:]] == [("c", "f"), ("c1", "sql")]
    assert [e.index for e in only(found, BlockStop)] == [0, 1, 2, 3, 4] and not only(found, Opaque)
    [stop] = only(found, MessageStop)
    usage = stop.usage
    assert stop.stop_reason is StopReason.TOOL_USE and stop.extra["native_stop"] == "completed"
    assert (
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.thinking_tokens,
    ) == (
        15,
        10,
        5,
        9,
        4,
    )


def test_a_whole_answer_is_the_streams() -> None:
    items = [reasoning("gAAA", "One."), message("Hello"), function_call("c", "f", "{}"), CUSTOM]
    streamed, whole = (
        decode(events(items)),
        codecs.decode_whole("responses", as_json(response(items))),
    )
    assert said(streamed) == said(whole) and only(streamed, MessageStop) == only(whole, MessageStop)
    assert [(s.kind, s.id, s.name, s.body) for s in only(streamed, BlockStart)] == [
        (s.kind, s.id, s.name, s.body) for s in only(whole, BlockStart)
    ]


@pytest.mark.parametrize(
    "event", ["output_text.done", "content_part.done", "output_item.done", "completed"]
)
def test_more_at_an_end_goes_the_way_of_a_delta(event: str) -> None:
    made = json.loads(json.dumps(events([message("Hello")])))
    for one in made[[e["type"] for e in made].index(f"response.{event}") :]:
        longer(one)
    found = decode(made)
    assert "".join(said(found).values()) == "Hello, more" and only(found, MessageStop)
    # behind the item's end it is a block of its own
    assert len(only(found, BlockStart)) == (2 if event == "completed" else 1)


def longer(event: Json, text: str = "Hello, more") -> None:
    match event["type"].removeprefix("response."):
        case "output_text.done":
            event["text"] = text
        case "content_part.done":
            event["part"]["text"] = text
        case "output_item.done":
            event["item"]["content"][0]["text"] = text
        case "completed":
            event["response"]["output"][0]["content"][0]["text"] = text


@pytest.mark.parametrize(
    "event", ["output_text.done", "content_part.done", "output_item.done", "completed"]
)
def test_another_text_at_an_end_is_refused(event: str) -> None:
    made = json.loads(json.dumps(events([message("Hello")])))
    longer(at(made, event), "Help")
    with pytest.raises(RemoteProtocolError, match="differs from what it sent before"):
        decode(made)


@pytest.mark.parametrize("event", ["function_call_arguments.done", "output_item.done", "completed"])
def test_other_arguments_at_an_end_are_refused(event: str) -> None:
    made = json.loads(json.dumps(events([function_call("c", "f", '{"a":1}')])))
    one = at(made, event)
    body = (
        one["item"] if "item" in one else one["response"]["output"][0] if "response" in one else one
    )
    body["arguments"] = '{"a":2}'
    with pytest.raises(RemoteProtocolError):
        decode(made)


def test_nothing_is_added_to_a_call_that_ended() -> None:
    made = json.loads(json.dumps(events([function_call("c", "f", '{"a":1}')])))
    at(made, "completed")["response"]["output"][0]["arguments"] = '{"a":1} '
    with pytest.raises(RemoteProtocolError, match="after its end"):
        decode(made)


def test_a_call_has_one_name() -> None:
    made = json.loads(json.dumps(events([function_call("c", "f", "{}")])))
    at(made, "output_item.done")["item"]["name"] = "g"
    with pytest.raises(RemoteProtocolError, match="two names"):
        decode(made)


def test_a_call_without_its_end_is_none() -> None:
    made = json.loads(json.dumps(events([function_call("c", "f", "{}")])))
    at(made, "completed")["response"]["output"] = []
    with pytest.raises(RemoteProtocolError, match="call open"):
        decode([e for e in made if e["type"] != "response.output_item.done"])


def test_ids_numbers_names_of_events_and_comments_mean_nothing() -> None:
    made = events([message("Hello you"), function_call("c", "f", '{"a":1}')])
    plain = decode(made)
    changed = json.loads(json.dumps(made))
    for number, event in enumerate(changed):
        event.pop("sequence_number")
        for holder in (event, event.get("item") or {}, event.get("response") or {}):
            for name in ("id", "item_id"):
                if name in holder:
                    holder[name] = f"new_{number}"
    decoder = DIALECTS["responses"].decoder()
    found: list[Event] = []
    for event in changed:
        found += decoder.feed(b": PROCESSING\n\n") + decoder.feed(b"data: %s\n\n" % as_json(event))
    found += decoder.feed(b"data: [DONE]\n\n") + decoder.finish()
    assert found[1:] == plain[1:] and isinstance(found[0], MessageStart)


def test_halves_of_a_character() -> None:
    made = json.loads(json.dumps(events([message("😀!")])))
    first, second = (e for e in made if e["type"] == "response.output_text.delta")
    first["delta"], second["delta"] = "\ud83d", "\ude00!"
    found = decode(made)
    assert (
        "".join(said(found).values()).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        == "😀!"
    )


# --- what is not known ---


def test_what_is_not_modelled_is_withheld_by_its_name() -> None:
    strange = {"type": "crystal_ball_call", "secret": "x"}
    odd = function_call("c", "f", "{}", new_field="x")
    made = events(
        [
            strange,
            odd,
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "hologram", "data": "x"}],
            },
        ][:2]
    )
    made.insert(2, {"type": "response.crystal.delta", "delta": "x"})
    made[3]["new"] = "x"
    found = decode(made)
    assert [o.what for o in only(found, Opaque)] == [
        "event response.crystal.delta",
        "event field new",
        "item crystal_ball_call",
        "function_call field new_field",
    ]
    assert '"x"' not in str(only(found, BlockStart)) and only(found, MessageStop)


def test_what_is_no_word_is_in_no_field_of_a_call() -> None:
    prose = "call the police: they are here"
    items = [
        function_call("c", "f", "{}", caller={"type": prose}),
        {
            "type": "computer_call",
            "call_id": "d",
            "action": {"type": "wait"},
            "pending_safety_checks": [{"message": prose}],
        },
        {"type": "program", "call_id": "p", "code": "x", "fingerprint": prose},
        {
            "type": "mcp_approval_request",
            "id": "m",
            "name": "f",
            "server_label": prose,
            "arguments": "{}",
        },
        message("hi", phase=prose),
    ]
    found = decode(events(items))
    assert prose not in str(only(found, BlockStart)) and len(only(found, Opaque)) == 5
    sealed = {"type": "program", "call_id": "p", "code": "x", "fingerprint": "gAAA" * 200}
    assert only(decode(events([sealed])), BlockStart)[0].body["fingerprint"] == "gAAA" * 200


def test_a_part_that_is_not_modelled() -> None:
    made = events([message("Hello")])
    part = {"type": "hologram", "data": "x"}
    made.insert(
        7,
        {
            "type": "response.content_part.added",
            "output_index": 0,
            "content_index": 1,
            "part": part,
        },
    )
    assert [o.what for o in only(decode(made), Opaque)] == ["part hologram"]


def test_what_the_setting_names_passes_raw() -> None:
    made = events([message("Hello")])
    made.insert(3, {"type": "response.crystal.delta", "delta": "x"})
    [raw] = only(decode(made, frozenset(("event response.crystal.delta",))), RawDelta)
    assert (raw.index, raw.dialect, raw.body["delta"]) == (-1, "responses", "x")


@pytest.mark.parametrize(("token", "is_kept"), [("He", True), ("He said", False)])
@pytest.mark.parametrize("whole", [True, False])
def test_log_probabilities_repeat_the_text_alone(token: str, is_kept: bool, whole: bool) -> None:
    entries = [
        {
            "token": token,
            "logprob": -0.1,
            "bytes": list(token.encode()),
            "top_logprobs": [{"token": "Ho", "logprob": -2}],
        }
    ]
    if whole:
        item = message("He")
        item["content"][0]["logprobs"] = entries
        found = codecs.decode_whole("responses", as_json(response([item])))
    else:
        made = json.loads(json.dumps(events([message("Hey!")])))
        at(made, "output_text.delta")["logprobs"] = entries
        found = decode(made)
    kept = [e.value for e in only(found, AttachmentDelta)]
    assert kept == ([{"content": entries}] if is_kept else []) and [
        o.what for o in only(found, Opaque)
    ] == ([] if is_kept else ["logprobs"])


# --- calls of the provider's ---


def test_a_call_of_a_server_is_told_while_it_runs() -> None:
    item = {
        "type": "mcp_call",
        "name": "f",
        "server_label": "box",
        "arguments": '{"a":1}',
        "output": "found",
        "error": None,
    }
    made = events([item])
    begun = {"type": "response.mcp_call_arguments.done", "output_index": 0, "arguments": '{"a":1}'}
    found = decode([*made[:3], begun])
    call = only(found, BlockStart)[0]
    assert (call.name, call.body) == ("f", {"type": "mcp_call", "server_label": "box"}) and said(
        found
    ) == {0: '{"a":1}'}
    assert only(decode([*made[:3], begun, *made[3:]]), BlockStart)[1].body["output"] == "found"
    with pytest.raises(RemoteProtocolError, match="differs from what it sent before"):
        decode([*made[:3], begun | {"arguments": "{}"}, *made[3:]])
    for field in ("name", "server_label"):
        with pytest.raises(RemoteProtocolError, match="two names"):
            decode(
                [
                    *made[:3],
                    begun,
                    {**made[3], "item": {**made[3]["item"], field: "another"}},
                    *made[4:],
                ]
            )


def test_a_question_has_not_run() -> None:
    item = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "name": "f",
        "server_label": "box",
        "arguments": "{}",
    }
    found = decode(events([item]))
    [asked] = only(found, BlockStart)
    assert (asked.kind, asked.id) == (BlockKind.TOOL_USE, "mcpr_1")
    assert asked.body == {
        "executor": "mcp_pending",
        "item": "mcp_approval_request",
        "server_label": "box",
    }
    assert only(found, MessageStop)[0].stop_reason is StopReason.END_TURN


@pytest.mark.parametrize(
    ("more", "tools", "kind"),
    [
        ({}, [], BlockKind.TOOL_USE),
        ({"environment": {"type": "local"}}, [], BlockKind.TOOL_USE),
        (
            {"environment": {"type": "container_reference", "container_id": "c"}},
            [],
            BlockKind.SERVER_TOOL_USE,
        ),
        (
            {},
            [{"type": "shell", "environment": {"type": "container_auto"}}],
            BlockKind.SERVER_TOOL_USE,
        ),
    ],
)
def test_who_runs_a_shell(more: Json, tools: list[Any], kind: BlockKind) -> None:
    item = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}, **more}
    made = json.loads(json.dumps(events([item])))
    made[0]["response"]["tools"] = tools
    found = decode(made)
    assert [(b.kind, b.id, b.name) for b in only(found, BlockStart)] == [
        (kind, "c", "shell")
    ] and said(found) == {0: '{"commands":["ls"]}'}


# --- endings ---


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_output_tokens", StopReason.MAX_TOKENS),
        ("content_filter", StopReason.REFUSAL),
        ("steered", StopReason.MAX_TOKENS),
    ],
)
def test_incomplete_answers(reason: str, stop: StopReason) -> None:
    found = decode(
        events(
            [message("Hel", status="incomplete")],
            "incomplete",
            incomplete_details={"reason": reason},
        )
    )
    [end] = only(found, MessageStop)
    assert (end.stop_reason, end.extra["native_stop"]) == (stop, reason)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            {"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None},
            "rate_limit_error",
        ),
        (
            {
                "type": "error",
                "error": {
                    "type": "insufficient_quota",
                    "code": "insufficient_quota",
                    "message": "slow",
                },
            },
            "billing_error",
        ),
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "server_error", "message": "slow"}},
            },
            "api_error",
        ),
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "invalid_prompt", "message": "slow"}},
            },
            "invalid_request_error",
        ),
        (
            {
                "type": "response.completed",
                "response": response((), "failed", error={"code": "x", "message": "slow"}),
            },
            "api_error",
        ),
        ({"type": "response.completed", "response": response((), "cancelled")}, "api_error"),
    ],
)
def test_failures_are_one_error(error: Json, kind: str) -> None:
    failed = {
        "type": "response.failed",
        "response": {"status": "failed", "error": {"code": "server_error", "message": "again"}},
    }
    found = decode([*events([])[:2], error, *([failed] if error["type"] == "error" else [])])
    [end] = only(found, UpstreamFailed)
    assert (
        end.kind == kind
        and (end.message == "slow" or "cancelled" in str(error))
        and found[-1] is end
        and not only(found, MessageStop)
    )


def test_a_stream_without_its_last_event_was_cut() -> None:
    made = events([message("Hello")])
    for end in range(len(made)):
        assert isinstance(decode(made[:end])[-1], UpstreamFailed)
    with_done = DIALECTS["responses"].decoder()
    for one in made[:-1]:
        with_done.feed(frames([one]))
    assert isinstance(with_done.feed(b"data: [DONE]\n\n")[-1], UpstreamFailed)


def test_after_the_end_all_is_withheld() -> None:
    made = events([message("Hello")])
    assert [type(e) for e in decode([*made, *made])[-2:]] == [MessageStop, Opaque]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"output": 1}',
        b'{"output": [], "status": "in_progress"}',
        b'{"output": [1], "status": "odd"}',
        b"{" * 99_999,
    ],
)
def test_whole_answers_that_are_none(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        codecs.decode_whole("responses", body)


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"{",
        b'{"type":1}',
        b'{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":1}',
    ],
)
def test_events_that_are_none(data: bytes) -> None:
    decoder = DIALECTS["responses"].decoder()
    for one in events([message("Hello")])[:5]:
        decoder.feed(frames([one]))
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b"data: %s\n\n" % data)
    assert decoder.finish() == []


def test_items_are_bounded() -> None:
    made = [
        {"type": "response.output_item.added", "output_index": n, "item": {"type": "message"}}
        for n in range(MAX_BLOCKS + 1)
    ]
    with pytest.raises(RemoteProtocolError, match="more than"):
        decode(made)


# --- judges ---


@pytest.mark.parametrize("form", DIALECTS["responses"].judge_replies)
def test_a_judge_can_be_asked_over_it(form: JudgeReply) -> None:
    question = JudgeQuestion("judge", "system", "prompt", "nonce", 0.5, None, {})
    asking = Asking(Known(form), (form,), {})
    body = json.loads(request_body("responses", question, asking))
    assert (
        body["model"] == "judge"
        and [i["content"] for i in body["input"]] == ["system", "prompt"]
        and body["store"] is False
    )
    format_ = {"json_schema": "json_schema", "json_object": "json_object"}.get(form)
    assert body.get("text", {}).get("format", {}).get("type") == format_
    assert body.get("tool_choice") == (
        {"type": "function", "name": "judgement"} if form == "tool" else None
    )
    reply = '{"probability": 0.5}'
    item = function_call("c", "judgement", reply) if form == "tool" else message(reply)
    assert reply_text("responses", form, as_json(response([reasoning("gAAA"), item]))) == reply


def test_a_computer_does_nothing_that_is_not_its_arguments() -> None:
    several = [{"type": "keypress", "keys": ["CTRL", "W"]}]
    call = {"type": "computer_call", "call_id": "c", "actions": several}
    found = decode(events([call]))
    (start,) = only(found, BlockStart)
    assert json.loads(said(found)[0]) == {"actions": several} and start.body == {
        "item": "computer_call"
    }
    with pytest.raises(RemoteProtocolError, match="two actions"):
        decode(events([{**call, "action": {"type": "wait"}}]))


def test_a_call_of_a_type_of_its_own_has_no_other_fields() -> None:
    # each would make another call of it when it is written, or another thing to do
    other = {
        "item": "local_shell_call",
        "executor": "mcp_pending",
        "actions": ["rm"],
        "operation": "rm",
        "name": "rm",
        "arguments": "rm",
    }
    call = {
        "type": "shell_call",
        "call_id": "c",
        "action": {"commands": ["ls"]},
        "environment": {"type": "local"},
    }
    found = decode(events([{**call, **other}]))
    (start,) = only(found, BlockStart)
    assert (
        start.body == {"item": "shell_call", "environment": {"type": "local"}}
        and start.name == "shell"
    )
    assert {e.what for e in only(found, Opaque)} == {f"shell_call field {name}" for name in other}
