"""Keys kept here may have numbers of their own, as those of the configuration; those there are have none. All lie in one value: a new
setting needs no migration."""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.execute("ALTER TABLE api_keys ADD COLUMN settings jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(settings) = 'object')")


def downgrade() -> None:
    """Drop the column."""
    op.execute("ALTER TABLE api_keys DROP COLUMN settings")
