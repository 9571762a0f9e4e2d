"""What the second version is asked to do in a test."""

import asyncio
import random
from pathlib import Path
from uuid import UUID

import msgspec

import protocol.records
from db.canonical import VERSION
from db.migrations import migrate as migrations
from db.seals.proof import check
from db.seals.redact import redact as redact_call
from db.seals.seal import Sealer
from db.seals.verify import verify as verify_record
from protocol.records import CallRecord, EndRecord, Record
from tests.support.checks.reading import insert
from tests.support.checks.record import call_id, now_ms, rows
from tests.support.checks.sealed import many_rows, put_back

COLOUR, WORDS = "violet of the second version", "words of the second version"


def migrate(url: str) -> str | None:
    """Bring the database to the second version."""
    assert VERSION == 4
    migrations.upgrade(url)
    return migrations.current(url)


def add(url: str) -> str:
    """Insert a call with all that is new; returns its id."""
    made = call_id()
    mood = protocol.records.MoodRecord(call_id=made, block=1, at=now_ms(), words=WORDS)  # type: ignore[attr-defined]
    records: list[Record] = [
        (
            msgspec.structs.replace(one, colour=COLOUR)
            if isinstance(one, CallRecord)
            else msgspec.structs.replace(one, weight=7)
            if isinstance(one, EndRecord)
            else one
        )
        for one in many_rows(made, random.Random(2))
    ]
    asyncio.run(insert(url, *records, mood, bodies={made: b"{}"}))
    return made


def seal(url: str, *calls: str) -> int:
    """Seal these calls, or those that the first version sealed without what is new; returns how
    many seals were added."""
    with Sealer(url) as sealer:
        added = sealer.seal(map(UUID, calls) if calls else sealer.find_beside())
        sealer.checkpoint()
    return added


def redact(url: str, call: str) -> int:
    """Delete the content of a call; returns how many rows had some."""
    return redact_call(url, UUID(call), "asked for")


def verify(url: str) -> tuple[int, int, int, int, list[str]]:
    """Return how many calls there are, redacted, with rows that came late, and not sealed yet, and
    what was found."""
    report = verify_record(url)
    return (
        report.calls,
        report.redacted,
        report.extended,
        report.unsealed,
        [f"{one.damage}: {one.detail}" for one in report.findings],
    )


def verify_each(url: str, *statements: str) -> list[list[str]]:
    """Return what is found after each of these statements, which is taken back again."""
    found = []
    for statement in statements:
        rows(url, statement)
        found.append(verify(url)[-1])
        put_back(url, "moods")
    return found


def check_evidence(file: str, checkpoint: str) -> bool:
    """Check a file that the first version wrote."""
    check(Path(file).read_bytes(), against=[checkpoint])
    return True


def repack(packed: str) -> tuple[list[str | None], str]:
    """Read the record of a call of the first version; return its id and colour, and the record with
    a colour."""
    [record] = protocol.records.decode_records(bytes.fromhex(packed))
    coloured = msgspec.structs.replace(record, colour=COLOUR)
    return [record.call_id, getattr(record, "colour", "")], protocol.records.encode_records(
        [coloured]
    ).hex()
