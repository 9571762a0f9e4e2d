"""Partitions of one table at a time: whoever makes them holds no table while it waits for another, so nobody can deadlock with it."""

from alembic import op

from db.migrations.sealed import names_of

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

PARTITIONS_LOCK = 7_310_581_202
# The function of all tables stays for writers of the version before. This one locks its table before it looks into the default
# partition, so that both are locked in the order in which readers lock them.
ENSURE_PARTITIONS = """
CREATE FUNCTION sluice_ensure_partitions(first date, days integer, parent text) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    made integer := 0;
    day date;
    part text;
    low uuid;
    high uuid;
    taken boolean;
BEGIN
    IF days NOT BETWEEN 0 AND 400 OR parent <> ALL (ARRAY[{tables}]) THEN
        RAISE EXCEPTION 'days must be from 0 to 400, of a table of calls' USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock({lock});
    FOR step IN 0 .. days - 1 LOOP
        day := first + step;
        part := parent || '_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(format('sluice_parts.%I', part)) IS NOT NULL;
        EXECUTE format('LOCK TABLE ONLY {schema}.%I IN ACCESS EXCLUSIVE MODE', parent);
        low := (lpad(to_hex((extract(epoch FROM day::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
        high := (lpad(to_hex((extract(epoch FROM (day + 1)::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM sluice_parts.%I WHERE call_id >= $1 AND call_id < $2)', parent || '_default')
            INTO taken USING low, high;
        CONTINUE WHEN taken;
        EXECUTE format('CREATE TABLE sluice_parts.%I PARTITION OF {schema}.%I FOR VALUES FROM (%L) TO (%L)', part, parent, low, high);
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$
"""


def upgrade() -> None:
    """Create the function."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    named = ", ".join(f"'{name}'" for name in names_of(1))
    op.execute(ENSURE_PARTITIONS.format(lock=PARTITIONS_LOCK, tables=named, schema=schema))
    op.execute("REVOKE ALL ON FUNCTION sluice_ensure_partitions(date, integer, text) FROM PUBLIC")


def downgrade() -> None:
    """Drop it."""
    op.execute("DROP FUNCTION sluice_ensure_partitions(date, integer, text)")
