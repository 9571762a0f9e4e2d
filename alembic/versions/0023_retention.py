"""Old rows of single tables may go, and what is left verifies: digests of them are kept, and functions of the owner's take them away.

What drops whole days forgets the digests too. Processes of the version before take rows that went for missing ones: `sluice audit verify`
with the newest Sluice. Every step may be repeated: the index is made outside the transaction.
"""

from alembic import op

from db.migrations.indexing import create_plain_index
from db.migrations.retaining import FORGET, INDEX, KEEP, PART_SHED, SHED, TABLE, functions
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
    create_plain_index(op, *INDEX)


def downgrade() -> None:
    """Drop them. Rows that went are missing then; their digests stay for the next upgrade, because nothing could make them again."""
    op.execute("DROP INDEX IF EXISTS seals_gone_idx")
    for function in (FORGET, SHED, KEEP):
        op.execute(f"DROP FUNCTION {function}")
    went = f"SELECT EXISTS (SELECT FROM seals WHERE part = {PART_SHED})"
    if not op.get_bind().exec_driver_sql(went).scalar_one():
        op.execute("DROP TABLE kept_digests")
