"""How a field of a record lies in its table, where its type does not say it.

A record (`protocol.records`) is declared once, field by field; row packing, tables and sealed forms
are made of that (`db.columns`). Must not know: SQL, connections.
"""

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Column:
    """What `Annotated` says of a field. A field without one is a column of its own name that stays
    when a call is redacted."""

    kind: str = ""
    """PostgreSQL's type, where it is not the usual one: text, bytea, int4, bool and float8 for str,
    bytes, int, bool and float."""
    name: str = ""
    """The column's name, where it is not the field's."""
    since: int = 1
    """The version of the sealed form that first covers it. A version is for ever: a new column
    takes the next one, stands behind all others of its record, and is None by default: writers of
    the version before do not name it."""
    before: str = ""
    """Before which column it is hashed, where that is not its place in the record."""
    is_key: bool = False
    """It names the row within its call."""
    is_content: bool = False
    """A redaction empties it."""
    is_indexed: bool = False
    """An index holds it, so it is cut (`db.write.fit_columns`)."""
    is_searched: bool = False
    """A text search holds it, so it is cut likewise."""
    is_stored: bool = True
    """Has it a column at all?"""


At = Annotated[int, Column("timestamptz")]
"""Unix milliseconds."""
Name = Annotated[str, Column(is_indexed=True)]
Number = Annotated[int, Column(is_key=True)]
Content = Annotated[bytes, Column(is_content=True)]
Words = Annotated[str, Column(is_content=True)]
Tokens = Annotated[int | None, Column("int8")]
