"""Debug logs get a table, and so does what gateways refuse before a call begins.

Neither is part of the record: no seal covers them, and processes of the version before write none.
"""

from alembic import op

from db.migrations.debugging import COUNT, TABLES, TRIM, functions
from db.migrations.sealed import make_redaction
from db.migrations.tables import name_tables

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

FORM = 7
"""The version of the sealed form then: the function that redacts is made anew, because it now knows the lines of a call."""


def upgrade() -> None:
    """Make the tables and the functions."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    for statement in (*TABLES, *functions(schema)):
        op.execute(statement)
    make_redaction(op, FORM)
    name_tables(op, FORM, "histories", "debug_logs")


def downgrade() -> None:
    """Drop them. What redacts looks whether they are there."""
    for function in (COUNT, TRIM):
        op.execute(f"DROP FUNCTION {function}")
    name_tables(op, FORM, "histories")
    op.execute("DROP TABLE debug_logs")
    op.execute("DROP TABLE door_counts")
