"""Words of refused tool calls by an index of their own: they are looked for among judge blocks, and are few beside all others."""

from alembic import op

from db.migrations.indexing import create_index, drop_index

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index while writers write."""
    create_index(op, "tool_calls_search_refused_idx", "tool_calls", "USING gin (search) WHERE verdict NOT IN ('allow', 'replace')")


def downgrade() -> None:
    """Drop the index."""
    drop_index(op, "tool_calls_search_refused_idx")
