"""Where the migrations lie and which is the newest: asked by running gateways, so without the
migration library."""

import functools
import hashlib
from pathlib import Path
from typing import LiteralString

_HERE = Path(__file__).resolve().parents[1]
SCRIPTS = next(
    (path for path in (_HERE / "scripts", _HERE.parent / "alembic") if path.is_dir()),
    _HERE / "scripts",
)
"""In a checkout `alembic/`; a wheel carries it as `db/scripts`."""
IDENTITY: LiteralString = "SELECT id FROM identity"
"""Which database this is."""
FIRST_DAYS = 2
"""Days whose partitions are made with the tables."""
FIRST_MONTHS = 2
"""Months whose partitions of `reads` are."""


def revisions() -> list[str]:
    """Return the names of all migrations, the oldest first: `r` and a number that goes up."""
    return sorted(path.name.partition("_")[0] for path in (SCRIPTS / "versions").glob("r[0-9]*.py"))


@functools.cache
def newest() -> str:
    """Return the newest migration that this process came with; files that change later are not its
    own."""
    return revisions()[-1]


def is_before_release(revision: str) -> bool:
    """Does a database at this migration come from before 0.2.0, the first release? Those migrations
    were called by numbers alone, and none of ours goes on from them."""
    return revision.isdigit()


def digest() -> str:
    """Return a digest of the migrations of this installation, and of the modules here that make
    their statements; empty when they are not there."""
    hasher = hashlib.sha256()
    paths = sorted((SCRIPTS / "versions").glob("r[0-9]*.*"))
    for path in (*paths, *sorted(Path(__file__).parent.glob("*.py"))):
        hasher.update(path.read_bytes())
    return hasher.hexdigest() if paths else ""
