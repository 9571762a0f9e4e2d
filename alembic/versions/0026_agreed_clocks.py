"""Nothing goes for its age by PostgreSQL's clock alone: Redis' and the caller's have to agree with it.

Processes of the version before say nothing of their clocks, so nothing old goes until audit writers are replaced. All else works.
"""

from alembic import op

from db.migrations import agreeing, debugging, dropping, retaining, usage
from db.migrations.sealed import names_of

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

FORM = 7
"""The version of the sealed form then."""
BESIDE = ("histories", "debug_logs")


def upgrade() -> None:
    """Make the function that asks the clocks, and anew what deletes by age."""
    op.execute(agreeing.FUNCTION)
    _make(agreeing.AGREED)


def downgrade() -> None:
    """Let PostgreSQL's clock decide again."""
    _make(agreeing.NOW)
    op.execute("DROP FUNCTION sluice_agreed_now()")


def _make(now: str) -> None:
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    made = [dropping.function(schema, FORM, (*names_of(FORM), *BESIDE), now), usage.roll_up(schema, now)]
    for statement in (*made, *retaining.functions(schema, FORM, now), *debugging.functions(schema, now)):
        op.execute(statement)
