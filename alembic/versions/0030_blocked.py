"""Blocked is what a policy said no to: sums count no longer what was cut short, was never finished or went out changed.

Hours that are summed up already keep their sums, until they are made anew.
"""

from alembic import op

from db.migrations.first import first_views
from db.migrations.indexing import change_briefly
from db.migrations.usage import functions

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

SHOWN = ", c.key_id, c.policy_set, EXISTS (SELECT FROM events v WHERE v.call_id = c.call_id AND v.kind = 'incomplete') AS incomplete\nFROM "


def upgrade() -> None:
    """Make anew the view of calls and the function that sums up."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    op.execute(functions(schema)[0])
    change_briefly(op, _call_log("= 'block'"))


def downgrade() -> None:
    """Make the view as it was; the function may stay."""
    change_briefly(op, _call_log("<> 'allow'"))


def _call_log(counted: str) -> str:
    """The view of calls with this condition for the tool calls that are counted as blocked."""
    view = first_views()["call_log"].replace("CREATE VIEW", "CREATE OR REPLACE VIEW").replace("\nFROM ", SHOWN, 1)
    return view.replace("<> 'allow'", counted)
