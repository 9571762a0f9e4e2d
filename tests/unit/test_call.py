"""One owned call: what it releases, and that a bug in one call ends that call and nothing else."""

import json

import pytest

from policy.effects import CallInfo
from policy.session import Session
from protocol.config import Config
from streams import layout
from streams.layout import Entry, Start
from workers.call import OwnedCall

START = Start(
    call_id=layout.new_call_id(), at=1, gateway="g", dialect="openai", endpoint="chat", key="k", policies=("p",), policy="", session="",
    nonce="n", deadline=2,
)  # fmt: skip
BODY = json.dumps({"model": "demo", "stream": True, "messages": [{"role": "user", "content": "x"}]}).encode()


def make() -> OwnedCall:
    info = CallInfo(START.call_id, 1, "openai", "chat", "k", "", "n", "g", "p", "r", True, 1000)
    call = OwnedCall(START, "t", "1-0", Session(info, [], Config()), policy_header="p@r", released=0, digest="", recorded=0)
    call.begin(BODY)
    return call


def chunk(text: str) -> bytes:
    return b"data: " + json.dumps({"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": text}}]}).encode() + b"\n\n"


def test_what_comes_while_a_release_is_under_way_joins_the_next() -> None:
    call = make()
    first = call.next_release(1)
    assert first is not None and layout.unpack_reply(first.reply).dispatch is not None
    call.take_entry(Entry(1, 1, "chunks", [chunk("a")]))
    call.take_entry(Entry(2, 1, "chunks", [chunk("b")]))
    assert call.next_release(2) is first
    call.answered("OK")
    second = call.next_release(3)
    assert second is not None and (second.number, second.seq) == (first.next, 2)
    assert layout.unpack_reply(second.reply).data.count(b'"content":"ab"') == 1


def test_a_gap_is_told_and_a_double_dropped() -> None:
    call = make()
    assert call.take_entry(Entry(2, 1, "chunks", [chunk("b")])) is False
    assert call.take_entry(Entry(1, 1, "chunks", [chunk("a")])) is True
    assert call.take_entry(Entry(1, 1, "chunks", [chunk("a")])) is True
    assert call.expected == 2


def test_a_bug_breaks_its_call_and_is_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    call = make()
    monkeypatch.setattr(call.session, "chunks", lambda *_: 1 / 0)
    assert call.take_entry(Entry(1, 1, "chunks", [chunk("a")])) is True
    assert call.broken
    records = call.end_records("policy_failed", -1, 5)
    assert type(records[-1]).__name__ == "EndRecord"


def test_a_bug_in_encoding_gives_no_release(monkeypatch: pytest.MonkeyPatch) -> None:
    call = make()
    monkeypatch.setattr(call, "_render", lambda *_: 1 / 0)
    assert call.next_release(1) is None
    assert call.broken and call.sending is None
