"""Runs migrations on the connection that `db.migrate` opened and locked, or for the alembic command line on SLUICE_DATABASE_URL."""

import os

from alembic import context

from db.migrate import locked_connection
from db.models import Base


def run(connection: object) -> None:
    """Run the migrations in one transaction."""
    context.configure(connection=connection, target_metadata=Base.metadata, transactional_ddl=True)  # type: ignore[arg-type]
    with context.begin_transaction():
        context.run_migrations()


if (given := context.config.attributes.get("connection")) is not None:
    run(given)
else:
    with locked_connection(os.environ["SLUICE_DATABASE_URL"]) as opened:
        run(opened)
