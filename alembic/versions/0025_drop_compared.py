"""What drops whole days takes none with other rows than their seals count.

Processes of the version before go on with it, but for audit writers with `retention: {everything: ...}`: where a day has other rows than
its seals count they know the word for that from single tables, and wait. By `sluice audit drop` of before the calls stay without a word.
"""

from alembic import op

from db.migrations.dropping import function
from db.migrations.sealed import names_of
from db.migrations.tables import name_tables

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

FORM = 7
"""The version of the sealed form then."""
BESIDE = ("histories", "debug_logs")


def upgrade() -> None:
    """Make the function anew. Who may run it stays as it is."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    op.execute(function(schema, FORM, (*names_of(FORM), *BESIDE)))


def downgrade() -> None:
    """Make it as it was."""
    name_tables(op, FORM, *BESIDE)
