-- What calls cost, among the figures of each hour, and by team. `unpriced` counts calls whose model's price nobody knew, `estimated` those
-- whose tokens nobody counted.
-- Beside writers, the migration makes these columns and this index before: here they are for a new database.
ALTER TABLE calls ADD COLUMN IF NOT EXISTS team text;
ALTER TABLE ends
    ADD COLUMN IF NOT EXISTS charged_tokens int8,
    ADD COLUMN IF NOT EXISTS cost_nanousd int8,
    ADD COLUMN IF NOT EXISTS judge_nanousd int8,
    ADD COLUMN IF NOT EXISTS is_estimated bool;
CREATE INDEX IF NOT EXISTS calls_default_team_idx ON sluice_parts.calls_default (team, call_id) WHERE team IS NOT NULL;
CREATE INDEX IF NOT EXISTS calls_team_idx ON calls (team, call_id) WHERE team IS NOT NULL;
ALTER TABLE seals ALTER COLUMN made_for SET DEFAULT 3;
CREATE OR REPLACE VIEW call_log AS
SELECT c.call_id, sluice_call_at(c.call_id) AS created_at, c.at AS claimed_at, e.at AS ended_at, c.dialect, c.endpoint, c.key,
    c.session, c.model, c.upstream, c.policy, c.policy_revision, c.stream, c.gateway, coalesce(e.state, 'ACTIVE') AS state,
    e.reason, e.status, e.stop_reason, e.relayed, e.input_tokens, e.output_tokens, e.cache_read_tokens, e.cache_write_tokens,
    e.thinking_tokens, n.tool_calls, n.tool_calls_blocked, c.key_id, c.policy_set,
    EXISTS (SELECT FROM events v WHERE v.call_id = c.call_id AND v.kind = 'incomplete') AS incomplete,
    e.cost_nanousd, e.judge_nanousd, e.is_estimated
FROM calls c
LEFT JOIN ends e ON e.call_id = c.call_id
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS tool_calls,
        (count(*) FILTER (WHERE coalesce(b.verdict, t.verdict) = 'block'))::integer AS tool_calls_blocked
    FROM tool_calls t LEFT JOIN blocks b ON b.call_id = t.call_id AND b.block = t.block WHERE t.call_id = c.call_id
) n;

ALTER TABLE usage_hours
    ADD COLUMN team text NOT NULL DEFAULT '',
    ADD COLUMN cost_nanousd bigint NOT NULL DEFAULT 0,
    ADD COLUMN judge_nanousd bigint NOT NULL DEFAULT 0,
    ADD COLUMN unpriced bigint NOT NULL DEFAULT 0,
    ADD COLUMN estimated bigint NOT NULL DEFAULT 0;
DROP FUNCTION sluice_usage(uuid, uuid);
CREATE FUNCTION sluice_usage(low uuid, high uuid) RETURNS TABLE (key text, model text, policy text, revision text, calls bigint, failed bigint, tool_calls bigint, refused bigint, replaced bigint, blocks_refused bigint, blocks_replaced bigint, faults bigint, input_tokens bigint, output_tokens bigint, cached_tokens bigint, judge_n bigint, judge_failed bigint, judge_late bigint, judge_over bigint, judge_ms_sum bigint, team text, cost_nanousd bigint, judge_nanousd bigint, unpriced bigint,
    estimated bigint)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT coalesce(c.key, ''), coalesce(c.model, ''), coalesce(c.policy, ''), coalesce(c.policy_revision, ''),
    count(*), count(*) FILTER (WHERE e.state = 'FAILED'),
    coalesce(sum(t.tool_calls), 0)::bigint, coalesce(sum(t.refused), 0)::bigint, coalesce(sum(t.replaced), 0)::bigint,
    coalesce(sum(t.blocks_refused), 0)::bigint, coalesce(sum(t.blocks_replaced), 0)::bigint, coalesce(sum(t.faults), 0)::bigint,
    coalesce(sum(e.input_tokens), 0)::bigint, coalesce(sum(e.output_tokens), 0)::bigint, coalesce(sum(e.cache_read_tokens), 0)::bigint,
    coalesce(sum(j.n), 0)::bigint, coalesce(sum(j.failed), 0)::bigint, coalesce(sum(j.late), 0)::bigint, coalesce(sum(j.over), 0)::bigint,
    coalesce(sum(j.ms), 0)::bigint, coalesce(c.team, ''), coalesce(sum(e.cost_nanousd), 0)::bigint, coalesce(sum(e.judge_nanousd), 0)::bigint,
    count(*) FILTER (WHERE e.charged_tokens > 0 AND e.cost_nanousd IS NULL), count(*) FILTER (WHERE e.is_estimated)
FROM (SELECT a.call_id, a.key, a.model, a.policy, a.policy_revision, a.team FROM public.calls a WHERE a.call_id >= low AND a.call_id < high) c
FULL JOIN (
    SELECT a.call_id, a.state, a.input_tokens, a.output_tokens, a.cache_read_tokens, a.charged_tokens, a.cost_nanousd,
        a.judge_nanousd, a.is_estimated
    FROM public.ends a WHERE a.call_id >= low AND a.call_id < high
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
            SELECT a.call_id, a.block, a.verdict, a.reason FROM public.tool_calls a WHERE a.call_id >= low AND a.call_id < high
        ) o FULL JOIN (
            SELECT a.call_id, a.block, a.verdict, a.reason FROM public.blocks a WHERE a.call_id >= low AND a.call_id < high
        ) b ON b.call_id = o.call_id AND b.block = o.block
    ) v GROUP BY v.call_id
) t ON t.call_id = coalesce(c.call_id, e.call_id)
LEFT JOIN (
    SELECT a.call_id, count(*) AS n, count(*) FILTER (WHERE a.error <> '') AS failed, count(*) FILTER (WHERE a.error = 'deadline') AS late,
        count(*) FILTER (WHERE a.probability >= a.threshold) AS over, sum(a.latency_ms) AS ms
    FROM public.judgements a WHERE a.call_id >= low AND a.call_id < high GROUP BY a.call_id
) j ON j.call_id = coalesce(c.call_id, e.call_id)
GROUP BY 1, 2, 3, 4, 21
$$;
