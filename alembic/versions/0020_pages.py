"""The pages get tables of their own: logins, who read what, labels, and switches of debug logs.

All are beside the sealed record. What redacts a call now empties notes of labels and the filters of reads too.
"""

from alembic import op

from db.migrations.paging import READS_ENSURE, SESSIONS_SWEEP, TABLES, functions
from db.migrations.sealed import make_redaction

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

FORM = 7
"""The version of the sealed form then: the function that redacts is made anew, because it now knows these tables."""


def upgrade() -> None:
    """Make the tables and the functions."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    for statement in (*TABLES, *functions(schema)):
        op.execute(statement)
    make_redaction(op, FORM)


def downgrade() -> None:
    """Drop them, and with them who read what. What redacts looks whether they are there."""
    for function in (READS_ENSURE, SESSIONS_SWEEP):
        op.execute(f"DROP FUNCTION {function}")
    for table in ("page_sessions", "reads", "labels", "debug_switches"):
        op.execute(f"DROP TABLE {table}")
