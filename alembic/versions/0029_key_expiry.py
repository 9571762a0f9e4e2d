"""Keys kept here may have an end: a time from which gateways refuse them. Those there are have none.

Gateways of the version before do not know it, and take a key that has expired.
"""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.execute("ALTER TABLE api_keys ADD COLUMN expires_at timestamptz")


def downgrade() -> None:
    """Drop the column."""
    op.execute("ALTER TABLE api_keys DROP COLUMN expires_at")
