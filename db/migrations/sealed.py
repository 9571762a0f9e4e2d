"""Steps of every migration that adds columns in a new version of the sealed form (`db.columns`): the columns, the version for which seals
are now made, and the function that redacts a call. A version never changes, so a migration that names one does the same at any later time.
"""

from alembic.operations import Operations

from db.canonical import FORMS, REDACTED, Form
from db.columns import TABLES, CallTable, Stored
from db.locks import SEAL_LOCK as SEAL_LOCK
from db.migrations.indexing import change_briefly

"""Advisory lock of whoever adds a seal, redacts or drops."""
_WITH_MADE_FOR = 4
"""The version with which seals began to say for which version the tables were."""
# Hashes first, then the content goes, then the salt: with it goes the way to try out what a hash may be of.
# -1: no such call; -2: the call is still open.
_REDACT = """
CREATE OR REPLACE FUNCTION sluice_redact(given uuid, why text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    salt bytea;
    n bigint;
    total bigint := 0;
BEGIN
    PERFORM pg_advisory_xact_lock({lock});
    IF NOT EXISTS (SELECT 1 FROM {schema}.calls WHERE call_id = given UNION ALL SELECT 1 FROM {schema}.ends WHERE call_id = given) THEN
        RETURN -1;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM {schema}.ends WHERE call_id = given) AND {schema}.sluice_call_at(given) > now() - interval '2 hours' THEN
        RETURN -2;
    END IF;
    SELECT r.salt INTO salt FROM {schema}.seal_rows r WHERE r.call_id = given AND r.salt IS NOT NULL ORDER BY r.part DESC LIMIT 1;
    salt := coalesce(salt, uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
{steps}
    DELETE FROM {schema}.dead_letters WHERE call_id = given::text;
    IF to_regclass('{schema}.audit_reviews') IS NOT NULL THEN
        UPDATE {schema}.audit_reviews r SET note = '' WHERE r.call_id = given AND r.note <> '';
        GET DIAGNOSTICS n = ROW_COUNT;
        total := total + n;
    END IF;
    IF to_regclass('{schema}.histories') IS NOT NULL THEN
        DELETE FROM {schema}.histories h WHERE h.call_id = given;
        -- not counted where there was more: what is made of a body is no row of the record
        IF FOUND AND total = 0 THEN
            total := 1;
        END IF;
    END IF;
    IF to_regclass('{schema}.labels') IS NOT NULL THEN
        UPDATE {schema}.labels l SET note = '' WHERE l.call_id = given AND l.note <> '';
        GET DIAGNOSTICS n = ROW_COUNT;
        total := total + n;
        -- the path of a session's page has its name, which is content
        UPDATE {schema}.reads r SET filters = '', path = coalesce(substring(r.path FROM '^/debug/sessions/[^/]*/'), r.path)
            WHERE r.call_ids @> ARRAY[given] AND (r.filters <> '' OR r.path ~ '^/debug/sessions/[^/]*/.');
        GET DIAGNOSTICS n = ROW_COUNT;
        total := total + n;
    END IF;
    IF to_regclass('{schema}.debug_logs') IS NOT NULL THEN
        DELETE FROM {schema}.debug_logs l WHERE l.call_id = given;
        GET DIAGNOSTICS n = ROW_COUNT;
        total := total + n;
    END IF;
    IF to_regclass('{schema}.redacted_calls') IS NOT NULL THEN
        INSERT INTO {schema}.redacted_calls (call_id) VALUES (given) ON CONFLICT DO NOTHING;
    END IF;
    UPDATE {schema}.seal_rows SET salt = NULL WHERE call_id = given;
    SELECT count(*) INTO n FROM {schema}.events WHERE call_id = given AND kind = 'redacted';
    INSERT INTO {schema}.events (call_id, kind, number, at, detail) VALUES (given, 'redacted', n + 1, now(), why);
    RETURN total;
END
$$
"""
_STEP = """
    INSERT INTO {schema}.redactions (call_id, table_name, row_key, hashes)
        SELECT t.call_id, '{table}', {key}, {hashes} FROM {schema}.{table} t WHERE t.call_id = given{but} ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    total := total + n;
    UPDATE {schema}.{table} t SET {emptied} WHERE t.call_id = given{but};
"""
_LATER = "SELECT EXISTS (SELECT FROM seals WHERE form >= %s)"


def first_columns() -> dict[str, str]:
    """Return the columns behind `call_id` of each table, and its key, as the first migration made them."""
    return {table.name: definition(table) for table in tables_of(1)}


def definition(table: CallTable) -> str:
    """Return a table's columns behind `call_id`, and its key, as they were when it was new."""
    columns = [f"{column.name} {column.kind}{_default(column)}" for column in table.columns if column.mark.since <= table.since]
    return ", ".join([*columns, f"PRIMARY KEY ({', '.join(['call_id', *(column.name for column in table.key)])})"])


def tables_of(version: int) -> list[CallTable]:
    """Return the tables that this version of the form covers."""
    return [table for table in TABLES if table.since <= version]


def names_of(version: int) -> list[str]:
    """Return the names of all partitioned tables there are in this version: those of seals came with the first."""
    return [*(table.name for table in tables_of(version)), "seal_rows", "redactions"]


def add_columns(op: Operations, version: int) -> None:
    """Add the columns that this version of the form covers first."""
    for table, columns in _of_version(version):
        added = ", ".join(f"ADD COLUMN IF NOT EXISTS {column.name} {column.kind}{_default(column)}" for column in columns)
        change_briefly(op, f"ALTER TABLE {table.name} {added}")
    if version >= _WITH_MADE_FOR:
        change_briefly(op, f"ALTER TABLE seals ALTER COLUMN made_for SET DEFAULT {version}")
    make_redaction(op, version)


def drop_columns(op: Operations, version: int) -> bool:
    """Drop them, unless there are seals over them: without what they cover they would never hold again. Nobody is in their way."""
    if version > _WITH_MADE_FOR:
        op.execute(f"ALTER TABLE seals ALTER COLUMN made_for SET DEFAULT {version - 1}")
    if are_seals_from(op, version):
        return False
    make_redaction(op, version - 1)
    # as views read them, blocks behind tool calls: in another order a reader and this would wait for each other
    for table, columns in sorted(_of_version(version), key=lambda one: one[0].name == "blocks"):
        op.execute(f"ALTER TABLE {table.name} {', '.join(f'DROP COLUMN {column.name}' for column in columns)}")
    return True


def are_seals_from(op: Operations, version: int) -> bool:
    """Are there seals of this version or a later one?"""
    return bool(op.get_bind().exec_driver_sql(_LATER, (version,)).scalar_one())


def make_redaction(op: Operations, version: int) -> None:
    """Make the function that empties what this version covers, and keeps the hashes of it."""
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    steps = "".join(_step(schema, form, version) for form in FORMS)
    op.execute(_REDACT.format(schema=schema, lock=SEAL_LOCK, steps=steps))


def _of_version(version: int) -> list[tuple[CallTable, list[Stored]]]:
    found = [(table, [column for column in table.columns if column.mark.since == version]) for table in TABLES]
    return [(table, columns) for table, columns in found if columns]


def _default(column: Stored) -> str:
    if column.is_nullable:
        return ""
    return " NOT NULL" if column.default is None else f" NOT NULL DEFAULT '{column.default}'"


def _step(schema: str, form: Form, version: int) -> str:
    content = form.content[: form.counts[version][1]]
    emptied = ", ".join(f"{name} = CASE WHEN t.{name} IS NOT NULL THEN ''::{kind} END" for name, kind in content)
    but = f" AND t.kind <> '{REDACTED}'" if form.table == "events" else ""
    hashes = form.contents_sql(version, salt="salt")
    made = _STEP.format(schema=schema, table=form.table, key=form.key_sql, hashes=hashes, emptied=emptied, but=but)
    return made if content else ""
