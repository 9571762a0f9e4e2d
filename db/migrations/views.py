"""The views as the first migration made them, for those that make them anew with columns behind those."""

import runpy
from collections.abc import Iterable

from alembic.operations import Operations

from db.migrations.place import SCRIPTS

_READERS = "SELECT rolname FROM pg_roles WHERE rolname IN ('sluice_reader', 'sluice_writer')"


def first_views() -> dict[str, str]:
    """Return their statements by name."""
    views: Iterable[str] = runpy.run_path(str(SCRIPTS / "versions" / "0001_record.py"))["VIEWS"]
    return {view.split()[2]: view for view in views}


def grant_views(op: Operations, names: Iterable[str]) -> None:
    """Let those read views that were dropped and made anew who could before."""
    for (role,) in op.get_bind().exec_driver_sql(_READERS).all():
        op.execute(f"GRANT SELECT ON {', '.join(names)} TO {role}")
