"""A1: whatever a superuser does to a filled record is noticed, named and placed."""

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db.canonical import FORMS, VERSION
from db.connections import conninfo
from db.filters import first_id
from db.migrations.removal import RUNS
from db.seals.archive import archive_day
from db.seals.findings import Damage
from db.seals.seal import Sealer
from db.seals.verify import verify, verify_part
from protocol.errors import InvalidRequest
from tests.conftest import SEED
from tests.support.checks.reading import insert
from tests.support.checks.record import (
    call_id,
    chunks_record,
    fresh_database,
    now_ms,
    rows,
    whole_call,
)
from tests.support.checks.sealed import DAY_MS, Log, copy_of, fill, keep, put_back, run, verified

EXAMPLES = int(os.environ.get("SLUICE_TAMPERINGS", "50"))
Tamper = Callable[[psycopg.Connection, Log], object]


@pytest.fixture(scope="module")
def log(database_url: str) -> Iterator[Log]:
    """A filled record."""
    with fresh_database(database_url) as url:
        filled = fill(url, random.Random(SEED))
        keep(url)
        yield filled


@pytest.fixture
def copy(log: Log) -> Iterator[Log]:
    """The filled record, for a test that damages it."""
    yield log
    put_back(log.url)


@pytest.mark.slow
@pytest.mark.case("A1")
def test_a1_an_untouched_record_passes(log: Log) -> None:
    code, said = verified(log.url)
    assert (code, said["ok"], said["first"], said["findings"]) == (0, True, None, [])
    assert (said["calls"], said["size"], said["checkpoints"], said["unsealed"]) == (12, 12, 3, 0)
    assert said["rows"] == 12 * sum(
        len(rows(log.url, f"SELECT 1 FROM {f.table} WHERE call_id = %s", log.calls[0]))
        for f in FORMS
    )
    assert said["checkpoint"] == log.checkpoints[-1]
    one = verified(log.url, "--call", str(log.calls[3]))
    assert (one[0], one[1]["calls"], one[1]["size"]) == (0, 1, 12)
    assert run(log.url, "verify").stdout.startswith("ok: 12 calls, ")


def sql(statement: str) -> Tamper:
    """One statement; %(call)s and %(other)s are two calls."""
    return lambda connection, log: connection.execute(
        statement.encode(), {"call": log.calls[4], "other": log.calls[7]}
    )


def swap_seqs(connection: psycopg.Connection, log: Log) -> None:
    for old, new in ((5, -1), (6, 5), (-1, 6)):
        connection.execute(
            "UPDATE chunks SET seq = %s WHERE call_id = %s AND seq = %s", (new, log.calls[4], old)
        )


def swap_calls(connection: psycopg.Connection, log: Log) -> None:
    aside = "00000000-0000-7000-8000-000000000000"
    for old, new in ((log.calls[4], aside), (log.calls[7], log.calls[4]), (aside, log.calls[7])):
        connection.execute("UPDATE chunks SET call_id = %s WHERE call_id = %s", (new, old))


def edit_and_rehash(connection: psycopg.Connection, log: Log) -> None:
    [(size, text, peaks)] = connection.execute(
        "SELECT size, text, peaks FROM checkpoints ORDER BY size LIMIT 1"
    ).fetchall()
    text = text.replace("0000000000", "1111111111", 1)
    connection.execute(
        "UPDATE checkpoints SET text = %s, sha256 = %s WHERE size = %s",
        (text, sha256(text.encode() + peaks).digest(), size),
    )


def delete_call(connection: psycopg.Connection, log: Log) -> None:
    for form in FORMS:
        connection.execute(f"DELETE FROM {form.table} WHERE call_id = %s".encode(), (log.calls[4],))


def forge_old_call(connection: psycopg.Connection, log: Log) -> None:
    connection.execute(
        "INSERT INTO tool_releases VALUES (%s, 1, now())", (call_id(now_ms() - 3 * DAY_MS),)
    )


def edit_and_reseal(connection: psycopg.Connection, log: Log) -> None:
    """What somebody does who knows of seals, but leaves the checkpoints: the edited call gets a
    seal that fits."""
    connection.execute(
        "UPDATE chunks SET raw = 'changed' WHERE call_id = %s AND seq = 2", (log.calls[4],)
    )
    connection.commit()
    with Sealer(log.url) as sealer:
        assert sealer.seal([log.calls[4]]) == 1


TAMPERINGS: dict[str, tuple[Tamper, str, str, str | None]] = {
    "flip a byte": (
        sql(
            "UPDATE chunks SET raw = set_byte(raw, 3, get_byte(raw, 3) # 1) WHERE call_id ="
            " %(call)s AND seq = 5"
        ),
        "altered",
        "chunks",
        "5",
    ),
    "change a verdict": (
        sql("UPDATE blocks SET verdict = 'block' WHERE call_id = %(call)s AND block = 0"),
        "altered",
        "blocks",
        "0",
    ),
    "hide from the search": (
        sql("UPDATE tool_calls SET search = '' WHERE call_id = %(call)s"),
        "altered",
        "tool_calls",
        "1",
    ),
    "delete a row": (
        sql("DELETE FROM chunks WHERE call_id = %(call)s AND seq = 5"),
        "missing",
        "chunks",
        "after 4",
    ),
    "delete a judgement": (
        sql("DELETE FROM judgements WHERE call_id = %(call)s AND block = 1"),
        "missing",
        "judgements",
        "the first",
    ),
    "delete the end": (sql("DELETE FROM ends WHERE call_id = %(call)s"), "missing", "ends", None),
    "insert a row": (
        sql("INSERT INTO chunks VALUES (%(call)s, 99, now(), 'x', 'allow', 0)"),
        "inserted",
        "chunks",
        "99",
    ),
    "insert an event": (
        sql("INSERT INTO events VALUES (%(call)s, 'fenced', 7, now(), '')"),
        "inserted",
        "events",
        "fenced/7",
    ),
    "insert an old call": (forge_old_call, "inserted", "tool_releases", "1"),
    "swap two rows": (swap_seqs, "reordered", "chunks", "5"),
    "cut the tail of a call": (
        sql("DELETE FROM chunks WHERE call_id = %(call)s AND seq > 6"),
        "truncated",
        "chunks",
        "after 6",
    ),
    "swap two calls": (swap_calls, "reordered", "", None),
    "delete a call's rows": (delete_call, "missing", "", None),
    "delete a call's seal": (
        sql("DELETE FROM seals WHERE call_id = %(call)s"),
        "missing",
        "seals",
        "4",
    ),
    "swap two seals": (
        sql(
            "UPDATE seals s SET sha256 = o.sha256 FROM seals o WHERE s.call_id = %(call)s AND"
            " o.call_id = %(other)s"
        ),
        "checkpoint_mismatch",
        "checkpoints",
        "8",
    ),
    "delete what a seal keeps": (
        sql("DELETE FROM seal_rows WHERE call_id = %(call)s"),
        "missing",
        "seal_rows",
        "0",
    ),
    "cut the newest seals": (
        sql("DELETE FROM seals WHERE position >= 9"),
        "truncated",
        "seals",
        "9",
    ),
    "edit a checkpoint": (
        sql("UPDATE checkpoints SET text = replace(text, 'sluice', 'other') WHERE size = 8"),
        "checkpoint_mismatch",
        "checkpoints",
        "8",
    ),
    "edit a checkpoint and its hash": (edit_and_rehash, "checkpoint_mismatch", "checkpoints", "4"),
    "delete a checkpoint": (
        sql("DELETE FROM checkpoints WHERE size = 8"),
        "checkpoint_mismatch",
        "checkpoints",
        "12",
    ),
    "edit and seal again": (edit_and_reseal, "altered", "seals", "4"),
}


@pytest.mark.case("A1")
@pytest.mark.parametrize("what", TAMPERINGS)
def test_a1_tampering_is_named_and_placed(copy: Log, what: str) -> None:
    tamper, damage, table, row = TAMPERINGS[what]
    with psycopg.connect(conninfo(copy.url)) as connection:
        tamper(connection, copy)
    code, said = verified(copy.url)
    assert (code, said["ok"]) == (1, False)
    first = said["first"]
    assert (first["class"], first["table"] or "", first["row"]) == (damage, table, row), said[
        "findings"
    ]
    if table not in ("seals", "checkpoints", "tool_releases"):
        assert first["call_id"] == str(copy.calls[4])
    assert damage in run(copy.url, "verify").stdout
    whole_tree = table in ("seals", "checkpoints")
    if not whole_tree and what != "insert an old call":
        assert verified(copy.url, "--call", str(copy.calls[5]))[0] == 0, (
            "another call is not to blame"
        )
        assert verified(copy.url, "--call", str(copy.calls[4]))[0] == 1


@pytest.mark.slow
@pytest.mark.case("A1")
def test_a1_a_restored_backup_is_noticed_with_a_checkpoint_kept_elsewhere(
    log: Log, tmp_path: Path
) -> None:
    kept = tmp_path / "checkpoint.txt"
    with copy_of(log.url) as url:
        newer = call_id()
        with Sealer(url) as sealer:
            asyncio.run(insert(url, *whole_call(newer)))
            rows_before = verify(log.url).rows
            sealer.seal([UUID(newer)])
            sealer.checkpoint()
        kept.write_text(run(url, "checkpoint").stdout)
        assert verified(url, "--against", str(kept))[0] == 0
        assert verify(url).rows > rows_before
    # the record as it was before: in itself it is in order
    assert verified(log.url)[0] == 0
    code, said = verified(log.url, "--against", str(kept))
    assert (code, said["first"]["class"], said["first"]["row"]) == (1, "restored_backup", "12")
    kept.write_text(log.checkpoints[1])
    assert verified(log.url, "--against", str(kept))[0] == 0, "an older one of this record fits"


@pytest.mark.case("A1")
def test_a1_a_full_rewrite_is_noticed_only_with_a_checkpoint_kept_elsewhere(
    copy: Log, tmp_path: Path
) -> None:
    rows(
        copy.url, "UPDATE chunks SET raw = 'changed' WHERE call_id = %s AND seq = 2", copy.calls[4]
    )
    for table in ("seals", "seal_rows", "checkpoints"):
        rows(copy.url, f"TRUNCATE {table}")
    with Sealer(copy.url) as sealer:
        sealer.seal(copy.calls)
        sealer.checkpoint()
    assert verified(copy.url)[0] == 0, (
        "stated in docs/run/audit.md: nothing in the database can show it"
    )
    kept = tmp_path / "checkpoint.txt"
    kept.write_text(copy.checkpoints[-1])
    code, said = verified(copy.url, "--against", str(kept))
    assert (code, said["first"]["class"], said["first"]["row"]) == (1, "checkpoint_mismatch", "12")


def cells(url: str) -> list[tuple[str, str, str, list[tuple[str, Any]]]]:
    """Every cell of the record and its seals: table, column, type, and the row's primary key."""
    found = []
    tables = [form.table for form in FORMS] + ["seals", "seal_rows", "checkpoints"]
    for table in tables:
        columns = rows(
            url,
            "SELECT column_name, udt_name FROM information_schema.columns WHERE table_name = %s"
            " ORDER BY 1",
            table,
        )
        key = [
            name
            for (name,) in rows(
                url,
                "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
                " AND a.attnum = ANY(i.indkey) WHERE i.indrelid = %s::regclass AND i.indisprimary"
                " ORDER BY 1",
                table,
            )
        ] or ["call_id", RUNS[table][2]]
        for values in rows(url, f"SELECT {', '.join(key)} FROM {table} ORDER BY {', '.join(key)}"):
            found += [
                (table, column, kind, list(zip(key, values, strict=True)))
                for column, kind in columns
            ]
    return found


def other_value(kind: str, value: Any, chance: random.Random) -> Any:
    """Another value of that type."""
    match kind:
        case "bytea":
            if not value:
                return b"x"
            at = chance.randrange(len(value))
            return value[:at] + bytes([value[at] ^ 1 << chance.randrange(8)]) + value[at + 1 :]
        case "text" if value is None:
            return "x"
        case "text":
            return chance.choice(
                [
                    value + "x",
                    value[:-1] or "y",
                    value.swapcase() if value.swapcase() != value else "z",
                ]
            )
        case "int4" | "int8":
            return 7 if value is None else value + chance.choice([-1000, 1000])
        case "bool":
            return not value
        case "float8":
            return 0.25 if value is None else value + 0.125
        case "uuid":
            return call_id()
        case "tsvector":
            return "'other':1"
        case "_int8":
            return [value[0] + 1, *value[1:]] if chance.random() < 0.5 else value[:-1]
        case _:
            return value.replace(microsecond=(value.microsecond + 1) % 1_000_000)


@pytest.mark.case("A1")
@pytest.mark.parametrize("made_for", [-1, 0, VERSION + 1, 1000])
def test_a1_a_seal_for_tables_that_it_cannot_have_been_made_for_is_noticed(
    copy: Log, made_for: int
) -> None:
    """The column is under no hash: another one of these would let rows be added that the seal does
    not cover."""
    rows(copy.url, "UPDATE seals SET made_for = %s WHERE call_id = %s", made_for, copy.calls[4])
    code, said = verified(copy.url)
    assert (code, said["first"]["class"], said["first"]["call_id"]) == (
        1,
        "altered",
        str(copy.calls[4]),
    )


@pytest.mark.case("A1")
@pytest.mark.slow
def test_a1_any_change_of_any_one_cell_is_noticed(copy: Log) -> None:
    """The property: whatever cell of whatever table is changed, verification fails; changed back,
    it passes."""
    every = cells(copy.url)
    seen: set[tuple[str, str]] = set()
    with psycopg.connect(conninfo(copy.url), autocommit=True) as connection:

        @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
        @given(st.sampled_from(every), st.randoms(use_true_random=False))
        def tamper(
            cell: tuple[str, str, str, list[tuple[str, Any]]], chance: random.Random
        ) -> None:
            table, column, kind, key = cell
            where = " AND ".join(f'"{name}" = %s' for name, _ in key)
            values = [value for _, value in key]
            found = connection.execute(
                f'SELECT "{column}" FROM {table} WHERE {where}'.encode(), values
            ).fetchone()
            assert found is not None
            before, after = found[0], other_value(kind, found[0], chance)
            change = f'UPDATE {table} SET "{column}" = %s WHERE {where}'.encode()
            assert connection.execute(change, [after, *values]).rowcount == 1
            report = verify(copy.url)
            back = [after if name == column else value for name, value in key]
            assert connection.execute(change, [before, *back]).rowcount == 1
            assert not report.ok, f"{table}.{column} of {key}: {before!r} to {after!r}"
            seen.add((table, column))

        tamper()
    assert verify(copy.url).ok
    print(f"{len(every)} cells, {len(seen)} of their columns tried")
    assert len(seen) > EXAMPLES // 4


@pytest.mark.case("A1")
def test_a1_a_late_row_is_covered_by_a_part_that_covers_the_others_again(copy: Log) -> None:
    late = str(copy.calls[4])
    asyncio.run(insert(copy.url, chunks_record(late, [b"late"], seq=50)))
    assert verified(copy.url)[1]["first"]["class"] == "inserted"
    with Sealer(copy.url) as sealer:
        assert sealer.seal(copy.calls) == 1, "only the call with another row"
        assert sealer.checkpoint() is not None
    code, said = verified(copy.url)
    assert (code, said["extended"], said["size"]) == (0, 1, 13)
    rows(copy.url, "DELETE FROM chunks WHERE call_id = %s AND seq = 50", late)
    assert verified(copy.url)[1]["first"]["class"] == "truncated"


def _leaf(url: str, leaf: UUID, part: int, at: str) -> None:
    rows(
        url,
        "INSERT INTO seals (position, call_id, part, at, counts, sha256, note) SELECT max(position)"
        " + 1, %s, %s, %s::timestamptz, '{7}', '', 'postgres: retention' FROM seals",
        leaf,
        part,
        at,
    )
    with Sealer(url) as sealer:
        sealer.checkpoint()


def _take_away(url: str, calls: list[UUID], table: str, *, ms: int = 0) -> None:
    """Leave what the function of the database leaves: digests of the rows, and a leaf, of so many
    milliseconds past a midnight."""
    place, form = next((place, form) for place, form in enumerate(FORMS) if form.table == table)
    key = form.key[-1][0]
    rows(
        url,
        f"INSERT INTO kept_digests SELECT x.call_id, {place}, count(*), sha256(string_agg(x.h,"
        f" ''::bytea ORDER BY x.{key})) FROM (SELECT t.call_id, t.{key},"
        f" {form.hash_sql(form.contents_sql())} AS h FROM {table} t JOIN LATERAL (SELECT salt FROM"
        " seal_rows o WHERE o.call_id = t.call_id AND salt IS NOT NULL LIMIT 1) s ON true) x WHERE"
        " call_id = ANY(%s) GROUP BY 1",
        calls,
    )
    rows(url, f"DELETE FROM {table} WHERE call_id = ANY(%s)", calls)
    midnight = datetime.combine(datetime.now(UTC).date() - timedelta(days=3), time(), UTC)
    _leaf(url, UUID(int=first_id(midnight + timedelta(milliseconds=ms)).int + place + 1), -2, "now")


@pytest.mark.slow
@pytest.mark.case("A1")
@pytest.mark.parametrize("table", ["tool_calls", "scores"])
def test_a1_a_table_that_never_goes_by_itself_is_missed_whatever_a_leaf_says(
    log: Log, table: str
) -> None:
    with copy_of(log.url) as url:
        old = fill(url, random.Random(5), calls=2, checkpoints=1, days_ago=9).calls
        assert verify(url).ok
        _take_away(url, old, table)
        leaf, *missing = verify(url).findings
        assert (leaf.damage, leaf.table) == (Damage.ALTERED, "seals")
        assert leaf.detail == f"it says that rows of {table} went, of which none go by themselves"
        assert [(one.call_id, one.damage, one.table) for one in missing] == [
            (call, Damage.MISSING, table) for call in old
        ]
        assert verify_part(url, call_id=old[0], low=None, high=None, within_s=60.0).findings == [
            leaf,
            missing[0],
        ]
        assert verify_part(url, call_id=log.calls[0], low=None, high=None, within_s=60.0).ok, (
            "no leaf says anything of it"
        )


@pytest.mark.slow
@pytest.mark.case("A1")
def test_a1_what_goes_by_itself_goes_up_to_a_midnight_alone(log: Log, tmp_path: Path) -> None:
    day = datetime.now(UTC).date() - timedelta(days=9)
    with copy_of(log.url) as lawful:
        old = fill(lawful, random.Random(5), calls=2, checkpoints=1, days_ago=9).calls
        with copy_of(lawful) as url:
            _take_away(url, old, "chunks", ms=1)
            assert [one.detail for one in verify(url).findings] == [
                "it says that rows went up to a time at which no day (UTC) begins"
            ]
            with pytest.raises(
                InvalidRequest, match="is no lawful one: it says that rows went up to a time"
            ):
                archive_day(url, day, tmp_path / "strange")
        _take_away(lawful, old, "chunks")
        assert archive_day(lawful, day, tmp_path / "lawful").rows
        assert verify(lawful).shed_tables == {"chunks"}
        assert "2 calls shed in part (chunks)" in run(lawful, "verify").stdout


@pytest.mark.slow
@pytest.mark.case("A1")
@pytest.mark.parametrize(
    ("bound", "low", "part", "at", "problem"),
    [
        ("2020-01-02T00:00:00.001", 3, -2, "now", "at which no day (UTC) begins"),
        ("2020-01-02", 0x10003, -2, "now", "at which no day"),
        ("2020-01-02", 3, -2, "2020-01-01 23:59:59 UTC", "of a day that was not over"),
        ("2020-01-02", 3, -2, "2020-01-02 UTC", ""),
        ("2020-01-02", 0, -2, "now", "rows of table -1 went"),
        ("2020-01-02", 99, -2, "now", "rows of table 98 went"),
        ("2020-01-02T01:00:00", 0, -1, "now", "at which no day (UTC) begins"),
        ("2020-01-02", 7, -1, "now", ""),
        ("2020-01-02", 0, -1, "2020-01-01 23:58:00 UTC", "of a day that was not over"),
    ],
)
def test_a1_a_leaf_that_no_step_writes_is_found(
    copy: Log, bound: str, low: int, part: int, at: str, problem: str
) -> None:
    _leaf(
        copy.url,
        UUID(int=first_id(datetime.fromisoformat(bound).replace(tzinfo=UTC)).int + low),
        part,
        at,
    )
    found = [one.detail for one in verify(copy.url).findings]
    assert len(found) == bool(problem) and all(problem in one for one in found), found
