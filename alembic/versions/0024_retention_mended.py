"""What takes rows away keeps inserts waiting for moments only, and takes labels with their calls; what takes those of one table takes none
that no seal counts; what redacts counts debug lines and reads as well.

Processes of the version before go on with it, but for audit writers with `retention`: where a day has other rows than its seals count they
know no word for that, and end. Replace them with the migration.
"""

from alembic import op

from db.migrations.retaining import functions
from db.migrations.sealed import make_redaction
from db.migrations.tables import name_tables

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

FORM = 7
"""The version of the sealed form then."""
BESIDE = ("histories", "debug_logs")


def upgrade() -> None:
    """Make the functions anew."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    for statement in functions(schema, FORM):
        op.execute(statement)
    make_redaction(op, FORM)
    name_tables(op, FORM, *BESIDE)


def downgrade() -> None:
    """Leave them: each looks which tables there are."""
