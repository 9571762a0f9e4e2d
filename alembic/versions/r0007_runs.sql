-- Chunks and releases in runs: a row holds consecutive ones of a call, what all begin and end with once. `chunks` and `releases` become
-- views over the runs and over the rows of before, so whatever reads them reads the same. The partitions keep their names.
-- In the order in which readers lock them.
LOCK TABLE chunk_log, chunks, releases IN ACCESS EXCLUSIVE MODE;
ALTER TABLE chunks RENAME TO chunk_rows;
ALTER TABLE releases RENAME TO release_rows;

-- Chunks seq to last, at most 64. `ats` has two bytes for each: milliseconds after `at`. So has `ends`: where its bytes in `data` end, between what
-- all begin with, `head`, and `tail`. A redaction leaves these four empty.
CREATE TABLE chunk_runs (
    call_id uuid NOT NULL,
    seq integer NOT NULL,
    last integer NOT NULL,
    at timestamptz NOT NULL,
    verdict text NOT NULL,
    block integer NOT NULL,
    ats bytea NOT NULL,
    ends bytea NOT NULL,
    head bytea NOT NULL,
    tail bytea NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (call_id, seq)
) PARTITION BY RANGE (call_id);

-- Releases number to last, each of one session output but the last, which ends at number_next. `seqs` has two bytes for each: chunks after
-- `seq`. `sha256` is NULL where it is that of each payload.
CREATE TABLE release_runs (
    call_id uuid NOT NULL,
    number integer NOT NULL,
    last integer NOT NULL,
    number_next integer NOT NULL,
    at timestamptz NOT NULL,
    seq integer NOT NULL,
    ats bytea NOT NULL,
    seqs bytea NOT NULL,
    ends bytea NOT NULL,
    head bytea NOT NULL,
    tail bytea NOT NULL,
    data bytea NOT NULL,
    sha256 bytea,
    PRIMARY KEY (call_id, number)
) PARTITION BY RANGE (call_id);

DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
        ALTER TABLE chunk_runs ALTER COLUMN head SET COMPRESSION lz4;
        ALTER TABLE chunk_runs ALTER COLUMN data SET COMPRESSION lz4;
        ALTER TABLE release_runs ALTER COLUMN head SET COMPRESSION lz4;
        ALTER TABLE release_runs ALTER COLUMN data SET COMPRESSION lz4;
    END IF;
END
$$;
CREATE TABLE sluice_parts.chunk_runs_default PARTITION OF chunk_runs DEFAULT;
CREATE TABLE sluice_parts.release_runs_default PARTITION OF release_runs DEFAULT;

CREATE FUNCTION sluice_two_bytes(packed bytea, i integer) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN i < 0 THEN 0 ELSE get_byte(packed, 2 * i) * 256 + get_byte(packed, 2 * i + 1) END
$$;

CREATE FUNCTION sluice_opened(head bytea, data bytea, tail bytea, ends bytea, i integer) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN ends = ''::bytea THEN ''::bytea ELSE head || substring(data FROM 1 + public.sluice_two_bytes(ends, i - 1)
    FOR public.sluice_two_bytes(ends, i) - public.sluice_two_bytes(ends, i - 1)) || tail END
$$;

CREATE VIEW chunks AS
SELECT call_id, seq, at, raw, verdict, block FROM chunk_rows
UNION ALL
SELECT r.call_id, r.seq + i, r.at + sluice_two_bytes(r.ats, i) * interval '1 ms', sluice_opened(r.head, r.data, r.tail, r.ends, i),
    r.verdict, r.block
FROM chunk_runs r JOIN generate_series(0, 63) i ON i <= r.last - r.seq;

CREATE VIEW releases AS
SELECT call_id, number, number_next, at, seq, payload, sha256 FROM release_rows
UNION ALL
SELECT r.call_id, r.number + i, CASE WHEN r.number + i < r.last THEN r.number + i + 1 ELSE r.number_next END,
    r.at + sluice_two_bytes(r.ats, i) * interval '1 ms', r.seq + sluice_two_bytes(r.seqs, i),
    sluice_opened(r.head, r.data, r.tail, r.ends, i),
    CASE WHEN r.ends = ''::bytea THEN ''::bytea ELSE coalesce(r.sha256, sha256(sluice_opened(r.head, r.data, r.tail, r.ends, i))) END
FROM release_runs r JOIN generate_series(0, 63) i ON i <= r.last - r.number;

CREATE OR REPLACE VIEW chunk_log AS
SELECT k.call_id, k.seq, k.at, k.raw, k.block,
    CASE WHEN k.verdict <> 'hold' THEN k.verdict
         ELSE coalesce(b.verdict, t.verdict, CASE WHEN e.call_id IS NULL THEN 'hold' ELSE 'withheld' END) END AS verdict
FROM chunks k
LEFT JOIN tool_calls t ON t.call_id = k.call_id AND t.block = k.block
LEFT JOIN blocks b ON b.call_id = k.call_id AND b.block = k.block
LEFT JOIN ends e ON e.call_id = k.call_id;

-- Whoever writes chunks or releases of a call holds this until its transaction is over: no index finds runs that overlap.
CREATE FUNCTION sluice_call_lock(call_id uuid) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT ('x' || right(translate(call_id::text, '-', ''), 16))::bit(64)::bigint
$$;

-- For audit writers from before runs. The same row twice is no new one; another of its key they set aside.
CREATE FUNCTION sluice_add_chunk() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known record;
BEGIN
    PERFORM pg_advisory_xact_lock(public.sluice_call_lock(NEW.call_id));
    SELECT t.raw, t.verdict, t.block INTO known FROM public.chunks t WHERE t.call_id = NEW.call_id AND t.seq = NEW.seq;
    IF NOT FOUND THEN
        INSERT INTO public.chunk_rows (call_id, seq, at, raw, verdict, block)
            VALUES (NEW.call_id, NEW.seq, NEW.at, NEW.raw, NEW.verdict, NEW.block);
        RETURN NEW;
    END IF;
    IF (known.raw, known.verdict, known.block) IS DISTINCT FROM (NEW.raw, NEW.verdict, NEW.block) THEN
        RAISE EXCEPTION 'chunk % of call % differs from the one on record', NEW.seq, NEW.call_id USING ERRCODE = 'unique_violation';
    END IF;
    RETURN NULL;
END
$$;
CREATE FUNCTION sluice_add_release() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known record;
BEGIN
    PERFORM pg_advisory_xact_lock(public.sluice_call_lock(NEW.call_id));
    SELECT t.number_next, t.seq, t.payload, t.sha256 INTO known FROM public.releases t
        WHERE t.call_id = NEW.call_id AND t.number = NEW.number;
    IF NOT FOUND THEN
        INSERT INTO public.release_rows (call_id, number, number_next, at, seq, payload, sha256)
            VALUES (NEW.call_id, NEW.number, NEW.number_next, NEW.at, NEW.seq, NEW.payload, NEW.sha256);
        RETURN NEW;
    END IF;
    IF (known.number_next, known.seq, known.payload, known.sha256) IS DISTINCT FROM
        (NEW.number_next, NEW.seq, NEW.payload, NEW.sha256) THEN
        RAISE EXCEPTION 'release % of call % differs from the one on record', NEW.number, NEW.call_id USING ERRCODE = 'unique_violation';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER chunks_insert INSTEAD OF INSERT ON chunks FOR EACH ROW EXECUTE FUNCTION sluice_add_chunk();
CREATE TRIGGER releases_insert INSTEAD OF INSERT ON releases FOR EACH ROW EXECUTE FUNCTION sluice_add_release();

-- Takes rows of one table, as before, with its runs.
CREATE OR REPLACE FUNCTION sluice_shed(parent text, until date, why text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
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
    total bigint;
    names text[] := ARRAY[parent] || CASE parent WHEN 'chunks' THEN ARRAY['chunk_runs'] WHEN 'releases' THEN ARRAY['release_runs'] END;
    name text;
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
                WHERE c.relnamespace = 'sluice_parts'::regnamespace AND c.relname ~ ('^(' || array_to_string(names, '|') || ')_[0-9]{8}$')
                    AND to_date(right(c.relname, 8), 'YYYYMMDD') >= since AND to_date(right(c.relname, 8), 'YYYYMMDD') < until
            );
            FOREACH part IN ARRAY parts || ARRAY(SELECT l || '_default' FROM unnest(names) l) LOOP
                EXECUTE format('LOCK TABLE sluice_parts.%I IN SHARE ROW EXCLUSIVE MODE', part);
            END LOOP;
            EXECUTE format('SELECT count(*) FROM public.%I WHERE call_id >= $1 AND call_id < $2', parent) INTO total USING low, bound;
            SELECT count(*), coalesce(sum(k.rows), 0) INTO calls, n FROM public.kept_digests k
                WHERE k.place = spot - 1 AND k.call_id >= low AND k.call_id < bound;
            IF total <> n THEN
                refused := -4;
                EXIT;
            END IF;
            FOREACH name IN ARRAY names LOOP
                EXECUTE format('DELETE FROM sluice_parts.%I WHERE call_id >= $1 AND call_id < $2', name || '_default') USING low, bound;
            END LOOP;
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
$$;
