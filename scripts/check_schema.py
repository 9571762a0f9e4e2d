"""Says what differs between the models and a freshly migrated database. Exit code 1 when something
does."""

import sys
import tempfile
from pathlib import Path

from db.migrations import migrate
from sluice.up import embedded


def main() -> int:
    """Migrate an embedded database up, down and up again, and compare."""
    with tempfile.TemporaryDirectory() as folder:
        spec, url = embedded.postgres(
            Path(folder) / "postgres", log=Path(folder) / "log", durable=False
        )
        with embedded.running(spec, Path(folder) / "run"):
            migrate.upgrade(url)
            migrate.downgrade(url)
            migrate.upgrade(url)
            found = migrate.schema_diff(url)
    for difference in found:
        print(difference)  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
