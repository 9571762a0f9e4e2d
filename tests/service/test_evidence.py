"""Evidence of one tool call: it verifies without a database, and a byte that is another is found
wherever it stands."""

import asyncio
import json
import random
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from db.seals import checkpoints, tiles
from db.seals.archive import archive_day
from db.seals.evidence import make
from db.seals.merkle import path_of, root_by_path
from db.seals.proof import DoesNotFit, check
from db.seals.redact import drop_before, redact
from db.seals.seal import Sealer
from db.seals.verify import snapshot
from protocol.errors import InvalidRequest, NotFound
from protocol.records import EventRecord
from sluice.audit import seal_cli
from tests.support.checks.reading import insert
from tests.support.checks.record import call_id, fresh_database, now_ms, rows
from tests.support.checks.sealed import Log, copy_of, fill, many_rows

KEY = Ed25519PrivateKey.generate()
BLOCK = 2


@pytest.fixture(scope="module")
def log(database_url: str) -> Iterator[Log]:
    """A record with three signed checkpoints."""
    with fresh_database(database_url) as url:
        yield fill(url, random.Random(7), calls=9, checkpoints=3, key=KEY)


@pytest.fixture(scope="module")
def file(log: Log) -> bytes:
    """Evidence of a tool call of the second checkpoint's."""
    return make(log.url, log.calls[4], BLOCK).dump()


def test_it_shows_the_rows_of_the_block_and_leads_to_each_checkpoint_after_its_seal(
    log: Log, file: bytes
) -> None:
    proven = check(file, key=KEY.public_key(), against=[log.checkpoints[0], log.checkpoints[2]])
    assert (proven.is_signed, proven.is_kept, proven.evidence.call_id) == (True, True, log.calls[4])
    [tool] = proven.evidence.rows("tool_calls")
    [(name, arguments)] = rows(
        log.url,
        "SELECT name, arguments FROM tool_calls WHERE call_id = %s AND block = %s",
        log.calls[4],
        BLOCK,
    )
    assert (tool["name"], tool["arguments"].encode()) == (name, bytes(arguments))
    [call], [judgement] = proven.evidence.rows("calls"), proven.evidence.rows("judgements")
    assert (call["key"], call["policy_revision"], judgement["block"]) == ("dev", "r1", BLOCK)
    assert judgement["prompt"].keys() == {"salted_sha256"}, (
        "a judge may be asked about the whole conversation"
    )
    for text in log.checkpoints[1:]:
        made = make(log.url, log.calls[4], BLOCK, size=checkpoints.parse(text).size)
        assert check(made.dump(), against=[text + "\n"]).is_kept


def test_every_block_of_every_call_has_evidence(log: Log) -> None:
    for call in log.calls:
        for block in (0, 1, 2):
            check(make(log.url, call, block).dump(), key=KEY.public_key())


def test_one_byte_that_is_another_is_found_in_every_line(log: Log, file: bytes) -> None:
    chance, at = random.Random(3), 0
    for line in file.splitlines(keepends=True):
        for place in {
            at,
            at + len(line) - 1,
            *(at + chance.randrange(len(line)) for _ in range(3)),
        }:
            for other in {file[place] ^ 1, file[place] ^ 0x20, chance.randrange(256)} - {
                file[place]
            }:
                changed = file[:place] + bytes([other]) + file[place + 1 :]
                with pytest.raises(DoesNotFit) as said:
                    check(changed, key=KEY.public_key(), against=[log.checkpoints[2]])
                assert len(str(said.value)) > 20
        at += len(line)
    for changed in (
        file[:-1],
        file + b"\n",
        file[1:],
        b"",
        b"{}",
        b"[1]",
        b"\xff",
        b'{"kind": "sluice evidence 9"}',
    ):
        with pytest.raises(DoesNotFit):
            check(changed)


def _change(file: bytes, **changes: Any) -> bytes:
    item = json.loads(file)
    for name, value in changes.items():
        *path, last = name.split("__")
        where = item
        for one in path:
            where = where[int(one) if one.isdecimal() else one]
        where[last] = value
    return (json.dumps(item, indent=1) + "\n").encode()


def test_it_says_what_does_not_fit(log: Log, file: bytes) -> None:
    item = json.loads(file)
    place = [table["table"] for table in item["tables"]].index("tool_calls")
    [shown] = item["tables"][place]["shown"]
    renamed = {**shown, "columns": {**shown["columns"], "verdict": "allow"}}
    other_key = Ed25519PrivateKey.generate()
    cases = [
        (
            _change(file, **{f"tables__{place}__shown": [renamed]}),
            "tool_calls, row 2: the hash is not that of the row",
        ),
        (_change(file, **{f"tables__{place}__shown": []}), "shows no row of the block"),
        (_change(file, block=1), "is of another block"),
        (_change(file, salt="00" * 32), "the hash is not that of the row"),
        (_change(file, seal__position=item["seal"]["position"] + 1), "does not lead from the seal"),
        (_change(file, seal__sha256="00" * 32), "the hash in the seal is not that of the tables"),
        (_change(file, seal__form=99), "verify with the Sluice that made it"),
        (_change(file, path=item["path"][1:]), "the path is too short"),
        (_change(file, tables=item["tables"][1:]), "every table that the seal covers"),
        (_change(file, checkpoint="x"), "none of Sluice"),
        (
            _change(file, checkpoint=item["checkpoint"] + "\n— x AAAA\n"),
            "not written as Sluice writes it",
        ),
    ]
    for changed, sentence in cases:
        with pytest.raises(DoesNotFit, match=sentence):
            check(changed, key=KEY.public_key())
    with pytest.raises(DoesNotFit, match="not signed by this key"):
        check(file, key=other_key.public_key())
    own = checkpoints.parse(item["checkpoint"])
    signed_otherwise = own.text(other_key)
    elsewhere = checkpoints.Checkpoint(own.origin, own.size, bytes(32), own.at, own.previous).text(
        None
    )
    for kept, sentence in (
        (log.checkpoints[0], "have it made"),
        (signed_otherwise, "its text or signature"),
        (elsewhere, "another root"),
    ):
        with pytest.raises(DoesNotFit, match=sentence):
            check(file, against=[kept])


def test_tiles_give_the_same_path_and_one_that_was_changed_is_not_believed(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "BITS", 1)
    monkeypatch.setattr(tiles, "WIDTH", 2)
    plain = make(log.url, log.calls[4], BLOCK)
    with Sealer(log.url) as sealer:
        assert (sealer.fill_tiles(), sealer.fill_tiles()) == (4, 0)
    assert rows(log.url, "SELECT level, count(*) FROM tree_tiles GROUP BY 1 ORDER BY 1") == [
        (0, 4),
        (1, 2),
        (2, 1),
    ]
    assert make(log.url, log.calls[4], BLOCK) == plain
    rows(
        log.url,
        "UPDATE tree_tiles SET root = sha256(root), hashes = sha256(hashes) || substr(hashes, 33)",
    )
    assert make(log.url, log.calls[4], BLOCK) == plain
    rows(log.url, "DELETE FROM tree_tiles")


def test_tiles_past_the_end_of_the_tree_stop_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "BITS", 1)
    monkeypatch.setattr(tiles, "WIDTH", 2)
    plain = make(log.url, log.calls[4], BLOCK)
    rows(
        log.url,
        "INSERT INTO tree_tiles SELECT level, index, '', '' FROM generate_series(0, 3) level,"
        " unnest(ARRAY[5, 1000000000]) index",
    )
    with Sealer(log.url) as sealer:
        assert (sealer.fill_tiles(), sealer.fill_tiles()) == (4, 0)
    assert rows(
        log.url, "SELECT level, count(*) FROM tree_tiles WHERE index < 5 GROUP BY 1 ORDER BY 1"
    ) == [(0, 4), (1, 2), (2, 1)]
    with snapshot(log.url, statement_timeout_ms=10_000) as connection:
        path = path_of(
            plain.position,
            checkpoints.parse(plain.checkpoint).size,
            tiles.Nodes(connection).subtree,
        )
    assert tuple(path) == plain.path, "of right tiles"
    rows(log.url, "DELETE FROM tree_tiles")


@pytest.mark.slow
def test_a_path_in_a_large_tree_reads_a_few_tiles(database_url: str) -> None:
    with fresh_database(database_url) as url:
        rows(
            url,
            "INSERT INTO seals (position, call_id, part, at, counts, sha256, note, form) SELECT i,"
            " gen_random_uuid(), 0, now(), ARRAY[1], sha256(i::text::bytea), '', 7 FROM"
            " generate_series(0, 69999) i",
        )
        with Sealer(url) as sealer:
            text = sealer.checkpoint()
            assert text is not None
            assert (sealer.fill_tiles(), sealer.fill_tiles(), sealer.fill_tiles()) == (200, 73, 0)
        size, root = checkpoints.parse(text).size, checkpoints.parse(text).root
        with snapshot(url, statement_timeout_ms=10_000) as connection:
            for position in (0, 255, 256, 65_535, 65_536, 69_887, 69_888, 69_999):
                nodes = tiles.Nodes(connection)
                path = path_of(position, size, nodes.subtree)
                [leaf] = tiles._leaves(connection, position, position + 1)
                assert root_by_path(leaf, position, size, path) == root
                assert nodes._missing <= 1, "only the end of the tree comes from the seals"


@pytest.mark.slow
def test_where_there_is_none_a_sentence_says_why(database_url: str) -> None:
    with fresh_database(database_url) as url:
        days = 86_400_000
        log = fill(url, random.Random(1), calls=2, checkpoints=1, days_ago=9)
        old, redacted = log.calls
        young, late = (UUID(call_id(now_ms() + at)) for at in (1, 2))
        for call in (young, late):
            asyncio.run(
                insert(url, *many_rows(str(call), random.Random(2)), bodies={str(call): b"{}"})
            )
        assert redact(url, redacted, "asked for") > 0
        sentences = {young: "has no seal yet", redacted: "was deleted on .* and with it the salt"}
        with Sealer(url) as sealer:
            sealer.seal([late])
            _refused(url, late, "under no checkpoint yet")
            sealer.checkpoint()
            check(
                make(url, late, BLOCK).dump(),
                against=[
                    str(rows(url, "SELECT text FROM checkpoints ORDER BY size DESC LIMIT 1")[0][0])
                ],
            )
            _refused(url, late, "after the checkpoint over 2 seals", size=2)
            _refused(url, late, "no checkpoint over 77 seals", size=77)
            asyncio.run(
                insert(
                    url,
                    EventRecord(
                        call_id=str(late), kind="takeover", number=9, at=now_ms(), detail="w"
                    ),
                )
            )
            _refused(url, late, "does not fit its seal: run `sluice audit verify --call")
            sealer.seal([late])
            _refused(url, late, "under no checkpoint yet")
            sealer.checkpoint()
            evidence = check(make(url, late, BLOCK).dump(), against=[newest(url)]).evidence
            assert evidence.part == 1
            for call, sentence in sentences.items():
                _refused(url, call, sentence)
            sealer.seal([young])
            sealer.checkpoint()
        for call, block in ((late, 99), (UUID(int=5), 1)):
            with pytest.raises(NotFound):
                make(url, call, block)
        assert drop_before(url, _day(now_ms() - 5 * days), "old", redis_time=time.time) == 2
        _refused(url, old, "were dropped on")
        rows(url, "UPDATE tool_calls SET verdict = 'allow' WHERE call_id = %s", late)
        _refused(url, late, "does not fit its seal")


def test_what_another_record_has_under_the_same_key_is_told(
    log: Log, database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "pem").write_text(checkpoints.public_pem(KEY))
    day = _day(now_ms() - 9 * 86_400_000)
    with copy_of(log.url) as one, fresh_database(database_url) as other:
        names = []
        for url, chance, days_ago in ((one, random.Random(4), 9), (other, random.Random(5), 8)):
            names.append(
                checkpoints.parse(
                    fill(
                        url, chance, calls=1, checkpoints=1, days_ago=days_ago, key=KEY
                    ).checkpoints[0]
                ).origin
            )
            archive_day(url, day + timedelta(days=9 - days_ago), tmp_path / f"days{days_ago}")
    told = [
        run(
            "",
            "verify",
            "--archive",
            str(tmp_path / "days9"),
            "--public-key",
            str(tmp_path / "pem"),
        ).stdout
    ]
    shutil.copytree(tmp_path / "days8", tmp_path / "days9", dirs_exist_ok=True)
    mixed = run(
        "", "verify", "--archive", str(tmp_path / "days9"), "--public-key", str(tmp_path / "pem")
    )
    assert told == [f"ok: 1 days, 27 rows of record {names[0]}, signed by the key\n"]
    assert mixed.exit_code == 1
    assert (
        f"{day + timedelta(days=1)}: it is of another record ({names[1]}) than the folders before"
        f" it ({names[0]})\n" in mixed.stdout
    )


def newest(url: str) -> str:
    """The newest checkpoint."""
    return str(rows(url, "SELECT text FROM checkpoints ORDER BY size DESC LIMIT 1")[0][0])


def _day(ms: int) -> date:
    return datetime.fromtimestamp(ms / 1000, UTC).date()


def _refused(url: str, call: UUID, sentence: str, size: int | None = None) -> None:
    with pytest.raises(InvalidRequest, match=sentence) as refused:
        make(url, call, BLOCK, size=size)
    assert refused.value.error_code == "no_evidence"


def run(url: str, *arguments: str) -> Any:
    return CliRunner().invoke(
        seal_cli.app, list(arguments), env={"SLUICE_DATABASE_URL": url, "COLUMNS": "200"}
    )


def test_the_commands_make_it_and_verify_it_without_a_database(log: Log, tmp_path: Path) -> None:
    kept, old, public, file = (tmp_path / name for name in ("kept", "old", "pem", "evidence.json"))
    kept.write_text(log.checkpoints[2])
    old.write_text(log.checkpoints[0])
    public.write_text(checkpoints.public_pem(KEY))
    made = run(log.url, "evidence", str(log.calls[4]), str(BLOCK))
    file.write_text(made.stdout)
    assert made.exit_code == 0
    assert "holds the salt" in made.stderr
    assert rows(log.url, "SELECT count(*) FROM reads WHERE key LIKE 'user %'") == [(1,)], (
        "who made it is on record"
    )
    away = "postgresql://nobody@127.0.0.1:9/none"
    told = run(
        away, "verify", "--evidence", str(file), "--public-key", str(public), "--against", str(kept)
    )
    assert (
        told.exit_code,
        "signed by the key and the same as the one kept elsewhere" in told.stdout,
    ) == (0, True)
    assert "arguments:" in told.stdout
    assert (
        "shown: calls 1 of 1, request_bodies 0 of 1, chunks 0 of 9, releases 0 of 3, blocks 0 of 1,"
        " tool_calls 1 of 2" in told.stdout
    )
    record = checkpoints.parse(log.checkpoints[2]).origin
    assert f"is on record {record} as above" in told.stdout
    as_json = run(away, "verify", "--evidence", str(file), "--against", str(kept), "--json")
    item = json.loads(as_json.stdout)
    assert (item["kept"], item["record"], item["shown"]["judgements"], item["shown"]["chunks"]) == (
        True,
        record,
        [1, 2],
        [0, 9],
    )
    assert run(away, "verify", "--evidence", str(file)).exit_code == 2
    refused = run(away, "verify", "--evidence", str(file), "--against", str(old))
    assert (refused.exit_code, "sluice audit evidence --checkpoint" in refused.stdout) == (1, True)
    earlier = run(log.url, "evidence", str(log.calls[1]), str(BLOCK), "--checkpoint", str(old))
    file.write_text(earlier.stdout)
    assert run(away, "verify", "--evidence", str(file), "--against", str(old)).exit_code == 0
    file.write_text(earlier.stdout.replace('"block": 2', '"block": 3', 1))
    assert (
        json.loads(
            run(away, "verify", "--evidence", str(file), "--against", str(old), "--json").stdout
        )["ok"]
        is False
    )
    assert (
        run(away, "verify", "--evidence", str(tmp_path / "none"), "--against", str(old)).exit_code
        == 2
    )
    assert run(log.url, "evidence", str(log.calls[1]), "77").exit_code == 1
