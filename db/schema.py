"""Where the migrations lie and which is the newest: asked by running gateways, so without the migration library."""

import functools
from pathlib import Path

_HERE = Path(__file__).resolve().parent
SCRIPTS = next((path for path in (_HERE / "scripts", _HERE.parent / "alembic") if path.is_dir()), _HERE / "scripts")
"""In a checkout `alembic/`; a wheel carries it as `db/scripts`."""


@functools.cache
def newest() -> str:
    """Return the newest migration that this process came with; files that change later are not its own. Names are numbers that go up."""
    return max(path.name.partition("_")[0] for path in (SCRIPTS / "versions").glob("[0-9]*.py"))
