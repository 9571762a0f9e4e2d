"""What SQL does beyond its kinds, over statements of ten dialects: no write passes for a read, and hardly a read for a write."""

import json
import time
from pathlib import Path

import pytest

from policy.sql_effects import is_read, read_sql, split

STATEMENTS = Path(__file__).parents[1] / "fixtures" / "control" / "sql.jsonl"


def statements(label: str) -> list[dict[str, str]]:
    return [row for line in STATEMENTS.read_text().splitlines() if (row := json.loads(line))["label"] == label]


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
)  # fmt: skip
def test_what_a_statement_does(text: str, effects: set[str]) -> None:
    reading = read_sql(text, "postgres")
    assert reading.effects == effects and not reading.unsure


@pytest.mark.parametrize(
    "text", ["do $$ begin end $$", "execute s", "call p()", "selct 1", "", ";;", "x" * 9000, "prepare s as select 1", "-- only a word"]
)
def test_what_cannot_be_read_is_unsure(text: str) -> None:
    assert read_sql(text, "postgres").unsure


def test_statements_are_cut_where_they_end() -> None:
    assert split("a; b ;; 'c;d' -- e;f\n; /* g;h */") == ["a", " b ", " 'c;d' -- e;f\n"]
    assert "several" in read_sql(";".join(["select 1"] * 30), "postgres").effects
    assert read_sql(";".join(["select 1"] * 30), "postgres").unsure == "too many statements"


def test_no_text_takes_long() -> None:
    begun = time.process_time()
    for text in ("'" * 8000, "/*" * 4000, ";" * 8000, "(" * 8000, "select " * 1100, "a.b." * 2000 + "(", "copy " * 1600):
        read_sql(text, "postgres")
    assert time.process_time() - begun < 3
