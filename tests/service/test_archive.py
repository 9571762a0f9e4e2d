"""Days of the record as folders: verified, whole, and restored; nothing goes that is not archived where it is to be."""

import gzip
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from db.seals.archive import Damaged, archive_day, check_folder, restore
from db.seals.redact import redact
from db.seals.retention import Retention
from db.seals.seal import Sealer
from db.seals.verify import verify
from protocol.errors import InvalidRequest
from tests.support.checks.record import NOW, fresh_database, rows
from tests.support.checks.sealed import Log, fill, run

OLD_DAYS = 9
DAY = datetime.fromtimestamp(NOW / 1000, UTC).date() - timedelta(days=OLD_DAYS)
TABLES = ("calls", "request_bodies", "chunks", "releases", "tool_calls", "judgements", "events")


@pytest.fixture(scope="module")
def log(database_url: str) -> Iterator[Log]:
    """Sealed calls of nine days ago, one redacted."""
    with fresh_database(database_url) as url:
        log = fill(url, random.Random(3), calls=4, checkpoints=1, days_ago=OLD_DAYS)
        assert redact(url, log.calls[1], "asked for")
        with Sealer(url) as sealer:
            sealer.checkpoint()
        yield log


def test_a_day_is_archived_verified_and_restored_and_then_goes(log: Log, tmp_path: Path) -> None:
    held = {table: rows(log.url, f"SELECT * FROM {table} ORDER BY 1, 2") for table in TABLES}
    count = archive_day(log.url, DAY, tmp_path)
    assert count == check_folder(tmp_path / str(DAY)) == 27 * 4 + 1
    assert archive_day(log.url, DAY, tmp_path) is None
    with Retention(log.url, {"chunks": 3}, str(tmp_path / "more")) as retention:
        assert sum(retention.take(step) for step in retention.due(datetime.now(UTC).date())) == 4
    assert check_folder(tmp_path / "more" / str(DAY)) == count
    assert verify(log.url).shed == 4
    shed = archive_day(log.url, DAY, tmp_path / "shed")
    assert shed is not None and shed < count and check_folder(tmp_path / "shed" / str(DAY)) == shed
    for _ in range(2):
        assert restore(log.url, tmp_path / str(DAY)) == count
    assert held == {table: rows(log.url, f"SELECT * FROM sluice_restored.{table} ORDER BY 1, 2") for table in TABLES}
    assert verify(log.url).ok


def test_what_is_changed_in_a_folder_is_found(log: Log, tmp_path: Path) -> None:
    archive_day(log.url, DAY, tmp_path)
    folder = tmp_path / str(DAY)
    assert run(log.url, "verify", "--archive", str(tmp_path)).exit_code == 0
    assert run(log.url, "verify", "--archive", str(tmp_path), "--public-key", "key.pem").exit_code == 2, "nothing would look at it"
    file, manifest = folder / "tool_calls.copy.gz", json.loads((folder / "manifest.json").read_text())
    whole, data = file.read_bytes(), gzip.decompress(file.read_bytes())
    file.write_bytes(whole[:-20])
    with pytest.raises(Damaged, match="cannot be read"):
        check_folder(folder)
    changed = data.replace(b"block", b"allow")
    file.write_bytes(gzip.compress(changed))
    with pytest.raises(Damaged, match="not what was written"):
        check_folder(folder)

    manifest["tables"]["tool_calls"] |= {"sha256": sha256(changed).hexdigest(), "bytes": len(changed)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(Damaged, match="not those of its seal"):
        check_folder(folder)
    told = run(log.url, "verify", "--archive", str(tmp_path))
    assert told.exit_code == 1 and "NOT OK" in told.stdout
    (folder / "manifest.json").unlink()
    with pytest.raises(Damaged, match="no manifest"):
        check_folder(folder)


def test_what_does_not_fit_its_seal_is_not_archived_and_stays(log: Log, tmp_path: Path) -> None:
    rows(log.url, "UPDATE tool_calls SET verdict = 'allow' WHERE call_id = %s AND block = 2", log.calls[2])
    with pytest.raises(InvalidRequest, match="is not archived: altered"):
        archive_day(log.url, DAY, tmp_path)
    with Retention(log.url, {"releases": 3}, str(tmp_path)) as retention:
        [step, *_] = retention.due(datetime.now(UTC).date())
        with pytest.raises(InvalidRequest, match="is not archived"):
            retention.take(step)
        assert rows(log.url, "SELECT count(*) > 0 FROM releases") == [(True,)]
    assert not list(tmp_path.iterdir())
    rows(log.url, "UPDATE tool_calls SET verdict = 'block' WHERE call_id = %s AND block = 2", log.calls[2])


def test_the_commands_archive_and_restore(log: Log, tmp_path: Path) -> None:
    made = run(log.url, "archive", "--before", str(DAY + timedelta(days=2)), "--to", str(tmp_path), "--json")
    assert json.loads(made.stdout)["days"][str(DAY)] > 0, made.output
    assert run(log.url, "restore", str(tmp_path), "--day", str(DAY)).exit_code == 0
    assert run(log.url, "restore", str(tmp_path), "--day", "2020-01-01").exit_code == 2
    assert run(log.url, "archive", "--before", "2999-01-01", "--to", str(tmp_path)).exit_code == 2
