"""What requests repeat of each other gets a table, from which a session is put together as one conversation.

It is beside the sealed record, made of the request bodies and can be made again (`sluice audit rebuild histories`). Processes of the
version before write none.
"""

from alembic import op

from db.migrations.sealed import make_redaction
from db.migrations.tables import name_tables

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

FORM = 7
"""The version of the sealed form then."""
TABLE = """CREATE TABLE histories (
    call_id uuid NOT NULL PRIMARY KEY, session text NOT NULL, turns integer NOT NULL, marks bytea NOT NULL, offsets bytea NOT NULL,
    preview text NOT NULL, is_side boolean NOT NULL
) PARTITION BY RANGE (call_id)"""


def upgrade() -> None:
    """Make the table; what redacts, drops and makes partitions then knows it."""
    op.execute(TABLE)
    op.execute("CREATE TABLE sluice_parts.histories_default PARTITION OF histories DEFAULT")
    make_redaction(op, FORM)
    name_tables(op, FORM, "histories")


def downgrade() -> None:
    """Drop it. What redacts looks whether it is there."""
    name_tables(op, FORM)
    op.execute("DROP TABLE histories")
