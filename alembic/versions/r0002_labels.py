"""Readers may label a decision `always`: an admin allows such a call from then on."""

from pathlib import Path

from alembic import op

revision = "r0002"
down_revision = "r0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let labels say it."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Take it back, with what was allowed."""
    op.execute("DELETE FROM labels WHERE label = 'always'")
    op.execute("ALTER TABLE labels DROP CONSTRAINT labels_label_check")
    op.execute(
        "ALTER TABLE labels ADD CONSTRAINT labels_label_check"
        " CHECK (label IN ('right', 'wrong', 'unsure'))"
    )
