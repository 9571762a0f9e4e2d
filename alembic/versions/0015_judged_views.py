"""The views of judge blocks go: nothing reads them, and they took replaced calls for blocked ones. `db/read/lists.py` says what a judge
block is."""

import runpy

from alembic import op

from db.migrations.first import first_views, grant_views
from db.migrations.indexing import change_briefly
from db.migrations.place import SCRIPTS

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

# of the judgement only what they show: columns that came later must not depend on them
SHOWN = "g.model, g.policy, g.probability, g.threshold, g.explanation, g.prompt, g.reply, g.latency_ms, g.attempts, g.error"
VIEWS = ("judge_block_log", "judged_tool_call_log", "judged_block_log")


def upgrade() -> None:
    """Drop them."""
    change_briefly(op, f"DROP VIEW IF EXISTS {', '.join(VIEWS)}")


def downgrade() -> None:
    """Make them as they were since rules are shown."""
    before = runpy.run_path(str(SCRIPTS / "versions" / "0011_rules.py"))
    for name in VIEWS[1:]:
        view = before["_view"](name, f", {before['SHOWN'][name]}")
        op.execute(view.replace("SELECT * FROM", f"SELECT {SHOWN} FROM"))
    op.execute(first_views()[VIEWS[0]])
    grant_views(op, VIEWS)
