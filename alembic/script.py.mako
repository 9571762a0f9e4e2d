"""${message}"""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """Apply."""
    ${upgrades if upgrades else "raise NotImplementedError"}


def downgrade() -> None:
    """Take back."""
    ${downgrades if downgrades else "raise NotImplementedError"}
