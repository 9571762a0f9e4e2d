"""Chunks and releases in runs, behind views of their names."""

from pathlib import Path

from alembic import op

from db.migrations import sealed

revision = "r0007"
down_revision = "r0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables and views, and the functions that go through them. No row is written anew."""
    # a function's text has signs that SQLAlchemy takes for its own
    connection = op.get_bind().connection.driver_connection
    schema = connection.execute("SELECT quote_ident(current_schema())").fetchone()[0]
    made = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in (made.replace("public.", f"{schema}."), *sealed.functions(schema, 3)):
        connection.execute(statement.encode())


def downgrade() -> None:
    """Refuse: what came in runs would be lost to those that know none."""
    raise NotImplementedError("runs stay: restore a backup instead")
