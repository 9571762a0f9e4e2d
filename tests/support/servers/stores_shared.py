"""Real servers for tests: a Valkey as the product wants it, and a PostgreSQL, one pair for each
test process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sluice.up import embedded


@contextmanager
def valkey_server(folder: Path) -> Iterator[str]:
    """Run a Valkey (AOF, no eviction) in `folder` and lend its URL."""
    spec, url = embedded.valkey(folder / "valkey", log=folder / "valkey.log")
    with embedded.running(spec, folder / "run-valkey"):
        yield url


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """Run a PostgreSQL in `folder` and lend the URL of its first database, not migrated."""
    spec, url = embedded.postgres(
        folder / "postgres", log=folder / "postgres.log", durable=False, tcp=True
    )
    with embedded.running(spec, folder / "run-postgres"):
        yield url
