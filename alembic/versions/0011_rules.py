"""Tool calls and blocks say which rule of the policy decided.

Processes of the version before go on beside it: what they insert names no rule. Their seals are of version 3 and cover none; so a seal says
from now on for which version the tables were when it was made, by a default that no process names, and where that is above its own
version, whoever made it knew fewer columns: the next writer of now adds a part.
"""

from importlib import util
from pathlib import Path
from types import ModuleType

from alembic import op

from db.migrations.indexing import change_briefly

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TABLES = ("tool_calls", "blocks")
# seals of before were made for the tables that they knew
MADE_FOR = "ALTER TABLE seals ADD COLUMN IF NOT EXISTS made_for integer, ALTER COLUMN made_for SET DEFAULT 4"
BESIDE = "CREATE INDEX IF NOT EXISTS seals_beside_idx ON seals (call_id) WHERE form = 0 OR form < made_for"
BESIDE_BEFORE = "CREATE INDEX IF NOT EXISTS seals_form_idx ON seals (call_id) WHERE form = 0"
LATER = "SELECT EXISTS (SELECT FROM seals WHERE form > 3)"
OF_CALL = "CASE WHEN b.call_id IS NULL THEN t.rule ELSE b.rule END AS rule"
SHOWN = {"tool_call_log": OF_CALL, "judged_tool_call_log": OF_CALL, "judged_block_log": "b.rule"}
ALL_OF_THEM = "judge_block_log"
READERS = "SELECT rolname FROM pg_roles WHERE rolname IN ('sluice_reader', 'sluice_writer')"


def upgrade() -> None:
    """Add the columns, and show the rule in the views; a redaction empties it with the reason, for a policy may quote the model in it."""
    for table in TABLES:
        change_briefly(op, f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS rule text")
    change_briefly(op, MADE_FOR)
    change_briefly(op, BESIDE)
    change_briefly(op, "DROP INDEX IF EXISTS seals_form_idx")
    for view in (*(_view(name, f", {shown}") for name, shown in SHOWN.items()), _views()[ALL_OF_THEM]):
        change_briefly(op, view.replace("CREATE VIEW", "CREATE OR REPLACE VIEW"))
    _make_redaction(is_with_rule=True)


def downgrade() -> None:
    """Drop the columns, unless there are seals over them: without what they cover they would never hold again. Nobody is in their way."""
    op.execute(f"DROP VIEW {', '.join((ALL_OF_THEM, *SHOWN))}")
    for view in (*(_view(name, "") for name in SHOWN), _views()[ALL_OF_THEM]):
        op.execute(view)
    for (role,) in op.get_bind().exec_driver_sql(READERS).all():
        op.execute(f"GRANT SELECT ON {', '.join((ALL_OF_THEM, *SHOWN))} TO {role}")
    # who seals then knows no later version
    op.execute(BESIDE_BEFORE)
    op.execute("DROP INDEX seals_beside_idx")
    op.execute("ALTER TABLE seals ALTER COLUMN made_for DROP DEFAULT")
    if op.get_bind().exec_driver_sql(LATER).scalar_one():
        return
    _make_redaction(is_with_rule=False)
    op.execute("ALTER TABLE seals DROP COLUMN made_for")
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} DROP COLUMN rule")


def _views() -> dict[str, str]:
    """The views of the first migration by name, each as it was made there."""
    return {view.split()[2]: view for view in _other("0001_record").VIEWS}


def _view(name: str, shown: str) -> str:
    """A view as the migration before has it, with columns behind those."""
    return _views()[name].replace("\nFROM ", f", c.key_id{shown}\nFROM ", 1)


def _make_redaction(*, is_with_rule: bool) -> None:
    sums, empties = _other("0010_sums"), {}
    for table, (key, content) in _other("0004_seals").CONTENT.items():
        empties[table] = key, {**content, "rule": "text"} if is_with_rule and table in TABLES else content
    sums._make_redaction({**empties, **sums.CONTENT})


def _other(name: str) -> ModuleType:
    """Another migration, as a fresh module."""
    spec = util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
