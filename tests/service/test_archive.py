"""Days of the record as folders: verified, whole, and restored; nothing goes that is not archived
where it is to be."""

import asyncio
import gzip
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from subprocess import Popen
from typing import Any
from uuid import UUID

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from db.canonical import FORMS
from db.connections import conninfo
from db.seals import archive_child, checkpoints, tiles
from db.seals.archive import TABLES as ALL
from db.seals.archive import archive_day
from db.seals.archived_files import Damaged, read_seals
from db.seals.folder import check_archive, check_folder, manifest_bytes
from db.seals.redact import redact
from db.seals.restore import restore
from db.seals.retention import RetentionRun
from db.seals.seal import Sealer
from db.seals.verify import verify
from protocol.errors import AuditUnavailable, InvalidRequest
from protocol.records import EndRecord, EventRecord
from tests.support.checks.reading import insert
from tests.support.checks.record import call_id, day_of, fresh_database, now_ms, rows
from tests.support.checks.sealed import Log, fill, run
from tests.support.json_values import Json, as_json
from tests.support.waiting import wait_for

OLD_DAYS = 9
TABLES = ("calls", "request_bodies", "chunks", "releases", "tool_calls", "judgements", "events")
KEY = Ed25519PrivateKey.generate()
COUNT = 27 * 4 + 2


@pytest.fixture(scope="module")
def sealed(database_url: str) -> Iterator[Log]:
    """Calls of nine days ago and of today in turn in the tree: of the old ones one was sealed again
    for a late row, one is redacted."""
    with fresh_database(database_url) as url:
        log = fill(url, random.Random(3), calls=4, checkpoints=1, days_ago=OLD_DAYS, key=KEY)
        log.checkpoints += fill(url, random.Random(4), calls=3, checkpoints=1, key=KEY).checkpoints
        come_late(log, 2)
        assert redact(url, log.calls[1], "asked for")
        log.checkpoints.append(under_checkpoint(url))
        log.checkpoints += fill(
            url, random.Random(5), calls=6, checkpoints=2, days_ago=1, key=KEY
        ).checkpoints
        yield log


@pytest.fixture(scope="module")
def day(sealed: Log) -> date:
    """The day of the oldest calls."""
    return day_of(sealed.calls[0])


@pytest.fixture(scope="module")
def archived(sealed: Log, day: date, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the folder of that day."""
    to = tmp_path_factory.mktemp("archive")
    assert archive_day(sealed.url, day, to).rows == COUNT
    return to


@pytest.fixture
def copied(archived: Path, tmp_path: Path) -> Path:
    """A copy of the directory, to be changed."""
    return shutil.copytree(archived, tmp_path / "copied")


def come_late(log: Log, call: int, number: int = 9) -> None:
    """A row of a sealed call comes late, and it is sealed again."""
    asyncio.run(
        insert(
            log.url,
            EventRecord(
                call_id=str(log.calls[call]),
                kind="takeover",
                number=number,
                at=now_ms(),
                detail="w",
            ),
        )
    )
    with Sealer(log.url) as sealer:
        assert sealer.seal([log.calls[call]]) == 1


def under_checkpoint(url: str) -> str:
    """Write a checkpoint."""
    with Sealer(url, key=KEY) as sealer:
        text = sealer.checkpoint()
    assert text is not None
    return text


@pytest.mark.slow
def test_a_day_is_archived_verified_and_restored_and_then_goes(
    log: Log, tmp_path: Path, day: date
) -> None:
    held = {
        table: rows(
            log.url, f"SELECT * FROM {table} WHERE call_id <= %s ORDER BY 1, 2", max(log.calls)
        )
        for table in TABLES
    }
    made = archive_day(log.url, day, tmp_path)
    assert (made.name, made.rows) == (str(day), COUNT)
    found = check_folder(tmp_path / str(day))
    assert found.checkpoint == log.checkpoints[2], (
        "the first over the late row and the redaction too"
    )
    assert (found.day, found.calls, found.rows, found.texts) == (
        day,
        4,
        COUNT,
        tuple(log.checkpoints),
    )
    assert archive_day(log.url, day, tmp_path).rows is None
    with RetentionRun(
        log.url, {"chunks": 3}, str(tmp_path / "more"), redis_time=time.time
    ) as retention:
        assert sum(retention.take(step) for step in retention.due()) == 4
    assert check_folder(tmp_path / "more" / str(day)).rows == COUNT
    assert verify(log.url).shed == 4
    # what is there holds more than the record does now
    assert archive_day(log.url, day, tmp_path).rows is None
    under_checkpoint(log.url)
    shed = archive_day(log.url, day, tmp_path / "shed").rows
    assert (
        shed is not None
        and shed < COUNT
        and check_folder(tmp_path / "shed" / str(day)).rows == shed
    )
    for _ in range(2):
        assert restore(log.url, tmp_path, day) == COUNT
    assert held == {
        table: rows(log.url, f"SELECT * FROM sluice_restored.{table} ORDER BY 1, 2")
        for table in TABLES
    }
    assert verify(log.url).ok


def test_files_and_folders_are_on_disk_before_it_is_said(
    sealed: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, day: date
) -> None:
    synced = []
    fsync = os.fsync

    def seen(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        fsync(file)

    monkeypatch.setattr(os, "fsync", seen)
    to = tmp_path / "new" / "archive"
    archive_day(sealed.url, day, to)
    names = [one.name for one in (to / str(day)).iterdir()]
    assert synced[:2] == [str(tmp_path), str(tmp_path / "new")]
    assert {Path(one).name for one in synced[2:-2]} == set(names) and len(names) == len(FORMS) + 4
    assert [Path(one).parent for one in synced[-2:]] == [
        to,
        to.parent,
    ], "the folder, and after it has its name what it lies in"


@pytest.mark.slow
def test_a_folder_of_that_name_is_no_proof(log: Log, tmp_path: Path, day: date) -> None:
    (tmp_path / str(day)).mkdir()
    assert archive_day(log.url, day, tmp_path).name == f"{day}.2"
    shutil.rmtree(tmp_path / str(day))
    assert archive_day(log.url, day, tmp_path).rows is None
    come_late(log, 3)
    with pytest.raises(InvalidRequest, match="under no checkpoint yet"):
        archive_day(log.url, day, tmp_path)
    under_checkpoint(log.url)
    assert archive_day(log.url, day, tmp_path).name == f"{day}.3"
    seals = tmp_path / f"{day}.3" / "seals.jsonl.gz"
    seals.write_bytes(seals.read_bytes()[:-9])
    with RetentionRun(log.url, {"chunks": 3}, str(tmp_path), redis_time=time.time) as retention:
        assert sum(retention.take(step) for step in retention.due()) == 4
    assert [one.name for one in sorted(tmp_path.iterdir())] == [f"{day}.{n}" for n in (2, 3, 4)]
    assert [one.problem[:14] for one in check_archive(tmp_path)] == ["", "seals.jsonl.gz", ""]
    shutil.rmtree(tmp_path / f"{day}.3")
    assert restore(log.url, tmp_path, day) == COUNT + 1, "the late row is of the newer folder"


@pytest.mark.slow
def test_a_directory_of_another_record_is_refused(
    log: Log, archived: Path, database_url: str
) -> None:
    with fresh_database(database_url) as url:
        fill(url, random.Random(6), calls=2, checkpoints=1, days_ago=OLD_DAYS)
        with RetentionRun(url, {"chunks": 3}, str(archived), redis_time=time.time) as retention:
            [step, *_] = retention.due()
            with pytest.raises(InvalidRequest, match="is of another record"):
                retention.take(step)
        assert rows(url, "SELECT count(DISTINCT call_id)::int FROM chunks") == [(2,)]


@pytest.mark.slow
def test_every_day_that_goes_is_archived_first(log: Log, tmp_path: Path, day: date) -> None:
    with RetentionRun(log.url, {"chunks": 3}, str(tmp_path), redis_time=time.time) as retention:
        late = fill(log.url, random.Random(8), calls=1, checkpoints=1, days_ago=OLD_DAYS - 2)
        # as who takes a later step first, or one list of steps after the other
        [step, *_] = retention.due()
        assert retention.take(replace(step, until=day + timedelta(days=3))) == 5
    names = [str(day), str(day + timedelta(days=2))]
    assert [(one.name, one.problem) for one in check_archive(tmp_path)] == [
        (name, "") for name in names
    ]
    assert [UUID(line["call_id"]) for line in read_seals(tmp_path / names[1])] == late.calls


@pytest.mark.slow
def test_what_came_after_its_day_went_keeps_no_other_day(
    log: Log, tmp_path: Path, day: date
) -> None:
    with RetentionRun(log.url, {"chunks": 3}, str(tmp_path), redis_time=time.time) as retention:
        [step, *_] = retention.due()
        assert retention.take(step) == 4
        rows(
            log.url,
            "INSERT INTO chunks (call_id, seq, at, raw, verdict, block) VALUES (%s, 1, now(), 'x',"
            " 'allow', 0)",
            log.calls[0],
        )
        fill(log.url, random.Random(8), calls=1, checkpoints=1, days_ago=OLD_DAYS - 2)
        assert retention.take(replace(step, until=day + timedelta(days=3))) == 1
    assert [one.name for one in check_archive(tmp_path)] == [str(day), str(day + timedelta(days=2))]


@pytest.mark.slow
def test_what_was_sealed_while_it_was_archived_stays(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, day: date
) -> None:
    run_child = archive_child.run

    def then_one_comes(*given: Any) -> Any:
        found = run_child(*given)
        come_late(log, 0)
        under_checkpoint(log.url)
        return found

    monkeypatch.setattr(archive_child, "run", then_one_comes)
    with RetentionRun(log.url, {"releases": 3}, str(tmp_path), redis_time=time.time) as retention:
        [step, *_] = retention.due()
        with pytest.raises(InvalidRequest, match="sealed meanwhile"):
            retention.take(step)
        monkeypatch.undo()
        assert rows(
            log.url,
            "SELECT count(DISTINCT call_id)::int FROM releases WHERE call_id <= %s",
            max(log.calls),
        ) == [(4,)]
        assert verify(log.url).ok
        assert retention.take(step) == 4
    assert [one.name for one in sorted(tmp_path.iterdir())] == [str(day), f"{day}.2"]


@pytest.mark.slow
def test_what_does_not_fit_its_seal_is_not_archived_and_stays(
    log: Log, tmp_path: Path, day: date
) -> None:
    rows(
        log.url,
        "UPDATE tool_calls SET verdict = 'allow' WHERE call_id = %s AND block = 2",
        log.calls[2],
    )
    with pytest.raises(InvalidRequest, match="is not archived: altered"):
        archive_day(log.url, day, tmp_path)
    with RetentionRun(log.url, {"releases": 3}, str(tmp_path), redis_time=time.time) as retention:
        [step, *_] = retention.due()
        with pytest.raises(InvalidRequest, match="is not archived"):
            retention.take(step)
        assert rows(log.url, "SELECT count(*) > 0 FROM releases") == [(True,)]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_process_that_archives_ends_at_once(log: Log, tmp_path: Path, day: date) -> None:
    def over(child: Popen[bytes]) -> None:
        child.kill()
        child.wait()

    # also where it is gone before it is told what to do
    for end in (Popen.kill, over):
        with pytest.raises(InvalidRequest, match="code -9"):
            # as where the system does: other kinds of rows go on
            archive_child.run(log.url, (day, datetime.now(UTC).date()), tmp_path, ALL, end)
    with (
        psycopg.connect(conninfo(log.url)) as other,
        ThreadPoolExecutor(1) as pool,
        RetentionRun(log.url, {"chunks": 3}, str(tmp_path), redis_time=time.time) as retention,
    ):
        [step, *_] = retention.due()
        other.execute("LOCK TABLE tool_calls")
        taken = pool.submit(retention.take, step)
        [making] = wait_for(
            lambda: list(tmp_path.glob(f".{day}.*/chunks.copy.gz")), what="the day is being written"
        )
        retention.cut()
        with pytest.raises(AuditUnavailable):
            taken.result(5)
    assert making.exists()
    with RetentionRun(log.url, {"chunks": 3}, str(tmp_path), redis_time=time.time) as retention:
        assert retention.take(step) == 4
    assert [one.name for one in tmp_path.iterdir()] == [str(day)], (
        "what a process left is taken away"
    )


@pytest.mark.slow
def test_the_process_that_archives_says_what_ended_it_and_loads_nothing_from_where_it_stands(
    sealed: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, day: date
) -> None:
    for name in ("db", "psycopg"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match=r"^TypeError in sql.py, line \d+$"):
        archive_child.run(
            sealed.url,
            (day, datetime.now(UTC).date()),
            tmp_path,
            [3],  # type: ignore[list-item]
            lambda _: None,
        )


def test_a_folder_whose_checkpoints_are_not_on_record_or_that_lacks_a_row_does_not_count(
    log: Log, tmp_path: Path, day: date
) -> None:
    assert archive_day(log.url, day, tmp_path).rows == COUNT
    rows(log.url, "DELETE FROM checkpoints WHERE size = (SELECT max(size) FROM checkpoints)")
    assert archive_day(log.url, day, tmp_path).name == f"{day}.2"
    assert archive_day(log.url, day, tmp_path).rows is None
    rows(
        log.url,
        "INSERT INTO chunks (call_id, seq, at, raw, verdict, block) VALUES (%s, 77, now(), 'x',"
        " 'allow', 0)",
        log.calls[0],
    )
    with pytest.raises(InvalidRequest, match="is not archived: inserted"):
        archive_day(log.url, day, tmp_path)


@pytest.mark.slow
def test_an_end_alone_that_came_while_older_days_were_looked_for_stays(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, day: date
) -> None:
    run_child, late = archive_child.run, call_id(now_ms() - (OLD_DAYS + 2) * 86_400_000)

    def then_one_comes(*given: Any) -> Any:
        assert run_child(*given) is None
        asyncio.run(
            insert(
                log.url,
                EndRecord(call_id=late, at=now_ms(), state="ENDED", reason="complete", status=200),
            )
        )
        with Sealer(log.url) as sealer:
            assert sealer.seal([UUID(late)]) == 1
        under_checkpoint(log.url)

    monkeypatch.setattr(archive_child, "run", then_one_comes)
    with RetentionRun(log.url, {"everything": 3}, str(tmp_path), redis_time=time.time) as retention:
        step = replace(retention.due()[0], until=day)
        with pytest.raises(InvalidRequest, match="sealed meanwhile"):
            retention.take(step)
        monkeypatch.undo()
        assert rows(log.url, "SELECT count(*)::int FROM ends WHERE call_id = %s", late) == [(1,)]
        assert retention.take(step) == 0
    assert [one.name for one in tmp_path.iterdir()] == [str(day - timedelta(days=2))]
    assert rows(log.url, "SELECT count(*)::int FROM ends WHERE call_id = %s", late) == [(0,)]


def test_where_inner_nodes_are_missing_no_seal_is_blamed(
    sealed: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, day: date
) -> None:
    class Damaged(tiles.Nodes):
        """A tile that is there is damaged, and too many would have to be made."""

        def __init__(self, connection: psycopg.Connection, *, is_trusting: bool) -> None:
            super().__init__(connection, is_trusting=is_trusting)
            self._is_damaged = is_trusting

        def subtree(self, level: int, index: int) -> bytes:
            if self._is_damaged:
                return bytes(32)
            raise AuditUnavailable("inner nodes are not kept yet")

    monkeypatch.setattr(tiles, "Nodes", Damaged)
    with pytest.raises(InvalidRequest, match="inner nodes are not kept yet"):
        archive_day(sealed.url, day, tmp_path)


@pytest.mark.slow
def test_what_is_redacted_after_it_was_archived_is_not_restored(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, day: date
) -> None:
    config, to = tmp_path / "sluice.yaml", tmp_path / "a"
    config.write_text(f"retention: {{archive: {to}}}\n")
    monkeypatch.setenv("SLUICE_CONFIG", str(config))

    def redacted(*options: str) -> str:
        return str(run(log.url, "redact", str(log.calls[0]), "--reason", "x", *options).stderr)

    assert "cannot be read here" in redacted("--dry-run"), "it may lie on another machine"
    archive_day(log.url, day, to)
    assert f"{to / str(day)} holds its content still: archive that day again" in redacted(
        "--dry-run"
    )
    with RetentionRun(log.url, {"chunks": 3}, str(to), redis_time=time.time) as retention:
        assert sum(retention.take(step) for step in retention.due()) == 4
    assert f"{to / str(day)} holds its content still, and rows of all calls" in redacted("--yes")

    def content() -> set[UUID]:
        found = rows(
            log.url,
            "SELECT call_id FROM sluice_restored.chunks WHERE raw <> '' UNION "
            "SELECT call_id FROM sluice_restored.tool_calls WHERE arguments <> ''",
        )
        return {row[0] for row in found}

    assert restore(log.url, to, day) == COUNT, "by what the database says"
    assert content() == {log.calls[2], log.calls[3]}
    under_checkpoint(log.url)
    assert archive_day(log.url, day, to).name == f"{day}.2"
    rows(log.url, "DELETE FROM redactions")
    assert restore(log.url, to, day) == COUNT + 1, (
        "by what the later folder says, which the event is in"
    )
    assert content() == {log.calls[2], log.calls[3]}
    [(said,)] = rows(
        log.url,
        "SELECT detail FROM sluice_restored.events WHERE call_id = %s AND kind = 'redacted'",
        log.calls[0],
    )
    assert said.endswith(": x")
    (to / f"{day}.2" / "seals.jsonl.gz").write_bytes(b"x")
    assert f"{day}.2 cannot be read" in redacted("--yes")


def test_the_commands_archive_and_restore(log: Log, tmp_path: Path, day: date) -> None:
    to, before = str(tmp_path / "a"), str(day + timedelta(days=2))
    with RetentionRun(log.url, {}, redis_time=time.time) as other:
        assert other.takes_turn()
        assert run(log.url, "archive", "--before", before, "--to", to).exit_code == 2, (
            "an audit writer writes the same folders"
        )
    made = run(log.url, "archive", "--before", before, "--to", to, "--json")
    assert json.loads(made.stdout)["days"] == {str(day): COUNT}, made.output
    assert run(log.url, "restore", to, "--day", str(day)).exit_code == 0
    assert run(log.url, "restore", to, "--day", "2020-01-01").exit_code == 2
    assert run(log.url, "archive", "--before", "2999-01-01", "--to", to).exit_code == 2


@pytest.mark.slow
def test_what_is_dropped_by_hand_is_archived_first(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, day: date
) -> None:
    config, to = tmp_path / "sluice.yaml", tmp_path / "a"
    config.write_text(f"retention: {{archive: {to}}}\n")
    monkeypatch.setenv("SLUICE_CONFIG", str(config))
    assert (
        f"a folder of {day} in it holds its content still"
        in run(log.url, "redact", str(log.calls[0]), "--reason", "x", "--yes").stderr
    )
    drop = ("drop", "--before", str(day + timedelta(days=1)), "--reason", "too old", "--yes")
    assert "under no checkpoint yet" in run(log.url, *drop).stderr
    under_checkpoint(log.url)
    assert "dropped 4 calls" in run(log.url, *drop).stderr
    assert [(one.name, one.problem) for one in check_archive(to)] == [(str(day), "")]
    assert verify(log.url).dropped == 4
    config.write_text("retention: {archive: 3}\n")
    assert run(log.url, *drop).exit_code == 2, "who cannot know whether to archive does not drop"


def test_a_folder_is_under_a_key_and_under_checkpoints_kept_elsewhere(
    log: Log, archived: Path, tmp_path: Path, day: date
) -> None:
    for name, text in (
        ("key", checkpoints.public_pem(KEY)),
        ("other", checkpoints.public_pem(Ed25519PrivateKey.generate())),
        *((str(n), text) for n, text in enumerate(log.checkpoints)),
    ):
        (tmp_path / name).write_text(text)

    def told(*options: str, of: Path = archived) -> tuple[int, str]:
        found = run(log.url, "verify", "--archive", str(of), *options)
        return found.exit_code, found.stdout

    assert told()[0] == 0 and "nothing vouches for it" in told()[1]
    assert told("--public-key", str(tmp_path / "key"))[0] == 0
    assert told("--public-key", str(tmp_path / "other")) == (
        1,
        f"{day}: its newest checkpoint is not signed by this key\nNOT OK: 1 of 1 days, 0 rows\n",
    )
    # those of after the day was sealed and of before it was archived; one of them is enough
    assert [told("--against", str(tmp_path / str(n)))[0] for n in range(5)] == [1, 1, 0, 0, 0]
    assert told("--against", str(tmp_path / "0"), "--against", str(tmp_path / "3"))[0] == 0
    forged = checkpoints.parse(log.checkpoints[3])
    (tmp_path / "forged").write_text(
        checkpoints.Checkpoint(
            forged.origin, forged.size, bytes(32), forged.at, forged.previous
        ).text(None)
    )
    assert "another than the one kept" in told("--against", str(tmp_path / "forged"))[1]
    # one of later, by way of the folder of another day
    more = shutil.copytree(archived, tmp_path / "more")
    later = fill(
        log.url, random.Random(9), calls=2, checkpoints=2, days_ago=OLD_DAYS - 1
    ).checkpoints[1]
    (tmp_path / "later").write_text(later)
    assert (
        "no checkpoint kept elsewhere says anything"
        in told("--against", str(tmp_path / "later"))[1]
    )
    assert (
        run(
            log.url, "archive", "--before", str(day + timedelta(days=2)), "--to", str(more)
        ).exit_code
        == 0
    )
    assert [one.problem for one in check_archive(more, against=[later])] == ["", ""]
    (tmp_path / "empty").mkdir()
    assert (
        told(of=tmp_path / "empty")[0]
        == told(of=tmp_path / "none")[0]
        == told("--call", "x")[0]
        == 2
    )


def _say_so(folder: Path, *names: str) -> None:
    """Have the manifest say what the files are now."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for name in names:
        data = (folder / name).read_bytes()
        manifest["files"][name.partition(".")[0]] |= {
            "bytes": len(data),
            "sha256": sha256(data).hexdigest(),
        }
    path.write_bytes(manifest_bytes(manifest))


def _change(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    (folder / name).write_bytes(
        gzip.compress(change(gzip.decompress((folder / name).read_bytes())))
    )
    _say_so(folder, name)


def _of_call(folder: Path, number: int, change: Callable[[Json], None]) -> None:
    def each(data: bytes) -> bytes:
        lines = [json.loads(line) for line in data.splitlines()]
        change(lines[number])
        return b"".join(as_json(line) + b"\n" for line in lines if line)

    _change(folder, "seals.jsonl.gz", each)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "the rows of call .* are not those of its seal": lambda folder: _change(
        folder, "tool_calls.copy.gz", lambda d: d.replace(b"block", b"allow")
    ),
    "is not what was written": lambda folder: (folder / "ends.copy.gz").write_bytes(b""),
    "its seals do not lead to the checkpoint": lambda folder: _of_call(
        folder, 0, lambda line: line["parts"][0].update(note="x")
    ),
    "not those of all parts": lambda folder: _of_call(
        folder, 2, lambda line: line["parts"][0].update(sha256="00" * 32)
    ),
    "no event of it says so": lambda folder: _of_call(
        folder, 0, lambda line: line.update(redacted=["chunks 00 00"])
    ),
    "under no seal of the folder": lambda folder: _of_call(folder, -1, lambda line: line.clear()),
    "stands in another place": lambda folder: _change(
        folder, "seals.jsonl.gz", lambda d: d + d[: d.index(b"\n") + 1]
    ),
    # the first row as a head that is longer: PostgreSQL would leave it out
    "does not begin as COPY BINARY does": lambda folder: _change(
        folder, "ends.copy.gz", lambda d: d[:15] + (40).to_bytes(4, "big") + d[19:]
    ),
    "does not stop where its rows do": lambda folder: _change(
        folder, "ends.copy.gz", lambda d: d + b"x"
    ),
    "a file ends in the middle of a row": lambda folder: _change(
        folder, "releases.copy.gz", lambda d: d[:-9]
    ),
    "do not follow each other": lambda folder: _change(
        folder, "checkpoints.jsonl.gz", lambda d: d[: d.index(b"\n") + 1] * 2
    ),
    "cannot be read as what was written: ValueError": lambda folder: _change(
        folder, "nodes.gz", lambda d: d[:-32]
    ),
    "KeyError": lambda folder: _of_call(folder, 1, lambda line: line.pop("salt")),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "is of another version of Sluice": (
        lambda folder: (folder / "manifest.json").write_text(
            (folder / "manifest.json").read_text().replace("archive 1", "archive 9")
        )
    ),
    "is not as Sluice writes it": (
        lambda folder: (folder / "manifest.json").write_text(
            (folder / "manifest.json").read_text() + " "
        )
    ),
}


@pytest.mark.parametrize("finding", DAMAGES)
def test_what_is_changed_in_a_folder_is_found(copied: Path, finding: str, day: date) -> None:
    DAMAGES[finding](copied / str(day))
    with pytest.raises(Damaged, match=finding):
        check_folder(copied / str(day))
    told = run("", "verify", "--archive", str(copied))
    assert told.exit_code == 1 and "NOT OK" in told.stdout
    assert json.loads(run("", "verify", "--archive", str(copied), "--json").stdout)["ok"] is False


@pytest.mark.slow
def test_a_byte_that_is_another_is_found_wherever_it_stands(copied: Path, day: date) -> None:
    folder, chance = copied / str(day), random.Random(1)
    for file in sorted(folder.iterdir()):
        whole = file.read_bytes()
        for at in [*range(10), *(chance.randrange(len(whole)) for _ in range(10))]:
            file.write_bytes(
                whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1 :]
            )
            with pytest.raises(Damaged):
                check_folder(folder)
            if file.suffix == ".gz":
                _say_so(folder, file.name)
                with suppress(Damaged):
                    # what is found is the content's, which some bytes of the packing do not change
                    assert check_folder(folder).rows == COUNT
        file.write_bytes(whole)
        if file.suffix == ".gz":
            _say_so(folder, file.name)
    assert check_folder(folder).rows == COUNT


@pytest.mark.slow
def test_a_record_that_is_made_anew_is_under_no_other_key(
    log: Log, archived: Path, tmp_path: Path, day: date
) -> None:
    rows(
        log.url,
        "UPDATE tool_calls SET verdict = 'allow' WHERE call_id = %s AND block = 2",
        log.calls[2],
    )
    calls = [row[0] for row in rows(log.url, "SELECT DISTINCT call_id FROM seals ORDER BY 1")]
    for table in ("checkpoints", "seal_rows", "seals"):
        rows(log.url, f"DELETE FROM {table}")
    with Sealer(log.url, key=Ed25519PrivateKey.generate()) as sealer:
        sealer.seal(calls)
        sealer.checkpoint()
    archive_day(log.url, day, tmp_path)
    folder = tmp_path / str(day)
    assert (
        check_archive(tmp_path, key=KEY.public_key())[0].problem
        == "its newest checkpoint is not signed by this key"
    )
    for name in ("checkpoints.jsonl.gz", "nodes.gz"):
        shutil.copy(archived / str(day) / name, folder / name)
    _say_so(folder, "checkpoints.jsonl.gz", "nodes.gz")
    manifest = (folder / "manifest.json").read_text()
    named = json.loads(manifest)["record"]
    (folder / "manifest.json").write_text(
        manifest.replace(named, checkpoints.parse(log.checkpoints[0]).origin)
    )
    assert (
        "do not lead" in check_archive(tmp_path, key=KEY.public_key())[0].problem
        or "ValueError" in check_archive(tmp_path)[0].problem
    )
