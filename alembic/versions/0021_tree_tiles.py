"""Inner nodes of the tree of seals get a table, so that the path of one seal among millions takes a few rows.

Audit writers fill it after each checkpoint, also for what was sealed before. Processes of the version before do not know it.
"""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.execute(
        """CREATE TABLE tree_tiles (
            level integer NOT NULL, index bigint NOT NULL, hashes bytea NOT NULL, root bytea NOT NULL, PRIMARY KEY (level, index))"""
    )
    # hashes do not compress: each try costs
    op.execute("ALTER TABLE tree_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL")


def downgrade() -> None:
    """Drop it. The seals have all that it was made of."""
    op.execute("DROP TABLE tree_tiles")
