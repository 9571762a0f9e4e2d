"""A record sealed in several versions of the form: one of before the versions, writers of both beside each other, and down and up again."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import msgspec
import psycopg
import pytest

from db.canonical import VERSION
from db.link import conninfo
from db.migrations import migrate
from db.seals.redact import redact
from db.seals.seal import Sealer
from db.seals.verify import verify
from protocol.records import (
    AttemptRecord,
    BlockRecord,
    CallFacts,
    CallRecord,
    DecisionRecord,
    EventRecord,
    JudgementFacts,
    JudgementRecord,
    Record,
    ScoreRecord,
    ToolCallRecord,
)
from tests.conftest import SEED
from tests.support.checks.record import call_id, fresh_database, now_ms, rows
from tests.support.checks.sealed import control_rows, fill, insert, keep, many_rows, put_back, seal_as_before

OLD = (Path(__file__).parent.parent / "fixtures" / "record_0008.sql").read_text()
"""A record that the code of tree 96025be wrote, sealed, redacted and verified at migration 0008."""
OLD_CALLS = [UUID(bytes=(1_790_000_000_000 + n).to_bytes(6, "big") + bytes([0x70, n, 0x80]) + bytes(6) + bytes([n])) for n in range(1, 5)]


@pytest.fixture
def old(database_url: str) -> Iterator[str]:
    """The record of before, at the migration of before."""
    with fresh_database(database_url, migrated=False) as url:
        migrate.upgrade(url, "0008")
        with psycopg.connect(conninfo(url)) as connection:
            connection.execute(OLD.encode())
        yield url


def said(url: str) -> tuple[bool, int, int, int, int]:
    """Is it right, how many calls, redacted, with rows that came late, not sealed yet; and the first finding."""
    report = verify(url)
    assert report.ok, [str(finding) for finding in report.findings]
    return report.ok, report.calls, report.redacted, report.extended, report.unsealed


def found(url: str) -> list[tuple[str, str]]:
    """What a verification finds."""
    return [(finding.damage.value, finding.detail) for finding in verify(url).findings]


def make(url: str, *, key_id: str = "0123456789abcdef", rule: str | None = "no-deletes", sealed: bool = True) -> UUID:
    """A call of today; without a rule, of a worker and a gateway of before version 4."""
    made = call_id()
    noted = (CallFacts("curl/8.5"), JudgementFacts(300, 20)) if rule else (CallFacts(), JudgementFacts())
    records: list[Record] = [
        msgspec.structs.replace(r, key_id=key_id, facts=noted[0]) if isinstance(r, CallRecord)
        else msgspec.structs.replace(r, facts=noted[1]) if isinstance(r, JudgementRecord)
        else msgspec.structs.replace(r, rule=rule) if isinstance(r, ToolCallRecord | BlockRecord) else r
        for r in many_rows(made, random.Random(SEED)) if rule or not isinstance(r, ScoreRecord | DecisionRecord | AttemptRecord)
    ]  # fmt: skip
    asyncio.run(insert(url, *records, bodies={made: b"{}"}))
    if sealed:
        with Sealer(url) as sealer:
            assert sealer.seal([UUID(made)]) == 1
    return UUID(made)


@pytest.mark.slow
def test_a_record_of_before_verifies_and_goes_on_and_down_and_up_again(old: str) -> None:
    """Calls sealed before it, sealed over it, redacted before and after it, with one tree and checkpoints over all."""
    migrate.upgrade(old)
    assert rows(old, "SELECT DISTINCT form FROM seals") == [(1,)]
    assert said(old) == (True, 4, 1, 2, 0)
    new, other = make(old), make(old)
    late = EventRecord(call_id=str(OLD_CALLS[0]), kind="fenced", number=7, at=now_ms(), detail="came after the migration")
    again = EventRecord(call_id=str(OLD_CALLS[2]), kind="fenced", number=7, at=now_ms(), detail="of the one that was redacted before")
    asyncio.run(insert(old, late, again))
    with Sealer(old) as sealer:
        assert sealer.seal([OLD_CALLS[0], OLD_CALLS[2]]) == 2
        assert sealer.checkpoint()
    assert redact(old, OLD_CALLS[1], "sealed in version 1, with a late row") > 0
    assert redact(old, other, "sealed in version 2") > 0
    with Sealer(old) as sealer:
        assert sealer.checkpoint()
    assert rows(old, "SELECT DISTINCT form FROM seals ORDER BY 1") == [(1,), (VERSION,)]
    assert said(old) == (True, 6, 3, 4, 0)
    report = verify(old)
    assert (report.checkpoints, report.size) == (4, 12)
    migrate.downgrade(old, "0008")
    assert migrate.current(old) == "0008"
    assert rows(old, "SELECT key_id FROM calls WHERE call_id = %s", new) == [("0123456789abcdef",)], "a seal is over it"
    assert rows(old, "SELECT DISTINCT rule FROM tool_calls WHERE call_id = %s", new) == [("no-deletes",)]
    migrate.upgrade(old)
    assert migrate.schema_diff(old) == []
    assert said(old) == (True, 6, 3, 4, 0)


@pytest.mark.slow
def test_without_seals_of_the_new_version_the_migration_goes_down_whole(old: str) -> None:
    migrate.upgrade(old)
    asyncio.run(insert(old, *many_rows(call_id(), random.Random(SEED))))
    migrate.downgrade(old, "0008")
    columns = "SELECT count(*) FROM information_schema.columns WHERE column_name = ANY(%s) AND table_name = ANY(%s)"
    assert rows(old, columns, ["key_id", "made_for", "rule"], ["calls", "seals", "tool_calls", "blocks"]) == [(0,)]
    assert rows(old, columns, ["form"], ["seals"]) == [(0,)]
    assert rows(old, "SELECT count(*) FROM judge_block_log WHERE session <> ''") == [(8,)]
    assert rows(old, "SELECT has_table_privilege('sluice_reader', 'call_log', 'SELECT')") == [(True,)]
    migrate.upgrade(old)
    assert migrate.schema_diff(old) == []
    assert rows(old, "SELECT DISTINCT form FROM seals") == [(1,)]
    assert said(old) == (True, 4, 1, 2, 1)


def test_writers_of_before_go_on_beside_the_new_tables(database_url: str) -> None:
    with fresh_database(database_url) as url:
        # of an old gateway: nothing that its seal does not cover
        plain = make(url, key_id="", rule=None, sealed=False)
        seal_as_before(url, plain)
        assert said(url) == (True, 1, 0, 0, 0)
        # of a new gateway, sealed by an old writer: not sealed yet, until a new writer looks
        mixed = make(url, sealed=False)
        seal_as_before(url, mixed)
        assert said(url) == (True, 2, 0, 0, 1)
        with Sealer(url) as sealer:
            assert sealer.find_beside() == [mixed]
            assert sealer.seal([mixed]) == 1
            assert sealer.find_beside() == []
            assert sealer.checkpoint()
        assert said(url) == (True, 2, 0, 0, 0)
        # a record that comes late to a call of an old writer is covered in the new version
        asyncio.run(insert(url, EventRecord(call_id=str(plain), kind="fenced", number=1, at=now_ms(), detail="late")))
        with Sealer(url) as sealer:
            assert sealer.seal([plain, mixed]) == 1
        assert said(url) == (True, 2, 0, 1, 0)
        assert rows(url, "SELECT form FROM seals ORDER BY position") == [(0,), (0,), (VERSION,), (VERSION,)]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_writers_that_name_their_version_go_on_beside_the_new_tables(database_url: str, version: int) -> None:
    """The column's default says for which tables a seal was made, whatever its maker knew."""
    with fresh_database(database_url) as url:
        plain = make(url, rule=None, sealed=False)
        seal_as_before(url, plain, version)
        assert said(url) == (True, 1, 0, 0, 0)
        mixed = make(url, sealed=False)
        seal_as_before(url, mixed, version)
        assert said(url) == (True, 2, 0, 0, 1)
        with Sealer(url) as sealer:
            assert sealer.find_beside() == [mixed]
            assert sealer.seal([mixed]) == 1
            assert sealer.find_beside() == []
        assert said(url) == (True, 2, 0, 0, 0)
        assert rows(url, "SELECT form, made_for FROM seals ORDER BY position") == [(v, VERSION) for v in (version, version, VERSION)]


OLD_ROWS = (
    "INSERT INTO calls (call_id, at, dialect, endpoint, key, session, model, upstream, policy, policy_revision, stream, gateway) "
    "VALUES (%s, now(), 'openai', 'chat', 'k', 's', 'm', 'u', 'p', 'r', true, 'g')",
    "INSERT INTO tool_calls (call_id, block, index, choice, at, tool_call_id, name, arguments, executor, form, verdict, reason, policy, "
    "search) VALUES (%s, 1, 0, 0, now(), 't', 'bash', '{}', 'client', 'native', 'block', 'rule', 'tool_rules', '')",
    "INSERT INTO blocks (call_id, block, at, kind, verdict, reason, policy) VALUES (%s, 2, now(), 'text', 'block', 'x', 'p')",
    "INSERT INTO ends (call_id, at, state, reason, status, stop_reason, relayed) VALUES (%s, now(), 'ENDED', 'complete', 200, '', 1)",
)
OF_VERSION_5 = (
    "SELECT count(*) FROM information_schema.columns WHERE table_name IN ('calls', 'judgements') "
    "AND column_name IN ('user_agent', 'input_tokens', 'output_tokens')"
)
OF_VERSION_4 = "SELECT count(*) FROM information_schema.columns WHERE column_name IN ('made_for', 'rule')"


@pytest.fixture
def third(database_url: str) -> Iterator[tuple[str, UUID]]:
    """A record of version 3, at the migration of before, and its call."""
    with fresh_database(database_url, migrated=False) as url:
        migrate.upgrade(url, "0010")
        made = UUID(call_id())
        for statement in OLD_ROWS:
            rows(url, statement, made)
        seal_as_before(url, made, 3)
        yield url, made


@pytest.mark.slow
def test_a_record_of_version_3_goes_up_and_down_and_up_again(third: tuple[str, UUID]) -> None:
    url, made = third
    migrate.upgrade(url)
    assert migrate.schema_diff(url) == []
    assert rows(url, "SELECT DISTINCT form, made_for FROM seals") == [(3, None)]
    assert said(url) == (True, 1, 0, 0, 0)
    # nobody could put it there in order
    for table in ("tool_calls", "blocks"):
        rows(url, f"UPDATE {table} SET rule = 'x' WHERE call_id = %s", made)
        assert any(kind == "altered" and "of version 3, does not cover" in detail for kind, detail in found(url)), table
        rows(url, f"UPDATE {table} SET rule = NULL WHERE call_id = %s", made)
    assert redact(url, made, "sealed in version 3") > 0
    assert said(url) == (True, 1, 1, 1, 0)
    migrate.downgrade(url, "0010")
    assert rows(url, OF_VERSION_4) != [(0,)], "the redaction's seal is over it"
    migrate.upgrade(url)
    assert migrate.schema_diff(url) == []
    assert said(url) == (True, 1, 1, 1, 0)


@pytest.mark.slow
def test_without_seals_of_version_4_the_rule_goes_and_comes_back(third: tuple[str, UUID]) -> None:
    url, made = third
    migrate.upgrade(url)
    migrate.downgrade(url, "0010")
    assert rows(url, OF_VERSION_4) == [(0,)]
    assert rows(url, "SELECT has_table_privilege('sluice_reader', 'judge_block_log', 'SELECT')") == [(True,)]
    assert rows(url, "SELECT indexname FROM pg_indexes WHERE indexname IN ('seals_form_idx', 'seals_beside_idx')") == [("seals_form_idx",)]
    rows(url, "SELECT sluice_redact(%s, 'by the function of before')", made)
    migrate.upgrade(url)
    assert migrate.schema_diff(url) == []


@pytest.mark.slow
def test_a_record_of_version_4_takes_the_columns_of_version_5(database_url: str) -> None:
    """Sealed before them and after them, in one tree; redacted, and down and up again."""
    with fresh_database(database_url, migrated=False) as url:
        migrate.upgrade(url, "0011")
        before = UUID(call_id())
        for statement in OLD_ROWS:
            rows(url, statement, before)
        seal_as_before(url, before, 4)
        migrate.upgrade(url)
        assert migrate.schema_diff(url) == []
        assert rows(url, "SELECT form, made_for FROM seals") == [(4, 4)]
        after = make(url)
        assert rows(url, "SELECT user_agent FROM calls ORDER BY 1") == [("",), ("curl/8.5",)]
        assert rows(url, "SELECT DISTINCT input_tokens, output_tokens FROM judgements") == [(300, 20)]
        assert rows(url, "SELECT form, made_for FROM seals ORDER BY position") == [(4, 4), (VERSION, VERSION)]
        assert said(url) == (True, 2, 0, 0, 0)
        for call, of in ((before, "of version 4, does not cover"), (after, "others than were sealed")):
            had = rows(url, "SELECT user_agent FROM calls WHERE call_id = %s", call)[0][0]
            rows(url, "UPDATE calls SET user_agent = 'another' WHERE call_id = %s", call)
            assert [(kind, of in detail) for kind, detail in found(url)] == [("altered", True)]
            rows(url, "UPDATE calls SET user_agent = %s WHERE call_id = %s", had, call)
        rows(url, "UPDATE judgements SET output_tokens = 1 WHERE call_id = %s", after)
        assert [kind for kind, _ in found(url)] == ["altered"]
        rows(url, "UPDATE judgements SET output_tokens = 20 WHERE call_id = %s", after)
        assert redact(url, after, "the client said who it is") > 0
        assert rows(url, "SELECT DISTINCT user_agent FROM calls") == [("",)]
        assert said(url) == (True, 2, 1, 1, 0)
        migrate.downgrade(url, "0011")
        assert rows(url, OF_VERSION_5) == [(3,)], "a seal is over them"
        migrate.upgrade(url)
        assert migrate.schema_diff(url) == []
        assert said(url) == (True, 2, 1, 1, 0)


@pytest.mark.slow
def test_without_seals_of_version_5_its_columns_go_and_come_back(database_url: str) -> None:
    with fresh_database(database_url) as url:
        made = make(url, sealed=False)
        migrate.downgrade(url, "0011")
        assert rows(url, OF_VERSION_5) == [(0,)]
        assert rows(url, "SELECT sluice_redact(%s, 'by the function of before') > 0", made) == [(True,)]
        migrate.upgrade(url)
        assert migrate.schema_diff(url) == []


@pytest.mark.slow
def test_a_record_of_version_6_takes_the_tables_of_version_7(database_url: str) -> None:
    """A call sealed before them holds with them beside it, also once rows of them came to it; what no seal covers is found."""
    with fresh_database(database_url, migrated=False) as url:
        migrate.upgrade(url, "0015")
        before, late = UUID(call_id()), UUID(call_id())
        for made in (before, late):
            for statement in OLD_ROWS:
                rows(url, statement, made)
            seal_as_before(url, made, 6)
        migrate.upgrade(url)
        assert migrate.schema_diff(url) == []
        assert said(url) == (True, 2, 0, 0, 0)
        asyncio.run(insert(url, *control_rows(str(late))))
        assert {kind for kind, _ in found(url)} == {"altered"}, "in tables that were there when nobody could have put it into the seal"
        with Sealer(url) as sealer:
            assert sealer.seal([late]) == 1
        assert said(url) == (True, 2, 0, 0, 0)
        for table in ("scores", "decisions", "attempts"):
            [count] = rows(url, f"WITH gone AS (DELETE FROM {table} RETURNING *) SELECT count(*) FROM gone")
            assert count[0] > 0 and {kind for kind, _ in found(url)} <= {"missing", "truncated"} and found(url)
        migrate.downgrade(url, "0015")
        assert rows(url, "SELECT count(*) FROM scores") == [(0,)], "a seal is over it"
        migrate.upgrade(url)
        assert migrate.schema_diff(url) == []


def test_without_seals_of_version_7_its_tables_go_and_come_back(database_url: str) -> None:
    with fresh_database(database_url) as url:
        made = make(url, sealed=False)
        migrate.downgrade(url, "0015")
        assert rows(url, "SELECT to_regclass('scores'), to_regclass('sluice_parts.scores_default')") == [(None, None)]
        assert rows(url, "SELECT sluice_redact(%s, 'by the function of before') > 0", made) == [(True,)]
        assert rows(url, "SELECT sluice_ensure_partitions('2031-03-01', 1)") == [(12,)]
        migrate.upgrade(url)
        assert migrate.schema_diff(url) == []
        assert rows(url, "SELECT sluice_ensure_partitions('2031-03-01', 1)") == [(5,)]
        assert rows(url, "SELECT has_table_privilege('sluice_writer', 'scores', 'INSERT')") == [(True,)]
        assert rows(url, "SELECT has_table_privilege('sluice_reader', 'scores', 'INSERT')") == [(False,)]


def test_a_redaction_takes_the_rule_and_its_seal_holds(database_url: str) -> None:
    with fresh_database(database_url) as url:
        made = make(url)
        assert redact(url, made, "names somebody") > 0
        assert rows(url, "SELECT DISTINCT rule FROM tool_calls UNION SELECT DISTINCT rule FROM blocks WHERE rule IS NOT NULL") == [("",)]
        assert verify(url).ok and verify(url).redacted == 1


def test_a_call_that_an_old_writer_sealed_last_is_covered_again(database_url: str) -> None:
    with fresh_database(database_url) as url:
        made = make(url)
        # the old writer had it in mind too, and found other hashes than its own
        seal_as_before(url, made)
        assert said(url) == (True, 1, 0, 0, 1)
        with Sealer(url) as sealer:
            assert sealer.seal(sealer.find_beside()) == 1
        assert said(url) == (True, 1, 0, 0, 0)
        assert rows(url, "SELECT part, form FROM seals ORDER BY position") == [(0, VERSION), (1, 0), (2, VERSION)]


@pytest.mark.slow
def test_what_is_changed_in_a_record_of_several_versions_is_found(old: str) -> None:
    migrate.upgrade(old)
    made = make(old)
    keep(old)
    where = f"WHERE call_id = '{made}'"
    for statement, damage, part_of_detail in (
        (f"UPDATE calls SET key_id = 'f0' {where}", "altered", "content or columns are others"),
        (f"UPDATE calls SET key_id = '' {where}", "altered", "content or columns are others"),
        (f"UPDATE tool_calls SET rule = 'other' {where}", "altered", "content or columns are others"),
        (f"UPDATE tool_calls SET rule = NULL {where}", "altered", "content or columns are others"),
        (f"UPDATE tool_calls SET rule = 'x' WHERE call_id = '{OLD_CALLS[3]}'", "altered", "of version 1, does not cover"),
        (f"UPDATE calls SET key_id = 'f0' WHERE call_id = '{OLD_CALLS[3]}'", "altered", "of version 1, does not cover"),
        (f"UPDATE seals SET form = 1 {where}", "altered", ""),
        (f"UPDATE seals SET form = 0 {where}", "altered", ""),
        (f"UPDATE seals SET form = {VERSION} WHERE call_id = '{OLD_CALLS[3]}'", "altered", ""),
        (f"UPDATE seals SET form = {VERSION + 1} {where}", "altered", "a version that this one does not know"),
        (f"UPDATE seals SET form = -1 {where}", "altered", "a version that this one does not know"),
        (f"UPDATE calls SET model = 'x' WHERE call_id = '{OLD_CALLS[3]}'", "altered", "content or columns are others"),
    ):
        rows(old, statement)
        findings = found(old)
        assert any(kind == damage and part_of_detail in detail for kind, detail in findings), (statement, findings)
        put_back(old)
    assert found(old) == []


def test_a_record_of_one_version_has_no_calls_to_cover_again(database_url: str) -> None:
    with fresh_database(database_url) as url:
        fill(url, random.Random(SEED), calls=3)
        with Sealer(url) as sealer:
            assert sealer.find_beside() == []
        assert rows(url, "SELECT DISTINCT form FROM seals") == [(VERSION,)]
