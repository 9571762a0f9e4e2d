"""The end of a call says what its record must hold and what its client got; what changes on the way
between the processes shows, or ends the call.
"""

import contextlib
import signal
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import httpx2 as httpx
import psycopg
import pytest

from protocol.dialects.table import CLIENTS
from protocol.request import DialectName
from streams import layout
from streams.layout import Reply
from tests.support.checks.call_sums import NAMES, config, ended, events, no_differences
from tests.support.checks.recount import recounted, sum_differences, told
from tests.support.clients.readers import Reader, joined, request, under_way, words
from tests.support.clients.traffic import KINDS, Kind, call
from tests.support.servers.product import KEY, Product, running
from tests.support.servers.stores import Stores
from tests.support.waiting import wait_for


@pytest.fixture
def record(database_url: str) -> Iterator["psycopg.Connection[Any]"]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def product(stores: Stores) -> Iterator[Product]:
    with running(*stores, config()) as made:
        yield made


@contextlib.contextmanager
def stopped(product: Product) -> Iterator[None]:
    [worker] = product.of("policy")
    worker.kill(signal.SIGSTOP)
    try:
        yield
    finally:
        worker.kill(signal.SIGCONT)


# --- every kind of call ---


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_sums_of_a_call_are_those_of_its_rows(
    product: Product, record: "psycopg.Connection[Any]", kind: Kind, dialect: DialectName
) -> None:
    done = call(product.url, dialect, kind)
    assert done.seen.status == 200 and done.seen.whole
    no_differences(record, done.seen.call_id)
    said = told(record, done.seen.call_id)
    assert said is not None and said.chunks and said.releases and said.decisions
    if kind == "whole":
        [payload] = record.execute(
            b"SELECT payload FROM releases WHERE call_id = %s", (done.seen.call_id,)
        ).fetchall()
        assert (
            said.relayed_sha256 == sha256(sha256(done.seen.body).digest()).digest()
            and bytes(payload[0]) == done.seen.body
        )


# --- what is not a release ---


@pytest.mark.slow
def test_keepalives_are_on_record_with_their_places(
    product: Product, record: "psycopg.Connection[Any]"
) -> None:
    # at the same time: an upstream that is silent for long takes long
    readers = {
        dialect: Reader(product.url, request(words(4, 700), dialect), dialect=dialect)
        for dialect in NAMES
    }
    joined(readers.values())
    for dialect, reader in readers.items():
        no_differences(record, reader.call_id)
        places = {
            number: int(detail)
            for kind, number, detail in events(record, reader.call_id)
            if kind == "keepalive"
        }
        assert len(places) > 1 and sum(places.values()) == reader.received.count(
            CLIENTS[dialect].keepalive
        )
        # before the first release that does not begin earlier: outputs may have no bytes
        releases = record.execute(
            b"SELECT number, payload FROM releases WHERE call_id = %s ORDER BY number",
            (reader.call_id,),
        ).fetchall()
        whole = b""
        for number, payload in releases:
            whole += CLIENTS[dialect].keepalive * sum(
                places.pop(place) for place in sorted(places) if place <= number
            ) + bytes(payload)
        assert whole == reader.received and not places


@pytest.mark.parametrize("dialect", NAMES)
def test_what_the_gateway_writes_itself_is_on_record(
    product: Product, record: "psycopg.Connection[Any]", dialect: DialectName
) -> None:
    path = "/v1/messages" if dialect == "anthropic" else "/v1/chat/completions"
    head = {
        "authorization": f"Bearer {KEY}",
        "x-sluice-policy": "noop",
        "x-sluice-timeout-s": "0.5",
    }
    received, is_stopped = b"", contextlib.ExitStack()
    with (
        is_stopped,
        httpx.stream(
            "POST", product.url + path, json=request(words(200, 20), dialect), headers=head
        ) as answer,
    ):
        for data in answer.iter_raw():
            if received.count(b"\n\n") <= 10 < (received + data).count(b"\n\n"):
                is_stopped.enter_context(stopped(product))
            received += data
    call_id = answer.headers["x-sluice-call-id"]
    assert ended(record, call_id) == ("FAILED", "stream_timeout")
    no_differences(record, call_id)
    [own] = [detail for kind, _, detail in events(record, call_id) if kind == "frame"]
    assert received.endswith(own.encode()) and b"no heartbeat" in own.encode()


# --- what changed on the way ---


def test_a_forged_reply_shows_in_what_the_gateway_says_that_it_relayed(
    product: Product, record: "psycopg.Connection[Any]"
) -> None:
    """Who may write to Redis can have anything relayed; the record then says that something else
    was."""
    forged = (
        b'data: {"id":"x","model":"demo","choices":[{"index":0,"delta":{"content":"FORGED"}}]}\n\n'
    )
    reader, store = Reader(product.url, request(words(60, 20))), _store(product)
    under_way([reader])
    with stopped(product):
        number = int(store.hget(layout.ctl_key(reader.call_id), "n"))
        gateway = layout.unpack_start(
            store.xrange(layout.call_key(reader.call_id), count=1)[0][1][b"b"]
        ).gateway
        blob = layout.pack(
            Reply(reader.call_id, number, number + 1, data=forged, sha256=sha256(forged).digest())
        )
        store.xadd(layout.reply_key(0, gateway), {layout.BLOB: blob})
        wait_for(lambda: forged in reader.received, what="the forged text at the client")
    joined([reader])
    assert reader.whole and ended(record, reader.call_id) == ("ENDED", "complete")
    wait_for(lambda: len(sum_differences(record, reader.call_id)) == 1, what="the rows")
    said, rows = told(record, reader.call_id), recounted(record, reader.call_id)
    assert said is not None and said[:3] == rows[:3] and said.relayed_sha256 != rows.relayed_sha256


def test_a_body_that_was_changed_in_redis_ends_the_call(
    product: Product, record: "psycopg.Connection[Any]"
) -> None:
    store = _store(product)

    def bodies() -> list[bytes]:
        return [key for key in store.keys("sluice:*:body:*") if b"aaaa" in (store.get(key) or b"")]

    with stopped(product):
        reader = Reader(product.url, request("long 3 aaaa"))
        [key] = wait_for(bodies, what="the body")
        body = store.get(key)
        store.setrange(key, body.index(b"aaaa"), b"bbbb")
    joined([reader])
    assert reader.status == 500 and b"body_changed" in reader.received
    assert ended(record, reader.call_id) == ("FAILED", "body_changed")
    no_differences(record, reader.call_id)
    assert "body_changed" in [kind for kind, _, _ in events(record, reader.call_id)]
    [(digest,)] = record.execute(
        b"SELECT body_sha256 FROM calls WHERE call_id = %s", (reader.call_id,)
    ).fetchall()
    assert bytes(digest) == sha256(body).digest()


def _store(product: Product) -> Any:
    return product.redis
