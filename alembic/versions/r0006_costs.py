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
    for statement in sealed.functions("public", 3):
        op.execute(statement)


def downgrade() -> None:
    """Take them back. Seals of the third form can then no longer be verified."""
    for statement in sealed.functions("public", 2):
        op.execute(statement)
    op.execute("ALTER TABLE seals ALTER COLUMN made_for SET DEFAULT 2")
    op.execute("DROP FUNCTION sluice_usage(uuid, uuid)")
    op.execute("DROP VIEW call_log")
    for column in ("team", "cost_nanousd", "judge_nanousd", "unpriced", "estimated"):
        op.execute(f"ALTER TABLE usage_hours DROP COLUMN {column}")
    for table, column in COLUMNS:
        op.execute(f"ALTER TABLE {table} DROP COLUMN {column.partition(' ')[0]}")
    first = Path(__file__).with_name("r0001_schema.sql").read_text(encoding="utf-8")
    for begin, end in (
        ("CREATE VIEW call_log ", ";\n"),
        ("CREATE FUNCTION sluice_usage(", "$$;\n"),
    ):
        at = first.index(begin)
        op.execute(first[at : first.index(end, at) + len(end)])
