"""Decisions that a person is to look at get a queue with a budget, and what persons said of them a table.

Both are beside the sealed record: the queue changes. Processes of the version before seal calls without queueing theirs; they make no
decisions that are to be looked at.
"""

from alembic import op

from db.migrations.auditing import QUEUE, REVIEW, TABLES, functions
from db.migrations.sealed import make_redaction
from db.migrations.tables import name_tables

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

FORM = 7
"""The version of the sealed form then: the functions that redact and drop are made anew, because they now know these tables."""


def upgrade() -> None:
    """Make the tables and the functions that write them."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    for statement in (*TABLES, *functions(schema)):
        op.execute(statement)
    make_redaction(op, FORM)
    name_tables(op, FORM)


def downgrade() -> None:
    """Drop them, reviews and all. What redacts and drops looks whether they are there."""
    for function in (QUEUE, REVIEW):
        op.execute(f"DROP FUNCTION {function}")
    op.execute("DROP TABLE audit_reviews")
    op.execute("DROP TABLE audits")
