"""What SQL does beyond its kinds, over statements of ten dialects: no write passes for a read, and
hardly a read for a write."""

import json
from pathlib import Path

import pytest

from policy.effects.sql_effects import is_read, read_sql, split
from tests.support.cpu import cpu_within

STATEMENTS = Path(__file__).parents[1] / "fixtures" / "control" / "sql.jsonl"


def statements(label: str) -> list[dict[str, str]]:
    return [
        row
        for line in STATEMENTS.read_text().splitlines()
        if (row := json.loads(line))["label"] == label
    ]


def test_no_write_is_taken_for_a_read() -> None:
    writes = statements("write")
    assert len(writes) > 300
    assert [row for row in writes if is_read(read_sql(row["sql"], row["dialect"]))] == []


def test_hardly_a_read_is_refused() -> None:
    reads = statements("read")
    refused = [row["sql"] for row in reads if not is_read(read_sql(row["sql"], row["dialect"]))]
    assert len(reads) > 300 and len(refused) <= len(reads) * 0.005, refused


@pytest.mark.parametrize(
    ("text", "effects"),
    [
        ("select 1", {"read"}),
        ("update t set a = 1 where b", {"write"}),
        ("update t set a = 1", {"write", "unbounded"}),
        ("delete from t", {"delete", "unbounded"}),
        ("delete from t where a = 1", {"delete"}),
        ("truncate t", {"delete", "unbounded"}),
        ("drop table t", {"schema", "delete", "unbounded"}),
        ("drop index i", {"schema", "delete"}),
        ("create table t (a int)", {"schema"}),
        ("grant all on t to u", {"privilege"}),
        ("update pg_catalog.pg_authid set rolsuper = true where oid = 1", {"write", "catalogue"}),
        ("select pg_read_file('/etc/passwd')", {"read", "file"}),
        ("select pg_sleep(9)", {"read", "session"}),
        ("select * from dblink('a', 'b') as t(c int)", {"read", "network"}),
        ("copy t to program 'id'", {"file", "execute"}),
        ("select 1; select 2", {"read", "several"}),
        ("select 'pg_sleep(9); drop table t'", {"read"}),
        ("select a from t for update", {"read", "lock"}),
    ],
)
def test_what_a_statement_does(text: str, effects: set[str]) -> None:
    reading = read_sql(text, "postgres")
    assert reading.effects == effects and not reading.unsure


@pytest.mark.parametrize(
    ("dialect", "text", "more"),
    [
        ("postgres", "select fn_purge_logs(), is_deleted(1)", {"write", "schema"}),
        ("postgres", 'select * from app."deleteUser"(5)', {"write", "schema"}),
        (
            "postgres",
            "select set_admin(5, true), pg_catalog.pg_promote()",
            {"write", "schema", "session"},
        ),
        (
            "postgres",
            (
                "select jsonb_set_lax(d, '{a}', '1'), add_months(d, 1), get_updates(1),"
                " array_remove(a, 1), last_update(t)"
            ),
            set(),
        ),
        (
            "postgres",
            (
                "select process_state(a), store_name(b), start_of_week(c), has_delete_flag(d),"
                " set_masklen(i, 1)"
            ),
            set(),
        ),
        ("mysql", "select insert('abc', 1, 1, 'x'), replace(a, b, c), period_add(1, 2)", set()),
        ("postgres", "select cron.schedule('* * * * *', 'x'), setval('s', 1)", {"schema", "write"}),
        ("tsql", "select * from fn_xe_file_target_read_file('x', null, null, null)", {"file"}),
        ("bigquery", "select * from ml.generate_text(model m, (select a from t))", {"network"}),
    ],
)
def test_functions_that_change_something_are_known_by_their_names(
    dialect: str, text: str, more: set[str]
) -> None:
    reading = read_sql(text, dialect)
    assert reading.effects == {"read", *more} and not reading.unsure


@pytest.mark.parametrize(
    "text", ["insert into file (name) values (1)", "insert into url(a) select 1 from b"]
)
def test_a_table_may_be_called_like_a_function(text: str) -> None:
    assert not read_sql(text, "postgres").effects & {"file", "network"}


@pytest.mark.parametrize(
    ("dialect", "text", "is_unbounded"),
    [
        ("postgres", "delete from t where true", True),
        ("postgres", "delete from t where (1 = 1)", True),
        ("postgres", "update t set a = 1 where id = id", True),
        ("postgres", "delete from t where a = 1 or 'x' = 'x'", True),
        ("postgres", "delete from t where a like '%'", True),
        ("postgres", "delete from t where current_user = 'x'", True),
        ("postgres", "delete from t where a = 1 and true", False),
        ("postgres", "delete from t where exists (select 1 from u)", False),
        ("postgres", "update t set a = 1 where id = $1", False),
        ("mysql", "delete from t where id = ?", False),
        ("mysql", "delete from t limit 9", False),
        ("mysql", "delete from t limit 99999999", True),
        ("postgres", "merge into t using u on t.a = u.a when matched then update set b = 1", False),
        ("postgres", "merge into t using u on true when matched then delete", True),
        ("tsql", "merge t using u on t.a = u.a when matched then delete;", False),
        ("mysql", "replace into t values (1)", False),
        ("postgres", "insert into t values (1) on conflict (a) do update set b = 1", False),
        ("snowflake", "insert overwrite into t select 1", True),
        ("spark", "insert overwrite table t partition (d = 1) select 1", False),
    ],
)
def test_unbounded_is_what_may_take_every_row(dialect: str, text: str, is_unbounded: bool) -> None:
    reading = read_sql(text, dialect)
    assert not reading.unsure and ("unbounded" in reading.effects) == is_unbounded


@pytest.mark.parametrize(
    ("text", "is_a_read"),
    [
        ("exec sp_help 'users'", True),
        ("sp_helptext @objname = N'dbo.v'", True),
        ("exec sp_columns users, dbo", True),
        ("exec sp_who2", True),
        ("exec sp_help reconfigure", False),
        ("exec sp_help\nshutdown", False),
        ("exec sp_help 'x' drop table t", False),
        ("exec sp_helper 'x'", False),
        ("exec sp_help 'x'; exec p", False),
        ("exec sp_rename 'a', 'b'", False),
    ],
)
def test_procedures_of_the_catalogue_read(text: str, is_a_read: bool) -> None:
    assert is_read(read_sql(text, "tsql")) == is_a_read


@pytest.mark.parametrize(
    "text",
    [
        "do $$ begin end $$",
        "execute s",
        "call p()",
        "selct 1",
        "",
        ";;",
        "x" * 9000,
        "prepare s as select 1",
        "-- only a word",
    ],
)
def test_what_cannot_be_read_is_unsure(text: str) -> None:
    assert read_sql(text, "postgres").unsure


def test_statements_are_cut_where_they_end() -> None:
    assert split("a; b ;; 'c;d' -- e;f\n; /* g;h */") == ["a", " b ", " 'c;d' -- e;f\n"]
    assert "several" in read_sql(";".join(["select 1"] * 30), "postgres").effects
    assert read_sql(";".join(["select 1"] * 30), "postgres").unsure == "too many statements"


@pytest.mark.slow
def test_no_text_takes_long() -> None:
    with cpu_within(3):
        for text in (
            "'" * 8000,
            "/*" * 4000,
            ";" * 8000,
            "(" * 8000,
            "select " * 1100,
            "a.b." * 2000 + "(",
            "copy " * 1600,
        ):
            read_sql(text, "postgres")
