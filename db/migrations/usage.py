"""The figures of each hour, as tables and functions in the database: no login writes the tables in any other way.

An hour is that in which calls began. Its rows are made anew as a whole, so a row that came late is counted the next time, and two writers
at once make the same. What makes them also answers for the hour that is not over, so a page and the tables cannot count in two ways. They
hold names and numbers alone: a redaction leaves them as they are, and so does the drop of a day, whose hours are not made anew after it.
Must not know: connections.
"""

from typing import Final

from db.locks import USAGE_LOCK
from db.migrations.agreeing import NOW
from db.migrations.retaining import GONE

ROLL_UP: Final = "sluice_roll_up(timestamp with time zone)"
KEPT_DAYS: Final = 400
MS_RATIO: Final = 1.25
"""Each class of a judge's latency ends at so many times the one before: a p95 read from them is off by a tenth at most."""
MS_CLASSES: Final = 60
"""The last one begins at 9 minutes."""
SUMS: Final = (
    "calls", "failed", "tool_calls", "refused", "replaced", "blocks_refused", "blocks_replaced", "faults", "input_tokens", "output_tokens",
    "cached_tokens", "judge_n", "judge_failed", "judge_late", "judge_over", "judge_ms_sum",
)  # fmt: skip
"""What is summed for each hour, key, model, policy and revision."""
GROUPS: Final = ("key", "model", "policy", "revision")
TABLES = (
    f"""CREATE TABLE usage_hours (
        hour timestamptz NOT NULL, place integer NOT NULL, {", ".join(f"{name} text NOT NULL" for name in GROUPS)},
        {", ".join(f"{name} bigint NOT NULL" for name in SUMS)}, PRIMARY KEY (hour, place))""",
    "CREATE INDEX usage_hours_key_idx ON usage_hours (key, hour)",
    "CREATE INDEX usage_hours_policy_idx ON usage_hours (policy, hour)",
    """CREATE TABLE judge_hours (
        hour timestamptz NOT NULL, place integer NOT NULL, policy text NOT NULL, revision text NOT NULL,
        figure text NOT NULL CHECK (figure IN ('ms', 'probability')), threshold double precision, class integer NOT NULL, n bigint NOT NULL,
        PRIMARY KEY (hour, place))""",
    "CREATE INDEX judge_hours_policy_idx ON judge_hours (policy, hour)",
)
# A call whose beginning was lost, or that no worker began, is counted without names. Each table is restricted to the hour by itself:
# PostgreSQL reads only the days that a condition on the table leaves. The later word on a tool call is the one that counts, as in lists.
_USAGE = """
CREATE OR REPLACE FUNCTION sluice_usage(low uuid, high uuid) RETURNS TABLE (key text, model text, policy text, revision text, {columns})
LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT coalesce(c.key, ''), coalesce(c.model, ''), coalesce(c.policy, ''), coalesce(c.policy_revision, ''),
    count(*), count(*) FILTER (WHERE e.state = 'FAILED'),
    coalesce(sum(t.tool_calls), 0)::bigint, coalesce(sum(t.refused), 0)::bigint, coalesce(sum(t.replaced), 0)::bigint,
    coalesce(sum(t.blocks_refused), 0)::bigint, coalesce(sum(t.blocks_replaced), 0)::bigint, coalesce(sum(t.faults), 0)::bigint,
    coalesce(sum(e.input_tokens), 0)::bigint, coalesce(sum(e.output_tokens), 0)::bigint, coalesce(sum(e.cache_read_tokens), 0)::bigint,
    coalesce(sum(j.n), 0)::bigint, coalesce(sum(j.failed), 0)::bigint, coalesce(sum(j.late), 0)::bigint, coalesce(sum(j.over), 0)::bigint,
    coalesce(sum(j.ms), 0)::bigint
FROM (SELECT a.call_id, a.key, a.model, a.policy, a.policy_revision FROM {schema}.calls a WHERE a.call_id >= low AND a.call_id < high) c
FULL JOIN (
    SELECT a.call_id, a.state, a.input_tokens, a.output_tokens, a.cache_read_tokens
    FROM {schema}.ends a WHERE a.call_id >= low AND a.call_id < high
) e ON e.call_id = c.call_id
LEFT JOIN (
    SELECT v.call_id, count(*) FILTER (WHERE v.is_tool) AS tool_calls,
        count(*) FILTER (WHERE v.is_tool AND v.verdict = 'block') AS refused,
        count(*) FILTER (WHERE v.is_tool AND v.verdict = 'replace') AS replaced,
        count(*) FILTER (WHERE NOT v.is_tool AND v.verdict = 'block') AS blocks_refused,
        count(*) FILTER (WHERE NOT v.is_tool AND v.verdict = 'replace') AS blocks_replaced,
        count(*) FILTER (WHERE v.reason = 'fault') AS faults
    FROM (
        SELECT coalesce(o.call_id, b.call_id) AS call_id, o.call_id IS NOT NULL AS is_tool, coalesce(b.verdict, o.verdict) AS verdict,
            coalesce(b.reason, o.reason) AS reason
        FROM (
            SELECT a.call_id, a.block, a.verdict, a.reason FROM {schema}.tool_calls a WHERE a.call_id >= low AND a.call_id < high
        ) o FULL JOIN (
            SELECT a.call_id, a.block, a.verdict, a.reason FROM {schema}.blocks a WHERE a.call_id >= low AND a.call_id < high
        ) b ON b.call_id = o.call_id AND b.block = o.block
    ) v GROUP BY v.call_id
) t ON t.call_id = coalesce(c.call_id, e.call_id)
LEFT JOIN (
    SELECT a.call_id, count(*) AS n, count(*) FILTER (WHERE a.error <> '') AS failed, count(*) FILTER (WHERE a.error = 'deadline') AS late,
        count(*) FILTER (WHERE a.probability >= a.threshold) AS over, sum(a.latency_ms) AS ms
    FROM {schema}.judgements a WHERE a.call_id >= low AND a.call_id < high GROUP BY a.call_id
) j ON j.call_id = coalesce(c.call_id, e.call_id)
GROUP BY 1, 2, 3, 4
$$
"""
# Ten classes of the probability, 1.0 in the last; of the latency those of `MS_RATIO`, of answers alone: what never came has no time.
_JUDGED = """
CREATE FUNCTION sluice_judged(low uuid, high uuid)
RETURNS TABLE (policy text, revision text, figure text, threshold double precision, class integer, n bigint)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT coalesce(c.policy, ''), coalesce(c.policy_revision, ''), f.figure, f.threshold, f.class, count(*)
FROM (SELECT * FROM {schema}.judgements a WHERE a.call_id >= low AND a.call_id < high) j
LEFT JOIN (SELECT * FROM {schema}.calls a WHERE a.call_id >= low AND a.call_id < high) c ON c.call_id = j.call_id
CROSS JOIN LATERAL (VALUES
    ('ms', NULL::double precision, CASE WHEN j.error = '' THEN
        least(floor(ln(greatest(j.latency_ms, 1)) / ln({ratio})), {last})::integer END),
    ('probability', j.threshold, CASE WHEN j.probability IS NOT NULL THEN least(floor(greatest(j.probability, 0) * 10), 9)::integer END)
) f (figure, threshold, class)
WHERE f.class IS NOT NULL
GROUP BY 1, 2, 3, 4, 5
$$
"""
_ROLL_UP = """
CREATE OR REPLACE FUNCTION sluice_roll_up(given timestamptz) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    from_ms bigint := floor(extract(epoch FROM given) / 3600)::bigint * 3600000;
    its_hour timestamptz := to_timestamp(from_ms / 1000);
    low uuid := (lpad(to_hex(from_ms), 12, '0') || repeat('0', 20))::uuid;
    high uuid := (lpad(to_hex(from_ms + 3600000), 12, '0') || repeat('0', 20))::uuid;
    made bigint;
BEGIN
    PERFORM pg_advisory_xact_lock({lock});
    DELETE FROM {schema}.usage_hours u WHERE u.hour < {now} - interval '{kept} days';
    DELETE FROM {schema}.judge_hours u WHERE u.hour < {now} - interval '{kept} days';
    -- of an hour whose calls were dropped these figures are all that is left
    IF EXISTS (SELECT 1 FROM {schema}.seals s WHERE s.part = {gone} AND s.call_id > low) THEN
        RETURN 0;
    END IF;
    DELETE FROM {schema}.usage_hours u WHERE u.hour = its_hour;
    DELETE FROM {schema}.judge_hours u WHERE u.hour = its_hour;
    INSERT INTO {schema}.usage_hours SELECT its_hour, row_number() OVER (), u.* FROM {schema}.sluice_usage(low, high) u;
    GET DIAGNOSTICS made = ROW_COUNT;
    INSERT INTO {schema}.judge_hours SELECT its_hour, row_number() OVER (), u.* FROM {schema}.sluice_judged(low, high) u;
    RETURN made;
END
$$
"""
DROPS = (
    f"DROP FUNCTION {ROLL_UP}", "DROP FUNCTION sluice_judged(uuid, uuid)", "DROP FUNCTION sluice_usage(uuid, uuid)",
    "DROP TABLE judge_hours", "DROP TABLE usage_hours",
)  # fmt: skip


def functions(schema: str) -> list[str]:
    """Return the statements that make the functions. The one that writes nobody may run until they get the right."""
    given = {
        "schema": schema, "columns": ", ".join(f"{name} bigint" for name in SUMS), "ratio": MS_RATIO,
        "last": MS_CLASSES - 1,
    }  # fmt: skip
    return [*(one.format(**given) for one in (_USAGE, _JUDGED)), roll_up(schema), f"REVOKE ALL ON FUNCTION {ROLL_UP} FROM PUBLIC"]


def roll_up(schema: str, now: str = NOW) -> str:
    """Return the statement that makes the function that writes. `now`: `db.migrations.agreeing`."""
    return _ROLL_UP.format(schema=schema, now=now.format(schema=schema), lock=USAGE_LOCK, kept=KEPT_DAYS, gone=GONE)
