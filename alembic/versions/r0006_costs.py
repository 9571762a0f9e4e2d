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
    _make(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"), 3)


def downgrade() -> None:
    """Take them back. Seals of the third form can then no longer be verified."""
    op.execute("ALTER TABLE seals ALTER COLUMN made_for SET DEFAULT 2")
    op.execute("DROP FUNCTION sluice_usage(uuid, uuid)")
    op.execute("DROP VIEW call_log")
    for column in ("team", "cost_nanousd", "judge_nanousd", "unpriced", "estimated"):
        op.execute(f"ALTER TABLE usage_hours DROP COLUMN {column}")
    for table, column in COLUMNS:
        op.execute(f"ALTER TABLE {table} DROP COLUMN {column.partition(' ')[0]}")
    old = []
    first = Path(__file__).with_name("r0001_schema.sql").read_text(encoding="utf-8")
    for begin, end in (
        ("CREATE VIEW call_log ", ";\n"),
        ("CREATE FUNCTION sluice_usage(", "$$;\n"),
    ):
        at = first.index(begin)
        old.append(first[at : first.index(end, at) + len(end)])
    _make("\n".join(old), 2)


def _make(statements: str, form: int) -> None:
    # a function's text has signs that SQLAlchemy takes for its own
    connection = op.get_bind().connection.driver_connection
    schema = connection.execute("SELECT quote_ident(current_schema())").fetchone()[0]
    for made in (
        statements.replace("public.", f"{schema}."),
        *sealed.functions(schema, form, in_runs=False),
    ):
        connection.execute(made.encode())
