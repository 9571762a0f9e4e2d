"""What kinds of statements an SQL text holds, by a real parser; what it cannot parse has no kinds.

The parser is loaded with the first rule about SQL, at the start of a worker: it takes 0.15 s, and most have no such rule.
"""

import re
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sqlglot import exp

MAX_SQL = 65_536
Kind = Literal[
    "select", "insert", "update", "delete", "merge", "create", "drop", "alter", "truncate", "grant", "revoke", "set", "use", "copy",
    "describe", "lock", "transaction", "commit", "rollback", "pragma", "analyze", "kill",
]  # fmt: skip
"""`select` covers VALUES, UNION and the like; SELECT INTO is also `create`, FOR UPDATE also `lock`, other forms have their own names."""
# Comments that MySQL runs; a comment of templates, which no database knows; a lone CR, which ends a comment for some only.
_READ_DIFFERENTLY = re.compile(r"/\*M?!|\{#|\r(?!\n)|\0")
_TSQL = ("tsql", "fabric")
_TSQL_STATEMENTS = frozenset(
    "backup begin break bulk checkpoint close commit continue dbcc deallocate declare deny exec execute fetch goto kill open print "
    "raiserror readtext reconfigure restore return revert rollback save setuser shutdown updatetext use waitfor writetext".split()
)
"""T-SQL needs nothing between statements: `select 1 shutdown` are two, and none of these words can be a name there."""


class NotOneStatement(ValueError):
    """The text is not exactly one statement that the parser understands whole."""


def check_dialect(name: str) -> str:
    """Return the name of a dialect that the parser knows. Raises ValueError."""
    import sqlglot

    if not name or name.lower() not in sqlglot.Dialect.classes:
        raise ValueError(f"the SQL dialect {name!r} is not known")
    return name.lower()


def kinds_of(text: str, dialect: str) -> set[Kind]:
    """Return the kinds of the one statement in `text`, nested ones included (a CTE may write). Raises NotOneStatement."""
    import sqlglot
    from sqlglot import exp, parser

    if len(text) > MAX_SQL:
        raise NotOneStatement("too long")
    # the parser takes a no-break space for white, MySQL for a letter
    if _READ_DIFFERENTLY.search(text) or any(c.isspace() for c in text if not c.isascii()):
        raise NotOneStatement("a database may read it differently")
    # its warnings quote the statement
    parser.logger.disabled = True
    try:
        statements = sqlglot.parse(text, dialect=dialect)
    except Exception as error:
        # whatever the parser stumbled over, it has not understood the text
        raise NotOneStatement("the parser refuses it") from error
    if len(statements) != 1 or statements[0] is None:
        raise NotOneStatement(f"{len(statements)} statements")
    root = statements[0].unnest()
    if _kind(root) is None or isinstance(root, exp.Lock | exp.Into):
        raise NotOneStatement("the parser does not know this statement")
    kinds: set[Kind] = set()
    for node in root.walk():
        if kind := _kind(node):
            # INSERT ... VALUES reads nothing
            if node is root or not isinstance(node, exp.Values):
                kinds.add(kind)
        elif isinstance(node, exp.DML | exp.DDL | exp.Command):
            raise NotOneStatement("a statement of an unknown kind")
        elif dialect in _TSQL and isinstance(node, exp.Identifier) and not node.quoted and node.name.lower() in _TSQL_STATEMENTS:
            raise NotOneStatement("more than one statement")
    return kinds


def _kind(node: "exp.Expr") -> Kind | None:
    kinds = _kinds()
    return next((kinds[base] for base in type(node).__mro__ if base in kinds), None)


@cache
def _kinds() -> "dict[type, Kind]":
    from sqlglot import exp

    return {
        exp.Select: "select", exp.SetOperation: "select", exp.Values: "select", exp.Insert: "insert", exp.Update: "update",
        exp.Delete: "delete", exp.Merge: "merge", exp.Create: "create", exp.Into: "create", exp.Drop: "drop", exp.Alter: "alter",
        exp.TruncateTable: "truncate", exp.Grant: "grant", exp.Revoke: "revoke", exp.Set: "set", exp.Use: "use", exp.Copy: "copy",
        exp.Describe: "describe", exp.Lock: "lock", exp.Transaction: "transaction", exp.Commit: "commit", exp.Rollback: "rollback",
        exp.Pragma: "pragma", exp.Analyze: "analyze", exp.Kill: "kill",
    }  # fmt: skip
