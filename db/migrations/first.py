"""What the first migration made, for those that make it anew with something behind it."""

import runpy
from collections.abc import Iterable
from typing import Any

from alembic.operations import Operations

from db.migrations.place import SCRIPTS

_READERS = "SELECT rolname FROM pg_roles WHERE rolname IN ('sluice_reader', 'sluice_writer')"


def first() -> dict[str, Any]:
    """Return the names of the first migration's module."""
    return runpy.run_path(str(SCRIPTS / "versions" / "0001_record.py"))


def first_views() -> dict[str, str]:
    """Return the statements of its views by name."""
    return {view.split()[2]: view for view in first()["VIEWS"]}


def grant_views(op: Operations, names: Iterable[str]) -> None:
    """Let those read views that were dropped and made anew who could before."""
    for (role,) in op.get_bind().exec_driver_sql(_READERS).all():
        op.execute(f"GRANT SELECT ON {', '.join(names)} TO {role}")
