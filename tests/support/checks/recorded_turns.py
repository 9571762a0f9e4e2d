"""Turns of a Messages provider as the record has them."""

from typing import Any

from db.write.insert import AuditInserter
from protocol.records import (
    EndRecord,
    Record,
)
from tests.support.checks.record import (
    call_record,
    chunks_record,
    now_ms,
    tool_call_record,
)
from tests.support.json_values import Json
from tests.support.upstreams.turns import streamed

THINKING: Json = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
SEARCH: Json = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "x"},
}
FOUND: Json = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"encrypted_content": "Zm9v"}],
}
USE: Json = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
CONTENT = [THINKING, SEARCH, FOUND, USE]


async def insert(url: str, *records: Record) -> None:
    async with AuditInserter(url) as inserter:
        assert not await inserter.insert(records, {})


def released(call: str, identity: str = "toolu_1", **changes: Any) -> Record:
    values = {"tool_call_id": identity, "verdict": "allow", "released_arguments": b"{}", "block": 3}
    return tool_call_record(call, **{**values, **changes})


def ended(call: str, at: int | None = None) -> EndRecord:
    """Its end: an hour ago, so that nobody waits for more of it."""
    at = now_ms() - 3_600_000 if at is None else at
    return EndRecord(call_id=call, at=at, state="ENDED", reason="complete", status=200)


def turn_of(call: str, chunks: list[bytes] | None = None, **changes: Any) -> list[Record]:
    """A call on record whole, with one released tool call."""
    raw = streamed(CONTENT, "tool_use") if chunks is None else chunks
    return [
        call_record(call, key="k", upstream="claude", **changes),
        chunks_record(call, raw),
        released(call),
        ended(call),
    ]
