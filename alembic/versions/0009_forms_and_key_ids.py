"""Seals say in which version of the form they were made, and calls whose key they were made with: a name may have another holder later.

Processes of the version before go on beside it: their seals are of version 1, and `form` says 0 of them, for they name none. What they
insert has no key id.
"""

from alembic import op

from db.migrations.first import first_views, grant_views
from db.migrations.indexing import change_briefly, create_index, drop_index
from db.migrations.sealed import are_seals_from

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# what lies there is of version 1, what comes without a word is of a process that knows no other
FORM = "ALTER TABLE seals ADD COLUMN IF NOT EXISTS form integer NOT NULL DEFAULT 1, ALTER COLUMN form SET DEFAULT 0"
BESIDE = "CREATE INDEX IF NOT EXISTS seals_form_idx ON seals (call_id) WHERE form = 0"
# what should be a call's id can be any text
LETTERS = "CREATE INDEX IF NOT EXISTS dead_letters_call_id_idx ON dead_letters (left(call_id, 36))"
WITH_KEY = ("call_log", "tool_call_log", "judged_tool_call_log", "judged_block_log")
ALL_OF_THEM = "judge_block_log"


def upgrade() -> None:
    """Add the columns, and show the key's id in the views."""
    change_briefly(op, "ALTER TABLE calls ADD COLUMN IF NOT EXISTS key_id text NOT NULL DEFAULT ''")
    create_index(op, "calls_key_id_idx", "calls", "(key_id, call_id)")
    change_briefly(op, FORM)
    change_briefly(op, BESIDE)
    change_briefly(op, LETTERS)
    views = first_views()
    for name in WITH_KEY:
        change_briefly(op, views[name].replace("CREATE VIEW", "CREATE OR REPLACE VIEW").replace("\nFROM ", ", c.key_id\nFROM ", 1))
    change_briefly(op, views[ALL_OF_THEM].replace("CREATE VIEW", "CREATE OR REPLACE VIEW"))


def downgrade() -> None:
    """Drop the columns, unless there are seals over them: without what they cover they would never hold again. Nobody is in their way."""
    drop_index(op, "calls_key_id_idx")
    op.execute("DROP INDEX dead_letters_call_id_idx")
    if are_seals_from(op, 2):
        return
    views = first_views()
    op.execute(f"DROP VIEW {', '.join((ALL_OF_THEM, *WITH_KEY))}")
    op.execute("ALTER TABLE calls DROP COLUMN key_id")
    op.execute("ALTER TABLE seals DROP COLUMN form")
    for name in (*WITH_KEY, ALL_OF_THEM):
        op.execute(views[name])
    grant_views(op, (*WITH_KEY, ALL_OF_THEM))
