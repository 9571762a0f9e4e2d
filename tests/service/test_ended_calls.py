"""Calls that ended and are not whole on record are marked, and no others: whatever is still to come
is waited for."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
import pytest

from db.missing_records import Hole
from db.seals.redact import redact
from db.seals.seal import Sealer
from db.seals.verify import verify
from db.write.insert import AuditInserter
from protocol.errors import AuditUnavailable
from protocol.records import EndRecord
from streams import layout
from streams.connection import Connection
from streams.layout import Entry, Relayed
from tests.support.checks.reading import insert
from tests.support.checks.record import let_views_change, rows
from tests.support.checks.sums import BODY, summed_call
from tests.support.waiting import wait_until
from workers.audit.ended_calls import EndedCalls

TTL_S = 0.3
"""So the first look is 0.05 s after a call's end, and the second 0.6 s."""
SHARDS = 2


@pytest.fixture
def ended(redis: Connection) -> EndedCalls:
    return EndedCalls(redis, shards=SHARDS, ended_ttl_s=TTL_S)


async def until(condition: Callable[[], Any], what: str = "") -> None:
    """Wait until a coroutine function says so."""
    await wait_until(condition, what=what)


async def put(url: str, call: str, *, without_end: bool = False) -> None:
    """Put a call on record."""
    records = [r for r in summed_call(call) if not (without_end and isinstance(r, EndRecord))]
    await insert(url, *records, bodies={call: BODY})


async def name(redis: Connection, *calls: str, told: Entry | None = None) -> str:
    """Name calls that ended, as their worker does, or with what a gateway says of one; returns the
    entry's id."""
    fields: list[str | bytes] = [part for call in calls for part in ("c", call)]
    if told is not None:
        fields += ["b", layout.pack(told)]
    made: bytes = await redis.call(
        "XADD", layout.ended_key(layout.shard_of(calls[0])), "*", *fields
    )
    return made.decode()


def closed(number: int, *payloads: bytes) -> Entry:
    """What a gateway says of the end of a call of which it relayed these releases."""
    chain = sha256(b"".join(sha256(payload).digest() for payload in payloads)).digest()
    return Entry(9, 1, "closed", [layout.pack(Relayed(len(payloads), chain))], number, "complete")


def holes(url: str, call: str) -> list[int]:
    """The kinds of holes that the record says a call has."""
    return [
        n
        for (n,) in rows(
            url,
            "SELECT number FROM events WHERE call_id = %s AND kind = 'incomplete' ORDER BY number",
            call,
        )
    ]


async def looked_up_twice(
    ended: EndedCalls, inserter: AuditInserter, redis: Connection
) -> list[UUID]:
    """Look until all that is named now was looked up for the last time, and what was missing then
    once more; returns what was marked."""
    marked: list[UUID] = []
    last = {
        shard: await redis.call("XREVRANGE", layout.ended_key(shard), "+", "-", "COUNT", 1)
        for shard in range(SHARDS)
    }

    async def is_done() -> bool:
        marked.extend(await ended.check(inserter))
        read = all(
            not found or ended._read_to[shard, 1] == found[0][0].decode()
            for shard, found in last.items()
        )
        return read and not ended._missed

    await until(is_done, what="everything was looked up twice")
    return marked


async def test_what_the_record_lost_is_marked(
    url: str, redis: Connection, inserter: AuditInserter, ended: EndedCalls
) -> None:
    """Calls of two shards, one of them gone altogether; and the others are not."""
    whole = [layout.new_call_id(SHARDS) for _ in range(20)]
    gone, begun = f"{layout.new_call_id(1)[:-2]}01", f"{layout.new_call_id(1)[:-2]}00"
    for call in whole:
        await put(url, call)
        await name(redis, call)
    await put(url, begun, without_end=True)
    await name(redis, gone)
    await name(redis, begun)
    assert sorted(await looked_up_twice(ended, inserter, redis)) == sorted(
        [UUID(gone), UUID(begun)]
    )
    assert holes(url, gone) == holes(url, begun) == [Hole.END]
    assert rows(url, "SELECT count(DISTINCT call_id) FROM events WHERE kind = 'incomplete'") == [
        (2,)
    ]
    with Sealer(url) as sealer:
        assert sealer.seal([UUID(gone)]) == 1
    assert holes(url, gone) == [Hole.BEGINNING, Hole.END]


async def test_a_record_that_is_set_back_is_looked_at_again(
    url: str, redis: Connection, inserter: AuditInserter, ended: EndedCalls
) -> None:
    call = layout.new_call_id()
    await put(url, call)
    entry = await name(redis, call)
    await until(lambda: read_to(ended, inserter, 0, entry), what="looked up once")
    assert not ended._missed and holes(url, call) == []
    let_views_change(url)
    for table in ("calls", "chunks", "releases", "ends"):
        rows(url, f"DELETE FROM {table} WHERE call_id = %s", call)
    assert await looked_up_twice(ended, inserter, redis) == [UUID(call)]


async def read_to(ended: EndedCalls, inserter: AuditInserter, turn: int, entry: str) -> bool:
    """Look once; was this looked up?"""
    await ended.check(inserter)
    return ended._read_to[0, turn] == entry


@pytest.mark.slow
async def test_what_waits_for_postgres_is_waited_for(
    url: str, redis: Connection, inserter: AuditInserter, ended: EndedCalls
) -> None:
    """On the stream, or held by a writer when somebody cuts the stream."""
    call, key = layout.new_call_id(), layout.audit_key(0)
    await redis.call("XGROUP", "CREATE", key, layout.AUDIT_GROUP, "0", "MKSTREAM")
    entry = await redis.call("XADD", key, "*", "b", b"its end")
    await name(redis, call)
    late = layout.new_call_id()
    for then in (
        ("XREADGROUP", "GROUP", layout.AUDIT_GROUP, "w", "STREAMS", key, ">"),
        ("XTRIM", key, "MAXLEN", 0),
    ):
        await passed(redis, 2.5 * TTL_S)
        assert await ended.check(inserter) == [] and not ended._missed
        await redis.call(*then)
    await passed(redis, 2.5 * TTL_S)
    assert await ended.check(inserter) == [] and not ended._missed
    await redis.call("XACK", key, layout.AUDIT_GROUP, entry)
    await name(redis, late)
    await put(url, late)
    assert await looked_up_twice(ended, inserter, redis) == [UUID(call)]


async def passed(redis: Connection, seconds: float) -> None:
    """Wait until Redis' clock is so much later."""
    start = layout.time_ms(await redis.call("TIME"))

    async def is_later() -> bool:
        return bool(layout.time_ms(await redis.call("TIME")) - start >= seconds * 1000)

    await until(is_later)


async def test_a_call_that_goes_on_is_waited_for(
    url: str, redis: Connection, inserter: AuditInserter, ended: EndedCalls
) -> None:
    """A Redis that came back without its last second has the call open again, and another worker
    ends it."""
    call, other = layout.new_call_id(), layout.new_call_id()
    for one in (call, other):
        await redis.call("XADD", layout.call_key(one), "1-0", "b", "")
        await name(redis, one, told=closed(3, b"out", b"more"))
    await passed(redis, 3 * TTL_S)
    for _ in range(3):
        assert await ended.check(inserter) == []
        await passed(redis, TTL_S / 2)
    assert set(ended._missed) == {call, other}
    await put(url, call)
    await redis.call("DEL", layout.call_key(call), layout.call_key(other))
    assert await looked_up_twice(ended, inserter, redis) == [UUID(other)]


async def test_what_was_dropped_or_redacted_is_no_hole(
    url: str, redis: Connection, inserter: AuditInserter, ended: EndedCalls
) -> None:
    dropped, redacted, lost = sorted(layout.new_call_id() for _ in range(3))
    await name(redis, dropped)
    await put(url, redacted)
    await name(redis, redacted, told=closed(3, b"out", b"more"))
    redact(url, UUID(redacted), "asked for")
    await name(redis, lost)
    rows(
        url,
        "INSERT INTO seals (position, call_id, part, at, counts, sha256, note) VALUES (99, %s, -1,"
        " now(), '{1}', '', 'retention')",
        redacted,
    )
    assert await looked_up_twice(ended, inserter, redis) == [UUID(lost)]


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (closed(3, b"out", b"more"), []),
        (closed(2, b"out"), []),
        (closed(4, b"out", b"more", b"what Redis lost"), [Hole.RELAYED]),
        (closed(3, b"out", b"other"), [Hole.RELAYED]),
        (Entry(9, 1, "closed", [], 3, "complete"), []),
        (Entry(9, 1, "closed", [b"?"], 3, "complete"), []),
    ],
)
async def test_what_a_gateway_relayed_is_compared(
    url: str,
    redis: Connection,
    inserter: AuditInserter,
    ended: EndedCalls,
    told: Entry,
    found: list[Hole],
) -> None:
    call = layout.new_call_id()
    await put(url, call)
    await name(redis, call, told=told)
    await looked_up_twice(ended, inserter, redis)
    assert holes(url, call) == found


async def test_what_a_gateway_tells_and_is_nowhere_is_marked(
    url: str, redis: Connection, inserter: AuditInserter, ended: EndedCalls
) -> None:
    call = layout.new_call_id()
    await name(redis, call, told=closed(2, b"out"))
    assert await looked_up_twice(ended, inserter, redis) == [UUID(call)]
    assert holes(url, call) == [Hole.END]


async def test_a_redis_that_counts_from_lower_ids_is_read_from_its_beginning(
    url: str, redis: Connection, inserter: AuditInserter, ended: EndedCalls
) -> None:
    """It came back empty on a clock that is behind; whatever it is, its entries are looked up."""
    await name(redis, layout.new_call_id())
    await looked_up_twice(ended, inserter, redis)
    call = layout.new_call_id()
    await redis.call("DEL", layout.ended_key(0))
    await redis.call("XADD", layout.ended_key(0), "1000-0", "c", call)
    assert await looked_up_twice(ended, inserter, redis) == [UUID(call)]


async def test_two_writers_and_one_that_begins_anew_say_it_once(
    url: str, redis: Connection, inserter: AuditInserter
) -> None:
    """And what is not read while Postgres is away is read afterwards."""
    call = layout.new_call_id()
    await name(redis, call)
    away = AuditInserter("postgresql://nobody@127.0.0.1:1/nothing")
    for again in range(3):
        looking = EndedCalls(redis, shards=SHARDS, ended_ttl_s=TTL_S)
        await passed(redis, TTL_S)
        with pytest.raises(AuditUnavailable):
            await looking.check(away)
        assert await looked_up_twice(looking, inserter, redis) == ([] if again else [UUID(call)])
    assert holes(url, call) == [Hole.END]


async def test_the_stream_keeps_an_hour(
    redis: Connection, inserter: AuditInserter, ended: EndedCalls
) -> None:
    """What was looked up twice and is older goes."""
    key, now = layout.ended_key(0), layout.time_ms(await redis.call("TIME"))
    for age_s in (7200, 3700, 1800):
        await redis.call("XADD", key, f"{now - age_s * 1000}-0", "x", "no call")
    await redis.call("XADD", key, "*", "c", "no id")
    await looked_up_twice(ended, inserter, redis)
    await ended.check(inserter)
    assert await redis.call("XLEN", key) == 2


@pytest.mark.parametrize(("sealed", "told_twice"), [(True, False), (True, True), (False, True)])
async def test_what_was_relayed_of_a_call_that_its_worker_gave_up_is_recorded_once(
    url: str,
    redis: Connection,
    inserter: AuditInserter,
    ended: EndedCalls,
    sealed: bool,
    told_twice: bool,
) -> None:
    call = layout.new_call_id()
    given_up = {"relayed": -1, "relayed_sha256": None}
    records = [
        msgspec.structs.replace(r, **given_up) if isinstance(r, EndRecord) else r
        for r in summed_call(call)
    ]
    await insert(url, *records, bodies={call: BODY})
    if sealed:
        with Sealer(url) as sealer:
            assert sealer.seal([UUID(call)]) == 1
    payloads = [
        bytes(p)
        for (p,) in rows(
            url, "SELECT payload FROM releases WHERE call_id = %s ORDER BY number", call
        )
    ]
    [(upto,)] = rows(url, "SELECT max(number_next) FROM releases WHERE call_id = %s", call)
    relayed = layout.unpack_relayed(closed(upto, *payloads).chunks[0])
    relayed = msgspec.structs.replace(relayed, keepalives=[(0, 2)], own=b"data: {}\n\n")
    for at in (1, 2) if told_twice else (1,):
        await name(
            redis, call, told=Entry(9, at, "closed", [layout.pack(relayed)], upto, "policy_failed")
        )
    grown = await looked_up_twice(ended, inserter, redis)
    # one without a seal is sealed when all of it is there
    assert set(grown) == ({UUID(call)} if sealed else set())
    events = rows(
        url,
        "SELECT kind, number, detail FROM events WHERE call_id = %s AND kind <> 'takeover' ORDER BY"
        " kind",
        call,
    )
    said = f"said by its gateway, of {len(payloads)} releases"
    assert events == [
        ("frame", upto, "data: {}\n\n"),
        ("keepalive", 0, "2"),
        ("relayed", upto, said),
    ]
    with Sealer(url) as sealer:
        assert sealer.seal([UUID(call)]) == 1
    assert verify(url).ok


async def test_an_entry_of_a_gateway_names_many_calls(
    url: str, redis: Connection, inserter: AuditInserter, ended: EndedCalls
) -> None:
    """Each with what it relayed; what is no call among them is left out."""
    calls = [layout.new_call_id() for _ in range(3)]
    for call in calls:
        await put(url, call)
    payloads = [
        bytes(p)
        for (p,) in rows(
            url, "SELECT payload FROM releases WHERE call_id = %s ORDER BY number", calls[0]
        )
    ]
    [(upto,)] = rows(url, "SELECT max(number_next) FROM releases WHERE call_id = %s", calls[0])
    right, wrong = layout.pack(closed(upto, *payloads)), layout.pack(closed(upto, b"other"))
    fields: list[str | bytes] = []
    for call, said in zip(["no call", *calls], (wrong, right, wrong, right), strict=True):
        fields += ["c", call, "b", said]
    await redis.call("XADD", layout.ended_key(0), "*", *fields)
    assert await looked_up_twice(ended, inserter, redis) == [UUID(calls[1])]
    assert [holes(url, call) for call in calls] == [[], [Hole.RELAYED], []]
