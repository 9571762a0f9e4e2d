"""A2 and A10: content is deleted for good, old days are dropped, and the record still verifies and
says so."""

import asyncio
import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from typer.testing import CliRunner

from db.canonical import FORMS
from db.connections import conninfo
from db.seals.seal import Sealer
from db.write.insert import AuditInserter
from sluice.audit import audit_cli
from tests.conftest import SEED
from tests.support.checks.reading import insert
from tests.support.checks.record import (
    call_id,
    call_record,
    fresh_database,
    now_ms,
    release_record,
    rows,
)
from tests.support.checks.sealed import DAY_MS, Log, fill, keep, many_rows, put_back, run, verified

SECRET = "Xq7SECRETzebra"


@pytest.fixture
def log(database_url: str) -> Iterator[Log]:
    """A filled record, of which one call holds a secret in every field that a client, a model or a
    judge can fill."""
    with fresh_database(database_url) as url:
        log = fill(url, random.Random(SEED), calls=6)
        made = call_id(now_ms() + 100)
        asyncio.run(
            insert(
                url,
                *many_rows(made, random.Random(SEED), secret=SECRET),
                bodies={made: SECRET.encode()},
            )
        )
        asyncio.run(set_aside(url, made))
        beside(url, made)
        with Sealer(url) as sealer:
            sealer.seal(sealer.find_unsealed(log.calls[0], log.calls[0]))
            sealer.checkpoint()
        log.calls.append(UUID(made))
        yield log


def beside(url: str, call: str) -> None:
    """The secret in a debug line, in a label's note, and in the words and the path of somebody who
    searched for it."""
    rows(
        url,
        "INSERT INTO debug_logs (call_id, process, n, at, type, event, detail) VALUES (%s, 'p', 1,"
        " now(), 't', 'e', %s) RETURNING 1",
        call,
        SECRET.encode(),
    )
    rows(
        url,
        "INSERT INTO labels (call_id, block, key, key_id, label, note) VALUES (%s, 0, 'k', '',"
        " 'wrong', %s)",
        call,
        SECRET,
    )
    rows(
        url,
        "INSERT INTO reads (key, key_id, session, path, filters, call_ids, rows) VALUES ('k', '',"
        " '', %s, %s, ARRAY[%s::uuid], 1)",
        f"/debug/sessions/k/{SECRET}",
        SECRET,
        call,
    )


async def set_aside(url: str, call: str) -> None:
    """A record that PostgreSQL refuses becomes a dead letter, with its bytes."""
    async with AuditInserter(url) as inserter:
        found = await inserter.insert([call_record(call, at=2**62, session=SECRET)], {})
        assert found.refused


def holders(url: str) -> list[str]:
    """Every column of every table and view in which the secret can be read, also as bytes and in
    words."""
    found = []
    columns = rows(
        url,
        "SELECT table_schema, table_name, column_name FROM information_schema.columns "
        "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2, 3",
    )
    with psycopg.connect(conninfo(url)) as connection:
        for schema, table, column in columns:
            text = f'lower("{column}"::text)'
            wanted = (SECRET.lower(), SECRET.encode().hex(), SECRET.encode().lower().hex())
            query = (
                f'SELECT count(*) FROM "{schema}"."{table}" WHERE'
                f" {' OR '.join(f'position(%s in {text}) > 0' for _ in wanted)}"
            )
            [(count,)] = connection.execute(query.encode(), wanted).fetchall()
            found += [f"{table}.{column}"] if count else []
    return found


def export(url: str) -> str:
    """The whole export."""
    return CliRunner().invoke(audit_cli.app, ["export"], env={"SLUICE_DATABASE_URL": url}).stdout


def files_with_secret(url: str) -> int:
    """Pages of tables and indexes that hold the secret, read as the server has them on disk."""
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        relations = connection.execute(
            "SELECT c.oid::regclass::text, pg_relation_filepath(c.oid) FROM pg_class c JOIN"
            " pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'i', 't') AND"
            " pg_relation_filepath(c.oid) IS NOT NULL AND n.nspname <> 'pg_catalog'"
        ).fetchall()
        count = 0
        for _, path in relations:
            [(data,)] = connection.execute("SELECT pg_read_binary_file(%s)", (path,)).fetchall()
            count += SECRET.encode() in data or SECRET.lower().encode() in data
    return count


@pytest.mark.slow
@pytest.mark.case("A2")
def test_a2_a_redacted_call_is_nowhere_and_still_verifies(log: Log, tmp_path: Path) -> None:
    call, url = log.calls[-1], log.url
    before = holders(url)
    for form in FORMS:
        for column, _ in form.content:
            if f"{form.table}.{column}" not in (
                "releases.sha256",
                "calls.body_sha256",
                "ends.relayed_sha256",
                "events.detail",
                "tool_calls.released_arguments",
                "releases.payload",
            ):
                assert f"{form.table}.{column}" in before or form.table in ("blocks",), (
                    form.table,
                    column,
                )
    assert {
        "dead_letters.raw",
        "labels.note",
        "reads.filters",
        "reads.path",
        "debug_logs.detail",
    } <= set(before)
    assert SECRET in export(url)
    assert files_with_secret(url) > 5
    kept = tmp_path / "checkpoint.txt"
    kept.write_text(run(url, "checkpoint").stdout)

    with psycopg.connect(conninfo(url)) as reader:
        # people read meanwhile: what is of all days is not kept from them
        reader.execute("SELECT count(*) FROM reads, labels, audit_reviews")
        told = run(
            url,
            "redact",
            str(call),
            "--yes",
            "--reason",
            "asked by the user",
            "--rewrite",
            "--json",
        )
    assert (told.exit_code, json.loads(told.stdout)["call_id"]) == (0, str(call)), told.output
    assert holders(url) == []
    assert files_with_secret(url) == 0
    assert ("/debug/sessions/k/",) in rows(url, "SELECT path FROM reads"), (
        "who saw the page, and of which key, stays"
    )
    exported = export(url)
    assert SECRET not in exported and SECRET.encode().hex() not in exported
    assert f'"call_id":"{call}"' in exported
    assert "asked by the user" in exported
    code, said = verified(url, "--against", str(kept))
    assert (code, said["redacted"], said["extended"]) == (0, 1, 1), said
    with Sealer(url) as sealer:
        assert sealer.seal(log.calls) == 0
        assert sealer.checkpoint() is not None, "the redaction itself is in the tree"
    assert "1 call redacted" in run(url, "verify").stdout
    shown = (
        CliRunner()
        .invoke(
            audit_cli.app,
            ["show", str(call), "--chunks", "--json"],
            env={"SLUICE_DATABASE_URL": url},
        )
        .stdout
    )
    assert [
        (e["kind"], e["number"]) for e in json.loads(shown)["events"] if e["kind"] == "redacted"
    ] == [("redacted", 1)]
    assert {t["verdict"] for t in json.loads(shown)["tool_calls"]} == {"block"}, (
        "what was decided stays"
    )
    found = CliRunner().invoke(
        audit_cli.app, ["tool-calls", "--q", SECRET, "--json"], env={"SLUICE_DATABASE_URL": url}
    )
    assert json.loads(found.stdout)["items"] == []


@pytest.mark.slow
@pytest.mark.case("A2")
def test_a2_what_is_left_of_a_redacted_call_cannot_be_changed_or_guessed(log: Log) -> None:
    call, url = log.calls[-1], log.url
    assert run(url, "redact", str(call), "--yes", "--reason", "x").exit_code == 0
    assert rows(
        url,
        "SELECT count(*) FROM seal_rows WHERE call_id = %s AND part = 0 AND salt IS NOT NULL",
        call,
    ) == [(0,)]
    assert rows(url, "SELECT count(*) FROM releases WHERE call_id = %s AND sha256 <> ''", call) == [
        (0,)
    ]
    keep(url)
    damages = {
        "UPDATE chunks SET raw = 'another' WHERE call_id = %s AND seq = 5": (
            "altered",
            "chunks",
            "5",
        ),
        "UPDATE tool_calls SET verdict = 'allow' WHERE call_id = %s AND block = 1": (
            "altered",
            "tool_calls",
            "1",
        ),
        "UPDATE redactions SET hashes = set_byte(hashes, 1, 7) WHERE call_id = %s AND table_name = 'calls'": (
            "altered",
            "calls",
            None,
        ),
        "DELETE FROM redactions WHERE call_id = %s AND table_name = 'chunks'": (
            "altered",
            "chunks",
            "1",
        ),
        "DELETE FROM chunks WHERE call_id = %s AND seq = 5": ("missing", "chunks", "after 4"),
        "UPDATE events SET detail = 'somebody else' WHERE call_id = %s AND kind = 'redacted'": (
            "altered",
            "events",
            "redacted/1",
        ),
        "DELETE FROM events WHERE call_id = %s AND kind = 'redacted'": (
            "missing",
            "events",
            "the first",
        ),
    }
    for statement, (damage, table, row) in damages.items():
        rows(url, statement, call)
        code, said = verified(url)
        assert (code, said["first"]["class"], said["first"]["table"], said["first"]["row"]) == (
            1,
            damage,
            table,
            row,
        ), statement
        put_back(url)
    assert verified(url)[0] == 0


@pytest.mark.case("A2")
def test_a2_content_that_goes_without_the_event_is_no_redaction(log: Log) -> None:
    """What a redaction keeps is made of the content by anybody who can read it."""
    call, url = log.calls[0], log.url
    form = next(form for form in FORMS if form.table == "tool_calls")
    rows(
        url,
        "INSERT INTO redactions (call_id, table_name, row_key, hashes) SELECT t.call_id,"
        f" 'tool_calls', {form.key_sql}, {form.contents_sql()} FROM tool_calls t, (SELECT salt FROM"
        " seal_rows WHERE call_id = %s AND salt IS NOT NULL LIMIT 1) s WHERE t.call_id = %s",
        call,
        call,
    )
    emptied = ", ".join(
        f"{name} = CASE WHEN {name} IS NOT NULL THEN ''::{kind} END" for name, kind in form.content
    )
    rows(url, f"UPDATE tool_calls SET {emptied} WHERE call_id = %s", call)
    code, said = verified(url)
    assert (code, said["damages"]) == (1, 1)
    assert said["first"]["detail"] == "content was deleted, and no event of it says so"
    assert (said["first"]["class"], said["first"]["call_id"], said["first"]["table"]) == (
        "altered",
        str(call),
        "redactions",
    )


@pytest.mark.slow
@pytest.mark.case("A2")
def test_a2_redacting_twice_and_redacting_what_came_late(log: Log) -> None:
    call, url = log.calls[-1], log.url
    first = json.loads(run(url, "redact", str(call), "--yes", "--reason", "one", "--json").stdout)[
        "rows"
    ]
    assert first > 15
    assert (
        json.loads(run(url, "redact", str(call), "--yes", "--reason", "two", "--json").stdout)[
            "rows"
        ]
        == 0
    )
    asyncio.run(insert(url, release_record(str(call), SECRET.encode(), number=90)))
    with Sealer(url) as sealer:
        assert sealer.seal([call]) == 1
    assert verified(url)[0] == 0
    assert (
        json.loads(run(url, "redact", str(call), "--yes", "--reason", "three", "--json").stdout)[
            "rows"
        ]
        == 1
    )
    code, said = verified(url)
    assert (code, said["redacted"]) == (0, 1), said
    assert holders(url) == []
    reasons = rows(
        url,
        "SELECT number, detail FROM events WHERE call_id = %s AND kind = 'redacted' ORDER BY"
        " number",
        call,
    )
    assert [(number, detail.partition(": ")[2]) for number, detail in reasons] == [
        (1, "one"),
        (2, "three"),
    ]
    beside(url, str(call))
    assert (
        json.loads(run(url, "redact", str(call), "--yes", "--reason", "four", "--json").stdout)[
            "rows"
        ]
        == 3
    )
    assert (holders(url), rows(url, "SELECT count(*)::int FROM debug_logs")) == ([], [(0,)])
    assert verified(url)[0] == 0


@pytest.mark.slow
@pytest.mark.case("A2")
def test_a2_redaction_is_for_the_owner_and_for_calls_that_ended(log: Log) -> None:
    url, open_call = log.url, call_id()
    asyncio.run(insert(url, call_record(open_call)))
    assert "still open" in run(url, "redact", open_call, "--yes", "--reason", "x").output
    assert run(url, "redact", call_id(), "--yes", "--reason", "x").exit_code == 1
    for arguments in (
        ("redact", "none", "--yes", "--reason", "x"),
        ("redact", open_call, "--yes", "--reason", " "),
        ("redact", open_call),
    ):
        assert run(url, *arguments).exit_code == 2
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        for role in ("sluice_writer", "sluice_reader"):
            connection.execute(f"SET ROLE {role}".encode())
            for statement in (
                f"SELECT sluice_redact('{log.calls[-1]}', 'x')",
                "SELECT sluice_drop_before('2020-01-01', 'x')",
                "UPDATE seals SET note = 'x'",
                "DELETE FROM checkpoints",
                "TRUNCATE seal_rows",
                "UPDATE seal_rows SET salt = NULL",
                f"INSERT INTO redactions VALUES ('{log.calls[-1]}', 'chunks', '', '')",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.encode())


async def partitions(url: str, today: date) -> None:
    """Make those of the last days."""
    async with AuditInserter(url) as inserter:
        await inserter.ensure_partitions(str(today - timedelta(days=5)), 6)


@pytest.mark.case("A10")
@pytest.mark.slow
def test_a10_a_dry_drop_waits_for_nobody_and_answers_as_a_drop_would(database_url: str) -> None:
    today = datetime.now(UTC).date()
    with fresh_database(database_url) as url, psycopg.connect(conninfo(url)) as reader:
        asyncio.run(partitions(url, today))
        chance = random.Random(SEED)
        log = fill(url, chance, calls=3, days_ago=4)
        late = call_id(now_ms() - 3 * DAY_MS)
        asyncio.run(insert(url, *many_rows(late, chance)))

        def drop(*how: str) -> Any:
            return run(url, "drop", "--before", str(today), "--reason", "x", "--json", *how)

        # an open transaction that has read holds what a drop would wait for, and give up on
        reader.execute("SELECT count(*) FROM calls").fetchone()
        assert "no seal yet" in drop("--dry-run").output
        with Sealer(url) as sealer:
            sealer.seal([UUID(late)])
            assert "under no checkpoint yet" in drop("--dry-run").output
            sealer.checkpoint()
        assert json.loads(drop("--dry-run").stdout)["calls"] == 4
        assert "the tables are in use" in drop("--yes").output
        reader.rollback()
        assert json.loads(drop("--yes").stdout)["calls"] == 4 and rows(
            url, "SELECT count(*) FROM calls"
        ) == [(0,)]
        seals = rows(url, "SELECT count(*) FROM seals")
        assert (
            json.loads(drop("--yes").stdout)["calls"] == 0
            and rows(url, "SELECT count(*) FROM seals") == seals
        )
        # of what was dropped the seals are there to be named
        assert run(url, "verify", "--call", str(log.calls[0])[:23]).exit_code == 0


@pytest.mark.case("A10")
@pytest.mark.slow
def test_a10_old_days_are_dropped_below_a_checkpoint_and_the_rest_verifies(
    database_url: str,
) -> None:
    today = datetime.now(UTC).date()
    with fresh_database(database_url) as url:
        asyncio.run(partitions(url, today))
        chance = random.Random(SEED)
        log = fill(url, chance, calls=6, days_ago=4)
        recent = [call_id() for _ in range(3)]
        for call in recent:
            asyncio.run(insert(url, *many_rows(call, chance)))
        stray = call_id(now_ms() - 40 * DAY_MS)
        asyncio.run(insert(url, *many_rows(stray, chance)))

        def drop(*more: str) -> Any:
            return run(
                url,
                "drop",
                "--yes",
                "--before",
                str(today - timedelta(days=2)),
                "--reason",
                "90 days are over",
                "--json",
                *more,
            )

        assert "no seal yet" in drop().output
        with Sealer(url) as sealer:
            sealer.seal(sealer.find_unsealed(UUID(int=0), log.calls[0]))
            assert "under no checkpoint yet" in drop().output
            sealer.checkpoint()
        kept = rows(url, "SELECT text FROM checkpoints ORDER BY size DESC LIMIT 1")[0][0]
        told = drop()
        assert (told.exit_code, json.loads(told.stdout)["calls"]) == (0, 7), told.output
        left = rows(url, "SELECT call_id::text FROM calls ORDER BY 1")
        assert [c for (c,) in left] == sorted(recent)
        assert rows(
            url,
            "SELECT count(*) FROM pg_class WHERE relname ~ %s",
            f"_{today - timedelta(days=4):%Y%m%d}$",
        ) == [(0,)]
        with Sealer(url) as sealer:
            sealer.checkpoint()
        code, said = verified(url)
        assert (code, said["calls"], said["dropped"], said["size"]) == (0, 3, 7, 11), said
        assert rows(url, "SELECT counts, note FROM seals WHERE part = -1")[0][0] == [7]
        assert kept in [text for (text,) in rows(url, "SELECT text FROM checkpoints")]
        # a day that is simply gone is a deletion, and what comes back after an ordered drop was put
        # there
        rows(url, f"INSERT INTO tool_releases VALUES ('{log.calls[0]}', 1, now())")
        assert verified(url)[1]["first"]["class"] == "inserted"
        rows(url, "DELETE FROM tool_releases WHERE call_id = %s", log.calls[0])
        for (part,) in rows(
            url,
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ %s",
            f"_{today:%Y%m%d}$",
        ):
            rows(url, f"DROP TABLE sluice_parts.{part}")
        code, said = verified(url)
        assert (code, said["first"]["class"], said["damages"]) == (1, "missing", 3)
        assert drop("--before", str(today + timedelta(days=2))).exit_code == 2
