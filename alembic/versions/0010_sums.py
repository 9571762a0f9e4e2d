"""A call's end says what the record of it should hold, its beginning under which set of policies it began and what its body was; calls with
holes are found by an index of their own.

The database gets an id of its own, so that Redis can say which database its records go to. Processes of the version before go on beside it:
what they insert has no sums, and their seals, which are of version 2, cover none.
"""

from alembic import op

from db.migrations.first import first_views, grant_views
from db.migrations.indexing import change_briefly, create_index, drop_index
from db.migrations.sealed import add_columns, drop_columns

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

IDENTITY = """
CREATE TABLE IF NOT EXISTS identity (
    is_only boolean NOT NULL DEFAULT true CONSTRAINT identity_is_only_check CHECK (is_only), id uuid NOT NULL DEFAULT gen_random_uuid(),
    PRIMARY KEY (is_only))
"""
FIRST = "INSERT INTO identity DEFAULT VALUES ON CONFLICT DO NOTHING"
INCOMPLETE = "events_incomplete_idx", "events", "(call_id) WHERE kind = 'incomplete'"
SHOWN = ", c.key_id, c.policy_set, EXISTS (SELECT FROM events v WHERE v.call_id = c.call_id AND v.kind = 'incomplete') AS incomplete\nFROM "


def upgrade() -> None:
    """Add the columns and the id; a redaction empties the hashes too: that of a short body gives it away as well as the body."""
    add_columns(op, 3)
    change_briefly(op, IDENTITY)
    op.execute(FIRST)
    create_index(op, *INCOMPLETE)
    change_briefly(op, _call_log(SHOWN).replace("CREATE VIEW", "CREATE OR REPLACE VIEW"))


def downgrade() -> None:
    """Drop the columns, unless there are seals over them: without what they cover they would never hold again. Nobody is in their way.

    The database keeps its id, which Redis knows: with another one after the next upgrade no gateway would start.
    """
    drop_index(op, INCOMPLETE[0])
    op.execute("DROP VIEW call_log")
    op.execute(_call_log(", c.key_id\nFROM "))
    grant_views(op, ["call_log"])
    drop_columns(op, 3)


def _call_log(shown: str) -> str:
    """The view of calls as the first migration made it, with columns behind those."""
    return first_views()["call_log"].replace("\nFROM ", shown, 1)
