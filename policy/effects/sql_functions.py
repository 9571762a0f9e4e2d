"""SQL functions and forms that do more than compute, by name: of databases, of extensions, and
user-defined ones.

A database's own functions are known one by one. The effect of a user-defined function is not
visible in the statement, so its name counts: a name that begins with a verb of change
(`delete_user`, `fn_update_salary`) is taken for a procedure, unless its first word is a value type
(`json_set`) or a verb of reading (`get_deleted_rows`).
"""

import re
from typing import Literal

SqlEffect = Literal[
    "read",
    "write",
    "delete",
    "unbounded",
    "schema",
    "privilege",
    "catalogue",
    "file",
    "execute",
    "network",
    "session",
    "lock",
    "several",
]
"""`unbounded`: UPDATE or DELETE without a condition on rows, TRUNCATE, DROP of what holds data.
`schema`: creates, changes or drops things, or runs a function whose name says that it does.
`catalogue`: writes to the server's own tables. `file`: reads or writes files of the server.
`execute`: runs programs, or SQL that stands in a text. `network`: asks other servers. `session`:
changes settings, steers the server (its log, its copies, its backups), ends other sessions or makes
them wait. `lock`: locks rows or tables. `several`: more than one statement."""
_FUNCTIONS: dict[SqlEffect, str] = {
    "execute": (
        r"xp_cmdshell|sp_oacreate|sp_oamethod|sp_execute_external_script|sp_executesql|xp_regwrite"
        r"|xp_regread|sys_exec|sys_eval|"
        r"shell_exec|query_to_xml\w*|cursor_to_xml\w*|table_to_xml\w*|"
        r"database_to_xml\w*|schema_to_xml\w*|ts_stat|crosstab\w*|dbms_scheduler\.\w+"
        r"|dbms_java\.\w+|dbms_sql\.\w+|load_extension|java_\w+|"
        r"plpy\w*|py_eval|executable|create_library|"
        r"sp_add_job\w*|sp_start_job|sp_procoption|pg_execute_server_program|dbms_xmlquery\.\w+"
        r"|dbms_xslprocessor\.\w+|edit|reflect|"
        r"java_method|run_command_on_\w+|exec"
    ),
    "file": (
        r"load_file|pg_read_file|pg_read_binary_file|pg_ls_dir|pg_ls_\w+dir|pg_stat_file"
        r"|pg_file_\w+|lo_import|lo_export|"
        r"lo_from_bytea|lo_put|lo_get|loread|lowrite|lo_create|lo_unlink|"
        r"xp_dirtree|xp_fileexist|xp_subdirs|xp_create_subdir|xp_delete_file|openrowset"
        r"|utl_file\.\w+|bfilename|dbms_lob\.\w+|read_file|"
        r"writefile|readfile|fsdir|write_file|read_text|read_blob|read_csv\w*|"
        r"read_json\w*|read_parquet|parquet_scan|glob|read_ndjson\w*|sniff_csv|file|infile"
        r"|csv_scan|zipfile|csvread|csvwrite|file_read|"
        r"file_write|script|runscript|backup|fn_\w+_read_file|fn_get_audit_file|fn_dump_dblog"
        r"|fn_dblog"
    ),
    "network": (
        r"dblink\w*|postgres_fdw_\w+|http_\w+|http|url|urlcluster|s3|s3cluster|gcs|hdfs|remote"
        r"|remotesecure|mysql|postgresql|"
        r"mongodb|jdbc|odbc|sqlite|deltalake|iceberg|hudi|azureblobstorage|redis|"
        r"utl_http\.\w+|utl_tcp\.\w+|utl_smtp\.\w+|utl_inaddr\.\w+|httpuritype|dbms_ldap\.\w+"
        r"|sp_send_dbmail|opendatasource|openquery|"
        r"external_query|net\.http_\w+|aws_lambda\.\w+|aws_s3\.\w+|(?:ml|ai)\.generate_\w+"
        r"|(?:snowflake\.)?cortex\.\w+|ai_(?:complete|query|generate\w*)|xp_smtp\w*"
        r"|dbms_cloud\.\w+"
    ),
    "write": r"setval|nextval|pg_logical_emit_message|pg_notify|lo_truncate\w*|gen_\w*insert",
    "schema": (
        r"create_hypertable|drop_chunks|(?:add|remove|alter)_\w+_(?:policy|job)|add_job"
        r"|cron\.(?:schedule|unschedule|alter_job)\w*|"
        r"partman\.\w+|pgmq\.\w+|vault\.(?:create|update)_secret|sp_rename|sp_configure"
        r"|sp_addlogin|sp_addsrvrolemember|sp_dropserver|"
        r"sp_addlinkedserver|sp_attach_db|sp_detach_db|sp_msforeach\w+|create_distributed_table\w*"
        r"|undistribute_table|fts3_tokenizer"
    ),
    "session": (
        r"pg_terminate_backend|pg_cancel_backend|pg_reload_conf|pg_rotate_logfile|set_config"
        r"|pg_sleep\w*|sleep|benchmark|get_lock|"
        r"release_lock|release_all_locks|pg_advisory_\w+|pg_try_advisory_\w+|waitfor"
        r"|dbms_lock\.\w+|dbms_session\.\w+|"
        r"pg_replication_(?:slot|origin)_(?:advance|create|drop|session|xact)\w*|pg_(?:create|drop"
        r"|copy|sync)_\w+|pg_switch_\w+|"
        r"pg_export_snapshot|pg_import_system_collations|pg_prewarm|pg_nextoid"
        r"|pg_stop_making_pinned_objects|pg_backup_start|pg_backup_stop|"
        r"pg_start_backup|pg_stop_backup|pg_promote|pg_stat_\w*reset\w*|pg_clear_\w+"
        r"|pg_restore_\w+|pg_wal_replay_pause|pg_wal_replay_resume|"
        r"pg_log_\w+|binary_upgrade_\w+|brin_(?:de)?summarize_\w+|gin_clean_pending_list"
        r"|kill_query|system\$\w+|system_\w*abort\w*|"
        r"dbms_pipe\.\w+|(?:source|master)_pos_wait|wait_for_executed_gtid_set"
        r"|wait_until_sql_thread_after_gtids"
    ),
}
_FUNCTION_CALLS = {
    effect: re.compile(rf"(?i)(?<![\w$])[\"`\[]?(?:{names})[\"`\]]?\s*\(")
    for effect, names in _FUNCTIONS.items()
}
_PROCEDURES = re.compile(
    r"(?i)\b(?:master\s*\.\s*\.?\s*|dbo\s*\.\s*|sys\s*\.\s*)?(?:xp_\w+|sp_(?:oa\w+|configure"
    r"|addlogin|"
    r"addsrvrolemember|addlinkedserver|execute_external_script|procoption|send_dbmail|add_job\w*"
    r"|start_job))\b"
)
_PROGRAM = re.compile(
    r"(?is)\b(?:to|from)\s+program\b|\binto\s+(?:outfile|dumpfile)\b|\bload\s+data\b"
    r"|\bbulk\s+insert\b|"
    r"\battach\b|\bvacuum\s+into\b|\bunload\b|\bexport\s+data\b|\bcopy\s+into\b|\bput\s+file:"
    r"|\bget\s+@"
)
_OF_A_TABLE = re.compile(r"(?i)\b(?:into|table|references|with|recursive)\s+\Z")
_PREFIXES = frozenset(
    "fn f func sp usp proc p pg my app dbo api rpc do public master citus udf".split()
)
_READS = frozenset(
    """get is has can list show count find fetch calc calculate compute check last current max min first any to from read lookup
    search""".split()
)
_TYPES = frozenset(
    """json jsonb array arrays list map object struct date time timestamp datetime bit bits byte bitmap hll str string text regexp regex
    bytes range multirange vector tsvector ts st xml path url uri hstore cidr inet ip math int
    interval num number row hash geo h3
    sketch dict variant histogram masklen weight srid days day weeks week months month years year
    hours hour minutes minute seconds second
    quarters""".split()
)
"""Words in the names of functions over values: `json_set` and `add_months` make a value, and change
none that is stored."""
_ALWAYS_CHANGES = frozenset(
    "delete drop purge truncate remove create insert update upsert grant revoke exec execute"
    " terminate wipe erase alter kill".split()
)
_CHANGES = frozenset(
    """add set reset write send import load install rename disable enable cleanup archive register save apply approve cancel assign
    reassign refund pay deactivate activate ban unlock rebuild refresh sync restore rollback merge
    move migrate transfer""".split()
)
"""Verbs that are something else in the middle of a name."""
_ALONE = frozenset("purge cleanup wipe exec execute".split())


def named(bare: str) -> set[SqlEffect]:
    """Return what the functions and forms do that are named in a text without its strings and
    comments. Linear."""
    effects: set[SqlEffect] = {
        effect
        for effect, pattern in _FUNCTION_CALLS.items()
        if any(map(_is_call, pattern.finditer(bare)))
    }
    if _PROCEDURES.search(bare):
        effects.add("execute")
    if _PROGRAM.search(bare):
        effects.add("file")
        if re.search(r"(?i)\bprogram\b", bare):
            effects.add("execute")
    return effects


def _is_call(match: re.Match[str]) -> bool:
    """Is it no table's name before its columns, as in `insert into file (name)`?"""
    return _OF_A_TABLE.search(match.string, max(0, match.start() - 40), match.start()) is None


def changes(name: str) -> bool:
    """Does a function's name say that it changes something? For functions that no database is known
    to have."""
    words = [
        word
        for word in re.split(r"[^a-z0-9]+|(?<=[a-z])(?=[A-Z])", name[:128].strip('"`[]'))
        if word
    ]
    words = [word.lower() for part in words for word in part.split("_")]
    while len(words) > 1 and words[0] in _PREFIXES:
        words = words[1:]
    if len(words) < 2:
        return bool(words) and words[0] in _ALONE
    if words[0] in _READS or words[0] in _TYPES:
        return False
    return not _ALWAYS_CHANGES.isdisjoint(words) or (
        words[0] in _CHANGES and _TYPES.isdisjoint(words)
    )
