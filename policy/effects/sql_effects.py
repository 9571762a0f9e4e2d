"""What an SQL text does beyond the kinds of its statements: writes without a condition, system
catalogues, files, programs, other servers.

The kinds come from `sql`, which takes exactly one statement that the parser understands. Here
several statements are examined one by one, and functions that do more than compute are known by
name. What the parser does not understand is unsure, never harmless.
"""

import re
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from policy.effects.sql import ANY, EXECUTABLE, Kind, NotOneStatement, understood
from policy.effects.sql_asks import is_pragma, only_asks, only_plans
from policy.effects.sql_functions import SqlEffect, changes, named
from policy.effects.sql_lexing import STYLES, Guarded, Style, cut, guarded, replaced, without_nested
from policy.word_tables import by_word
from protocol.bounds import MAX_SQL_CHARS

if TYPE_CHECKING:
    from sqlglot import exp

WRITES = frozenset[SqlEffect](get_args(SqlEffect)) - {"read", "several"}
"""Effects that a reader of a database has no need of."""
_BY_KIND = by_word("""
select describe analyze show : read
insert update merge : write
delete : delete
create alter : schema
drop : schema delete
truncate : delete unbounded
grant revoke : privilege
set use pragma kill : session
copy : file
lock : lock
transaction commit rollback :
""")
_BODIES = re.compile(
    r"(?is)^\s*(?:do\b|execute\b|exec\b|call\b|prepare\b|begin\s+(?!tran|work|;|$)|declare\b|if\b"
    r"|while\b|for\b|"
    r"\{\s*call)|\bexecute\s+immediate\b"
)
_CATALOGUE = re.compile(
    r"(?i)^(?:pg_catalog|information_schema|mysql|performance_schema|sys|sysibm|syscat|system|msdb"
    r"|master|sqlite_\w+|"
    r"pg_\w+|user_privileges)$"
)
_COMMENTS = re.compile(
    r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|#(?=\s)[^\n]*|/\*.*?\*/", re.DOTALL
)

_OWN_STATEMENT = re.compile(r"(\A\s*|;\s*)/\*M?!\d{0,6}\s([^*/'\"`#\\;-]{0,400})\*/(?=\s*(?:;|\Z))")
_BEGIN_CHANGES = frozenset(
    """insert update delete replace merge truncate drop create alter grant revoke deny set reset use copy load call do exec execute begin
    start commit rollback savepoint release lock unlock vacuum attach detach reindex cluster comment
    refresh import export rename handler
    flush kill optimize repair install uninstall declare prepare deallocate listen notify unlisten
    discard security shutdown backup
    restore dbcc bulk reconfigure if while goto print raiserror waitfor throw purge change stop xa
    reassign abort end checkpoint""".split()
)
_BEGIN_READS = frozenset(
    "select with values table explain describe desc show pragma analyze analyse".split()
)
_SHOWN = re.compile(
    r"show\s+create\s+(?:table|view|database|procedure|function|trigger|user|event)\s+(?=[\w\"`'])"
)
_IN_BATCH = re.compile(
    r"(?<![\w@#$.])(?:insert|update|delete|merge|truncate|drop|create|alter|grant|revoke|deny|exec"
    r"|execute|shutdown|reconfigure|dbcc|"
    r"updatetext|writetext|(?:backup|restore)\s+(?:database|log|table|transaction)"
    r"|kill\s+[\d'])(?![\w@#$.])"
)
"""What changes something wherever it stands unquoted in a batch of T-SQL, which needs nothing
between statements."""


_OTHERS = ("snowflake", "bigquery")
"""Dialects that are asked where none of those with known lexical rules understands a text."""
_FEW_ROWS = 1_000
"""A limit up to which a statement without a condition does not count as one about every row."""


_NOT_IN_TSQL = re.compile(
    r"\bfor\s+(?:no\s+key\s+)?update\b|\bon\s+(?:duplicate\s+key"
    r"|conflict\b[^;]{0,500}?\bdo)\s+update\b"
)
"""With these no batch of T-SQL is one."""


class SqlReading(msgspec.Struct, frozen=True):
    """The kinds of statements in a text, what they do, and why that is not sure (empty: it is)."""

    kinds: frozenset[Kind] = frozenset()
    effects: frozenset[SqlEffect] = frozenset()
    unsure: str = ""


def read_sql(text: str, dialect: str) -> SqlReading:
    """Return what a text of SQL does, in a dialect or in `ANY`. Never raises; bounded as the parser
    is."""
    if len(text) > MAX_SQL_CHARS:
        return SqlReading(unsure="too long")
    if "/*" in text:
        # between statements it is a statement of its own to MySQL, and to others nothing
        text = _OWN_STATEMENT.sub(r"\1\2", text)
    if EXECUTABLE.search(text):
        # to MySQL it is no comment, wherever it stands
        return SqlReading(unsure="a comment that a database may execute")
    if dialect == ANY:
        return _read_in_all(text)
    if (style := STYLES.get(dialect)) is not None:
        text = without_nested(text, style)
    pieces = split(text, dialect)
    if not pieces:
        return SqlReading(unsure="no statement")
    kinds: set[Kind] = set()
    effects: set[SqlEffect] = set()
    unsure = ""
    for piece in pieces[:20]:
        effects |= named(
            replaced(piece, _guarded(piece, dialect), {"string": "''", "comment": " "})
        )
        try:
            statement_kinds, tree = understood(piece, dialect)
            effects |= {"read"} if only_plans(piece, dialect) else _in_tree(tree, statement_kinds)
        except NotOneStatement as error:
            unsure = unsure or str(error)
            continue
        except Exception:  # noqa: BLE001 - the parser makes trees that its own code cannot walk
            unsure = unsure or "the parser fails"
            continue
        kinds |= statement_kinds
    if len(pieces) > 1:
        effects.add("several")
        if len(pieces) > 20:
            unsure = "too many statements"
    if _BODIES.search(text) and not (len(pieces) == 1 and only_asks(pieces[0], dialect)):
        unsure = unsure or "a procedure"
    return SqlReading(frozenset(kinds), frozenset(effects), unsure)


def _read_in_all(text: str) -> SqlReading:
    """What a text does where the database is not known: the worst that it does in any that
    understands it."""
    if len(text) > MAX_SQL_CHARS // 2:
        return SqlReading(unsure="too long to be read in several dialects")
    if is_pragma(text) or only_asks(text, "tsql"):
        return SqlReading(frozenset(("describe",)), frozenset(("read",)))
    readings = [read_sql(text, dialect) for dialect in STYLES]
    known = [reading for reading in readings if not reading.unsure]
    # what stands between quotes is the same for those too, or `_could_be_more` says that it is not
    known = (
        known
        or [reading for dialect in _OTHERS if not (reading := read_sql(text, dialect)).unsure][:1]
    )
    if not known:
        return readings[0]
    # where one does not understand it, `_could_be_more` says whether there is a second statement
    effects = frozenset(
        e
        for reading in (*readings, *known)
        for e in (reading.effects - {"several"} if reading.unsure else reading.effects)
    )
    kinds = frozenset(kind for reading in known for kind in reading.kinds)
    styles = zip(STYLES.items(), readings, strict=True)
    odd = next(
        (
            f"{name}: {why}"
            for (name, style), reading in styles
            if reading.unsure and (why := _could_be_more(text, style, kinds))
        ),
        "",
    )
    if any(part.is_nested for style in STYLES.values() for part in guarded(text, style)):
        odd = "a comment in a comment"
    return SqlReading(kinds, effects, odd)


def _could_be_more(text: str, style: Style, kinds: frozenset[Kind]) -> str:
    """Why a database with these lexical rules may find a statement besides that of these kinds,
    though no parser here does; empty: none."""
    parts = guarded(text, style)
    is_open = any(part.is_open for part in parts)
    statements = cut(text, parts)
    for number, statement in enumerate(statements):
        if is_open and number == len(statements) - 1:
            # a string without an end is an error; what stood before it may have been run
            break
        bare = (
            replaced(
                statement, guarded(statement, style), {"string": "''", "name": '""', "comment": " "}
            )
            .strip()
            .lower()
        )
        bare = _SHOWN.sub("", bare)
        first = re.match(r"[\s(]*([a-z]+)", bare)
        if (
            first is not None
            and not number
            and {"replace": "insert"}.get(first[1], first[1]) in kinds
        ):
            # what another dialect read
            bare = bare[first.end() :]
        elif first is not None and (
            first[1] in _BEGIN_CHANGES or (number and first[1] in _BEGIN_READS)
        ):
            return "another statement"
        if style == STYLES["tsql"] and _IN_BATCH.search(_NOT_IN_TSQL.sub("", bare)):
            return "statements without anything between them"
    return ""


def is_read(reading: SqlReading) -> bool:
    """Does it only read, and is that sure?"""
    return not reading.unsure and "several" not in reading.effects and not reading.effects & WRITES


def split(text: str, dialect: str = "") -> list[str]:
    """Return the statements of a text, cut at semicolons that stand in no string, name or
    comment."""
    parts = _guarded(text, dialect)
    return [
        piece
        for piece in cut(text, parts)
        if replaced(
            piece, _guarded(piece, dialect), {"string": "x", "name": "x", "comment": ""}
        ).strip()
    ]


def _guarded(text: str, dialect: str) -> list[Guarded]:
    if (style := STYLES.get(dialect)) is not None:
        return guarded(text, style)
    kinds: dict[str, Literal["string", "name"]] = {"'": "string", '"': "name", "`": "name"}
    return [
        Guarded(match.start(), match.end(), kinds.get(match[0][0], "comment"))
        for match in _COMMENTS.finditer(text)
    ]


def _in_tree(tree: "exp.Expr | None", kinds: set[Kind]) -> set[SqlEffect]:
    from sqlglot import exp

    effects: set[SqlEffect] = {
        msgspec.convert(effect, SqlEffect)
        for kind in kinds
        for effect in _BY_KIND.get(kind, "write").split()
    }
    for node in () if tree is None else tree.walk():
        match node:
            case exp.Update() | exp.Delete() if not isinstance(
                node.parent, exp.When | exp.OnConflict
            ):
                if _takes_all(node):
                    effects.add("unbounded")
            case exp.Merge() if _is_constant(node.args.get("on")):
                effects.add("unbounded")
            case exp.Insert() if node.args.get("overwrite") and not (
                node.find(exp.Partition) or isinstance(node.this, exp.Directory)
            ):
                effects.add("unbounded")
            case exp.Drop():
                if str(node.args.get("kind") or "").upper() not in (
                    "INDEX",
                    "TRIGGER",
                    "FUNCTION",
                    "PROCEDURE",
                    "CONSTRAINT",
                ):
                    effects.add("unbounded")
            case exp.Anonymous() | exp.AnonymousAggFunc() if changes(node.name):
                effects |= {"write", "schema"}
            case _:
                pass
        if isinstance(
            node,
            exp.Update
            | exp.Delete
            | exp.Insert
            | exp.Merge
            | exp.Drop
            | exp.Alter
            | exp.TruncateTable,
        ) and _is_catalogue(node):
            effects.add("catalogue")
    return effects


def _takes_all(node: "exp.Expr") -> bool:
    """May it take every row: without a condition that a row can fail, and without a small limit?"""
    where, limit = node.args.get("where"), node.args.get("limit")
    if limit is not None:
        limit_text = limit.expression.name
        return not (limit_text.isdigit() and int(limit_text) <= _FEW_ROWS)
    return where is None or _is_constant(where.this)


def _is_constant(condition: "exp.Expr | None") -> bool:
    """Is it the same for each row, or true for each: `1 = 1`, `true`, `id = id`, `a = 1 or
    true`?"""
    from sqlglot import exp

    match condition:
        case None:
            return False
        case exp.Paren():
            return _is_constant(condition.this)
        case exp.Or():
            return _is_constant(condition.this) or _is_constant(condition.expression)
        case exp.And():
            return _is_constant(condition.this) and _is_constant(condition.expression)
        case exp.EQ() | exp.Is() | exp.GTE() | exp.LTE() | exp.NullSafeEQ() if (
            condition.this == condition.expression
        ):
            return True
        case exp.Like() | exp.ILike() if set(condition.expression.name) == {"%"}:
            return True
    return (
        condition.find(
            exp.Column, exp.Query, exp.Placeholder, exp.Parameter, exp.SessionParameter, exp.Dot
        )
        is None
    )


def _is_catalogue(node: object) -> bool:
    from sqlglot import exp

    target = getattr(node, "this", None)
    if isinstance(target, exp.Schema):
        target = target.this
    if not isinstance(target, exp.Table):
        return False
    return any(
        _CATALOGUE.fullmatch(name)
        for name in (
            target.db,
            target.catalog,
            target.name if target.name.lower().startswith(("pg_", "sqlite_")) else "",
        )
        if name
    )
