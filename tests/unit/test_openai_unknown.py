"""Fields of chat/completions that are not modelled: withheld, or let pass by name."""

import json
from typing import Any

import pytest

from protocol import codecs
from protocol.events import (
    Event,
    MessageStart,
    MessageStop,
    RawDelta,
    StopReason,
    Usage,
)
from tests.support.checks.decoding import texts
from tests.support.checks.kinds import of_kind
from tests.support.clients.sdk import openai_answer
from tests.support.json_values import Json, as_json
from tests.support.upstreams.completions import (
    HEAD,
    answers,
    body_of,
    chunk,
    encode,
    opaque,
    stream,
    token,
)

# --- what is not modelled ---


CALL = {"index": 0, "id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
UNKNOWN: list[tuple[str, Json]] = [
    ("field novelty", {**chunk(content="a"), "novelty": ["u"]}),
    (
        "choice field extra",
        {**HEAD, "choices": [{"index": 0, "delta": {"content": "a"}, "extra": {"n": 1}}]},
    ),
    ("delta field novelty", chunk(content="a", novelty="x")),
    ("audio", chunk(content="a", audio={"id": "x", "transcript": "hm"})),
    ("annotations", chunk(content="a", annotations=[{"type": "file", "file": {"name": "n"}}])),
    ("reasoning_details", chunk(content="a", reasoning_details=[{"type": "novel", "odd": 1}])),
    ("logprobs", chunk(content="a", logprobs={"content": [token("b")], "refusal": None})),
    (
        "tool call field extra_content",
        chunk(
            tool_calls=[{**CALL, "extra_content": {"google": {"thought_signature": "some prose"}}}]
        ),
    ),
    (
        "function field odd",
        chunk(tool_calls=[{**CALL, "function": {"name": "f", "arguments": "{}", "odd": 1}}]),
    ),
    (
        "custom tool field odd",
        chunk(
            tool_calls=[
                {
                    "index": 0,
                    "id": "x",
                    "type": "custom",
                    "custom": {"name": "patch", "input": "i", "odd": 1},
                }
            ]
        ),
    ),
    ("function field odd", chunk(function_call={"name": "f", "arguments": "{}", "odd": 1})),
]


def bare(value: Any) -> Any:
    """Without nulls, and without what only streams or only the helper have."""
    if isinstance(value, dict):
        return {
            k: bare(v)
            for k, v in value.items()
            if v is not None and k not in ("index", "parsed_arguments", "parsed")
        }
    return [bare(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("what", "first"), UNKNOWN)
def test_a_named_field_passes_for_the_same_dialect_and_no_other_does(
    what: str, first: Json
) -> None:
    first["choices"][0]["delta"] |= {"role": "assistant"}
    kind = next(
        (k for k in ("tool_calls", "function_call") if k in first["choices"][0]["delta"]), "stop"
    )
    chunks = [first, chunk(kind)]
    assert opaque(stream(*chunks)) == [what]
    assert not of_kind(stream(*chunks, unknown=frozenset(("field other",))), RawDelta)
    events = stream(*chunks, unknown=frozenset((what,)))
    assert [e.what for e in events if isinstance(e, RawDelta)] == [what] and opaque(events) == []
    direct = bare(openai_answer(body_of(*chunks), stream=True).model_dump())
    whole_body = encode(events, stream=False, legacy=kind == "function_call")
    streamed = bare(
        openai_answer(encode(events, legacy=kind == "function_call"), stream=True).model_dump()
    )
    sent = bare(openai_answer(whole_body, stream=False).model_dump())
    if what.startswith(("field", "choice field")):
        # the helper keeps such fields of the first chunk alone; those who iterate see them
        name = what.rpartition(" ")[2]
        piece = json.dumps(
            {name: first.get(name) or first["choices"][0].get(name)}, separators=(",", ":")
        ).encode()[1:-1]
        assert piece in encode(events)
        (streamed if name in direct else streamed["choices"][0])[name] = (
            direct if name in direct else direct["choices"][0]
        )[name]
    for answer in (streamed, sent):
        assert answer["choices"][0].pop("message") | {"content": "a"} == direct["choices"][0][
            "message"
        ] | {"content": "a"}
    direct["choices"][0].pop("message")
    assert streamed == direct and sent == direct


def test_what_comes_before_the_message_waits_for_it() -> None:
    first = {**HEAD, "choices": [], "novelty": 1}
    events = stream(first, chunk(content="a"), chunk("stop"), unknown=frozenset(("field novelty",)))
    assert isinstance(events[0], MessageStart) and isinstance(events[1], RawDelta)
    assert json.loads(encode(events, stream=False))["novelty"] == 1


def test_fields_of_a_call_follow_its_number_and_its_fate() -> None:
    calls = [{**CALL, "index": n, "id": f"x{n}", "extra_content": {"n": n}} for n in (1, 2)]
    events = stream(
        chunk(tool_calls=calls),
        chunk("tool_calls"),
        unknown=frozenset(("tool call field extra_content",)),
    )
    for choice in answers(events):
        assert [c.extra_content["n"] for c in choice.message.tool_calls] == [1, 2]
    blocked = [e for e in events if getattr(e, "index", None) != 0 or isinstance(e, RawDelta)]
    for choice in answers(blocked):
        assert [c.extra_content["n"] for c in choice.message.tool_calls] == [2]
    assert b"extra_content" not in encode(events, legacy=True)
    other = {**CALL, "type": "novel", "extra_content": {"n": "secret"}}
    assert opaque(
        stream(
            chunk(tool_calls=[other]),
            chunk("stop"),
            unknown=frozenset(("tool call field extra_content",)),
        )
    ) == [
        "tool call of another type",
        "tool call field extra_content",
    ]


def test_fields_of_a_call_wait_for_its_verdict() -> None:
    calls = [{**CALL, "index": n, "id": f"x{n}", "extra_content": {"n": n}} for n in (1, 2)]
    events = stream(
        chunk(tool_calls=calls),
        chunk("tool_calls"),
        unknown=frozenset(("tool call field extra_content",)),
    )
    first: list[Event] = [
        *of_kind(events, MessageStart),
        *of_kind(events, RawDelta),
    ]
    rest = [e for e in events if not isinstance(e, MessageStart | RawDelta)]
    for choice in answers([*first, *rest]):
        assert [c.extra_content["n"] for c in choice.message.tool_calls] == [1, 2]
    for choice in answers([*first, *[e for e in rest if getattr(e, "index", None) != 1]]):
        assert [c.extra_content["n"] for c in choice.message.tool_calls] == [1]


def test_fields_of_another_choice_never_pass() -> None:
    other = {**HEAD, "choices": [{"index": 1, "delta": {"novelty": "secret"}, "odd": "secret"}]}
    names = frozenset(("delta field novelty", "choice field odd", "choice"))
    assert of_kind(stream(chunk(content="a"), other, chunk("stop"), unknown=names), RawDelta) == []
    twice = {
        **HEAD,
        "choices": [{"message": {"content": t}, "finish_reason": "stop"} for t in ("a", "secret")],
    }
    events = codecs.decode_whole("openai", as_json(twice))
    assert (texts(events), opaque(events)) == ({0: "a"}, ["choice"])


def test_frames_of_the_other_dialect_are_not_ours() -> None:
    raw = RawDelta("event novelty", -1, {"type": "novelty"}, "anthropic")
    start, stop = (
        MessageStart("i", "m", Usage(), {"dialect": "anthropic"}),
        MessageStop(StopReason.END_TURN),
    )
    assert b"novelty" not in encode([start, raw, stop]) + encode([start, raw, stop], stream=False)


def test_pieces_of_a_named_field_join_as_the_sdk_joins_them() -> None:
    chunks = [
        chunk(content="a", audio={"id": "x", "data": "AA", "n": {"a": 1}, "l": [1]}),
        chunk(audio={"data": "BB", "n": {"b": 2}, "l": [2]}),
    ]
    events = stream(*chunks, chunk("stop"), unknown=frozenset(("audio",)))
    for streamed in (True, False):
        body = encode(events, stream=streamed)
        audio = openai_answer(body, stream=streamed).choices[0].message.audio
        assert audio is not None
        assert audio.model_dump(exclude_none=True) == {
            "id": "x",
            "data": "AABB",
            "n": {"a": 1, "b": 2},
            "l": [1, 2],
        }


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def test_deep_fields_do_not_exhaust_the_stack() -> None:
    events: list[Event] = [MessageStart("i", "m", Usage(), {"dialect": "openai"})]
    raw = RawDelta(
        "audio", -1, {"choices": [{"index": 0, "delta": {"audio": deep(200)}}]}, "openai"
    )
    assert encode([*events, raw, raw, MessageStop(StopReason.END_TURN)], stream=False)
