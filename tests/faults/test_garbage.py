"""What nobody can read, in every place where processes hand something to one another: it ends its
own call, and nothing else.

It may come from an operator, or from a process of another version. No process dies of it, none
reads it again and again.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
import pytest
import redis

from protocol.records import CallRecord, EndRecord, EventRecord, encode_records
from protocol.request import DialectName
from streams import layout
from streams.layout import Entry
from tests.support.checks.invariants import Seen
from tests.support.checks.record import call_record, fresh_database, now_ms, rows
from tests.support.clients.traffic import Finished, call
from tests.support.servers.product import Product, running
from tests.support.waiting import wait_for

SLOWLY = "long 35 slowly, with a gap 100 ms"
BAD_TEXT = b"\xa2\xff\xfe"
"""A msgpack string that is no UTF-8: the decoder raises an error that is not its own."""
NESTED = b"\x91" * 100_000
GARBAGE: dict[str, Callable[[int], bytes]] = {
    "bytes": lambda seq: b"\xc1garbage",
    "kind": lambda seq: msgspec.msgpack.encode([seq, 1, "of a later version", []]),
    "text": lambda seq: b"\x93" + msgspec.msgpack.encode(seq) + b"\x01" + BAD_TEXT,
    "nested": lambda seq: msgspec.msgpack.encode(Entry(seq, 1, "eof"))[:-1] + b"\xa0" + NESTED,
}


@pytest.fixture(scope="module")
def product(
    redis_url: str, database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Product]:
    with (
        fresh_database(database_url) as url,
        running(tmp_path_factory.mktemp("garbage"), redis_url, url) as started,
    ):
        yield started


@pytest.fixture(scope="module")
def store(product: Product) -> Any:
    return product.redis


@pytest.fixture(autouse=True)
def all_live_on(product: Product) -> Iterator[None]:
    """Every process is the one that it was, and the next calls are served."""
    yield
    for kind in ("text", "allowed", "blocked"):
        served = call(product.url, "anthropic", kind)
        assert served.seen.status == 200 and b"message_stop" in served.seen.body, served.seen.body
    assert all(child.process.poll() is None for child in product.children), product.logs()
    wait_for(
        lambda: product.redis.xlen(layout.dispatch_key(0)) == 0, what="nothing is left to claim"
    )


class Open:
    """A streamed call that is under way, with its first bytes at the client."""

    def __init__(self, product: Product, dialect: DialectName) -> None:
        self._begun, self._pool, self.id = threading.Event(), ThreadPoolExecutor(1), ""
        self._done = self._pool.submit(
            call, product.url, dialect, "text", words=SLOWLY, on_data=self._on_data
        )
        assert self._begun.wait(20), "no first byte"

    def _on_data(self, seen: Seen) -> None:
        self.id = seen.call_id
        self._begun.set()

    def end(self) -> Finished:
        """Wait for its end."""
        finished = self._done.result(60)
        self._pool.shutdown()
        return finished

    def end_well(self) -> None:
        """Wait for its end, which is that of a whole answer."""
        assert self.end().seen.body.rstrip().endswith((b"[DONE]", b'{"type":"message_stop"}')), (
            "not a whole answer"
        )


def end_on_record(product: Product, call_id: str) -> tuple[str, str]:
    found = wait_for(
        lambda: rows(
            product.database_url, "SELECT state, reason FROM ends WHERE call_id = %s", call_id
        ),
        what="the end",
    )
    assert len(found) == 1
    state, reason = found[0]
    return state, reason


def put_next(store: Any, call_id: str, make: Callable[[int], bytes]) -> bool:
    """Append where the gateway's next entry would be, unless that comes first, and publish it."""
    last = int(store.xrevrange(layout.call_key(call_id), count=1)[0][0].partition(b"-")[0])
    blob = make(last + 1)
    try:
        store.xadd(layout.call_key(call_id), {"b": blob}, id=f"{last + 1}-0")
    except redis.ResponseError:
        return False
    store.publish(layout.chunk_channel(call_id), blob)
    return True


@pytest.mark.slow
@pytest.mark.case("U5")
def test_an_entry_of_a_call_that_cannot_be_read_ends_that_call(
    product: Product, store: Any
) -> None:
    dialects: list[DialectName] = ["openai", "anthropic"]
    others = [Open(product, dialect) for dialect in dialects]
    victims = []
    for what, dialect in zip(GARBAGE, 2 * dialects, strict=True):
        victims.append(victim := Open(product, dialect))
        # at once: on a slow machine it would have ended before the others had begun
        wait_for(partial(put_next, store, victim.id, GARBAGE[what]), what="room for the entry")
    for victim in victims:
        assert b"the policy workers could not finish this call" in victim.end().seen.body
        assert end_on_record(product, victim.id) == ("FAILED", "stream_protocol_error")
        assert store.hget(layout.ctl_key(victim.id), "t") == b"closed"
    for other in others:
        other.end_well()


@pytest.mark.slow
@pytest.mark.case("U5")
def test_what_anyone_may_publish_or_set_beside_a_call_changes_nothing(
    product: Product, store: Any
) -> None:
    open_call = Open(product, "openai")
    for name in (layout.chunk_channel(open_call.id), layout.facts_channel(open_call.id)):
        for what in GARBAGE.values():
            store.publish(name, what(1))
    store.hset(
        layout.facts_key(open_call.id), mapping={b"c:\xff": b"1", b"c:one": b"1", b"j:9": b"{"}
    )
    store.expire(layout.facts_key(open_call.id), 600)
    store.publish(layout.facts_channel(open_call.id), b"c:one")
    open_call.end_well()
    assert end_on_record(product, open_call.id) == ("ENDED", "complete")


@pytest.mark.slow
@pytest.mark.case("U5")
def test_a_reply_that_cannot_be_read_ends_its_call_alone(product: Product, store: Any) -> None:
    victims, other = [Open(product, "openai"), Open(product, "anthropic")], Open(product, "openai")
    [key] = store.keys(layout.reply_key(0, "*"))
    for blob in (
        b"\xc1",
        NESTED,
        msgspec.msgpack.encode([1, 2]),
        *(msgspec.msgpack.encode([v.id, "no number"]) for v in victims),
    ):
        store.xadd(key, {"b": blob})
    for victim in victims:
        assert b"an entry cannot be read" in victim.end().seen.body
        assert end_on_record(product, victim.id) == ("FAILED", "stream_protocol_error")
    other.end_well()


@pytest.mark.case("U5")
def test_a_dispatch_entry_that_stands_for_no_call_is_taken_away(
    product: Product, store: Any
) -> None:
    strange, nameless = layout.new_call_id(), layout.new_call_id()
    wrong: list[Any] = [
        {"x": "y"},
        {"c": b"\xff\xfe", "d": "1"},
        {"c": "no-call-zz", "d": "1"},
        {"c": strange, "d": "soon"},
    ]
    for fields in wrong:
        store.xadd(layout.dispatch_key(0), fields)
    # one that has a stream, whose beginning nobody can read
    store.xadd(layout.call_key(nameless), {"b": b"\xc1"}, id="0-1")
    store.expire(layout.call_key(nameless), 600)
    store.xadd(layout.dispatch_key(0), {"c": nameless, "d": str(int(time.time() * 1000) + 60_000)})
    wait_for(lambda: store.xlen(layout.dispatch_key(0)) == 0, what="all are taken away")
    assert end_on_record(product, nameless) == ("FAILED", "stream_protocol_error")
    assert store.xpending(layout.dispatch_key(0), "policy")["pending"] == 0


@pytest.mark.case("W10")
@pytest.mark.slow
def test_a_judge_job_that_is_not_ours_is_rejected(product: Product, store: Any) -> None:
    named = layout.judge_job_id(layout.new_call_id(), 0, 0, 0)
    jobs: dict[bytes, Any] = {
        b"\xff\xfe": b"{}",
        b"evil": {"t": 1, "f": "judge", "a": ["{}"], "k": {}, "et": 1},
        f"{named}1".encode(): {"t": "x", "f": [], "a": 1, "k": 2, "et": "now"},
        f"{named}2".encode(): {"t": 1, "f": "judge", "a": ["{}"], "k": {}, "et": 1},
        f"{named}3".encode(): {"t": 1, "f": "judge", "a": ["{}"], "k": {"more": 1}, "et": 1},
    }
    for job_id, job in jobs.items():
        blob = job if isinstance(job, bytes) else msgspec.json.encode(job)
        store.set(b"arq:job:" + job_id, blob, ex=60)
        store.zadd(layout.JUDGE_QUEUE, {job_id: time.time() * 1000})
    # one that a judge seems to work on, which is gone
    store.set("arq:in-progress:evil", 1, ex=60)
    wait_for(lambda: store.zcard(layout.JUDGE_QUEUE) == 0, timeout_s=20, what="all are taken away")
    wait_for(lambda: int(store.get(layout.JUDGE_REJECTED) or 0) >= 3, what="they are counted")


@pytest.mark.slow
@pytest.mark.case("D5")
def test_an_audit_entry_that_cannot_be_read_is_set_aside(product: Product, store: Any) -> None:
    good = layout.new_call_id()
    no_text = encode_records(
        [EventRecord(call_id=good, kind="x", number=1, at=now_ms(), detail="abc")]
    ).replace(b"\xa3abc", b"\xa3\xff\xfe\xfd")
    deep = (
        b"\x91"
        + encode_records([EventRecord(call_id=good, kind="x", number=1, at=now_ms(), detail="")])[
            1:
        ]
        + NESTED
    )
    nobody: list[CallRecord | EndRecord] = [
        call_record("no-call"),
        EndRecord(call_id="no-call", at=now_ms(), state="ENDED", reason="complete", status=200),
    ]
    before = rows(product.database_url, "SELECT count(*) FROM dead_letters")[0][0]
    for blob in (
        b"\xc1",
        no_text,
        deep,
        encode_records([*nobody]),
        encode_records([call_record(good)]),
    ):
        store.xadd(layout.audit_key(0), {"b": blob})
    wait_for(
        lambda: rows(
            product.database_url, "SELECT 1 FROM dead_letters HAVING count(*) >= %s", before + 5
        ),
        what="they are set aside",
    )
    wait_for(
        lambda: rows(product.database_url, "SELECT 1 FROM calls WHERE call_id = %s", good),
        what="the good one",
    )
    wait_for(lambda: store.xlen(layout.audit_key(0)) == 0, what="the stream is trimmed")
