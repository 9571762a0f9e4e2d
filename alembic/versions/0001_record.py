"""The record: tables of calls, partitioned by call id, dead letters, keys, views and the partition function."""

from alembic import op

from db.columns import TABLES
from db.migrations.sealed import first_columns

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

PAYLOADS = {
    "request_bodies": ("body",),
    "chunks": ("raw",),
    "releases": ("payload",),
    "tool_calls": ("arguments", "released_arguments"),
    "judgements": ("prompt", "reply"),
}
PLAIN_TABLES = (
    """CREATE TABLE dead_letters (
        sha256 bytea NOT NULL, call_id text NOT NULL, kind text NOT NULL, raw bytea NOT NULL, reason text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (sha256))""",
    """CREATE TABLE api_keys (
        sha256 bytea NOT NULL, name text NOT NULL, roles text[] NOT NULL, policies text[] NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(), revoked_at timestamptz, PRIMARY KEY (sha256))""",
    "CREATE UNIQUE INDEX api_keys_name_idx ON api_keys (name) WHERE revoked_at IS NULL",
    "CREATE INDEX calls_session_idx ON calls (session, call_id)",
    "CREATE INDEX tool_calls_name_idx ON tool_calls (name, call_id)",
    "CREATE INDEX tool_calls_search_idx ON tool_calls USING gin (search)",
)
# The first 48 bits of a UUIDv7 are Unix milliseconds. PostgreSQL 15 has no function for them.
CALL_AT = """
CREATE FUNCTION sluice_call_at(call_id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT to_timestamp(('x' || substr(replace(call_id::text, '-', ''), 1, 12))::bit(48)::bigint / 1000.0)
$$
"""
# Names are qualified and search_path is fixed, so that a caller's temporary table cannot stand in for one of ours.
# A day whose rows already lie in the default partition stays there: moving them would lock the table under traffic.
ENSURE_PARTITIONS = """
CREATE OR REPLACE FUNCTION sluice_ensure_partitions(first date, days integer) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    made integer := 0;
    parent text;
    day date;
    part text;
    low uuid;
    high uuid;
    taken boolean;
BEGIN
    IF days NOT BETWEEN 0 AND 400 THEN
        RAISE EXCEPTION 'days must be from 0 to 400' USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock({lock});
    FOREACH parent IN ARRAY ARRAY[{tables}] LOOP
        FOR step IN 0 .. days - 1 LOOP
            day := first + step;
            part := parent || '_' || to_char(day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass(format('sluice_parts.%I', part)) IS NOT NULL;
            low := (lpad(to_hex((extract(epoch FROM day::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
            high := (lpad(to_hex((extract(epoch FROM (day + 1)::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
            EXECUTE format('SELECT EXISTS (SELECT 1 FROM sluice_parts.%I WHERE call_id >= $1 AND call_id < $2)', parent || '_default')
                INTO taken USING low, high;
            CONTINUE WHEN taken;
            EXECUTE format('CREATE TABLE sluice_parts.%I PARTITION OF {schema}.%I FOR VALUES FROM (%L) TO (%L)', part, parent, low, high);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$
"""
# A block row on a tool call's own block is a later word on it (its commit came too late, or the call ended first), and the last one.
VIEWS = (
    """
CREATE VIEW call_log AS
SELECT c.call_id, sluice_call_at(c.call_id) AS created_at, c.at AS claimed_at, e.at AS ended_at, c.dialect, c.endpoint, c.key,
    c.session, c.model, c.upstream, c.policy, c.policy_revision, c.stream, c.gateway, coalesce(e.state, 'ACTIVE') AS state,
    e.reason, e.status, e.stop_reason, e.relayed, e.input_tokens, e.output_tokens, e.cache_read_tokens, e.cache_write_tokens,
    e.thinking_tokens, n.tool_calls, n.tool_calls_blocked
FROM calls c
LEFT JOIN ends e ON e.call_id = c.call_id
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS tool_calls,
        (count(*) FILTER (WHERE coalesce(b.verdict, t.verdict) <> 'allow'))::integer AS tool_calls_blocked
    FROM tool_calls t LEFT JOIN blocks b ON b.call_id = t.call_id AND b.block = t.block WHERE t.call_id = c.call_id
) n
""",
    """
CREATE VIEW tool_call_log AS
SELECT t.call_id, t.block, t.tool_call_id, t.index, t.choice, t.name, t.arguments,
    CASE WHEN b.call_id IS NULL THEN t.released_arguments END AS released_arguments, t.executor, t.form, t.schema_valid,
    coalesce(b.verdict, t.verdict) AS verdict, coalesce(b.reason, t.reason) AS reason, coalesce(b.policy, t.policy) AS policy,
    c.policy AS call_policy, c.policy_revision, c.session, c.key, c.model, c.upstream,
    sluice_call_at(t.call_id) AS created_at, t.at AS decided_at, r.at AS released_at, e.at AS ended_at, t.search,
    j.model AS judge_model, j.policy AS judge_policy, j.probability AS judge_probability, j.threshold AS judge_threshold,
    j.explanation AS judge_explanation, j.prompt AS judge_prompt, j.reply AS judge_reply, j.latency_ms AS judge_latency_ms,
    j.attempts AS judge_attempts, j.error AS judge_error
FROM tool_calls t
LEFT JOIN calls c ON c.call_id = t.call_id
LEFT JOIN ends e ON e.call_id = t.call_id
LEFT JOIN blocks b ON b.call_id = t.call_id AND b.block = t.block
LEFT JOIN tool_releases r ON r.call_id = t.call_id AND r.block = t.block
LEFT JOIN LATERAL (
    SELECT * FROM judgements g WHERE g.call_id = t.call_id AND g.block = t.block ORDER BY g.step DESC LIMIT 1
) j ON true
""",
    """
CREATE VIEW chunk_log AS
SELECT k.call_id, k.seq, k.at, k.raw, k.block,
    CASE WHEN k.verdict <> 'hold' THEN k.verdict
         ELSE coalesce(b.verdict, t.verdict, CASE WHEN e.call_id IS NULL THEN 'hold' ELSE 'withheld' END) END AS verdict
FROM chunks k
LEFT JOIN tool_calls t ON t.call_id = k.call_id AND t.block = k.block
LEFT JOIN blocks b ON b.call_id = k.call_id AND b.block = k.block
LEFT JOIN ends e ON e.call_id = k.call_id
""",
    """
CREATE VIEW judged_tool_call_log AS
SELECT 'tool_call' AS kind, t.call_id, t.block, t.tool_call_id, t.index, t.choice, t.name, t.arguments,
    CASE WHEN b.call_id IS NULL THEN t.released_arguments END AS released_arguments, t.executor, t.form, t.schema_valid,
    coalesce(b.verdict, t.verdict) AS verdict, coalesce(b.reason, t.reason) AS reason, coalesce(b.policy, t.policy) AS policy,
    c.policy AS call_policy, c.policy_revision, c.session, c.key, c.model, c.upstream, sluice_call_at(t.call_id) AS created_at,
    t.at AS decided_at, r.at AS released_at, e.at AS ended_at, t.search, j.model AS judge_model, j.policy AS judge_policy,
    j.probability AS judge_probability, j.threshold AS judge_threshold, j.explanation AS judge_explanation, j.prompt AS judge_prompt,
    j.reply AS judge_reply, j.latency_ms AS judge_latency_ms, j.attempts AS judge_attempts, j.error AS judge_error
FROM tool_calls t
LEFT JOIN blocks b ON b.call_id = t.call_id AND b.block = t.block
JOIN LATERAL (
    SELECT * FROM judgements g WHERE g.call_id = t.call_id AND g.block = t.block AND g.policy = coalesce(b.policy, t.policy)
    ORDER BY g.step DESC LIMIT 1
) j ON true
LEFT JOIN calls c ON c.call_id = t.call_id
LEFT JOIN ends e ON e.call_id = t.call_id
LEFT JOIN tool_releases r ON r.call_id = t.call_id AND r.block = t.block
WHERE coalesce(b.verdict, t.verdict) <> 'allow'
""",
    """
CREATE VIEW judged_block_log AS
SELECT b.kind, b.call_id, b.block, NULL::text AS tool_call_id, NULL::integer AS index, NULL::integer AS choice, NULL::text AS name,
    NULL::bytea AS arguments, NULL::bytea AS released_arguments, NULL::text AS executor, NULL::text AS form, NULL::boolean AS schema_valid,
    b.verdict, b.reason, b.policy, c.policy AS call_policy, c.policy_revision, c.session, c.key, c.model, c.upstream,
    sluice_call_at(b.call_id) AS created_at, b.at AS decided_at, NULL::timestamptz AS released_at, e.at AS ended_at,
    to_tsvector('simple', b.reason) AS search, j.model AS judge_model, j.policy AS judge_policy, j.probability AS judge_probability,
    j.threshold AS judge_threshold, j.explanation AS judge_explanation, j.prompt AS judge_prompt, j.reply AS judge_reply,
    j.latency_ms AS judge_latency_ms, j.attempts AS judge_attempts, j.error AS judge_error
FROM blocks b
JOIN LATERAL (
    SELECT * FROM judgements g WHERE g.call_id = b.call_id AND g.block = b.block AND g.policy = b.policy ORDER BY g.step DESC LIMIT 1
) j ON true
LEFT JOIN calls c ON c.call_id = b.call_id
LEFT JOIN ends e ON e.call_id = b.call_id
WHERE b.verdict <> 'allow'
""",
    "CREATE VIEW judge_block_log AS SELECT * FROM judged_tool_call_log UNION ALL SELECT * FROM judged_block_log",
)
PARTITIONS_LOCK = 7_310_581_202
"""Advisory lock of the partition function."""


def upgrade() -> None:
    """Create everything."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    lz4 = op.get_bind().exec_driver_sql("SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'").scalar()
    op.execute("CREATE SCHEMA sluice_parts")
    for name, columns in first_columns().items():
        op.execute(f"CREATE TABLE {name} (call_id uuid NOT NULL, {columns}) PARTITION BY RANGE (call_id)")
        for payload in PAYLOADS.get(name, ()) if lz4 else ():
            op.execute(f"ALTER TABLE {name} ALTER COLUMN {payload} SET COMPRESSION lz4")
        op.execute(f"CREATE TABLE sluice_parts.{name}_default PARTITION OF {name} DEFAULT")
    for statement in PLAIN_TABLES:
        op.execute(statement)
    tables = ", ".join(f"'{name}'" for name in first_columns())
    op.execute(CALL_AT)
    op.execute(ENSURE_PARTITIONS.format(lock=PARTITIONS_LOCK, tables=tables, schema=schema))
    op.execute("REVOKE ALL ON FUNCTION sluice_ensure_partitions(date, integer) FROM PUBLIC")
    for view in VIEWS:
        op.execute(view)


def downgrade() -> None:
    """Drop everything, with all rows."""
    for view in ("judge_block_log", "judged_block_log", "judged_tool_call_log", "chunk_log", "tool_call_log", "call_log"):
        op.execute(f"DROP VIEW {view}")
    op.execute("DROP FUNCTION sluice_ensure_partitions(date, integer)")
    op.execute("DROP FUNCTION sluice_call_at(uuid)")
    for name in (*first_columns(), "dead_letters", "api_keys"):
        op.execute(f"DROP TABLE {name}")
    # of later migrations, which leave them where there are seals over them
    for table in TABLES:
        op.execute(f"DROP TABLE IF EXISTS {table.name}")
    # of 0010, which leaves it
    op.execute("DROP TABLE IF EXISTS identity")
    op.execute("DROP SCHEMA sluice_parts")
