"""Steps of every migration that adds tables of calls in a new version of the sealed form (`db.columns`): the tables with their default
partitions, and the functions in the database that go through all of them by name."""

import runpy

from alembic.operations import Operations

from db.columns import TABLES
from db.locks import SEAL_LOCK
from db.migrations.first import first
from db.migrations.place import SCRIPTS
from db.migrations.sealed import definition, names_of


def add_tables(op: Operations, version: int) -> None:
    """Add the tables that this version of the form covers first."""
    for table in TABLES:
        if table.since == version:
            op.execute(f"CREATE TABLE IF NOT EXISTS {table.name} (call_id uuid NOT NULL, {definition(table)}) PARTITION BY RANGE (call_id)")
            op.execute(f"CREATE TABLE IF NOT EXISTS sluice_parts.{table.name}_default PARTITION OF {table.name} DEFAULT")
    name_tables(op, version)


def drop_tables(op: Operations, version: int) -> None:
    """Drop them."""
    name_tables(op, version - 1)
    for table in TABLES:
        if table.since == version:
            op.execute(f"DROP TABLE {table.name}")


def name_tables(op: Operations, version: int, *beside: str) -> None:
    """Let the functions that make partitions and drop them know the tables of this version, and those beside the sealed record. Who may run
    them stays as it is. From 0025 on a migration makes what drops anew after this (`db.migrations.dropping`)."""
    seals, by_table = (runpy.run_path(str(SCRIPTS / "versions" / name)) for name in ("0004_seals.py", "0005_partitions_by_table.py"))
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    names = ", ".join(f"'{name}'" for name in (*names_of(version), *beside))
    values = {"schema": schema, "tables": names, "partitions_lock": seals["PARTITIONS_LOCK"], "seal_lock": SEAL_LOCK}
    for function in (first()["ENSURE_PARTITIONS"], by_table["ENSURE_PARTITIONS"], seals["DROP_BEFORE"]):
        made = function.format(**values, lock=seals["PARTITIONS_LOCK"])
        op.execute(made.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"))
