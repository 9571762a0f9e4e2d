"""Redacted calls get a table of their own, which audit writers look at with each batch: what comes later is written without content.

Audit writers of the version before do not know it, and write what comes later as it came.
"""

from alembic import op

from db.migrations.sealed import make_redaction

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

FORM = 7
"""The version of the sealed form then."""


def upgrade() -> None:
    """Make the table with the calls redacted so far, and anew the function that redacts."""
    op.execute("CREATE TABLE IF NOT EXISTS redacted_calls (call_id uuid NOT NULL PRIMARY KEY)")
    make_redaction(op, FORM)
    op.execute("INSERT INTO redacted_calls SELECT DISTINCT call_id FROM redactions ON CONFLICT DO NOTHING")


def downgrade() -> None:
    """Drop the table; the function does without it."""
    op.execute("DROP TABLE redacted_calls")
