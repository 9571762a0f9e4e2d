"""A call's end says what the record of it should hold, its beginning under which set of policies it began and what its body was; calls with
holes are found by an index of their own.

The database gets an id of its own, so that Redis can say which database its records go to. Processes of the version before go on beside it:
what they insert has no sums, and their seals, which are of version 2, cover none.
"""

from importlib import util
from pathlib import Path
from types import ModuleType

from alembic import op

from db.migrations.indexing import change_briefly, create_index, drop_index

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

CALLS = "ALTER TABLE calls ADD COLUMN IF NOT EXISTS policy_set text NOT NULL DEFAULT '', ADD COLUMN IF NOT EXISTS body_sha256 bytea"
ENDS = (
    "ALTER TABLE ends ADD COLUMN IF NOT EXISTS chunks integer, ADD COLUMN IF NOT EXISTS releases integer, "
    "ADD COLUMN IF NOT EXISTS decisions integer, ADD COLUMN IF NOT EXISTS relayed_sha256 bytea"
)
IDENTITY = """
CREATE TABLE IF NOT EXISTS identity (
    is_only boolean NOT NULL DEFAULT true CONSTRAINT identity_is_only_check CHECK (is_only), id uuid NOT NULL DEFAULT gen_random_uuid(),
    PRIMARY KEY (is_only))
"""
FIRST = "INSERT INTO identity DEFAULT VALUES ON CONFLICT DO NOTHING"
INCOMPLETE = "events_incomplete_idx", "events", "(call_id) WHERE kind = 'incomplete'"
SHOWN = ", c.key_id, c.policy_set, EXISTS (SELECT FROM events v WHERE v.call_id = c.call_id AND v.kind = 'incomplete') AS incomplete\nFROM "
READERS = "SELECT rolname FROM pg_roles WHERE rolname IN ('sluice_reader', 'sluice_writer')"
LATER = "SELECT EXISTS (SELECT FROM seals WHERE form > 2)"
CONTENT = {"calls": ((), {"session": "text", "body_sha256": "bytea"}), "ends": ((), {"relayed_sha256": "bytea"})}
"""What a redaction empties besides: the hash of a short body gives it away as well as the body."""


def upgrade() -> None:
    """Add the columns and the id; a redaction empties the hashes too."""
    change_briefly(op, CALLS)
    change_briefly(op, ENDS)
    change_briefly(op, IDENTITY)
    op.execute(FIRST)
    create_index(op, *INCOMPLETE)
    change_briefly(op, _call_log(SHOWN).replace("CREATE VIEW", "CREATE OR REPLACE VIEW"))
    _make_redaction(CONTENT)


def downgrade() -> None:
    """Drop the columns, unless there are seals over them: without what they cover they would never hold again. Nobody is in their way.

    The database keeps its id, which Redis knows: with another one after the next upgrade no gateway would start.
    """
    drop_index(op, INCOMPLETE[0])
    op.execute("DROP VIEW call_log")
    op.execute(_call_log(", c.key_id\nFROM "))
    for (role,) in op.get_bind().exec_driver_sql(READERS).all():
        op.execute(f"GRANT SELECT ON call_log TO {role}")
    if op.get_bind().exec_driver_sql(LATER).scalar_one():
        return
    _make_redaction({})
    op.execute("ALTER TABLE calls DROP COLUMN policy_set, DROP COLUMN body_sha256")
    op.execute("ALTER TABLE ends DROP COLUMN chunks, DROP COLUMN releases, DROP COLUMN decisions, DROP COLUMN relayed_sha256")


def _call_log(shown: str) -> str:
    """The view of calls as the first migration made it, with columns behind those."""
    views = [view for view in _other("0001_record").VIEWS if view.split()[2] == "call_log"]
    return str(views[0]).replace("\nFROM ", shown, 1)


def _make_redaction(besides: dict[str, tuple[tuple[str, ...], dict[str, str]]]) -> None:
    seals = _other("0004_seals")
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    seals.CONTENT.update(besides)
    steps = "".join(seals._redact_step(schema, table) for table in seals.CONTENT)
    made = seals.REDACT.format(schema=schema, lock=seals.SEAL_LOCK, steps=steps)
    op.execute(made.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"))


def _other(name: str) -> ModuleType:
    """Another migration, as a fresh module."""
    spec = util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
