"""What comes to an audit writer as other bytes than its sender hashed is said to be so, in its log
and in the record of the call."""

import logging
from hashlib import sha256
from uuid import UUID

import msgspec
import pytest

from db.missing_records import Hole
from db.seals.verify import verify
from protocol.bytes.token_removal import NOTE, without_tokens
from protocol.records import CallRecord, Record, ReleaseRecord, encode_records
from streams import layout
from streams.connection import Connection
from tests.support.checks.record import rows
from tests.support.checks.sums import BODY, summed_call
from tests.support.servers.writers import writing
from tests.support.waiting import wait_until
from workers.audit.request_bodies import LARGE

TOKEN = b'{"mcp_servers": [{"authorization_token": "t-123"}]}'


async def record(redis: Connection, records: list[Record], body: bytes) -> UUID:
    """Put a call's records onto the audit stream, and its body where writers find it; `records` say
    what its hash is."""
    call = records[0].call_id
    await redis.call("SET", layout.body_key(call), body)
    await redis.call(
        "XADD", layout.audit_key(layout.shard_of(call)), "*", layout.BLOB, encode_records(records)
    )
    return UUID(call)


def taken(body: bytes) -> list[Record]:
    """A call whose gateway took that body."""
    call = summed_call(layout.new_call_id())
    return [
        (
            msgspec.structs.replace(r, body_sha256=sha256(body).digest())
            if isinstance(r, CallRecord)
            else r
        )
        for r in call
    ]


def said(url: str) -> dict[UUID, list[int]]:
    """The holes of each sealed call, as the record has them."""
    found = rows(
        url,
        "SELECT s.call_id, array_agg(e.number ORDER BY e.number) FILTER (WHERE e.number IS NOT"
        " NULL) FROM (SELECT DISTINCT call_id FROM seals) s LEFT JOIN events e ON e.call_id ="
        " s.call_id AND e.kind = 'incomplete' GROUP BY 1",
    )
    return {call: numbers or [] for call, numbers in found}


@pytest.mark.slow
async def test_altered_releases_and_bodies_are_marked(
    url: str, redis: Connection, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A body with tokens is recorded without them, so whether it was altered nobody can tell later;
    a large one is written later."""
    whole = await record(redis, taken(BODY), BODY)
    with_token = await record(redis, taken(TOKEN), TOKEN)
    release = [
        (
            msgspec.structs.replace(r, payload=b"0.700033")
            if isinstance(r, ReleaseRecord) and r.number == 1
            else r
        )
        for r in taken(BODY)
    ]
    released = await record(redis, release, BODY)
    other_token = await record(redis, taken(TOKEN), TOKEN.replace(b"mcp", b"mcq"))
    large = b"[" + b" " * (LARGE + 1) + b"]"
    other_large = await record(redis, taken(large), large.replace(b"]", b"1]"))
    with caplog.at_level(logging.ERROR):
        async with writing(redis_url, url):
            await wait_until(lambda: len(said(url)) == 5, what="all calls are sealed", timeout_s=20)
    expected = {
        whole: [],
        with_token: [],
        released: [Hole.PAYLOAD],
        other_token: [Hole.BODY],
        other_large: [Hole.BODY],
    }
    assert said(url) == expected
    assert "records differ from the hashes of their senders" in caplog.messages
    assert NOTE in without_tokens(TOKEN)
    report = verify(url)
    assert (
        report.ok
        and report.incomplete_calls == {released, other_token, other_large}
        and report.extended == 0
    )
