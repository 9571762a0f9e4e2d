"""What each hour came to, by key, model, policy and revision, gets tables, so that no page counts over days of rows.

Processes of the version before go on beside them: they make no such rows, and an audit writer of this version makes those of all hours.
"""

from alembic import op

from db.migrations.usage import DROPS, TABLES, functions

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables and the functions that write and read them."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    for statement in (*TABLES, *functions(schema)):
        op.execute(statement)


def downgrade() -> None:
    """Drop them. The record has all that they were made of."""
    for statement in DROPS:
        op.execute(statement)
