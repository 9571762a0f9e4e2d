"""Recorded turns on a real PostgreSQL: found by the ids of their tool calls, for the same key,
whole or not at all."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

import db.read.call.turns
from db.read.call.turns import TurnReader
from protocol.dialects.turns import Lost, StoredTurn
from protocol.records import (
    BlockRecord,
    ChunksRecord,
    EventRecord,
    decode_records,
)
from streams import layout
from streams.layout import Reply
from streams.round_robin import RoundRobin
from tests.support.checks.record import (
    call_id,
    call_record,
    chunks_record,
    now_ms,
)
from tests.support.checks.recorded_turns import (
    CONTENT,
    FOUND,
    SEARCH,
    THINKING,
    USE,
    ended,
    insert,
    released,
    turn_of,
)
from tests.support.json_values import Json, as_json
from tests.support.servers.dispatch import GATEWAY, begin, with_gateway, working
from tests.support.upstreams import gemini
from tests.support.upstreams.turns import events, streamed


@pytest.fixture
async def reader(url: str) -> AsyncIterator[TurnReader]:
    async with opened(url) as found:
        yield found


@asynccontextmanager
async def opened(url: str, *, durable: bool = True) -> AsyncIterator[TurnReader]:
    found = TurnReader.open(url, "anthropic", durable=durable)
    yield found
    await found.close()


async def find(
    reader: TurnReader, key_id: str, ids: Sequence[str], *, lost: Sequence[Lost] = ()
) -> Sequence[StoredTurn]:
    async with reader.finding(key_id, ids) as found:
        assert found.lost == list(lost)
        return found.turns


async def test_a_turn_is_found_by_the_id_of_its_call(url: str, reader: TurnReader) -> None:
    call = call_id()
    await insert(url, *turn_of(call))
    want = [StoredTurn(call, CONTENT, "", ("toolu_1",), "claude", "gpt-x", (3,))]
    assert await find(reader, "k", ["toolu_0", "toolu_1"]) == want
    assert await find(reader, "k", ["toolu_1"]) == want, "from memory too"


async def test_what_a_stream_says_after_a_finish_reason_is_of_the_turn(url: str) -> None:
    answers = (gemini.answer(gemini.call(signature=s)) for s in ("BBBB", "CCCC"))
    call, chunks = call_id(), events(gemini.body_of(*answers))
    calls = [released(call, identity, block=block) for block, identity in enumerate(("1", "2"))]
    await insert(
        url, call_record(call, key="k", upstream="google"), chunks_record(call, chunks), *calls
    )
    reader = TurnReader.open(url, "gemini")
    (found,) = await find(reader, "k", ["1", "2"])
    assert [b["signature"] for b in found.content] == ["BBBB", "CCCC"]
    await reader.close()


async def test_an_answer_without_calls_is_found_by_its_own_id(url: str, reader: TurnReader) -> None:
    async def found(call: str, key: str = "k") -> Sequence[StoredTurn]:
        async with reader.finding(key, (), answers=(call, call_id())) as turns:
            assert not turns.lost
            return turns.turns

    whole, withheld = call_id(), call_id()
    content = [THINKING, {"type": "text", "text": "hi"}]
    for call in (whole, withheld):
        await insert(
            url,
            call_record(call, key="k", upstream="claude"),
            chunks_record(call, streamed(content, "end_turn")),
            ended(call),
        )
    kept_back = BlockRecord(
        call_id=withheld,
        block=2,
        at=now_ms(),
        kind="other",
        verdict="block",
        reason="r",
        policy="p",
    )
    await insert(url, kept_back)
    assert await found(whole) == [StoredTurn(whole, content, "", (), "claude", "gpt-x", ())]
    assert await found(whole, "other") == [] and await found(withheld) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "block", "released_arguments": None},
        {"executor": "provider"},
        {"tool_call_id": "toolu_2"},
    ],
)
async def test_only_what_the_client_received_counts(
    url: str, reader: TurnReader, changes: Json
) -> None:
    call = call_id()
    records = turn_of(call)
    await insert(url, *records[:2], released(call, **changes), records[3])
    assert await find(reader, "k", ["toolu_1"]) == []


async def test_a_turn_of_another_key_is_not_found(url: str, reader: TurnReader) -> None:
    await insert(url, *turn_of(call_id()))
    assert await find(reader, "other", ["toolu_1"]) == []


async def test_a_turn_is_its_keys_and_not_of_whom_has_the_name_later(
    url: str, reader: TurnReader
) -> None:
    """C7: a name is unique among keys in use only, and ids of tool calls are in transcripts."""
    await insert(url, *turn_of(call_id(), key_id="0123456789abcdef"))
    assert (
        await find(reader, "fedcba9876543210", ["toolu_1"])
        == await find(reader, "k", ["toolu_1"])
        == []
    )
    assert len(await find(reader, "0123456789abcdef", ["toolu_1"])) == 1


async def test_the_same_id_under_another_key_disturbs_nobody(url: str, reader: TurnReader) -> None:
    mine, theirs = call_id(), call_id()
    await insert(url, *turn_of(mine), call_record(theirs, key="other"), *turn_of(theirs)[1:])
    assert [t.call_id for t in await find(reader, "k", ["toolu_1"])] == [mine]


async def test_an_id_of_two_calls_is_of_none(url: str, reader: TurnReader) -> None:
    await insert(url, *turn_of(call_id()), *turn_of(call_id()))
    assert await find(reader, "k", ["toolu_1"]) == []


async def test_a_call_overruled_later_was_not_received(url: str, reader: TurnReader) -> None:
    call = call_id()
    late = BlockRecord(
        call_id=call,
        block=3,
        at=now_ms(),
        kind="tool_use",
        verdict="block",
        reason="audit_unavailable",
        policy="",
    )
    await insert(url, *turn_of(call), late)
    assert await find(reader, "k", ["toolu_1"]) == []


@pytest.mark.parametrize("kind", ["other", "server_tool_use"])
async def test_what_a_policy_kept_from_the_client_does_not_come_back(
    url: str, reader: TurnReader, kind: str
) -> None:
    call = call_id()
    await insert(
        url,
        *turn_of(call),
        BlockRecord(
            call_id=call, block=2, at=now_ms(), kind=kind, verdict="block", reason="r", policy="p"
        ),
    )
    assert await find(reader, "k", ["toolu_1"]) == []


async def test_a_denied_call_of_the_providers_does_not_come_back(
    url: str, reader: TurnReader
) -> None:
    call = call_id()
    await insert(
        url,
        *turn_of(call),
        released(
            call,
            "srvtoolu_1",
            block=1,
            executor="provider",
            verdict="block",
            released_arguments=None,
        ),
    )
    assert await find(reader, "k", ["toolu_1"]) == []


@pytest.mark.parametrize(
    "seqs",
    [range(2, 99), range(1, 6), [*range(1, 3), *range(4, 99)]],
    ids=["no first", "no end", "a gap"],
)
async def test_a_turn_with_a_chunk_missing_is_not_found(
    url: str, reader: TurnReader, seqs: range | list[int]
) -> None:
    call = call_id()
    chunks = [
        chunks_record(call, [raw], seq=seq)
        for seq, raw in enumerate(streamed(CONTENT, "tool_use"), 1)
        if seq in seqs
    ]
    first, _, third, last = turn_of(call)
    await insert(url, first, *chunks, third, last)
    began = time.monotonic()
    assert await find(reader, "k", ["toolu_1"]) == []
    assert time.monotonic() - began < 1, "a call that ended long ago is not waited for"


async def test_an_end_that_is_still_on_its_way_is_waited_for(url: str, reader: TurnReader) -> None:
    call = call_id()
    raw = streamed(CONTENT, "tool_use")
    await insert(url, call_record(call, key="k"), chunks_record(call, raw[:4]), released(call))
    finding = asyncio.create_task(find(reader, "k", ["toolu_1"]))
    done, _ = await asyncio.wait({finding}, timeout=0.3)
    assert not done
    await insert(url, chunks_record(call, raw[5:], seq=6))
    await insert(url, chunks_record(call, raw[4:5], seq=5), ended(call, now_ms()))
    assert [t.content for t in await finding] == [CONTENT]


async def test_an_end_that_does_not_come_is_waited_for_only_so_long(
    url: str, reader: TurnReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db.read.call.turns, "FIND_S", 0.5)
    whole, cut = call_id(), call_id()
    await insert(url, *turn_of(whole))
    await insert(
        url,
        call_record(cut, key="k"),
        chunks_record(cut, streamed([USE | {"id": "toolu_2"}], "tool_use")[:3]),
    )
    await insert(url, released(cut, "toolu_2"))
    began = time.monotonic()
    assert [
        t.call_id for t in await find(reader, "k", ["toolu_1", "toolu_2"], lost=["read too late"])
    ] == [whole]
    assert 0.4 < time.monotonic() - began < 1.5


async def test_a_wait_for_a_place_is_not_of_the_time_to_find(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits behind others of its key is found as ever, and lookups of another key do not wait
    behind those of this one."""
    monkeypatch.setattr(db.read.call.turns, "FIND_S", 0.5)
    places, call = RoundRobin(2), call_id()
    reader = TurnReader.open(url, "anthropic", turn=places.place)
    await insert(url, *turn_of(call))
    await places.enter("k")
    finding = asyncio.create_task(find(reader, "k", ["toolu_1"]))
    assert await find(reader, "other", ["toolu_1"]) == []
    done, _ = await asyncio.wait({finding}, timeout=0.7)
    assert not done
    places.leave("k")
    assert [turn.call_id for turn in await finding] == [call]
    await reader.close()


def segments(call: str) -> list[ChunksRecord]:
    """A turn that was paused once; the end of its first answer has the number between."""
    first = streamed([THINKING, SEARCH], "pause_turn", container="c_1")
    return [
        chunks_record(call, first),
        chunks_record(
            call, streamed([FOUND, USE], "tool_use", identity="msg_2"), seq=len(first) + 2
        ),
    ]


async def test_the_answers_of_a_paused_turn_are_one_turn(url: str, reader: TurnReader) -> None:
    call = call_id()
    await insert(url, call_record(call, key="k"), *segments(call), released(call))
    [turn] = await find(reader, "k", ["toolu_1"])
    assert (turn.content, turn.container) == (CONTENT, "c_1")


async def test_the_answers_around_a_call_that_was_given_back_are_one_turn(
    url: str, reader: TurnReader
) -> None:
    call = call_id()
    bad = USE | {"id": "toolu_bad"}
    first = streamed([THINKING, bad], "tool_use")
    await insert(
        url,
        call_record(call, key="k"),
        chunks_record(call, first),
        chunks_record(call, streamed([USE], "tool_use", identity="msg_2"), seq=len(first) + 2),
        released(call),
    )
    [turn] = await find(reader, "k", ["toolu_1"])
    assert turn.content == [THINKING, bad, USE]


async def test_a_paused_turn_that_nobody_went_on_with_is_a_turn_once_its_call_ended(
    url: str, reader: TurnReader
) -> None:
    call = call_id()
    await insert(url, *turn_of(call, streamed([THINKING, USE, SEARCH], "pause_turn")))
    assert [t.content for t in await find(reader, "k", ["toolu_1"])] == [[THINKING, USE, SEARCH]]


async def test_an_expired_container_is_not_gone_on_with(url: str, reader: TurnReader) -> None:
    call = call_id()
    raw = [
        c.replace(b"2099-01-01", b"2020-01-01")
        for c in streamed(CONTENT, "tool_use", container="c_1")
    ]
    await insert(url, *turn_of(call, raw))
    assert [t.container for t in await find(reader, "k", ["toolu_1"])] == [""]


async def test_an_answer_of_the_other_dialect_is_no_turn(url: str, reader: TurnReader) -> None:
    await insert(
        url, *turn_of(call_id(), [b'data: {"id":"x","choices":[]}\n\n', b"data: [DONE]\n\n"])
    )
    assert await find(reader, "k", ["toolu_1"]) == []


async def test_a_turn_too_large_is_left_out_and_the_newest_come_first(
    url: str, reader: TurnReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, large = call_id(now_ms() - 2000), call_id(now_ms() - 1000), call_id(now_ms())
    raw = streamed(CONTENT, "tool_use")
    padded = [*raw, b": " + b"x" * 4000 + b"\n\n"]
    size = sum(map(len, raw))
    monkeypatch.setattr(db.read.call.turns, "MAX_CALL_BYTES", 2 * size)
    monkeypatch.setattr(db.read.call.turns, "MAX_BYTES", size + 10)
    for call, identity, chunks in (old, "a", raw), (new, "b", raw), (large, "c", padded):
        await insert(
            url,
            call_record(call, key="k"),
            chunks_record(call, chunks),
            released(call, identity),
            ended(call),
        )
    for _ in range(2):
        assert [
            t.call_id for t in await find(reader, "k", ["a", "b", "c"], lost=["too large"])
        ] == [new]
    assert await find(reader, "k", ["c"], lost=["too large"]) == []


async def test_ids_of_any_text_are_looked_up(url: str, reader: TurnReader) -> None:
    call = call_id()
    await insert(
        url,
        call_record(call, key="k\ud800", key_id="k"),
        chunks_record(call, streamed(CONTENT, "tool_use")),
        released(call, "a\0'\ud800"),
    )
    assert [t.tool_call_ids for t in await find(reader, "k", ["a\0'\ud800", "%"])] == [
        ("a\0'\ud800",)
    ]


async def test_where_calls_are_released_before_they_are_on_record_they_are_waited_for(
    url: str,
) -> None:
    call = call_id()
    async with opened(url, durable=False) as patient, opened(url) as strict:
        finding = asyncio.create_task(find(patient, "k", ["toolu_1"]))
        assert await find(strict, "k", ["toolu_1"]) == []
        await insert(url, *turn_of(call))
        assert [t.call_id for t in await finding] == [call]


async def test_a_database_that_is_away_finds_nothing_and_says_so() -> None:
    async with opened("postgresql://u:p@127.0.0.1:1/none") as reader:
        assert await find(reader, "k", ["toolu_1"], lost=["unreadable"]) == []


async def test_a_database_that_does_not_answer_finds_nothing_within_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(db.read.call.turns, "FIND_S", 0.3)
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with opened(f"postgresql://u:p@127.0.0.1:{port}/none") as reader:
        began = time.monotonic()
        assert await find(reader, "k", ["toolu_1"], lost=["read too late"]) == []
        assert time.monotonic() - began < 1
        for writer in held:
            writer.close()
    server.close()


async def test_a_look_up_may_not_write(reader: TurnReader) -> None:
    async with reader._engine.connect() as connection:
        assert (
            await connection.exec_driver_sql("SHOW default_transaction_read_only")
        ).scalar() == "on"


@pytest.mark.parametrize("away", [False, True])
async def test_a_worker_refuses_a_call_past_its_keys_share_and_names_what_it_could_not_read(
    redis_url: str, url: str, away: bool
) -> None:
    """Before: both went upstream without the turn, and nobody knew."""
    await insert(url, *turn_of(call_id()))
    use = {"id": "toolu_1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    asked = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [use]}]
    body = {
        "model": "m",
        "messages": [*asked, {"role": "tool", "tool_call_id": "toolu_1", "content": "y"}],
    }
    upstream = {"dialect": "anthropic", "base_url": "http://127.0.0.1:1", "api_key_env": "X"}
    config = {"upstreams": {"claude": upstream}, "models": [{"match": "*", "upstream": "claude"}]}
    database = "postgresql://u:p@127.0.0.1:1/none" if away else url
    async with with_gateway(redis_url) as redis, working(redis_url, database, "w", config):
        await redis.call("HSET", layout.memory_key(0), "most", 1)
        call = await begin(redis, body=as_json(body))
        found: list[Reply] = []
        while not any(one.status or one.dispatch for one in found):
            entries = await redis.call("XRANGE", layout.reply_key(0, GATEWAY), "-", "+")
            found = [
                layout.unpack_reply(blob) for _, fields in entries for blob in layout.blobs(fields)
            ]
        records = await redis.call("XRANGE", layout.audit_key(0), "-", "+")
    events = [
        r
        for _, fields in records
        for blob in layout.blobs(fields)
        for r in decode_records(blob)
        if isinstance(r, EventRecord)
    ]
    lost = [e.detail for e in events if e.call_id == call and e.kind == "turns_lost"]
    assert lost == (
        ["0: earlier turns may be missing from the request: unreadable"] if away else []
    )
    assert [one.status for one in found if one.status] == ([] if away else [429])
