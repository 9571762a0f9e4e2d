-- A tool call that waits for people: what they are asked about, bound to the key, session, tool, executor, arguments and policies that asked.
-- Functions alone write here. `outcome` and `used_by_call` are set once.
CREATE TABLE approvals (
    approval_id text NOT NULL PRIMARY KEY,
    call_id uuid NOT NULL,
    block integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    use_within interval NOT NULL,
    deny_for interval NOT NULL,
    binding bytea NOT NULL,
    binding_without_policy bytea NOT NULL,
    key text NOT NULL,
    key_id text NOT NULL,
    session text NOT NULL,
    policy text NOT NULL,
    revision text NOT NULL,
    tool text NOT NULL,
    server text NOT NULL,
    executor text NOT NULL,
    arguments bytea NOT NULL,
    rule text NOT NULL,
    why text NOT NULL,
    need integer NOT NULL CHECK (need BETWEEN 1 AND 2),
    approvers text[] NOT NULL,
    outcome text CHECK (outcome IN ('approved', 'denied', 'superseded')),
    decided_at timestamptz,
    decided_by text NOT NULL DEFAULT '',
    note text NOT NULL DEFAULT '',
    edited bytea,
    used_by_call uuid,
    used_by_block integer,
    CHECK ((outcome IS NULL) = (decided_at IS NULL))
);
CREATE INDEX approvals_binding_idx ON approvals (binding_without_policy, at);
CREATE INDEX approvals_open_idx ON approvals (key_id, at) WHERE outcome IS NULL;
CREATE INDEX approvals_at_idx ON approvals (at, approval_id);
CREATE INDEX approvals_call_idx ON approvals (call_id);

-- Which call waits for which request: its own, or that of an identical call before it. None: the key has too many open ones.
CREATE TABLE approval_asks (
    call_id uuid NOT NULL,
    block integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    approval_id text REFERENCES approvals ON DELETE CASCADE,
    is_policy_changed boolean NOT NULL,
    PRIMARY KEY (call_id, block)
);
CREATE INDEX approval_asks_approval_idx ON approval_asks (approval_id);

-- What each approver said, once.
CREATE TABLE approval_votes (
    approval_id text NOT NULL REFERENCES approvals ON DELETE CASCADE,
    voter_id text NOT NULL,
    voter text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    vote text NOT NULL CHECK (vote IN ('approve', 'deny')),
    note text NOT NULL CHECK (length(note) <= 10000),
    edited bytea CHECK (length(edited) <= 65536),
    PRIMARY KEY (approval_id, voter_id)
);

-- Which notices are still due to those whom the configuration names: that people are asked, and what became of it. `due` is NULL for what is done.
CREATE TABLE approval_notices (
    approval_id text NOT NULL REFERENCES approvals ON DELETE CASCADE,
    about text NOT NULL CHECK (about IN ('asked', 'ended')),
    due timestamptz,
    tries integer NOT NULL DEFAULT 0,
    sent text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (approval_id, about)
);
CREATE INDEX approval_notices_due_idx ON approval_notices (due) WHERE due IS NOT NULL;

-- In the transaction that asks or decides. The end is due when it expires, or as soon as there is an outcome.
CREATE FUNCTION sluice_note_approval() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO public.approval_notices (approval_id, about, due)
            VALUES (NEW.approval_id, 'asked', now()), (NEW.approval_id, 'ended', NEW.expires_at);
    ELSE
        UPDATE public.approval_notices n SET due = now(), tries = 0, sent = '{}'
            WHERE n.approval_id = NEW.approval_id AND n.about = 'ended';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER approvals_note AFTER INSERT OR UPDATE OF outcome ON approvals
    FOR EACH ROW EXECUTE FUNCTION sluice_note_approval();

-- An audit writer takes notices that are due, to send them: five times each, with pauses that grow. Who is killed while it sends leaves them due again.
CREATE FUNCTION sluice_take_notices(most integer) RETURNS SETOF approval_notices
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE public.approval_notices n SET tries = n.tries + 1,
        due = CASE WHEN n.tries < 4 THEN now() + make_interval(secs => 15 * power(4, n.tries)) END
        WHERE (n.approval_id, n.about) IN (SELECT d.approval_id, d.about FROM public.approval_notices d
            WHERE d.due BETWEEN now() - interval '1 hour' AND now() ORDER BY d.due LIMIT most FOR UPDATE SKIP LOCKED)
        RETURNING n.*;
$$;

-- It was sent to these; `is_done`: to all.
CREATE FUNCTION sluice_mark_notice(its_id text, its_about text, its_tries integer, names text[], is_done boolean) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE public.approval_notices n SET sent = names, due = CASE WHEN is_done THEN NULL ELSE n.due END
        WHERE n.approval_id = its_id AND n.about = its_about AND n.tries = its_tries;
$$;

-- A call asks. It waits for the request of an identical call before it that can still decide it, else for a new one.
CREATE FUNCTION sluice_ask_people(
    new_id text, its_call uuid, its_block integer, lasts_s integer, use_within_s integer, deny_for_s integer,
    its_binding bytea, without_policy bytea, its_key text, its_key_id text, its_session text, its_policy text,
    its_revision text, its_tool text, its_server text, its_executor text, its_arguments bytea, its_rule text, its_why text,
    needed integer, named text
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_id text;
    of_key bigint;
    of_session bigint;
    changed boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('sluice_approvals ' || its_key_id, 0));
    IF EXISTS (SELECT FROM public.approval_asks k WHERE k.call_id = its_call AND k.block = its_block)
        OR EXISTS (SELECT FROM public.redacted_calls r WHERE r.call_id = its_call) THEN
        RETURN 'known';
    END IF;
    SELECT a.approval_id INTO found_id FROM public.approvals a
        WHERE a.binding_without_policy = without_policy AND a.binding = its_binding AND CASE a.outcome
            WHEN 'approved' THEN a.used_by_call IS NULL AND now() < a.decided_at + a.use_within
            WHEN 'denied' THEN now() < a.decided_at + a.deny_for
            WHEN 'superseded' THEN false
            ELSE now() < a.expires_at END
        ORDER BY a.at DESC LIMIT 1;
    IF found_id IS NULL THEN
        UPDATE public.approvals a SET outcome = 'superseded', decided_at = coalesce(a.decided_at, now())
            WHERE a.binding_without_policy = without_policy AND a.binding <> its_binding AND a.policy = its_policy
                AND (a.outcome IS NULL AND now() < a.expires_at
                    OR a.outcome = 'approved' AND a.used_by_call IS NULL AND now() < a.decided_at + a.use_within);
        changed := FOUND;
        SELECT count(*), count(*) FILTER (WHERE a.session = its_session) INTO of_key, of_session FROM public.approvals a
            WHERE a.key_id = its_key_id AND a.outcome IS NULL AND now() < a.expires_at;
        IF of_key < 50 AND of_session < 10 THEN
            found_id := new_id;
            INSERT INTO public.approvals (approval_id, call_id, block, expires_at, use_within, deny_for, binding,
                binding_without_policy, key, key_id, session, policy, revision, tool, server, executor, arguments, rule,
                why, need, approvers)
            VALUES (new_id, its_call, its_block, now() + make_interval(secs => lasts_s), make_interval(secs => use_within_s),
                make_interval(secs => deny_for_s), its_binding, without_policy, its_key, its_key_id, its_session, its_policy,
                its_revision, its_tool, its_server, its_executor, its_arguments, its_rule, its_why, needed,
                coalesce(string_to_array(nullif(named, ''), E'\n'), '{}'));
        END IF;
    END IF;
    INSERT INTO public.approval_asks (call_id, block, approval_id, is_policy_changed)
        VALUES (its_call, its_block, found_id, coalesce(changed, false));
    RETURN coalesce(found_id, 'full');
END
$$;

-- Somebody decides. Returns `unknown`, `own` (the key that asked), `not_named`, `same`, `other` (this person said something else before),
-- `counted` (others are needed), or what became of it: `approved`, `denied`, `superseded`, `expired`.
CREATE FUNCTION sluice_decide_approval(its_id text, by_id text, by_name text, said text, words text, changed_to bytea)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked record;
    before record;
    agreeing bigint;
    result text;
BEGIN
    SELECT * INTO asked FROM public.approvals a WHERE a.approval_id = its_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'unknown';
    ELSIF asked.key_id = by_id OR asked.key = by_name THEN
        RETURN 'own';
    ELSIF cardinality(asked.approvers) > 0 AND NOT by_name = ANY (asked.approvers) THEN
        RETURN 'not_named';
    END IF;
    SELECT v.vote, v.edited INTO before FROM public.approval_votes v WHERE v.approval_id = its_id AND v.voter_id = by_id;
    IF FOUND THEN
        RETURN CASE WHEN before.vote = said AND before.edited IS NOT DISTINCT FROM changed_to THEN 'same' ELSE 'other' END;
    ELSIF asked.outcome IS NOT NULL THEN
        RETURN asked.outcome;
    ELSIF clock_timestamp() >= asked.expires_at THEN
        RETURN 'expired';
    END IF;
    INSERT INTO public.approval_votes (approval_id, voter_id, voter, vote, note, edited)
        VALUES (its_id, by_id, by_name, said, words, changed_to);
    SELECT count(DISTINCT v.voter) INTO agreeing FROM public.approval_votes v
        WHERE v.approval_id = its_id AND v.vote = 'approve' AND v.edited IS NOT DISTINCT FROM changed_to;
    result := CASE WHEN said = 'deny' THEN 'denied' WHEN agreeing >= asked.need THEN 'approved' ELSE 'counted' END;
    IF result <> 'counted' THEN
        UPDATE public.approvals a SET outcome = result, decided_at = clock_timestamp(), note = words, edited = changed_to,
            decided_by = (SELECT string_agg(DISTINCT v.voter, ', ') FROM public.approval_votes v
                WHERE v.approval_id = its_id AND v.vote = said AND v.edited IS NOT DISTINCT FROM changed_to)
            WHERE a.approval_id = its_id;
    END IF;
    RETURN result;
END
$$;

-- A call takes an approval, in the transaction that puts its release on record. Once: whoever comes second is not the one it says.
CREATE FUNCTION sluice_use_approval(its_id text, its_call uuid, its_block integer) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE public.approvals a SET used_by_call = its_call, used_by_block = its_block
        WHERE a.approval_id = its_id AND a.outcome = 'approved' AND a.used_by_call IS NULL;
    SELECT EXISTS (SELECT FROM public.approvals a
        WHERE a.approval_id = its_id AND a.used_by_call = its_call AND a.used_by_block = its_block);
$$;
REVOKE EXECUTE ON FUNCTION
    sluice_ask_people(text, uuid, integer, integer, integer, integer, bytea, bytea, text, text, text, text, text, text, text, text, bytea, text, text, integer, text),
    sluice_decide_approval(text, text, text, text, text, bytea),
    sluice_use_approval(text, uuid, integer),
    sluice_note_approval(),
    sluice_take_notices(integer),
    sluice_mark_notice(text, text, integer, text[], boolean)
FROM PUBLIC;
