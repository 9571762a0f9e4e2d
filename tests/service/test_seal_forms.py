"""Two versions of the sealed form on one record: this one, and one that a later Sluice may have
(`tests.support.second_version`)."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from db.canonical import VERSION
from db.seals.evidence import make as make_evidence
from db.seals.redact import redact
from db.seals.seal import Sealer
from db.seals.verify import verify
from protocol.records import EventRecord, decode_records, encode_records
from tests.conftest import SEED
from tests.support.checks.reading import insert
from tests.support.checks.record import call_id, fresh_database, now_ms, rows
from tests.support.checks.sealed import fill, keep, many_rows
from tests.support.second_version import Second, second_version

NEXT = VERSION + 1


def make(url: str, *, sealed: bool = True) -> str:
    """A call of this version."""
    made = call_id()
    asyncio.run(
        insert(url, *many_rows(made, random.Random(SEED), secret="s"), bodies={made: b"{}"})
    )
    if sealed:
        seal(url, made)
    return made


def seal(url: str, *calls: str) -> None:
    """Seal as this version does."""
    with Sealer(url) as sealer:
        assert sealer.seal(map(UUID, calls)) == len(calls)
        sealer.checkpoint()


def forms(url: str) -> list[tuple[int, int]]:
    """In which version seals were made, and for which tables."""
    return rows(url, "SELECT form, made_for FROM seals WHERE part >= 0 ORDER BY position")


def found(url: str) -> list[tuple[str, str]]:
    """What a verification by this version finds."""
    return [(finding.damage.value, finding.detail) for finding in verify(url).findings]


@pytest.fixture(scope="module")
def second() -> Iterator[Second]:
    """A process of the second version."""
    with second_version() as process:
        yield process


@pytest.fixture
def url(database_url: str) -> Iterator[str]:
    """A database of this version."""
    with fresh_database(database_url) as fresh:
        yield fresh


@pytest.mark.slow
def test_a_record_of_the_first_version_holds_under_the_second_and_goes_on(
    url: str, second: Second, tmp_path: Path
) -> None:
    plain, late, redacted = make(url), make(url), make(url)
    assert redact(url, UUID(redacted), "before the migration") > 0
    seal(url)
    [(text,)] = rows(url, "SELECT text FROM checkpoints ORDER BY size DESC LIMIT 1")
    (tmp_path / "evidence").write_bytes(make_evidence(url, UUID(plain), 2).dump())
    assert second("migrate", url) == "r0099"
    assert second("verify", url) == [3, 1, 1, 0, []]
    assert second("check_evidence", tmp_path / "evidence", text)
    # a record that comes late, and a redaction, are sealed in the second version
    events = [
        EventRecord(call_id=call, kind="fenced", number=7, at=now_ms(), detail="late")
        for call in (late, redacted)
    ]
    asyncio.run(insert(url, *events))
    assert second("seal", url, late, redacted) == 2
    assert second("redact", url, plain) > 0
    new = second("add", url)
    assert second("seal", url, new) == 1
    assert forms(url) == [(VERSION, VERSION)] * 4 + [(NEXT, NEXT)] * 4
    assert second("verify", url) == [4, 2, 3, 0, []]
    assert second("redact", url, new) > 0
    shown = (
        "SELECT c.colour, m.words, e.weight FROM calls c JOIN moods m USING (call_id) JOIN ends e"
        " USING (call_id)"
    )
    assert rows(url, shown) == [("", "", 7)]
    assert second("verify", url) == [4, 3, 4, 0, []]
    assert any(
        kind == "altered"
        and f"a version that this one does not know (it knows up to {VERSION})" in detail
        for kind, detail in found(url)
    )


@pytest.mark.slow
def test_the_first_version_goes_on_beside_the_second(url: str, second: Second) -> None:
    assert second("migrate", url) == "r0099"
    # nothing that its seal does not cover
    make(url)
    assert second("verify", url) == [1, 0, 0, 0, []]
    # of the second version, sealed by the first: not sealed yet, until a process of the second
    # looks
    mixed = second("add", url)
    seal(url, mixed)
    assert forms(url) == [(VERSION, NEXT), (VERSION, NEXT)]
    assert second("verify", url) == [2, 0, 0, 1, []]
    assert second("seal", url) == 1
    assert forms(url) == [(VERSION, NEXT), (VERSION, NEXT), (NEXT, NEXT)]
    assert second("verify", url) == [2, 0, 0, 0, []]
    # and the other way round: the first had it in mind too
    again = second("add", url)
    assert second("seal", url, again) == 1
    seal(url, again)
    assert second("verify", url) == [3, 0, 0, 1, []]
    assert second("seal", url) == 1
    assert second("verify", url) == [3, 0, 0, 0, []]
    assert rows(url, "SELECT sluice_ensure_partitions('2031-03-01', 1, 'moods')") == [(1,)]


@pytest.mark.slow
def test_what_is_changed_in_a_record_of_two_versions_is_found(url: str, second: Second) -> None:
    old = make(url)
    second("migrate", url)
    new = second("add", url)
    second("seal", url, new)
    keep(url, "moods")
    # nobody could put it there in order
    uncovered = f"of version {VERSION}, does not cover"
    found_by = {
        f"UPDATE calls SET colour = 'red' WHERE call_id = '{new}'": "content or columns are others",
        f"UPDATE ends SET weight = NULL WHERE call_id = '{new}'": "content or columns are others",
        f"DELETE FROM moods WHERE call_id = '{new}'": "",
        f"UPDATE calls SET colour = 'red' WHERE call_id = '{old}'": uncovered,
        f"UPDATE ends SET weight = 1 WHERE call_id = '{old}'": uncovered,
        f"INSERT INTO moods VALUES ('{old}', 1, now(), 'x')": uncovered,
        f"UPDATE seals SET form = {VERSION} WHERE call_id = '{new}'": "",
        f"UPDATE seals SET form = {NEXT}, made_for = {NEXT} WHERE call_id = '{old}'": "",
        f"UPDATE seals SET form = {NEXT + 1} WHERE call_id = '{new}'": (
            "a version that this one does not know"
        ),
        f"UPDATE seals SET form = 0 WHERE call_id = '{new}'": (
            "a version that this one does not know"
        ),
    }
    for statement, findings in zip(found_by, second("verify_each", url, *found_by), strict=True):
        assert findings and any(found_by[statement] in one for one in findings), (
            statement,
            findings,
        )
    assert second("verify", url)[-1] == []


def test_a_record_of_one_version_has_no_calls_to_cover_again(url: str) -> None:
    fill(url, random.Random(SEED), calls=3)
    with Sealer(url) as sealer:
        assert sealer.find_beside() == []
    assert forms(url) == [(VERSION, VERSION)] * 3


def test_a_redaction_takes_the_rule_and_its_seal_holds(url: str) -> None:
    made = make(url)
    assert redact(url, UUID(made), "names somebody") > 0
    assert rows(url, "SELECT DISTINCT rule FROM tool_calls WHERE rule IS NOT NULL") == [("",)]
    assert verify(url).ok and verify(url).redacted == 1


def test_the_name_of_a_version_is_noticed(url: str) -> None:
    made = make(url)
    for form in (-1, 0, VERSION + 1):
        rows(url, "UPDATE seals SET form = %s WHERE call_id = %s", form, made)
        assert any(
            kind == "altered" and "a version that this one does not know" in detail
            for kind, detail in found(url)
        ), form


@pytest.mark.slow
def test_records_of_two_versions_are_read_by_both(second: Second) -> None:
    """What is new stands last and has a default: the one leaves out what the other does not
    know."""
    record = many_rows(call_id(), random.Random(SEED))[0]
    packed = encode_records([record])
    given, theirs = second("repack", packed.hex())
    assert given == [record.call_id, None], "a record without it"
    assert decode_records(bytes.fromhex(theirs)) == [record], "a record with it"
