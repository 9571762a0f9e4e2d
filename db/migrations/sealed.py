"""The functions of the database that go through all tables of a call, written from their columns in
a version of the sealed form.

A version never changes, so a migration that names one makes the same at any later time. One that
adds a version makes the columns and tables, lets `seals.made_for` have that version as its default,
and makes these functions anew. Must not know: connections.
"""

from collections.abc import Iterator

from db.canonical import FORMS, REDACTED, Form
from db.locks import PARTITIONS_LOCK, SEAL_LOCK
from db.migrations import dropping
from db.migrations.removal import RUNS, SHEDDABLE

BESIDE = ("seal_rows", "redactions", "histories", "debug_logs")
"""Tables with partitions by day that seals do not cover."""
# A day whose rows already lie in the default partition stays there: moving them would lock the
# table under traffic.
_ENSURE_ALL = """
CREATE OR REPLACE FUNCTION sluice_ensure_partitions(first date, days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
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
            low := (lpad(to_hex((extract(epoch FROM day::timestamp) * 1000)::bigint), 12, '0') ||
                repeat('0', 20))::uuid;
            high := (lpad(to_hex((extract(epoch FROM (day + 1)::timestamp) * 1000)::bigint), 12,
                '0') || repeat('0', 20))::uuid;
            EXECUTE
                format('SELECT EXISTS (SELECT 1 FROM sluice_parts.%I WHERE call_id >= $1 AND call_id < $2)', parent || '_default')
                INTO taken USING low, high;
            CONTINUE WHEN taken;
            EXECUTE
                format('CREATE TABLE sluice_parts.%I PARTITION OF {schema}.%I FOR VALUES FROM (%L) TO (%L)', part, {relation}, low, high);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$
"""
# One table at a time: who makes them holds no table while it waits for another, so nobody can
# deadlock with it. It locks its table before it looks into the default partition, so that both are
# locked in the order in which readers lock them.
_ENSURE = """
CREATE OR REPLACE FUNCTION sluice_ensure_partitions(first date, days integer, parent text) RETURNS
    integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    made integer := 0;
    day date;
    part text;
    low uuid;
    high uuid;
    taken boolean;
BEGIN
    IF days NOT BETWEEN 0 AND 400 OR parent <> ALL (ARRAY[{tables}]) THEN
        RAISE EXCEPTION 'days must be from 0 to 400, of a table of calls' USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock({lock});
    FOR step IN 0 .. days - 1 LOOP
        day := first + step;
        part := parent || '_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(format('sluice_parts.%I', part)) IS NOT NULL;
        EXECUTE format('LOCK TABLE ONLY {schema}.%I IN ACCESS EXCLUSIVE MODE', {relation});
        low := (lpad(to_hex((extract(epoch FROM day::timestamp) * 1000)::bigint), 12, '0') ||
            repeat('0', 20))::uuid;
        high := (lpad(to_hex((extract(epoch FROM (day + 1)::timestamp) * 1000)::bigint), 12, '0') ||
            repeat('0', 20))::uuid;
        EXECUTE
            format('SELECT EXISTS (SELECT 1 FROM sluice_parts.%I WHERE call_id >= $1 AND call_id < $2)', parent || '_default')
            INTO taken USING low, high;
        CONTINUE WHEN taken;
        EXECUTE
            format('CREATE TABLE sluice_parts.%I PARTITION OF {schema}.%I FOR VALUES FROM (%L) TO (%L)', part, {relation}, low, high);
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$
"""
# Hashes first, then the content goes, then the salt: with it goes the way to try out what a hash
# may be of. -1: no such call; -2: the call is still open.
_REDACT = """
CREATE OR REPLACE FUNCTION sluice_redact(given uuid, why text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    salt bytea;
    n bigint;
    total bigint := 0;
BEGIN
    PERFORM pg_advisory_xact_lock({lock});
    IF NOT EXISTS (SELECT 1 FROM {schema}.calls WHERE call_id = given UNION ALL SELECT 1
        FROM {schema}.ends WHERE call_id = given) THEN
        RETURN -1;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM {schema}.ends WHERE call_id = given)
        AND {schema}.sluice_call_at(given) > now() - interval '2 hours' THEN
        RETURN -2;
    END IF;
    SELECT r.salt INTO salt FROM {schema}.seal_rows r WHERE r.call_id = given AND r.salt IS NOT NULL
        ORDER BY r.part DESC LIMIT 1;
    salt := coalesce(salt, uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
{steps}
    DELETE FROM {schema}.dead_letters WHERE call_id = given::text;
    UPDATE {schema}.audit_reviews r SET note = '' WHERE r.call_id = given AND r.note <> '';
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    DELETE FROM {schema}.histories h WHERE h.call_id = given;
    -- not counted where there was more: what is made of a body is no row of the record
    IF FOUND AND total = 0 THEN
        total := 1;
    END IF;
    UPDATE {schema}.labels l SET note = '' WHERE l.call_id = given AND l.note <> '';
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    IF to_regclass('{schema}.approvals') IS NOT NULL THEN
        -- what it waited for cannot be decided any more
        DELETE FROM {schema}.approvals a WHERE a.call_id = given;
        GET DIAGNOSTICS n = ROW_COUNT;
        total := total + n;
    END IF;
    -- the path of a session's page has its name, which is content
    UPDATE {schema}.reads r SET filters = '', path = coalesce(substring(r.path
        FROM '^/debug/sessions/[^/]*/'), r.path)
        WHERE r.call_ids @> ARRAY[given] AND (r.filters <> ''
            OR r.path ~ '^/debug/sessions/[^/]*/.');
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    DELETE FROM {schema}.debug_logs l WHERE l.call_id = given;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    INSERT INTO {schema}.redacted_calls (call_id) VALUES (given) ON CONFLICT DO NOTHING;
    UPDATE {schema}.seal_rows SET salt = NULL WHERE call_id = given;
    SELECT count(*) INTO n FROM {schema}.events WHERE call_id = given AND kind = 'redacted';
    INSERT INTO {schema}.events (call_id, kind, number, at, detail)
        VALUES (given, 'redacted', n + 1, now(), why);
    RETURN total;
END
$$
"""
_STEP = """
    INSERT INTO {schema}.redactions (call_id, table_name, row_key, hashes)
        SELECT t.call_id, '{table}', {key}, {hashes} FROM {schema}.{table} t
            WHERE t.call_id = given{but} ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    UPDATE {schema}.{rows} t SET {emptied} WHERE t.call_id = given{but};
"""
_STEP_OF_RUNS = """
    UPDATE {schema}.{runs} t SET ends = '', head = '', tail = '', data = '' WHERE t.call_id = given;
"""
# The newest seal of each call says in which version its rows are hashed; of a redacted call the
# salt is gone and the hashes are kept.
_KEEP = """
CREATE OR REPLACE FUNCTION sluice_keep_digests(parent text, low uuid, high uuid) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept bigint := 0;
BEGIN
{steps}
    RETURN kept;
END
$$
"""
_KEEP_STEP = """
    IF parent = '{table}' THEN
        INSERT INTO {schema}.kept_digests (call_id, place, rows, sha256)
            SELECT x.call_id, {place}, count(*), sha256(string_agg(x.h, ''::bytea ORDER BY {order}))
                FROM (
                SELECT t.call_id, {key}{hashed} AS h FROM (
                    SELECT DISTINCT ON (n.call_id) n.call_id, n.form, (SELECT o.salt
                        FROM {schema}.seal_rows o
                        WHERE o.call_id = n.call_id AND o.salt IS NOT NULL ORDER BY o.part DESC
                            LIMIT 1) AS salt
                    FROM {schema}.seals n WHERE n.call_id >= low AND n.call_id < high
                        AND n.part >= 0 ORDER BY n.call_id, n.part DESC
                ) s JOIN {schema}.{table} t ON t.call_id = s.call_id
                LEFT JOIN {schema}.redactions r ON r.call_id = t.call_id
                    AND r.table_name = '{table}' AND r.row_key = {key_sql}
                WHERE t.call_id >= low AND t.call_id < high
            ) x GROUP BY x.call_id
            ON CONFLICT (call_id, place) DO UPDATE SET rows = excluded.rows, sha256 =
                excluded.sha256;
        GET DIAGNOSTICS kept = ROW_COUNT;
    END IF;"""


def functions(schema: str, version: int, *, in_runs: bool = True) -> list[str]:
    """Return the statements that make the functions for this version; nobody may run them until
    they get the right. `in_runs`: are there the views of `RUNS`?"""
    views = RUNS if in_runs else {}
    beside = (*BESIDE, *(runs for _, runs, _ in views.values()))
    tables = ", ".join(
        f"'{name}'" for name in (*(form.table for form in FORMS if form.since <= version), *beside)
    )
    relation = "".join(f" WHEN '{view}' THEN '{rows}'" for view, (rows, *_) in views.items())
    relation = f"CASE parent{relation} ELSE parent END" if views else "parent"
    redaction = "".join(
        _step(schema, form, version, in_runs=in_runs) for form in FORMS if form.since <= version
    )
    made = [
        *(
            template.format(schema=schema, lock=PARTITIONS_LOCK, tables=tables, relation=relation)
            for template in (_ENSURE_ALL, _ENSURE)
        ),
        _REDACT.format(schema=schema, lock=SEAL_LOCK, steps=redaction),
        _KEEP.format(steps="".join(_keep_steps(schema, version))),
        (
            "REVOKE ALL ON FUNCTION sluice_ensure_partitions(date, integer),"
            " sluice_ensure_partitions(date, integer, text), sluice_redact(uuid, text),"
            " sluice_keep_digests(text, uuid, uuid) FROM PUBLIC"
        ),
    ]
    return [*made, *dropping.functions(schema, version, beside)]


def _step(schema: str, form: Form, version: int, *, in_runs: bool) -> str:
    content = form.content[: form.counts[version][1]]
    emptied = ", ".join(
        f"{name} = CASE WHEN t.{name} IS NOT NULL THEN ''::{kind} END" for name, kind in content
    )
    but = f" AND t.kind <> '{REDACTED}'" if form.table == "events" else ""
    hashes = form.contents_sql(version, salt="salt")
    rows, runs, _ = RUNS.get(form.table, ("", "", "")) if in_runs else ("", "", "")
    made = _STEP.format(
        schema=schema,
        table=form.table,
        rows=rows or form.table,
        key=form.key_sql,
        hashes=hashes,
        emptied=emptied,
        but=but,
    )
    if runs:
        made += _STEP_OF_RUNS.format(schema=schema, runs=runs)
    return made if content else ""


def _keep_steps(schema: str, version: int) -> Iterator[str]:
    for place, form in enumerate(FORMS):
        if form.table in SHEDDABLE:
            key = "".join(f't."{name}", ' for name, _ in form.key)
            order = ", ".join(f'x."{name}"' for name, _ in form.key) or "x.call_id"
            yield _KEEP_STEP.format(
                schema=schema,
                table=form.table,
                place=place,
                key=key,
                order=order,
                key_sql=form.key_sql,
                hashed=_hashed(form, version),
            )


def _hashed(form: Form, version: int) -> str:
    """The hash of a row `t`, in the version of the seal `s`."""
    assert form.table != REDACTED
    by_cover: dict[tuple[int, int], list[int]] = {}
    for form_version in range(1, version + 1):
        by_cover.setdefault(form.counts[form_version], []).append(form_version)
    hashes = {
        tuple(of): form.hash_sql(form.redacted_sql(max(of)), max(of)) for of in by_cover.values()
    }
    *before, last = hashes.items()
    cases = " ".join(
        f"WHEN s.form IN ({', '.join(map(str, of))}) THEN {hashed}" for of, hashed in before
    )
    return f"CASE {cases} ELSE {last[1]} END" if cases else last[1]
