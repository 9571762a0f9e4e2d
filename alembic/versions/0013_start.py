"""Calls keep what their worker knew of START.

Processes of the version before go on beside it: what they insert has none, and their seals, which are of version 5, do not cover it.
"""

from alembic import op

from db.migrations.sealed import add_columns, drop_columns

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a redaction empties it, for names of betas are the client's."""
    add_columns(op, 6)


def downgrade() -> None:
    """Drop it, unless there are seals over it."""
    drop_columns(op, 6)
