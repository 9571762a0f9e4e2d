"""Finds the kinds of statements in an SQL text with a real parser; a text that it cannot parse has
no kinds.

The parser is loaded when it is first needed, or right after the start of a worker with rules that
need it: it takes 0.15 s.
"""

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from policy.effects.sql_asks import explained, only_asks
from policy.word_tables import by_word
from protocol.bounds import MAX_SQL_CHARS

if TYPE_CHECKING:
    from sqlglot import exp

_STEPS_PER_TOKEN = 2
_MORE_STEPS = 1_000
"""The parser takes one or two steps for a token of ordinary SQL; `struct(` in itself 40 times, 280
characters, would take 2^40."""
_MAX_DEPTH = 32
"""Of brackets: each takes the parser some 20 calls of functions, of which Python allows 1,000 in
one another."""
Kind = Literal[
    "select",
    "insert",
    "update",
    "delete",
    "merge",
    "create",
    "drop",
    "alter",
    "truncate",
    "grant",
    "revoke",
    "set",
    "use",
    "copy",
    "describe",
    "lock",
    "transaction",
    "commit",
    "rollback",
    "pragma",
    "analyze",
    "kill",
]
"""`select` covers VALUES, UNION and the like; SELECT INTO is also `create`, FOR UPDATE also `lock`,
other forms have their own names. What stands in other words within a statement counts too: see
`_more_kinds`."""
# Comments that MySQL runs; a comment of templates, which no database knows; a lone CR, which ends a
# comment for some only; a comment in a comment, whose end ends both for some only.
EXECUTABLE = re.compile(r"/\*M?!")
"""Begins a comment whose text MySQL and MariaDB run."""
_READ_DIFFERENTLY = re.compile(r"/\*M?!|\{#|\r(?!\n)|\0|/\*(?:(?!\*/).)*/\*", re.DOTALL)
_TSQL = ("tsql", "fabric")
_TSQL_RESERVED = frozenset(
    """add all alter and any as asc authorization backup begin between break browse bulk by cascade case check checkpoint close clustered
    coalesce collate column commit compute constraint contains containstable continue convert create
    cross current current_date
    current_time current_timestamp current_user cursor database dbcc deallocate declare default
    delete deny desc disk distinct
    distributed double drop dump else end errlvl escape except exec execute exists exit external
    fetch file fillfactor for foreign
    freetext freetexttable from full function goto grant group having holdlock identity
    identity_insert identitycol if in index inner
    insert intersect into is join key kill left like lineno load merge national nocheck nonclustered
    not null nullif of off offsets on
    open opendatasource openquery openrowset openxml option
    or order outer over percent pivot plan precision primary print proc
    procedure raiserror read readtext reconfigure references replication restore restrict return
    revert revoke right rollback
    rowcount rowguidcol rule save schema securityaudit select semantickeyphrasetable
    semanticsimilaritydetailstable
    semanticsimilaritytable session_user set setuser shutdown some statistics system_user table
    tablesample textsize then to top tran
    transaction trigger truncate try_convert tsequal union unique unpivot update updatetext use user
    values varying view waitfor when
    where while with within writetext""".split()
)
"""Transact-SQL's "Reserved Keywords", but `public`, which GRANT names. T-SQL needs nothing between
statements, so `select 1 delete from t` are two: none of these words can be a name there unless it
is quoted, and the parser takes it for an alias."""
_TSQL_CALLS = frozenset(
    "exec execute openquery openrowset opendatasource delete insert update merge drop create alter"
    " truncate select".split()
)
"""Reserved words before a bracket that begin a statement, or run one that stands in a text."""


_REPLACE = re.compile(
    r"(?i)\s*replace\s+(?:(?:low_priority|delayed)\s+)?(?:into\s+)?(?!\()(?=[\w`])"
)
_USUAL = frozenset(
    "athena bigquery clickhouse databricks duckdb hive mysql oracle postgres presto redshift"
    " snowflake spark sqlite trino tsql".split()
)
"""Dialects that need no look at the parser, which is then loaded after the start."""


ANY = "any"
"""In place of a dialect: it is not known which database reads it."""


class NotOneStatement(ValueError):
    """The text is not exactly one statement that the parser understands whole."""


def check_dialect(name: str) -> str:
    """Return the name of a dialect that the parser knows. Raises ValueError."""
    if (low := name.lower()) not in _USUAL and low != ANY:
        import sqlglot

        if not low or low not in sqlglot.Dialect.classes:
            raise ValueError(f"the SQL dialect {name!r} is not known")
    return low


def kinds_of(text: str, dialect: str) -> set[Kind]:
    """Return the kinds of the one statement in `text`, nested ones included (a CTE may write).
    Raises NotOneStatement."""
    return understood(text, dialect)[0]


def understood(text: str, dialect: str) -> "tuple[set[Kind], exp.Expr | None]":
    """Return the kinds of the one statement in `text`, and its tree; None where it only asks what
    there is. Raises NotOneStatement."""
    from sqlglot import exp

    if len(text) > MAX_SQL_CHARS:
        raise NotOneStatement("too long")
    # the parser takes a no-break space for white, MySQL for a letter
    if _READ_DIFFERENTLY.search(text) or any(c.isspace() for c in text if not c.isascii()):
        raise NotOneStatement("a database may read it differently")
    if only_asks(text, dialect):
        return {"describe"}, None
    if dialect not in _TSQL and (inner := explained(text)) is not None:
        of_inner, tree = understood(inner, dialect)
        return {"describe", *of_inner}, tree
    if dialect == "mysql" and (replaces := _REPLACE.match(text)) is not None:
        # the parser knows it in SQLite's words only
        inner_kinds, tree = understood("insert into " + text[replaces.end() :], dialect)
        return {"delete", *inner_kinds}, tree
    try:
        statements, words = _parse(text, dialect)
    except Exception as error:
        # whatever the parser stumbled over, it has not understood the text
        raise NotOneStatement("the parser refuses it") from error
    if len(statements) != 1 or statements[0] is None:
        raise NotOneStatement(f"{len(statements)} statements")
    root = statements[0].unnest()
    if _kind(root) is None or isinstance(root, exp.Lock | exp.Into):
        raise NotOneStatement("the parser does not know this statement")
    kinds: set[Kind] = set()
    sets = words.count("SET") if dialect in _TSQL else 0
    for node in root.walk():
        if isinstance(node, _others()) or (
            isinstance(node, exp.DML | exp.DDL) and _kind(node) is None
        ):
            raise NotOneStatement("a statement of an unknown kind")
        # INSERT ... VALUES reads nothing
        if (kind := _kind(node)) and (node is root or not isinstance(node, exp.Values)):
            kinds.add(kind)
        kinds |= _more_kinds(node)
        if dialect in _TSQL and _is_statement_in_tsql(node):
            raise NotOneStatement("more than one statement")
        sets -= isinstance(node, exp.Update | exp.Set | exp.AlterSet)
    if sets > 0:
        # the parser takes `set @x = 1` behind a statement for a part of it
        raise NotOneStatement("more than one statement")
    return kinds, statements[0]


def _parse(text: str, dialect: str) -> "tuple[list[exp.Expr | None], list[str]]":
    """Parse within so many steps that no text takes longer than an ordinary one of its length;
    gives the keywords, too.

    Raises whatever the parser does.
    """
    import sqlglot

    speech = sqlglot.Dialect.get_or_raise(dialect)
    tokens = speech.tokenize(text)
    depth = 0
    for token in tokens:
        depth += (token.token_type.name in _OPENING) - (token.token_type.name in _CLOSING)
        if depth > _MAX_DEPTH:
            raise NotOneStatement("nested too deep")
    parser = _bounded(speech.parser_class)(dialect=speech)
    parser.steps_left = _STEPS_PER_TOKEN * len(tokens) + _MORE_STEPS
    return list(parser.parse(tokens, text)), [token.token_type.name for token in tokens]


_OPENING = tuple("L_PAREN L_BRACKET L_BRACE CASE STRUCT ARRAY".split())
_CLOSING = ("R_PAREN", "R_BRACKET", "R_BRACE", "END")


@cache
def _bounded(base: Any) -> Any:
    from sqlglot import parser

    # its warnings quote the statement
    parser.logger.disabled = True

    class Bounded(base):  # type: ignore[misc]
        steps_left = 0

        def _advance(self, times: int = 1) -> None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise NotOneStatement("it takes the parser too long")
            super()._advance(times)

    return Bounded


def _is_statement_in_tsql(node: "exp.Expr") -> bool:
    from sqlglot import exp

    if isinstance(node, exp.Identifier):
        return not node.quoted and node.name.lower() in _TSQL_RESERVED
    return isinstance(node, exp.Anonymous) and node.name.lower() in _TSQL_CALLS


def _kind(node: "exp.Expr") -> Kind | None:
    kinds = _kinds()
    return next((kinds[base] for base in type(node).__mro__ if base in kinds), None)


def _more_kinds(node: "exp.Expr") -> set[Kind]:
    """What a node does besides its own kind: replacing a row, a table or a partition deletes or
    drops what was there."""
    from sqlglot import exp

    kinds: set[Kind] = set()
    match node:
        case exp.When():
            then = node.args.get("then")
            # UPDATE and INSERT are nodes; DELETE is a word, and so is DO NOTHING
            if isinstance(then, exp.Var) and "NOTHING" not in then.name.upper():
                kinds.add("delete")
        case exp.OnConflict():
            action = node.args.get("action")
            if action is None or "NOTHING" not in action.name.upper() or node.expressions:
                kinds.add("update")
        case exp.Insert():
            if (
                node.args.get("overwrite")
                or node.args.get("where")
                or (node.args.get("alternative") or "").upper() == "REPLACE"
            ):
                kinds.add("delete")
            if isinstance(node.this, exp.Directory):
                kinds.add("copy")
        case exp.Create() if node.args.get("replace"):
            kinds.add("drop")
        case exp.DropPartition() | exp.ReplaceColumns() | exp.DropPrimaryKey():
            kinds.add("drop")
        case exp.ReplacePartition():
            kinds |= {"delete", "insert"}
        case exp.Returning() if node.args.get("into"):
            kinds.add("insert")
    return kinds


_OTHERS = """
AlterSession Attach Block Cache CaseStatement Command Comment Connect Declare Detach Disconnect EndStatement
Execute ExecuteSql Export ForIn Get IfBlock Install Iterate Leave ListStage LoadData LoopBlock MultitableInserts
Put QueryTransform Refresh RepeatBlock Return Show StoredProcedure Summarize Uncache Undrop WhileBlock
"""
"""Statements without a kind, and what holds statements or runs programs: a statement with one in it
is not known."""
_KINDS = """
Select SetOperation Values : select
Create Into : create
TruncateTable : truncate
Insert Update Delete Merge Drop Alter Grant Revoke Set Use Copy Describe Lock Transaction Commit Rollback Pragma
    Analyze Kill :
"""
"""Kinds by the parser's names of statements; the others have the name that it has in small
letters."""


@cache
def _others() -> tuple[type, ...]:
    from sqlglot import exp

    return tuple(getattr(exp, name) for name in _OTHERS.split())


@cache
def _kinds() -> "dict[type, Kind]":
    from sqlglot import exp

    return {
        getattr(exp, name): msgspec.convert(kind or name.lower(), Kind)
        for name, kind in by_word(_KINDS).items()
    }
