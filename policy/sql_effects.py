"""What a text of SQL does beyond the kinds of its statements: writes without a condition, system catalogues, files, programs, other
servers.

The kinds come of `sql`, which takes exactly one statement that the parser understands. Here several statements are looked at one by one,
and
functions that do more than compute are known by name. What the parser does not understand is unsure, never harmless.
"""

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from policy.sql import ANY, Kind, NotOneStatement, understood
from policy.sql_asks import is_pragma, only_plans
from policy.sql_lexing import STYLES, Guarded, Style, cut, guarded, replaced, without_nested
from protocol.bounds import MAX_SQL_CHARS

if TYPE_CHECKING:
    from sqlglot import exp

SqlEffect = Literal[
    "read", "write", "delete", "unbounded", "schema", "privilege", "catalogue", "file", "execute", "network", "session", "lock", "several",
]  # fmt: skip
"""`unbounded`: UPDATE or DELETE without WHERE, TRUNCATE, DROP of what holds data. `schema`: creates, changes or drops things. `catalogue`:
writes to the
server's own tables. `file`: reads or writes files of the server. `execute`: runs programs, or SQL that stands in a text. `network`: asks
other servers. `session`: changes settings, ends other sessions or makes them wait. `lock`: locks rows or tables. `several`: more than one
statement."""
WRITES: frozenset[SqlEffect] = frozenset(
    ("write", "delete", "unbounded", "schema", "privilege", "catalogue", "file", "execute", "network", "session", "lock")
)
"""Effects that a reader of a database has no need of."""
_BY_KIND: dict[str, tuple[SqlEffect, ...]] = {
    "select": ("read",), "insert": ("write",), "update": ("write",), "delete": ("delete",), "merge": ("write",), "create": ("schema",),
    "drop": ("schema", "delete"), "alter": ("schema",),
    "truncate": ("delete", "unbounded"), "grant": ("privilege",), "revoke": ("privilege",), "set": ("session",), "use": ("session",),
    "copy": ("file",), "describe": ("read",),
    "lock": ("lock",), "transaction": (), "commit": (), "rollback": (), "pragma": ("session",), "analyze": ("read",), "kill": ("session",),
    "show": ("read",),
}  # fmt: skip
_FUNCTIONS: dict[SqlEffect, str] = {
    "execute": r"xp_cmdshell|sp_oacreate|sp_oamethod|sp_execute_external_script|sp_executesql|xp_regwrite|xp_regread|sys_exec|sys_eval|"
    r"shell_exec|query_to_xml\w*|cursor_to_xml\w*|table_to_xml\w*|"
    r"database_to_xml\w*|schema_to_xml\w*|ts_stat|crosstab\w*|dbms_scheduler\.\w+|dbms_java\.\w+|dbms_sql\.\w+|load_extension|java_\w+|"
    r"plpy\w*|py_eval|executable|create_library|"
    r"sp_add_job\w*|sp_start_job|sp_procoption|pg_execute_server_program|dbms_xmlquery\.\w+|dbms_xslprocessor\.\w+|edit|reflect|"
    r"java_method",
    "file": r"load_file|pg_read_file|pg_read_binary_file|pg_ls_dir|pg_ls_\w+dir|pg_stat_file|pg_file_\w+|lo_import|lo_export|"
    r"lo_from_bytea|lo_put|lo_get|loread|lowrite|lo_create|lo_unlink|"
    r"xp_dirtree|xp_fileexist|xp_subdirs|xp_create_subdir|xp_delete_file|openrowset|utl_file\.\w+|bfilename|dbms_lob\.\w+|read_file|"
    r"writefile|readfile|fsdir|write_file|read_text|read_blob|read_csv\w*|"
    r"read_json\w*|read_parquet|parquet_scan|glob|read_ndjson\w*|sniff_csv|file|infile|csv_scan|zipfile|csvread|csvwrite|file_read|"
    r"file_write|script|runscript|backup",
    "network": r"dblink\w*|postgres_fdw_\w+|http_\w+|http|url|urlcluster|s3|s3cluster|gcs|hdfs|remote|remotesecure|mysql|postgresql|"
    r"mongodb|jdbc|odbc|sqlite|deltalake|iceberg|hudi|azureblobstorage|redis|"
    r"utl_http\.\w+|utl_tcp\.\w+|utl_smtp\.\w+|utl_inaddr\.\w+|httpuritype|dbms_ldap\.\w+|sp_send_dbmail|opendatasource|openquery|"
    r"external_query|net\.http_\w+|aws_lambda\.\w+|aws_s3\.\w+|xp_smtp\w*|dbms_cloud\.\w+",
    "write": r"setval|nextval|pg_logical_emit_message|pg_replication_slot_\w+|pg_create_\w+|pg_drop_\w+|pg_copy_\w+_slot|pg_switch_wal|"
    r"pg_export_snapshot|pg_import_system_collations|pg_prewarm|gen_\w*insert|"
    r"pg_notify|pg_backup_start|pg_backup_stop|pg_start_backup|pg_stop_backup|pg_promote|lo_truncate\w*|last_insert_id!|get_lock!|"
    r"updatexml!|pg_stat_reset\w*|pg_stat_statements_reset|"
    r"create_\w+|add_\w+_policy|drop_chunks|create_hypertable|pgmq\.\w+|cron\.\w+|partman\.\w+|sp_rename|sp_configure|sp_addlogin|"
    r"sp_addsrvrolemember|sp_dropserver|sp_addlinkedserver|sp_attach_db|sp_detach_db|sp_msforeach\w+",
    "session": r"pg_terminate_backend|pg_cancel_backend|pg_reload_conf|pg_rotate_logfile|set_config|pg_sleep\w*|sleep|benchmark|get_lock|"
    r"release_lock|release_all_locks|pg_advisory_\w+|pg_try_advisory_\w+|"
    r"waitfor|dbms_lock\.\w+|dbms_session\.\w+|pg_wal_replay_pause|pg_wal_replay_resume|pg_log_backend_memory_contexts|"
    r"pg_log_standby_snapshot|kill_query|system\$\w+|system_\w*abort\w*|sp_who!|dbms_pipe\.\w+",
}  # fmt: skip
_FUNCTION_CALLS = {effect: re.compile(rf"(?i)(?<![\w$])[\"`\[]?(?:{names})[\"`\]]?\s*\(") for effect, names in _FUNCTIONS.items()}
_PROCEDURES = re.compile(
    r"(?i)\b(?:master\s*\.\s*\.?\s*|dbo\s*\.\s*|sys\s*\.\s*)?(?:xp_\w+|sp_(?:oa\w+|configure|addlogin|"
    r"addsrvrolemember|addlinkedserver|execute_external_script|procoption|send_dbmail|add_job\w*|start_job))\b"
)
_PROGRAM = re.compile(
    r"(?is)\b(?:to|from)\s+program\b|\binto\s+(?:outfile|dumpfile)\b|\bload\s+data\b|\bbulk\s+insert\b|"
    r"\battach\b|\bvacuum\s+into\b|\bunload\b|\bexport\s+data\b|\bcopy\s+into\b|\bput\s+file:|\bget\s+@"
)
_BODIES = re.compile(
    r"(?is)^\s*(?:do\b|execute\b|exec\b|call\b|prepare\b|begin\s+(?!tran|work|;|$)|declare\b|if\b|while\b|for\b|"
    r"\{\s*call)|\bexecute\s+immediate\b"
)
_CATALOGUE = re.compile(
    r"(?i)^(?:pg_catalog|information_schema|mysql|performance_schema|sys|sysibm|syscat|system|msdb|master|sqlite_\w+|"
    r"pg_\w+|user_privileges)$"
)
_COMMENTS = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|#(?=\s)[^\n]*|/\*.*?\*/", re.DOTALL)

_BEGIN_CHANGES = frozenset(
    """insert update delete replace merge truncate drop create alter grant revoke deny set reset use copy load call do exec execute begin
    start commit rollback savepoint release lock unlock vacuum attach detach reindex cluster comment refresh import export rename handler
    flush kill optimize repair install uninstall declare prepare deallocate listen notify unlisten discard security shutdown backup
    restore dbcc bulk reconfigure if while goto print raiserror waitfor throw purge change stop xa reassign abort end checkpoint""".split()
)
_BEGIN_READS = frozenset("select with values table explain describe desc show pragma analyze analyse".split())
_SHOWN = re.compile(r"show\s+create\s+(?:table|view|database|procedure|function|trigger|user|event)\s+(?=[\w\"`'])")
_IN_BATCH = re.compile(
    r"(?<![\w@#$.])(?:insert|update|delete|merge|truncate|drop|create|alter|grant|revoke|deny|exec|execute|shutdown|reconfigure|dbcc|"
    r"updatetext|writetext|(?:backup|restore)\s+(?:database|log|table|transaction)|kill\s+[\d'])(?![\w@#$.])"
)
"""What changes something wherever it stands unquoted in a batch of T-SQL, which needs nothing between statements."""


class SqlReading(msgspec.Struct, frozen=True):
    """The kinds of statements in a text, what they do, and why that is not sure (empty: it is)."""

    kinds: frozenset[Kind] = frozenset()
    effects: frozenset[SqlEffect] = frozenset()
    unsure: str = ""


def read_sql(text: str, dialect: str) -> SqlReading:
    """Return what a text of SQL does, in a dialect or in `ANY`. Never raises; bounded as the parser is."""
    if len(text) > MAX_SQL_CHARS:
        return SqlReading(unsure="too long")
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
        effects |= _named(piece, dialect)
        try:
            found, tree = understood(piece, dialect)
            effects |= {"read"} if only_plans(piece, dialect) else _in_tree(tree, found)
        except NotOneStatement as error:
            unsure = unsure or str(error)
            continue
        except Exception:  # noqa: BLE001 - the parser makes trees that its own code cannot walk
            unsure = unsure or "the parser fails"
            continue
        kinds |= found
    if len(pieces) > 1:
        effects.add("several")
        if len(pieces) > 20:
            unsure = "too many statements"
    if _BODIES.search(text):
        unsure = unsure or "a procedure"
    return SqlReading(frozenset(kinds), frozenset(effects), unsure)


def _read_in_all(text: str) -> SqlReading:
    """What a text does where nobody said which database reads it: the worst that it does in any that understands it."""
    if len(text) > MAX_SQL_CHARS // 2:
        return SqlReading(unsure="too long to be read in several dialects")
    if is_pragma(text):
        return SqlReading(frozenset(("describe",)), frozenset(("read",)))
    readings = [read_sql(text, dialect) for dialect in STYLES]
    known = [reading for reading in readings if not reading.unsure]
    if not known:
        return readings[0]
    # where one does not understand it, `_could_be_more` says whether there is a second statement
    effects = frozenset(e for reading in readings for e in (reading.effects - {"several"} if reading.unsure else reading.effects))
    kinds = frozenset(kind for reading in known for kind in reading.kinds)
    odd = next((f"{dialect}: {why}" for dialect, style in STYLES.items() if (why := _could_be_more(text, style))), "")
    return SqlReading(kinds, effects, odd)


def _could_be_more(text: str, style: Style) -> str:
    """Why a database with these lexical rules may find a statement that does more than read, though no parser here does; empty: none."""
    parts = guarded(text, style)
    if any(part.is_nested for part in parts):
        return "a comment in a comment"
    is_open = any(part.is_open for part in parts)
    statements = cut(text, parts)
    for number, statement in enumerate(statements):
        if is_open and number == len(statements) - 1:
            # a string without an end is an error; what stood before it may have been run
            break
        bare = replaced(statement, guarded(statement, style), {"string": "''", "name": '""', "comment": " "}).strip().lower()
        bare = _SHOWN.sub("", bare)
        first = re.match(r"[\s(]*([a-z]+)", bare)
        if first is not None and (first[1] in _BEGIN_CHANGES or (number and first[1] in _BEGIN_READS)):
            return "another statement"
        if style == STYLES["tsql"] and _IN_BATCH.search(bare):
            return "statements without anything between them"
    return ""


def is_read(reading: SqlReading) -> bool:
    """Does it only read, and is that sure?"""
    return not reading.unsure and "several" not in reading.effects and not reading.effects & WRITES


def split(text: str, dialect: str = "") -> list[str]:
    """Return the statements of a text, cut at semicolons that stand in no string, name or comment."""
    parts = _guarded(text, dialect)
    return [
        piece
        for piece in cut(text, parts)
        if replaced(piece, _guarded(piece, dialect), {"string": "x", "name": "x", "comment": ""}).strip()
    ]


def _guarded(text: str, dialect: str) -> list[Guarded]:
    if (style := STYLES.get(dialect)) is not None:
        return guarded(text, style)
    kinds: dict[str, Literal["string", "name"]] = {"'": "string", '"': "name", "`": "name"}
    return [Guarded(found.start(), found.end(), kinds.get(found[0][0], "comment")) for found in _COMMENTS.finditer(text)]


def _named(text: str, dialect: str) -> set[SqlEffect]:
    """What functions and forms are named in it, which the parser takes for any others."""
    bare = replaced(text, _guarded(text, dialect), {"string": "''", "comment": " "})
    found: set[SqlEffect] = {effect for effect, pattern in _FUNCTION_CALLS.items() if pattern.search(bare)}
    if _PROCEDURES.search(bare):
        found.add("execute")
    if _PROGRAM.search(bare):
        found.add("file")
        if re.search(r"(?i)\bprogram\b", bare):
            found.add("execute")
    return found


def _in_tree(tree: "exp.Expr | None", kinds: set[Kind]) -> set[SqlEffect]:
    from sqlglot import exp

    effects: set[SqlEffect] = {effect for kind in kinds for effect in _BY_KIND.get(kind, ("write",))}
    for node in () if tree is None else tree.walk():
        match node:
            case exp.Update() | exp.Delete():
                if node.args.get("where") is None and node.args.get("limit") is None:
                    effects.add("unbounded")
            case exp.Drop():
                if str(node.args.get("kind") or "").upper() not in ("INDEX", "TRIGGER", "FUNCTION", "PROCEDURE", "CONSTRAINT", "SEQUENCE!"):
                    effects.add("unbounded")
            case _:
                pass
        if isinstance(node, exp.Update | exp.Delete | exp.Insert | exp.Merge | exp.Drop | exp.Alter | exp.TruncateTable) and _is_catalogue(
            node
        ):
            effects.add("catalogue")
    return effects


def _is_catalogue(node: object) -> bool:
    from sqlglot import exp

    target = getattr(node, "this", None)
    if isinstance(target, exp.Schema):
        target = target.this
    if not isinstance(target, exp.Table):
        return False
    return any(
        _CATALOGUE.fullmatch(name)
        for name in (target.db, target.catalog, target.name if target.name.lower().startswith(("pg_", "sqlite_")) else "")
        if name
    )
