"""What drops whole days: all rows of old calls, where there are as many as their seals count.

Rows are compared call by call before the lock for which sealing waits; under it, and under locks of
the days that go, only their numbers. Must not know: connections.
"""

from collections.abc import Collection, Iterable
from typing import Final

from db.canonical import FORMS
from db.locks import PARTITIONS_LOCK, SEAL_LOCK, USAGE_LOCK
from db.migrations.removal import (
    CAME_MEANWHILE,
    DROP,
    GONE,
    LET_GO,
    NO_CHECKPOINT,
    NO_SEAL,
    PART_SHED,
    ROWS_DIFFER,
    RUNS,
)

# A call counts by its newest seal, and not at all where its rows went by `drop` and none was made
# since. Where the rows of the one table went, those that came later go with their call. A seal of
# before there was the table counts none of it.
_COMPARED: Final = """
WITH shed AS MATERIALIZED (
    SELECT coalesce((SELECT s.call_id FROM {schema}seals s
        WHERE s.part = {part_shed} AND right(s.call_id::text, 4) = lpad(to_hex({spot}), 4, '0')
            ORDER BY s.call_id DESC LIMIT 1),
        '00000000-0000-0000-0000-000000000000') AS until
), sealed AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[{spot}] AS rows, true AS is_sealed
        FROM {schema}seals s
    WHERE s.call_id >= {gone} AND s.call_id < {bound} AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), again AS (
    SELECT DISTINCT ON (s.call_id) s.call_id, s.counts[{spot}] AS rows, true AS is_sealed
        FROM {schema}seals s
    WHERE s.call_id < least({gone}, {bound}) AND s.position > {after} AND s.part >= 0
    ORDER BY s.call_id, s.part DESC
), held AS (
    SELECT t.call_id, count(*) AS rows FROM {schema}{table} t WHERE t.call_id < {bound}
        GROUP BY t.call_id
)
SELECT count(*) FILTER (WHERE call_id >= (SELECT until FROM shed) AND coalesce(h.rows, 0) <>
        CASE WHEN s.is_sealed THEN coalesce(s.rows, h.rows, 0) ELSE 0
            END), coalesce(sum(h.rows), 0)::bigint
FROM (SELECT * FROM sealed UNION ALL SELECT * FROM again) s FULL JOIN held h USING (call_id)"""
_GONE: Final = (
    "coalesce((SELECT s.call_id {leaf}), '00000000-0000-0000-0000-000000000000')",
    "coalesce((SELECT s.position {leaf}), -1)",
)
_LEAF: Final = "FROM {schema}seals s WHERE s.part = {part} ORDER BY s.call_id DESC LIMIT 1"
# What makes figures of hours looks for the leaf first: it has to see either that or the rows.
_WORK = """
            PERFORM pg_advisory_xact_lock({usage_lock});
            PERFORM pg_advisory_xact_lock({seal_lock});
            IF EXISTS (
                SELECT 1 FROM (SELECT call_id FROM {schema}.calls WHERE call_id < bound UNION ALL
                    SELECT call_id FROM {schema}.ends WHERE call_id < bound) c
                WHERE NOT EXISTS (SELECT 1 FROM {schema}.seals s WHERE s.call_id = c.call_id)
            ) THEN
                RETURN {no_seal};
            END IF;
            IF EXISTS (
                SELECT 1 FROM {schema}.seals s WHERE s.call_id < bound AND s.part >= 0
                    AND s.position >= coalesce((SELECT max(size) FROM {schema}.checkpoints), 0)
            ) THEN
                RETURN {no_checkpoint};
            END IF;
            IF EXISTS (
                SELECT 1 FROM {schema}.seals s WHERE s.position > seen AND (s.part = {gone}
                    OR s.call_id < bound AND s.part >= 0)
            ) THEN
                RETURN {came};
            END IF;
            IF differing > 0 AND NOT is_let_go THEN
                RETURN {differ};
            END IF;
            SELECT count(*) INTO dropped FROM {schema}.calls WHERE call_id < bound;
            PERFORM pg_advisory_xact_lock({partitions_lock});
            PERFORM set_config('lock_timeout', '200ms', true);
            FOREACH parent IN ARRAY sealed || ARRAY[{runs}]::text[] LOOP
                FOR part IN
                    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                    WHERE c.relnamespace = 'sluice_parts'::regnamespace
                        AND CASE WHEN c.relname ~ ('^' || parent || '_[0-9]{{8}}$')
                            THEN to_date(right(c.relname, 8), 'YYYYMMDD') < day
                            ELSE c.relname = parent || '_default' AND parent ~ '_runs$' END
                    ORDER BY c.relname
                LOOP
                    EXECUTE format('LOCK TABLE sluice_parts.%I IN SHARE ROW EXCLUSIVE MODE', part);
                END LOOP;
            END LOOP;
            FOR spot IN 1 .. array_length(sealed, 1) LOOP
                EXECUTE format('SELECT count(*) FROM {schema}.%I WHERE call_id < $1', sealed[spot])
                    INTO n USING bound;
                IF n <> totals[spot] THEN
                    RETURN {differ};
                END IF;
                EXECUTE format('SELECT count(*) FROM sluice_parts.%I WHERE call_id < $1',
                    sealed[spot] || '_default') INTO n USING bound;
                others[spot] := n;
            END LOOP;
            FOREACH parent IN ARRAY ARRAY[{tables}] LOOP
                EXECUTE format('DELETE FROM sluice_parts.%I WHERE call_id < $1', parent ||
                    '_default') USING bound;
                GET DIAGNOSTICS n = ROW_COUNT;
                IF n <> others[array_position(sealed, parent)] THEN
                    RAISE EXCEPTION 'rows came meanwhile' USING ERRCODE = 'lock_not_available';
                END IF;
            END LOOP;
            DELETE FROM {schema}.audit_reviews WHERE call_id < bound;
            DELETE FROM {schema}.audits WHERE call_id < bound;
            DELETE FROM {schema}.labels WHERE call_id < bound;
            IF to_regclass('{schema}.approvals') IS NOT NULL THEN
                DELETE FROM {schema}.approval_asks WHERE call_id < bound;
                DELETE FROM {schema}.approvals WHERE call_id < bound;
            END IF;
            DELETE FROM {schema}.dead_letters WHERE "left"(call_id, 36) COLLATE "C" < bound::text
                AND "left"(call_id, 36) ~ '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$';
            DELETE FROM {schema}.debug_switches WHERE until < day::timestamp AT TIME ZONE 'UTC';
            DELETE FROM {schema}.kept_digests WHERE call_id < bound;
            FOREACH parent IN ARRAY ARRAY[{tables}] LOOP
                FOR part IN
                    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                    WHERE c.relnamespace = 'sluice_parts'::regnamespace AND c.relname ~ ('^' || parent || '_[0-9]{{8}}$')
                        AND to_date(right(c.relname, 8), 'YYYYMMDD') < day
                LOOP
                    EXECUTE format('DROP TABLE sluice_parts.%I', part);
                END LOOP;
            END LOOP;"""
_DROP = """
CREATE OR REPLACE FUNCTION sluice_drop_before(day date, why text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    bound uuid := (lpad(to_hex((extract(epoch FROM day::timestamp) * 1000)::bigint), 12, '0') ||
        repeat('0', 20))::uuid;
    sealed text[] := ARRAY[{sealed}];
    totals bigint[];
    others bigint[];
    said bigint[];
    gone uuid;
    after bigint;
    seen bigint;
    differing bigint := 0;
    -- by the owner alone, who could take the tables away too: no writer may hide by it what it did
    is_let_go boolean := current_setting('{let_go}', true) = 'yes'
        AND pg_has_role(session_user, current_user, 'MEMBER');
    n bigint;
    total bigint;
    dropped bigint;
    tries integer := 0;
    parent text;
    part text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'rows are taken away at the level READ COMMITTED alone'
            USING ERRCODE = '22023';
    END IF;
    SELECT coalesce(max(position), -1) INTO seen FROM {schema}.seals;
    SELECT {gone_id}, {gone_at} INTO gone, after;
    -- the leaf of the highest bound speaks for all rows before it, so each is the newest too
    IF (day <= ({schema}.sluice_agreed_now() AT TIME ZONE 'UTC')::date) IS NOT TRUE
        OR day < ({schema}.sluice_call_at(gone) AT TIME ZONE 'UTC')::date
    THEN
        RAISE EXCEPTION 'the day is not over, or rows of a later day went before'
            USING ERRCODE = '22023';
    END IF;
{steps}
    is_let_go := coalesce(is_let_go, false);

    LOOP
        tries := tries + 1;
        BEGIN
            PERFORM set_config('lock_timeout', '5s', true);{work}
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
        bound := (left(gone::text, 32) || lpad(to_hex(('x' || right(gone::text,
            4))::bit(16)::integer + 1), 4, '0'))::uuid;
    END IF;
    said := ARRAY[dropped];
    IF differing > 0 THEN
        said := said || differing;
    END IF;
    INSERT INTO {schema}.seals (position, call_id, part, at, counts, sha256, note)
        SELECT coalesce(max(position) + 1, 0), bound, {gone}, now(), said, ''::bytea, why
            FROM {schema}.seals;
    RETURN dropped;
END
$$
"""
_STEP = """
    {compared} INTO n, total;
    differing := differing + n;
    totals[{spot}] := total;"""


def compared(spot: int, bound: str) -> str:
    """Return the query for of how many calls before `bound` the table at this place (from 1) has
    other rows than seals count."""
    gone, after = _gone("")
    return _compared(spot, bound, "", gone, after)


def functions(schema: str, version: int, other_tables: Collection[str]) -> list[str]:
    """Return the statements that make the function for the sealed tables of this version.
    `other_tables` have partitions by day too."""
    sealed = [form.table for form in FORMS if form.since <= version]
    # in variables, by which it is planned: there may be many more seals than of the days that go
    steps = "".join(
        _STEP.format(compared=_compared(spot, "bound", f"{schema}.", "gone", "after"), spot=spot)
        for spot in range(1, len(sealed) + 1)
    )
    work = _WORK.format(
        schema=schema,
        usage_lock=USAGE_LOCK,
        seal_lock=SEAL_LOCK,
        partitions_lock=PARTITIONS_LOCK,
        no_seal=NO_SEAL,
        no_checkpoint=NO_CHECKPOINT,
        came=CAME_MEANWHILE,
        differ=ROWS_DIFFER,
        gone=GONE,
        tables=_named([*sealed, *other_tables]),
        runs=_named(runs for _, runs, _ in RUNS.values() if runs in other_tables),
    )
    gone_id, gone_at = _gone(f"{schema}.")
    made = _DROP.format(
        schema=schema,
        let_go=LET_GO,
        sealed=_named(sealed),
        gone=GONE,
        gone_id=gone_id,
        gone_at=gone_at,
        steps=steps,
        work=work,
    )
    return [made, f"REVOKE ALL ON FUNCTION {DROP} FROM PUBLIC"]


def _named(tables: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in tables)


def _gone(schema: str) -> list[str]:
    """Up to where rows went by the newest leaf that says so, and its position."""
    return [template.format(leaf=_LEAF.format(schema=schema, part=GONE)) for template in _GONE]


def _compared(spot: int, bound: str, schema: str, gone: str, after: str) -> str:
    table = FORMS[spot - 1].table
    return _COMPARED.format(
        schema=schema,
        part_shed=PART_SHED,
        spot=spot,
        bound=bound,
        table=table,
        gone=gone,
        after=after,
    )
