"""What the pages write, as statements: logins, who read what, labels of decisions, and switches of debug logs. All lie beside the record.

No row of the record names them, and nothing of them is sealed. Must not know: connections.
"""

from typing import Final

from db.locks import READS_LOCK

READS_ENSURE: Final = "sluice_ensure_reads(date, integer)"
SESSIONS_SWEEP: Final = "sluice_sweep_page_sessions()"
MAX_NOTE_CHARS = 10_000
"""Of a note as its column holds it, where each character may be five (`db.text`)."""
TABLES = (
    """CREATE TABLE page_sessions (
        token_sha256 bytea NOT NULL PRIMARY KEY, key_sha256 bytea NOT NULL, created_at timestamptz NOT NULL DEFAULT now(),
        seen_at timestamptz NOT NULL DEFAULT now(), until timestamptz NOT NULL, agent text NOT NULL)""",
    """CREATE TABLE reads (
        at timestamptz NOT NULL DEFAULT now(), id uuid NOT NULL DEFAULT gen_random_uuid(), key text NOT NULL, key_id text NOT NULL,
        session text NOT NULL, path text NOT NULL, filters text NOT NULL, call_ids uuid[] NOT NULL, rows integer NOT NULL,
        PRIMARY KEY (at, id)) PARTITION BY RANGE (at)""",
    "CREATE TABLE sluice_parts.reads_default PARTITION OF reads DEFAULT",
    # who saw this call: asked by admins, and by what redacts a call
    "CREATE INDEX reads_call_ids_idx ON reads USING gin (call_ids)",
    f"""CREATE TABLE labels (
        call_id uuid NOT NULL, block integer NOT NULL, at timestamptz NOT NULL DEFAULT now(), key text NOT NULL, key_id text NOT NULL,
        label text NOT NULL CHECK (label IN ('right', 'wrong', 'unsure')), note text NOT NULL CHECK (length(note) <= {MAX_NOTE_CHARS}),
        PRIMARY KEY (call_id, block, at))""",
    """CREATE TABLE debug_switches (
        id uuid NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY, key text NOT NULL, loggers text[] NOT NULL, content boolean NOT NULL,
        by text NOT NULL, at timestamptz NOT NULL DEFAULT now(), until timestamptz NOT NULL)""",
)
# A month whose rows already lie in the default partition stays there: moving them would lock the table under traffic.
_ENSURE_READS = """
CREATE FUNCTION sluice_ensure_reads(first date, months integer) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' SET timezone = 'UTC' AS $$
DECLARE
    made integer := 0;
    low timestamptz;
    high timestamptz;
    part text;
    taken boolean;
BEGIN
    IF months NOT BETWEEN 0 AND 24 THEN
        RAISE EXCEPTION 'months must be from 0 to 24' USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock({lock});
    FOR step IN 0 .. months - 1 LOOP
        low := date_trunc('month', first::timestamptz) + make_interval(months => step);
        high := low + interval '1 month';
        part := 'reads_' || to_char(low, 'YYYYMM');
        CONTINUE WHEN to_regclass(format('sluice_parts.%I', part)) IS NOT NULL;
        LOCK TABLE ONLY {schema}.reads IN ACCESS EXCLUSIVE MODE;
        SELECT EXISTS (SELECT 1 FROM sluice_parts.reads_default r WHERE r.at >= low AND r.at < high) INTO taken;
        CONTINUE WHEN taken;
        EXECUTE format('CREATE TABLE sluice_parts.%I PARTITION OF {schema}.reads FOR VALUES FROM (%L) TO (%L)', part, low, high);
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$
"""
_SWEEP_SESSIONS = """
CREATE FUNCTION sluice_sweep_page_sessions() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (DELETE FROM {schema}.page_sessions s WHERE s.until < now() - interval '1 day' RETURNING 1) SELECT count(*) FROM gone
$$
"""


def functions(schema: str) -> list[str]:
    """Return the statements that make the functions, which nobody may run until they get the right."""
    made = [one.format(schema=schema, lock=READS_LOCK) for one in (_ENSURE_READS, _SWEEP_SESSIONS)]
    return [*made, *(f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC" for name in (READS_ENSURE, SESSIONS_SWEEP))]
