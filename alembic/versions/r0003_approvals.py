"""Tool calls may wait for people: what is asked, what they said, and which call used it."""

from pathlib import Path

from alembic import op

from db.migrations import sealed

revision = "r0003"
down_revision = "r0002"
branch_labels = None
depends_on = None

_FORM = 1
"""The version of the sealed form then."""
_TABLES = ("approval_votes", "approval_asks", "approval_notices", "approvals")
_FUNCTIONS = (
    "sluice_take_notices",
    "sluice_mark_notice",
    "sluice_ask_people",
    "sluice_decide_approval",
    "sluice_use_approval",
)
_TRIGGER = "sluice_note_approval"


def upgrade() -> None:
    """Make the tables, and let what deletes a call delete its questions."""
    # as the first migration: a function's text has signs that SQLAlchemy takes for its own
    connection = op.get_bind().connection.driver_connection
    schema = connection.execute("SELECT quote_ident(current_schema())").fetchone()[0]
    made = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in (
        made.replace("public.", f"{schema}."),
        *sealed.functions(schema, _FORM, in_runs=False),
    ):
        connection.execute(statement.encode())


def downgrade() -> None:
    """Take them back, with all that was asked."""
    for name in _FUNCTIONS:
        op.execute(f"DROP FUNCTION {name}")
    for name in _TABLES:
        op.execute(f"DROP TABLE {name}")
    op.execute(f"DROP FUNCTION {_TRIGGER}")
