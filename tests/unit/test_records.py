"""Records are total: whatever a session holds is encoded, comes back as it was, and can be
inserted."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.columns import BY_NAME
from db.read import json_rows as read_items
from db.read.json_rows import dump_json, dump_pieces
from db.write.fit_columns import fit
from db.write.rows import pack
from policy.session.session import Session
from protocol import records
from protocol.errors import StreamProtocolError
from protocol.records import (
    BlockRecord,
    CallRecord,
    CallStart,
    ChunksRecord,
    EndRecord,
    EventRecord,
    Record,
    ToolCallRecord,
    decode_records,
    encode_records,
    read_records,
    to_text,
)
from settings.config import Config
from streams import layout
from streams.layout import Entry, Start
from tests.conftest import SEED
from tests.support.checks.kinds import of_kind
from tests.support.checks.record import call_id, call_record, now_ms, tool_call_record, whole_call
from tests.support.checks.start_records import BODY, START, chunk
from tests.support.json_values import Json
from tests.support.worker_calls import call_info, owned
from workers.policy.call import release_queue
from workers.policy.call.owned import OwnedCall

ODD = ["\ud83d", "a\x00\ud800b", "\ufffed83d", "\ufffe", "x" * 5000, "\x00" * 400]
TEXTS = st.text(st.characters(), max_size=20) | st.sampled_from(ODD)
NUMBERS = st.integers(min_value=-(2**80), max_value=2**80) | st.sampled_from(
    [2**31, 2**63, 2**64, -(2**63) - 1, 10**400]
)


def begun() -> OwnedCall:
    info = call_info(START.call_id, durable=True)
    call = owned(START, Session(info, [], Config()))
    call.begin(BODY)
    assert call.next_release(1) is not None
    call.answered()
    return call


@pytest.mark.parametrize(
    ("name", "identity", "field"),
    [
        ("bash\ud83d", "c1", ""),
        ("bash", "c\ud83d", ""),
        ("bash", "c1", "f\ud83d"),
        ("bash\x00", "c\x00", ""),
        ("b" * 9_000, "c" * 9_000, ""),
    ],
)
def test_what_came_with_a_lone_surrogate_is_on_record(name: str, identity: str, field: str) -> None:
    """Attack 4: the call went out of the record without a trace. What becomes of it for the client
    is for others to say."""
    call = begun()
    first: Json = {
        "tool_calls": [{"index": 0, "id": identity, "function": {"name": name, "arguments": "{}"}}]
    }
    raw = [
        chunk({"content": "I will "} | ({field: 1} if field else {})),
        chunk(first),
        chunk({}, "tool_calls"),
        b"data: [DONE]\n\n",
    ]
    records: list[Record] = []
    for seq, one in enumerate(raw, 1):
        call.feed_entry(Entry(seq, 1, "chunks", [one]))
        release = call.next_release(2)
        if release is not None:
            records += decode_records(release.audit) if release.audit else []
            call.answered()
    records += decode_records(encode_records(call.end_records("complete", -1, 3)))
    assert [one for r in records if isinstance(r, ChunksRecord) for one in r.raw] == raw
    if tool_calls := of_kind(records, ToolCallRecord):
        assert {(r.name, r.tool_call_id) for r in tool_calls} == {(name, identity)}
    assert isinstance(records[-1], EndRecord)
    pack([fitted for record in records for fitted in fit(record)], {})


def test_a_release_that_cannot_be_built_leaves_what_it_held_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = begun()
    call.feed_entry(Entry(1, 1, "chunks", [chunk({"content": "a"})]))
    monkeypatch.setattr(release_queue, "encode_records", lambda records: 1 / 0)
    assert call.next_release(2) is None and call.is_broken
    chunks = of_kind(call.end_records("policy_failed", -1, 3), ChunksRecord)
    assert [one for r in chunks for one in r.raw] == [chunk({"content": "a"})]


@given(st.lists(st.tuples(TEXTS, TEXTS, NUMBERS, NUMBERS), max_size=4))
def test_any_text_and_any_number_comes_back_and_fits_a_row(
    values: list[tuple[str, str, int, int]],
) -> None:
    call = call_id()
    records: list[Record] = []
    for block, (name, other, small, large) in enumerate(values):
        records += [
            call_record(
                call,
                model=name,
                session=other,
                key=name,
                key_id=other,
                gateway=name,
                upstream=other,
            ),
            tool_call_record(
                call,
                block=block,
                name=name,
                tool_call_id=other,
                reason=name,
                policy=other,
                index=small,
                choice=large,
            ),
            BlockRecord(
                call_id=call,
                block=block,
                at=now_ms(),
                kind=name,
                verdict="block",
                reason=other,
                policy=name,
            ),
            EndRecord(
                call_id=call,
                at=now_ms(),
                state="ENDED",
                reason=name,
                status=small,
                stop_reason=other,
                relayed=large,
                input_tokens=small,
                output_tokens=large,
            ),
            EventRecord(call_id=call, kind=name, number=block, at=now_ms(), detail=other),
        ]
    assert decode_records(encode_records(records)) == records
    for record in records:
        fitted = fit(record)
        pack(fitted, {})
        assert all(fit(one) == [one] for one in fitted[:1]), "what was made to fit fits"
        for column in BY_NAME["tool_calls"].columns:
            most = column.most_chars
            assert (
                most is None
                or not isinstance(fitted[0], ToolCallRecord)
                or len(getattr(fitted[0], column.name)) <= most
            )


class _Odd:
    def __repr__(self) -> str:
        return "an object of a policy \ud83d"


@pytest.mark.parametrize(
    "value",
    [5, None, ["y", 2**70], {"a": "\ud83d"}, 1.5, b"\xff", _Odd(), True, (1, {2})],
    ids=repr,
)
def test_a_field_of_a_wrong_type_costs_no_other_record(value: Any) -> None:
    """Attack 13: `Block(5)` made a dead letter of all that was recorded with it."""
    good = whole_call(call_id())
    wrong = BlockRecord(
        call_id=call_id(),
        block=0,
        at=now_ms(),
        kind="text",
        verdict="block",
        reason=value,
        policy="",
    )
    records, unreadable = read_records(encode_records([*good, wrong, *good]))
    assert unreadable == [] and len(records) == 2 * len(good) + 1
    assert records[: len(good)] == records[len(good) + 1 :] == good
    mended = records[len(good)]
    assert isinstance(mended, BlockRecord) and type(mended.reason) is str
    pack([mended], {})


def test_what_is_no_record_is_told_apart_from_those_that_are() -> None:
    good = whole_call(call_id())
    wrong = BlockRecord(
        call_id=good[0].call_id,
        block=0,
        at=now_ms(),
        kind="text",
        verdict="odd",  # type: ignore[arg-type]
        reason="\ud83d",
        policy="",
    )
    blob = encode_records([*good, wrong])
    records, [unreadable] = read_records(blob)
    assert records == good
    assert good[0].call_id.encode() in unreadable
    with pytest.raises(StreamProtocolError):
        decode_records(blob)
    for nothing in (
        b"",
        b"\xc1",
        b"\x80",
        msgspec.msgpack.encode("x"),
        msgspec.msgpack.encode([msgspec.msgpack.Ext(77, b"")]),
    ):
        with pytest.raises(StreamProtocolError):
            read_records(nothing)
    no_records: tuple[list[Any], ...] = ([5], [[]], [["call"]], [["no kind", 1]], [None, [None]])
    for items in no_records:
        assert read_records(msgspec.msgpack.encode(items)) == (
            [],
            [msgspec.msgpack.encode(item) for item in items],
        )


def test_what_a_later_version_adds_is_left_out() -> None:
    """It stands last on the wire (tests/service/test_seal_forms.py has both versions)."""
    made = call_record(
        call_id(), key_id="0123456789abcdef", policy_set="0123456789ab", body_sha256=bytes(32)
    )
    item = msgspec.msgpack.decode(encode_records([made]))[0]
    assert decode_records(msgspec.msgpack.encode([[*item, "new"]])) == [made]
    assert read_records(msgspec.msgpack.encode([item[:-1]]))[0] == [], (
        "nothing that is there now may be missing"
    )
    start = msgspec.msgpack.decode(layout.pack_start(START))
    assert layout.unpack_start(msgspec.msgpack.encode([*start, {"new": 1}])) == START


@pytest.mark.parametrize(
    ("start", "kept"),
    [
        (START, '{"nonce":"n"}'),
        (
            msgspec.structs.replace(START, betas=("a-1", "b-2"), server_tools=("web_search",)),
            '{"nonce":"n","betas":["a-1","b-2"],"server_tools":["web_search"]}',
        ),
    ],
)
def test_what_start_says_is_on_record(start: Start, kept: str) -> None:
    """With the columns and the body it is all that a call is gone through with."""
    info = call_info(
        start.call_id,
        nonce=start.nonce,
        durable=True,
        betas=start.betas,
        server_tools=start.server_tools,
    )
    session = Session(info, [], Config(demo=True))
    session.begin(BODY)
    [record] = of_kind(session.drain().records, CallRecord)
    assert record.start == kept
    assert msgspec.json.decode(kept, type=CallStart) == CallStart(
        start.nonce, start.betas, start.server_tools
    )


def test_the_ordinary_way_is_not_left_for_ordinary_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a session holds nearly always is encoded in one step."""
    chance = random.Random(SEED)
    monkeypatch.setattr("protocol.records._packable", lambda record: 1 / 0)
    records = [
        r
        for _ in range(20)
        for r in whole_call(
            call_id(), session="é😀\x00\ufffe" + chr(chance.randrange(0x20, 0xD000))
        )
    ]
    assert decode_records(encode_records(records)) == records


ODD_BYTES = st.lists(
    st.sampled_from(
        [
            b"a",
            "é".encode(),
            "€".encode(),
            "😀".encode(),
            b"\xed\xa0\x80",
            b"\x80",
            b"\xff",
            b"\xf0\x9f",
            b"\xe2",
        ]
    )
)


@given(ODD_BYTES.map(b"".join), st.integers(5, 9))
def test_bytes_become_the_same_text_in_pieces(data: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_PIECE_BYTES", size)
        pieces = to_text(data)
    assert pieces == to_text(data)


@pytest.mark.slow
@given(
    st.dictionaries(
        st.text(max_size=5),
        st.text(max_size=30)
        | st.none()
        | st.integers()
        | st.lists(st.text(max_size=9), max_size=3),
    )
)
def test_an_object_is_the_same_json_in_pieces(item: Json) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_items, "_PIECE_CHARS", 4)
        pieces = list(dump_pieces(item))
    assert b"".join(pieces) == dump_json(item)
