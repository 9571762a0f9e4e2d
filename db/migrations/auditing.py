"""The queue of decisions that a person is to look at, as functions in the database: no login writes its tables in any other way.

A row is made of the rows of a call in the transaction that seals them, under the lock of all who seal. So a decision is queued once,
whoever inserted it and how often, and two writers never count a budget at the same time. Must not know: connections.
"""

from typing import Final

from db.locks import SEAL_LOCK

QUEUE: Final = "sluice_queue_audits(uuid[])"
REVIEW: Final = "sluice_review(uuid, integer, text, text, text, text, boolean)"
MAX_REVIEWS = 100
"""Reviews of one decision that are kept, changed labels among them."""
MAX_NOTE_CHARS = 10_000
"""Of a note as its column holds it, where each character may be five (`db.text`)."""
TABLES = (
    """CREATE TABLE audits (
        call_id uuid NOT NULL, block integer NOT NULL, step integer NOT NULL, at timestamptz NOT NULL, day date NOT NULL,
        policy text NOT NULL, key text NOT NULL, key_id text NOT NULL,
        why text NOT NULL CHECK (why IN ('sampled', 'suspicion')), score double precision,
        u double precision NOT NULL, budget integer, state text NOT NULL CHECK (state IN ('waiting', 'over_budget', 'reviewed')),
        PRIMARY KEY (call_id, block))""",
    "CREATE INDEX audits_state_idx ON audits (state, call_id, block)",
    "CREATE INDEX audits_budget_idx ON audits (policy, key_id, day) WHERE state <> 'over_budget'",
    f"""CREATE TABLE audit_reviews (
        call_id uuid NOT NULL, block integer NOT NULL, number integer NOT NULL, at timestamptz NOT NULL DEFAULT now(),
        auditor_id text NOT NULL, auditor text NOT NULL, label text NOT NULL CHECK (label IN ('honest', 'attack', 'unclear')),
        note text NOT NULL CHECK (length(note) <= {MAX_NOTE_CHARS}), PRIMARY KEY (call_id, block, number))""",
)
# Of a block that several steps of a policy want looked at one row is made, the most suspicious.
#
# The budget is of a policy, a key and a day, so no key spends another's. Half of it is kept for the sample and half for suspicion, and what
# one does not need the other has: whoever makes many suspicious calls does not end the sample, nor the other way round. Within each half it
# is no race: of suspicion the highest scores wait, of the sample the lowest draws, and ties go by the draw, which nobody outside knows. A
# budget by order of arrival could be spent with noise in the morning, for an attack in the afternoon. So a row that waits goes over the
# budget when one comes that is before it. None comes back: what stands before a row only grows. What is reviewed stays so, and is spent.
_QUEUE = """
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
    PERFORM pg_advisory_xact_lock({lock});
    FOR made IN
        WITH added AS (
            INSERT INTO {schema}.audits (call_id, block, step, at, day, policy, key, key_id, why, score, u, budget, state)
            SELECT DISTINCT ON (d.call_id, d.block) d.call_id, d.block, d.step, d.at,
                ({schema}.sluice_call_at(d.call_id) AT TIME ZONE 'UTC')::date, coalesce(c.policy, ''), coalesce(c.key, ''),
                coalesce(c.key_id, ''), d.audit, d.score, coalesce(d.u, 0), d.audit_budget, 'waiting'
            FROM {schema}.decisions d LEFT JOIN {schema}.calls c ON c.call_id = d.call_id
            WHERE d.call_id = ANY (given) AND d.audit IN ('sampled', 'suspicion')
            ORDER BY d.call_id, d.block, d.audit = 'suspicion' DESC, d.score DESC NULLS LAST, d.step
            ON CONFLICT DO NOTHING RETURNING policy, key_id, day
        )
        SELECT policy, key_id, day, count(*) AS rows FROM added GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    LOOP
        total := total + made.rows;
        SELECT a.budget INTO most FROM {schema}.audits a
            WHERE a.policy = made.policy AND a.key_id = made.key_id AND a.day = made.day AND a.state <> 'over_budget'
            ORDER BY a.at DESC, a.call_id DESC, a.block DESC LIMIT 1;
        CONTINUE WHEN most IS NULL;
        SELECT count(*) FILTER (WHERE a.why = 'sampled'), count(*) FILTER (WHERE a.why = 'suspicion'),
                count(*) FILTER (WHERE a.why = 'sampled' AND a.state = 'reviewed'),
                count(*) FILTER (WHERE a.why = 'suspicion' AND a.state = 'reviewed')
            INTO sampled, suspect, seen_sampled, seen_suspect FROM {schema}.audits a
            WHERE a.policy = made.policy AND a.key_id = made.key_id AND a.day = made.day AND a.state <> 'over_budget';
        UPDATE {schema}.audits a SET state = 'over_budget' FROM (
                SELECT b.call_id, b.block, row_number() OVER (PARTITION BY b.why ORDER BY
                    CASE b.why WHEN 'suspicion' THEN b.score END DESC NULLS LAST, b.u, b.call_id, b.block) AS place
                FROM {schema}.audits b
                WHERE b.policy = made.policy AND b.key_id = made.key_id AND b.day = made.day AND b.state = 'waiting'
            ) w
            WHERE a.call_id = w.call_id AND a.block = w.block AND a.state = 'waiting' AND w.place > CASE a.why
                WHEN 'sampled' THEN most - least(suspect, most - most / 2) - seen_sampled
                ELSE most - least(sampled, most / 2) - seen_suspect END;
    END LOOP;
    RETURN total;
END
$$
"""
# One row is locked for the time of one statement, which is what two auditors of the same decision wait for, and who seals.
_REVIEW = """
CREATE FUNCTION sluice_review(given uuid, its_block integer, by_id text, by_name text, said text, words text, beside boolean)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    last record;
    others bigint;
    so_far integer;
BEGIN
    PERFORM FROM {schema}.audits a WHERE a.call_id = given AND a.block = its_block FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'unknown';
    END IF;
    SELECT count(*) FILTER (WHERE r.auditor_id <> by_id), coalesce(max(r.number), 0) INTO others, so_far
        FROM {schema}.audit_reviews r WHERE r.call_id = given AND r.block = its_block;
    SELECT r.label, r.note INTO last FROM {schema}.audit_reviews r
        WHERE r.call_id = given AND r.block = its_block AND r.auditor_id = by_id ORDER BY r.number DESC LIMIT 1;
    IF FOUND AND last.label = said AND last.note = words THEN
        RETURN 'same';
    ELSIF NOT FOUND AND others > 0 AND NOT beside THEN
        RETURN 'other';
    ELSIF so_far >= {most} THEN
        RETURN 'full';
    END IF;
    INSERT INTO {schema}.audit_reviews (call_id, block, number, auditor_id, auditor, label, note)
        VALUES (given, its_block, so_far + 1, by_id, by_name, said, words);
    UPDATE {schema}.audits a SET state = 'reviewed' WHERE a.call_id = given AND a.block = its_block AND a.state <> 'reviewed';
    RETURN 'added';
END
$$
"""


def functions(schema: str) -> list[str]:
    """Return the statements that make the functions, which nobody may run until they get the right."""
    made = [one.format(schema=schema, lock=SEAL_LOCK, most=MAX_REVIEWS) for one in (_QUEUE, _REVIEW)]
    return [*made, *(f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC" for name in (QUEUE, REVIEW))]
