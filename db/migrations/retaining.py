"""What takes rows out of the record by table and day, as functions of the owner's: no writer may delete a row in any other way.

A seal covers a call by one digest of each table. So before rows of a table go, their digest is kept (`kept_digests`), and a leaf of the
tree (part -2) says which table, until which day, who and why: what is left verifies, and that something went shows. Must not know:
connections.
"""

from collections.abc import Iterator
from typing import Final

from db.canonical import FORMS, REDACTED, VERSION, Form
from db.locks import PARTITIONS_LOCK, SEAL_LOCK, SHED_LOCK
from db.migrations.agreeing import NOW

KEEP: Final = "sluice_keep_digests(text, uuid, uuid)"
SHED: Final = "sluice_shed(text, date, text)"
FORGET: Final = "sluice_forget(text, date)"
DROP: Final = "sluice_drop_before(date, text)"
"""Of migration 0004: all rows of old calls."""
SHEDDABLE = ("request_bodies", "chunks", "releases")
"""Tables under seals of which the old rows may go alone: what is large, and what no verdict is in."""
FORGETTABLE = {"histories": "call_id", "reads": "at"}
"""Tables under no seal, by the column that says how old a row is."""
NO_SEAL, NO_CHECKPOINT, CAME_MEANWHILE, ROWS_DIFFER = -1, -2, -3, -4
"""Results of `sluice_shed` that say why nothing was done."""
GONE, PART_SHED = -1, -2
"""`seals.part` of a leaf that says that the rows of all tables were dropped, or those of one."""
SHORT_MS: Final = 200
"""As in `db.migrations.indexing`, which brings it too: how long inserts may wait behind what drops a partition."""
TABLE = """CREATE TABLE IF NOT EXISTS kept_digests (
    call_id uuid NOT NULL, place integer NOT NULL, rows bigint NOT NULL, sha256 bytea NOT NULL, PRIMARY KEY (call_id, place))"""
INDEX = ("seals_gone_idx", "seals", "(call_id) WHERE part < 0")
# The newest seal of each call says in which version its rows are hashed; of a redacted call the salt is gone and the hashes are kept.
_KEEP = """
CREATE OR REPLACE FUNCTION sluice_keep_digests(parent text, low uuid, high uuid) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept bigint := 0;
BEGIN
{steps}
    RETURN kept;
END
$$
"""
_STEP = """
    IF parent = '{table}' THEN
        INSERT INTO {schema}.kept_digests (call_id, place, rows, sha256)
            SELECT x.call_id, {place}, count(*), sha256(string_agg(x.h, ''::bytea ORDER BY {order})) FROM (
                SELECT t.call_id, {key}{hashed} AS h FROM (
                    SELECT DISTINCT ON (n.call_id) n.call_id, n.form, (SELECT o.salt FROM {schema}.seal_rows o
                        WHERE o.call_id = n.call_id AND o.salt IS NOT NULL ORDER BY o.part DESC LIMIT 1) AS salt
                    FROM {schema}.seals n WHERE n.call_id >= low AND n.call_id < high AND n.part >= 0 ORDER BY n.call_id, n.part DESC
                ) s JOIN {schema}.{table} t ON t.call_id = s.call_id
                LEFT JOIN {schema}.redactions r ON r.call_id = t.call_id AND r.table_name = '{table}' AND r.row_key = {key_sql}
                WHERE t.call_id >= low AND t.call_id < high
            ) x GROUP BY x.call_id
            ON CONFLICT (call_id, place) DO UPDATE SET rows = excluded.rows, sha256 = excluded.sha256;
        GET DIAGNOSTICS kept = ROW_COUNT;
    END IF;"""
# Rows are counted after the locks, each time by a new look: under another level it would be that of before, and what came meanwhile went
# uncounted with its table.
LEVEL: Final = """
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'rows are taken away at the level READ COMMITTED alone' USING ERRCODE = '22023';
    END IF;"""
# Whoever drops a partition keeps all inserts into the table waiting from the moment it asks. So it asks for 200 ms, as migrations do, then
# lets all locks go and tries again; and all that takes long is done before.
TRIES: Final = """
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
    END LOOP;"""
# Rows are hashed before the lock for which sealing waits: a day may take a minute. What was sealed meanwhile is looked for under it, and
# what was inserted meanwhile under a lock of the days that go: as many rows go as were hashed, and as the seals count.
_SHED_WORK = """
            PERFORM pg_advisory_xact_lock({seal_lock});
            PERFORM pg_advisory_xact_lock({partitions_lock});
            IF EXISTS (
                SELECT 1 FROM (SELECT call_id FROM {schema}.calls WHERE call_id >= low AND call_id < bound
                    UNION ALL SELECT call_id FROM {schema}.ends WHERE call_id >= low AND call_id < bound) c
                WHERE NOT EXISTS (SELECT 1 FROM {schema}.seals s WHERE s.call_id = c.call_id)
            ) THEN
                refused := {no_seal};
            ELSIF EXISTS (
                SELECT 1 FROM {schema}.seals s WHERE s.call_id >= low AND s.call_id < bound AND s.part >= 0
                    AND s.position >= coalesce((SELECT max(c.size) FROM {schema}.checkpoints c), 0)
            ) THEN
                refused := {no_checkpoint};
            ELSIF EXISTS (
                SELECT 1 FROM {schema}.seals s WHERE s.call_id >= low AND s.call_id < bound AND s.part >= 0 AND s.position > seen
            ) THEN
                refused := {came};
            ELSIF EXISTS (
                SELECT 1 FROM (
                    SELECT DISTINCT ON (o.call_id) o.call_id, o.counts[spot] AS rows FROM {schema}.seals o
                    WHERE o.call_id >= low AND o.call_id < bound AND o.part >= 0 ORDER BY o.call_id, o.part DESC
                ) s LEFT JOIN {schema}.kept_digests k ON k.call_id = s.call_id AND k.place = spot - 1
                WHERE s.rows <> coalesce(k.rows, 0)
            ) THEN
                refused := {differ};
            END IF;
            EXIT WHEN refused < 0;
            PERFORM set_config('lock_timeout', '{short_ms}ms', true);
            parts := ARRAY(
                SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = ('{schema}.' || quote_ident(parent))::regclass AND c.relname ~ ('^' || parent || '_[0-9]{{8}}$')
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
            SELECT count(*), coalesce(sum(k.rows), 0) INTO calls, n FROM {schema}.kept_digests k
                WHERE k.place = spot - 1 AND k.call_id >= low AND k.call_id < bound;
            IF total <> n THEN
                refused := {differ};
                EXIT;
            END IF;
            EXECUTE format('DELETE FROM sluice_parts.%I WHERE call_id >= $1 AND call_id < $2', parent || '_default') USING low, bound;
            GET DIAGNOSTICS n = ROW_COUNT;
            IF n <> other THEN
                RAISE EXCEPTION 'rows came meanwhile' USING ERRCODE = 'lock_not_available';
            END IF;
            FOREACH part IN ARRAY parts LOOP
                EXECUTE format('DROP TABLE sluice_parts.%I', part);
            END LOOP;"""
_SHED = """
CREATE OR REPLACE FUNCTION sluice_shed(parent text, until date, why text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    spot integer := array_position(ARRAY[{tables}], parent);
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
BEGIN{level}
    IF parent <> ALL (ARRAY[{sheddable}]) OR (until <= ({now} AT TIME ZONE 'UTC')::date) IS NOT TRUE OR until < date '1970-01-01' THEN
        RAISE EXCEPTION 'no such table, or a day that is not over' USING ERRCODE = '22023';
    END IF;
    -- alone: another that began meanwhile would have looked for the leaf before it was there, and forget the digests of this one
    PERFORM pg_advisory_xact_lock({shed_lock});
    -- the leaf before says up to where that was done; what came later of calls before it stays, and is told
    SELECT coalesce((SELECT s.call_id FROM {schema}.seals s
        WHERE s.part = {part} AND right(s.call_id::text, 4) = lpad(to_hex(spot), 4, '0') ORDER BY s.call_id DESC LIMIT 1), low) INTO low;
    since := ({schema}.sluice_call_at(low) AT TIME ZONE 'UTC')::date;
    SELECT coalesce(max(position), -1) INTO seen FROM {schema}.seals;
    PERFORM {schema}.sluice_keep_digests(parent, low, bound);
{tries}
    IF refused < 0 THEN
        DELETE FROM {schema}.kept_digests k WHERE k.place = spot - 1 AND k.call_id >= low AND k.call_id < bound;
        RETURN refused;
    END IF;
    IF calls > 0 THEN
        leaf := (left(bound::text, 32) || lpad(to_hex(spot), 4, '0'))::uuid;
        INSERT INTO {schema}.seals (position, call_id, part, at, counts, sha256, note)
            SELECT coalesce(max(position) + 1, 0), leaf, {part}, now(), ARRAY[calls], ''::bytea,
                format('%s until %s: %s', parent, until, why) FROM {schema}.seals;
    END IF;
    RETURN calls;
END
$$
"""
_FORGET_WORK = """
            PERFORM pg_advisory_xact_lock({partitions_lock});
            parts := ARRAY(
                SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = to_regclass('{schema}.' || quote_ident(parent)) AND CASE
                    WHEN c.relname ~ ('^' || parent || '_[0-9]{{8}}$') THEN to_date(right(c.relname, 8), 'YYYYMMDD') < until
                    WHEN c.relname ~ ('^' || parent || '_[0-9]{{6}}$')
                        THEN to_date(right(c.relname, 6), 'YYYYMM') + interval '1 month' <= until
                    ELSE false END
            );
            gone := 0;
            FOREACH part IN ARRAY parts LOOP
                EXECUTE format('SELECT count(*) FROM sluice_parts.%I', part) INTO n;
                gone := gone + n;
            END LOOP;
{steps}
            PERFORM set_config('lock_timeout', '{short_ms}ms', true);
            FOREACH part IN ARRAY parts LOOP
                EXECUTE format('DROP TABLE sluice_parts.%I', part);
            END LOOP;"""
_FORGET = """
CREATE OR REPLACE FUNCTION sluice_forget(parent text, until date) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' SET timezone = 'UTC' AS $$
DECLARE
    bound uuid := (lpad(to_hex((extract(epoch FROM until::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
    gone bigint;
    n bigint;
    tries integer := 0;
    parts text[];
    part text;
BEGIN
    IF parent <> ALL (ARRAY[{forgettable}]) OR (until <= ({now} AT TIME ZONE 'UTC')::date) IS NOT TRUE OR until < date '1970-01-01' THEN
        RAISE EXCEPTION 'no such table, or a day that is not over' USING ERRCODE = '22023';
    END IF;
{tries}
    RETURN gone;
END
$$
"""
_FORGET_STEP = """
            IF parent = '{table}' THEN
                DELETE FROM sluice_parts.{table}_default d WHERE d.{column} < {bound};
                GET DIAGNOSTICS n = ROW_COUNT;
                gone := gone + n;
            END IF;"""


def functions(schema: str, version: int = VERSION, now: str = NOW) -> list[str]:
    """Return the statements that make the functions for the tables of this version; nobody may run them until they get the right.
    `now`: the time by which a day is over (`db.migrations.agreeing`)."""
    tables = ", ".join(f"'{form.table}'" for form in FORMS if form.since <= version)
    values = {
        "schema": schema, "now": now.format(schema=schema), "level": LEVEL,
        "shed_lock": SHED_LOCK, "seal_lock": SEAL_LOCK, "partitions_lock": PARTITIONS_LOCK,
        "tables": tables, "part": PART_SHED,
        "no_seal": NO_SEAL, "no_checkpoint": NO_CHECKPOINT, "came": CAME_MEANWHILE, "differ": ROWS_DIFFER, "short_ms": SHORT_MS,
        "sheddable": ", ".join(f"'{name}'" for name in SHEDDABLE), "forgettable": ", ".join(f"'{name}'" for name in FORGETTABLE),
    }  # fmt: skip
    forgets = "".join(
        _FORGET_STEP.format(table=table, column=column, bound="bound" if column == "call_id" else "until")
        for table, column in FORGETTABLE.items()
    )
    shed, forget = TRIES.format(work=_SHED_WORK.format(**values)), TRIES.format(work=_FORGET_WORK.format(**values, steps=forgets))
    made = [
        _KEEP.format(steps="".join(_steps(schema, version))), _SHED.format(**values, tries=shed), _FORGET.format(**values, tries=forget)
    ]  # fmt: skip
    return [*made, *(f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC" for name in (KEEP, SHED, FORGET))]


def _steps(schema: str, version: int) -> Iterator[str]:
    for place, form in enumerate(FORMS):
        if form.table in SHEDDABLE:
            key = "".join(f't."{name}", ' for name, _ in form.key)
            order = ", ".join(f'x."{name}"' for name, _ in form.key) or "x.call_id"
            yield _STEP.format(
                schema=schema, table=form.table, place=place, key=key, order=order, key_sql=form.key_sql, hashed=_hashed(form, version)
            )


def _hashed(form: Form, version: int) -> str:
    """The hash of a row `t`, in the version of the seal `s`."""
    assert form.table != REDACTED
    by_cover: dict[tuple[int, int], list[int]] = {}
    for one in range(version + 1):
        by_cover.setdefault(form.counts[one], []).append(one)
    hashes = {tuple(of): form.hash_sql(form.redacted_sql(max(of)), max(of)) for of in by_cover.values()}
    *before, last = hashes.items()
    cases = " ".join(f"WHEN s.form IN ({', '.join(map(str, of))}) THEN {hashed}" for of, hashed in before)
    return f"CASE {cases} ELSE {last[1]} END" if cases else last[1]
