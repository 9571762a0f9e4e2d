"""Request bodies lie as they came where the server has no lz4.

Its own compression took 26 ms of CPU for the 1 MB of an agent, more than all of Sluice takes until the first token, and saves half the
space. Only the column's setting changes: rows that are there stay as they are, and all are read alike.
"""

from alembic import op

from db.migrations.indexing import change_briefly

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

COMPRESSION = "SELECT attcompression::text FROM pg_attribute WHERE attrelid = 'request_bodies'::regclass AND attname = 'body'"


def upgrade() -> None:
    """Switch compression off, unless it is lz4."""
    if op.get_bind().exec_driver_sql(COMPRESSION).scalar_one() != "l":
        change_briefly(op, "ALTER TABLE request_bodies ALTER COLUMN body SET STORAGE EXTERNAL")


def downgrade() -> None:
    """Let the server compress again."""
    change_briefly(op, "ALTER TABLE request_bodies ALTER COLUMN body SET STORAGE EXTENDED")
