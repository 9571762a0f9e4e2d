"""The sums of calls whose workers die, whose judge is not there, and whose replies are altered:
each on a product of its own."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
import pytest

from protocol.request import DialectName
from streams import layout
from tests.support.checks.call_sums import NAMES, config, ended, events, no_differences
from tests.support.checks.recount import sum_differences
from tests.support.clients.readers import (
    Reader,
    hold_invariants,
    joined,
    owned_by,
    request,
    under_way,
    words,
)
from tests.support.servers.product import KEY, Product, running
from tests.support.servers.proxy import Proxy, proxied
from tests.support.waiting import wait_for


@pytest.fixture
def record(database_url: str) -> Iterator["psycopg.Connection[Any]"]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def owned(product: Product) -> set[str]:
    """Call ids that workers have which are alive."""
    return {call for child in product.of("policy") for call in owned_by(product, child.pid)}


@pytest.fixture
def altered(tmp_path: Path, redis_url: str, database_url: str) -> Iterator[tuple[Product, Proxy]]:
    """A product whose gateway finds Redis through a proxy."""
    with (
        proxied(redis_url) as proxy,
        Product(tmp_path, redis_url, database_url, config()) as product,
    ):
        product.redis_urls["gateway"] = proxy.url(redis_url)
        product.start("audit", "judge", "gateway", "policy")
        yield product, proxy


def test_a_client_that_goes_while_a_verdict_is_waited_for(
    tmp_path: Path, redis_url: str, database_url: str
) -> None:
    """The tool call's verdict comes when the call is over: it is recorded as withheld, once, and
    counted so."""
    with (
        Product(tmp_path, redis_url, database_url, config()) as product,
        psycopg.connect(database_url, autocommit=True) as record,
    ):
        # no judge: nobody answers
        product.start("audit", "gateway", "policy")
        head = {"authorization": f"Bearer {KEY}"}
        asked = request("please list the files", tool=True)
        with httpx.stream(
            "POST", product.url + "/v1/chat/completions", json=asked, headers=head
        ) as answer:
            call_id = answer.headers["x-sluice-call-id"]
            wait_for(lambda: product.redis.zcard(layout.JUDGE_QUEUE), what="a question")
        no_differences(record, call_id)
        kinds = record.execute(
            b"SELECT kind, verdict, reason FROM blocks WHERE call_id = %s", (call_id,)
        ).fetchall()
        assert ("tool_use", "withheld", "undecided") in kinds


@pytest.mark.slow
def test_worker_after_worker_killed_in_the_middle_of_calls(
    tmp_path: Path, redis_url: str, database_url: str
) -> None:
    """Releases are joined otherwise by each owner: how many there are survives only where it is
    kept."""
    with (
        running(tmp_path, redis_url, database_url, config(), policy=4) as product,
        psycopg.connect(database_url, autocommit=True) as record,
    ):
        readers = [
            Reader(product.url, request(words(400, 20), NAMES[n % 2]), dialect=NAMES[n % 2])
            for n in range(4)
        ]
        under_way(readers)
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            victim = wait_for(
                lambda: next((c for c in product.of("policy") if owned_by(product, c.pid)), None),
                what="an owner",
            )
            taken = owned_by(product, victim.pid)
            theirs = [r for r in readers if r.call_id in taken]
            victim.kill(number)
            victim.wait()
            wait_for(
                lambda t=theirs: all(r.call_id in owned(product) or r.has_all(400) for r in t),  # type: ignore[misc]
                what="others have them",
            )
            # what the victim released has come by now: what comes more is of its heirs, which have
            # replayed the calls
            before = {r.call_id: len(r.text) for r in readers}
            wait_for(
                lambda t=theirs, b=before: all(
                    len(r.text) > b[r.call_id] + 60 or r.has_all(400) for r in t
                ),  # type: ignore[misc]
                timeout_s=20,
                what="another goes on",
            )
        joined(readers)
        assert all(r.has_all(400) for r in readers), product.logs()
        hold_invariants(product, readers)
        assert [
            d for r in readers for d in sum_differences(record, r.call_id, all_known=True)
        ] == []


@pytest.mark.parametrize("dialect", NAMES)
def test_one_altered_digit_in_a_reply_ends_the_call(
    altered: tuple[Product, Proxy], record: "psycopg.Connection[Any]", dialect: DialectName
) -> None:
    product, proxy = altered
    reader = Reader(product.url, request(words(100, 20), dialect), dialect=dialect)
    under_way([reader])
    proxy.alter_reply(rb"word(\d)\d+ ", b"0")
    joined([reader])
    assert proxy.has_altered and reader.whole and b"word0" not in reader.received
    assert b"was changed between the policy worker and the gateway" in reader.received
    assert ended(record, reader.call_id) == ("FAILED", "stream_protocol_error")
    no_differences(record, reader.call_id)
    assert [kind for kind, _, _ in events(record, reader.call_id)] == ["frame", "usage_estimated"]
