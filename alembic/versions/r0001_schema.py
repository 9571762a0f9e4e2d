"""The whole schema of version 0.2.0, the first release: the SQL file next to this one, and the
functions generated from the columns."""

from alembic import op

from db.migrations import schema

revision = "r0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make everything."""
    schema.make(op.get_bind().connection.driver_connection)


def downgrade() -> None:
    """Drop everything, with all rows."""
    schema.drop(op.get_bind().connection.driver_connection)
