"""Migrations that index a long record keep writers out for a moment at most, and may be
interrupted."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from db.connections import conninfo
from db.migrations import migrate
from db.write.insert import AuditInserter
from tests.support.checks.record import call_id, fresh_database, rows, whole_call
from tests.support.later_migrations import INDEXES, add_migration

INVALID = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"
MADE = """
SELECT count(*)::int FROM pg_class WHERE relname = ANY (ARRAY[
    'calls_upstream_idx', 'tool_calls_executor_idx', 'blocks_policy_idx', 'judgements_search_idx', 'seals_at_idx'])
"""


@pytest.fixture
def behind(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database that stands before a migration with indexes."""
    with fresh_database(database_url) as url:
        add_migration(tmp_path, INDEXES, monkeypatch)
        yield url


@pytest.mark.slow
async def test_writers_go_on_while_indexes_wait_for_one_of_them(behind: str) -> None:
    held, late = call_id(), call_id()
    with psycopg.connect(conninfo(behind)) as slow:
        # a transaction that wrote and does not end: every index has to wait for it
        slow.execute("INSERT INTO request_bodies (call_id, body) VALUES (%s, '')", (held,))
        slow.execute(
            "INSERT INTO tool_releases (call_id, block, at) VALUES (%s, 1, now())", (held,)
        )
        slow.execute("LOCK TABLE calls, tool_calls, blocks, judgements IN ROW EXCLUSIVE MODE")
        migration = threading.Thread(target=migrate.upgrade, args=(behind,))
        migration.start()
        async with AuditInserter(behind) as inserter:
            for _ in range(20):
                # the time that one batch may take is the inserter's own: without it, it would wait
                # for the migration for ever
                assert not await inserter.insert(whole_call(call_id()), {})
        assert await asyncio.to_thread(migrate.current, behind) != migrate.head()
        slow.commit()
    await asyncio.to_thread(migration.join, 60)
    assert migrate.current(behind) == migrate.head()
    assert rows(behind, INVALID) == [] and rows(behind, MADE) == [(5,)]
    async with AuditInserter(behind) as inserter:
        assert not await inserter.insert(whole_call(late), {})


@pytest.mark.slow
def test_what_an_interrupted_migration_left_is_made_anew(behind: str) -> None:
    rows(behind, "CREATE INDEX calls_upstream_idx ON ONLY calls (upstream, call_id)")
    # half made, or of another version: whatever it is, it is not attached
    rows(behind, "CREATE INDEX calls_default_upstream_idx ON sluice_parts.calls_default (session)")
    assert rows(behind, INVALID) == [("calls_upstream_idx",)]
    migrate.upgrade(behind)
    assert migrate.current(behind) == migrate.head()
    assert rows(behind, INVALID) == [] and rows(behind, MADE) == [(5,)]
    [(indexed,)] = rows(
        behind, "SELECT pg_get_indexdef('sluice_parts.calls_default_upstream_idx'::regclass)"
    )
    assert "(upstream, call_id)" in indexed


@pytest.mark.slow
def test_an_index_of_a_table_without_partitions_may_be_interrupted_too(behind: str) -> None:
    with psycopg.connect(conninfo(behind)) as writer, ThreadPoolExecutor(1) as pool:
        # a transaction for which the index waits keeps it half made, and keeps nobody else out
        writer.execute("LOCK TABLE seals IN ROW EXCLUSIVE MODE")
        upgrading = pool.submit(migrate.upgrade, behind)
        half = (
            "SELECT count(*)::int FROM pg_stat_progress_create_index WHERE relid ="
            " 'seals'::regclass AND datname = current_database()"
        )
        while rows(behind, half) == [(0,)]:
            assert not upgrading.done()
        rows(behind, "SET lock_timeout = '200ms'; LOCK TABLE seals IN ROW EXCLUSIVE MODE")
        rows(
            behind,
            "SELECT pg_cancel_backend(pid) FROM pg_stat_progress_create_index WHERE datname ="
            " current_database()",
        )
        with pytest.raises(OperationalError):
            upgrading.result()
    assert migrate.current(behind) == "r0007"
    migrate.upgrade(behind)
    assert rows(behind, INVALID) == [] and rows(behind, MADE) == [(5,)]


@pytest.mark.slow
def test_two_migrations_at_once_do_the_work_once(behind: str) -> None:
    both = [threading.Thread(target=migrate.upgrade, args=(behind,)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    assert migrate.current(behind) == migrate.head()
    assert rows(behind, INVALID) == [] and rows(behind, MADE) == [(5,)]
