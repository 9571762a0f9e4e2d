"""Indexes by which every filter of the audit lists finds its rows in their order."""

from alembic import op

from db.migrations.indexing import create_index, drop_index

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

INDEXES = (
    ("calls_key_idx", "calls", "(key, call_id)"),
    ("calls_model_idx", "calls", "(model, call_id)"),
    ("calls_policy_idx", "calls", "(policy, call_id)"),
    ("tool_calls_verdict_idx", "tool_calls", "(verdict, call_id)"),
    ("tool_calls_policy_idx", "tool_calls", "(policy, call_id)"),
    ("tool_calls_refused_idx", "tool_calls", "(call_id, block) WHERE verdict NOT IN ('allow', 'replace')"),
    ("blocks_verdict_idx", "blocks", "(verdict, call_id)"),
    ("blocks_refused_idx", "blocks", "(call_id, block) WHERE verdict NOT IN ('allow', 'replace')"),
    ("blocks_later_idx", "blocks", "(call_id, block) INCLUDE (verdict, policy) WHERE kind NOT IN ('text', 'thinking')"),
    ("blocks_reason_idx", "blocks", "USING gin (to_tsvector('simple', reason)) WHERE verdict NOT IN ('allow', 'replace')"),
    ("judgements_policy_idx", "judgements", "(policy, call_id)"),
)


def upgrade() -> None:
    """Make the indexes, one after the other, while writers write."""
    for name, table, on in INDEXES:
        create_index(op, name, table, on)


def downgrade() -> None:
    """Drop the indexes."""
    for name, _, _ in INDEXES:
        drop_index(op, name)
