"""Runs migrations on the connection that `db.migrations.migrate` opened and locked, or for the
alembic command on SLUICE_DATABASE_URL."""

import os

from alembic import context

from db.migrations.migrate import locked_connection
from db.models import Base


def run(connection: object) -> None:
    """Run each migration in a transaction of its own; what `db.migrations.indexing` does commits as
    it goes."""
    context.configure(
        connection=connection,  # type: ignore[arg-type]
        target_metadata=Base.metadata,
        transactional_ddl=True,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if (open_connection := context.config.attributes.get("connection")) is not None:
    run(open_connection)
else:
    with locked_connection(os.environ["SLUICE_DATABASE_URL"]) as opened:
        run(opened)
