"""Tool calls and blocks say which rule of the policy decided.

Processes of the version before go on beside it: what they insert names no rule. Their seals are of version 3 and cover none; so a seal says
from now on for which version the tables were when it was made, by a default that no process names, and where that is above its own
version, whoever made it knew fewer columns: the next writer of now adds a part.
"""

from alembic import op

from db.migrations.first import first_views, grant_views
from db.migrations.indexing import change_briefly
from db.migrations.sealed import add_columns, drop_columns

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# seals of before were made for the tables that they knew
MADE_FOR = "ALTER TABLE seals ADD COLUMN IF NOT EXISTS made_for integer"
BESIDE = "CREATE INDEX IF NOT EXISTS seals_beside_idx ON seals (call_id) WHERE form = 0 OR form < made_for"
BESIDE_BEFORE = "CREATE INDEX IF NOT EXISTS seals_form_idx ON seals (call_id) WHERE form = 0"
OF_CALL = "CASE WHEN b.call_id IS NULL THEN t.rule ELSE b.rule END AS rule"
SHOWN = {"tool_call_log": OF_CALL, "judged_tool_call_log": OF_CALL, "judged_block_log": "b.rule"}
ALL_OF_THEM = "judge_block_log"


def upgrade() -> None:
    """Add the columns, and show the rule in the views; a redaction empties it with the reason, for a policy may quote the model in it."""
    change_briefly(op, MADE_FOR)
    add_columns(op, 4)
    change_briefly(op, BESIDE)
    change_briefly(op, "DROP INDEX IF EXISTS seals_form_idx")
    for view in (*(_view(name, f", {shown}") for name, shown in SHOWN.items()), first_views()[ALL_OF_THEM]):
        change_briefly(op, view.replace("CREATE VIEW", "CREATE OR REPLACE VIEW"))


def downgrade() -> None:
    """Drop the columns, unless there are seals over them: without what they cover they would never hold again. Nobody is in their way."""
    op.execute(f"DROP VIEW {', '.join((ALL_OF_THEM, *SHOWN))}")
    for view in (*(_view(name, "") for name in SHOWN), first_views()[ALL_OF_THEM]):
        op.execute(view)
    grant_views(op, (ALL_OF_THEM, *SHOWN))
    # who seals then knows no later version
    op.execute(BESIDE_BEFORE)
    op.execute("DROP INDEX seals_beside_idx")
    op.execute("ALTER TABLE seals ALTER COLUMN made_for DROP DEFAULT")
    if drop_columns(op, 4):
        op.execute("ALTER TABLE seals DROP COLUMN made_for")


def _view(name: str, shown: str) -> str:
    """A view as the migration before has it, with columns behind those."""
    return first_views()[name].replace("\nFROM ", f", c.key_id{shown}\nFROM ", 1)
