"""SQL of which nobody said what database reads it: reads of each dialect pass, a write of any does
not, and no text is a fault."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.base import Block, ToolCall
from policy.builtin.tool_rules import ToolRules
from policy.effects.argument_names import dialect_of_tool
from policy.effects.sql import ANY
from policy.effects.sql_effects import is_read, read_sql
from policy.effects.sql_lexing import STYLES, cut, guarded
from tests.support.cpu import cpu_within

STATEMENTS = Path(__file__).parents[1] / "fixtures" / "control" / "sql.jsonl"
READONLY = ToolRules(
    allow=[{"sql": {"dialect": ANY, "effects": ["read"]}}],
    deny=[
        {
            "sql": {
                "dialect": ANY,
                "effects": ["write", "delete", "schema", "file", "execute", "session", "several"],
            },
            "reason": "writes",
        },
    ],
)
BY_KINDS = ToolRules(
    deny=[
        {"sql": {"dialect": dialect, "kinds": ["insert", "delete"]}, "reason": "writes"}
        for dialect in (ANY, "postgres")
    ]
)


def passes(text: str, tool: str = "execute_sql") -> bool:
    arguments = {"sql": text}
    return not isinstance(
        READONLY.on_tool_call(ToolCall(0, 0, "id", tool, json.dumps(arguments), arguments, None)),
        Block,
    )


@pytest.mark.slow
def test_no_write_of_any_dialect_is_a_read_where_none_is_said() -> None:
    rows = [json.loads(line) for line in STATEMENTS.read_text().splitlines()]
    assert [
        row["sql"] for row in rows if row["label"] == "write" and is_read(read_sql(row["sql"], ANY))
    ] == []
    reads = [row["sql"] for row in rows if row["label"] == "read"]
    refused = [text for text in reads if not is_read(read_sql(text, ANY))]
    assert len(refused) <= len(reads) * 0.02, refused


@pytest.mark.parametrize(
    "text",
    [
        "select top (3) [delete], [a b] from dbo.[update] with (nolock)",
        "select `insert` from `t`",
        "pragma table_info(users)",
        "select $$delete from t; --$$ as x",
        "select e'it\\'s; drop' as x",
        "describe shop.`update_log`",
        "(select 1 except select 2) union all (select 3) order by 1",
        "((select 1))",
        "values (1)",
        "table t",
        "show create table users",
        "select a -- ; drop table t\nfrom t",
        "select a from t;",
        "explain select 1",
        "select a::date, b ->> 'delete' from t",
    ],
)
def test_reads_of_each_dialect_pass(text: str) -> None:
    assert passes(text)


@pytest.mark.parametrize(
    "text",
    [
        "insert into t(a) values (1) on conflict (a) do update set b = 2",
        "insert ignore into t values (1)",
        "replace into t values (1)",
        "update t set a = 1 output deleted.a where b = 2",
        "select a from t limit 1 for update skip locked",
        "insert into t values (1); update t set a = 1 where b = 2",
    ],
)
def test_a_write_that_one_dialect_knows_is_that_write(text: str) -> None:
    reading = read_sql(text, ANY)
    assert not reading.unsure and not reading.effects & {"unbounded", "execute", "schema"}
    assert read_sql(text + " exec p", ANY).unsure or "read" in reading.effects


@pytest.mark.parametrize(
    "text",
    [
        "select '\\'; delete from t; -- '",
        "select e'\\'; delete from t; --'",
        "select $$; delete from t; -- $$",
        "select 1 delete from t",
        "select 1 --1; delete from t",
        "select 1 # 2\n; delete from t",
        "/* /* */ delete from t -- */ select 1",
        "select [a; delete from t; -- ]",
        "select [a'b]; delete from t --'",
        "select `a\\`; delete from t; -- `",
        "explain analyze delete from t",
        "explain (analyze) delete from t",
        "explain delete from t",
        "select 1; select 2",
        "/*!50000 delete */ from t",
        'select "a\\"; delete from t; -- "',
        "select 1 exec p",
        "show create table t delete from t",
        "select a from t into outfile 'x'",
        "with a as (delete from t returning 1) select 1",
        "select e'a'\n'\\'; delete from t; --'",
        "select 1 shutdown",
        "pragma user_version = 3",
        "desc x shutdown",
    ],
)
def test_what_some_database_takes_for_a_write_does_not_pass(text: str) -> None:
    assert not passes(text)


def test_a_dialect_that_is_said_counts() -> None:
    assert (
        dialect_of_tool("mcp__postgres__query") == "postgres"
        and dialect_of_tool("mysql_or_sqlite") == dialect_of_tool("query") == ANY
    )
    assert passes("select $$a; delete from t$$ as x", "pg_query") and not passes(
        "select $$a; delete from t$$ as x"
    )
    nested = "/* a /* drop */ delete */ select 1"
    assert (
        passes(nested, "postgres_query")
        and not passes(nested, "mysql_query")
        and not passes(nested)
    )
    assert passes("explain update t set a = 1", "postgres_query") and passes(
        "explain delete from t", "mysql_query"
    )
    assert not passes("explain analyze update t set a = 1", "postgres_query") and not passes(
        "explain delete from t", "mssql_query"
    )
    assert not passes("select 1 --1; delete from t", "mysql_query") and not passes(
        "select $$;delete from t;-- $$", "mysql_query"
    )


@pytest.mark.parametrize(
    ("dialect", "text", "count"),
    [
        ("postgres", "select a$b$c; d$b$", 2),
        ("postgres", "$a$ $b$ ; $a$", 1),
        ("postgres", "'\\'; x", 2),
        ("postgres", "e'\\'; x'", 1),
        ("postgres", "/* /* */ ; */ x", 1),
        ("mysql", "/* /* */ ; */ x", 2),
        ("mysql", "--1; x", 2),
        ("mysql", "-- 1; x", 1),
        ("mysql", "# ; x", 1),
        ("sqlite", "# ; x", 2),
        ("sqlite", "[a;]]b;c] ; x", 2),
        ("mysql", "[a;b]", 2),
        ("tsql", "'a'';b'", 1),
    ],
)
def test_statements_end_where_the_dialect_says(dialect: str, text: str, count: int) -> None:
    assert len(cut(text, guarded(text, STYLES[dialect]))) == count


FRAGMENTS = st.sampled_from(
    r"""é|select|insert into|update|delete from|with x as (|)|(|describe|desc|explain|analyze|show|pragma|table_info|values|union all|from
    |where|case when|end|create|or replace|function|as|returning|into|shop.`update_log`|`a|`|[|]|[a b]|"|"x"|'|''|'a'|\|$$|$q$|$1|/*|*/
    |/*!|--|#|;|,|.|*|::|->>|?|@x|:y|{|}|{{|{#|%|E'|U&'|0x|1e|begin|declare|exec|merge into|set|set @a =|copy|to program|interval|array[
    |struct(|lateral|unnest(|over (|partition by|for update|top (|limit|using|match_recognize (|pivot (|if|while|grant|on|t""".replace(
        "\n    ", ""
    ).split("|")
)


@pytest.mark.slow
@settings(max_examples=250, deadline=None, derandomize=True)
@given(
    st.lists(
        st.one_of(
            FRAGMENTS, st.sampled_from("\0\u00a0\u2028\U0001f600\ud800"), st.text(max_size=4)
        ),
        max_size=14,
    ),
    st.sampled_from(["", " ", "\n"]),
)
def test_no_text_is_a_fault(pieces: list[str], between: str) -> None:
    text = between.join(pieces)
    for rules in READONLY, BY_KINDS:
        rules.on_tool_call(ToolCall(0, 0, "id", "execute_sql", "{}", {"sql": text}, None))
    for dialect in (ANY, "mysql", "tsql", "sqlite", "bigquery"):
        read_sql(text, dialect)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(FRAGMENTS, max_size=8))
def test_a_write_behind_a_read_never_passes(pieces: list[str]) -> None:
    """Whatever opens before it: for one of the dialects nothing may, and that one may be meant."""
    text = (
        f"select 1 {' '.join(piece for piece in pieces if not set(piece) & set(OPENING))}; delete"
        " from t"
    )
    assert not is_read(read_sql(text, ANY))


OPENING = "'\"`[$#-/\0"


@pytest.mark.slow
def test_no_text_takes_long() -> None:
    with cpu_within(5):
        for text in (
            "'" * 4000,
            "/*" * 2000,
            "$a$b" * 1000,
            "[a" * 2000,
            "(" * 4000,
            "a.b." * 1000 + "(",
            "select " + "a+" * 1900 + "1",
            "x" * 9000,
        ):
            read_sql(text, ANY)
            for style in STYLES.values():
                guarded(text * 20, style)
