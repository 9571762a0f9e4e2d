"""A call whose end says what the record of it should hold, as a policy worker writes it."""

from hashlib import sha256
from typing import Any

from protocol.records import (
    BlockRecord,
    ChunksRecord,
    EndRecord,
    JudgementRecord,
    Record,
    ReleaseRecord,
    ToolCallRecord,
    ToolReleaseRecord,
)
from tests.support.checks.kinds import of_kind
from tests.support.checks.record import now_ms, release_record, whole_call
from tests.support.json_values import Json

BODY = b'{"model": "gpt-x", "messages": []}'


def with_sums(records: list[Record], *, relayed: int | None = None, **changes: Any) -> list[Record]:
    """Give a call's end the sums of the other records; `relayed` is how far the gateway came, by
    default all the way."""
    releases = of_kind(records, ReleaseRecord)
    upto = max([r.number_next for r in releases], default=0) if relayed is None else relayed
    chain = sha256(b"".join(r.sha256 for r in releases if r.number_next <= upto)).digest()
    decisions = sum(
        isinstance(r, BlockRecord | ToolCallRecord | ToolReleaseRecord | JudgementRecord)
        for r in records
    )
    chunks = sum(len(r.raw) for r in records if isinstance(r, ChunksRecord))
    values: Json = {
        "at": now_ms() + 10,
        "state": "ENDED",
        "reason": "complete",
        "status": 200,
        **changes,
    }
    end = EndRecord(
        call_id=records[0].call_id,
        relayed=upto,
        chunks=chunks,
        releases=len(releases),
        decisions=decisions,
        relayed_sha256=chain,
        **values,
    )
    return [*(r for r in records if not isinstance(r, EndRecord)), end]


def summed_call(call: str) -> list[Record]:
    """One whole call with two releases, its body's hash and its sums."""
    records = whole_call(call, body_sha256=sha256(BODY).digest())
    return with_sums([*records, release_record(call, b"more", number=2, seq=4)])
