"""People log in to the pages, whom a provider of OpenID Connect names."""

from pathlib import Path

from alembic import op

revision = "r0004"
down_revision = "r0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let a login be a person's."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Forget people, and end their logins."""
    op.execute("DELETE FROM page_sessions WHERE person <> ''")
    for name in ("person", "issuer", "sid", "roles"):
        op.execute(f"ALTER TABLE page_sessions DROP COLUMN {name}")
