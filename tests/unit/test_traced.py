"""Calls with debug lines: they say what happened, and nothing happens otherwise than without
them."""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.call.calls import OpenCall
from gateway.call.traffic_lines import TrafficLines
from gateway.debug_choice import Switch, Switches
from policy.base import Policy, TextBlock, ToolCall, Verdict
from policy.builtin.text_replace import TextReplace
from policy.builtin.uppercase import Uppercase
from policy.session.chain import Chain
from policy.session.session import Session
from policy.session.tracing import TracedChain
from protocol.debug import (
    ANY,
    CALLBACK,
    ENDPOINT,
    FULL,
    POLICY,
    PREVIEW,
    REFUSED,
    TRANSPORT,
    Debug,
    DebugLine,
    loggers_of,
    mask_of,
    shown,
)
from protocol.dialects.table import CLIENTS
from protocol.errors import InvalidRequest, StreamProtocolError
from settings.config import Config, Key
from streams import layout
from streams.connection import Connection
from streams.debug_lines import CallLineWriter, DebugLines
from streams.layout import Dispatch, Entry, Reply
from tests.support.checks.replies import reply_of
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info, start_of
from workers.policy.call.line_observer import CallTracer, LineObserver, _harmless
from workers.policy.call.owned import OwnedCall

CALL = "01990000-0000-7000-8000-000000000000"
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
BODY = as_json(
    {
        "model": "demo",
        "stream": True,
        "messages": [{"role": "user", "content": "x"}],
        "tools": [TOOL],
    }
)
START = start_of(BODY, CALL)


class Own(Policy):
    """Somebody's own, which looks at its class and at what it holds."""

    seen = 0

    def on_text(self, text: str, block: TextBlock) -> str:
        self.seen += 1
        return f"{text}{self.seen}{type(self).__name__}"

    def on_tool_call(self, call: ToolCall) -> Verdict:
        raise RuntimeError("secret words")


class Slotted(Policy):
    """One without a dictionary of its own."""

    __slots__ = ("room",)


def made(mask: int) -> tuple[CallLineWriter, list[DebugLine]]:
    lines = DebugLines(Connection("redis://127.0.0.1:1", name="none"), "policy p", memory_share=0.7)
    found: list[DebugLine] = []
    own = CallLineWriter(lines, CALL, mask)
    own._add = lambda shard, line: found.append(line)
    return own, found


def owned(policies: Sequence[Policy], lines: CallLineWriter | None = None) -> OwnedCall:
    tracer = CallTracer(lines) if lines is not None and lines.mask & POLICY else None
    info = call_info(CALL, max_arguments_bytes=1000, tracer=tracer)
    given: tuple[Any, ...] = (START, "t", "1-0", Session(info, policies, Config()))
    options: Json = {"policy_header": "p@r", "released": 0, "digest": "", "recorded": 0}
    observer = LineObserver(lines) if lines is not None else None
    return OwnedCall(*given, **options, observer=observer)


def chunk(delta: Json, finish: str | None = None) -> bytes:
    body = {
        "id": "x",
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + as_json(body) + b"\n\n"


CALLED = {
    "tool_calls": [
        {"index": 0, "id": "c", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
    ]
}
ENTRIES = (
    Entry(1, 1, "chunks", [chunk({"content": "a secret "}), chunk({"content": "b"})]),
    Entry(3, 1, "chunks", [chunk(CALLED)]),
    Entry(4, 1, "chunks", [chunk({}, "tool_calls"), b"data: [DONE]\n\n"]),
    Entry(6, 1, "eof"),
    Entry(7, 1, "closed", [], 4, "complete"),
)


def played(call: OwnedCall) -> list[tuple[bytes, bytes]]:
    """Take a call through; returns all that it released and recorded."""
    said = []
    call.begin(BODY)
    for entry in ENTRIES:
        while call.queue.is_waiting and (release := call.next_release(5)) is not None:
            said.append((release.reply, release.audit))
            call.answered()
        assert call.feed_entry(entry)
    while call.queue.is_waiting and (release := call.next_release(5)) is not None:
        said.append((release.reply, release.audit))
        call.answered()
    said.append((b"", layout.pack(call.end_records("complete", 4, 6))))
    return said


def series() -> list[Policy]:
    return [TextReplace(rules=[{"pattern": "secret", "replace": "[-]"}]), Own(), Uppercase()]


def test_a_call_with_lines_says_and_records_what_it_does_without() -> None:
    lines, found = made(ANY | FULL)
    assert played(owned(series(), lines)) == played(owned(series()))
    assert [line.n for line in found] == list(range(1, len(found) + 1))
    hooks = [(line.policy, line.hook, line.block) for line in found if line.hook == "on_text"]
    assert set(hooks) == {
        ("text_replace", "on_text", 0),
        ("Own", "on_text", 0),
        ("uppercase", "on_text", 0),
    }
    raised = next(line for line in found if line.event == "raised")
    assert (raised.policy, raised.hook) == (
        "Own",
        "on_tool_call",
    ) and b"RuntimeError" in raised.detail
    assert b"secret words" not in raised.detail and b"ls" in raised.detail
    assert next(line for line in found if line.hook == "on_text").detail.startswith(b"in 9, out")
    events = [(line.type, line.event) for line in found if line.type != "policy"]
    assert events[0] == ("endpoint", "claim") and events[-1] == ("endpoint", "end")
    assert {"request", "release", "chunks", "eof", "closed"} <= {
        event for kind, event in events if kind == "endpoint"
    }
    assert {event for kind, event in events if kind == "transport"} == {
        "read",
        "release",
        "answered",
    }
    read = [(line.seq, line.number) for line in found if line.event == "read"]
    assert read == [(1, 3), (3, 4), (4, 6), (6, 7), (7, 8)]


@pytest.mark.parametrize(
    ("mask", "types"), [(TRANSPORT, {"transport"}), (ENDPOINT, {"endpoint"}), (POLICY, {"policy"})]
)
def test_only_what_the_mask_names_is_said_and_without_content_only_sizes(
    mask: int, types: set[str]
) -> None:
    lines, found = made(mask)
    played(owned(series(), lines))
    assert {line.type for line in found} == types
    assert not any(b"secret" in line.detail or b"command" in line.detail for line in found)


def test_a_replay_is_marked_and_a_gap_and_a_double_are_told() -> None:
    lines, found = made(TRANSPORT)
    call = owned([], lines)
    call.take_over()
    call.begin(BODY)
    call.feed_entry(ENTRIES[0])
    call.catch_up()
    call.feed_entry(ENTRIES[0])
    assert call.feed_entry(ENTRIES[2]) is False
    assert [line.detail for line in found] == [
        b"replayed; chunks in order",
        b"chunks again",
        b"chunks gap, expected 3",
    ]


def test_other_steps_are_told() -> None:
    lines, found = made(ENDPOINT)
    call = owned([], lines)
    call.note("takeover", 1, "worker w", 1)
    call.feed_fact("c:0", b"1", 1)
    call.is_refused(b"FENCED")
    call.refuse(StreamProtocolError("no", code="no_worker"))
    assert [line.event for line in found] == ["claim", "event", "fact", "lost", "refused"]


def test_a_policy_that_cannot_be_watched_decides_all_the_same() -> None:
    class Odd(Policy):
        def __init_subclass__(cls) -> None:
            raise RuntimeError("no children")

        def on_text(self, text: str, block: TextBlock) -> str:
            return text[::-1]

    lines, found = made(POLICY)
    said = played(owned([Odd(), Slotted()], lines))
    assert said == played(owned([Odd(), Slotted()]))
    assert [(line.policy, line.event) for line in found][:1] == [("Odd", "raised")]


def test_a_line_that_cannot_be_made_is_nothing_that_the_call_notices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Odd(Policy):
        def on_text(self, text: str, block: TextBlock) -> Any:
            return Weird(text)

    class Weird(str):
        def __len__(self) -> int:
            raise RuntimeError("no length")

    lines, found = made(POLICY | ENDPOINT)

    def fails(observer: LineObserver, *given: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(LineObserver, "began", _harmless(fails))
    said = played(owned([Odd()], lines))
    assert said == played(owned([Odd()]))
    assert {(line.type, line.detail) for line in found if line.event == "trace_failed"} == {
        ("policy", b"RuntimeError"),
        ("endpoint", b"ZeroDivisionError"),
    }


def chain_of(call: OwnedCall) -> type[Chain]:
    """The class of a call's series."""
    assert call.session._exchange is not None
    return type(call.session._exchange.chain)


def test_without_a_mask_the_classes_are_those_of_always() -> None:
    call = owned(series())
    call.begin(BODY)
    assert type(call) is OwnedCall and chain_of(call) is Chain
    traced = owned(series(), made(POLICY)[0])
    traced.begin(BODY)
    assert chain_of(traced) is TracedChain


async def opened(mask: int) -> tuple[OpenCall, list[DebugLine]]:
    lines, found = made(mask)
    await asyncio.sleep(0)
    return (
        OpenCall(
            CALL,
            CLIENTS["openai"],
            b"{}",
            activity_s=9,
            deadline=time.monotonic() + 9,
            key="dev",
            observer=TrafficLines(lines),
        ),
        found,
    )


async def test_a_gateway_tells_what_comes_and_goes() -> None:
    call, found = await opened(TRANSPORT | CALLBACK)
    call.on_reply(Reply(CALL, 0, 1, dispatch=Dispatch("demo", "openai", "chat")))
    call.appender.append("chunks", [b"abc", b"d"])
    call.appender.append("eof")
    call.appender.next_entries(1)
    call.on_reply(reply_of(CALL, 1, 3, status=200, data=b"12345", processed=2))
    call.on_reply(Reply(CALL, 1, 3, data=b"12345"))
    call.begin_answer()
    assert call.take_out() == b"12345" and call.order.head_sent
    call.when_room(0, lambda: None)
    call.on_reply(Reply(CALL, 9, 10))
    call.close("stream_protocol_error")
    call.lose()
    told = [(line.type, line.event, line.size) for line in found]
    assert [one for one in told if one[0] == "callback"] == [
        ("callback", "begun", 2),
        ("callback", "dispatch", 2),
        ("callback", "accepted", 0),
        ("callback", "chunks", 4),
        ("callback", "upstream", 0),
        ("callback", "accepted", 5),
        ("callback", "dropped", 5),
        ("callback", "head", -1),
        ("callback", "relayed", 5),
        ("callback", "stall", 0),
        ("callback", "failed", -1),
        ("callback", "refused", 0),
        ("callback", "closed", found[-2].size),
    ]
    assert [(line.event, line.seq, line.number) for line in found if line.type == "transport"] == [
        ("reply", 0, 1),
        ("append", 1, 3),
        ("append", 3, 4),
        ("reply", 2, 3),
        ("reply", 0, 3),
        ("reply", 0, 10),
        ("lost", -1, -1),
    ]


async def test_a_traced_call_of_a_gateway_does_what_others_do() -> None:
    traced, _ = await opened(ANY)
    plain = OpenCall(
        CALL, CLIENTS["openai"], b"{}", activity_s=9, deadline=time.monotonic() + 9, key="dev"
    )
    for call in traced, plain:
        call.on_reply(Reply(CALL, 0, 1, dispatch=Dispatch("demo", "openai", "chat")))
        call.appender.append("chunks", [b"abc"])
        call.on_reply(reply_of(CALL, 1, 2, status=200, data=b"12", processed=1))
        call.begin_answer()
        call.take_out()
        call.close("complete")
    assert (
        traced.appender.next_entries(1) == plain.appender.next_entries(1)
        and traced.outgoing.report() == plain.outgoing.report()
    )


def key(name: str = "dev", *roles: Any) -> Key:
    return Key(name=name, sha256="0" * 64, roles=roles or ("client",))


def test_a_call_has_lines_by_the_configuration_a_switch_or_an_admins_header() -> None:
    assert not Switches(Debug()).is_on and Switches(Debug()).mask(key(), {}) == 0
    some = Switches(Debug(loggers=("policy", "endpoint"), keys=("dev",)))
    assert (
        some.is_on
        and some.mask(key(), {}) == POLICY | ENDPOINT | PREVIEW
        and some.mask(key("app"), {}) == 0
    )
    assert Switches(Debug(loggers=("policy",), sample=0)).mask(key(), {}) == 0
    random.seed(20)
    sampled = Switches(Debug(loggers=("policy",), sample=0.25))
    assert 450 < sum(sampled.mask(key(), {}) > 0 for _ in range(2_000)) < 550
    header = {b"x-sluice-debug": b"policy, transport"}
    off = Switches(Debug(content="none"))
    assert off.mask(key("a", "client", "admin"), header) == POLICY | TRANSPORT
    assert off.mask(key(), header) == REFUSED and not REFUSED & ANY
    with pytest.raises(InvalidRequest, match="no debug log 'sql'"):
        off.mask(key("a", "client", "admin"), {b"x-sluice-debug": b"sql"})
    off.set([Switch("dev", CALLBACK, time.time() + 9), Switch("app", CALLBACK, time.time() - 1)])
    assert off.is_on and off.mask(key(), {}) == CALLBACK and off.mask(key("app"), {}) == 0
    off.set([])
    assert not off.is_on


def test_masks_have_names_and_what_is_shown_is_cut() -> None:
    assert mask_of([]) == 0 and loggers_of(mask_of(["callback", "policy"], "full")) == [
        "policy",
        "callback",
    ]
    assert (shown(b"abc", 3), shown(b"abcd", 3), shown(b"abcd", 0)) == (
        b"abc",
        b"abc... (4 bytes)",
        b"(4 bytes)",
    )
