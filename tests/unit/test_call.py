"""One owned call: what it releases, and that a bug in one call ends that call and nothing else."""

import logging

import pytest

from policy.session.session import Session
from protocol.errors import TookTooLong
from protocol.records import ChunksRecord, ReleaseRecord, decode_records
from settings.config import Config
from streams import layout
from streams.layout import Entry
from tests.support.checks.kinds import of_kind
from tests.support.checks.owned_calls import BODY, START, chunk, fragment
from tests.support.worker_calls import call_info, owned
from workers.policy.call.owned import OwnedCall
from workers.policy.call.release_queue import HELD_BYTES, PROGRESS_BYTES
from workers.policy.call.waits import Waits


def make(*, released: int = 0) -> OwnedCall:
    info = call_info(START.call_id, durable=True, max_arguments_bytes=1000)
    call = owned(START, Session(info, [], Config()), released=released)
    call.begin(BODY)
    return call


def test_what_comes_while_a_release_is_under_way_joins_the_next() -> None:
    call = make()
    first = call.next_release(1)
    assert first is not None and layout.unpack_reply(first.reply).dispatch is not None
    call.feed_entry(Entry(1, 1, "chunks", [chunk("a")]))
    call.feed_entry(Entry(2, 1, "chunks", [chunk("b")]))
    assert call.next_release(2) is first
    call.answered()
    second = call.next_release(3)
    assert second is not None and (second.number, second.seq) == (first.next, 2)
    assert layout.unpack_reply(second.reply).data.count(b'"content":"ab"') == 1


def test_a_gap_is_told_and_a_double_dropped() -> None:
    call = make()
    assert call.feed_entry(Entry(2, 1, "chunks", [chunk("b")])) is False
    assert call.feed_entry(Entry(1, 1, "chunks", [chunk("a")])) is True
    assert call.feed_entry(Entry(1, 1, "chunks", [chunk("a")])) is True
    assert call.inbox.expected == 2


def test_a_step_that_takes_too_long_while_its_error_is_logged_ends_its_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def error(message: str, **_: object) -> None:
        if message == "call broken":
            raise TookTooLong

    monkeypatch.setattr(logging.getLogger("workers.policy.call.owned"), "error", error)
    begun, fed, told = make(), make(), make()
    monkeypatch.setattr(Session, "begin", lambda *_: 1 / 0)
    late = make()
    assert late.is_broken is False and late.session.state == "FAILED", "refused: it took too long"
    monkeypatch.setattr(begun.session, "chunks", lambda *_: 1 / 0)
    begun.feed_entry(Entry(1, 1, "chunks", [chunk("a")]))
    monkeypatch.setattr(Waits, "feed", lambda *_: 1 / 0)
    told.feed_fact("j:0:0", b"x", 1)
    assert begun.is_broken and told.is_broken and not fed.is_broken
    assert fed.feed_entry(Entry(1, 1, "chunks", [chunk("a")]))


def test_a_bug_breaks_its_call_and_is_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    call = make()
    monkeypatch.setattr(call.session, "chunks", lambda *_: 1 / 0)
    assert call.feed_entry(Entry(1, 1, "chunks", [chunk("a")])) is True
    assert call.is_broken
    records = call.end_records("policy_failed", -1, 5)
    assert type(records[-1]).__name__ == "EndRecord"


@pytest.mark.parametrize(
    "entry",
    [
        Entry(1, 1, "chunks", [chunk("a"), chunk("b"), chunk("c")]),
        Entry(1, 1, "chunks", [chunk("a")]),
    ],
)
def test_chunks_of_a_broken_step_are_on_record_once(
    entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = make()
    # the session took them, and what it wants cannot be had
    monkeypatch.setattr(call.session.out, "drain", lambda: 1 / 0)
    assert call.feed_entry(entry) and call.is_broken
    chunks = of_kind(call.end_records("policy_failed", -1, 5), ChunksRecord)
    assert [(r.seq, list(r.raw)) for r in chunks] == [(1, list(entry.chunks))]


def test_a_bug_in_encoding_gives_no_release(monkeypatch: pytest.MonkeyPatch) -> None:
    call = make()
    monkeypatch.setattr("workers.policy.call.reply_writer.render", lambda *_: 1 / 0)
    assert call.next_release(1) is None
    assert call.is_broken and call.queue.sending is None


def _wants(call: OwnedCall) -> bool:
    return call.queue.is_waiting


def holding() -> tuple[OwnedCall, int]:
    """A call of which nothing waits, within a tool call's arguments, and the number of its next
    chunk."""
    call = make()
    call.feed_entry(Entry(1, 1, "chunks", [fragment('{"a": "', first=True)]))
    assert call.next_release(1) is not None
    call.answered()
    return call, 2


def test_fragments_of_a_held_tool_call_are_recorded_together() -> None:
    call, seq = holding()
    while not call.queue.is_waiting:
        call.feed_entry(Entry(seq, 1, "chunks", [fragment("x" * 1000)]))
        seq += 1
    assert HELD_BYTES // 1200 < seq < HELD_BYTES // 1000 + 3
    release = call.next_release(2)
    assert release is not None and release.seq == seq - 1 and not release.reply
    assert (
        sum(len(r.raw) for r in decode_records(release.audit) if isinstance(r, ChunksRecord))
        == seq - 2
    )
    call.answered()
    call.feed_entry(Entry(seq, 1, "chunks", [fragment("y")]))
    assert not call.queue.is_waiting


def test_held_fragments_are_recorded_by_the_next_sweep_and_with_the_end() -> None:
    call, seq = holding()
    assert not call.queue.record_held() and not call.queue.is_waiting
    call.feed_entry(Entry(seq, 1, "chunks", [fragment("x")]))
    assert not call.queue.is_waiting
    call.queue.record_held()
    assert _wants(call)
    assert [
        r.seq for r in call.end_records("client_gone", 0, 5) if isinstance(r, ChunksRecord)
    ] == [seq]


def test_text_and_the_decision_on_a_call_do_not_wait() -> None:
    call, seq = holding()
    call.feed_entry(Entry(seq, 1, "chunks", [fragment('x"}')]))
    assert not call.queue.is_waiting
    end = (
        b'data: {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason":'
        b' "tool_calls"}]}\n\n'
    )
    call.feed_entry(Entry(seq + 1, 1, "chunks", [end]))
    assert _wants(call)
    release = call.next_release(2)
    assert release is not None and [
        r.seq for r in decode_records(release.audit) if isinstance(r, ChunksRecord)
    ] == [seq, seq + 1]
    other = make()
    other.next_release(1)
    other.answered()
    other.feed_entry(Entry(1, 1, "chunks", [chunk("a")]))
    assert other.queue.is_waiting


def test_a_gateway_hears_how_far_a_held_call_is() -> None:
    call, seq = holding()
    told = []
    for number in range(400):
        call.feed_entry(Entry(seq + number, 1, "chunks", [fragment("x" * 1000)]))
        if call.queue.is_waiting:
            release = call.next_release(2)
            assert release is not None
            told += [layout.unpack_reply(release.reply).processed] if release.reply else []
            call.answered()
    assert len(told) >= 2 and told[0] - seq < (PROGRESS_BYTES + HELD_BYTES) // 1000


def test_only_what_a_client_sees_puts_off_the_next_sign_of_life() -> None:
    """Of a long tool call a client sees nothing, however often the gateway hears how far it is."""
    call, seq = holding()
    begun = call.writer.last_sent = call.writer.last_sent - 100
    for number in range(200):
        call.feed_entry(Entry(seq + number, 1, "chunks", [fragment("x" * 1000)]))
        if call.queue.is_waiting:
            call.next_release(2)
            call.answered()
    assert call.writer.last_sent == begun
    call.ask_keepalive()
    release = call.next_release(2)
    assert release is not None and layout.unpack_reply(release.reply).data == b": keepalive\n\n"
    other = make()
    other.next_release(1)
    other.answered()
    begun = other.writer.last_sent = other.writer.last_sent - 100
    other.feed_entry(Entry(1, 1, "chunks", [chunk("a")]))
    other.next_release(2)
    assert other.writer.last_sent > begun
    # nobody knows what the client saw last of a call that another worker had
    assert make(released=1).writer.last_sent < 0


def test_what_was_under_way_at_the_end_is_recorded_but_not_as_released() -> None:
    call = make()
    call.feed_entry(Entry(1, 1, "chunks", [chunk("a")]))
    release = call.next_release(1)
    assert release is not None and any(
        isinstance(r, ReleaseRecord) for r in decode_records(release.audit)
    )
    call.feed_entry(Entry(2, 1, "chunks", [chunk("b")]))
    records = call.end_records("gateway_lost", 0, 5)
    assert [r.seq for r in records if isinstance(r, ChunksRecord)] == [1, 2]
    assert not any(isinstance(r, ReleaseRecord) for r in records)
