"""People log in to the pages, whom a provider of OpenID Connect names."""

from pathlib import Path

from alembic import op

revision = "r0004"
down_revision = "r0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Know people, and what a login of one may do."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Forget them, and end their logins."""
    op.execute("DELETE FROM page_sessions WHERE roles IS NOT NULL")
    op.execute("ALTER TABLE page_sessions DROP COLUMN roles, DROP COLUMN sid")
    op.execute("DROP TABLE people")
