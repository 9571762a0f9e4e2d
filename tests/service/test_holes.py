"""Calls with holes are said to be incomplete: by whoever seals them, by verification, by the lists
and by `doctor`."""

import asyncio
from collections.abc import Callable
from hashlib import sha256
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import pytest

from db.filters import Filters
from db.missing_records import Hole, incomplete_at
from db.read.queries import AuditReader
from db.seals.redact import redact
from db.seals.seal import Sealer
from db.seals.verify import verify
from db.state.polling import Watch
from gateway.ready_and_metrics import Status
from protocol.bytes.token_removal import without_tokens
from protocol.errors import StreamConnectionLost
from protocol.records import (
    BlockRecord,
    CallRecord,
    ChunksRecord,
    EndRecord,
    EventRecord,
    JudgementRecord,
    Record,
    ReleaseRecord,
    ToolCallRecord,
    ToolReleaseRecord,
)
from sluice.check.doctor import check_database_live
from streams.clock import ClockWatch
from streams.metrics import ProcessFigures
from tests.support.checks.reading import insert
from tests.support.checks.record import call_id, let_views_change, rows
from tests.support.checks.sealed import verified
from tests.support.checks.sums import BODY, summed_call
from tests.support.waiting import wait_until

SECRET = b'{"mcp_servers": [{"authorization_token": "t-123"}]}'
Change = Callable[[list[Record]], list[Record]]


def put(url: str, records: list[Record], body: bytes | None = BODY) -> str:
    """Insert a call and seal it; returns its id."""
    call = records[0].call_id
    asyncio.run(insert(url, *records, bodies={} if body is None else {call: body}))
    with Sealer(url) as sealer:
        assert sealer.seal([UUID(call)]) == 1
        assert sealer.seal([UUID(call)]) == 0, "sealed as it is already"
    return call


def without(*kinds: type[Any], last: bool = False) -> Change:
    """Leave out the records of these kinds, or the last of them."""

    def change(records: list[Record]) -> list[Record]:
        found = [r for r in records if isinstance(r, kinds)]
        gone = found[-1:] if last else found
        return [r for r in records if r not in gone]

    return change


def changed(kind: type[Any], **values: object) -> Change:
    """Give the records of a kind other values."""
    return lambda records: [
        msgspec.structs.replace(r, **values) if isinstance(r, kind) else r for r in records
    ]


def other_bytes(records: list[Record]) -> list[Record]:
    """Alter one digit of one release, as on the way from Redis."""
    first = next(r for r in records if isinstance(r, ReleaseRecord))
    return [msgspec.structs.replace(r, payload=b"0.700033") if r is first else r for r in records]


def fewer_chunks(records: list[Record]) -> list[Record]:
    """Lose two chunks in the middle."""
    return [
        (
            msgspec.structs.replace(
                r, raw=r.raw[:-2], verdicts=r.verdicts[:-2], blocks=r.blocks[:-2]
            )
            if isinstance(r, ChunksRecord)
            else r
        )
        for r in records
    ]


def another_release(records: list[Record]) -> list[Record]:
    """Hold other bytes under a number, with their own hash: what Redis had before it lost its last
    second."""
    other = b"text that no client got"
    return [
        (
            msgspec.structs.replace(r, payload=other, sha256=sha256(other).digest())
            if isinstance(r, ReleaseRecord) and r.number == 2
            else r
        )
        for r in records
    ]


@pytest.mark.parametrize(
    ("change", "holes"),
    [
        (lambda records: records, []),
        (fewer_chunks, [Hole.CHUNKS]),
        (without(ReleaseRecord, last=True), [Hole.RELEASES, Hole.RELAYED]),
        (without(ToolCallRecord), [Hole.DECISIONS]),
        (without(JudgementRecord), [Hole.DECISIONS]),
        (without(BlockRecord), [Hole.DECISIONS]),
        (without(ToolReleaseRecord), [Hole.DECISIONS]),
        (without(CallRecord), [Hole.BEGINNING]),
        (without(EndRecord), [Hole.END]),
        (other_bytes, [Hole.PAYLOAD]),
        (another_release, [Hole.RELAYED]),
        (changed(CallRecord, body_sha256=sha256(b"another").digest()), [Hole.BODY]),
        (
            changed(
                EndRecord,
                reason="stream_lost",
                chunks=None,
                releases=None,
                decisions=None,
                relayed_sha256=None,
            ),
            [Hole.LOST],
        ),
        (
            changed(EndRecord, chunks=None, releases=None, decisions=None, relayed_sha256=None),
            [Hole.SUMS],
        ),
    ],
)
def test_a_hole_is_an_event_under_the_seal(url: str, change: Change, holes: list[Hole]) -> None:
    """And the record verifies: it is as it was written."""
    call = put(url, change(summed_call(call_id())))
    marks = rows(
        url,
        "SELECT number, detail FROM events WHERE call_id = %s AND kind = 'incomplete' ORDER BY"
        " number",
        call,
    )
    assert [number for number, _ in marks] == holes
    assert [len(verify(url).holes), verify(url).damages] == [len(holes), 0]
    assert incomplete_at(url) == ([call] if holes else [])


def test_what_a_process_of_before_wrote_is_not_judged(url: str) -> None:
    """Its end has no sums, its beginning no hash of the body; a call that nobody claimed has no
    beginning."""
    sums = dict.fromkeys(("chunks", "releases", "decisions", "relayed_sha256"))
    old = changed(EndRecord, **sums)(changed(CallRecord, body_sha256=None)(summed_call(call_id())))
    put(url, fewer_chunks(old), None)
    put(
        url,
        [
            EndRecord(
                call_id=call_id(), at=1, state="FAILED", reason="unclaimed", status=0, relayed=-1
            )
        ],
        None,
    )
    put(
        url,
        changed(CallRecord, body_sha256=sha256(SECRET).digest())(summed_call(call_id())),
        without_tokens(SECRET),
    )
    put(url, [r for r in summed_call(call_id()) if not isinstance(r, EventRecord)])
    assert incomplete_at(url) == [] and verify(url).item()["incomplete"] == 0


def test_a_redacted_call_is_not_judged_anew(url: str) -> None:
    whole, broken = put(url, summed_call(call_id())), put(url, fewer_chunks(summed_call(call_id())))
    for call in (whole, broken):
        redact(url, UUID(call), "asked for")
    report = verify(url)
    assert report.ok and report.incomplete_calls == {UUID(broken)}


def test_a_hole_that_whoever_sealed_did_not_see_is_found_by_verification(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sealed did not know the sums, or somebody who may change everything made seals anew:
    the call is incomplete all the same."""
    call = put(url, summed_call(call_id()))
    let_views_change(url)
    rows(url, "DELETE FROM chunks WHERE call_id = %s AND seq = 2", call)
    rows(url, "DELETE FROM seals")
    rows(url, "DELETE FROM seal_rows")
    monkeypatch.setattr("db.seals.seal.find_holes", lambda row, counts: [])
    with Sealer(url) as sealer:
        sealer.seal([UUID(call)])
    code, said = verified(url)
    assert (code, said["ok"], said["incomplete_calls"]) == (4, True, [call])
    assert said["holes"] == [
        {"call_id": call, "detail": "2 chunks are on record, the call's end says 3"}
    ]


@pytest.mark.slow
def test_doctor_names_five(url: str) -> None:
    assert ("incomplete calls", "ok", "") in check_database_live(url)
    calls = [put(url, fewer_chunks(summed_call(call_id()))) for _ in range(7)]
    [sentence] = [
        said
        for name, state, said in check_database_live(url)
        if (name, state) == ("incomplete calls", "warning")
    ]
    assert sentence.startswith("7 calls are incomplete on record: ")
    assert sum(call in sentence for call in calls) == 5 and "and 2 more" in sentence


async def test_ready_and_metrics_count_incomplete_calls(url: str) -> None:
    """As they count dead letters: nobody asks `doctor` every day."""
    broken = without(ChunksRecord, ReleaseRecord)
    for _ in range(2):
        await asyncio.to_thread(put, url, broken(summed_call(call_id())))

    async def away(*command: object) -> None:
        raise StreamConnectionLost("away")

    async def none() -> bool:
        return False

    watch = Watch(url)
    bus: Any = SimpleNamespace(
        figures=ProcessFigures(),
        redis=SimpleNamespace(call=away),
        shards=1,
        calls={},
        warnings=[],
        heartbeat=SimpleNamespace(clock=ClockWatch()),
    )
    status = Status(bus)
    watching = asyncio.create_task(status.watch(none, watch.lacking))
    await wait_until(lambda: bool(status.warnings))
    watching.cancel()
    await watch.close()
    assert status.warnings == ["2 calls are incomplete on record: see `sluice doctor`"]
    assert b"sluice_incomplete_calls 2.0" in await status.metrics()


async def test_a_call_without_a_beginning_can_be_read(url: str) -> None:
    records = summed_call(call_id())
    call = UUID(await asyncio.to_thread(put, url, without(CallRecord)(records)))
    reader = AuditReader.open(url)
    try:
        found, page, unknown = (
            await reader.call(call),
            await reader.chunks(call, Filters()),
            await reader.call(UUID(call_id())),
        )
    finally:
        await reader.close()
    assert unknown is None
    assert found is not None and (found["incomplete"], found["state"], found["key"]) == (
        True,
        "ENDED",
        None,
    )
    assert "incomplete" in {event["kind"] for event in found["events"]}
    assert page is not None and page["items"]
