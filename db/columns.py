"""The tables of a call and their columns, as the records declare them: what is packed, made and
sealed comes from here.

Must not know: SQLAlchemy, connections.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from db.text import INDEXED, SEARCH_LIMIT
from protocol.columns import Column
from protocol.records import (
    AttemptRecord,
    BlockRecord,
    CallRecord,
    ChunksRecord,
    DecisionRecord,
    EndRecord,
    EventRecord,
    JudgementRecord,
    ReleaseRecord,
    ScoreRecord,
    ToolCallRecord,
    ToolReleaseRecord,
)

_KINDS: Mapping[object, str] = {
    str: "text",
    bytes: "bytea",
    int: "int4",
    bool: "bool",
    float: "float8",
}
CALL_ID = "call_id"
"""The first column of every table, and the first of its key; the partitions are by it."""


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column. `path` says where its value is in the record: `model`, `facts.user_agent`; empty
    where it is made of other fields."""

    name: str
    kind: str
    is_nullable: bool
    path: str
    mark: Column

    @property
    def most_chars(self) -> int | None:
        """How long a text may be, where an index holds it."""
        return INDEXED if self.mark.is_indexed else SEARCH_LIMIT if self.mark.is_searched else None


@dataclass(frozen=True, slots=True)
class CallTable:
    """A table with the columns behind `call_id`: in the order in which they are hashed, those of a
    later version behind all others."""

    name: str
    record: type[Any] | None
    columns: tuple[StoredColumn, ...]
    since: int = 1
    """The version of the sealed form that first covers the table. A later one stands behind all
    others."""

    @property
    def key(self) -> tuple[StoredColumn, ...]:
        """The columns that name a row within its call."""
        return tuple(column for column in self.columns if column.mark.is_key)

    @property
    def stays(self) -> tuple[StoredColumn, ...]:
        """The others that stay when a call is redacted."""
        return tuple(
            column
            for column in self.columns
            if not column.mark.is_key and not column.mark.is_content
        )

    @property
    def content(self) -> tuple[StoredColumn, ...]:
        """Those that a redaction empties."""
        return tuple(column for column in self.columns if column.mark.is_content)

    def covered(self, version: int) -> tuple[int, int]:
        """How many of those that stay, and of those that a redaction empties, a version of the
        sealed form covers."""
        if version < self.since:
            return 0, 0
        stays, content = (
            sum(column.mark.since <= version for column in columns)
            for columns in (self.stays, self.content)
        )
        return stays, content

    @property
    def facts(self) -> tuple[StoredColumn, ...]:
        """Those of the record's `facts`, which are shown as they are."""
        return tuple(column for column in self.columns if column.path.startswith("facts."))


def columns_of(record: type[Any], path: str = "") -> Iterator[StoredColumn]:
    """Yield the columns that a record declares, in the order of its fields; those of a value within
    it as its own."""
    hints = get_type_hints(record, include_extras=True)
    for name in record.__struct_fields__:
        hint, mark = hints[name], Column()
        if get_origin(hint) is Annotated:
            hint, mark = get_args(hint)
        if name == CALL_ID or not mark.is_stored:
            continue
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from columns_of(hint, f"{path}{name}.")
            continue
        kind, is_nullable = _kind(hint)
        yield StoredColumn(mark.name or name, mark.kind or kind, is_nullable, path + name, mark)


def _kind(hint: Any) -> tuple[str, bool]:
    """PostgreSQL's type for a field's, and whether None is among its values."""
    origin = get_origin(hint)
    if origin is list:
        return _kind(get_args(hint)[0])
    if origin is Literal:
        return "text", False
    if origin in (Union, UnionType):
        [some] = [part for part in get_args(hint) if part is not NoneType]
        return _kind(some)[0], True
    return _KINDS[hint], False


def _table(record: type[Any], *made: StoredColumn) -> CallTable:
    columns = [*columns_of(record), *made]
    for column in [column for column in columns if column.mark.before]:
        columns.remove(column)
        columns.insert([other.name for other in columns].index(column.mark.before), column)
    return CallTable(
        record.table,
        record,
        tuple(sorted(columns, key=lambda column: column.mark.since)),
        getattr(record, "since", 1),
    )


_CONTENT = Column(is_content=True)
TABLES = (
    _table(CallRecord),
    CallTable("request_bodies", None, (StoredColumn("body", "bytea", False, "", _CONTENT),)),
    _table(ChunksRecord),
    _table(ReleaseRecord),
    _table(BlockRecord),
    _table(
        ToolCallRecord,
        StoredColumn("search", "tsvector", False, "", Column(is_content=True, before="rule")),
    ),
    _table(ToolReleaseRecord),
    _table(JudgementRecord),
    _table(EndRecord),
    _table(EventRecord),
    _table(ScoreRecord),
    _table(DecisionRecord),
    _table(AttemptRecord),
)
"""Every table of a call, in the order in which a seal counts and hashes them. A call's body and the
words of a tool call's search are no fields of a record."""
BY_NAME = {table.name: table for table in TABLES}
VERSION = max(max(table.since, column.mark.since) for table in TABLES for column in table.columns)
"""The version of the sealed form in which seals are made now."""
