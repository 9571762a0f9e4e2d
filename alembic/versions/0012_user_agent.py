"""Calls say which client made them, and judgements how many tokens they took.

Processes of the version before go on beside it: what they insert has neither, and their seals, which are of version 4, cover neither.
"""

from alembic import op

from db.migrations.sealed import add_columns, drop_columns

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; a redaction empties what the client said."""
    add_columns(op, 5)


def downgrade() -> None:
    """Drop the columns, unless there are seals over them."""
    drop_columns(op, 5)
