"""What the end of a call says of its record, and what it tells of what the gateway relayed."""

from hashlib import sha256

import pytest

from policy.session.session import Session
from protocol.records import (
    BlockRecord,
    ChunksRecord,
    EndRecord,
    EventRecord,
    Record,
    ReleaseRecord,
    decode_records,
)
from settings.config import Config
from streams import layout, scripts
from streams.layout import Entry, Relayed
from streams.metrics import Count, pack
from tests.support.checks.kinds import of_kind
from tests.support.checks.owned_calls import BODY
from tests.support.checks.record import tool_call_record
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info, owned, start_of
from workers.call_totals import DecisionCounts
from workers.policy.call.owned import OwnedCall

SUM = sha256(b"relayed").digest()


def make(
    *, released: int = 0, recorded: int = 0, written: int = 0, body_sha256: bytes = b""
) -> OwnedCall:
    start = start_of(b"", layout.new_call_id(), body_sha256=body_sha256 or sha256(BODY).digest())
    info = call_info(start.call_id, durable=True, max_arguments_bytes=1000)
    session = Session(info, [], Config())
    return owned(start, session, released=released, recorded=recorded, written=written)


def begun() -> OwnedCall:
    call = make()
    call.begin(BODY)
    return call


def chunk(delta: object, finish: str | None = None) -> bytes:
    return (
        b"data: "
        + as_json(
            {
                "id": "x",
                "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }
        )
        + b"\n\n"
    )


def release(call: OwnedCall, records: list[Record]) -> layout.Reply:
    built = call.next_release(1)
    assert built is not None
    records += decode_records(built.audit) if built.audit else []
    call.answered()
    return layout.unpack_reply(built.reply)


def closing(told: Relayed | bytes | None, seq: int, text: str = "complete") -> Entry:
    chunks = [] if told is None else [told if isinstance(told, bytes) else layout.pack(told)]
    return Entry(seq, 1, "closed", chunks, 2, text)


def end_of(records: list[Record]) -> EndRecord:
    [end] = of_kind(records, EndRecord)
    return end


def test_what_is_released_goes_with_the_hash_that_is_on_record() -> None:
    call, records = begun(), list[Record]()
    release(call, records)
    call.feed_entry(Entry(1, 1, "chunks", [chunk({"content": "a"})]))
    reply = release(call, records)
    [released] = of_kind(records, ReleaseRecord)
    assert (
        reply.data
        and reply.sha256 == released.sha256 == sha256(reply.data).digest()
        and not reply.late_sha256
    )


def test_the_first_end_of_a_call_is_the_one_that_counts() -> None:
    """A gateway that hears of a call after its end ends it again, with nothing in it."""
    call, records = begun(), list[Record]()
    release(call, records)
    call.feed_entry(closing(Relayed(1, SUM), 1))
    call.feed_entry(Entry(2, 1, "closed", text="client_gone"))
    assert call.inbox.closed is not None and (call.inbox.closed.text, call.inbox.closed.number) == (
        "complete",
        2,
    )
    end = end_of(call.end_records(call.inbox.closed.text, call.inbox.closed.number, 5))
    assert (end.relayed, end.relayed_sha256) == (2, SUM)


def test_a_keepalive_has_no_hash_and_a_refusal_two() -> None:
    call, records = begun(), list[Record]()
    release(call, records)
    call.ask_keepalive()
    assert release(call, records).sha256 == b""
    other = make(body_sha256=sha256(b"{}").digest())
    other.begin(b"{}")
    reply = release(other, records)
    assert (reply.sha256, reply.late_sha256) == (
        sha256(reply.data).digest(),
        sha256(reply.late).digest(),
    )


def test_the_end_says_how_much_a_whole_record_holds() -> None:
    call, records = begun(), list[Record]()
    release(call, records)
    call.feed_entry(Entry(1, 1, "chunks", [chunk({"content": "a"}), chunk({"content": "b"})]))
    release(call, records)
    call.feed_entry(Entry(3, 1, "chunks", [chunk({}, "stop"), b"data: [DONE]\n\n"]))
    call.feed_entry(Entry(5, 1, "eof"))
    release(call, records)
    call.feed_entry(closing(Relayed(2, SUM), 6))
    records += call.end_records("complete", 2, 5)
    end = end_of(records)
    blocks = of_kind(records, BlockRecord)
    assert (end.chunks, end.releases, end.decisions, end.relayed_sha256) == (
        4,
        2,
        len(blocks),
        SUM,
    ) and blocks
    assert sum(len(r.raw) for r in records if isinstance(r, ChunksRecord)) == 4


def whole_with_a_call() -> Entry:
    tool = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None, "tool_calls": [tool]},
        "finish_reason": "tool_calls",
    }
    return Entry(1, 1, "body", [as_json({"id": "x", "model": "m", "choices": [choice]})])


@pytest.mark.parametrize(("commit", "verdict"), [(b"1", "allow"), (b"late", "block")])
def test_a_whole_answer_is_recorded_with_its_verdict(commit: bytes, verdict: str) -> None:
    call, records = begun(), list[Record]()
    release(call, records)
    call.feed_entry(whole_with_a_call())
    [block] = call.waits.open_commits
    release(call, records)
    assert not of_kind(records, ChunksRecord) and not call.queue.record_held()
    call.feed_fact(layout.commit_field(block), commit, 2)
    release(call, records)
    call.feed_entry(closing(Relayed(2, SUM), 2))
    records += call.end_records("complete", 2, 5)
    assert [(r.seq, r.verdicts, r.blocks) for r in records if isinstance(r, ChunksRecord)] == [
        (1, [verdict], [-1])
    ]
    assert end_of(records).chunks == 1


def test_a_whole_answer_that_nobody_decided_on_is_recorded_as_held_at_the_end() -> None:
    call, records = begun(), list[Record]()
    release(call, records)
    call.feed_entry(whole_with_a_call())
    call.feed_entry(closing(Relayed(0, SUM), 2, "client_gone"))
    records += call.end_records("client_gone", 0, 5)
    assert [(r.seq, r.verdicts) for r in records if isinstance(r, ChunksRecord)] == [(1, ["hold"])]
    assert end_of(records).chunks == 1


def test_tool_calls_that_nobody_decided_on_are_counted_as_they_are_recorded() -> None:
    call, records = begun(), list[Record]()
    release(call, records)
    tool = {"index": 0, "id": "c", "function": {"name": "bash", "arguments": "{}"}}
    call.feed_entry(
        Entry(
            1,
            1,
            "chunks",
            [chunk({"tool_calls": [tool]}), chunk({}, "tool_calls"), b"data: [DONE]\n\n"],
        )
    )
    assert call.waits.open_commits
    call.feed_entry(closing(Relayed(0, SUM), 4, "client_gone"))
    records += call.end_records("client_gone", 0, 5)
    rows = [
        r
        for r in records
        if type(r).__name__
        in ("BlockRecord", "ToolCallRecord", "ToolReleaseRecord", "JudgementRecord")
    ]
    assert end_of(records).decisions == len(rows) == 2


def test_a_gateway_that_tells_nothing_leaves_the_hash_unknown() -> None:
    call = begun()
    call.feed_entry(closing(None, 1))
    assert end_of(call.end_records("client_gone", 0, 5)).relayed_sha256 is None


@pytest.mark.parametrize("damaged", [b"", b"\xc1", b"\x91\x01", layout.pack(["x", 1])])
def test_an_end_that_cannot_be_read_ends_the_call_all_the_same(damaged: bytes) -> None:
    call = begun()
    assert call.feed_entry(closing(damaged, 1))
    assert (
        call.inbox.closed is not None
        and call.inbox.closed.text == "stream_protocol_error"
        and not call.is_broken
    )
    end = end_of(call.end_records(call.inbox.closed.text, call.inbox.closed.number, 5))
    assert (end.state, end.reason, end.relayed, end.relayed_sha256, end.chunks) == (
        "FAILED",
        "stream_protocol_error",
        2,
        None,
        0,
    )


def test_what_the_gateway_says_at_the_end_is_no_chunk_though_the_session_breaks_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = begun()

    def breaks(_: OwnedCall) -> None:
        raise RuntimeError

    monkeypatch.setattr(OwnedCall, "_collect", breaks)
    call.feed_entry(closing(Relayed(0, SUM), 1))
    assert call.is_broken
    records = call.end_records("policy_failed", -1, 5)
    assert not of_kind(records, ChunksRecord) and end_of(records).chunks == 0


def test_what_the_client_got_beside_releases_is_on_record() -> None:
    call = begun()
    call.feed_entry(closing(Relayed(1, SUM, [(1, 3), (4, 1)], b"data: gone\n\n"), 1))
    events = of_kind(call.end_records("stream_timeout", 2, 5), EventRecord)
    assert [(e.kind, e.number, e.detail) for e in events] == [
        ("keepalive", 1, "3"),
        ("keepalive", 4, "1"),
        ("frame", 2, "data: gone\n\n"),
    ]
    other = begun()
    other.feed_entry(closing(Relayed(1, SUM, [], b"frame", 7), 1))
    events = of_kind(other.end_records("complete", 2, 5), EventRecord)
    assert [(e.kind, e.number, e.detail) for e in events] == [("late", 7, "frame")]


def test_a_body_that_is_not_the_one_that_the_gateway_took_is_refused() -> None:
    call = make(body_sha256=sha256(BODY).digest())
    call.begin(BODY)
    records = list[Record]()
    assert release(call, records).dispatch is not None
    other = make(body_sha256=sha256(BODY).digest())
    other.begin(BODY.replace(b'"x"', b'"y"'))
    reply = release(other, records)
    assert reply.dispatch is None and reply.end == "body_changed" and reply.status == 500
    assert [r.kind for r in records if isinstance(r, EventRecord)] == ["body_changed"]


def test_a_release_whose_answer_is_not_there_makes_their_number_unknown() -> None:
    call = begun()
    release(call, [])
    call.feed_entry(Entry(1, 1, "chunks", [chunk({"content": "a"})]))
    built = call.next_release(1)
    assert built is not None
    assert end_of(call.end_records("x", -1, 5)).releases == 0
    built.is_out = None
    assert end_of(call.end_records("x", -1, 5)).releases is None
    built.is_out = False
    assert end_of(call.end_records("x", -1, 5)).releases == 0
    call.answered()
    assert end_of(call.end_records("x", -1, 5)).releases == 1


def test_of_a_call_that_was_not_replayed_to_its_end_nothing_is_said() -> None:
    call = make(released=3, recorded=5, written=2)
    call.take_over()
    call.begin(BODY)
    end = end_of(call.end_records("x", -1, 5))
    assert (end.chunks, end.releases, end.decisions) == (None, 2, None)
    assert end_of(make(released=3, written=-1).end_records("x", -1, 5)).releases is None
    call.feed_entry(Entry(1, 1, "chunks", [chunk({"content": "a"})] * 5))
    assert end_of(call.end_records("x", -1, 5)).chunks == 5


@pytest.mark.parametrize(
    ("told", "released", "written"),
    [(b"7:3", 7, 3), (b"", 0, 0), (b"", 7, -1), (b"6:3", 7, -1), (b"7:x", 7, -1), (b"7:-1", 7, -1)],
)
def test_how_many_releases_there_are_is_believed_at_its_number_only(
    told: bytes, released: int, written: int
) -> None:
    """What was said at another release says nothing of this one."""
    assert scripts.count_written(told, released) == written


def test_a_tool_call_counts_as_blocked_by_the_last_word_on_it() -> None:
    decided = DecisionCounts()
    for block, verdict in enumerate(("allow", "block", "replace", "allow", "block")):
        decided.add([tool_call_record("c", block=block, verdict=verdict)])
    later: Json = {"call_id": "c", "at": 1, "reason": "r", "policy": "p"}
    decided.add(
        [
            BlockRecord(
                block=3, kind="tool_use", verdict="block", **later
            ),  # allowed, and its record came too late
            BlockRecord(block=4, kind="tool_use", verdict="withheld", **later),
            BlockRecord(block=5, kind="text", verdict="block", **later),
        ]
    )
    assert (decided.rows, decided.counts()[Count.TOOL_CALLS_BLOCKED]) == (8, 2)
    assert "TOOL_CALLS_BLOCKED 2" in pack(decided.counts())
    assert pack(DecisionCounts().counts()) == ""
    assert DecisionCounts().counts().keys() == set(Count) - {Count.DEBUG_LOST}, (
        "every count of what workers decide is counted"
    )
