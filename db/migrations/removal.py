"""What takes rows out of the record, as functions of the database: their names, what they take and
what they answer.

No writer may delete a row in any other way. Must not know: connections.
"""

from typing import Final

SHED: Final = "sluice_shed(text, date, text)"
"""Takes the rows of one table under seals."""
FORGET: Final = "sluice_forget(text, date)"
"""Takes the rows of one table under no seal."""
DROP: Final = "sluice_drop_before(date, text)"
"""Takes all rows of old calls."""
SHEDDABLE = ("request_bodies", "chunks", "releases")
"""Tables under seals of which the old rows may go alone: what is large, and what no verdict is
in."""
RUNS: Final = {
    "chunks": ("chunk_rows", "chunk_runs", "seq"),
    "releases": ("release_rows", "release_runs", "number"),
}
"""Views with the tables below them: of plain rows, whose partitions have the view's name, and of
runs of rows; and what names a row within its call."""
FORGETTABLE = {"histories": "call_id", "reads": "at"}
"""Tables under no seal, by the column that says how old a row is."""
NO_SEAL, NO_CHECKPOINT, CAME_MEANWHILE, ROWS_DIFFER = -1, -2, -3, -4
"""Answers that say why nothing was done."""
GONE, PART_SHED = -1, -2
"""`seals.part` of a leaf that says that the rows of all tables were dropped, or those of one."""
LET_GO: Final = "sluice.let_go"
"""A setting of the owner's session: what has other rows than its seals count goes too, and the leaf
says of how many calls that was. A call counts once for each table."""
