-- The whole schema of version 0.2.0, the first release. What changes it is a migration of its own: this file stays as it is.
--
-- Names in functions are qualified and their search_path is fixed, so that a caller's temporary table cannot stand in for one of ours.
-- `public` there stands for the schema in which the migrating user makes tables: the migration puts its name in. Who may do what is
-- granted after each migration (db/migrations/rights.py). The functions that go through all tables of a call are written from their columns
-- (db/migrations/sealed.py).
--
-- The record is append-only: a verdict, a release and an end are rows of their own, joined by the views. Every table of a call is
-- partitioned by call_id, a UUIDv7 and so ordered by time: a lookup by call reads one partition. Model output is bytea.

-- Partitions lie apart from the tables that people list.
CREATE SCHEMA sluice_parts;


-- === The tables of a call, which seals cover. Their columns are those of the records (protocol/records.py).

-- A call that a worker claimed.
CREATE TABLE calls (
    call_id uuid NOT NULL,
    at timestamptz NOT NULL,
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
    key_id text NOT NULL,
    policy_set text NOT NULL,
    body_sha256 bytea,
    user_agent text NOT NULL,
    start text NOT NULL,
    PRIMARY KEY (call_id)
) PARTITION BY RANGE (call_id);
CREATE INDEX calls_key_id_idx ON calls (key_id, call_id);
CREATE INDEX calls_key_idx ON calls (key, call_id);
CREATE INDEX calls_model_idx ON calls (model, call_id);
CREATE INDEX calls_policy_idx ON calls (policy, call_id);
CREATE INDEX calls_session_idx ON calls (session, call_id);

-- The request as the client sent it.
CREATE TABLE request_bodies (
    call_id uuid NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (call_id)
) PARTITION BY RANGE (call_id);

-- One upstream event as it came, with what was known of its verdict when it was processed.
CREATE TABLE chunks (
    call_id uuid NOT NULL,
    seq integer NOT NULL,
    at timestamptz NOT NULL,
    raw bytea NOT NULL,
    verdict text NOT NULL,
    block integer NOT NULL,
    PRIMARY KEY (call_id, seq)
) PARTITION BY RANGE (call_id);

-- Bytes handed to the client: session outputs number to number_next - 1, covering chunks up to seq.
CREATE TABLE releases (
    call_id uuid NOT NULL,
    number integer NOT NULL,
    number_next integer NOT NULL,
    at timestamptz NOT NULL,
    seq integer NOT NULL,
    payload bytea NOT NULL,
    sha256 bytea NOT NULL,
    PRIMARY KEY (call_id, number)
) PARTITION BY RANGE (call_id);

-- The verdict on a content block that is not a tool call, or the later word on one that is.
CREATE TABLE blocks (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    at timestamptz NOT NULL,
    kind text NOT NULL,
    verdict text NOT NULL,
    reason text NOT NULL,
    policy text NOT NULL,
    rule text,
    PRIMARY KEY (call_id, block)
) PARTITION BY RANGE (call_id);
CREATE INDEX blocks_later_idx ON blocks (call_id, block) INCLUDE (verdict, policy) WHERE kind NOT IN ('text', 'thinking');
CREATE INDEX blocks_reason_idx ON blocks USING gin (to_tsvector('simple', reason)) WHERE verdict NOT IN ('allow', 'replace');
CREATE INDEX blocks_refused_idx ON blocks (call_id, block) WHERE verdict NOT IN ('allow', 'replace');
CREATE INDEX blocks_verdict_idx ON blocks (verdict, call_id);

-- A complete tool call with its verdict. search holds the words of name, arguments, reason and rule.
CREATE TABLE tool_calls (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    index integer NOT NULL,
    choice integer NOT NULL,
    at timestamptz NOT NULL,
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
    rule text,
    PRIMARY KEY (call_id, block)
) PARTITION BY RANGE (call_id);
CREATE INDEX tool_calls_name_idx ON tool_calls (name, call_id);
CREATE INDEX tool_calls_policy_idx ON tool_calls (policy, call_id);
CREATE INDEX tool_calls_refused_idx ON tool_calls (call_id, block) WHERE verdict NOT IN ('allow', 'replace');
CREATE INDEX tool_calls_search_idx ON tool_calls USING gin (search);
-- Refused tool calls are looked for among judge blocks, and are few beside all others.
CREATE INDEX tool_calls_search_refused_idx ON tool_calls USING gin (search) WHERE verdict NOT IN ('allow', 'replace');
-- Finds a tool call by the id that its client has.
CREATE INDEX tool_calls_tool_call_id_idx ON tool_calls (tool_call_id, call_id);
CREATE INDEX tool_calls_verdict_idx ON tool_calls (verdict, call_id);

-- A tool call, or the text in its place, was released.
CREATE TABLE tool_releases (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (call_id, block)
) PARTITION BY RANGE (call_id);

-- A judge's answer, for allows too; the highest step of a block is the last one asked.
CREATE TABLE judgements (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    step integer NOT NULL,
    at timestamptz NOT NULL,
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
    output_tokens bigint,
    PRIMARY KEY (call_id, block, step)
) PARTITION BY RANGE (call_id);
CREATE INDEX judgements_policy_idx ON judgements (policy, call_id);

-- The one terminal record of a call.
CREATE TABLE ends (
    call_id uuid NOT NULL,
    at timestamptz NOT NULL,
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
    relayed_sha256 bytea,
    PRIMARY KEY (call_id)
) PARTITION BY RANGE (call_id);

-- Something worth knowing about a call: takeover, fenced, withheld, fault, incomplete.
CREATE TABLE events (
    call_id uuid NOT NULL,
    kind text NOT NULL,
    number bigint NOT NULL,
    at timestamptz NOT NULL,
    detail text NOT NULL,
    PRIMARY KEY (call_id, kind, number)
) PARTITION BY RANGE (call_id);
CREATE INDEX events_incomplete_idx ON events (call_id) WHERE kind = 'incomplete';

-- What a monitor measured of a content block.
CREATE TABLE scores (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    step integer NOT NULL,
    at timestamptz NOT NULL,
    monitor text NOT NULL,
    policy text NOT NULL,
    value double precision,
    dims text NOT NULL,
    why text NOT NULL,
    error text NOT NULL,
    latency_ms integer,
    input_tokens bigint,
    output_tokens bigint,
    PRIMARY KEY (call_id, block, step)
) PARTITION BY RANGE (call_id);

-- What a protocol made of the scores of a content block.
CREATE TABLE decisions (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    step integer NOT NULL,
    at timestamptz NOT NULL,
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
    u double precision,
    PRIMARY KEY (call_id, block, step)
) PARTITION BY RANGE (call_id);

-- One of several upstream answers to a request of a call.
CREATE TABLE attempts (
    call_id uuid NOT NULL,
    segment integer NOT NULL,
    attempt integer NOT NULL,
    at timestamptz NOT NULL,
    kind text NOT NULL,
    upstream text NOT NULL,
    model text NOT NULL,
    first_seq integer NOT NULL,
    end_seq integer NOT NULL,
    chosen boolean NOT NULL,
    input_tokens bigint,
    output_tokens bigint,
    PRIMARY KEY (call_id, segment, attempt)
) PARTITION BY RANGE (call_id);


-- === Seals

-- A leaf of the tree: a call's rows as they were at that moment, counted by table and hashed. Parts after 0 have rows added.
-- form is the version in which the rows were hashed (db/canonical.py), made_for the one that the tables had then: the column's default,
-- which nobody names. Part -1 says that the rows of all calls before call_id were dropped, part -2 those of one table; their form is 0.
CREATE TABLE seals (
    position bigint NOT NULL,
    call_id uuid NOT NULL,
    part integer NOT NULL,
    at timestamptz NOT NULL,
    counts bigint[] NOT NULL,
    sha256 bytea NOT NULL,
    note text NOT NULL,
    form integer NOT NULL DEFAULT 0,
    made_for integer NOT NULL DEFAULT 1,
    PRIMARY KEY (position)
);
-- Seals of processes that knew fewer columns than the tables had: the next writer that knows all adds a part.
CREATE INDEX seals_beside_idx ON seals (call_id) WHERE form < made_for;
CREATE UNIQUE INDEX seals_call_id_idx ON seals (call_id, part);
CREATE INDEX seals_gone_idx ON seals (call_id) WHERE part < 0;

-- What a seal keeps for as long as the call's rows are there: the salt of their content and a mark of each row.
CREATE TABLE seal_rows (
    call_id uuid NOT NULL,
    part integer NOT NULL,
    salt bytea,
    marks bytea NOT NULL,
    PRIMARY KEY (call_id, part)
) PARTITION BY RANGE (call_id);

-- The tree at one size: the text to be kept elsewhere, and what is needed to go on from there.
CREATE TABLE checkpoints (
    size bigint NOT NULL,
    text text NOT NULL,
    peaks bytea NOT NULL,
    sha256 bytea NOT NULL,
    PRIMARY KEY (size)
);

-- Inner nodes of the tree: 256 of a level, and the root over them. Made of the seals, and may be again.
CREATE TABLE tree_tiles (
    level integer NOT NULL,
    index bigint NOT NULL,
    hashes bytea NOT NULL,
    root bytea NOT NULL,
    PRIMARY KEY (level, index)
);

-- Hashes do not compress: each try costs.
ALTER TABLE tree_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL;

-- What is left of a redacted row's content: its salted hashes.
CREATE TABLE redactions (
    call_id uuid NOT NULL,
    table_name text NOT NULL,
    row_key bytea NOT NULL,
    hashes bytea NOT NULL,
    PRIMARY KEY (call_id, table_name, row_key)
) PARTITION BY RANGE (call_id);

-- A call whose content was deleted: audit writers ask for it before they write more of the call. It outlives the call's rows.
CREATE TABLE redacted_calls (
    call_id uuid NOT NULL,
    PRIMARY KEY (call_id)
);

-- What is left of a call's rows in one table after they went: their number and digest, by the place of the table.
CREATE TABLE kept_digests (
    call_id uuid NOT NULL,
    place integer NOT NULL,
    rows bigint NOT NULL,
    sha256 bytea NOT NULL,
    PRIMARY KEY (call_id, place)
);


-- === Beside the record: no seal covers these

-- Which database this is: one row. Redis holds the id, and the number of the primary that it is (db/migrations/primaries.py).
CREATE TABLE identity (
    is_only boolean NOT NULL DEFAULT true CHECK (is_only),
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    redis_number bigint NOT NULL DEFAULT 0,
    redis_run_id text NOT NULL DEFAULT '',
    redis_seen_at timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (is_only)
);

INSERT INTO identity DEFAULT VALUES;

-- API keys by the SHA-256 of their text. All numbers lie in settings: a new one needs no migration.
CREATE TABLE api_keys (
    sha256 bytea NOT NULL,
    name text NOT NULL,
    roles text[] NOT NULL,
    policies text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,
    server_tools text[] NOT NULL DEFAULT '{}',
    settings jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(settings) = 'object'),
    expires_at timestamptz,
    PRIMARY KEY (sha256)
);
CREATE UNIQUE INDEX api_keys_name_idx ON api_keys (name) WHERE revoked_at IS NULL;

-- A record that PostgreSQL refused, as its msgpack bytes, set aside so that the others could land.
CREATE TABLE dead_letters (
    sha256 bytea NOT NULL,
    call_id text NOT NULL,
    kind text NOT NULL,
    raw bytea NOT NULL,
    reason text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (sha256)
);
-- What should be a call's id can be any text.
CREATE INDEX dead_letters_call_id_idx ON dead_letters ("left"(call_id, 36));

-- What the request of a call repeats of those before it (protocol/conversations/histories.py). Made of the request body, and can be made again.
CREATE TABLE histories (
    call_id uuid NOT NULL,
    session text NOT NULL,
    turns integer NOT NULL,
    marks bytea NOT NULL,
    offsets bytea NOT NULL,
    preview text NOT NULL,
    is_side boolean NOT NULL,
    PRIMARY KEY (call_id)
) PARTITION BY RANGE (call_id);

-- A decision that a person is to look at. day (UTC), policy and key_id name the budget that it is of. Functions alone write here.
CREATE TABLE audits (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    step integer NOT NULL,
    at timestamptz NOT NULL,
    day date NOT NULL,
    policy text NOT NULL,
    key text NOT NULL,
    key_id text NOT NULL,
    why text NOT NULL CHECK (why IN ('sampled', 'suspicion')),
    score double precision,
    u double precision NOT NULL,
    budget integer,
    state text NOT NULL CHECK (state IN ('waiting', 'over_budget', 'reviewed')),
    PRIMARY KEY (call_id, block)
);
CREATE INDEX audits_budget_idx ON audits (policy, key_id, day) WHERE state <> 'over_budget';
CREATE INDEX audits_state_idx ON audits (state, call_id, block);

-- What somebody said of such a decision: the newest of each auditor counts.
CREATE TABLE audit_reviews (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    number integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    auditor_id text NOT NULL,
    auditor text NOT NULL,
    label text NOT NULL CHECK (label IN ('honest', 'attack', 'unclear')),
    note text NOT NULL CHECK (length(note) <= 10000),
    PRIMARY KEY (call_id, block, number)
);

-- What the calls that began in an hour came to, by key, model, policy and revision. sluice_roll_up alone writes here.
CREATE TABLE usage_hours (
    hour timestamptz NOT NULL,
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
    judge_ms_sum bigint NOT NULL,
    PRIMARY KEY (hour, place)
);
CREATE INDEX usage_hours_key_idx ON usage_hours (key, hour);
CREATE INDEX usage_hours_policy_idx ON usage_hours (policy, hour);

-- How often judges' answers of an hour fell into a class of latency or, with a threshold, of probability. Likewise.
CREATE TABLE judge_hours (
    hour timestamptz NOT NULL,
    place integer NOT NULL,
    policy text NOT NULL,
    revision text NOT NULL,
    figure text NOT NULL CHECK (figure IN ('ms', 'probability')),
    threshold double precision,
    class integer NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (hour, place)
);
CREATE INDEX judge_hours_policy_idx ON judge_hours (policy, hour);

-- A login to the pages. The text of the cookie is nowhere, nor is the key.
CREATE TABLE page_sessions (
    token_sha256 bytea NOT NULL,
    key_sha256 bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    until timestamptz NOT NULL,
    agent text NOT NULL,
    PRIMARY KEY (token_sha256)
);

-- Somebody was shown content of the record: who, when, what of it. Written before it was sent.
CREATE TABLE reads (
    at timestamptz NOT NULL DEFAULT now(),
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    key text NOT NULL,
    key_id text NOT NULL,
    session text NOT NULL,
    path text NOT NULL,
    filters text NOT NULL,
    call_ids uuid[] NOT NULL,
    rows integer NOT NULL,
    PRIMARY KEY (at, id)
) PARTITION BY RANGE (at);
-- Who saw this call: asked by admins, and by what redacts a call.
CREATE INDEX reads_call_ids_idx ON reads USING gin (call_ids);

-- What a reader said of a decision: the newest of a block counts.
CREATE TABLE labels (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    key text NOT NULL,
    key_id text NOT NULL,
    label text NOT NULL CHECK (label IN ('right', 'wrong', 'unsure')),
    note text NOT NULL CHECK (length(note) <= 10000),
    PRIMARY KEY (call_id, block, at)
);

-- Debug logs that an admin switched on for a key, until when.
CREATE TABLE debug_switches (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    key text NOT NULL,
    loggers text[] NOT NULL,
    content boolean NOT NULL,
    by text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    until timestamptz NOT NULL,
    PRIMARY KEY (id)
);

-- A line of a debug log. Lines may be lost, and go after some days.
CREATE TABLE debug_logs (
    call_id uuid NOT NULL,
    process text NOT NULL,
    n integer NOT NULL,
    at timestamptz NOT NULL,
    type text NOT NULL,
    event text NOT NULL,
    seq integer,
    number integer,
    block integer,
    policy text,
    hook text,
    duration_us integer,
    bytes integer,
    detail bytea NOT NULL,
    PRIMARY KEY (call_id, process, n)
) PARTITION BY RANGE (call_id);
CREATE INDEX debug_logs_type_idx ON debug_logs (type, call_id);

-- How many requests a gateway had refused with this key and error code since it started, at the end of a minute.
CREATE TABLE door_counts (
    gateway text NOT NULL,
    key text NOT NULL,
    code text NOT NULL,
    minute timestamptz NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (gateway, key, code, minute)
);
CREATE INDEX door_counts_minute_idx ON door_counts (minute);


-- === Partitions for rows of days that have none of their own, made when all settings of columns are known

-- Where the server has no lz4, request bodies lie as they came: its own compression took 26 ms of CPU for the 1 MB of an agent, more than
-- all of Sluice takes until the first token, and saves half the space.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
        ALTER TABLE request_bodies ALTER COLUMN body SET COMPRESSION lz4;
        ALTER TABLE chunks ALTER COLUMN raw SET COMPRESSION lz4;
        ALTER TABLE releases ALTER COLUMN payload SET COMPRESSION lz4;
        ALTER TABLE tool_calls ALTER COLUMN arguments SET COMPRESSION lz4;
        ALTER TABLE tool_calls ALTER COLUMN released_arguments SET COMPRESSION lz4;
        ALTER TABLE judgements ALTER COLUMN prompt SET COMPRESSION lz4;
        ALTER TABLE judgements ALTER COLUMN reply SET COMPRESSION lz4;
    ELSE
        ALTER TABLE request_bodies ALTER COLUMN body SET STORAGE EXTERNAL;
    END IF;
END
$$;
CREATE TABLE sluice_parts.calls_default PARTITION OF calls DEFAULT;
CREATE TABLE sluice_parts.request_bodies_default PARTITION OF request_bodies DEFAULT;
CREATE TABLE sluice_parts.chunks_default PARTITION OF chunks DEFAULT;
CREATE TABLE sluice_parts.releases_default PARTITION OF releases DEFAULT;
CREATE TABLE sluice_parts.blocks_default PARTITION OF blocks DEFAULT;
CREATE TABLE sluice_parts.tool_calls_default PARTITION OF tool_calls DEFAULT;
CREATE TABLE sluice_parts.tool_releases_default PARTITION OF tool_releases DEFAULT;
CREATE TABLE sluice_parts.judgements_default PARTITION OF judgements DEFAULT;
CREATE TABLE sluice_parts.ends_default PARTITION OF ends DEFAULT;
CREATE TABLE sluice_parts.events_default PARTITION OF events DEFAULT;
CREATE TABLE sluice_parts.scores_default PARTITION OF scores DEFAULT;
CREATE TABLE sluice_parts.decisions_default PARTITION OF decisions DEFAULT;
CREATE TABLE sluice_parts.attempts_default PARTITION OF attempts DEFAULT;
CREATE TABLE sluice_parts.seal_rows_default PARTITION OF seal_rows DEFAULT;
CREATE TABLE sluice_parts.redactions_default PARTITION OF redactions DEFAULT;
CREATE TABLE sluice_parts.histories_default PARTITION OF histories DEFAULT;
CREATE TABLE sluice_parts.debug_logs_default PARTITION OF debug_logs DEFAULT;
CREATE TABLE sluice_parts.reads_default PARTITION OF reads DEFAULT;


-- === Time

-- The first 48 bits of a UUIDv7 are Unix milliseconds. PostgreSQL 15 has no function for them.
CREATE FUNCTION sluice_call_at(call_id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT to_timestamp(('x' || substr(replace(call_id::text, '-', ''), 1, 12))::bit(48)::bigint / 1000.0)
$$;

-- The time by which something old may go: the earliest of three clocks, if they agree. A clock that is ahead makes the rows of today look
-- old. So every function that deletes or drops rows for their age asks this one instead of now(). Its caller first tells the session what
-- its own clock and Redis' say (db/agreed_time.py). Where it did not, or where the clocks differ, the answer is NULL, and nothing is older.
CREATE FUNCTION sluice_agreed_now() RETURNS timestamptz LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN count(*) = 3 AND max(clock.at) - min(clock.at) <= interval '3600 seconds' THEN min(clock.at) END
    FROM (
        SELECT now() AS at
        UNION ALL SELECT to_timestamp(shown::float8) FROM unnest(string_to_array(current_setting('sluice.clocks', true), ',')) shown
    ) clock
$$;


-- === Views

-- A block row on a tool call's own block is a later word on it (its commit came too late, or the call ended first), and the last one.
CREATE VIEW call_log AS
SELECT c.call_id, sluice_call_at(c.call_id) AS created_at, c.at AS claimed_at, e.at AS ended_at, c.dialect, c.endpoint, c.key,
    c.session, c.model, c.upstream, c.policy, c.policy_revision, c.stream, c.gateway, coalesce(e.state, 'ACTIVE') AS state,
    e.reason, e.status, e.stop_reason, e.relayed, e.input_tokens, e.output_tokens, e.cache_read_tokens, e.cache_write_tokens,
    e.thinking_tokens, n.tool_calls, n.tool_calls_blocked, c.key_id, c.policy_set,
    EXISTS (SELECT FROM events v WHERE v.call_id = c.call_id AND v.kind = 'incomplete') AS incomplete
FROM calls c
LEFT JOIN ends e ON e.call_id = c.call_id
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS tool_calls,
        (count(*) FILTER (WHERE coalesce(b.verdict, t.verdict) = 'block'))::integer AS tool_calls_blocked
    FROM tool_calls t LEFT JOIN blocks b ON b.call_id = t.call_id AND b.block = t.block WHERE t.call_id = c.call_id
) n;

CREATE VIEW tool_call_log AS
SELECT t.call_id, t.block, t.tool_call_id, t.index, t.choice, t.name, t.arguments,
    CASE WHEN b.call_id IS NULL THEN t.released_arguments END AS released_arguments, t.executor, t.form, t.schema_valid,
    coalesce(b.verdict, t.verdict) AS verdict, coalesce(b.reason, t.reason) AS reason, coalesce(b.policy, t.policy) AS policy,
    c.policy AS call_policy, c.policy_revision, c.session, c.key, c.model, c.upstream,
    sluice_call_at(t.call_id) AS created_at, t.at AS decided_at, r.at AS released_at, e.at AS ended_at, t.search,
    j.model AS judge_model, j.policy AS judge_policy, j.probability AS judge_probability, j.threshold AS judge_threshold,
    j.explanation AS judge_explanation, j.prompt AS judge_prompt, j.reply AS judge_reply, j.latency_ms AS judge_latency_ms,
    j.attempts AS judge_attempts, j.error AS judge_error, c.key_id, CASE WHEN b.call_id IS NULL THEN t.rule ELSE b.rule END AS rule
FROM tool_calls t
LEFT JOIN calls c ON c.call_id = t.call_id
LEFT JOIN ends e ON e.call_id = t.call_id
LEFT JOIN blocks b ON b.call_id = t.call_id AND b.block = t.block
LEFT JOIN tool_releases r ON r.call_id = t.call_id AND r.block = t.block
LEFT JOIN LATERAL (
    -- by name: a later column must not depend on the view
    SELECT g.call_id, g.block, g.step, g.at, g.model, g.policy, g.probability, g.threshold, g.explanation, g.prompt, g.reply, g.latency_ms,
        g.attempts, g.error
    FROM judgements g WHERE g.call_id = t.call_id AND g.block = t.block ORDER BY g.step DESC LIMIT 1
) j ON true;

CREATE VIEW chunk_log AS
SELECT k.call_id, k.seq, k.at, k.raw, k.block,
    CASE WHEN k.verdict <> 'hold' THEN k.verdict
         ELSE coalesce(b.verdict, t.verdict, CASE WHEN e.call_id IS NULL THEN 'hold' ELSE 'withheld' END) END AS verdict
FROM chunks k
LEFT JOIN tool_calls t ON t.call_id = k.call_id AND t.block = k.block
LEFT JOIN blocks b ON b.call_id = k.call_id AND b.block = k.block
LEFT JOIN ends e ON e.call_id = k.call_id;


-- === Partitions of months

-- A month whose rows already lie in the default partition stays there: moving them would lock the table under traffic.
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


-- === What takes rows of single tables away, for the owner of the tables and for who has the right

-- Takes the rows of one table until a day. Rows are hashed before the lock for which sealing waits: a day may take a minute. What was sealed
-- meanwhile is looked for under it, and what was inserted meanwhile under a lock of the days that go: as many rows go as were hashed, and
-- as the seals count. They are counted after the locks, each time by a new look: under another level than READ COMMITTED it would be that
-- of before, and what came meanwhile went uncounted with its table. Whoever drops a partition keeps all inserts into the table waiting from
-- the moment it asks. So it asks for 200 ms, then lets all locks go and tries again; and all that takes long is done before.
-- -1: a call has no seal; -2: one is under no checkpoint; -3: one was sealed meanwhile; -4: there are other rows than seals count.
CREATE FUNCTION sluice_shed(parent text, until date, why text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
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
$$;

-- Takes rows that no seal covers.
CREATE FUNCTION sluice_forget(parent text, until date) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' SET timezone = 'UTC' AS $$
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
$$;


-- === The queue of decisions that a person is to look at

-- A row is made of the rows of a call in the transaction that seals them, under the lock of all who seal. So a decision is queued once,
-- whoever inserted it and how often, and two writers never count a budget at the same time. Of a block that several steps of a policy want
-- looked at one row is made, the most suspicious.
--
-- The budget is of a policy, a key and a day, so no key spends another's. Half of it is kept for the sample and half for suspicion, and what
-- one does not need the other has: whoever makes many suspicious calls does not end the sample, nor the other way round. Within each half it
-- is no race: of suspicion the highest scores wait, of the sample the lowest draws, and ties go by the draw, which nobody outside knows. A
-- budget by order of arrival could be spent with noise in the morning, for an attack in the afternoon. So a row that waits goes over the
-- budget when one comes that is before it. None comes back: what stands before a row only grows. What is reviewed stays so, and is spent.
CREATE FUNCTION sluice_queue_audits(given uuid[]) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
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

-- One row is locked for the time of one statement, which is what two auditors of the same decision wait for, and who seals.
CREATE FUNCTION sluice_review(given uuid, its_block integer, by_id text, by_name text, said text, words text, beside boolean)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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


-- === The figures of each hour

-- An hour is that in which calls began. Its rows are made anew as a whole, so a row that came late is counted the next time, and two writers
-- at once make the same. What makes them also answers for the hour that is not over, so a page and the tables cannot count in two ways. They
-- hold names and numbers alone: a redaction leaves them as they are, and so does the drop of a day, whose hours are not made anew after it.
--
-- A call whose beginning was lost, or that no worker began, is counted without names. Each table is restricted to the hour by itself:
-- PostgreSQL reads only the days that a condition on the table leaves. The later word on a tool call is the one that counts, as in lists.
CREATE FUNCTION sluice_usage(low uuid, high uuid) RETURNS TABLE (key text, model text, policy text, revision text, calls bigint, failed bigint, tool_calls bigint, refused bigint, replaced bigint, blocks_refused bigint, blocks_replaced bigint, faults bigint, input_tokens bigint, output_tokens bigint, cached_tokens bigint, judge_n bigint, judge_failed bigint, judge_late bigint, judge_over bigint, judge_ms_sum bigint)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
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

-- Ten classes of the probability, 1.0 in the last; of the latency 60, each ending at 1.25 times the one before, of answers alone: what never
-- came has no time.
CREATE FUNCTION sluice_judged(low uuid, high uuid)
RETURNS TABLE (policy text, revision text, figure text, threshold double precision, class integer, n bigint)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
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

CREATE FUNCTION sluice_roll_up(given timestamptz) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan AS $$
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


-- === Beside the record

-- Counts the primaries of Redis (db/migrations/primaries.py). Returns the number of the primary `mine`, which Redis knows as `known`; NULL
-- where a later one is held, -1 for that of a second Sluice. 0: it is not counted, as Redis does not say its run id, or is empty and the one
-- that is held was in use lately.
CREATE FUNCTION sluice_hold_redis(known bigint, mine text) RETURNS bigint LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
    UPDATE public.identity SET redis_number = greatest(redis_number, coalesce(known, 0)) + (mine <> redis_run_id)::int,
        redis_run_id = mine, redis_seen_at = now()
    WHERE mine <> '' AND CASE WHEN mine <> redis_run_id THEN known >= redis_number OR redis_seen_at < now() - interval '120 s'
        ELSE known > redis_number OR redis_seen_at < now() - interval '5 s' END;
    SELECT CASE WHEN mine = redis_run_id THEN redis_number WHEN known IS NULL AND mine NOT IN ('', redis_run_id) AND redis_seen_at > now() - interval '10 s' THEN -1 WHEN mine = '' OR known IS NULL THEN 0 END
        FROM public.identity
$$;

CREATE FUNCTION sluice_sweep_page_sessions() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (DELETE FROM public.page_sessions s WHERE s.until < now() - interval '1 day' RETURNING 1) SELECT count(*) FROM gone
$$;

-- A gateway's sums only grow, so a line that comes twice, late or never costs nothing.
CREATE FUNCTION sluice_count_door(gateway text, minute timestamptz, keys text[], codes text[], sums bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO public.door_counts AS d (gateway, minute, key, code, n)
        SELECT sluice_count_door.gateway, date_trunc('minute', sluice_count_door.minute), u.key, u.code, max(u.n)
        FROM unnest(keys, codes, sums) u (key, code, n) GROUP BY 1, 2, 3, 4
        ON CONFLICT ON CONSTRAINT door_counts_pkey DO UPDATE SET n = greatest(d.n, excluded.n);
END
$$;

-- Rows of days without a partition, for example of a clock that is wrong, lie in the default one. Those that are too old go by themselves.
-- Where clocks differ, `today` is NULL and nothing goes for its age; past the room there is, the oldest go all the same. Emptied as a whole
-- the default partition is only where it alone takes a quarter of the room: else it would take that of all days after it, each time anew.
CREATE FUNCTION sluice_trim_debug_logs(days integer, most bigint) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
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
$$;


-- === Nobody may run what writes or deletes until he gets the right

REVOKE ALL ON FUNCTION
    sluice_ensure_reads(date, integer),
    sluice_shed(text, date, text),
    sluice_forget(text, date),
    sluice_queue_audits(uuid[]),
    sluice_review(uuid, integer, text, text, text, text, boolean),
    sluice_roll_up(timestamptz),
    sluice_hold_redis(bigint, text),
    sluice_sweep_page_sessions(),
    sluice_count_door(text, timestamptz, text[], text[], bigint[]),
    sluice_trim_debug_logs(integer, bigint)
FROM PUBLIC;
