"""Chunks and releases in runs, behind views of their names."""

from pathlib import Path

from alembic import op

from db.migrations import sealed

revision = "r0007"
down_revision = "r0006"
branch_labels = None
depends_on = None


_BACK = """
LOCK TABLE chunk_log, chunks, releases IN ACCESS EXCLUSIVE MODE;
INSERT INTO chunk_rows SELECT * FROM chunks ON CONFLICT DO NOTHING;
INSERT INTO release_rows SELECT * FROM releases ON CONFLICT DO NOTHING;
DROP VIEW chunk_log, chunks, releases;
DROP TABLE chunk_runs, release_runs;
DROP FUNCTION sluice_add_chunk, sluice_add_release, sluice_call_lock, sluice_opened,
    sluice_two_bytes;
ALTER TABLE chunk_rows RENAME TO chunks;
ALTER TABLE release_rows RENAME TO releases;
"""


def upgrade() -> None:
    """Make the tables and views, and the functions that go through them. No row is written anew."""
    # a function's text has signs that SQLAlchemy takes for its own
    connection = op.get_bind().connection.driver_connection
    schema = connection.execute("SELECT quote_ident(current_schema())").fetchone()[0]
    made = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in (made.replace("public.", f"{schema}."), *sealed.functions(schema, 3)):
        connection.execute(statement.encode())


def downgrade() -> None:
    """Write all that came in runs as rows again."""
    connection = op.get_bind().connection.driver_connection
    schema = connection.execute("SELECT quote_ident(current_schema())").fetchone()[0]
    connection.execute(_BACK)
    first = Path(__file__).with_name("r0001_schema.sql").read_text(encoding="utf-8")
    for begin, end in (("CREATE VIEW chunk_log", ";"), ("CREATE FUNCTION sluice_shed(", "$$;")):
        made = begin + first.partition(begin)[2].partition(end)[0] + end
        made = made.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
        connection.execute(made.replace("public.", f"{schema}.").encode())
    for statement in sealed.functions(schema, 3, in_runs=False):
        connection.execute(statement.encode())
