"""An index that finds a tool call by the id that its client has."""

from alembic import op

from db.migrations.indexing import create_index, drop_index

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Index the ids, in every partition."""
    create_index(op, "tool_calls_tool_call_id_idx", "tool_calls", "(tool_call_id, call_id)")


def downgrade() -> None:
    """Drop the index."""
    drop_index(op, "tool_calls_tool_call_id_idx")
