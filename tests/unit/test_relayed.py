"""What a gateway says of what it relayed, and what it does not relay: bytes that are not those of
the hash that came with them."""

import time
from hashlib import sha256
from typing import Any

import pytest

from gateway.call.calls import OpenCall
from protocol.bytes.waiting import HEADER, written
from protocol.dialects.table import CLIENTS
from protocol.records import EventRecord
from streams import layout
from streams.layout import Dispatch, Relayed, Reply
from tests.support.checks.replies import reply_of
from tests.support.json_values import Json
from workers.call_totals import relayed_events


def opened(*, head_sent: bool = True) -> OpenCall:
    call = OpenCall(
        layout.new_call_id(), CLIENTS["openai"], b"{}", activity_s=9, deadline=time.monotonic() + 9
    )
    call.order.head_sent = head_sent
    return call


def digest(data: bytes) -> bytes:
    return sha256(data).digest()


def tell(call: OpenCall, data: bytes = b"", **fields: Any) -> None:
    call.on_reply(
        reply_of(call.id, call.order.expected, call.order.expected + 1, data=data, **fields)
    )


def closed(call: OpenCall) -> Relayed:
    """What goes with the end of the call."""
    call.close("complete")
    [entry] = [e for e in call.appender.next_entries(1) if e.kind == "closed"]
    assert (
        entry.number == call.outgoing.relayed
        and call.last is not None
        and call.last.chunks == entry.chunks
    )
    return layout.unpack_relayed(entry.chunks[0])


@pytest.mark.parametrize(
    "fields",
    [
        {"data": b"text", "sha256": digest(b"tezt")},
        {
            "data": b"body",
            "late": b"frame",
            "sha256": digest(b"body"),
            "late_sha256": digest(b"framf"),
        },
        {"dispatch": Dispatch("x", "openai", "chat", b"{}", sha256=digest(b"[]"))},
        {"data": b"body", "sha256": b""},
    ],
)
def test_what_is_not_what_the_hash_says_ends_the_call_and_nothing_of_it_goes_out(
    fields: Json,
) -> None:
    call = opened()
    tell(call, b"before")
    call.take_out()
    tell(call, **fields)
    assert call.order.error is not None and call.order.error.error_code == "stream_protocol_error"
    assert not call.outgoing.size and call.order.next_dispatch is None and call.take_body() == b"{}"
    assert (closed(call).releases, call.outgoing.relayed) == (1, 1)


@pytest.mark.parametrize("replies", [0, 1, 200])
@pytest.mark.parametrize("together", [1, 7, 1000])
def test_the_end_has_one_hash_over_those_of_all_replies_with_bytes(
    replies: int, together: int
) -> None:
    call = opened()
    for number in range(replies):
        tell(call, b"%d" % number)
        tell(call)
        if number % together == together - 1:
            call.take_out()
            call.outgoing.add_up()
            assert not call.outgoing._digests
    if call.outgoing.size:
        call.take_out()
    expected = digest(b"".join(digest(b"%d" % number) for number in range(replies)))
    assert closed(call) == Relayed(replies, expected)


def test_what_was_not_handed_on_is_not_counted() -> None:
    call = opened()
    tell(call, b"one")
    call.take_out()
    tell(call, b"two")
    call.on_reply(Reply(call.id, 2, 2, data=CLIENTS["openai"].keepalive, keepalive=True))
    assert closed(call) == Relayed(1, digest(digest(b"one")))


def test_a_repeated_reply_is_counted_once() -> None:
    call = opened()
    tell(call, b"one")
    call.on_reply(Reply(call.id, 0, 1, data=b"other"))
    call.take_out()
    assert closed(call) == Relayed(1, digest(digest(b"one")))


def test_keepalives_are_told_by_their_place_and_are_the_dialects_own_whatever_came() -> None:
    call = opened()
    for place in (0, 0, 1):
        while call.order.expected < place:
            tell(call, b"text")
        call.on_reply(Reply(call.id, place, place, data=b"data: anything\n\n", keepalive=True))
    assert (
        call.take_out() == CLIENTS["openai"].keepalive * 2 + b"text" + CLIENTS["openai"].keepalive
    )
    assert closed(call) == Relayed(1, digest(digest(b"text")), [(0, 2), (1, 1)])


def test_a_keepalive_says_what_is_waited_for_in_words_of_ours_and_the_record_has_them() -> None:
    call = opened()
    for words in ("a person, 18 s", "the rule nr 7, 18 s", "a judge, 28 s"):
        call.on_reply(
            Reply(call.id, 0, 0, headers={HEADER: words}, data=b"anything", keepalive=True)
        )
    got = call.take_out()
    assert got == (
        b": waiting for a person, 18 s\n\n: keepalive\n\n: waiting for a judge, 28 s\n\n"
    )
    relayed = closed(call)
    [row] = relayed_events(call.id, relayed, 0, 1)
    assert isinstance(row, EventRecord)
    assert row.detail == "3; a person, 18 s; ; a judge, 28 s"
    assert written(CLIENTS["openai"].keepalive, row.detail) == got


def test_a_frame_in_place_of_a_body_is_told_with_the_number_of_its_release() -> None:
    call = opened()
    tell(call, b"text")
    tell(call, b"body", late=b"frame", late_sha256=digest(b"frame"), end="refused")
    call.take_out()
    told = closed(call)
    assert (told.own, told.late, told.sha256) == (
        b"frame",
        1,
        digest(digest(b"text") + digest(b"body")),
    )


def test_a_frame_that_was_not_handed_on_is_not_told() -> None:
    call = opened()
    tell(call, b"body", late=b"frame", late_sha256=digest(b"frame"), end="refused")
    assert closed(call) == Relayed(0, digest(b""))


def test_a_frame_without_a_body_is_told_and_is_no_release() -> None:
    call = opened()
    tell(call, b"text")
    tell(call, late=b"frame", late_sha256=digest(b"frame"), end="refused")
    call.outgoing.add_up()
    assert call.outgoing._releases == 0
    call.take_out()
    assert closed(call) == Relayed(1, digest(digest(b"text")), [], b"frame", 1)


def test_before_the_head_the_body_goes_out_and_no_frame_is_told() -> None:
    call = opened(head_sent=False)
    tell(call, b"body", late=b"frame", late_sha256=digest(b"frame"), end="refused")
    assert call.take_out() == b"body"
    assert closed(call) == Relayed(1, digest(digest(b"body")))
