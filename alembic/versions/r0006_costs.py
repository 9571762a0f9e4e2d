"""What calls cost, and the team of their key: columns that seals of version 3 cover."""

from pathlib import Path

from alembic import op

from db.migrations import sealed
from db.migrations.indexing import change_briefly, create_index

revision = "r0006"
down_revision = "r0005"
branch_labels = None
depends_on = None

COLUMNS = (
    ("calls", "team text"),
    ("ends", "charged_tokens int8"),
    ("ends", "cost_nanousd int8"),
    ("ends", "judge_nanousd int8"),
    ("ends", "is_estimated bool"),
)


def upgrade() -> None:
    """Make the columns, and the sums over them."""
    for table, column in COLUMNS:
        change_briefly(op, f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column}")
    create_index(op, "calls_team_idx", "calls", "(team, call_id) WHERE team IS NOT NULL")
    change_briefly(op, "ALTER TABLE seals ALTER COLUMN made_for SET DEFAULT 3")
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    for statement in sealed.functions("public", 3, in_runs=False):
        op.execute(statement)


def downgrade() -> None:
    """Refuse: seals that cover the columns are there for ever."""
    raise NotImplementedError("seals of version 3 stay: restore a backup instead")
