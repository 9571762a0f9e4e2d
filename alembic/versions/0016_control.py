"""Scores of monitors, decisions of protocols and attempts of a call get tables of their own.

Processes of the version before go on beside them: what they insert has no such rows, and their seals, which are of version 6, cover none.
"""

from alembic import op

from db.migrations.sealed import add_columns, drop_columns
from db.migrations.tables import add_tables, drop_tables

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables; a redaction empties what monitors and protocols say in words, which may quote the model."""
    add_tables(op, 7)
    add_columns(op, 7)


def downgrade() -> None:
    """Drop them, unless there are seals over them."""
    if drop_columns(op, 7):
        drop_tables(op, 7)
