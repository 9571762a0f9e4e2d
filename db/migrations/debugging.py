"""Debug logs and what gateways refused: tables beside the record, which no seal covers, and the functions that keep them small.

Rights: audit writers insert lines. They may neither change nor delete anything; what deletes old lines, and what raises a count, are
functions of the owner's. Must not know: connections.
"""

from typing import Final

from db.locks import PARTITIONS_LOCK
from db.migrations.agreeing import NOW

COUNT: Final = "sluice_count_door(text, timestamptz, text[], text[], bigint[])"
TRIM: Final = "sluice_trim_debug_logs(integer, bigint)"
DOOR_DAYS = 90
TABLES = (
    """CREATE TABLE debug_logs (
        call_id uuid NOT NULL, process text NOT NULL, n integer NOT NULL, at timestamptz NOT NULL, type text NOT NULL, event text NOT NULL,
        seq integer, number integer, block integer, policy text, hook text, duration_us integer, bytes integer, detail bytea NOT NULL,
        PRIMARY KEY (call_id, process, n)) PARTITION BY RANGE (call_id)""",
    "CREATE TABLE sluice_parts.debug_logs_default PARTITION OF debug_logs DEFAULT",
    "CREATE INDEX debug_logs_type_idx ON debug_logs (type, call_id)",
    """CREATE TABLE door_counts (
        gateway text NOT NULL, key text NOT NULL, code text NOT NULL, minute timestamptz NOT NULL, n bigint NOT NULL,
        PRIMARY KEY (gateway, key, code, minute))""",
    "CREATE INDEX door_counts_minute_idx ON door_counts (minute)",
)
# A gateway's sums only grow, so a line that comes twice, late or never costs nothing.
_COUNT = """
CREATE OR REPLACE FUNCTION sluice_count_door(gateway text, minute timestamptz, keys text[], codes text[], sums bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {schema}.door_counts AS d (gateway, minute, key, code, n)
        SELECT sluice_count_door.gateway, date_trunc('minute', sluice_count_door.minute), u.key, u.code, max(u.n)
        FROM unnest(keys, codes, sums) u (key, code, n) GROUP BY 1, 2, 3, 4
        ON CONFLICT ON CONSTRAINT door_counts_pkey DO UPDATE SET n = greatest(d.n, excluded.n);
END
$$
"""
# Rows of days without a partition, for example of a clock that is wrong, lie in the default one. Those that are too old go by themselves.
# Where clocks differ, `today` is NULL and nothing goes for its age; past the room there is, the oldest go all the same.
# Emptied as a whole it is only where it alone takes a quarter of the room: else it would take that of all days after it, each time anew.
_TRIM = """
CREATE OR REPLACE FUNCTION sluice_trim_debug_logs(days integer, most bigint) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    part record;
    today date := ({now} AT TIME ZONE 'UTC')::date;
    total bigint;
    size bigint;
    gone integer := 0;
BEGIN
    IF days < 0 OR most < 0 THEN
        RAISE EXCEPTION 'days and bytes must not be negative' USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock({lock});
    SELECT coalesce(sum(pg_total_relation_size(i.inhrelid)), 0) INTO total FROM pg_inherits i
        WHERE i.inhparent = '{schema}.debug_logs'::regclass;
    DELETE FROM {schema}.door_counts d WHERE d.minute < {now} - interval '{days} days';
    DELETE FROM sluice_parts.debug_logs_default d WHERE d.call_id
        < (lpad(to_hex((extract(epoch FROM (today - days)::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
    size := pg_total_relation_size('sluice_parts.debug_logs_default');
    IF total > most AND size > most / 4 AND EXISTS (SELECT 1 FROM sluice_parts.debug_logs_default) THEN
        TRUNCATE TABLE sluice_parts.debug_logs_default;
        total := total - size;
        gone := gone + 1;
    END IF;
    FOR part IN
        SELECT c.relname AS name, to_date(right(c.relname, 8), 'YYYYMMDD') AS day, pg_total_relation_size(c.oid) AS size
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = '{schema}.debug_logs'::regclass AND c.relname ~ '^debug_logs_[0-9]{{8}}$' ORDER BY c.relname
    LOOP
        IF part.day < today - days OR (total > most AND part.day < today) THEN
            EXECUTE format('DROP TABLE sluice_parts.%I', part.name);
        ELSIF total > most AND (part.day = today OR today IS NULL) THEN
            EXECUTE format('TRUNCATE TABLE sluice_parts.%I', part.name);
        ELSE
            CONTINUE;
        END IF;
        total := total - part.size;
        gone := gone + 1;
    END LOOP;
    RETURN gone;
END
$$
"""


def functions(schema: str, now: str = NOW) -> list[str]:
    """Return the statements that make the functions, which nobody may run until they get the right. `now`: `db.migrations.agreeing`."""
    values = {"schema": schema, "now": now.format(schema=schema), "lock": PARTITIONS_LOCK, "days": DOOR_DAYS}
    made = [one.format(**values) for one in (_COUNT, _TRIM)]
    return [*made, *(f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC" for name in (COUNT, TRIM))]
