"""SQL statements that only query the database's metadata, which the parser knows in few dialects:
plans, SHOW, catalogue contents.

A plan of a statement has the statement's kinds: `EXPLAIN ANALYZE DELETE` deletes in most databases.
"""

import re

_OPTION = (
    r"(?:analyze|analyse|verbose|extended|formatted|cost|codegen|logical|partitions|costs|buffers"
    r"|using\s+(?:text|tabular|json)|query\s+plan|"
    r"format\s*=\s*\w+)"
)
_EXPLAIN = re.compile(
    rf"\s*explain\b\s*(?:\([\w\s,=']{{0,200}}\)\s*|(?:{_OPTION}\b\s*)+)?"
    r"(?=\(*\s*(?:select|with|values|table|insert|update|delete|merge|replace)\b)",
    re.IGNORECASE,
)
_SHOW = re.compile(r"\s*show\s+(?!plan\b)[\w\s.,'\"`=%*-]{1,500};?\s*", re.IGNORECASE)
_DESCRIBE = re.compile(
    r"\s*desc(?:ribe)?\s+(?:table\s+|extended\s+"
    r"|formatted\s+)?[\w.\"`$-]{1,200}(?:\s+[\w\"`]+)?\s*;?\s*",
    re.IGNORECASE,
)
_PRAGMA = re.compile(
    r"\s*pragma\s+(?:\w+\.)?(?:(?:table_info|table_xinfo|index_list|index_info|index_xinfo"
    r"|foreign_key_list)"
    r"\s*\(\s*[\w'\"`.\[\] -]{1,200}\s*\)|table_list|database_list|"
    r"collation_list|function_list|module_list|pragma_list|compile_options|user_version"
    r"|schema_version|page_count|page_size|freelist_count|encoding|"
    r"journal_mode|foreign_keys|synchronous|cache_size|auto_vacuum|application_id|data_version"
    r"|busy_timeout|temp_store|locking_mode|query_only|"
    r"max_page_count|(?:integrity|quick|foreign_key)_check(?:\s*\(\s*\w{1,200}\s*\))?)\s*;?\s*",
    re.IGNORECASE,
)
_ARGUMENT = r"(?:@\w+\s*=\s*)?(?:N?'[^']*'|\[[^\]]*\]|[\w.]+)"
_PROCEDURE = re.compile(
    r"\s*(?:exec(?:ute)?\s+)?(?:sys\.|dbo\.|master\.\.|master\.dbo\.)?"
    r"sp_(?:help(?:text|index|constraint|db|file|filegroup|trigger|rotect|user|role|rolemember"
    r"|_job)?|columns|tables|databases|pkeys|fkeys|"
    r"statistics|stored_procedures|sproc_columns|special_columns|table_privileges|depends|who2?"
    r"|lock|spaceused|server_info|datatype_info)\b"
    rf"(?:[ \t]+{_ARGUMENT}(?:\s*,\s*{_ARGUMENT})*)?\s*;?\s*",
    re.IGNORECASE,
)
"""Procedures of T-SQL that say what is in the catalogue. An argument stands on their line: what is
on the next may be a statement."""
_STATEMENTS_OF_A_WORD = re.compile(
    r"(?i)\b(?:reconfigure|shutdown|commit|checkpoint|rollback|revert|return|break|begin)\s*;?\s*\Z"
)


def explained(text: str) -> str | None:
    """Return the statement whose plan is asked for; None where the text asks for none."""
    match = _EXPLAIN.match(text)
    return text[match.end() :] if match is not None else None


def only_asks(text: str, dialect: str) -> bool:
    """Is it one statement that only asks what there is?"""
    if dialect in ("tsql", "fabric"):
        return _PROCEDURE.fullmatch(text) is not None and _STATEMENTS_OF_A_WORD.search(text) is None
    if _SHOW.fullmatch(text) or _DESCRIBE.fullmatch(text):
        return True
    return dialect in ("sqlite", "duckdb") and is_pragma(text)


def is_pragma(text: str) -> bool:
    """Is it a PRAGMA that only asks, a statement that no other databases have?"""
    return _PRAGMA.fullmatch(text) is not None


def only_plans(text: str, dialect: str) -> bool:
    """Is it a plan of a statement that is not run for it? T-SQL has no such statement and would
    take the word for a procedure's name."""
    match = _EXPLAIN.match(text)
    return (
        match is not None
        and dialect not in ("tsql", "fabric", "oracle")
        and re.search(r"(?i)analy[sz]e", match[0]) is None
    )
