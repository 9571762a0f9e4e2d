"""The database counts the primaries of Redis, so that processes on an old one stop after a failover.

Processes of the version before count none, and are not stopped.
"""

from alembic import op

from db.migrations.primaries import COLUMNS, HOLD, functions

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns and the function."""
    op.execute(f"ALTER TABLE identity {', '.join(COLUMNS)}")
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    for statement in functions(schema):
        op.execute(statement)


def downgrade() -> None:
    """Drop them."""
    op.execute(f"DROP FUNCTION {HOLD}")
    op.execute("ALTER TABLE identity DROP COLUMN redis_number, DROP COLUMN redis_run_id, DROP COLUMN redis_seen_at")
