"""Keys kept here may have a bound of their own for open calls, as those of the configuration; those there are have none."""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.execute("ALTER TABLE api_keys ADD COLUMN calls integer")


def downgrade() -> None:
    """Drop the column."""
    op.execute("ALTER TABLE api_keys DROP COLUMN calls")
