"""A call whose blocked calls are given back comes out the same for whoever takes it over, wherever
the owner before died."""

from hashlib import sha256

import pytest

from policy.session.choosing import session_of
from policy.session.effects import SendUpstream
from protocol.records import AttemptRecord
from streams import layout
from streams.layout import Entry
from tests.support.checks.blocked import BAD, CONFIG, GOOD, MODELS, TOOLS, NoDeletes, answered
from tests.support.json_values import as_json
from tests.support.worker_calls import call_info, owned, start_of
from workers.policy.call.owned import OwnedCall
from workers.policy.feeding import _feed


def body_of(*, streams: bool) -> bytes:
    return as_json(
        {
            "model": MODELS["anthropic"],
            "max_tokens": 100,
            "stream": streams,
            "messages": [{"role": "user", "content": "go"}],
            "tools": TOOLS["anthropic"],
        }
    )


def entries(*, streams: bool) -> list[Entry]:
    """The stream of a call: two blocked answers, and one that its client can use."""
    made: list[Entry] = []
    seq = 1
    for said, call in ("I delete.", BAD), ("Again.", BAD), ("I look.", GOOD):
        chunks = answered("anthropic", said, [call], streams=streams)
        kinds = [("chunks", chunks[:4]), ("chunks", chunks[4:]), ("eof", [])]
        for kind, raw in kinds if streams else [("body", chunks)]:
            entry = Entry(seq, seq, kind, list(raw))  # type: ignore[arg-type]
            made.append(entry)
            seq = entry.next_seq
    return made


def call_for(body: bytes, **where: object) -> OwnedCall:
    start = start_of(body, dialect="anthropic", endpoint="messages")
    info = call_info(start.call_id, "anthropic", body_sha256=sha256(body).digest(), durable=True)
    return owned(start, session_of(info, [NoDeletes()], CONFIG), **where)


def look_back(call: OwnedCall, body: bytes, stream: list[Entry]) -> None:
    """What the worker does for a call that asks for a part of itself."""
    if (wanted := call.waits.segment) is not None:
        call.feed_segment(
            wanted,
            body,
            [
                raw
                for entry in stream
                if entry.kind != "eof" and wanted.first_seq <= entry.seq <= wanted.last_seq
                for raw in entry.chunks
            ],
        )


def commit(call: OwnedCall) -> None:
    for block in list(call.waits.open_commits):
        call.feed_fact(layout.commit_field(block), b"1", 1)


def run(body: bytes, stream: list[Entry], count: int) -> OwnedCall:
    """The first owner, which dies behind `count` entries."""
    call = call_for(body)
    call.begin(body)
    for entry in stream[:count]:
        assert call.feed_entry(entry)
        look_back(call, body, stream)
        commit(call)
    return call


@pytest.mark.parametrize("streams", [True, False])
def test_a_takeover_comes_out_where_the_last_owner_stood(streams: bool) -> None:
    body, stream = body_of(streams=streams), entries(streams=streams)
    for died_behind in range(len(stream) + 1):
        first = run(body, stream, died_behind)
        out = first.session.out.hash
        second = call_for(body, released=out.number, digest=out.digest)
        second.take_over()
        second.begin(body)
        for field, value in first.waits.facts.items():
            second.feed_fact(field, value, 1)
        for entry in stream[:died_behind]:
            assert _feed(second, entry)
            look_back(second, body, stream)
            commit(second)
        assert not second.is_broken and second.session.checkpoint_digest == out.digest
        second.catch_up()
        for entry in stream[died_behind:]:
            assert second.feed_entry(entry)
            look_back(second, body, stream)
            commit(second)
        assert second.session.state == "ENDED"
        whole = run(body, stream, len(stream))
        assert second.session.out.hash.digest == whole.session.out.hash.digest
        rows = [
            [r for r in one.queue._records if isinstance(r, AttemptRecord)]
            for one in (whole, second)
        ]
        assert rows[0] == rows[1] and len(rows[0]) == 3


def test_a_call_that_died_before_it_was_given_back_asks_for_itself() -> None:
    body, stream = body_of(streams=True), entries(streams=True)
    first = call_for(body)
    first.begin(body)
    for entry in stream[:3]:
        assert first.feed_entry(entry)
    assert first.waits.segment is not None
    sent = [o for o in first.queue._outputs if isinstance(o, SendUpstream)]
    assert len(sent) == 1
    assert layout.TURNS_FIELD not in first.waits.open_fields
    first.feed_fact(layout.TURNS_FIELD, b"[]", 1)
    assert first.waits.segment is not None
    look_back(first, body, stream)
    assert sum(isinstance(o, SendUpstream) for o in first.queue._outputs) == 2


def test_a_body_that_was_changed_meanwhile_is_none() -> None:
    body, stream = body_of(streams=True), entries(streams=True)
    first = call_for(body)
    first.begin(body)
    for entry in stream[:3]:
        assert first.feed_entry(entry)
    look_back(first, body + b" ", stream)
    assert first.session.state == "ENDED" and not first.is_broken
