"""`sluice up` makes a new database from one script; what the migrations make is what it has to equal."""

import shutil
from pathlib import Path

import pytest

from db.migrations import baseline, migrate, place
from db.migrations.place import digest, newest
from scripts.baseline import dump, script
from tests.support.checks.record import rows
from tests.support.servers.stores_shared import postgres_server


@pytest.mark.slow
def test_the_script_makes_what_the_migrations_make(tmp_path: Path) -> None:
    """It names the migrations as they are: after a change, `python -m scripts.baseline` writes it anew."""
    assert baseline.script_of(digest())
    # a database of its own: in that of all tests others have made partitions of further days
    with postgres_server(tmp_path / "migrated") as migrated:
        migrate.upgrade(migrated)
        theirs = dump(migrated)
    with postgres_server(tmp_path / "laid") as url:
        assert baseline.lay(url)
        assert migrate.current(url) == newest()
        assert migrate.schema_diff(url) == []
        assert dump(url) == theirs
        migrate.upgrade(url)
        assert dump(url) == theirs, "there is nothing left to migrate"
        assert not baseline.lay(url), "it is for empty databases only"
        migrate.downgrade(url)
        assert rows(url, "SELECT count(*) FROM pg_tables WHERE schemaname IN ('public', 'sluice_parts')") <= [(1,)]


def test_a_script_of_other_migrations_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "baseline.sql"
    monkeypatch.setattr(baseline, "FILE", other)
    assert not baseline.lay("postgresql://nobody@127.0.0.1:1/none"), "there is no script"
    other.write_text(f"{baseline.MARK}{'0' * 64}\nCREATE TABLE wrong ();\n")
    assert not baseline.script_of(digest())


def test_the_digest_is_of_the_modules_that_make_statements_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest()
    copy = shutil.copytree(Path(place.__file__).parent, tmp_path / "copy")
    monkeypatch.setattr(place, "__file__", str(copy / "place.py"))
    assert digest() == before
    with (copy / "primaries.py").open("a") as module:
        module.write("# changed\n")
    assert digest() != before


@pytest.mark.slow
def test_a_script_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "baseline.sql"
    broken.write_text(f"{baseline.MARK}{digest()}\nCREATE ROLE sluice_reader; CREATE TABLE half (); SELECT no_such_function();\n")
    with postgres_server(tmp_path) as url:
        monkeypatch.setattr(baseline, "FILE", broken)
        assert not baseline.lay(url)
        assert rows(url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
        migrate.upgrade(url)
        assert migrate.current(url) == migrate.head()


@pytest.mark.slow
def test_the_checked_in_script_is_what_is_written_now(tmp_path: Path) -> None:
    with postgres_server(tmp_path) as url:
        migrate.upgrade(url, first_days=0)
        assert baseline.FILE.read_text() == script(url)
