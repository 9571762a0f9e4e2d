"""Seals of ended calls, checkpoints over them, and the two functions that take content away: redaction and retention."""

from collections.abc import Iterable

from alembic import op

from db.migrations.first import first
from db.migrations.retaining import TRIES
from db.migrations.sealed import SEAL_LOCK, make_redaction, names_of, tables_of

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

NEW_TABLES = {
    "seal_rows": "part integer NOT NULL, salt bytea, marks bytea NOT NULL, PRIMARY KEY (call_id, part)",
    "redactions": "table_name text NOT NULL, row_key bytea NOT NULL, hashes bytea NOT NULL, PRIMARY KEY (call_id, table_name, row_key)",
}
PLAIN_TABLES = (
    """CREATE TABLE seals (
        position bigint NOT NULL, call_id uuid NOT NULL, part integer NOT NULL, at timestamptz NOT NULL, counts bigint[] NOT NULL,
        sha256 bytea NOT NULL, note text NOT NULL, PRIMARY KEY (position))""",
    "CREATE UNIQUE INDEX seals_call_id_idx ON seals (call_id, part)",
    """CREATE TABLE checkpoints (
        size bigint NOT NULL, text text NOT NULL, peaks bytea NOT NULL, sha256 bytea NOT NULL, PRIMARY KEY (size))""",
)
PARTITIONS_LOCK = 7_310_581_202
# Heads of calls (seals) stay, so that the tree can still be computed; that calls were dropped becomes a leaf of it (part -1).
# -1: a call before that day has no seal yet; -2: a seal of it is under no checkpoint yet. What has no partition goes first: from the first
# DROP on inserts wait.
_WORK = """
            PERFORM pg_advisory_xact_lock({seal_lock});
            IF EXISTS (
                SELECT 1 FROM (SELECT call_id FROM {schema}.calls WHERE call_id < bound UNION ALL
                    SELECT call_id FROM {schema}.ends WHERE call_id < bound) c
                WHERE NOT EXISTS (SELECT 1 FROM {schema}.seals s WHERE s.call_id = c.call_id)
            ) THEN
                RETURN -1;
            END IF;
            IF EXISTS (
                SELECT 1 FROM {schema}.seals s WHERE s.call_id < bound AND s.part >= 0
                    AND s.position >= coalesce((SELECT max(size) FROM {schema}.checkpoints), 0)
            ) THEN
                RETURN -2;
            END IF;
            SELECT count(*) INTO dropped FROM {schema}.calls WHERE call_id < bound;
            PERFORM pg_advisory_xact_lock({partitions_lock});
            FOREACH parent IN ARRAY ARRAY[{tables}] LOOP
                EXECUTE format('DELETE FROM sluice_parts.%I WHERE call_id < $1', parent || '_default') USING bound;
            END LOOP;
            IF to_regclass('{schema}.audits') IS NOT NULL THEN
                DELETE FROM {schema}.audit_reviews WHERE call_id < bound;
                DELETE FROM {schema}.audits WHERE call_id < bound;
            END IF;
            IF to_regclass('{schema}.labels') IS NOT NULL THEN
                DELETE FROM {schema}.labels WHERE call_id < bound;
                DELETE FROM {schema}.debug_switches WHERE until < day::timestamp AT TIME ZONE 'UTC';
            END IF;
            IF to_regclass('{schema}.kept_digests') IS NOT NULL THEN
                DELETE FROM {schema}.kept_digests WHERE call_id < bound;
            END IF;
            PERFORM set_config('lock_timeout', '200ms', true);
            FOREACH parent IN ARRAY ARRAY[{tables}] LOOP
                FOR part IN
                    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                    WHERE i.inhparent = ('{schema}.' || quote_ident(parent))::regclass AND c.relname ~ ('^' || parent || '_[0-9]{{8}}$')
                        AND to_date(right(c.relname, 8), 'YYYYMMDD') < day
                LOOP
                    EXECUTE format('DROP TABLE sluice_parts.%I', part);
                END LOOP;
            END LOOP;"""
DROP_BEFORE = f"""
CREATE FUNCTION sluice_drop_before(day date, why text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    bound uuid := (lpad(to_hex((extract(epoch FROM day::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
    parent text;
    part text;
    dropped bigint;
    tries integer := 0;
BEGIN
{TRIES.format(work=_WORK)}
    INSERT INTO {{schema}}.seals (position, call_id, part, at, counts, sha256, note)
        SELECT coalesce(max(position) + 1, 0), bound, -1, now(), ARRAY[dropped], ''::bytea, why FROM {{schema}}.seals;
    RETURN dropped;
END
$$
"""


def upgrade() -> None:
    """Create the tables and functions; partitions of the new tables follow those of the others."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    for name, columns in NEW_TABLES.items():
        op.execute(f"CREATE TABLE {name} (call_id uuid NOT NULL, {columns}) PARTITION BY RANGE (call_id)")
        op.execute(f"CREATE TABLE sluice_parts.{name}_default PARTITION OF {name} DEFAULT")
    for statement in PLAIN_TABLES:
        op.execute(statement)
    _make_partition_function(schema, names_of(1))
    make_redaction(op, 1)
    tables = ", ".join(f"'{name}'" for name in names_of(1))
    drop = DROP_BEFORE.format(schema=schema, seal_lock=SEAL_LOCK, partitions_lock=PARTITIONS_LOCK, tables=tables)
    op.execute(drop)
    for function in ("sluice_redact(uuid, text)", "sluice_drop_before(date, text)"):
        op.execute(f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC")


def downgrade() -> None:
    """Drop seals and checkpoints. What was redacted stays redacted."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    op.execute("DROP FUNCTION sluice_redact(uuid, text)")
    op.execute("DROP FUNCTION sluice_drop_before(date, text)")
    _make_partition_function(schema, [table.name for table in tables_of(1)])
    for name in (*NEW_TABLES, "seals", "checkpoints"):
        op.execute(f"DROP TABLE {name}")


def _make_partition_function(schema: str, tables: Iterable[str]) -> None:
    named = ", ".join(f"'{name}'" for name in tables)
    op.execute(first()["ENSURE_PARTITIONS"].format(lock=PARTITIONS_LOCK, tables=named, schema=schema))
