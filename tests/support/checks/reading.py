"""Records inserted to be read, and filters as the API gives them."""

from db.filters import parse_filters
from db.read.queries import AuditReader
from db.write.insert import AuditInserter
from protocol.records import EndRecord, Record
from tests.support.checks.record import (
    now_ms,
)

DAY_MS = 86_400_000


async def insert(url: str, *records: Record, bodies: dict[str, bytes] | None = None) -> None:
    """Put records into the database."""
    async with AuditInserter(url) as inserter:
        assert not await inserter.insert(records, bodies or {})


def given(**values: object) -> list[tuple[str, str]]:
    """Filters as they come in a URL."""
    return [(name, str(value)) for name, value in values.items()]


async def tool_names(reader: AuditReader, **values: object) -> list[str]:
    """The names of the tool calls that these filters choose."""
    page = await reader.tool_calls(parse_filters(given(**values), of="tool-calls"))
    return [item["name"] for item in page["items"]]


def end_record(call: str, state: str) -> EndRecord:
    """The end of a call in this state."""
    return EndRecord(
        call_id=call,
        at=now_ms(),
        state=state,  # type: ignore[arg-type]
        reason="x",
        status=200,
        stop_reason="",
        relayed=0,
    )
