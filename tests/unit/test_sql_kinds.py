"""SQL in arguments: the kinds of all parts, statements without separators, and that no text takes
the parser long."""

import contextlib
import inspect
import itertools

import pytest
import sqlglot
from sqlglot import exp

from policy.effects import sql
from policy.effects.sql import NotOneStatement, kinds_of
from protocol.bounds import MAX_SQL_CHARS
from tests.support.cpu import cpu_within

MERGE = "merge into t using u on t.a = u.a "


@pytest.mark.parametrize(
    ("dialect", "text", "kinds"),
    [
        ("postgres", MERGE + "when matched then delete", {"merge", "delete"}),
        ("postgres", MERGE + "when matched then update set a = 1", {"merge", "update"}),
        (
            "postgres",
            MERGE + "when not matched then insert (a) values (1)",
            {"merge", "insert", "select"},
        ),
        ("postgres", MERGE + "when matched then do nothing", {"merge"}),
        ("tsql", MERGE + "when not matched by source then delete;", {"merge", "delete"}),
        (
            "postgres",
            "insert into t values (1) on conflict (a) do update set b = 1",
            {"insert", "update"},
        ),
        ("postgres", "insert into t values (1) on conflict do nothing", {"insert"}),
        ("mysql", "insert into t values (1) on duplicate key update a = 1", {"insert", "update"}),
        ("sqlite", "insert or replace into t values (1)", {"insert", "delete"}),
        ("mysql", "replace into t values (1)", {"insert", "delete"}),
        ("sqlite", "insert or ignore into t values (1)", {"insert"}),
        ("spark", "insert overwrite table t select 1", {"insert", "delete", "select"}),
        ("snowflake", "insert overwrite into t select 1", {"insert", "delete", "select"}),
        (
            "databricks",
            "insert into t replace where a = 1 select 1",
            {"insert", "delete", "select"},
        ),
        (
            "hive",
            "insert overwrite directory '/tmp/x' select 1",
            {"insert", "delete", "copy", "select"},
        ),
        ("snowflake", "create or replace table t as select 1", {"create", "drop", "select"}),
        ("postgres", "create view v as select 1", {"create", "select"}),
        (
            "postgres",
            (
                "with x as (insert into t values (1) on conflict (a) do update set b = 1 returning"
                " *) select * from x"
            ),
            {"select", "insert", "update"},
        ),
        ("postgres", "alter table t drop column c", {"alter", "drop"}),
        ("hive", "alter table t drop partition (a = 1)", {"alter", "drop"}),
        ("clickhouse", "alter table t delete where a = 1", {"alter", "delete"}),
        ("tsql", "update t set a = 1 output deleted.a into u", {"update", "insert"}),
        ("tsql", "select 1 as x into t", {"select", "create"}),
        ("mysql", "explain analyze delete from t", {"describe", "delete"}),
        ("postgres", "explain analyze delete from t", {"describe", "delete"}),
        ("postgres", "EXPLAIN (ANALYZE, BUFFERS) select 1", {"describe", "select"}),
        ("sqlite", "explain query plan select 1", {"describe", "select"}),
        ("sqlite", "pragma table_info(t)", {"describe"}),
        ("sqlite", "pragma writable_schema = 1", {"pragma"}),
        ("postgres", "show search_path", {"describe"}),
        ("duckdb", "copy (select 1) to 'x'", {"copy", "select"}),
    ],
)
def test_kinds_are_those_of_every_part(dialect: str, text: str, kinds: set[str]) -> None:
    """Finding 16."""
    assert kinds_of(text, dialect) - {"select"} == kinds - {"select"}


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("postgres", "explain explain select 1"),
        ("postgres", "explain analyze execute x"),
        ("postgres", "explain select 1; delete from t"),
        ("postgres", "show x; delete from t"),
        ("tsql", "show tables delete from t"),
        ("postgres", "call f()"),
        ("postgres", "do $$ begin delete from t; end $$"),
        ("postgres", "prepare x as delete from t"),
        ("postgres", "execute x"),
        ("postgres", "declare c cursor for select 1"),
        ("mysql", "replace (1)"),
        ("mysql", "select 1 into outfile '/tmp/x'"),
        ("snowflake", "execute immediate $$ delete from t $$"),
        ("snowflake", "insert all into t values (1) select 1"),
        ("hive", "load data inpath 'x' into table t"),
        ("hive", "select transform (a) using 'rm -rf /' from t"),
        ("spark", "cache table t as select 1"),
        ("bigquery", "export data options (uri = 'x') as select 1"),
        ("sqlite", "attach database 'x' as y"),
        ("duckdb", "install httpfs"),
        ("tsql", "insert into t exec p"),
        ("tsql", "select * from openquery(x, 'delete from t')"),
        ("athena", "unload (select 1) to 'x'"),
    ],
)
def test_what_writes_in_a_way_without_a_kind_is_refused(dialect: str, text: str) -> None:
    with pytest.raises(NotOneStatement):
        kinds_of(text, dialect)


STATEMENTS = {
    "select 1": {"select"},
    "select a from t": {"select"},
    "select 1 as x, 2": {"select"},
    "insert into t values (1)": {"insert"},
    "update t set a = 1": {"update"},
    "delete from t": {"delete"},
    "delete t": {"delete"},
    "merge into t using u on t.a = u.a when matched then delete;": {"merge", "delete"},
    "drop table t": {"drop"},
    "create table t (a int)": {"create"},
    "truncate table t": {"truncate"},
    "alter table t add b int": {"alter"},
    "grant select on t to u": {"grant"},
    "use db": {"use"},
    "set @x = 1": {"set"},
    "begin tran": {"transaction"},
    "commit": {"commit"},
    "kill 5": {"kill"},
    "exec p": {"none"},
    "exec('x')": {"none"},
    "declare @x int": {"none"},
    "if 1 = 1 select 1": {"none"},
    "shutdown": {"none"},
    "with a as (select 1 b) delete from a": {"delete"},
    "waitfor delay '1'": {"none"},
}


@pytest.mark.parametrize("dialect", ["tsql", "fabric"])
def test_two_statements_without_anything_between_them_are_not_one(dialect: str) -> None:
    """Finding 7: SQL Server needs no separator, and `delete` can be no name there."""
    for first, second in itertools.product(STATEMENTS, STATEMENTS):
        for text in (
            f"{first} {second}",
            f"{first}\n{second}",
            f"{first} /* */ {second} where 1 = 1",
        ):
            try:
                kinds = kinds_of(text, dialect)
            except NotOneStatement:
                continue
            assert kinds >= STATEMENTS[first] | STATEMENTS[second], text


@pytest.mark.parametrize("dialect", ["tsql", "fabric"])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 DELETE FROM users",
        "SELECT 1 AS x, 2 DELETE FROM users WHERE 1=1",
        "select 1 delete",
    ],
)
def test_a_reserved_word_is_no_alias(text: str, dialect: str) -> None:
    with pytest.raises(NotOneStatement):
        kinds_of(text, dialect)


@pytest.mark.parametrize(
    "text",
    [
        "select [delete] from t",
        (
            "select top 5 a as b, count(*) from dbo.t with (nolock) where contains(a, 'x') group by"
            " a order by a"
        ),
        (
            "select left(a, 1), convert(int, b), coalesce(a, nullif(b, 1)), isnull(a, 0) from t as"
            " u left join v on u.a = v.a"
        ),
        (
            "select case when a = 1 then 'x' else 'y' end from t where a between 1 and 2 and b in"
            " (select c from d)"
        ),
        (
            "with x as (select a, row_number() over (partition by b order by c) r from t) select *"
            " from x where r = 1"
        ),
        "select a from t option (recompile)",
        "select current_timestamp, getdate(), @x",
    ],
)
def test_ordinary_tsql_is_read(text: str) -> None:
    assert kinds_of(text, "tsql") == {"select"}


@pytest.mark.parametrize("dialect", sorted(sqlglot.Dialect.classes))
def test_a_comment_in_a_comment_is_refused(dialect: str) -> None:
    """Some parsers end it at the first end, some at the last."""
    if dialect in ("prql", "dax"):
        return
    with pytest.raises(NotOneStatement):
        kinds_of("SELECT 1 /* /* */ ; DROP TABLE t; /* */ */", dialect)
    assert kinds_of("select 1 /* a */, 2 /* b */", dialect or "postgres") == {"select"}


# What a statement may consist of: no statement of its own, and it changes nothing. A new type of
# the parser's must be put here, among the kinds, or among the others in `policy.effects.sql`.
PARTS = """
AddConstraint AddPartition Alias Aliases AllowedValuesProperty AlterColumn AlterDistStyle AlterIndex AlterModifySqlSecurity
AlterRename AlterSet AlterSortKey AnalyzeColumns AnalyzeDelete AnalyzeHistogram AnalyzeListChainedRows AnalyzeSample
AnalyzeStatistics AnalyzeValidate AnalyzeWith AtIndex AtTimeZone AttachOption BinaryColumnConstraint CTE Changes CharacterSet
Check Clone Cluster ColumnConstraint ColumnDef ColumnPosition ColumnPrefix Comprehension ConditionalInsert ConnectTo Constraint
CopyParameter Credentials Cube DDL DML DataType DataTypeParam DeclareItem DerivedTable Directory DirectoryStage Distinct
Distribute ExplodeOuter Expr Expression Fetch Filter Final ForClause ForeignKey FormatJson FormatPhrase From FromTimeZone
FunctionSpecification GrantPrincipal GrantPrivilege Group GroupingSets Having HavingMax Heredoc Hint HistoricalData Identifier
IgnoreNulls Index IndexConstraintOption IndexParameters IndexTableHint InputOutputFormat Interval IntervalOp IntervalSpan
Introducer JSON JSONColumnDef JSONExtractQuote JSONKeyValue JSONPath JSONPathFilter JSONPathKey JSONPathPart JSONPathRecursive
JSONPathRoot JSONPathScript JSONPathSelector JSONPathSlice JSONPathSubscript JSONPathUnion JSONPathWildcard JSONSchema JSONValue
Join JoinHint Lambda Lateral Limit LimitOptions LockingStatement MacroOverload MacroOverloads MatchRecognize MatchRecognizeMeasure
MergeTreeTTL MergeTreeTTLAction ModelAttribute ModifyColumn National Nearest ObjectIdentifier Offset OnCondition Opclass
OpenJSONColumnDef Order Ordered OverflowTruncateBehavior Partition PartitionBoundSpec PartitionByExcluding
PartitionByRangePropertyDynamic PartitionId PartitionList PartitionRange Per Pivot PivotAlias PivotAny PositionalColumn PreWhere
PrimaryKey Prior ProjectionDef Properties PseudoType Qualify Query QueryBand QueryOption RecursiveWithSearch Reference
RenameColumn RenameIndex RespectNulls Rollup RollupIndex Schema ScopeResolution Selectable SemanticView Semicolon
SequenceProperties SetItem SkipJSONColumn Slice Sort Star Stream Subquery SwapTable Table TableAlias TableColumn TableFromRows
TableSample Tag TimeUnit TimeseriesKey TranslateCharacters TriggerEvent TriggerExecute TriggerProperties TriggerReferencing Tuple
UDTF UnpivotColumns UserDefinedFunction UsingData Var Variadic Version WatermarkColumnConstraint Whens Where WindowSpec With
WithFill WithOperator WithTableHint WithinGroup XMLKeyValueOption XMLNamespace ZeroFillColumnConstraint
"""


def test_every_type_of_the_parser_is_classified() -> None:
    bases = (
        "Func",
        "Binary",
        "Unary",
        "Property",
        "ColumnConstraintKind",
        "Condition",
        "Predicate",
        "Connector",
    )
    types = {
        name: kind
        for name, kind in vars(exp).items()
        if inspect.isclass(kind)
        and issubclass(kind, exp.Expr)
        and not any(b.__name__ in bases for b in kind.__mro__)
    }
    decided = (
        *sql._kinds(),
        *sql._others(),
        exp.When,
        exp.OnConflict,
        exp.DropPartition,
        exp.ReplaceColumns,
        exp.DropPrimaryKey,
    )
    decided += (exp.ReplacePartition, exp.Returning)
    assert [
        name
        for name, kind in types.items()
        if not issubclass(kind, decided) and name not in PARTS.split()
    ] == []


@pytest.mark.parametrize("dialect", ["postgres", "tsql", "clickhouse", "mysql"])
@pytest.mark.parametrize(
    "unit",
    [
        "struct(",
        "select struct(",
        "(",
        "cast(",
        "a,",
        "x::",
        "a.",
        "1+",
        "not ",
        "- ",
        "case when ",
        "a -> ",
        "[",
        "with a as (",
    ],
)
def test_no_text_takes_the_parser_long(unit: str, dialect: str) -> None:
    """280 characters of `struct(` took it 2^40 steps."""
    text = ("select " + unit * (MAX_SQL_CHARS // len(unit)))[:MAX_SQL_CHARS]
    with cpu_within(2):
        for tried in (text, text[:400]):
            with contextlib.suppress(NotOneStatement):
                kinds_of(tried, dialect)


def test_a_text_over_the_bound_is_refused() -> None:
    with pytest.raises(NotOneStatement, match="long"):
        kinds_of("select 1" + " " * MAX_SQL_CHARS, "postgres")
