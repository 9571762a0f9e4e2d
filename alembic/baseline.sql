-- Migrations: 2c76e71719b07c9e8a528e1f879248666a8eeb98bfb54acb4ec69b6796d5801c
-- Written by `python -m scripts.baseline`.
CREATE ROLE sluice_writer;
CREATE ROLE sluice_reader;
CREATE ROLE sluice_reviewer;
CREATE ROLE sluice_noter;
CREATE ROLE sluice_page_server;
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', true);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;


CREATE SCHEMA sluice_parts;



CREATE FUNCTION public.sluice_agreed_now() RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT CASE WHEN count(*) = 3 AND max(clock.at) - min(clock.at) <= interval '3600 seconds' THEN min(clock.at) END
    FROM (
        SELECT now() AS at
        UNION ALL SELECT to_timestamp(shown::float8) FROM unnest(string_to_array(current_setting('sluice.clocks', true), ',')) shown
    ) clock
$$;



CREATE FUNCTION public.sluice_call_at(call_id uuid) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    SELECT to_timestamp(('x' || substr(replace(call_id::text, '-', ''), 1, 12))::bit(48)::bigint / 1000.0)
$$;



CREATE FUNCTION public.sluice_count_door(gateway text, minute timestamp with time zone, keys text[], codes text[], sums bigint[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO public.door_counts AS d (gateway, minute, key, code, n)
        SELECT sluice_count_door.gateway, date_trunc('minute', sluice_count_door.minute), u.key, u.code, max(u.n)
        FROM unnest(keys, codes, sums) u (key, code, n) GROUP BY 1, 2, 3, 4
        ON CONFLICT ON CONSTRAINT door_counts_pkey DO UPDATE SET n = greatest(d.n, excluded.n);
END
$$;



CREATE FUNCTION public.sluice_drop_before(day date, why text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $_$
DECLARE
    bound uuid := (lpad(to_hex((extract(epoch FROM day::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
    sealed text[] := ARRAY['calls', 'request_bodies', 'chunks', 'releases', 'blocks', 'tool_calls', 'tool_releases', 'judgements', 'ends', 'events', 'scores', 'decisions', 'attempts'];
    totals bigint[];
    others bigint[];
    said bigint[];
    gone uuid;
    after bigint;
    seen bigint;
    differing bigint := 0;
    -- by the owner alone, who could take the tables away too: no writer may hide by it what it did
    is_let_go boolean := current_setting('sluice.let_go', true) = 'yes' AND pg_has_role(session_user, current_user, 'MEMBER');
    n bigint;
    total bigint;
    dropped bigint;
    tries integer := 0;
    parent text;
    part text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'rows are taken away at the level READ COMMITTED alone' USING ERRCODE = '22023';
    END IF;
    SELECT coalesce(max(position), -1) INTO seen FROM public.seals;
    SELECT coalesce((SELECT s.call_id FROM public.seals s WHERE s.part = -1 ORDER BY s.call_id DESC LIMIT 1), '00000000-0000-0000-0000-000000000000'), coalesce((SELECT s.position FROM public.seals s WHERE s.part = -1 ORDER BY s.call_id DESC LIMIT 1), -1) INTO gone, after;
    -- the leaf of the highest bound speaks for all rows before it, so each is the newest too
    IF (day <= (public.sluice_agreed_now() AT TIME ZONE 'UTC')::date) IS NOT TRUE OR day < (public.sluice_call_at(gone) AT TIME ZONE 'UTC')::date THEN
        RAISE EXCEPTION 'the day is not over, or rows of a later day went before' USING ERRCODE = '22023';
    END IF;

    
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(1), 4, '0') ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[1] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id >= gone AND s.call_id < bound AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[1] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id < least(gone, bound) AND s.position > after AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM public.calls t WHERE t.call_id < bound GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0 END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id) INTO n, total;
    differing := differing + n;
    totals[1] := total;
    
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(2), 4, '0') ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[2] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id >= gone AND s.call_id < bound AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[2] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id < least(gone, bound) AND s.position > after AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM public.request_bodies t WHERE t.call_id < bound GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0 END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id) INTO n, total;
    differing := differing + n;
    totals[2] := total;
    
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(3), 4, '0') ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[3] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id >= gone AND s.call_id < bound AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[3] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id < least(gone, bound) AND s.position > after AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM public.chunks t WHERE t.call_id < bound GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0 END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id) INTO n, total;
    differing := differing + n;
    totals[3] := total;
    
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(4), 4, '0') ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[4] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id >= gone AND s.call_id < bound AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[4] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id < least(gone, bound) AND s.position > after AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM public.releases t WHERE t.call_id < bound GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0 END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id) INTO n, total;
    differing := differing + n;
    totals[4] := total;
    
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(5), 4, '0') ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[5] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id >= gone AND s.call_id < bound AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[5] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id < least(gone, bound) AND s.position > after AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM public.blocks t WHERE t.call_id < bound GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0 END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id) INTO n, total;
    differing := differing + n;
    totals[5] := total;
    
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(6), 4, '0') ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[6] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id >= gone AND s.call_id < bound AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[6] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id < least(gone, bound) AND s.position > after AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM public.tool_calls t WHERE t.call_id < bound GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0 END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id) INTO n, total;
    differing := differing + n;
    totals[6] := total;
    
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(7), 4, '0') ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[7] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id >= gone AND s.call_id < bound AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[7] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id < least(gone, bound) AND s.position > after AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM public.tool_releases t WHERE t.call_id < bound GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0 END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id) INTO n, total;
    differing := differing + n;
    totals[7] := total;
    
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(8), 4, '0') ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[8] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id >= gone AND s.call_id < bound AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[8] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id < least(gone, bound) AND s.position > after AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM public.judgements t WHERE t.call_id < bound GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0 END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id) INTO n, total;
    differing := differing + n;
    totals[8] := total;
    
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(9), 4, '0') ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[9] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id >= gone AND s.call_id < bound AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[9] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id < least(gone, bound) AND s.position > after AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM public.ends t WHERE t.call_id < bound GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0 END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id) INTO n, total;
    differing := differing + n;
    totals[9] := total;
    
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(10), 4, '0') ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[10] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id >= gone AND s.call_id < bound AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[10] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id < least(gone, bound) AND s.position > after AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM public.events t WHERE t.call_id < bound GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0 END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id) INTO n, total;
    differing := differing + n;
    totals[10] := total;
    
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(11), 4, '0') ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[11] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id >= gone AND s.call_id < bound AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[11] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id < least(gone, bound) AND s.position > after AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM public.scores t WHERE t.call_id < bound GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0 END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id) INTO n, total;
    differing := differing + n;
    totals[11] := total;
    
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(12), 4, '0') ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[12] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id >= gone AND s.call_id < bound AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[12] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id < least(gone, bound) AND s.position > after AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM public.decisions t WHERE t.call_id < bound GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0 END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id) INTO n, total;
    differing := differing + n;
    totals[12] := total;
    
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(13), 4, '0') ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[13] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id >= gone AND s.call_id < bound AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[13] AS rows, true AS is_sealed FROM public.seals s
    WHERE s.call_id < least(gone, bound) AND s.position > after AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM public.attempts t WHERE t.call_id < bound GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0 END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id) INTO n, total;
    differing := differing + n;
    totals[13] := total;
    is_let_go := coalesce(is_let_go, false);

    LOOP
        tries := tries + 1;
        BEGIN
            PERFORM set_config('lock_timeout', '5s', true);
            PERFORM pg_advisory_xact_lock(7310581207);
            PERFORM pg_advisory_xact_lock(7310581203);
            IF EXISTS (
                SELECT 1 FROM (SELECT call_id FROM public.calls WHERE call_id < bound UNION ALL
                    SELECT call_id FROM public.ends WHERE call_id < bound) c
                WHERE NOT EXISTS (SELECT 1 FROM public.seals s WHERE s.call_id = c.call_id)
            ) THEN
                RETURN -1;
            END IF;
            IF EXISTS (
                SELECT 1 FROM public.seals s WHERE s.call_id < bound AND s.part >= 0
                    AND s.position >= coalesce((SELECT max(size) FROM public.checkpoints), 0)
            ) THEN
                RETURN -2;
            END IF;
            IF EXISTS (
                SELECT 1 FROM public.seals s WHERE s.position > seen AND (s.part = -1 OR s.call_id < bound AND s.part >= 0)
            ) THEN
                RETURN -3;
            END IF;
            IF differing > 0 AND NOT is_let_go THEN
                RETURN -4;
            END IF;
            SELECT count(*) INTO dropped FROM public.calls WHERE call_id < bound;
            PERFORM pg_advisory_xact_lock(7310581202);
            PERFORM set_config('lock_timeout', '200ms', true);
            FOR spot IN 1 .. array_length(sealed, 1) LOOP
                FOR part IN
                    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                    WHERE i.inhparent = ('public.' || quote_ident(sealed[spot]))::regclass
                        AND c.relname ~ ('^' || sealed[spot] || '_[0-9]{8}$')
                        AND to_date(right(c.relname, 8), 'YYYYMMDD') < day ORDER BY c.relname
                LOOP
                    EXECUTE format('LOCK TABLE sluice_parts.%I IN SHARE ROW EXCLUSIVE MODE', part);
                END LOOP;
                EXECUTE format('SELECT count(*) FROM public.%I WHERE call_id < $1', sealed[spot]) INTO n USING bound;
                IF n <> totals[spot] THEN
                    RETURN -4;
                END IF;
                EXECUTE format('SELECT count(*) FROM sluice_parts.%I WHERE call_id < $1', sealed[spot] || '_default') INTO n USING bound;
                others[spot] := n;
            END LOOP;
            FOREACH parent IN ARRAY ARRAY['calls', 'request_bodies', 'chunks', 'releases', 'blocks', 'tool_calls', 'tool_releases', 'judgements', 'ends', 'events', 'scores', 'decisions', 'attempts', 'seal_rows', 'redactions', 'histories', 'debug_logs'] LOOP
                EXECUTE format('DELETE FROM sluice_parts.%I WHERE call_id < $1', parent || '_default') USING bound;
                GET DIAGNOSTICS n = ROW_COUNT;
                IF n <> others[array_position(sealed, parent)] THEN
                    RAISE EXCEPTION 'rows came meanwhile' USING ERRCODE = 'lock_not_available';
                END IF;
            END LOOP;
            DELETE FROM public.audit_reviews WHERE call_id < bound;
            DELETE FROM public.audits WHERE call_id < bound;
            DELETE FROM public.labels WHERE call_id < bound;
            DELETE FROM public.dead_letters WHERE "left"(call_id, 36) COLLATE "C" < bound::text
                AND "left"(call_id, 36) ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$';
            DELETE FROM public.debug_switches WHERE until < day::timestamp AT TIME ZONE 'UTC';
            DELETE FROM public.kept_digests WHERE call_id < bound;
            FOREACH parent IN ARRAY ARRAY['calls', 'request_bodies', 'chunks', 'releases', 'blocks', 'tool_calls', 'tool_releases', 'judgements', 'ends', 'events', 'scores', 'decisions', 'attempts', 'seal_rows', 'redactions', 'histories', 'debug_logs'] LOOP
                FOR part IN
                    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                    WHERE i.inhparent = ('public.' || quote_ident(parent))::regclass AND c.relname ~ ('^' || parent || '_[0-9]{8}$')
                        AND to_date(right(c.relname, 8), 'YYYYMMDD') < day
                LOOP
                    EXECUTE format('DROP TABLE sluice_parts.%I', part);
                END LOOP;
            END LOOP;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF tries >= 10 THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.3);
        END;
    END LOOP;
    -- what came late goes by the same bound, which counts in its last digits
    IF gone >= bound THEN
        bound := (left(gone::text, 32) || lpad(to_hex(('x' || right(gone::text, 4))::bit(16)::integer + 1), 4, '0'))::uuid;
    END IF;
    said := ARRAY[dropped];
    IF differing > 0 THEN
        said := said || differing;
    END IF;
    INSERT INTO public.seals (position, call_id, part, at, counts, sha256, note)
        SELECT coalesce(max(position) + 1, 0), bound, -1, now(), said, ''::bytea, why FROM public.seals;
    RETURN dropped;
END
$_$;



CREATE FUNCTION public.sluice_ensure_partitions(first date, days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '500ms'
    AS $_$
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
    PERFORM pg_advisory_xact_lock(7310581202);
    FOREACH parent IN ARRAY ARRAY['calls', 'request_bodies', 'chunks', 'releases', 'blocks', 'tool_calls', 'tool_releases', 'judgements', 'ends', 'events', 'scores', 'decisions', 'attempts', 'seal_rows', 'redactions', 'histories', 'debug_logs'] LOOP
        FOR step IN 0 .. days - 1 LOOP
            day := first + step;
            part := parent || '_' || to_char(day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass(format('sluice_parts.%I', part)) IS NOT NULL;
            low := (lpad(to_hex((extract(epoch FROM day::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
            high := (lpad(to_hex((extract(epoch FROM (day + 1)::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
            EXECUTE format('SELECT EXISTS (SELECT 1 FROM sluice_parts.%I WHERE call_id >= $1 AND call_id < $2)', parent || '_default')
                INTO taken USING low, high;
            CONTINUE WHEN taken;
            EXECUTE format('CREATE TABLE sluice_parts.%I PARTITION OF public.%I FOR VALUES FROM (%L) TO (%L)', part, parent, low, high);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$_$;



CREATE FUNCTION public.sluice_ensure_partitions(first date, days integer, parent text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '500ms'
    AS $_$
DECLARE
    made integer := 0;
    day date;
    part text;
    low uuid;
    high uuid;
    taken boolean;
BEGIN
    IF days NOT BETWEEN 0 AND 400 OR parent <> ALL (ARRAY['calls', 'request_bodies', 'chunks', 'releases', 'blocks', 'tool_calls', 'tool_releases', 'judgements', 'ends', 'events', 'scores', 'decisions', 'attempts', 'seal_rows', 'redactions', 'histories', 'debug_logs']) THEN
        RAISE EXCEPTION 'days must be from 0 to 400, of a table of calls' USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock(7310581202);
    FOR step IN 0 .. days - 1 LOOP
        day := first + step;
        part := parent || '_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(format('sluice_parts.%I', part)) IS NOT NULL;
        EXECUTE format('LOCK TABLE ONLY public.%I IN ACCESS EXCLUSIVE MODE', parent);
        low := (lpad(to_hex((extract(epoch FROM day::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
        high := (lpad(to_hex((extract(epoch FROM (day + 1)::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM sluice_parts.%I WHERE call_id >= $1 AND call_id < $2)', parent || '_default')
            INTO taken USING low, high;
        CONTINUE WHEN taken;
        EXECUTE format('CREATE TABLE sluice_parts.%I PARTITION OF public.%I FOR VALUES FROM (%L) TO (%L)', part, parent, low, high);
        made := made + 1;
    END LOOP;
    RETURN made;
END
$_$;



CREATE FUNCTION public.sluice_ensure_reads(first date, months integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '500ms'
    SET "TimeZone" TO 'UTC'
    AS $$
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
    PERFORM pg_advisory_xact_lock(7310581206);
    FOR step IN 0 .. months - 1 LOOP
        low := date_trunc('month', first::timestamptz) + make_interval(months => step);
        high := low + interval '1 month';
        part := 'reads_' || to_char(low, 'YYYYMM');
        CONTINUE WHEN to_regclass(format('sluice_parts.%I', part)) IS NOT NULL;
        LOCK TABLE ONLY public.reads IN ACCESS EXCLUSIVE MODE;
        SELECT EXISTS (SELECT 1 FROM sluice_parts.reads_default r WHERE r.at >= low AND r.at < high) INTO taken;
        CONTINUE WHEN taken;
        EXECUTE format('CREATE TABLE sluice_parts.%I PARTITION OF public.reads FOR VALUES FROM (%L) TO (%L)', part, low, high);
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;



CREATE FUNCTION public.sluice_forget(parent text, until date) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '5s'
    SET "TimeZone" TO 'UTC'
    AS $_$
DECLARE
    bound uuid := (lpad(to_hex((extract(epoch FROM until::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
    gone bigint;
    n bigint;
    tries integer := 0;
    parts text[];
    part text;
BEGIN
    IF parent <> ALL (ARRAY['histories', 'reads']) OR (until <= (public.sluice_agreed_now() AT TIME ZONE 'UTC')::date) IS NOT TRUE OR until < date '1970-01-01' THEN
        RAISE EXCEPTION 'no such table, or a day that is not over' USING ERRCODE = '22023';
    END IF;

    LOOP
        tries := tries + 1;
        BEGIN
            PERFORM set_config('lock_timeout', '5s', true);
            PERFORM pg_advisory_xact_lock(7310581202);
            parts := ARRAY(
                SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = to_regclass('public.' || quote_ident(parent)) AND CASE
                    WHEN c.relname ~ ('^' || parent || '_[0-9]{8}$') THEN to_date(right(c.relname, 8), 'YYYYMMDD') < until
                    WHEN c.relname ~ ('^' || parent || '_[0-9]{6}$')
                        THEN to_date(right(c.relname, 6), 'YYYYMM') + interval '1 month' <= until
                    ELSE false END
            );
            gone := 0;
            FOREACH part IN ARRAY parts LOOP
                EXECUTE format('SELECT count(*) FROM sluice_parts.%I', part) INTO n;
                gone := gone + n;
            END LOOP;

            IF parent = 'histories' THEN
                DELETE FROM sluice_parts.histories_default d WHERE d.call_id < bound;
                GET DIAGNOSTICS n = ROW_COUNT;
                gone := gone + n;
            END IF;
            IF parent = 'reads' THEN
                DELETE FROM sluice_parts.reads_default d WHERE d.at < until;
                GET DIAGNOSTICS n = ROW_COUNT;
                gone := gone + n;
            END IF;
            PERFORM set_config('lock_timeout', '200ms', true);
            FOREACH part IN ARRAY parts LOOP
                EXECUTE format('DROP TABLE sluice_parts.%I', part);
            END LOOP;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF tries >= 10 THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.3);
        END;
    END LOOP;
    RETURN gone;
END
$_$;



CREATE FUNCTION public.sluice_hold_redis(known bigint, mine text) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    UPDATE public.identity SET redis_number = greatest(redis_number, coalesce(known, 0)) + (mine <> redis_run_id)::int,
        redis_run_id = mine, redis_seen_at = now()
    WHERE mine <> '' AND CASE WHEN mine <> redis_run_id THEN known >= redis_number OR redis_seen_at < now() - interval '120 s'
        ELSE known > redis_number OR redis_seen_at < now() - interval '5 s' END;
    SELECT CASE WHEN mine = redis_run_id THEN redis_number WHEN known IS NULL AND mine NOT IN ('', redis_run_id) AND redis_seen_at > now() - interval '10 s' THEN -1 WHEN mine = '' OR known IS NULL THEN 0 END
        FROM public.identity
$$;



CREATE FUNCTION public.sluice_judged(low uuid, high uuid) RETURNS TABLE(policy text, revision text, figure text, threshold double precision, class integer, n bigint)
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
SELECT coalesce(c.policy, ''), coalesce(c.policy_revision, ''), f.figure, f.threshold, f.class, count(*)
FROM (SELECT * FROM public.judgements a WHERE a.call_id >= low AND a.call_id < high) j
LEFT JOIN (SELECT * FROM public.calls a WHERE a.call_id >= low AND a.call_id < high) c ON c.call_id = j.call_id
CROSS JOIN LATERAL (VALUES
    ('ms', NULL::double precision, CASE WHEN j.error = '' THEN
        least(floor(ln(greatest(j.latency_ms, 1)) / ln(1.25)), 59)::integer END),
    ('probability', j.threshold, CASE WHEN j.probability IS NOT NULL THEN least(floor(greatest(j.probability, 0) * 10), 9)::integer END)
) f (figure, threshold, class)
WHERE f.class IS NOT NULL
GROUP BY 1, 2, 3, 4, 5
$$;



CREATE FUNCTION public.sluice_keep_digests(parent text, low uuid, high uuid) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    kept bigint := 0;
BEGIN

    IF parent = 'request_bodies' THEN
        INSERT INTO public.kept_digests (call_id, place, rows, sha256)
            SELECT x.call_id, 1, count(*), sha256(string_agg(x.h, ''::bytea ORDER BY x.call_id)) FROM (
                SELECT t.call_id, sha256('\x726571756573745f626f6469657300'::bytea || coalesce(int4send(octet_length(uuid_send(t."call_id"))) || uuid_send(t."call_id"), '\xffffffff'::bytea) || substr(coalesce(r.hashes || substr(coalesce(sha256(s.salt || '\x00'::bytea || ''::bytea || t."body"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea), octet_length(r.hashes) + 1), coalesce(sha256(s.salt || '\x00'::bytea || ''::bytea || t."body"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea)), 1, 32)) AS h FROM (
                    SELECT DISTINCT ON (n.call_id) n.call_id, n.form, (SELECT o.salt FROM public.seal_rows o
                        WHERE o.call_id = n.call_id AND o.salt IS NOT NULL ORDER BY o.part DESC LIMIT 1) AS salt
                    FROM public.seals n WHERE n.call_id >= low AND n.call_id < high AND n.part >= 0 ORDER BY n.call_id, n.part DESC
                ) s JOIN public.request_bodies t ON t.call_id = s.call_id
                LEFT JOIN public.redactions r ON r.call_id = t.call_id AND r.table_name = 'request_bodies' AND r.row_key = ''::bytea
                WHERE t.call_id >= low AND t.call_id < high
            ) x GROUP BY x.call_id
            ON CONFLICT (call_id, place) DO UPDATE SET rows = excluded.rows, sha256 = excluded.sha256;
        GET DIAGNOSTICS kept = ROW_COUNT;
    END IF;
    IF parent = 'chunks' THEN
        INSERT INTO public.kept_digests (call_id, place, rows, sha256)
            SELECT x.call_id, 2, count(*), sha256(string_agg(x.h, ''::bytea ORDER BY x."seq")) FROM (
                SELECT t.call_id, t."seq", sha256('\x6368756e6b7300'::bytea || coalesce(int4send(octet_length(uuid_send(t."call_id"))) || uuid_send(t."call_id"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."seq"))) || int4send(t."seq"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(timestamptz_send(t."at"))) || timestamptz_send(t."at"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(convert_to(t."verdict", 'UTF8'))) || convert_to(t."verdict", 'UTF8'), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || substr(coalesce(r.hashes || substr(coalesce(sha256(s.salt || '\x00'::bytea || coalesce(int4send(octet_length(int4send(t."seq"))) || int4send(t."seq"), '\xffffffff'::bytea) || t."raw"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea), octet_length(r.hashes) + 1), coalesce(sha256(s.salt || '\x00'::bytea || coalesce(int4send(octet_length(int4send(t."seq"))) || int4send(t."seq"), '\xffffffff'::bytea) || t."raw"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea)), 1, 32)) AS h FROM (
                    SELECT DISTINCT ON (n.call_id) n.call_id, n.form, (SELECT o.salt FROM public.seal_rows o
                        WHERE o.call_id = n.call_id AND o.salt IS NOT NULL ORDER BY o.part DESC LIMIT 1) AS salt
                    FROM public.seals n WHERE n.call_id >= low AND n.call_id < high AND n.part >= 0 ORDER BY n.call_id, n.part DESC
                ) s JOIN public.chunks t ON t.call_id = s.call_id
                LEFT JOIN public.redactions r ON r.call_id = t.call_id AND r.table_name = 'chunks' AND r.row_key = coalesce(int4send(octet_length(int4send(t."seq"))) || int4send(t."seq"), '\xffffffff'::bytea)
                WHERE t.call_id >= low AND t.call_id < high
            ) x GROUP BY x.call_id
            ON CONFLICT (call_id, place) DO UPDATE SET rows = excluded.rows, sha256 = excluded.sha256;
        GET DIAGNOSTICS kept = ROW_COUNT;
    END IF;
    IF parent = 'releases' THEN
        INSERT INTO public.kept_digests (call_id, place, rows, sha256)
            SELECT x.call_id, 3, count(*), sha256(string_agg(x.h, ''::bytea ORDER BY x."number")) FROM (
                SELECT t.call_id, t."number", sha256('\x72656c656173657300'::bytea || coalesce(int4send(octet_length(uuid_send(t."call_id"))) || uuid_send(t."call_id"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."number"))) || int4send(t."number"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."number_next"))) || int4send(t."number_next"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(timestamptz_send(t."at"))) || timestamptz_send(t."at"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."seq"))) || int4send(t."seq"), '\xffffffff'::bytea) || substr(coalesce(r.hashes || substr(coalesce(sha256(s.salt || '\x00'::bytea || coalesce(int4send(octet_length(int4send(t."number"))) || int4send(t."number"), '\xffffffff'::bytea) || t."payload"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(s.salt || '\x01'::bytea || coalesce(int4send(octet_length(int4send(t."number"))) || int4send(t."number"), '\xffffffff'::bytea) || t."sha256"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea), octet_length(r.hashes) + 1), coalesce(sha256(s.salt || '\x00'::bytea || coalesce(int4send(octet_length(int4send(t."number"))) || int4send(t."number"), '\xffffffff'::bytea) || t."payload"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(s.salt || '\x01'::bytea || coalesce(int4send(octet_length(int4send(t."number"))) || int4send(t."number"), '\xffffffff'::bytea) || t."sha256"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea)), 1, 64)) AS h FROM (
                    SELECT DISTINCT ON (n.call_id) n.call_id, n.form, (SELECT o.salt FROM public.seal_rows o
                        WHERE o.call_id = n.call_id AND o.salt IS NOT NULL ORDER BY o.part DESC LIMIT 1) AS salt
                    FROM public.seals n WHERE n.call_id >= low AND n.call_id < high AND n.part >= 0 ORDER BY n.call_id, n.part DESC
                ) s JOIN public.releases t ON t.call_id = s.call_id
                LEFT JOIN public.redactions r ON r.call_id = t.call_id AND r.table_name = 'releases' AND r.row_key = coalesce(int4send(octet_length(int4send(t."number"))) || int4send(t."number"), '\xffffffff'::bytea)
                WHERE t.call_id >= low AND t.call_id < high
            ) x GROUP BY x.call_id
            ON CONFLICT (call_id, place) DO UPDATE SET rows = excluded.rows, sha256 = excluded.sha256;
        GET DIAGNOSTICS kept = ROW_COUNT;
    END IF;
    RETURN kept;
END
$$;



CREATE FUNCTION public.sluice_queue_audits(given uuid[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    made record;
    most bigint;
    sampled bigint;
    suspect bigint;
    seen_sampled bigint;
    seen_suspect bigint;
    total bigint := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(7310581203);
    FOR made IN
        WITH added AS (
            INSERT INTO public.audits (call_id, block, step, at, day, policy, key, key_id, why, score, u, budget, state)
            SELECT DISTINCT ON (d.call_id, d.block) d.call_id, d.block, d.step, d.at,
                (public.sluice_call_at(d.call_id) AT TIME ZONE 'UTC')::date, coalesce(c.policy, ''), coalesce(c.key, ''),
                coalesce(c.key_id, ''), d.audit, d.score, coalesce(d.u, 0), d.audit_budget, 'waiting'
            FROM public.decisions d LEFT JOIN public.calls c ON c.call_id = d.call_id
            WHERE d.call_id = ANY (given) AND d.audit IN ('sampled', 'suspicion')
            ORDER BY d.call_id, d.block, d.audit = 'suspicion' DESC, d.score DESC NULLS LAST, d.step
            ON CONFLICT DO NOTHING RETURNING policy, key_id, day
        )
        SELECT policy, key_id, day, count(*) AS rows FROM added GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    LOOP
        total := total + made.rows;
        SELECT a.budget INTO most FROM public.audits a
            WHERE a.policy = made.policy AND a.key_id = made.key_id AND a.day = made.day AND a.state <> 'over_budget'
            ORDER BY a.at DESC, a.call_id DESC, a.block DESC LIMIT 1;
        CONTINUE WHEN most IS NULL;
        SELECT count(*) FILTER (WHERE a.why = 'sampled'), count(*) FILTER (WHERE a.why = 'suspicion'),
                count(*) FILTER (WHERE a.why = 'sampled' AND a.state = 'reviewed'),
                count(*) FILTER (WHERE a.why = 'suspicion' AND a.state = 'reviewed')
            INTO sampled, suspect, seen_sampled, seen_suspect FROM public.audits a
            WHERE a.policy = made.policy AND a.key_id = made.key_id AND a.day = made.day AND a.state <> 'over_budget';
        UPDATE public.audits a SET state = 'over_budget' FROM (
                SELECT b.call_id, b.block, row_number() OVER (PARTITION BY b.why ORDER BY
                    CASE b.why WHEN 'suspicion' THEN b.score END DESC NULLS LAST, b.u, b.call_id, b.block) AS place
                FROM public.audits b
                WHERE b.policy = made.policy AND b.key_id = made.key_id AND b.day = made.day AND b.state = 'waiting'
            ) w
            WHERE a.call_id = w.call_id AND a.block = w.block AND a.state = 'waiting' AND w.place > CASE a.why
                WHEN 'sampled' THEN most - least(suspect, most - most / 2) - seen_sampled
                ELSE most - least(sampled, most / 2) - seen_suspect END;
    END LOOP;
    RETURN total;
END
$$;



CREATE FUNCTION public.sluice_redact(given uuid, why text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    salt bytea;
    n bigint;
    total bigint := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(7310581203);
    IF NOT EXISTS (SELECT 1 FROM public.calls WHERE call_id = given UNION ALL SELECT 1 FROM public.ends WHERE call_id = given) THEN
        RETURN -1;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM public.ends WHERE call_id = given) AND public.sluice_call_at(given) > now() - interval '2 hours' THEN
        RETURN -2;
    END IF;
    SELECT r.salt INTO salt FROM public.seal_rows r WHERE r.call_id = given AND r.salt IS NOT NULL ORDER BY r.part DESC LIMIT 1;
    salt := coalesce(salt, uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

    INSERT INTO public.redactions (call_id, table_name, row_key, hashes)
        SELECT t.call_id, 'calls', ''::bytea, coalesce(sha256(salt || '\x00'::bytea || ''::bytea || convert_to(t."session", 'UTF8')), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(salt || '\x01'::bytea || ''::bytea || t."body_sha256"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(salt || '\x02'::bytea || ''::bytea || convert_to(t."user_agent", 'UTF8')), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(salt || '\x03'::bytea || ''::bytea || convert_to(t."start", 'UTF8')), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) FROM public.calls t WHERE t.call_id = given ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    UPDATE public.calls t SET session = CASE WHEN t.session IS NOT NULL THEN ''::text END, body_sha256 = CASE WHEN t.body_sha256 IS NOT NULL THEN ''::bytea END, user_agent = CASE WHEN t.user_agent IS NOT NULL THEN ''::text END, start = CASE WHEN t.start IS NOT NULL THEN ''::text END WHERE t.call_id = given;

    INSERT INTO public.redactions (call_id, table_name, row_key, hashes)
        SELECT t.call_id, 'request_bodies', ''::bytea, coalesce(sha256(salt || '\x00'::bytea || ''::bytea || t."body"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) FROM public.request_bodies t WHERE t.call_id = given ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    UPDATE public.request_bodies t SET body = CASE WHEN t.body IS NOT NULL THEN ''::bytea END WHERE t.call_id = given;

    INSERT INTO public.redactions (call_id, table_name, row_key, hashes)
        SELECT t.call_id, 'chunks', coalesce(int4send(octet_length(int4send(t."seq"))) || int4send(t."seq"), '\xffffffff'::bytea), coalesce(sha256(salt || '\x00'::bytea || coalesce(int4send(octet_length(int4send(t."seq"))) || int4send(t."seq"), '\xffffffff'::bytea) || t."raw"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) FROM public.chunks t WHERE t.call_id = given ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    UPDATE public.chunks t SET raw = CASE WHEN t.raw IS NOT NULL THEN ''::bytea END WHERE t.call_id = given;

    INSERT INTO public.redactions (call_id, table_name, row_key, hashes)
        SELECT t.call_id, 'releases', coalesce(int4send(octet_length(int4send(t."number"))) || int4send(t."number"), '\xffffffff'::bytea), coalesce(sha256(salt || '\x00'::bytea || coalesce(int4send(octet_length(int4send(t."number"))) || int4send(t."number"), '\xffffffff'::bytea) || t."payload"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(salt || '\x01'::bytea || coalesce(int4send(octet_length(int4send(t."number"))) || int4send(t."number"), '\xffffffff'::bytea) || t."sha256"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) FROM public.releases t WHERE t.call_id = given ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    UPDATE public.releases t SET payload = CASE WHEN t.payload IS NOT NULL THEN ''::bytea END, sha256 = CASE WHEN t.sha256 IS NOT NULL THEN ''::bytea END WHERE t.call_id = given;

    INSERT INTO public.redactions (call_id, table_name, row_key, hashes)
        SELECT t.call_id, 'blocks', coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea), coalesce(sha256(salt || '\x00'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || convert_to(t."reason", 'UTF8')), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(salt || '\x01'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || convert_to(t."rule", 'UTF8')), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) FROM public.blocks t WHERE t.call_id = given ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    UPDATE public.blocks t SET reason = CASE WHEN t.reason IS NOT NULL THEN ''::text END, rule = CASE WHEN t.rule IS NOT NULL THEN ''::text END WHERE t.call_id = given;

    INSERT INTO public.redactions (call_id, table_name, row_key, hashes)
        SELECT t.call_id, 'tool_calls', coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea), coalesce(sha256(salt || '\x00'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || convert_to(t."name", 'UTF8')), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(salt || '\x01'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || t."arguments"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(salt || '\x02'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || t."released_arguments"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(salt || '\x03'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || convert_to(t."reason", 'UTF8')), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(salt || '\x04'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || tsvectorsend(t."search")), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(salt || '\x05'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || convert_to(t."rule", 'UTF8')), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) FROM public.tool_calls t WHERE t.call_id = given ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    UPDATE public.tool_calls t SET name = CASE WHEN t.name IS NOT NULL THEN ''::text END, arguments = CASE WHEN t.arguments IS NOT NULL THEN ''::bytea END, released_arguments = CASE WHEN t.released_arguments IS NOT NULL THEN ''::bytea END, reason = CASE WHEN t.reason IS NOT NULL THEN ''::text END, search = CASE WHEN t.search IS NOT NULL THEN ''::tsvector END, rule = CASE WHEN t.rule IS NOT NULL THEN ''::text END WHERE t.call_id = given;

    INSERT INTO public.redactions (call_id, table_name, row_key, hashes)
        SELECT t.call_id, 'judgements', coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."step"))) || int4send(t."step"), '\xffffffff'::bytea), coalesce(sha256(salt || '\x00'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."step"))) || int4send(t."step"), '\xffffffff'::bytea) || convert_to(t."explanation", 'UTF8')), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(salt || '\x01'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."step"))) || int4send(t."step"), '\xffffffff'::bytea) || t."prompt"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(salt || '\x02'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."step"))) || int4send(t."step"), '\xffffffff'::bytea) || t."reply"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) FROM public.judgements t WHERE t.call_id = given ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    UPDATE public.judgements t SET explanation = CASE WHEN t.explanation IS NOT NULL THEN ''::text END, prompt = CASE WHEN t.prompt IS NOT NULL THEN ''::bytea END, reply = CASE WHEN t.reply IS NOT NULL THEN ''::bytea END WHERE t.call_id = given;

    INSERT INTO public.redactions (call_id, table_name, row_key, hashes)
        SELECT t.call_id, 'ends', ''::bytea, coalesce(sha256(salt || '\x00'::bytea || ''::bytea || t."relayed_sha256"), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) FROM public.ends t WHERE t.call_id = given ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    UPDATE public.ends t SET relayed_sha256 = CASE WHEN t.relayed_sha256 IS NOT NULL THEN ''::bytea END WHERE t.call_id = given;

    INSERT INTO public.redactions (call_id, table_name, row_key, hashes)
        SELECT t.call_id, 'events', coalesce(int4send(octet_length(convert_to(t."kind", 'UTF8'))) || convert_to(t."kind", 'UTF8'), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int8send(t."number"))) || int8send(t."number"), '\xffffffff'::bytea), coalesce(sha256(CASE WHEN t."kind" = 'redacted' THEN ''::bytea ELSE salt END || '\x00'::bytea || coalesce(int4send(octet_length(convert_to(t."kind", 'UTF8'))) || convert_to(t."kind", 'UTF8'), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int8send(t."number"))) || int8send(t."number"), '\xffffffff'::bytea) || convert_to(t."detail", 'UTF8')), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) FROM public.events t WHERE t.call_id = given AND t.kind <> 'redacted' ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    UPDATE public.events t SET detail = CASE WHEN t.detail IS NOT NULL THEN ''::text END WHERE t.call_id = given AND t.kind <> 'redacted';

    INSERT INTO public.redactions (call_id, table_name, row_key, hashes)
        SELECT t.call_id, 'scores', coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."step"))) || int4send(t."step"), '\xffffffff'::bytea), coalesce(sha256(salt || '\x00'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."step"))) || int4send(t."step"), '\xffffffff'::bytea) || convert_to(t."dims", 'UTF8')), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) || coalesce(sha256(salt || '\x01'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."step"))) || int4send(t."step"), '\xffffffff'::bytea) || convert_to(t."why", 'UTF8')), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) FROM public.scores t WHERE t.call_id = given ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    UPDATE public.scores t SET dims = CASE WHEN t.dims IS NOT NULL THEN ''::text END, why = CASE WHEN t.why IS NOT NULL THEN ''::text END WHERE t.call_id = given;

    INSERT INTO public.redactions (call_id, table_name, row_key, hashes)
        SELECT t.call_id, 'decisions', coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."step"))) || int4send(t."step"), '\xffffffff'::bytea), coalesce(sha256(salt || '\x00'::bytea || coalesce(int4send(octet_length(int4send(t."block"))) || int4send(t."block"), '\xffffffff'::bytea) || coalesce(int4send(octet_length(int4send(t."step"))) || int4send(t."step"), '\xffffffff'::bytea) || convert_to(t."reason", 'UTF8')), '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea) FROM public.decisions t WHERE t.call_id = given ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    UPDATE public.decisions t SET reason = CASE WHEN t.reason IS NOT NULL THEN ''::text END WHERE t.call_id = given;

    DELETE FROM public.dead_letters WHERE call_id = given::text;
    IF to_regclass('public.audit_reviews') IS NOT NULL THEN
        UPDATE public.audit_reviews r SET note = '' WHERE r.call_id = given AND r.note <> '';
        GET DIAGNOSTICS n = ROW_COUNT;
        total := total + n;
    END IF;
    IF to_regclass('public.histories') IS NOT NULL THEN
        DELETE FROM public.histories h WHERE h.call_id = given;
        -- not counted where there was more: what is made of a body is no row of the record
        IF FOUND AND total = 0 THEN
            total := 1;
        END IF;
    END IF;
    IF to_regclass('public.labels') IS NOT NULL THEN
        UPDATE public.labels l SET note = '' WHERE l.call_id = given AND l.note <> '';
        GET DIAGNOSTICS n = ROW_COUNT;
        total := total + n;
        -- the path of a session's page has its name, which is content
        UPDATE public.reads r SET filters = '', path = coalesce(substring(r.path FROM '^/debug/sessions/[^/]*/'), r.path)
            WHERE r.call_ids @> ARRAY[given] AND (r.filters <> '' OR r.path ~ '^/debug/sessions/[^/]*/.');
        GET DIAGNOSTICS n = ROW_COUNT;
        total := total + n;
    END IF;
    IF to_regclass('public.debug_logs') IS NOT NULL THEN
        DELETE FROM public.debug_logs l WHERE l.call_id = given;
        GET DIAGNOSTICS n = ROW_COUNT;
        total := total + n;
    END IF;
    IF to_regclass('public.redacted_calls') IS NOT NULL THEN
        INSERT INTO public.redacted_calls (call_id) VALUES (given) ON CONFLICT DO NOTHING;
    END IF;
    UPDATE public.seal_rows SET salt = NULL WHERE call_id = given;
    SELECT count(*) INTO n FROM public.events WHERE call_id = given AND kind = 'redacted';
    INSERT INTO public.events (call_id, kind, number, at, detail) VALUES (given, 'redacted', n + 1, now(), why);
    RETURN total;
END
$$;



CREATE FUNCTION public.sluice_review(given uuid, its_block integer, by_id text, by_name text, said text, words text, beside boolean) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    last record;
    others bigint;
    so_far integer;
BEGIN
    PERFORM FROM public.audits a WHERE a.call_id = given AND a.block = its_block FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'unknown';
    END IF;
    SELECT count(*) FILTER (WHERE r.auditor_id <> by_id), coalesce(max(r.number), 0) INTO others, so_far
        FROM public.audit_reviews r WHERE r.call_id = given AND r.block = its_block;
    SELECT r.label, r.note INTO last FROM public.audit_reviews r
        WHERE r.call_id = given AND r.block = its_block AND r.auditor_id = by_id ORDER BY r.number DESC LIMIT 1;
    IF FOUND AND last.label = said AND last.note = words THEN
        RETURN 'same';
    ELSIF NOT FOUND AND others > 0 AND NOT beside THEN
        RETURN 'other';
    ELSIF so_far >= 100 THEN
        RETURN 'full';
    END IF;
    INSERT INTO public.audit_reviews (call_id, block, number, auditor_id, auditor, label, note)
        VALUES (given, its_block, so_far + 1, by_id, by_name, said, words);
    UPDATE public.audits a SET state = 'reviewed' WHERE a.call_id = given AND a.block = its_block AND a.state <> 'reviewed';
    RETURN 'added';
END
$$;



CREATE FUNCTION public.sluice_roll_up(given timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
DECLARE
    from_ms bigint := floor(extract(epoch FROM given) / 3600)::bigint * 3600000;
    its_hour timestamptz := to_timestamp(from_ms / 1000);
    low uuid := (lpad(to_hex(from_ms), 12, '0') || repeat('0', 20))::uuid;
    high uuid := (lpad(to_hex(from_ms + 3600000), 12, '0') || repeat('0', 20))::uuid;
    made bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(7310581207);
    DELETE FROM public.usage_hours u WHERE u.hour < public.sluice_agreed_now() - interval '400 days';
    DELETE FROM public.judge_hours u WHERE u.hour < public.sluice_agreed_now() - interval '400 days';
    -- of an hour whose calls were dropped these figures are all that is left
    IF EXISTS (SELECT 1 FROM public.seals s WHERE s.part = -1 AND s.call_id > low) THEN
        RETURN 0;
    END IF;
    DELETE FROM public.usage_hours u WHERE u.hour = its_hour;
    DELETE FROM public.judge_hours u WHERE u.hour = its_hour;
    INSERT INTO public.usage_hours SELECT its_hour, row_number() OVER (), u.* FROM public.sluice_usage(low, high) u;
    GET DIAGNOSTICS made = ROW_COUNT;
    INSERT INTO public.judge_hours SELECT its_hour, row_number() OVER (), u.* FROM public.sluice_judged(low, high) u;
    RETURN made;
END
$$;



CREATE FUNCTION public.sluice_shed(parent text, until date, why text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $_$
DECLARE
    spot integer := array_position(ARRAY['calls', 'request_bodies', 'chunks', 'releases', 'blocks', 'tool_calls', 'tool_releases', 'judgements', 'ends', 'events', 'scores', 'decisions', 'attempts'], parent);
    bound uuid := (lpad(to_hex((extract(epoch FROM until::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
    low uuid := '00000000-0000-0000-0000-000000000000';
    since date;
    leaf uuid;
    seen bigint;
    refused bigint := 0;
    calls bigint;
    n bigint;
    other bigint;
    total bigint;
    tries integer := 0;
    parts text[];
    part text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'rows are taken away at the level READ COMMITTED alone' USING ERRCODE = '22023';
    END IF;
    IF parent <> ALL (ARRAY['request_bodies', 'chunks', 'releases']) OR (until <= (public.sluice_agreed_now() AT TIME ZONE 'UTC')::date) IS NOT TRUE OR until < date '1970-01-01' THEN
        RAISE EXCEPTION 'no such table, or a day that is not over' USING ERRCODE = '22023';
    END IF;
    -- alone: another that began meanwhile would have looked for the leaf before it was there, and forget the digests of this one
    PERFORM pg_advisory_xact_lock(7310581212);
    -- the leaf before says up to where that was done; what came later of calls before it stays, and is told
    SELECT coalesce((SELECT s.call_id FROM public.seals s
        WHERE s.part = -2 AND right(s.call_id::text, 4) = lpad(to_hex(spot), 4, '0') ORDER BY s.call_id DESC LIMIT 1), low) INTO low;
    since := (public.sluice_call_at(low) AT TIME ZONE 'UTC')::date;
    SELECT coalesce(max(position), -1) INTO seen FROM public.seals;
    PERFORM public.sluice_keep_digests(parent, low, bound);

    LOOP
        tries := tries + 1;
        BEGIN
            PERFORM set_config('lock_timeout', '5s', true);
            PERFORM pg_advisory_xact_lock(7310581203);
            PERFORM pg_advisory_xact_lock(7310581202);
            IF EXISTS (
                SELECT 1 FROM (SELECT call_id FROM public.calls WHERE call_id >= low AND call_id < bound
                    UNION ALL SELECT call_id FROM public.ends WHERE call_id >= low AND call_id < bound) c
                WHERE NOT EXISTS (SELECT 1 FROM public.seals s WHERE s.call_id = c.call_id)
            ) THEN
                refused := -1;
            ELSIF EXISTS (
                SELECT 1 FROM public.seals s WHERE s.call_id >= low AND s.call_id < bound AND s.part >= 0
                    AND s.position >= coalesce((SELECT max(c.size) FROM public.checkpoints c), 0)
            ) THEN
                refused := -2;
            ELSIF EXISTS (
                SELECT 1 FROM public.seals s WHERE s.call_id >= low AND s.call_id < bound AND s.part >= 0 AND s.position > seen
            ) THEN
                refused := -3;
            ELSIF EXISTS (
                SELECT 1 FROM (
                    SELECT DISTINCT ON (o.call_id) o.call_id, o.counts[spot] AS rows FROM public.seals o
                    WHERE o.call_id >= low AND o.call_id < bound AND o.part >= 0 ORDER BY o.call_id, o.part DESC
                ) s LEFT JOIN public.kept_digests k ON k.call_id = s.call_id AND k.place = spot - 1
                WHERE s.rows <> coalesce(k.rows, 0)
            ) THEN
                refused := -4;
            END IF;
            EXIT WHEN refused < 0;
            PERFORM set_config('lock_timeout', '200ms', true);
            parts := ARRAY(
                SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = ('public.' || quote_ident(parent))::regclass AND c.relname ~ ('^' || parent || '_[0-9]{8}$')
                    AND to_date(right(c.relname, 8), 'YYYYMMDD') >= since AND to_date(right(c.relname, 8), 'YYYYMMDD') < until
            );
            EXECUTE format('SELECT count(*) FROM sluice_parts.%I WHERE call_id >= $1 AND call_id < $2', parent || '_default')
                INTO other USING low, bound;
            total := other;
            FOREACH part IN ARRAY parts LOOP
                EXECUTE format('LOCK TABLE sluice_parts.%I IN SHARE ROW EXCLUSIVE MODE', part);
                EXECUTE format('SELECT count(*) FROM sluice_parts.%I', part) INTO n;
                total := total + n;
            END LOOP;
            SELECT count(*), coalesce(sum(k.rows), 0) INTO calls, n FROM public.kept_digests k
                WHERE k.place = spot - 1 AND k.call_id >= low AND k.call_id < bound;
            IF total <> n THEN
                refused := -4;
                EXIT;
            END IF;
            EXECUTE format('DELETE FROM sluice_parts.%I WHERE call_id >= $1 AND call_id < $2', parent || '_default') USING low, bound;
            GET DIAGNOSTICS n = ROW_COUNT;
            IF n <> other THEN
                RAISE EXCEPTION 'rows came meanwhile' USING ERRCODE = 'lock_not_available';
            END IF;
            FOREACH part IN ARRAY parts LOOP
                EXECUTE format('DROP TABLE sluice_parts.%I', part);
            END LOOP;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF tries >= 10 THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.3);
        END;
    END LOOP;
    IF refused < 0 THEN
        DELETE FROM public.kept_digests k WHERE k.place = spot - 1 AND k.call_id >= low AND k.call_id < bound;
        RETURN refused;
    END IF;
    IF calls > 0 THEN
        leaf := (left(bound::text, 32) || lpad(to_hex(spot), 4, '0'))::uuid;
        INSERT INTO public.seals (position, call_id, part, at, counts, sha256, note)
            SELECT coalesce(max(position) + 1, 0), leaf, -2, now(), ARRAY[calls], ''::bytea,
                format('%s until %s: %s', parent, until, why) FROM public.seals;
    END IF;
    RETURN calls;
END
$_$;



CREATE FUNCTION public.sluice_sweep_page_sessions() RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    WITH gone AS (DELETE FROM public.page_sessions s WHERE s.until < now() - interval '1 day' RETURNING 1) SELECT count(*) FROM gone
$$;



CREATE FUNCTION public.sluice_trim_debug_logs(days integer, most bigint) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '500ms'
    AS $_$
DECLARE
    part record;
    today date := (public.sluice_agreed_now() AT TIME ZONE 'UTC')::date;
    total bigint;
    size bigint;
    gone integer := 0;
BEGIN
    IF days < 0 OR most < 0 THEN
        RAISE EXCEPTION 'days and bytes must not be negative' USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock(7310581202);
    SELECT coalesce(sum(pg_total_relation_size(i.inhrelid)), 0) INTO total FROM pg_inherits i
        WHERE i.inhparent = 'public.debug_logs'::regclass;
    DELETE FROM public.door_counts d WHERE d.minute < public.sluice_agreed_now() - interval '90 days';
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
        WHERE i.inhparent = 'public.debug_logs'::regclass AND c.relname ~ '^debug_logs_[0-9]{8}$' ORDER BY c.relname
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
$_$;



CREATE FUNCTION public.sluice_usage(low uuid, high uuid) RETURNS TABLE(key text, model text, policy text, revision text, calls bigint, failed bigint, tool_calls bigint, refused bigint, replaced bigint, blocks_refused bigint, blocks_replaced bigint, faults bigint, input_tokens bigint, output_tokens bigint, cached_tokens bigint, judge_n bigint, judge_failed bigint, judge_late bigint, judge_over bigint, judge_ms_sum bigint)
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
SELECT coalesce(c.key, ''), coalesce(c.model, ''), coalesce(c.policy, ''), coalesce(c.policy_revision, ''),
    count(*), count(*) FILTER (WHERE e.state = 'FAILED'),
    coalesce(sum(t.tool_calls), 0)::bigint, coalesce(sum(t.refused), 0)::bigint, coalesce(sum(t.replaced), 0)::bigint,
    coalesce(sum(t.blocks_refused), 0)::bigint, coalesce(sum(t.blocks_replaced), 0)::bigint, coalesce(sum(t.faults), 0)::bigint,
    coalesce(sum(e.input_tokens), 0)::bigint, coalesce(sum(e.output_tokens), 0)::bigint, coalesce(sum(e.cache_read_tokens), 0)::bigint,
    coalesce(sum(j.n), 0)::bigint, coalesce(sum(j.failed), 0)::bigint, coalesce(sum(j.late), 0)::bigint, coalesce(sum(j.over), 0)::bigint,
    coalesce(sum(j.ms), 0)::bigint
FROM (SELECT a.call_id, a.key, a.model, a.policy, a.policy_revision FROM public.calls a WHERE a.call_id >= low AND a.call_id < high) c
FULL JOIN (
    SELECT a.call_id, a.state, a.input_tokens, a.output_tokens, a.cache_read_tokens
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
GROUP BY 1, 2, 3, 4
$$;


SET default_tablespace = '';

SET default_table_access_method = heap;


CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);



CREATE TABLE public.api_keys (
    sha256 bytea NOT NULL,
    name text NOT NULL,
    roles text[] NOT NULL,
    policies text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    revoked_at timestamp with time zone,
    server_tools text[] DEFAULT '{}'::text[] NOT NULL,
    settings jsonb DEFAULT '{}'::jsonb NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT api_keys_settings_check CHECK ((jsonb_typeof(settings) = 'object'::text))
);



CREATE TABLE public.attempts (
    call_id uuid NOT NULL,
    segment integer NOT NULL,
    attempt integer NOT NULL,
    at timestamp with time zone NOT NULL,
    kind text NOT NULL,
    upstream text NOT NULL,
    model text NOT NULL,
    first_seq integer NOT NULL,
    end_seq integer NOT NULL,
    chosen boolean NOT NULL,
    input_tokens bigint,
    output_tokens bigint
)
PARTITION BY RANGE (call_id);



CREATE TABLE public.audit_reviews (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    number integer NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    auditor_id text NOT NULL,
    auditor text NOT NULL,
    label text NOT NULL,
    note text NOT NULL,
    CONSTRAINT audit_reviews_label_check CHECK ((label = ANY (ARRAY['honest'::text, 'attack'::text, 'unclear'::text]))),
    CONSTRAINT audit_reviews_note_check CHECK ((length(note) <= 10000))
);



CREATE TABLE public.audits (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    step integer NOT NULL,
    at timestamp with time zone NOT NULL,
    day date NOT NULL,
    policy text NOT NULL,
    key text NOT NULL,
    key_id text NOT NULL,
    why text NOT NULL,
    score double precision,
    u double precision NOT NULL,
    budget integer,
    state text NOT NULL,
    CONSTRAINT audits_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'over_budget'::text, 'reviewed'::text]))),
    CONSTRAINT audits_why_check CHECK ((why = ANY (ARRAY['sampled'::text, 'suspicion'::text])))
);



CREATE TABLE public.blocks (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    at timestamp with time zone NOT NULL,
    kind text NOT NULL,
    verdict text NOT NULL,
    reason text NOT NULL,
    policy text NOT NULL,
    rule text
)
PARTITION BY RANGE (call_id);



CREATE TABLE public.calls (
    call_id uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    dialect text NOT NULL,
    endpoint text NOT NULL,
    key text NOT NULL,
    session text NOT NULL,
    model text NOT NULL,
    upstream text NOT NULL,
    policy text NOT NULL,
    policy_revision text NOT NULL,
    stream boolean NOT NULL,
    gateway text NOT NULL,
    key_id text DEFAULT ''::text NOT NULL,
    policy_set text DEFAULT ''::text NOT NULL,
    body_sha256 bytea,
    user_agent text DEFAULT ''::text NOT NULL,
    start text DEFAULT ''::text NOT NULL
)
PARTITION BY RANGE (call_id);



CREATE TABLE public.ends (
    call_id uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    status integer NOT NULL,
    stop_reason text NOT NULL,
    relayed integer NOT NULL,
    input_tokens bigint,
    output_tokens bigint,
    cache_read_tokens bigint,
    cache_write_tokens bigint,
    thinking_tokens bigint,
    chunks integer,
    releases integer,
    decisions integer,
    relayed_sha256 bytea
)
PARTITION BY RANGE (call_id);



CREATE TABLE public.events (
    call_id uuid NOT NULL,
    kind text NOT NULL,
    number bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    detail text NOT NULL
)
PARTITION BY RANGE (call_id);



CREATE TABLE public.tool_calls (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    index integer NOT NULL,
    choice integer NOT NULL,
    at timestamp with time zone NOT NULL,
    tool_call_id text NOT NULL,
    name text NOT NULL,
    arguments bytea NOT NULL,
    released_arguments bytea,
    executor text NOT NULL,
    form text NOT NULL,
    verdict text NOT NULL,
    reason text NOT NULL,
    policy text NOT NULL,
    schema_valid boolean,
    search tsvector NOT NULL,
    rule text
)
PARTITION BY RANGE (call_id);



CREATE VIEW public.call_log AS
 SELECT c.call_id,
    public.sluice_call_at(c.call_id) AS created_at,
    c.at AS claimed_at,
    e.at AS ended_at,
    c.dialect,
    c.endpoint,
    c.key,
    c.session,
    c.model,
    c.upstream,
    c.policy,
    c.policy_revision,
    c.stream,
    c.gateway,
    COALESCE(e.state, 'ACTIVE'::text) AS state,
    e.reason,
    e.status,
    e.stop_reason,
    e.relayed,
    e.input_tokens,
    e.output_tokens,
    e.cache_read_tokens,
    e.cache_write_tokens,
    e.thinking_tokens,
    n.tool_calls,
    n.tool_calls_blocked,
    c.key_id,
    c.policy_set,
    (EXISTS ( SELECT
           FROM public.events v
          WHERE ((v.call_id = c.call_id) AND (v.kind = 'incomplete'::text)))) AS incomplete
   FROM ((public.calls c
     LEFT JOIN public.ends e ON ((e.call_id = c.call_id)))
     CROSS JOIN LATERAL ( SELECT (count(*))::integer AS tool_calls,
            (count(*) FILTER (WHERE (COALESCE(b.verdict, t.verdict) = 'block'::text)))::integer AS tool_calls_blocked
           FROM (public.tool_calls t
             LEFT JOIN public.blocks b ON (((b.call_id = t.call_id) AND (b.block = t.block))))
          WHERE (t.call_id = c.call_id)) n);



CREATE TABLE public.checkpoints (
    size bigint NOT NULL,
    text text NOT NULL,
    peaks bytea NOT NULL,
    sha256 bytea NOT NULL
);



CREATE TABLE public.chunks (
    call_id uuid NOT NULL,
    seq integer NOT NULL,
    at timestamp with time zone NOT NULL,
    raw bytea NOT NULL,
    verdict text NOT NULL,
    block integer NOT NULL
)
PARTITION BY RANGE (call_id);



CREATE VIEW public.chunk_log AS
 SELECT k.call_id,
    k.seq,
    k.at,
    k.raw,
    k.block,
        CASE
            WHEN (k.verdict <> 'hold'::text) THEN k.verdict
            ELSE COALESCE(b.verdict, t.verdict,
            CASE
                WHEN (e.call_id IS NULL) THEN 'hold'::text
                ELSE 'withheld'::text
            END)
        END AS verdict
   FROM (((public.chunks k
     LEFT JOIN public.tool_calls t ON (((t.call_id = k.call_id) AND (t.block = k.block))))
     LEFT JOIN public.blocks b ON (((b.call_id = k.call_id) AND (b.block = k.block))))
     LEFT JOIN public.ends e ON ((e.call_id = k.call_id)));



CREATE TABLE public.dead_letters (
    sha256 bytea NOT NULL,
    call_id text NOT NULL,
    kind text NOT NULL,
    raw bytea NOT NULL,
    reason text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);



CREATE TABLE public.debug_logs (
    call_id uuid NOT NULL,
    process text NOT NULL,
    n integer NOT NULL,
    at timestamp with time zone NOT NULL,
    type text NOT NULL,
    event text NOT NULL,
    seq integer,
    number integer,
    block integer,
    policy text,
    hook text,
    duration_us integer,
    bytes integer,
    detail bytea NOT NULL
)
PARTITION BY RANGE (call_id);



CREATE TABLE public.debug_switches (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    key text NOT NULL,
    loggers text[] NOT NULL,
    content boolean NOT NULL,
    by text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    until timestamp with time zone NOT NULL
);



CREATE TABLE public.decisions (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    step integer NOT NULL,
    at timestamp with time zone NOT NULL,
    unit text NOT NULL,
    attempt integer NOT NULL,
    policy text NOT NULL,
    protocol text NOT NULL,
    action text NOT NULL,
    score double precision,
    threshold double precision,
    reason text NOT NULL,
    audit text NOT NULL,
    audit_rate double precision,
    audit_at double precision,
    audit_budget integer,
    u double precision
)
PARTITION BY RANGE (call_id);



CREATE TABLE public.door_counts (
    gateway text NOT NULL,
    key text NOT NULL,
    code text NOT NULL,
    minute timestamp with time zone NOT NULL,
    n bigint NOT NULL
);



CREATE TABLE public.histories (
    call_id uuid NOT NULL,
    session text NOT NULL,
    turns integer NOT NULL,
    marks bytea NOT NULL,
    offsets bytea NOT NULL,
    preview text NOT NULL,
    is_side boolean NOT NULL
)
PARTITION BY RANGE (call_id);



CREATE TABLE public.identity (
    is_only boolean DEFAULT true NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    redis_number bigint DEFAULT 0 NOT NULL,
    redis_run_id text DEFAULT ''::text NOT NULL,
    redis_seen_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    CONSTRAINT identity_is_only_check CHECK (is_only)
);



CREATE TABLE public.judge_hours (
    hour timestamp with time zone NOT NULL,
    place integer NOT NULL,
    policy text NOT NULL,
    revision text NOT NULL,
    figure text NOT NULL,
    threshold double precision,
    class integer NOT NULL,
    n bigint NOT NULL,
    CONSTRAINT judge_hours_figure_check CHECK ((figure = ANY (ARRAY['ms'::text, 'probability'::text])))
);



CREATE TABLE public.judgements (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    step integer NOT NULL,
    at timestamp with time zone NOT NULL,
    model text NOT NULL,
    policy text NOT NULL,
    probability double precision,
    threshold double precision NOT NULL,
    explanation text NOT NULL,
    prompt bytea NOT NULL,
    reply bytea NOT NULL,
    latency_ms integer NOT NULL,
    attempts integer NOT NULL,
    error text NOT NULL,
    input_tokens bigint,
    output_tokens bigint
)
PARTITION BY RANGE (call_id);



CREATE TABLE public.kept_digests (
    call_id uuid NOT NULL,
    place integer NOT NULL,
    rows bigint NOT NULL,
    sha256 bytea NOT NULL
);



CREATE TABLE public.labels (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    key text NOT NULL,
    key_id text NOT NULL,
    label text NOT NULL,
    note text NOT NULL,
    CONSTRAINT labels_label_check CHECK ((label = ANY (ARRAY['right'::text, 'wrong'::text, 'unsure'::text]))),
    CONSTRAINT labels_note_check CHECK ((length(note) <= 10000))
);



CREATE TABLE public.page_sessions (
    token_sha256 bytea NOT NULL,
    key_sha256 bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    until timestamp with time zone NOT NULL,
    agent text NOT NULL
);



CREATE TABLE public.reads (
    at timestamp with time zone DEFAULT now() NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    key text NOT NULL,
    key_id text NOT NULL,
    session text NOT NULL,
    path text NOT NULL,
    filters text NOT NULL,
    call_ids uuid[] NOT NULL,
    rows integer NOT NULL
)
PARTITION BY RANGE (at);



CREATE TABLE public.redacted_calls (
    call_id uuid NOT NULL
);



CREATE TABLE public.redactions (
    call_id uuid NOT NULL,
    table_name text NOT NULL,
    row_key bytea NOT NULL,
    hashes bytea NOT NULL
)
PARTITION BY RANGE (call_id);



CREATE TABLE public.releases (
    call_id uuid NOT NULL,
    number integer NOT NULL,
    number_next integer NOT NULL,
    at timestamp with time zone NOT NULL,
    seq integer NOT NULL,
    payload bytea NOT NULL,
    sha256 bytea NOT NULL
)
PARTITION BY RANGE (call_id);



CREATE TABLE public.request_bodies (
    call_id uuid NOT NULL,
    body bytea NOT NULL
)
PARTITION BY RANGE (call_id);
ALTER TABLE ONLY public.request_bodies ALTER COLUMN body SET STORAGE EXTERNAL;



CREATE TABLE public.scores (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    step integer NOT NULL,
    at timestamp with time zone NOT NULL,
    monitor text NOT NULL,
    policy text NOT NULL,
    value double precision,
    dims text NOT NULL,
    why text NOT NULL,
    error text NOT NULL,
    latency_ms integer,
    input_tokens bigint,
    output_tokens bigint
)
PARTITION BY RANGE (call_id);



CREATE TABLE public.seal_rows (
    call_id uuid NOT NULL,
    part integer NOT NULL,
    salt bytea,
    marks bytea NOT NULL
)
PARTITION BY RANGE (call_id);



CREATE TABLE public.seals (
    "position" bigint NOT NULL,
    call_id uuid NOT NULL,
    part integer NOT NULL,
    at timestamp with time zone NOT NULL,
    counts bigint[] NOT NULL,
    sha256 bytea NOT NULL,
    note text NOT NULL,
    form integer DEFAULT 0 NOT NULL,
    made_for integer DEFAULT 7
);



CREATE TABLE public.tool_releases (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    at timestamp with time zone NOT NULL
)
PARTITION BY RANGE (call_id);



CREATE VIEW public.tool_call_log AS
 SELECT t.call_id,
    t.block,
    t.tool_call_id,
    t.index,
    t.choice,
    t.name,
    t.arguments,
        CASE
            WHEN (b.call_id IS NULL) THEN t.released_arguments
            ELSE NULL::bytea
        END AS released_arguments,
    t.executor,
    t.form,
    t.schema_valid,
    COALESCE(b.verdict, t.verdict) AS verdict,
    COALESCE(b.reason, t.reason) AS reason,
    COALESCE(b.policy, t.policy) AS policy,
    c.policy AS call_policy,
    c.policy_revision,
    c.session,
    c.key,
    c.model,
    c.upstream,
    public.sluice_call_at(t.call_id) AS created_at,
    t.at AS decided_at,
    r.at AS released_at,
    e.at AS ended_at,
    t.search,
    j.model AS judge_model,
    j.policy AS judge_policy,
    j.probability AS judge_probability,
    j.threshold AS judge_threshold,
    j.explanation AS judge_explanation,
    j.prompt AS judge_prompt,
    j.reply AS judge_reply,
    j.latency_ms AS judge_latency_ms,
    j.attempts AS judge_attempts,
    j.error AS judge_error,
    c.key_id,
        CASE
            WHEN (b.call_id IS NULL) THEN t.rule
            ELSE b.rule
        END AS rule
   FROM (((((public.tool_calls t
     LEFT JOIN public.calls c ON ((c.call_id = t.call_id)))
     LEFT JOIN public.ends e ON ((e.call_id = t.call_id)))
     LEFT JOIN public.blocks b ON (((b.call_id = t.call_id) AND (b.block = t.block))))
     LEFT JOIN public.tool_releases r ON (((r.call_id = t.call_id) AND (r.block = t.block))))
     LEFT JOIN LATERAL ( SELECT g.call_id,
            g.block,
            g.step,
            g.at,
            g.model,
            g.policy,
            g.probability,
            g.threshold,
            g.explanation,
            g.prompt,
            g.reply,
            g.latency_ms,
            g.attempts,
            g.error
           FROM public.judgements g
          WHERE ((g.call_id = t.call_id) AND (g.block = t.block))
          ORDER BY g.step DESC
         LIMIT 1) j ON (true));



CREATE TABLE public.tree_tiles (
    level integer NOT NULL,
    index bigint NOT NULL,
    hashes bytea NOT NULL,
    root bytea NOT NULL
);
ALTER TABLE ONLY public.tree_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL;



CREATE TABLE public.usage_hours (
    hour timestamp with time zone NOT NULL,
    place integer NOT NULL,
    key text NOT NULL,
    model text NOT NULL,
    policy text NOT NULL,
    revision text NOT NULL,
    calls bigint NOT NULL,
    failed bigint NOT NULL,
    tool_calls bigint NOT NULL,
    refused bigint NOT NULL,
    replaced bigint NOT NULL,
    blocks_refused bigint NOT NULL,
    blocks_replaced bigint NOT NULL,
    faults bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    judge_n bigint NOT NULL,
    judge_failed bigint NOT NULL,
    judge_late bigint NOT NULL,
    judge_over bigint NOT NULL,
    judge_ms_sum bigint NOT NULL
);



CREATE TABLE sluice_parts.attempts_default (
    call_id uuid CONSTRAINT attempts_call_id_not_null NOT NULL,
    segment integer CONSTRAINT attempts_segment_not_null NOT NULL,
    attempt integer CONSTRAINT attempts_attempt_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT attempts_at_not_null NOT NULL,
    kind text CONSTRAINT attempts_kind_not_null NOT NULL,
    upstream text CONSTRAINT attempts_upstream_not_null NOT NULL,
    model text CONSTRAINT attempts_model_not_null NOT NULL,
    first_seq integer CONSTRAINT attempts_first_seq_not_null NOT NULL,
    end_seq integer CONSTRAINT attempts_end_seq_not_null NOT NULL,
    chosen boolean CONSTRAINT attempts_chosen_not_null NOT NULL,
    input_tokens bigint,
    output_tokens bigint
);



CREATE TABLE sluice_parts.blocks_default (
    call_id uuid CONSTRAINT blocks_call_id_not_null NOT NULL,
    block integer CONSTRAINT blocks_block_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT blocks_at_not_null NOT NULL,
    kind text CONSTRAINT blocks_kind_not_null NOT NULL,
    verdict text CONSTRAINT blocks_verdict_not_null NOT NULL,
    reason text CONSTRAINT blocks_reason_not_null NOT NULL,
    policy text CONSTRAINT blocks_policy_not_null NOT NULL,
    rule text
);



CREATE TABLE sluice_parts.calls_default (
    call_id uuid CONSTRAINT calls_call_id_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT calls_at_not_null NOT NULL,
    dialect text CONSTRAINT calls_dialect_not_null NOT NULL,
    endpoint text CONSTRAINT calls_endpoint_not_null NOT NULL,
    key text CONSTRAINT calls_key_not_null NOT NULL,
    session text CONSTRAINT calls_session_not_null NOT NULL,
    model text CONSTRAINT calls_model_not_null NOT NULL,
    upstream text CONSTRAINT calls_upstream_not_null NOT NULL,
    policy text CONSTRAINT calls_policy_not_null NOT NULL,
    policy_revision text CONSTRAINT calls_policy_revision_not_null NOT NULL,
    stream boolean CONSTRAINT calls_stream_not_null NOT NULL,
    gateway text CONSTRAINT calls_gateway_not_null NOT NULL,
    key_id text DEFAULT ''::text CONSTRAINT calls_key_id_not_null NOT NULL,
    policy_set text DEFAULT ''::text CONSTRAINT calls_policy_set_not_null NOT NULL,
    body_sha256 bytea,
    user_agent text DEFAULT ''::text CONSTRAINT calls_user_agent_not_null NOT NULL,
    start text DEFAULT ''::text CONSTRAINT calls_start_not_null NOT NULL
);



CREATE TABLE sluice_parts.chunks_default (
    call_id uuid CONSTRAINT chunks_call_id_not_null NOT NULL,
    seq integer CONSTRAINT chunks_seq_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT chunks_at_not_null NOT NULL,
    raw bytea CONSTRAINT chunks_raw_not_null NOT NULL,
    verdict text CONSTRAINT chunks_verdict_not_null NOT NULL,
    block integer CONSTRAINT chunks_block_not_null NOT NULL
);



CREATE TABLE sluice_parts.debug_logs_default (
    call_id uuid CONSTRAINT debug_logs_call_id_not_null NOT NULL,
    process text CONSTRAINT debug_logs_process_not_null NOT NULL,
    n integer CONSTRAINT debug_logs_n_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT debug_logs_at_not_null NOT NULL,
    type text CONSTRAINT debug_logs_type_not_null NOT NULL,
    event text CONSTRAINT debug_logs_event_not_null NOT NULL,
    seq integer,
    number integer,
    block integer,
    policy text,
    hook text,
    duration_us integer,
    bytes integer,
    detail bytea CONSTRAINT debug_logs_detail_not_null NOT NULL
);



CREATE TABLE sluice_parts.decisions_default (
    call_id uuid CONSTRAINT decisions_call_id_not_null NOT NULL,
    block integer CONSTRAINT decisions_block_not_null NOT NULL,
    step integer CONSTRAINT decisions_step_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT decisions_at_not_null NOT NULL,
    unit text CONSTRAINT decisions_unit_not_null NOT NULL,
    attempt integer CONSTRAINT decisions_attempt_not_null NOT NULL,
    policy text CONSTRAINT decisions_policy_not_null NOT NULL,
    protocol text CONSTRAINT decisions_protocol_not_null NOT NULL,
    action text CONSTRAINT decisions_action_not_null NOT NULL,
    score double precision,
    threshold double precision,
    reason text CONSTRAINT decisions_reason_not_null NOT NULL,
    audit text CONSTRAINT decisions_audit_not_null NOT NULL,
    audit_rate double precision,
    audit_at double precision,
    audit_budget integer,
    u double precision
);



CREATE TABLE sluice_parts.ends_default (
    call_id uuid CONSTRAINT ends_call_id_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT ends_at_not_null NOT NULL,
    state text CONSTRAINT ends_state_not_null NOT NULL,
    reason text CONSTRAINT ends_reason_not_null NOT NULL,
    status integer CONSTRAINT ends_status_not_null NOT NULL,
    stop_reason text CONSTRAINT ends_stop_reason_not_null NOT NULL,
    relayed integer CONSTRAINT ends_relayed_not_null NOT NULL,
    input_tokens bigint,
    output_tokens bigint,
    cache_read_tokens bigint,
    cache_write_tokens bigint,
    thinking_tokens bigint,
    chunks integer,
    releases integer,
    decisions integer,
    relayed_sha256 bytea
);



CREATE TABLE sluice_parts.events_default (
    call_id uuid CONSTRAINT events_call_id_not_null NOT NULL,
    kind text CONSTRAINT events_kind_not_null NOT NULL,
    number bigint CONSTRAINT events_number_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT events_at_not_null NOT NULL,
    detail text CONSTRAINT events_detail_not_null NOT NULL
);



CREATE TABLE sluice_parts.histories_default (
    call_id uuid CONSTRAINT histories_call_id_not_null NOT NULL,
    session text CONSTRAINT histories_session_not_null NOT NULL,
    turns integer CONSTRAINT histories_turns_not_null NOT NULL,
    marks bytea CONSTRAINT histories_marks_not_null NOT NULL,
    offsets bytea CONSTRAINT histories_offsets_not_null NOT NULL,
    preview text CONSTRAINT histories_preview_not_null NOT NULL,
    is_side boolean CONSTRAINT histories_is_side_not_null NOT NULL
);



CREATE TABLE sluice_parts.judgements_default (
    call_id uuid CONSTRAINT judgements_call_id_not_null NOT NULL,
    block integer CONSTRAINT judgements_block_not_null NOT NULL,
    step integer CONSTRAINT judgements_step_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT judgements_at_not_null NOT NULL,
    model text CONSTRAINT judgements_model_not_null NOT NULL,
    policy text CONSTRAINT judgements_policy_not_null NOT NULL,
    probability double precision,
    threshold double precision CONSTRAINT judgements_threshold_not_null NOT NULL,
    explanation text CONSTRAINT judgements_explanation_not_null NOT NULL,
    prompt bytea CONSTRAINT judgements_prompt_not_null NOT NULL,
    reply bytea CONSTRAINT judgements_reply_not_null NOT NULL,
    latency_ms integer CONSTRAINT judgements_latency_ms_not_null NOT NULL,
    attempts integer CONSTRAINT judgements_attempts_not_null NOT NULL,
    error text CONSTRAINT judgements_error_not_null NOT NULL,
    input_tokens bigint,
    output_tokens bigint
);



CREATE TABLE sluice_parts.reads_default (
    at timestamp with time zone DEFAULT now() CONSTRAINT reads_at_not_null NOT NULL,
    id uuid DEFAULT gen_random_uuid() CONSTRAINT reads_id_not_null NOT NULL,
    key text CONSTRAINT reads_key_not_null NOT NULL,
    key_id text CONSTRAINT reads_key_id_not_null NOT NULL,
    session text CONSTRAINT reads_session_not_null NOT NULL,
    path text CONSTRAINT reads_path_not_null NOT NULL,
    filters text CONSTRAINT reads_filters_not_null NOT NULL,
    call_ids uuid[] CONSTRAINT reads_call_ids_not_null NOT NULL,
    rows integer CONSTRAINT reads_rows_not_null NOT NULL
);



CREATE TABLE sluice_parts.redactions_default (
    call_id uuid CONSTRAINT redactions_call_id_not_null NOT NULL,
    table_name text CONSTRAINT redactions_table_name_not_null NOT NULL,
    row_key bytea CONSTRAINT redactions_row_key_not_null NOT NULL,
    hashes bytea CONSTRAINT redactions_hashes_not_null NOT NULL
);



CREATE TABLE sluice_parts.releases_default (
    call_id uuid CONSTRAINT releases_call_id_not_null NOT NULL,
    number integer CONSTRAINT releases_number_not_null NOT NULL,
    number_next integer CONSTRAINT releases_number_next_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT releases_at_not_null NOT NULL,
    seq integer CONSTRAINT releases_seq_not_null NOT NULL,
    payload bytea CONSTRAINT releases_payload_not_null NOT NULL,
    sha256 bytea CONSTRAINT releases_sha256_not_null NOT NULL
);



CREATE TABLE sluice_parts.request_bodies_default (
    call_id uuid CONSTRAINT request_bodies_call_id_not_null NOT NULL,
    body bytea CONSTRAINT request_bodies_body_not_null NOT NULL
);
ALTER TABLE ONLY sluice_parts.request_bodies_default ALTER COLUMN body SET STORAGE EXTERNAL;



CREATE TABLE sluice_parts.scores_default (
    call_id uuid CONSTRAINT scores_call_id_not_null NOT NULL,
    block integer CONSTRAINT scores_block_not_null NOT NULL,
    step integer CONSTRAINT scores_step_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT scores_at_not_null NOT NULL,
    monitor text CONSTRAINT scores_monitor_not_null NOT NULL,
    policy text CONSTRAINT scores_policy_not_null NOT NULL,
    value double precision,
    dims text CONSTRAINT scores_dims_not_null NOT NULL,
    why text CONSTRAINT scores_why_not_null NOT NULL,
    error text CONSTRAINT scores_error_not_null NOT NULL,
    latency_ms integer,
    input_tokens bigint,
    output_tokens bigint
);



CREATE TABLE sluice_parts.seal_rows_default (
    call_id uuid CONSTRAINT seal_rows_call_id_not_null NOT NULL,
    part integer CONSTRAINT seal_rows_part_not_null NOT NULL,
    salt bytea,
    marks bytea CONSTRAINT seal_rows_marks_not_null NOT NULL
);



CREATE TABLE sluice_parts.tool_calls_default (
    call_id uuid CONSTRAINT tool_calls_call_id_not_null NOT NULL,
    block integer CONSTRAINT tool_calls_block_not_null NOT NULL,
    index integer CONSTRAINT tool_calls_index_not_null NOT NULL,
    choice integer CONSTRAINT tool_calls_choice_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT tool_calls_at_not_null NOT NULL,
    tool_call_id text CONSTRAINT tool_calls_tool_call_id_not_null NOT NULL,
    name text CONSTRAINT tool_calls_name_not_null NOT NULL,
    arguments bytea CONSTRAINT tool_calls_arguments_not_null NOT NULL,
    released_arguments bytea,
    executor text CONSTRAINT tool_calls_executor_not_null NOT NULL,
    form text CONSTRAINT tool_calls_form_not_null NOT NULL,
    verdict text CONSTRAINT tool_calls_verdict_not_null NOT NULL,
    reason text CONSTRAINT tool_calls_reason_not_null NOT NULL,
    policy text CONSTRAINT tool_calls_policy_not_null NOT NULL,
    schema_valid boolean,
    search tsvector CONSTRAINT tool_calls_search_not_null NOT NULL,
    rule text
);



CREATE TABLE sluice_parts.tool_releases_default (
    call_id uuid CONSTRAINT tool_releases_call_id_not_null NOT NULL,
    block integer CONSTRAINT tool_releases_block_not_null NOT NULL,
    at timestamp with time zone CONSTRAINT tool_releases_at_not_null NOT NULL
);



ALTER TABLE ONLY public.attempts ATTACH PARTITION sluice_parts.attempts_default DEFAULT;



ALTER TABLE ONLY public.blocks ATTACH PARTITION sluice_parts.blocks_default DEFAULT;



ALTER TABLE ONLY public.calls ATTACH PARTITION sluice_parts.calls_default DEFAULT;



ALTER TABLE ONLY public.chunks ATTACH PARTITION sluice_parts.chunks_default DEFAULT;



ALTER TABLE ONLY public.debug_logs ATTACH PARTITION sluice_parts.debug_logs_default DEFAULT;



ALTER TABLE ONLY public.decisions ATTACH PARTITION sluice_parts.decisions_default DEFAULT;



ALTER TABLE ONLY public.ends ATTACH PARTITION sluice_parts.ends_default DEFAULT;



ALTER TABLE ONLY public.events ATTACH PARTITION sluice_parts.events_default DEFAULT;



ALTER TABLE ONLY public.histories ATTACH PARTITION sluice_parts.histories_default DEFAULT;



ALTER TABLE ONLY public.judgements ATTACH PARTITION sluice_parts.judgements_default DEFAULT;



ALTER TABLE ONLY public.reads ATTACH PARTITION sluice_parts.reads_default DEFAULT;



ALTER TABLE ONLY public.redactions ATTACH PARTITION sluice_parts.redactions_default DEFAULT;



ALTER TABLE ONLY public.releases ATTACH PARTITION sluice_parts.releases_default DEFAULT;



ALTER TABLE ONLY public.request_bodies ATTACH PARTITION sluice_parts.request_bodies_default DEFAULT;



ALTER TABLE ONLY public.scores ATTACH PARTITION sluice_parts.scores_default DEFAULT;



ALTER TABLE ONLY public.seal_rows ATTACH PARTITION sluice_parts.seal_rows_default DEFAULT;



ALTER TABLE ONLY public.tool_calls ATTACH PARTITION sluice_parts.tool_calls_default DEFAULT;



ALTER TABLE ONLY public.tool_releases ATTACH PARTITION sluice_parts.tool_releases_default DEFAULT;



ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);



ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (sha256);



ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (call_id, segment, attempt);



ALTER TABLE ONLY public.audit_reviews
    ADD CONSTRAINT audit_reviews_pkey PRIMARY KEY (call_id, block, number);



ALTER TABLE ONLY public.audits
    ADD CONSTRAINT audits_pkey PRIMARY KEY (call_id, block);



ALTER TABLE ONLY public.blocks
    ADD CONSTRAINT blocks_pkey PRIMARY KEY (call_id, block);



ALTER TABLE ONLY public.calls
    ADD CONSTRAINT calls_pkey PRIMARY KEY (call_id);



ALTER TABLE ONLY public.checkpoints
    ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (size);



ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_pkey PRIMARY KEY (call_id, seq);



ALTER TABLE ONLY public.dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (sha256);



ALTER TABLE ONLY public.debug_logs
    ADD CONSTRAINT debug_logs_pkey PRIMARY KEY (call_id, process, n);



ALTER TABLE ONLY public.debug_switches
    ADD CONSTRAINT debug_switches_pkey PRIMARY KEY (id);



ALTER TABLE ONLY public.decisions
    ADD CONSTRAINT decisions_pkey PRIMARY KEY (call_id, block, step);



ALTER TABLE ONLY public.door_counts
    ADD CONSTRAINT door_counts_pkey PRIMARY KEY (gateway, key, code, minute);



ALTER TABLE ONLY public.ends
    ADD CONSTRAINT ends_pkey PRIMARY KEY (call_id);



ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (call_id, kind, number);



ALTER TABLE ONLY public.histories
    ADD CONSTRAINT histories_pkey PRIMARY KEY (call_id);



ALTER TABLE ONLY public.identity
    ADD CONSTRAINT identity_pkey PRIMARY KEY (is_only);



ALTER TABLE ONLY public.judge_hours
    ADD CONSTRAINT judge_hours_pkey PRIMARY KEY (hour, place);



ALTER TABLE ONLY public.judgements
    ADD CONSTRAINT judgements_pkey PRIMARY KEY (call_id, block, step);



ALTER TABLE ONLY public.kept_digests
    ADD CONSTRAINT kept_digests_pkey PRIMARY KEY (call_id, place);



ALTER TABLE ONLY public.labels
    ADD CONSTRAINT labels_pkey PRIMARY KEY (call_id, block, at);



ALTER TABLE ONLY public.page_sessions
    ADD CONSTRAINT page_sessions_pkey PRIMARY KEY (token_sha256);



ALTER TABLE ONLY public.reads
    ADD CONSTRAINT reads_pkey PRIMARY KEY (at, id);



ALTER TABLE ONLY public.redacted_calls
    ADD CONSTRAINT redacted_calls_pkey PRIMARY KEY (call_id);



ALTER TABLE ONLY public.redactions
    ADD CONSTRAINT redactions_pkey PRIMARY KEY (call_id, table_name, row_key);



ALTER TABLE ONLY public.releases
    ADD CONSTRAINT releases_pkey PRIMARY KEY (call_id, number);



ALTER TABLE ONLY public.request_bodies
    ADD CONSTRAINT request_bodies_pkey PRIMARY KEY (call_id);



ALTER TABLE ONLY public.scores
    ADD CONSTRAINT scores_pkey PRIMARY KEY (call_id, block, step);



ALTER TABLE ONLY public.seal_rows
    ADD CONSTRAINT seal_rows_pkey PRIMARY KEY (call_id, part);



ALTER TABLE ONLY public.seals
    ADD CONSTRAINT seals_pkey PRIMARY KEY ("position");



ALTER TABLE ONLY public.tool_calls
    ADD CONSTRAINT tool_calls_pkey PRIMARY KEY (call_id, block);



ALTER TABLE ONLY public.tool_releases
    ADD CONSTRAINT tool_releases_pkey PRIMARY KEY (call_id, block);



ALTER TABLE ONLY public.tree_tiles
    ADD CONSTRAINT tree_tiles_pkey PRIMARY KEY (level, index);



ALTER TABLE ONLY public.usage_hours
    ADD CONSTRAINT usage_hours_pkey PRIMARY KEY (hour, place);



ALTER TABLE ONLY sluice_parts.attempts_default
    ADD CONSTRAINT attempts_default_pkey PRIMARY KEY (call_id, segment, attempt);



ALTER TABLE ONLY sluice_parts.blocks_default
    ADD CONSTRAINT blocks_default_pkey PRIMARY KEY (call_id, block);



ALTER TABLE ONLY sluice_parts.calls_default
    ADD CONSTRAINT calls_default_pkey PRIMARY KEY (call_id);



ALTER TABLE ONLY sluice_parts.chunks_default
    ADD CONSTRAINT chunks_default_pkey PRIMARY KEY (call_id, seq);



ALTER TABLE ONLY sluice_parts.debug_logs_default
    ADD CONSTRAINT debug_logs_default_pkey PRIMARY KEY (call_id, process, n);



ALTER TABLE ONLY sluice_parts.decisions_default
    ADD CONSTRAINT decisions_default_pkey PRIMARY KEY (call_id, block, step);



ALTER TABLE ONLY sluice_parts.ends_default
    ADD CONSTRAINT ends_default_pkey PRIMARY KEY (call_id);



ALTER TABLE ONLY sluice_parts.events_default
    ADD CONSTRAINT events_default_pkey PRIMARY KEY (call_id, kind, number);



ALTER TABLE ONLY sluice_parts.histories_default
    ADD CONSTRAINT histories_default_pkey PRIMARY KEY (call_id);



ALTER TABLE ONLY sluice_parts.judgements_default
    ADD CONSTRAINT judgements_default_pkey PRIMARY KEY (call_id, block, step);



ALTER TABLE ONLY sluice_parts.reads_default
    ADD CONSTRAINT reads_default_pkey PRIMARY KEY (at, id);



ALTER TABLE ONLY sluice_parts.redactions_default
    ADD CONSTRAINT redactions_default_pkey PRIMARY KEY (call_id, table_name, row_key);



ALTER TABLE ONLY sluice_parts.releases_default
    ADD CONSTRAINT releases_default_pkey PRIMARY KEY (call_id, number);



ALTER TABLE ONLY sluice_parts.request_bodies_default
    ADD CONSTRAINT request_bodies_default_pkey PRIMARY KEY (call_id);



ALTER TABLE ONLY sluice_parts.scores_default
    ADD CONSTRAINT scores_default_pkey PRIMARY KEY (call_id, block, step);



ALTER TABLE ONLY sluice_parts.seal_rows_default
    ADD CONSTRAINT seal_rows_default_pkey PRIMARY KEY (call_id, part);



ALTER TABLE ONLY sluice_parts.tool_calls_default
    ADD CONSTRAINT tool_calls_default_pkey PRIMARY KEY (call_id, block);



ALTER TABLE ONLY sluice_parts.tool_releases_default
    ADD CONSTRAINT tool_releases_default_pkey PRIMARY KEY (call_id, block);



CREATE UNIQUE INDEX api_keys_name_idx ON public.api_keys USING btree (name) WHERE (revoked_at IS NULL);



CREATE INDEX audits_budget_idx ON public.audits USING btree (policy, key_id, day) WHERE (state <> 'over_budget'::text);



CREATE INDEX audits_state_idx ON public.audits USING btree (state, call_id, block);



CREATE INDEX blocks_later_idx ON ONLY public.blocks USING btree (call_id, block) INCLUDE (verdict, policy) WHERE (kind <> ALL (ARRAY['text'::text, 'thinking'::text]));



CREATE INDEX blocks_reason_idx ON ONLY public.blocks USING gin (to_tsvector('simple'::regconfig, reason)) WHERE (verdict <> ALL (ARRAY['allow'::text, 'replace'::text]));



CREATE INDEX blocks_refused_idx ON ONLY public.blocks USING btree (call_id, block) WHERE (verdict <> ALL (ARRAY['allow'::text, 'replace'::text]));



CREATE INDEX blocks_verdict_idx ON ONLY public.blocks USING btree (verdict, call_id);



CREATE INDEX calls_key_id_idx ON ONLY public.calls USING btree (key_id, call_id);



CREATE INDEX calls_key_idx ON ONLY public.calls USING btree (key, call_id);



CREATE INDEX calls_model_idx ON ONLY public.calls USING btree (model, call_id);



CREATE INDEX calls_policy_idx ON ONLY public.calls USING btree (policy, call_id);



CREATE INDEX calls_session_idx ON ONLY public.calls USING btree (session, call_id);



CREATE INDEX dead_letters_call_id_idx ON public.dead_letters USING btree ("left"(call_id, 36));



CREATE INDEX debug_logs_type_idx ON ONLY public.debug_logs USING btree (type, call_id);



CREATE INDEX door_counts_minute_idx ON public.door_counts USING btree (minute);



CREATE INDEX events_incomplete_idx ON ONLY public.events USING btree (call_id) WHERE (kind = 'incomplete'::text);



CREATE INDEX judge_hours_policy_idx ON public.judge_hours USING btree (policy, hour);



CREATE INDEX judgements_policy_idx ON ONLY public.judgements USING btree (policy, call_id);



CREATE INDEX reads_call_ids_idx ON ONLY public.reads USING gin (call_ids);



CREATE INDEX seals_beside_idx ON public.seals USING btree (call_id) WHERE ((form = 0) OR (form < made_for));



CREATE UNIQUE INDEX seals_call_id_idx ON public.seals USING btree (call_id, part);



CREATE INDEX seals_gone_idx ON public.seals USING btree (call_id) WHERE (part < 0);



CREATE INDEX tool_calls_name_idx ON ONLY public.tool_calls USING btree (name, call_id);



CREATE INDEX tool_calls_policy_idx ON ONLY public.tool_calls USING btree (policy, call_id);



CREATE INDEX tool_calls_refused_idx ON ONLY public.tool_calls USING btree (call_id, block) WHERE (verdict <> ALL (ARRAY['allow'::text, 'replace'::text]));



CREATE INDEX tool_calls_search_idx ON ONLY public.tool_calls USING gin (search);



CREATE INDEX tool_calls_search_refused_idx ON ONLY public.tool_calls USING gin (search) WHERE (verdict <> ALL (ARRAY['allow'::text, 'replace'::text]));



CREATE INDEX tool_calls_tool_call_id_idx ON ONLY public.tool_calls USING btree (tool_call_id, call_id);



CREATE INDEX tool_calls_verdict_idx ON ONLY public.tool_calls USING btree (verdict, call_id);



CREATE INDEX usage_hours_key_idx ON public.usage_hours USING btree (key, hour);



CREATE INDEX usage_hours_policy_idx ON public.usage_hours USING btree (policy, hour);



CREATE INDEX blocks_default_later_idx ON sluice_parts.blocks_default USING btree (call_id, block) INCLUDE (verdict, policy) WHERE (kind <> ALL (ARRAY['text'::text, 'thinking'::text]));



CREATE INDEX blocks_default_reason_idx ON sluice_parts.blocks_default USING gin (to_tsvector('simple'::regconfig, reason)) WHERE (verdict <> ALL (ARRAY['allow'::text, 'replace'::text]));



CREATE INDEX blocks_default_refused_idx ON sluice_parts.blocks_default USING btree (call_id, block) WHERE (verdict <> ALL (ARRAY['allow'::text, 'replace'::text]));



CREATE INDEX blocks_default_verdict_idx ON sluice_parts.blocks_default USING btree (verdict, call_id);



CREATE INDEX calls_default_key_id_idx ON sluice_parts.calls_default USING btree (key_id, call_id);



CREATE INDEX calls_default_key_idx ON sluice_parts.calls_default USING btree (key, call_id);



CREATE INDEX calls_default_model_idx ON sluice_parts.calls_default USING btree (model, call_id);



CREATE INDEX calls_default_policy_idx ON sluice_parts.calls_default USING btree (policy, call_id);



CREATE INDEX calls_default_session_call_id_idx ON sluice_parts.calls_default USING btree (session, call_id);



CREATE INDEX debug_logs_default_type_call_id_idx ON sluice_parts.debug_logs_default USING btree (type, call_id);



CREATE INDEX events_default_incomplete_idx ON sluice_parts.events_default USING btree (call_id) WHERE (kind = 'incomplete'::text);



CREATE INDEX judgements_default_policy_idx ON sluice_parts.judgements_default USING btree (policy, call_id);



CREATE INDEX reads_default_call_ids_idx ON sluice_parts.reads_default USING gin (call_ids);



CREATE INDEX tool_calls_default_name_call_id_idx ON sluice_parts.tool_calls_default USING btree (name, call_id);



CREATE INDEX tool_calls_default_policy_idx ON sluice_parts.tool_calls_default USING btree (policy, call_id);



CREATE INDEX tool_calls_default_refused_idx ON sluice_parts.tool_calls_default USING btree (call_id, block) WHERE (verdict <> ALL (ARRAY['allow'::text, 'replace'::text]));



CREATE INDEX tool_calls_default_search_idx ON sluice_parts.tool_calls_default USING gin (search);



CREATE INDEX tool_calls_default_search_refused_idx ON sluice_parts.tool_calls_default USING gin (search) WHERE (verdict <> ALL (ARRAY['allow'::text, 'replace'::text]));



CREATE INDEX tool_calls_default_tool_call_id_idx ON sluice_parts.tool_calls_default USING btree (tool_call_id, call_id);



CREATE INDEX tool_calls_default_verdict_idx ON sluice_parts.tool_calls_default USING btree (verdict, call_id);



ALTER INDEX public.attempts_pkey ATTACH PARTITION sluice_parts.attempts_default_pkey;



ALTER INDEX public.blocks_later_idx ATTACH PARTITION sluice_parts.blocks_default_later_idx;



ALTER INDEX public.blocks_pkey ATTACH PARTITION sluice_parts.blocks_default_pkey;



ALTER INDEX public.blocks_reason_idx ATTACH PARTITION sluice_parts.blocks_default_reason_idx;



ALTER INDEX public.blocks_refused_idx ATTACH PARTITION sluice_parts.blocks_default_refused_idx;



ALTER INDEX public.blocks_verdict_idx ATTACH PARTITION sluice_parts.blocks_default_verdict_idx;



ALTER INDEX public.calls_key_id_idx ATTACH PARTITION sluice_parts.calls_default_key_id_idx;



ALTER INDEX public.calls_key_idx ATTACH PARTITION sluice_parts.calls_default_key_idx;



ALTER INDEX public.calls_model_idx ATTACH PARTITION sluice_parts.calls_default_model_idx;



ALTER INDEX public.calls_pkey ATTACH PARTITION sluice_parts.calls_default_pkey;



ALTER INDEX public.calls_policy_idx ATTACH PARTITION sluice_parts.calls_default_policy_idx;



ALTER INDEX public.calls_session_idx ATTACH PARTITION sluice_parts.calls_default_session_call_id_idx;



ALTER INDEX public.chunks_pkey ATTACH PARTITION sluice_parts.chunks_default_pkey;



ALTER INDEX public.debug_logs_pkey ATTACH PARTITION sluice_parts.debug_logs_default_pkey;



ALTER INDEX public.debug_logs_type_idx ATTACH PARTITION sluice_parts.debug_logs_default_type_call_id_idx;



ALTER INDEX public.decisions_pkey ATTACH PARTITION sluice_parts.decisions_default_pkey;



ALTER INDEX public.ends_pkey ATTACH PARTITION sluice_parts.ends_default_pkey;



ALTER INDEX public.events_incomplete_idx ATTACH PARTITION sluice_parts.events_default_incomplete_idx;



ALTER INDEX public.events_pkey ATTACH PARTITION sluice_parts.events_default_pkey;



ALTER INDEX public.histories_pkey ATTACH PARTITION sluice_parts.histories_default_pkey;



ALTER INDEX public.judgements_pkey ATTACH PARTITION sluice_parts.judgements_default_pkey;



ALTER INDEX public.judgements_policy_idx ATTACH PARTITION sluice_parts.judgements_default_policy_idx;



ALTER INDEX public.reads_call_ids_idx ATTACH PARTITION sluice_parts.reads_default_call_ids_idx;



ALTER INDEX public.reads_pkey ATTACH PARTITION sluice_parts.reads_default_pkey;



ALTER INDEX public.redactions_pkey ATTACH PARTITION sluice_parts.redactions_default_pkey;



ALTER INDEX public.releases_pkey ATTACH PARTITION sluice_parts.releases_default_pkey;



ALTER INDEX public.request_bodies_pkey ATTACH PARTITION sluice_parts.request_bodies_default_pkey;



ALTER INDEX public.scores_pkey ATTACH PARTITION sluice_parts.scores_default_pkey;



ALTER INDEX public.seal_rows_pkey ATTACH PARTITION sluice_parts.seal_rows_default_pkey;



ALTER INDEX public.tool_calls_name_idx ATTACH PARTITION sluice_parts.tool_calls_default_name_call_id_idx;



ALTER INDEX public.tool_calls_pkey ATTACH PARTITION sluice_parts.tool_calls_default_pkey;



ALTER INDEX public.tool_calls_policy_idx ATTACH PARTITION sluice_parts.tool_calls_default_policy_idx;



ALTER INDEX public.tool_calls_refused_idx ATTACH PARTITION sluice_parts.tool_calls_default_refused_idx;



ALTER INDEX public.tool_calls_search_idx ATTACH PARTITION sluice_parts.tool_calls_default_search_idx;



ALTER INDEX public.tool_calls_search_refused_idx ATTACH PARTITION sluice_parts.tool_calls_default_search_refused_idx;



ALTER INDEX public.tool_calls_tool_call_id_idx ATTACH PARTITION sluice_parts.tool_calls_default_tool_call_id_idx;



ALTER INDEX public.tool_calls_verdict_idx ATTACH PARTITION sluice_parts.tool_calls_default_verdict_idx;



ALTER INDEX public.tool_releases_pkey ATTACH PARTITION sluice_parts.tool_releases_default_pkey;



REVOKE ALL ON FUNCTION public.sluice_count_door(gateway text, minute timestamp with time zone, keys text[], codes text[], sums bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION public.sluice_count_door(gateway text, minute timestamp with time zone, keys text[], codes text[], sums bigint[]) TO sluice_writer;



REVOKE ALL ON FUNCTION public.sluice_drop_before(day date, why text) FROM PUBLIC;



REVOKE ALL ON FUNCTION public.sluice_ensure_partitions(first date, days integer) FROM PUBLIC;
GRANT ALL ON FUNCTION public.sluice_ensure_partitions(first date, days integer) TO sluice_writer;



REVOKE ALL ON FUNCTION public.sluice_ensure_partitions(first date, days integer, parent text) FROM PUBLIC;
GRANT ALL ON FUNCTION public.sluice_ensure_partitions(first date, days integer, parent text) TO sluice_writer;



REVOKE ALL ON FUNCTION public.sluice_ensure_reads(first date, months integer) FROM PUBLIC;
GRANT ALL ON FUNCTION public.sluice_ensure_reads(first date, months integer) TO sluice_writer;



REVOKE ALL ON FUNCTION public.sluice_forget(parent text, until date) FROM PUBLIC;



REVOKE ALL ON FUNCTION public.sluice_hold_redis(known bigint, mine text) FROM PUBLIC;
GRANT ALL ON FUNCTION public.sluice_hold_redis(known bigint, mine text) TO sluice_writer;



REVOKE ALL ON FUNCTION public.sluice_keep_digests(parent text, low uuid, high uuid) FROM PUBLIC;



REVOKE ALL ON FUNCTION public.sluice_queue_audits(given uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION public.sluice_queue_audits(given uuid[]) TO sluice_writer;



REVOKE ALL ON FUNCTION public.sluice_redact(given uuid, why text) FROM PUBLIC;



REVOKE ALL ON FUNCTION public.sluice_review(given uuid, its_block integer, by_id text, by_name text, said text, words text, beside boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION public.sluice_review(given uuid, its_block integer, by_id text, by_name text, said text, words text, beside boolean) TO sluice_reviewer;



REVOKE ALL ON FUNCTION public.sluice_roll_up(given timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION public.sluice_roll_up(given timestamp with time zone) TO sluice_writer;



REVOKE ALL ON FUNCTION public.sluice_shed(parent text, until date, why text) FROM PUBLIC;



REVOKE ALL ON FUNCTION public.sluice_sweep_page_sessions() FROM PUBLIC;
GRANT ALL ON FUNCTION public.sluice_sweep_page_sessions() TO sluice_page_server;



REVOKE ALL ON FUNCTION public.sluice_trim_debug_logs(days integer, most bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION public.sluice_trim_debug_logs(days integer, most bigint) TO sluice_writer;



GRANT SELECT ON TABLE public.alembic_version TO sluice_writer;
GRANT SELECT ON TABLE public.alembic_version TO sluice_reader;



GRANT SELECT ON TABLE public.api_keys TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.attempts TO sluice_writer;
GRANT SELECT ON TABLE public.attempts TO sluice_reader;



GRANT SELECT ON TABLE public.audit_reviews TO sluice_writer;
GRANT SELECT ON TABLE public.audit_reviews TO sluice_reader;



GRANT SELECT ON TABLE public.audits TO sluice_writer;
GRANT SELECT ON TABLE public.audits TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.blocks TO sluice_writer;
GRANT SELECT ON TABLE public.blocks TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.calls TO sluice_writer;
GRANT SELECT ON TABLE public.calls TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.ends TO sluice_writer;
GRANT SELECT ON TABLE public.ends TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.events TO sluice_writer;
GRANT SELECT ON TABLE public.events TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.tool_calls TO sluice_writer;
GRANT SELECT ON TABLE public.tool_calls TO sluice_reader;



GRANT SELECT ON TABLE public.call_log TO sluice_writer;
GRANT SELECT ON TABLE public.call_log TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.checkpoints TO sluice_writer;
GRANT SELECT ON TABLE public.checkpoints TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.chunks TO sluice_writer;
GRANT SELECT ON TABLE public.chunks TO sluice_reader;



GRANT SELECT ON TABLE public.chunk_log TO sluice_writer;
GRANT SELECT ON TABLE public.chunk_log TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.dead_letters TO sluice_writer;
GRANT SELECT ON TABLE public.dead_letters TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.debug_logs TO sluice_writer;
GRANT SELECT ON TABLE public.debug_logs TO sluice_reader;



GRANT SELECT ON TABLE public.debug_switches TO sluice_writer;
GRANT SELECT ON TABLE public.debug_switches TO sluice_reader;
GRANT INSERT ON TABLE public.debug_switches TO sluice_page_server;



GRANT SELECT,INSERT ON TABLE public.decisions TO sluice_writer;
GRANT SELECT ON TABLE public.decisions TO sluice_reader;



GRANT SELECT ON TABLE public.door_counts TO sluice_writer;
GRANT SELECT ON TABLE public.door_counts TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.histories TO sluice_writer;
GRANT SELECT ON TABLE public.histories TO sluice_reader;



GRANT SELECT ON TABLE public.identity TO sluice_writer;
GRANT SELECT ON TABLE public.identity TO sluice_reader;



GRANT SELECT ON TABLE public.judge_hours TO sluice_writer;
GRANT SELECT ON TABLE public.judge_hours TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.judgements TO sluice_writer;
GRANT SELECT ON TABLE public.judgements TO sluice_reader;



GRANT SELECT ON TABLE public.kept_digests TO sluice_writer;
GRANT SELECT ON TABLE public.kept_digests TO sluice_reader;



GRANT SELECT ON TABLE public.labels TO sluice_writer;
GRANT SELECT ON TABLE public.labels TO sluice_reader;
GRANT INSERT ON TABLE public.labels TO sluice_page_server;



GRANT SELECT,INSERT ON TABLE public.page_sessions TO sluice_page_server;



GRANT UPDATE(seen_at) ON TABLE public.page_sessions TO sluice_page_server;



GRANT UPDATE(until) ON TABLE public.page_sessions TO sluice_page_server;



GRANT SELECT ON TABLE public.reads TO sluice_writer;
GRANT SELECT ON TABLE public.reads TO sluice_reader;
GRANT INSERT ON TABLE public.reads TO sluice_noter;



GRANT SELECT ON TABLE public.redacted_calls TO sluice_writer;
GRANT SELECT ON TABLE public.redacted_calls TO sluice_reader;



GRANT SELECT ON TABLE public.redactions TO sluice_writer;
GRANT SELECT ON TABLE public.redactions TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.releases TO sluice_writer;
GRANT SELECT ON TABLE public.releases TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.request_bodies TO sluice_writer;
GRANT SELECT ON TABLE public.request_bodies TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.scores TO sluice_writer;
GRANT SELECT ON TABLE public.scores TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.seal_rows TO sluice_writer;
GRANT SELECT ON TABLE public.seal_rows TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.seals TO sluice_writer;
GRANT SELECT ON TABLE public.seals TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.tool_releases TO sluice_writer;
GRANT SELECT ON TABLE public.tool_releases TO sluice_reader;



GRANT SELECT ON TABLE public.tool_call_log TO sluice_writer;
GRANT SELECT ON TABLE public.tool_call_log TO sluice_reader;



GRANT SELECT,INSERT ON TABLE public.tree_tiles TO sluice_writer;
GRANT SELECT ON TABLE public.tree_tiles TO sluice_reader;



GRANT SELECT ON TABLE public.usage_hours TO sluice_writer;
GRANT SELECT ON TABLE public.usage_hours TO sluice_reader;

INSERT INTO public.identity DEFAULT VALUES;
INSERT INTO public.alembic_version (version_num) VALUES ('0030');
