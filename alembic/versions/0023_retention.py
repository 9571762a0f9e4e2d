"""Old rows of single tables may go, and what is left verifies: digests of them are kept, and functions of the owner's take them away.

What drops whole days forgets the digests too. Processes of the version before take rows that went for missing ones: `sluice audit verify`
with the newest Sluice.
"""

from alembic import op

from db.migrations.indexing import change_briefly
from db.migrations.retaining import FORGET, INDEX, KEEP, SHED, TABLE, functions
from db.migrations.tables import name_tables

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

FORM = 7
"""The version of the sealed form then."""
BESIDE = ("histories", "debug_logs")


def upgrade() -> None:
    """Make the table and the functions."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    for statement in (TABLE, *functions(schema, FORM)):
        op.execute(statement)
    name_tables(op, FORM, *BESIDE)
    change_briefly(op, INDEX)


def downgrade() -> None:
    """Drop them. Rows that went are missing then."""
    op.execute("DROP INDEX seals_gone_idx")
    for function in (FORGET, SHED, KEEP):
        op.execute(f"DROP FUNCTION {function}")
    op.execute("DROP TABLE kept_digests")
