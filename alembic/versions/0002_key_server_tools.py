"""Keys kept here name the families of server tools that they may use; those there are may use none."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.execute("ALTER TABLE api_keys ADD COLUMN server_tools text[] NOT NULL DEFAULT '{}'")


def downgrade() -> None:
    """Drop the column."""
    op.execute("ALTER TABLE api_keys DROP COLUMN server_tools")
