"""Attempts say what came of them, in a second sealed form."""

from alembic import op

from db.migrations import sealed
from db.migrations.indexing import change_briefly

revision = "r0005"
down_revision = "r0004"
branch_labels = None
depends_on = None

_COLUMNS = {
    "outcome": "text",
    "status": "int4",
    "ms": "int4",
    "retry_after_ms": "int4",
    "cost_nanousd": "int8",
}


def upgrade() -> None:
    """Add the columns, and seal them."""
    for name, kind in _COLUMNS.items():
        change_briefly(op, f"ALTER TABLE attempts ADD COLUMN IF NOT EXISTS {name} {kind}")
    change_briefly(op, "ALTER TABLE seals ALTER COLUMN made_for SET DEFAULT 2")
    _make(2)


def downgrade() -> None:
    """Take them back. Seals of the second form can then no longer be verified."""
    _make(1)
    op.execute("ALTER TABLE seals ALTER COLUMN made_for SET DEFAULT 1")
    for name in _COLUMNS:
        op.execute(f"ALTER TABLE attempts DROP COLUMN {name}")


def _make(form: int) -> None:
    # a function's text has signs that SQLAlchemy takes for its own
    connection = op.get_bind().connection.driver_connection
    schema = connection.execute("SELECT quote_ident(current_schema())").fetchone()[0]
    for statement in sealed.functions(schema, form, in_runs=False):
        connection.execute(statement.encode())
