"""Migrations that index a long record keep writers out for a moment at most, and may be interrupted."""

import asyncio
import threading
from collections.abc import Iterator

import psycopg
import pytest

from db.columns import TABLES
from db.link import conninfo
from db.migrations import migrate
from db.migrations.place import newest
from db.write.insert import AuditInserter
from tests.support.checks.record import call_id, fresh_database, rows, whole_call

INVALID = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"


@pytest.fixture
def behind(database_url: str) -> Iterator[str]:
    """A database that stands before the newest indexes."""
    with fresh_database(database_url) as url:
        migrate.downgrade(url, "0005")
        yield url


@pytest.mark.slow
async def test_writers_go_on_while_indexes_wait_for_one_of_them(behind: str) -> None:
    held, late = call_id(), call_id()
    # writers of today know them; their own migrations leave them where they are
    rows(behind, "CREATE TABLE redacted_calls (call_id uuid NOT NULL PRIMARY KEY)")
    for table in TABLES:
        for column in (column for column in table.columns if column.mark.since > 1):
            default = "" if column.is_nullable else " NOT NULL DEFAULT ''"
            rows(behind, f"ALTER TABLE {table.name} ADD COLUMN {column.name} {column.kind}{default}")
    with psycopg.connect(conninfo(behind)) as slow:
        # a transaction that wrote and does not end: every index has to wait for it
        slow.execute("INSERT INTO request_bodies (call_id, body) VALUES (%s, '')", (held,))
        slow.execute("INSERT INTO tool_releases (call_id, block, at) VALUES (%s, 1, now())", (held,))
        slow.execute("LOCK TABLE calls, tool_calls, blocks, judgements IN ROW EXCLUSIVE MODE")
        migration = threading.Thread(target=migrate.upgrade, args=(behind,))
        migration.start()
        async with AuditInserter(behind) as inserter:
            for _ in range(20):
                # the time that one batch may take is the inserter's own: without it, it would wait for the migration for ever
                assert not await inserter.insert(whole_call(call_id()), {})
        assert await asyncio.to_thread(migrate.current, behind) != migrate.head()
        slow.commit()
    await asyncio.to_thread(migration.join, 60)
    assert migrate.current(behind) == migrate.head()
    assert rows(behind, INVALID) == migrate.schema_diff(behind) == []
    async with AuditInserter(behind) as inserter:
        assert not await inserter.insert(whole_call(late), {})


@pytest.mark.slow
def test_what_an_interrupted_migration_left_is_made_anew(behind: str) -> None:
    rows(behind, "CREATE INDEX calls_key_idx ON ONLY calls (key, call_id)")
    # half made, or of another version: whatever it is, it is not attached
    rows(behind, "CREATE INDEX calls_default_key_idx ON sluice_parts.calls_default (session)")
    assert rows(behind, INVALID) == [("calls_key_idx",)]
    migrate.upgrade(behind)
    assert migrate.current(behind) == newest()
    assert rows(behind, INVALID) == migrate.schema_diff(behind) == []
    [(indexed,)] = rows(behind, "SELECT pg_get_indexdef('sluice_parts.calls_default_key_idx'::regclass)")
    assert "(key, call_id)" in indexed


@pytest.mark.slow
def test_two_migrations_at_once_do_the_work_once(behind: str) -> None:
    both = [threading.Thread(target=migrate.upgrade, args=(behind,)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    assert migrate.current(behind) == migrate.head()
    assert rows(behind, INVALID) == []
