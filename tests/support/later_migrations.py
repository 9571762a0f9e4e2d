"""Migrations of a later version: the first one makes new tables alone, and shows nothing of how one
goes on beside writers."""

import shutil
from pathlib import Path

import pytest

from db.migrations import migrate, place

INDEXES = """
from alembic import op
from db.migrations.indexing import change_briefly, create_index, create_plain_index, drop_index

revision, down_revision = "r0099", "r0007"
INDEXES = (
    ("calls_upstream_idx", "calls", "(upstream, call_id)"),
    ("tool_calls_executor_idx", "tool_calls", "(executor, call_id)"),
    ("blocks_policy_idx", "blocks", "(policy, call_id) WHERE verdict NOT IN ('allow', 'replace')"),
    ("judgements_search_idx", "judgements", "USING gin (to_tsvector('simple', explanation))"),
)


def upgrade():
    for index in INDEXES:
        create_index(op, *index)
    change_briefly(op, "ALTER TABLE calls ADD COLUMN IF NOT EXISTS colour text")
    create_plain_index(op, "seals_at_idx", "seals", "(at)")


def downgrade():
    op.execute("DROP INDEX IF EXISTS seals_at_idx")
    op.execute("ALTER TABLE calls DROP COLUMN colour")
    for name, _, _ in INDEXES:
        drop_index(op, name)
"""
"""Indexes on tables with partitions and without, and a column."""


def add_migration(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process know one more migration, `r0099`, until the test ends."""
    scripts = shutil.copytree(place.SCRIPTS, folder / "scripts")
    (scripts / "versions" / "r0099_later.py").write_text(text)
    for module in (place, migrate):
        monkeypatch.setattr(module, "SCRIPTS", scripts)
    assert migrate.head() == "r0099"
